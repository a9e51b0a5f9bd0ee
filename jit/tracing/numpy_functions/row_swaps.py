"""The rows of matrices in the order that LAPACK's pivots say, on tracers."""

from __future__ import annotations

from typing import Any

import numpy as np
from hlojit.ir.ops import row_swaps
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer


def row_order(ops: Operations, pivots: Tracer, rows: int) -> Tracer:
    """Which row of the matrix comes to which place: the swaps that LAPACK's pivots (from 1) say, one after the other."""
    return ops.wrap(row_swaps.row_order(ops.builder, ops.tracer(pivots.astype(np.int32)).value, rows))


def rows_taken(operand: Any, order: Any) -> Any:
    """The rows of stacks of matrices in an order of each."""
    return np.take_along_axis(operand, order[..., None], axis=-2)
