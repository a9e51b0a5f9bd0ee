"""The rows of matrices in the order that LAPACK's pivots say, on tracers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hlojit.ir.graph import Value
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer


def row_order(ops: Operations, pivots: Tracer, rows: int) -> Tracer:
    """Which row of the matrix comes to which place: the swaps that LAPACK's pivots (from 1) say, one after the other."""
    b = ops.builder
    *stack, count = pivots.shape
    batch = math.prod(stack)
    flat = ops.tracer(pivots.reshape(batch, count).astype(np.int32)).value
    places = ops.value(np.broadcast_to(np.arange(rows, dtype=np.int32), (batch, rows)))

    def swap(inner: Any, number: Value, order: Value, chosen: Value) -> list[Value]:
        columns = inner.iota(order.tensor_type, 1)
        whole = order.tensor_type.shape
        zero = inner.constant(np.int32(0))
        pivot = inner.dynamic_slice(chosen, [zero, number], slice_sizes=(batch, 1))
        pivot = inner.subtract(pivot, inner.constant(np.ones((batch, 1), np.int32)))
        target = inner.broadcast_in_dim(pivot, whole, (0, 1))
        here = inner.broadcast_in_dim(number, whole, ())
        is_target, is_here = inner.compare(columns, target, "EQ"), inner.compare(columns, here, "EQ")
        nothing = inner.broadcast_in_dim(zero, whole, ())
        parts = [
            inner.reduce([inner.select(mask, order, nothing)], [zero], inner.combiner("add", "i32"), dimensions=(1,))
            for mask in (is_target, is_here)
        ]
        spread = [inner.broadcast_in_dim(each, whole, (0,)) for each in parts]
        swapped = inner.select(is_here, spread[0], inner.select(is_target, spread[1], order))
        return [inner.add(number, inner.constant(np.int32(1))), swapped, chosen]

    _, order, _ = b.while_(
        [b.constant(np.int32(0)), places, flat],
        lambda inner, number, order, chosen: inner.compare(number, inner.constant(np.int32(count)), "LT"),
        swap,
    )
    return ops.wrap(order).reshape(*stack, rows)


def rows_taken(operand: Any, order: Any) -> Any:
    """The rows of stacks of matrices in an order of each."""
    return np.take_along_axis(operand, order[..., None], axis=-2)
