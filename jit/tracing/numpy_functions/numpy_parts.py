"""What NumPy's Python code calls of its C code, as the rewritten code (``numpy_source``) calls it with traced arrays.

RULES[np._core.multiarray.correlate](ops, a, v, 2)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np
from hlojit.tracing.arrays.kinds import as_dtype
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.convolutions import convolved
from hlojit.tracing.numpy_functions.rules import weak_kind
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

Rule = Callable[..., Any]

RULES: Final[dict[Any, Rule]] = {}
"""By NumPy's object; each takes the operations first, and whatever NumPy's takes.  For calls by NumPy's own code alone."""


def _rule(module: str, name: str) -> Callable[[Rule], Rule]:
    """Register a rule, if this NumPy has such a thing."""

    def register(rule: Rule) -> Rule:
        found = getattr(importlib.import_module(module), name, None)
        if found is not None:
            RULES[found] = rule
        return rule

    return register


@final
class _Converter:
    """NumPy's ``_array_converter``: arguments as arrays, their common type, and results of their kind."""

    def __init__(self, ops: Operations, *given: Any):
        self._ops, self._given = ops, given
        self.scalar_input = tuple(_is_scalar(each) for each in given)

    def as_arrays(self, subok: bool = True, pyscalars: str = "convert_if_no_array") -> tuple[Any, ...]:
        """The arguments; Python's numbers stay numbers beside arrays."""
        weak = [weak_kind(each) is not None for each in self._given]
        keep = pyscalars == "preserve" or (pyscalars == "convert_if_no_array" and not all(weak))
        return tuple(each if keep and is_weak else self._array(each) for each, is_weak in zip(self._given, weak))

    def __len__(self) -> int:
        return len(self._given)

    def __getitem__(self, number: int) -> Any:
        return self._array(self._given[number])

    def _array(self, given: Any) -> Any:
        operand = self._ops.tracer(given)
        return self._ops.wrap(operand.value) if operand.is_scalar else operand

    def result_type(self, extra_dtype: Any = None, ensure_inexact: bool = False) -> np.dtype[Any]:
        """The common dtype."""
        kinds: list[Any] = [
            weak(0) if (weak := weak_kind(each)) else self._ops.tracer(each).dtype for each in self._given
        ]
        if extra_dtype is not None:
            kinds.append(as_dtype(extra_dtype))
        if ensure_inexact:
            kinds.append(0.0)
        return np.result_type(*kinds)

    def wrap(self, array: Any, /, to_scalar: bool | None = None) -> Any:
        """A result: a scalar if it has no dimensions and so wished, by default where all arguments were scalars."""
        wants_scalar = all(self.scalar_input) if to_scalar is None else to_scalar
        return array[()] if wants_scalar and isinstance(array, (Tracer, np.ndarray)) and not array.ndim else array


RULES[importlib.import_module("numpy._core._multiarray_umath")._array_converter] = _Converter


def _is_scalar(given: Any) -> bool:
    return given.is_scalar if isinstance(given, Tracer) else np.isscalar(given)


@_rule("numpy", "broadcast")
def broadcast(ops: Operations, *given: Any) -> np.broadcast:
    """NumPy's own object, of arrays of the same shapes: who asks for elements is told that there are none."""
    return np.broadcast(*(np.broadcast_to(np.int8(0), np.shape(each)) for each in given))


# ------------------------------------------------------------------------------------------------------- correlations

_MODES: Final = {"valid": 0, "same": 1, "full": 2}


def _number_of_mode(mode: Any) -> int:
    if isinstance(mode, str):
        if mode not in _MODES:
            raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
        return _MODES[mode]
    if mode not in (0, 1, 2):
        raise ValueError("mode must be 0, 1, or 2")
    return int(mode)


def _vectors(ops: Operations, *given: Any) -> list[Any]:
    vectors = [ops.tracer(each) for each in given]
    for each in vectors:
        if each.ndim > 1:
            raise ValueError("object too deep for desired array")
    vectors = [each.reshape(1) if not each.ndim else each for each in vectors]
    for name, each in zip(("first", "second"), vectors):
        if not each.size:
            raise ValueError(f"{name} array argument cannot be empty")
    kind = np.result_type(*(weak(0) if (weak := weak_kind(each)) else each.dtype for each in vectors))
    return [each.astype(kind) for each in vectors]


@_rule("numpy._core.multiarray", "correlate")
def correlate(ops: Operations, a: Any, v: Any, mode: Any = 0) -> Any:
    """Sums of products with the second array moved along the first one."""
    number = _number_of_mode(mode)
    first, second = _vectors(ops, a, v)
    is_swapped = first.size < second.size
    if is_swapped:
        first, second = second, first
    kind = first.dtype
    if kind == np.bool_:
        # A sum of truth values is whether one holds.
        first, second = first.astype(np.int64), second.astype(np.int64)
    inner: Any = convolved(ops, first, second[::-1])[second.size - 1 : first.size]
    left = (0, second.size // 2, second.size - 1)[number]
    right = (0, second.size - 1 - left, second.size - 1)[number]
    front = _edge(first[: second.size - 1], second, left)
    back = _edge(first[::-1][: second.size - 1], second[::-1], right)[::-1]
    found = np.concatenate([front, inner, back]).astype(kind)
    return found[::-1] if is_swapped else found


def _edge(array: Any, other: Any, count: int) -> Any:
    """The last ``count`` sums in front of those of whole products: what is not there is not multiplied, be it no number."""
    begin = np.arange(-count, 0)[:, None]
    places = begin + np.arange(other.size)[None, :]
    products = np.take(array, np.maximum(places, 0), mode="clip") * other if count else np.zeros((0, 1), array.dtype)
    return np.sum(np.where(places >= 0, products, array.dtype.type(0)), axis=1, dtype=array.dtype)


@_rule("numpy._core.multiarray", "correlate2")
def correlate2(ops: Operations, a: Any, v: Any, mode: Any = 0) -> Any:
    """The same with the second array conjugated."""
    return correlate(ops, a, np.conjugate(v) if ops.tracer(v).dtype.kind == "c" else v, mode)


# ------------------------------------------------------------------------------------------------------ interpolation


def _interpolated(ops: Operations, x: Any, xp: Any, fp: Any, left: Any, right: Any, kind: type) -> Any:
    """As NumPy's C code does: by the slope from the point below, and from the one above where that is no number."""
    for each in (x, xp):
        dtype = ops.tracer(each).dtype
        if dtype.kind == "c" and _is_scalar(each):
            # Which NumPy takes, with a warning.
            raise TracingError("np.interp at a complex number cannot be compiled; use its .real")
        if not np.can_cast(dtype, np.float64, "safe"):
            raise TypeError(f"Cannot cast array data from {dtype!r} to dtype('float64') according to the rule 'safe'")
    points, values = ops.tracer(xp).astype(np.float64), ops.tracer(fp).astype(kind)
    wanted: Any = ops.tracer(x).astype(np.float64)
    for each in (points, values):
        if each.ndim != 1:
            raise ValueError(
                "object too deep for desired array" if each.ndim else "object of too small depth for desired array"
            )
    if points.size != values.size:
        raise ValueError("fp and xp are not of the same length.")
    if not points.size:
        raise ValueError("array of sample points is empty")
    low = values[0] if left is None else kind(left) if not isinstance(left, Tracer) else left
    high = values[-1] if right is None else kind(right) if not isinstance(right, Tracer) else right
    if points.size == 1:
        found = values[0] + np.zeros_like(wanted)
    else:
        found = _between(wanted, points, values)
    found = np.where(wanted < points[0], low, np.where(wanted > points[-1], high, found))
    if points.size > 1:
        found = np.where(np.isnan(wanted), wanted, found)
    found = found.astype(kind)
    return found[()] if _is_scalar(x) or not wanted.ndim else found


def _between(wanted: Any, points: Any, values: Any) -> Any:
    below = np.clip(np.searchsorted(points, wanted, side="right") - 1, 0, points.size - 2)
    x0, x1 = np.take(points, below), np.take(points, below + 1)
    y0, y1 = np.take(values, below), np.take(values, below + 1)
    slope = (y1 - y0) / (x1 - x0)
    found = slope * (wanted - x0) + y0
    again = slope * (wanted - x1) + y1
    found = np.where(np.isnan(found), np.where(np.isnan(again) & (y0 == y1), y0, again), found)
    found = np.where(wanted == x0, y0, found)
    return np.where(wanted == points[-1], values[-1], found)


@_rule("numpy._core.multiarray", "interp")
def interp(ops: Operations, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
    """Of real values."""
    return _interpolated(ops, x, xp, fp, left, right, np.float64)


@_rule("numpy._core.multiarray", "interp_complex")
def interp_complex(ops: Operations, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
    """Of complex values, real and imaginary part for itself."""
    fp = ops.tracer(fp).astype(np.complex128)

    def of(part: Callable[[Any], Any]) -> Any:
        below, above = (None if each is None else part(each) for each in (left, right))
        return _interpolated(ops, x, xp, part(fp), below, above, np.float64)

    return of(np.real) + 1j * of(np.imag)


# ------------------------------------------------------------------------------------------------------ joining, sorting


@_rule("numpy._core._multiarray_umath", "concatenate")
def concatenate(ops: Operations, arrays: Sequence[Any], axis: Any = 0, **named: Any) -> Any:
    """NumPy's sources reach it without the dispatch to other arrays."""
    if any(isinstance(each, Tracer) for each in arrays):
        return np.concatenate(arrays, axis, **named)
    joined = getattr(np.concatenate, "_implementation", np.concatenate)
    return joined(arrays, axis, **named)


def sorted_in_place(ops: Operations, array: Tracer, kth: Any, axis: Any = -1, kind: Any = "introselect") -> None:
    """``array.partition`` where NumPy's own code says which places it needs: sorted, they are all right."""
    array[...] = np.sort(array, axis)


@_rule("numpy", "partition")
def partition(ops: Operations, a: Any, kth: Any, axis: Any = -1, *rest: Any, **named: Any) -> Any:
    """The same, as a new array."""
    return np.sort(a, axis)
