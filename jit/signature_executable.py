"""Executables behind a signature that the program underneath does not know: what is common to tuples and to blocks.

The program takes and returns tensors, one after the other; callers give and get something that is made of them.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

from hlojit.compiled import CompiledProgram, write
from hlojit.device_call import refuse_keywords
from hlojit.ir.errors import ArgumentError
from hlojit.ir.types import Type

_NUMBERED = re.compile(r"\bargument (\d+)\b")


class SignatureExecutable(ABC):
    """An executable of any kind, ``flat``, as callers see it.

    What is not about arguments and results - ``devices``, ``dynamic_shapes``, ``spec`` and so on - is that of the executable
    underneath.
    """

    def __init__(self, flat: Any, input_types: Sequence[Type], output_types: Sequence[Type]):
        self.flat = flat
        self.input_types = tuple(input_types)
        """Types of the arguments, as callers see them."""
        self.output_types = tuple(output_types)
        """Types of the results."""
        self._processes: int = getattr(flat, "num_replicas", 1) * getattr(flat, "num_partitions", 1)

    @abstractmethod
    def _leaves(self, arguments: Sequence[Any]) -> list[Any]:
        """The tensors that arguments are made of; raises ``ArgumentError``."""

    @abstractmethod
    def _results(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """What callers get for the tensors that a run returned."""

    @abstractmethod
    def _leaf_names(self) -> Sequence[str]:
        """What the program's arguments are called among the caller's."""

    @abstractmethod
    def _around(self, flat: Any) -> Self:
        """Another executable behind the same signature."""

    @abstractmethod
    def compiled_program(self) -> CompiledProgram:
        """As ``Executable.compiled_program``."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Run: as the executable underneath, with arguments and results as callers see them."""
        refuse_keywords(self._name, self.input_types, keywords)
        return self._of(self.flat, arguments)

    call = __call__

    def execute(self, *arguments: Any, **options: Any) -> Any:
        """As ``Executable.execute``: start and return at once."""
        return self._of(self.flat.execute, arguments, **options)

    def specialized(self, *arguments: Any) -> Self:
        """As ``DynamicExecutable.specialized``."""
        return self._around(self._asked(self.flat.specialized, *self._flat_arguments(arguments)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """As ``Executable.save``; what is loaded takes and returns the same."""
        write(self.compiled_program(), path)

    def __getattr__(self, name: str) -> Any:
        if name == "flat":
            raise AttributeError(name)
        return getattr(self.flat, name)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, types)) for types in (self.input_types, self.output_types))
        return f"<{type(self).__name__} {self._name}: ({inputs}) -> ({outputs})>"

    @property
    def _name(self) -> str:
        found: str = self.flat.name if hasattr(self.flat, "name") else self.flat.spec.name
        return found

    def _of(self, function: Callable[..., Any], arguments: Sequence[Any], **options: Any) -> Any:
        flat = self._asked(function, *self._flat_arguments(arguments), **options)
        if self._processes > 1:
            return [list(self._results(row)) for row in flat]
        results = self._results((flat,) if len(self.flat.output_types) == 1 else flat)
        return results[0] if len(results) == 1 else tuple(results)

    def _flat_arguments(self, arguments: Sequence[Any]) -> list[Any]:
        """What the executable underneath is called with: of several processes, one list of lists."""
        if self._processes == 1:
            return self._leaves(arguments)
        rows = arguments[0] if len(arguments) == 1 else None
        if not isinstance(rows, (list, tuple)) or not all(isinstance(row, (list, tuple)) for row in rows):
            return list(arguments)  # of which it says what is wrong
        return [[self._leaves(row) for row in rows]]

    def _asked(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call; complaints about arguments name them as the caller has them."""
        try:
            return function(*arguments, **options)
        except ArgumentError as error:
            names = dict(enumerate(self._leaf_names()))
            said = _NUMBERED.sub(lambda found: f"argument {names.get(int(found[1]), found[1])}", str(error))
            raise type(error)(said) from error
