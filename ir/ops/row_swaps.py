"""The order of rows that LAPACK's pivots say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hlojit.ir.blocks import Value


def row_order(b: Any, pivots: Value, rows: int) -> Any:
    """Which row of a matrix comes to which place: the swaps of pivots (from 1), one after the other; batches are in front."""
    *stack, count = pivots.tensor_type.shape
    batch = math.prod(stack)
    places = b.constant(np.broadcast_to(np.arange(rows, dtype=np.int32), (batch, rows)))

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
        [b.constant(np.int32(0)), places, b.reshape(pivots, (batch, count))],
        lambda inner, number, order, chosen: inner.compare(number, inner.constant(np.int32(count)), "LT"),
        swap,
    )
    return b.reshape(order, (*stack, rows))
