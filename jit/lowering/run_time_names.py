"""Names of integers that only the run knows, as they stand in index expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from hlojit.ir.graph import Instruction, Value
from hlojit.ir.scalar.builder import Scalar
from hlojit.lowering.index import Index

Place = tuple[Index, ...]


@final
class RunTimeNames:
    """Of one walk over a kernel's elements.  What is the same integer in every run of the rules has the same name."""

    def __init__(self) -> None:
        self._numbers: dict[Value, int] = {}
        self._origins: dict[int, tuple[Scalar, tuple[Value, Place]]] = {}
        """Which element a scalar is that a rule got, by identity of the object (kept alive here)."""

    def note(self, scalar: Scalar, element: tuple[Value, Place]) -> None:
        """A rule was given this scalar for an element of an operand."""
        self._origins[id(scalar)] = (scalar, element)

    def name(
        self, scalar: Scalar, low: int, high: int, running: tuple[Instruction, Place], is_taken: Callable[[str], bool]
    ) -> tuple[str, frozenset[str]]:
        """A name, and the variables on which the value may depend; ``running`` is the rule that asks, and where it runs."""
        known = self._origins.get(id(scalar))
        if known is not None:
            value, index = known[1]
            number = self._numbers.setdefault(value, len(self._numbers))
            key = f"r{number}[{','.join(position.key for position in index)}]{low}:{high}"
            return key, frozenset().union(*(position.variables for position in index))
        instruction, index = running
        number = self._numbers.setdefault(instruction.results[0], len(self._numbers))
        stem = f"s{number}[{','.join(position.key for position in index)}]"
        # One instruction may ask for several; they come in the same order every time its rule runs.
        count = 0
        while is_taken(f"{stem}.{count}"):
            count += 1
        return f"{stem}.{count}", frozenset().union(*(position.variables for position in index))
