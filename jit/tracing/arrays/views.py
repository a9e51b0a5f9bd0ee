"""Views that NumPy's functions make: another shape, another order of dimensions, a part of complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hlojit.ir.formats import ComplexType
from hlojit.ir.types import tensor
from hlojit.tracing.arrays.layouts import NDArray, Strides, contiguous, is_contiguous, permutation, shadow
from hlojit.tracing.arrays.layouts import reshaped as reshaped_shape
from hlojit.tracing.arrays.steps import Broadcast, ComplexPart, Gathered, Reorder, Reshape
from hlojit.tracing.arrays.storage import Step
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

_UNKNOWN_LAYOUT = (
    "NumPy's layout of this array is not known here, so neither is whether its reshape is a view or a copy; "
    "make a copy before you write into one of them: .copy()"
)


def _array(ops: Operations, operand: Tracer) -> Tracer:
    """A number as an array of its own."""
    return ops.wrap(operand.value) if operand.is_scalar else operand


def viewed(ops: Operations, operand: Tracer, step: Step, shadow: NDArray | None, shape: tuple[int, ...]) -> Tracer:
    """A view of an array: as a shadow of it lies, where its layout is known."""
    type = operand.type.with_shape(shape)
    strides = None if shadow is None else tuple(shadow.strides)
    writable = shadow is None or shadow.flags.writeable
    return Tracer(operand.window.then(step, type, strides, is_writable=writable), ops)


def asked(ops: Operations, operand: Tracer, function: Callable[[NDArray], NDArray]) -> NDArray | None:
    """What NumPy's function makes of the shadow of an array; None if its layout is not known."""
    strides = ops.strides(operand)
    return None if strides is None else function(shadow(operand.shape, strides))


def in_shape(ops: Operations, operand: Tracer, wanted: Any, order: str = "C", copy: bool | None = None) -> Tracer:
    """``numpy.reshape``: a view where NumPy makes one, a new array where it copies."""
    operand = _array(ops, operand)
    shape = reshaped_shape(operand.shape, wanted, order)
    order = reading_order(ops, operand, order)
    step = Reshape(shape, order)
    strides = None if copy else _strides_of_view(ops, operand, shape, order)
    if strides is not None:
        return Tracer(operand.window.then(step, operand.type.with_shape(shape), strides), ops)
    if copy is False:
        raise ValueError("Unable to avoid creating a copy while reshaping.")
    made = ops.wrap(step.read(ops, operand.value), contiguous(shape, order))
    if not copy and operand.window.strides is None:
        operand.window.storage.locked = made.window.storage.locked = _UNKNOWN_LAYOUT
    return made


def reading_order(ops: Operations, operand: Tracer, order: str) -> str:
    """``C`` or ``F``, of NumPy's letters for the order in which ``reshape`` reads."""
    if order in ("C", "F"):
        return order
    if order != "A":
        raise ValueError(f"order must be one of 'C', 'F', 'A' (got {order!r})")
    strides = ops.known_strides(operand)
    by_rows, by_columns = (is_contiguous(operand.shape, strides, each) for each in "CF")
    return "F" if by_columns and not by_rows else "C"


def _strides_of_view(ops: Operations, operand: Tracer, shape: tuple[int, ...], order: str) -> Strides | None:
    """How a reshape of an array lies that needs no copy; None if it needs one, or that is not known."""
    if operand.shape == shape:
        # Nothing to decide, and so nothing asked of an argument: its layout is its view's.
        return ops.strides(operand) if operand.window.strides is not None else None
    try:
        found = asked(ops, operand, lambda own: own.reshape(shape, order=order, copy=False))  # type: ignore[call-overload]
    except ValueError:
        return None
    return None if found is None else tuple(found.strides)


def in_order(ops: Operations, operand: Tracer, function: Callable[[NDArray], NDArray]) -> Tracer:
    """The dimensions in another order, as ``function`` exchanges those of any array."""
    operand = _array(ops, operand)
    order = permutation(function, operand.ndim)
    shape = tuple(operand.shape[dimension] for dimension in order)
    strides = operand.window.strides
    step = Reorder(order)
    type = operand.type.with_shape(shape)
    moved = None if strides is None else tuple(strides[dimension] for dimension in order)
    return Tracer(operand.window.then(step, type, moved), ops)


def with_units(ops: Operations, operand: Tracer, function: Callable[[NDArray], NDArray]) -> Tracer:
    """Dimensions of one element that ``function`` adds or takes away."""
    operand = _array(ops, operand)
    own = operand.window.strides
    made = function(shadow(operand.shape, own if own is not None else contiguous(operand.shape)))
    return viewed(ops, operand, Reshape(made.shape), None if own is None else made, made.shape)


def spread(ops: Operations, operand: Tracer, shape: tuple[int, ...]) -> Tracer:
    """``numpy.broadcast_to``: a view that cannot be written."""
    operand = _array(ops, operand)
    own = operand.window.strides
    made = np.broadcast_to(shadow(operand.shape, own if own is not None else contiguous(operand.shape)), shape)
    return viewed(ops, operand, Broadcast(tuple(shape)), made, tuple(shape))


def picked(ops: Operations, operand: Tracer, function: Callable[[NDArray], NDArray]) -> Tracer:
    """A view that only shows some elements, each perhaps several times (diagonals, windows); never written."""
    operand = _array(ops, operand)
    strides = operand.window.strides
    made = function(shadow(operand.shape, strides if strides is not None else contiguous(operand.shape)))
    numbers = function(np.arange(operand.size, dtype=np.int64).reshape(operand.shape))
    seen = viewed(ops, operand, Gathered(numbers), None if strides is None else made, made.shape)
    seen.window.is_writable = False
    return seen


def part(ops: Operations, operand: Tracer, *, is_real: bool) -> Tracer:
    """The real or imaginary parts of complex numbers, which can be written."""
    element = operand.element_type
    assert isinstance(element, ComplexType)
    strides = operand.window.strides
    type = tensor(operand.shape, element.component)
    doubled = None if strides is None else tuple(2 * stride for stride in strides)
    window = operand.window.then(ComplexPart(is_real), type, doubled)
    weak = float if operand.weak is complex else None
    return Tracer(window, ops, is_scalar=operand.is_scalar, weak=weak)
