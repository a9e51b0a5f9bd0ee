"""What things outside of a traced function held when it was traced: lists, dictionaries, sets, arrays, slots, defaults.

Each record answers whether they hold the same now.  Numbers and texts count by type and bits, other elements by identity: what
those hold is in records of their own.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Collection, MutableMapping
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Final, Protocol, final

import numpy as np

NOTHING: Final = object()
"""Stands for a name that means nothing."""

_PLAIN: Final = frozenset({int, str, bytes, bool})
"""Of one type, equal ones are the same."""


def is_same(one: Any, other: Any) -> bool:
    """Whether a traced function cannot tell two values apart, as far as they are no containers."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in _PLAIN:
        return bool(one == other)
    if kind is float:
        return struct.pack("d", one) == struct.pack("d", other)
    if kind is complex:
        return struct.pack("dd", one.real, one.imag) == struct.pack("dd", other.real, other.imag)
    if isinstance(one, np.generic):
        return one.dtype == other.dtype and one.dtype.kind != "O" and one.tobytes() == other.tobytes()
    return kind is tuple and are_same(one, other)


def are_same(some: Collection[Any], others: Collection[Any]) -> bool:
    """The same of the elements of two collections, in their orders."""
    if len(some) != len(others):
        return False
    return all(map(operator.is_, some, others)) or all(map(is_same, some, others))


class Content(Protocol):
    """What one thing held."""

    @property
    def of(self) -> Any:
        """The thing."""

    def holds(self) -> bool:
        """Whether it holds the same now."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Elements:
    """Of a list."""

    of: Collection[Any]
    seen: tuple[Any, ...]

    def holds(self) -> bool:
        """As for every content."""
        return are_same(tuple(self.of), self.seen)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """Of a dictionary."""

    of: MutableMapping[Any, Any]
    keys: tuple[Any, ...]
    values: tuple[Any, ...]

    def holds(self) -> bool:
        """As for every content."""
        return are_same(tuple(self.of), self.keys) and are_same(tuple(self.of.values()), self.values)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """Of a set."""

    of: set[Any]
    seen: set[Any]

    def holds(self) -> bool:
        """As for every content."""
        return self.of == self.seen


@final
@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """Of an array that can be written."""

    of: np.ndarray[Any, Any]
    form: tuple[Any, ...]
    data: bytes

    @classmethod
    def seen(cls, array: np.ndarray[Any, Any]) -> Numbers:
        """What it holds now."""
        return cls(array, _form(array), array.tobytes("A"))

    @staticmethod
    def can_change(array: np.ndarray[Any, Any]) -> bool:
        """Whether anybody may write it: it, or what it is a view of."""
        owner: Any = array
        while isinstance(owner, np.ndarray):
            if owner.flags.writeable:
                return True
            owner = owner.base
        return owner is not None and not isinstance(owner, bytes)

    def holds(self) -> bool:
        """As for every content."""
        return _form(self.of) == self.form and self.of.tobytes("A") == self.data


def _form(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    return array.dtype, array.shape, array.strides


@final
@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """Of an object with ``__slots__``."""

    of: object
    name: str
    seen: Any

    def holds(self) -> bool:
        """As for every content."""
        return is_same(getattr(self.of, self.name, NOTHING), self.seen)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Of a function: its code, which reloaders of modules exchange, and the defaults of its parameters."""

    of: FunctionType
    code: CodeType
    positional: tuple[Any, ...] | None
    named: dict[str, Any] | None

    def holds(self) -> bool:
        """As for every content."""
        function = self.of
        return (
            function.__code__ is self.code
            and function.__defaults__ is self.positional
            and function.__kwdefaults__ is self.named
        )
