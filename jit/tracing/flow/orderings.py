"""``sorted``, ``min`` and ``max`` by a key: of numbers, or of tuples of them, where the keys are traced.

The keys of all elements are stacked and put in order when the function runs; the elements' numbers are stacked as well, and
taken by their positions in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.flow.arrays import holds_tracers
from hlojit.tracing.operations import Operations
from hlojit.tracing.rewriting import substitute
from hlojit.tracing.tracer import Tracer

_MOST: Final = 256
"""Elements that are taken apart."""
_NUMBERS: Final = (bool, int, float, np.generic)


def sorted_by_key(
    ops: Operations, iterable: Iterable[Any], key: Callable[[Any], Any], reverse: Any = False
) -> list[Any]:
    """The elements in the order of their keys, those of equal keys as they were."""
    elements = list(iterable)
    keys = [substitute(key)(each) for each in elements]
    if not holds_tracers(*keys):
        return [elements[each] for each in sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse)]
    order = _order(ops, "sorted", keys, bool(reverse))
    return [_element(ops, "sorted", elements, order[each]) for each in range(len(elements))]


def extreme_by_key(ops: Operations, name: str, iterable: Iterable[Any], key: Callable[[Any], Any]) -> Any:
    """The first element whose key no other is below, for "min", or above, for "max"."""
    elements = list(iterable)
    if not elements:
        raise ValueError(f"{name}() arg is an empty sequence")
    keys = [substitute(key)(each) for each in elements]
    if not holds_tracers(*keys):
        first = (min if name == "min" else max)(range(len(keys)), key=keys.__getitem__)
        return elements[first]
    columns = _key_columns(ops, name, keys)
    best: list[Any] = [each[0] for each in columns]
    found: Any = 0
    for position in range(1, len(keys)):
        key_here = [each[position] for each in columns]
        is_better = _comes_first(key_here, best) if name == "min" else _comes_first(best, key_here)
        best = [np.where(is_better, here, other) for here, other in zip(key_here, best)]
        found = np.where(is_better, position, found)
    return _element(ops, name, elements, found)


def _comes_first(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """Whether one key is less than another, as Python compares tuples: by the first numbers that are not equal."""
    is_less: Any = False
    for mine, other in reversed(list(zip(a, b))):
        is_less = np.where(mine != other, mine < other, is_less)
    return is_less


def _order(ops: Operations, name: str, keys: Sequence[Any], descending: bool) -> Any:
    """The positions of keys in their order, an array."""
    columns = _key_columns(ops, name, keys)
    for column in columns:
        if column.dtype.kind == "f":
            ops.check(ops.value(np.isnan(column)), ValueError, f"{name}() by a key that is NaN has no order")
    if not descending:
        return np.lexsort(tuple(columns[::-1]))
    # Backwards twice, so that equal ones stay as they were.
    return np.flip(len(keys) - 1 - np.lexsort(tuple(np.flip(each) for each in columns[::-1])))


def _key_columns(ops: Operations, name: str, keys: Sequence[Any]) -> list[Tracer]:
    if len(keys) > _MOST:
        raise TracingError(f"{name}() by a key of more than {_MOST} elements; use np.argsort of the keys")
    columns = [_column(ops, name, each, np.dtype) for each in _columns(keys)]
    if any(column.dtype.kind == "c" for column in columns):
        raise TracingError(f"{name}() by a key of complex numbers; use keys that are real")
    return columns


def _columns(keys: Sequence[Any]) -> list[list[Any]]:
    """Keys that are tuples are compared by their first numbers, then by their second ones."""
    if type(keys[0]) is not tuple:
        return [list(keys)]
    if not all(type(each) is tuple and len(each) == len(keys[0]) for each in keys):
        raise TracingError("keys of traced numbers must be numbers, or tuples of as many numbers each")
    return [list(column) for column in zip(*keys)]


def _column(ops: Operations, name: str, numbers: Sequence[Any], same: Callable[[Any], Any]) -> Tracer:
    """Numbers as an array, whose types ``same`` finds equal."""
    kinds = [_kind(each) for each in numbers]
    if any(each is None for each in kinds) or len(set(map(same, kinds))) != 1:
        raise TracingError(
            f"{name}() by a traced key takes numbers of one type, and tuples of them: use np.argsort of the keys, and take the "
            "elements by it"
        )
    column: Tracer = ops.tracer(list(numbers))
    return column


def _kind(number: Any) -> Any:
    """The type of a number of Python's or NumPy's; None for everything else."""
    if type(number) is Tracer:
        return number.weak or (number.dtype if number.is_scalar else None)
    if not isinstance(number, _NUMBERS):
        return None
    return number.dtype if isinstance(number, np.generic) else type(number)


def _element(ops: Operations, name: str, elements: Sequence[Any], position: Any) -> Any:
    """The element at a traced position."""
    first = elements[0]
    if isinstance(first, tuple) and all(type(each) is type(first) and len(each) == len(first) for each in elements):
        parts = [_element(ops, name, column, position) for column in zip(*elements)]
        return type(first)._make(parts) if hasattr(first, "_make") else type(first)(parts)
    if type(first) in (str, type(None)) and all(type(each) is type(first) and each == first for each in elements):
        return first
    taken = _column(ops, name, elements, lambda kind: kind)[position]
    return ops.python_number(taken) if isinstance(_kind(first), type) else taken
