"""Executables of programs whose arguments or results are tuples: Python tuples of arrays, nested as the types are.

    # func.func @main(%x: tuple<tensor<2xf32>, tensor<3xi32>>) -> tuple<tensor<3xi32>, tuple<tensor<2xf32>>>
    counts, (values,) = executable((values, counts))

The program underneath takes and returns the tensors, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

from hlojit.compiled import CompiledProgram
from hlojit.nesting import Nesting, flattened, nested, nested_types
from hlojit.signature_executable import SignatureExecutable


@final
class NestedExecutable(SignatureExecutable):
    """An executable of any kind behind a signature with tuples: arguments are tuples (or lists) of arrays, results tuples."""

    def __init__(self, flat: Any, nesting: Nesting):
        self.nesting = nesting
        inputs, outputs = ((flat.input_types, nesting.arguments), (flat.output_types, nesting.results))
        super().__init__(flat, nested_types(*inputs), nested_types(*outputs))

    def compiled_program(self) -> CompiledProgram:
        """As ``Executable.compiled_program``."""
        compiled: CompiledProgram = self.flat.compiled_program()
        return replace(compiled, nesting=(self.nesting.arguments, self.nesting.results))

    def _around(self, flat: Any) -> NestedExecutable:
        return NestedExecutable(flat, self.nesting)

    def _leaves(self, arguments: Sequence[Any]) -> list[Any]:
        return flattened(self._name, arguments, self.nesting.arguments, self.input_types)

    def _results(self, leaves: Sequence[Any]) -> Sequence[Any]:
        return nested(leaves, self.nesting.results)

    def _leaf_names(self) -> Sequence[str]:
        return self.nesting.argument_names
