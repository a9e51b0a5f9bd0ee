"""NumPy's functions that make arrays: what they make in a traced function can be written with traced values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hlojit.tracing.arrays.kinds import as_kind
from hlojit.tracing.arrays.layouts import contiguous, is_contiguous, strides_of
from hlojit.tracing.errors import TracingError
from hlojit.tracing.operations import Operations
from hlojit.tracing.selection.selected import Selected
from hlojit.tracing.tracer import Tracer

RULES: dict[Any, Callable[..., Any]] = {}
"""By function; each takes the operations first, and whatever NumPy's function takes."""


def holds_tracers(*values: Any) -> bool:
    """Whether something traced is in arguments, or in lists of them."""
    return any(
        type(each) in (Tracer, Selected) or (isinstance(each, (list, tuple)) and holds_tracers(*each))
        for each in values
    )


def made(ops: Operations, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What a function of NumPy's makes of known arguments, as an array of the program."""
    return taken_up(ops, function(*arguments, **named))


def taken_up(ops: Operations, array: Any) -> Any:
    """An array of NumPy's as one of the program; those that no program has stay."""
    if (
        type(array) is not np.ndarray
        or array.dtype.kind not in "biufc"
        or array.dtype.itemsize > 16
        or not array.dtype.isnative
    ):
        return array
    if array.dtype in (np.dtype(np.longdouble), np.dtype(np.clongdouble)):
        return array
    ops.mark()
    if array.size and array.strides and not any(array.strides):
        return ops.wrap(ops.full(array.flat[0], array.dtype, array.shape), contiguous(array.shape))
    return ops.wrap(ops.value(array), strides_of(array))


def _makes(function: Any) -> Callable[..., Any]:
    def call(ops: Operations, *arguments: Any, **named: Any) -> Any:
        if holds_tracers(*arguments, *named.values()):
            for each in arguments if function is np.arange else ():
                if type(each) is Tracer and ops.known(each) is None:
                    # Raises: how many there are is not known.
                    operator.index(each)
            # NumPy hands most of them to the program; lengths and shapes ask for numbers.
            return function(*arguments, **named)
        return made(ops, function, *arguments, **named)

    return call


for _function in (
    np.arange, np.linspace, np.logspace, np.geomspace, np.eye, np.identity, np.tri, np.zeros_like, np.ones_like, np.empty_like,
    np.full_like, np.copy, np.diag, np.hanning, np.hamming, np.blackman, np.bartlett, np.kaiser, np.frombuffer, np.fromiter,
):  # fmt: skip
    RULES[_function] = _makes(_function)


def _filled(function: Any, number: int) -> Callable[..., Any]:
    def call(ops: Operations, shape: Any, dtype: Any = float, order: str = "C", **named: Any) -> Any:
        if named.get("like") is not None or named.get("device") is not None or order != "C":
            return made(ops, function, shape, dtype, order, **named)
        # Without the memory: the shape is all that matters.
        kind = np.dtype(float if dtype is None else dtype)
        return taken_up(ops, np.broadcast_to(np.asarray(number).astype(kind), _shape(shape)))

    return call


def _shape(shape: Any) -> Any:
    if isinstance(shape, (list, tuple)):
        return tuple(map(_shape, shape))
    return operator.index(shape) if type(shape) is Tracer else shape


RULES[np.zeros] = _filled(np.zeros, 0)
RULES[np.empty] = _filled(np.empty, 0)
RULES[np.ones] = _filled(np.ones, 1)


def _full(ops: Operations, shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", **named: Any) -> Any:
    if not holds_tracers(fill_value):
        return made(ops, np.full, shape, fill_value, dtype, order, **named)
    ops.mark()
    value = ops.tracer(fill_value)
    kind = value.kind if dtype is None else as_kind(dtype)
    extents = (shape,) if np.ndim(shape) == 0 else tuple(shape)
    return ops.wrap(ops.broadcast(ops.value(fill_value, kind), extents), contiguous(extents, order))


RULES[np.full] = _full


def _array(
    ops: Operations, object: Any, dtype: Any = None, *, copy: Any = True, order: str = "K", ndmin: int = 0, **named: Any
) -> Any:
    if not holds_tracers(object):
        return made(ops, np.array, object, dtype, copy=copy, order=order, ndmin=ndmin, **named)
    ops.mark()
    if type(object) is Selected:
        return _of_selected(object, dtype, order, bool(copy), ndmin)
    if type(object) is Tracer:
        return _with_rank(_of_array(ops, object, dtype, order, bool(copy)), ndmin)
    value = ops.value(object, None if dtype is None else as_kind(dtype))
    strides = contiguous(value.tensor_type.shape, "F" if order == "F" else "C")
    return _with_rank(ops.wrap(value, strides), ndmin)


def _of_array(ops: Operations, operand: Tracer, dtype: Any, order: str, copy: bool) -> Tracer:
    array = ops.wrap(operand.value) if operand.is_scalar else operand
    if dtype is not None and as_kind(dtype) != array.kind:
        array, copy = ops.astype(array, dtype), False
    if order in ("C", "F") and not is_contiguous(array.shape, ops.known_strides(array), order):
        return ops.copied(array, order)
    return ops.copied(array, order) if copy else array


def _of_selected(operand: Selected, dtype: Any, order: str, copy: bool, ndmin: int) -> Selected:
    if ndmin > operand.ndim or order not in ("K", "C", "A", None):
        raise TracingError("np.array of an array whose length depends on values: only dtype= and copy=")
    if dtype is None or as_kind(dtype) == operand.kind:
        return operand.copy() if copy else operand
    converted: Selected = operand.astype(dtype)
    return converted


def _with_rank(array: Tracer, ndmin: int) -> Tracer:
    missing = ndmin - array.ndim
    return array[(None,) * missing] if missing > 0 else array


def _asarray(ops: Operations, a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, **named: Any) -> Any:
    if not holds_tracers(a):
        if type(a) is np.ndarray:
            # The caller's own, not a new one.
            return np.asarray(a, dtype, order, copy=copy, **named)
        return made(ops, np.asarray, a, dtype, order, copy=copy, **named)
    return _array(ops, a, dtype, copy=bool(copy), order=order or "K")


RULES[np.array] = _array
RULES[np.asarray] = RULES[np.asanyarray] = _asarray


def _in_order(order: str, function: Any) -> Callable[..., Any]:
    def call(ops: Operations, a: Any, dtype: Any = None, **named: Any) -> Any:
        if not holds_tracers(a):
            return function(a, dtype, **named)
        found = _array(ops, a, dtype, copy=False, order=order)
        return found.reshape(1) if order == "C" and not found.ndim else found

    return call


RULES[np.ascontiguousarray] = _in_order("C", np.ascontiguousarray)
RULES[np.asfortranarray] = _in_order("F", np.asfortranarray)


def _fromfunction(ops: Operations, function: Any, shape: Sequence[int], *, dtype: Any = float, **named: Any) -> Any:
    if named:
        raise TracingError("np.fromfunction: further arguments are not supported in a traced function")
    grids = [taken_up(ops, each) for each in np.indices(shape, dtype=dtype)]
    return function(*grids)


RULES[np.fromfunction] = _fromfunction


def _checked_finite(ops: Operations, a: Any, dtype: Any = None, order: Any = None) -> Any:
    if not holds_tracers(a):
        return np.asarray_chkfinite(a, dtype, order)
    found = _asarray(ops, a, dtype, order)
    if found.dtype.kind in "fc":
        wrong = ops.value(~np.all(np.isfinite(found)))
        ops.check(wrong, ValueError, "array must not contain infs or NaNs")
    return found


RULES[np.asarray_chkfinite] = _checked_finite


def _required(ops: Operations, a: Any, dtype: Any = None, requirements: Any = None, **named: Any) -> Any:
    if not holds_tracers(a):
        return np.require(a, dtype, requirements, **named)
    letters = {str(each).upper()[:1] for each in requirements or ()}
    if not letters <= set("CFAWOE"):
        raise KeyError(*sorted(letters - set("CFAWOE")))
    if {"C", "F"} <= letters:
        raise ValueError('Cannot specify both "C" and "F" order')
    order = "C" if "C" in letters else "F" if "F" in letters else None
    return _asarray(ops, a, dtype, order, copy=True if letters & set("OW") else None)


RULES[np.require] = _required


def _scalar(kind: Any) -> Callable[..., Any]:
    """``np.float32(x)``: of a number a scalar, of an array an array."""

    def call(ops: Operations, *given: Any, **named: Any) -> Any:
        if len(given) != 1 or named or not holds_tracers(given[0]):
            return kind(*given, **named)
        ops.mark()
        if type(given[0]) is Selected:
            return given[0].astype(kind)
        operand = ops.tracer(given[0])
        if operand.weak is not None:
            return ops.scalar(ops.value(operand, np.dtype(kind)))
        made: Any = operand.astype(kind)
        return made if made.ndim else ops.scalar(made.value)

    return call


for _kind in (
    np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.float32,
    np.float64, np.complex64, np.complex128, np.longlong, np.ulonglong,
):  # fmt: skip
    RULES[_kind] = _scalar(_kind)
