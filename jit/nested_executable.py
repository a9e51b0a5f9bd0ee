"""Executables of programs whose arguments or results are tuples: Python tuples of arrays, nested as the types are.

    # func.func @main(%x: tuple<tensor<2xf32>, tensor<3xi32>>) -> tuple<tensor<3xi32>, tuple<tensor<2xf32>>>
    counts, (values,) = executable((values, counts))

The program underneath takes and returns the tensors, one after the other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, final

from hlojit.compiled import CompiledProgram, write
from hlojit.device_call import refuse_keywords
from hlojit.ir.errors import ArgumentError
from hlojit.ir.types import Type
from hlojit.nesting import Nesting, flattened, nested, nested_types

_NUMBERED = re.compile(r"\bargument (\d+)\b")


@final
class NestedExecutable:
    """An executable of any kind behind a signature with tuples.

    Arguments are tuples (or lists) of arrays, results tuples of them.  What is not about arguments and results - ``devices``,
    ``dynamic_shapes``, ``spec`` and so on - is that of the executable underneath, ``flat``, which knows no tuples.
    """

    def __init__(self, flat: Any, nesting: Nesting):
        self.flat = flat
        self.nesting = nesting
        self.input_types: tuple[Type, ...] = nested_types(flat.input_types, nesting.arguments)
        """Types of the arguments, tuples among them."""
        self.output_types: tuple[Type, ...] = nested_types(flat.output_types, nesting.results)
        """Types of the results."""
        self._processes: int = getattr(flat, "num_replicas", 1) * getattr(flat, "num_partitions", 1)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Run: as the executable underneath, with tuples of arrays for arguments and results."""
        refuse_keywords(self._name, self.input_types, keywords)
        return self._of(self.flat, arguments)

    call = __call__

    def execute(self, *arguments: Any, **options: Any) -> Any:
        """As ``Executable.execute``: start and return at once."""
        return self._of(self.flat.execute, arguments, **options)

    def specialized(self, *arguments: Any) -> NestedExecutable:
        """As ``DynamicExecutable.specialized``."""
        found = self._asked(self.flat.specialized, *self._flat_arguments(arguments))
        return NestedExecutable(found, self.nesting)

    def compiled_program(self) -> CompiledProgram:
        """As ``Executable.compiled_program``."""
        compiled: CompiledProgram = self.flat.compiled_program()
        return replace(compiled, nesting=(self.nesting.arguments, self.nesting.results))

    def save(self, path: str | os.PathLike[str]) -> None:
        """As ``Executable.save``; what is loaded takes and returns the same tuples."""
        write(self.compiled_program(), path)

    def __getattr__(self, name: str) -> Any:
        if name == "flat":
            raise AttributeError(name)
        return getattr(self.flat, name)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, types)) for types in (self.input_types, self.output_types))
        return f"<NestedExecutable {self._name}: ({inputs}) -> ({outputs})>"

    @property
    def _name(self) -> str:
        found: str = self.flat.name if hasattr(self.flat, "name") else self.flat.spec.name
        return found

    def _of(self, function: Callable[..., Any], arguments: Sequence[Any], **options: Any) -> Any:
        flat = self._asked(function, *self._flat_arguments(arguments), **options)
        if self._processes > 1:
            return [list(nested(row, self.nesting.results)) for row in flat]
        leaves = (flat,) if len(self.flat.output_types) == 1 else flat
        results = nested(leaves, self.nesting.results)
        return results[0] if len(results) == 1 else results

    def _flat_arguments(self, arguments: Sequence[Any]) -> list[Any]:
        """What the executable underneath is called with: of several processes, one list of lists."""
        if self._processes == 1:
            return self._leaves(arguments)
        rows = arguments[0] if len(arguments) == 1 else None
        if not isinstance(rows, (list, tuple)) or not all(isinstance(row, (list, tuple)) for row in rows):
            return list(arguments)  # of which it says what is wrong
        return [[self._leaves(row) for row in rows]]

    def _leaves(self, row: Sequence[Any]) -> list[Any]:
        return flattened(self._name, row, self.nesting.arguments, self.input_types)

    def _asked(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call; complaints about arguments name them as they are nested."""
        try:
            return function(*arguments, **options)
        except ArgumentError as error:
            names = dict(enumerate(self.nesting.argument_names))
            said = _NUMBERED.sub(lambda found: f"argument {names.get(int(found[1]), found[1])}", str(error))
            raise type(error)(said) from error
