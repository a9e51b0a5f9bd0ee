"""Static arguments, and when two of them are the same: what is compiled for ``2`` is not what is compiled for ``2.0``.

Python calls values equal that a traced function tells apart: 0.0 and -0.0, (2,) and (2.0,), ``True`` and 1 as keys.  So
numbers count by type and bits, and containers by those of what they hold.  What else there is
counts by its type and its own equality.
"""

from __future__ import annotations

import dataclasses
import inspect
import struct
from collections.abc import Callable, Hashable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple, cast, final

import numpy as np
from hlojit.ir.errors import ArgumentError, short_repr


class StaticArguments(NamedTuple):
    """Those of one call: what they count as, and their values."""

    key: Hashable
    values: Mapping[str, Any]


NONE: Final = StaticArguments((), {})


def static_arguments(values: Mapping[str, Any], function: str) -> StaticArguments:
    """The static arguments of these values; raises ``ArgumentError`` that names the one that is not hashable."""
    return StaticArguments(tuple((name, _keyed_as(name, value, function)) for name, value in values.items()), values)


def _keyed_as(name: str, value: Any, function: str) -> Hashable:
    try:
        return keyed(value)
    except TypeError as error:
        if not str(error).startswith("unhashable type"):
            # Its own __hash__ or __eq__ says something else.
            raise
    raise ArgumentError(
        f"{function}: static arguments must be hashable, got {name}={short_repr(value)}; "
        "give tuples in the place of lists, and arrays as other arguments"
    )


def keyed(value: Any) -> Hashable:
    """What a hashable value counts as, as a part of a key; raises ``TypeError`` if it is not hashable."""
    hash(value)
    key = _exact(value)
    try:
        hash(key)
    except TypeError:
        # It leaves out of its hash what has none.
        return type(value), value
    return key


def _exact(value: Any) -> Hashable:
    kind = type(value)
    describe = _EXACT.get(kind)
    if describe is not None:
        return kind, describe(value)
    if isinstance(value, np.generic):
        return kind, value.dtype, value.tobytes()
    if isinstance(value, tuple):
        # A named one; or somebody's class, which may have more than its elements.
        return kind, *map(_exact, tuple(value)), *(() if hasattr(kind, "_fields") else (value,))
    if (
        inspect.getattr_static(kind, "__eq__") is object.__eq__
        and has_state(value)
        and getattr(value, "__dict__", None)
    ):
        # One object, whose attributes may be others by the next call.
        return kind, value, tuple((name, _Same(each)) for name, each in vars(value).items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        compared = (field.name for field in dataclasses.fields(value) if field.compare)
        return kind, cast(Hashable, value), tuple(_exact(getattr(value, name)) for name in compared)
    return kind, value


def has_state(value: Any) -> bool:
    """Whether attributes of an object that counts by identity make a difference: not those of functions, nor of ours."""
    return not isinstance(value, _FUNCTIONS) and type(value).__module__.partition(".")[0] not in ("hlojit", "functools")


_FUNCTIONS: Final = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType, np.ufunc)


@final
class _Same:
    """Equal to another one that holds the very same object."""

    __slots__ = ("_value",)

    def __init__(self, value: Any):
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)


_EXACT: Final[Mapping[type, Callable[[Any], Hashable]]] = {
    float: lambda value: struct.pack("d", value),
    complex: lambda value: struct.pack("dd", value.real, value.imag),
    tuple: lambda value: tuple(map(_exact, value)),
    frozenset: lambda value: frozenset(map(_exact, value)),
    range: lambda value: (value.start, value.stop, value.step),
}
