"""Executables of programs whose arguments or results are in blocks: each is one ``hlojit.Array`` outside.

    # func.func @main(%x: tensor<4x64xmxfp8>) -> tensor<4x64xmxfp8>
    y = executable(hlojit.Array.from_values(numbers, "mxfp8"))

The program underneath takes and returns the parts, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, final

from hlojit.array_codes import have_same_codes
from hlojit.arrays import Array
from hlojit.block_arrays import PART_NAMES
from hlojit.compiled import CompiledProgram
from hlojit.ir.errors import ArgumentError
from hlojit.ir.ops.block_arithmetic import block_format, part_types
from hlojit.ir.types import TensorType
from hlojit.signature_executable import SignatureExecutable

Signature = tuple[tuple[TensorType, ...], tuple[TensorType, ...]]


@final
class BlockExecutable(SignatureExecutable):
    """An executable of any kind behind a signature with block formats: ``hlojit.Array``s of several parts."""

    def __init__(self, flat: Any, signature: Signature):
        self._signature = signature
        super().__init__(flat, *signature)

    def compiled_program(self) -> CompiledProgram:
        """As ``Executable.compiled_program``."""
        compiled: CompiledProgram = self.flat.compiled_program()
        return replace(compiled, blocks=self._signature)

    def _around(self, flat: Any) -> BlockExecutable:
        return BlockExecutable(flat, self._signature)

    def _results(self, leaves: Sequence[Any]) -> Sequence[Any]:
        following = iter(leaves)
        return [self._result(type_, following) for type_ in self._signature[1]]

    def _result(self, type_: TensorType, leaves: Iterator[Any]) -> Any:
        if block_format(type_) is None:
            return next(leaves)
        return Array.in_blocks([next(leaves) for _ in part_types(type_)], type_.element_type)

    def _leaves(self, arguments: Sequence[Any]) -> list[Any]:
        if len(arguments) != len(self.input_types):
            count = len(self.input_types)
            raise ArgumentError(
                f"{self._name} takes {count} argument{'s' if count != 1 else ''}, not {len(arguments)}: "
                f"({', '.join(map(str, self.input_types))})"
            )
        found: list[Any] = []
        for number, (argument, type_) in enumerate(zip(arguments, self._signature[0])):
            if block_format(type_) is None:
                found.append(argument)
            else:
                found += self._parts_of(argument, type_, f"{self._name}, argument {number}")
        return found

    def _parts_of(self, argument: Any, type_: TensorType, where: str) -> tuple[Any, ...]:
        if not isinstance(argument, Array) or len(argument.parts) != len(part_types(type_)):
            shape = getattr(argument, "shape", None)
            got = f"an array of shape {shape}" if isinstance(shape, tuple) else f"a {type(argument).__name__}"
            raise ArgumentError(
                f"{where}: expected {type_}, got {got}; encode numbers with "
                f"hlojit.Array.from_values(values, {type_.element_type.name!r})"
            )
        same = argument.type is type_ or (
            argument.shape == type_.shape and have_same_codes(argument.element_type, type_.element_type)
        )
        if not same:
            raise ArgumentError(f"{where}: expected {type_}, got {argument.type}")
        return argument.parts

    def _leaf_names(self) -> Sequence[str]:
        found: list[str] = []
        for number, type_ in enumerate(self._signature[0]):
            if block_format(type_) is None:
                found.append(str(number))
            else:
                found += [f"{number} ({part})" for part, _ in zip(PART_NAMES, part_types(type_))]
        return found
