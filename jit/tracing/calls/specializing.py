"""Arguments that become static by themselves: what no array can be, and Python numbers whose value the function needs.

A number of elements, a branch of a library, a key of a dictionary: where one depends on Python numbers among the arguments
and on nothing else, the function is traced again with these as they are, and compiled once for each of their values.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import EllipsisType
from typing import Any, Final

import numpy as np
from hlojit.ir.graph import Value
from hlojit.tracing.calls.containers import flatten

_NUMBERS: Final = (bool, int, float, complex)
_NEVER_ARRAYS: Final = (str, bytes, type, np.dtype, slice, range, enum.Enum, EllipsisType)
_ALL_OTHERS: Final = inspect.Parameter.VAR_POSITIONAL
_MOST: Final = 10_000
"""Values that are looked at."""
_BY_POSITION: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class NeedsValues(BaseException):
    """Tracing needs the values of some arguments: the function is traced again, with these static."""

    def __init__(self, parameters: frozenset[str]):
        super().__init__(", ".join(sorted(parameters)))
        self.parameters = parameters


def never_arrays(signature: inspect.Signature, dynamic: Any) -> frozenset[str]:
    """The parameters whose arguments cannot be arrays: texts, types, functions, and tuples that hold one."""
    return frozenset(name for name, value in _named(signature, dynamic) if name and _is_never_an_array(value))


def numbers_of(signature: inspect.Signature, dynamic: Any, values: Sequence[Value]) -> dict[Value, str]:
    """By value of the program, the parameter: of those that are Python's numbers, or tuples of them."""
    found: dict[Value, str] = {}
    remaining = iter(values)
    for name, argument in _named(signature, dynamic):
        own = [next(remaining) for _ in flatten(argument)[0]]
        if name and _is_of_numbers(argument):
            found.update(dict.fromkeys(own, name))
    return found


def parameters_behind(value: Value, numbers: Mapping[Value, str]) -> frozenset[str]:
    """The parameters that a value of the program is computed from, if there are no others than these; else none."""
    found: set[str] = set()
    seen: set[Value] = set()
    open_ = [value]
    while open_:
        each = open_.pop()
        if each in seen:
            continue
        seen.add(each)
        if each in numbers:
            found.add(numbers[each])
        elif each.producer is None or each.producer.op.callees or len(seen) > _MOST:
            return frozenset()
        else:
            open_ += each.producer.operands
            open_ += _captured(each.producer.regions)
    return frozenset(found)


def _captured(regions: Iterable[Any]) -> Iterable[Value]:
    """The values of outside that regions read."""
    blocks = list(regions)
    inside = set(blocks)
    found = []
    while blocks:
        for instruction in blocks.pop():
            found += instruction.operands
            blocks += instruction.regions
            inside.update(instruction.regions)
    return [
        each
        for each in found
        if each.owner not in inside and (each.producer is None or each.producer.block not in inside)
    ]


def _named(signature: inspect.Signature, dynamic: Any) -> list[tuple[str, Any]]:
    """All arguments in the order of their leaves, with the parameter's name; those of ``*args`` together.

    The name is "" of those in ``**kwargs``.
    """
    positional, named = dynamic
    kinds = {each.name: each.kind for each in signature.parameters.values()}
    single = [name for name, kind in kinds.items() if kind in _BY_POSITION]
    found = list(zip(single, positional))
    found += [(name, positional[len(single) :]) for name, kind in kinds.items() if kind is _ALL_OTHERS]
    return [*found, *((name if name in kinds else "", value) for name, value in named.items())]


def _is_never_an_array(value: Any) -> bool:
    if type(value) is tuple:
        return any(map(_is_never_an_array, value)) and all(_is_never_an_array(e) or _is_of_numbers(e) for e in value)
    return isinstance(value, _NEVER_ARRAYS) or (callable(value) and not hasattr(value, "__array__"))


def _is_of_numbers(value: Any) -> bool:
    return type(value) in _NUMBERS or (type(value) is tuple and bool(value) and all(map(_is_of_numbers, value)))
