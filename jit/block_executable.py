"""Executables of programs whose arguments or results are in blocks: each is one ``hlojit.Array`` outside.

    # func.func @main(%x: tensor<4x64xmxfp8>) -> tensor<4x64xmxfp8>
    y = executable(hlojit.Array.from_values(numbers, "mxfp8"))

The program underneath takes and returns the parts, one after the other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, final

from hlojit.array_codes import have_same_codes
from hlojit.arrays import Array
from hlojit.block_arrays import PART_NAMES
from hlojit.compiled import CompiledProgram, write
from hlojit.device_call import refuse_keywords
from hlojit.ir.errors import ArgumentError
from hlojit.ir.ops.block_arithmetic import block_format, part_types
from hlojit.ir.types import TensorType

_NUMBERED = re.compile(r"\bargument (\d+)\b")

Signature = tuple[tuple[TensorType, ...], tuple[TensorType, ...]]


@final
class BlockExecutable:
    """An executable of any kind behind a signature with block formats; ``flat`` is the one underneath."""

    def __init__(self, flat: Any, signature: Signature):
        self.flat = flat
        self.input_types, self.output_types = signature
        self._processes: int = getattr(flat, "num_replicas", 1) * getattr(flat, "num_partitions", 1)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Run: as the executable underneath, with an ``hlojit.Array`` for each argument and result in blocks."""
        refuse_keywords(self._name, self.input_types, keywords)
        return self._of(self.flat, arguments)

    call = __call__

    def execute(self, *arguments: Any, **options: Any) -> Any:
        """As ``Executable.execute``: start and return at once."""
        return self._of(self.flat.execute, arguments, **options)

    def specialized(self, *arguments: Any) -> BlockExecutable:
        """As ``DynamicExecutable.specialized``."""
        found = self._asked(self.flat.specialized, *self._flat_arguments(arguments))
        return BlockExecutable(found, (self.input_types, self.output_types))

    def compiled_program(self) -> CompiledProgram:
        """As ``Executable.compiled_program``."""
        compiled: CompiledProgram = self.flat.compiled_program()
        return replace(compiled, blocks=(self.input_types, self.output_types))

    def save(self, path: str | os.PathLike[str]) -> None:
        """As ``Executable.save``; what is loaded takes and returns the same arrays."""
        write(self.compiled_program(), path)

    def __getattr__(self, name: str) -> Any:
        if name == "flat":
            raise AttributeError(name)
        return getattr(self.flat, name)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, types)) for types in (self.input_types, self.output_types))
        return f"<BlockExecutable {self._name}: ({inputs}) -> ({outputs})>"

    @property
    def _name(self) -> str:
        found: str = self.flat.name if hasattr(self.flat, "name") else self.flat.spec.name
        return found

    def _of(self, function: Callable[..., Any], arguments: Sequence[Any], **options: Any) -> Any:
        flat = self._asked(function, *self._flat_arguments(arguments), **options)
        if self._processes > 1:
            return [self._results(row) for row in flat]
        results = self._results((flat,) if len(self.flat.output_types) == 1 else flat)
        return results[0] if len(results) == 1 else tuple(results)

    def _results(self, parts: Sequence[Any]) -> list[Any]:
        following = iter(parts)
        return [self._result(type_, following) for type_ in self.output_types]

    def _result(self, type_: TensorType, parts: Iterator[Any]) -> Any:
        if block_format(type_) is None:
            return next(parts)
        return Array.in_blocks([next(parts) for _ in part_types(type_)], type_.element_type)

    def _flat_arguments(self, arguments: Sequence[Any]) -> list[Any]:
        """What the executable underneath is called with: of several processes, one list of lists."""
        if self._processes == 1:
            return self._parts(arguments)
        rows = arguments[0] if len(arguments) == 1 else None
        if not isinstance(rows, (list, tuple)) or not all(isinstance(row, (list, tuple)) for row in rows):
            return list(arguments)  # of which it says what is wrong
        return [[self._parts(row) for row in rows]]

    def _parts(self, arguments: Sequence[Any]) -> list[Any]:
        if len(arguments) != len(self.input_types):
            count = len(self.input_types)
            raise ArgumentError(
                f"{self._name} takes {count} argument{'s' if count != 1 else ''}, not {len(arguments)}: "
                f"({', '.join(map(str, self.input_types))})"
            )
        found: list[Any] = []
        for number, (argument, type_) in enumerate(zip(arguments, self.input_types)):
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

    def _asked(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call; complaints about arguments name them as the caller has them."""
        try:
            return function(*arguments, **options)
        except ArgumentError as error:
            names = dict(enumerate(self._argument_names()))
            said = _NUMBERED.sub(lambda found: f"argument {names.get(int(found[1]), found[1])}", str(error))
            raise type(error)(said) from error

    def _argument_names(self) -> Iterator[str]:
        for number, type_ in enumerate(self.input_types):
            if block_format(type_) is None:
                yield str(number)
            else:
                yield from (f"{number} ({part})" for part, _ in zip(PART_NAMES, part_types(type_)))
