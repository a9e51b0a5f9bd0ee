"""``associative_scan``: all prefixes of an array under an associative function, in as many steps as the length has bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hlojit.tracing.calls.containers import flatten, paths, unflatten
from hlojit.tracing.calls.pytrees import object_advice, shortened
from hlojit.tracing.errors import TracingError
from hlojit.tracing.rewriting import substitute
from hlojit.tracing.state import is_number_or_array

_Combine = Callable[[list[Any], list[Any]], list[Any]]


def associative_scan(function: Callable[[Any, Any], Any], xs: Any, reverse: bool = False, axis: int = 0) -> Any:
    """``x[0], function(x[0], x[1]), function(function(x[0], x[1]), x[2]), ...`` along an axis of the arrays ``xs``.

    ``function(a, b)`` takes and returns containers of arrays as ``xs`` is one, for any number of positions along the axis at once
    (elementwise in it), with the same shapes and dtypes; it must be associative, as nobody knows in which groups it is applied.
    With ``reverse`` the scan begins at the end: ``x[-1], function(x[-1], x[-2]), ...``, each at its place.  Logarithmically many
    applications, where ``scan`` makes one for each position.

    Raises ``TracingError`` where lengths differ, and where ``function`` gives other containers, shapes or dtypes.
    """
    leaves, structure = flatten(xs)
    axes = _checked(xs, leaves, axis)
    if not leaves or np.shape(leaves[0])[axes[0]] < 2:
        return unflatten(structure, [each.copy() for each in map(_array, leaves)])
    called = substitute(function)

    def combine(lhs: list[Any], rhs: list[Any]) -> list[Any]:
        result = called(unflatten(structure, lhs), unflatten(structure, rhs))
        found, now = flatten(result)
        if now != structure:
            raise TracingError("associative_scan: the function returns other containers than it takes")
        for (path, leaf), like in zip(paths(result), lhs):
            if np.shape(leaf) != like.shape or getattr(leaf, "dtype", None) != like.dtype:
                raise TracingError(
                    f"associative_scan: the function gives {_described(leaf)} for xs{path}, where it takes {_described(like)}; "
                    "its results have the shapes and dtypes of its arguments"
                )
        return found

    flipped = [np.flip(leaf, a) if reverse else leaf for leaf, a in zip(map(_array, leaves), axes)]
    made = _scanned(combine, flipped, axes)
    return unflatten(structure, [np.flip(each, a) if reverse else each for each, a in zip(made, axes)])


def _array(leaf: Any) -> Any:
    return leaf if hasattr(leaf, "dtype") else np.asarray(leaf)


def _checked(xs: Any, leaves: list[Any], axis: int) -> list[int]:
    """The axis of each array, counted from the front."""
    for path, leaf in paths(xs):
        if not is_number_or_array(leaf) and not np.ndim(leaf):
            raise TracingError(
                f"associative_scan: xs{path} is {shortened(leaf)} of type {type(leaf).__name__}, no array{object_advice(leaf)}"
            )
        if not -np.ndim(leaf) <= axis < np.ndim(leaf):
            raise TracingError(f"associative_scan: xs{path} has {np.ndim(leaf)} dimensions, and axis is {axis}")
    axes = [axis % np.ndim(leaf) for leaf in leaves]
    lengths = {np.shape(leaf)[a] for leaf, a in zip(leaves, axes)}
    if len(lengths) > 1:
        raise TracingError(f"associative_scan: xs need one length along axis {axis}; they have {sorted(lengths)}")
    return axes


def _described(leaf: Any) -> str:
    return f"{getattr(leaf, 'dtype', type(leaf).__name__)} of shape {np.shape(leaf)}"


def _along(axis: int, part: slice) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, part)


def _scanned(combine: _Combine, xs: list[Any], axes: list[int]) -> list[Any]:
    """Pairs are combined, their scan gives every second position, and one step more those between."""
    count = xs[0].shape[axes[0]]
    if count < 2:
        return xs

    def part(arrays: list[Any], *bounds: int | None) -> list[Any]:
        return [each[_along(axis, slice(*bounds))] for each, axis in zip(arrays, axes)]

    odd = _scanned(combine, combine(part(xs, 0, count - 1, 2), part(xs, 1, None, 2)), axes)
    first = part(xs, 0, 1)
    if count == 2:
        even = first
    else:
        later = combine(part(odd, 0, (count - 1) // 2), part(xs, 2, None, 2))
        even = [np.concatenate(pair, axis) for *pair, axis in zip(first, later, axes)]
    return [_interleaved(*each) for each in zip(even, odd, axes)]


def _interleaved(even: Any, odd: Any, axis: int) -> Any:
    """``even[0], odd[0], even[1], ...``; there may be one more of the even ones."""
    count = odd.shape[axis]
    paired = np.stack((even[_along(axis, slice(count))], odd), axis + 1)
    whole = paired.reshape(*odd.shape[:axis], 2 * count, *odd.shape[axis + 1 :])
    return whole if even.shape[axis] == count else np.concatenate((whole, even[_along(axis, slice(count, None))]), axis)
