"""Reductions as kernels of threads: rows, columns, everything, of one or several operands.

The order of combination depends on shape and types.  Regions that are not recognized are applied in order, beginning
with the init value, by one thread a result.
"""

from __future__ import annotations

import math

from hlojit.lowering.body import Body
from hlojit.lowering.grid_reduction_plan import coalesced
from hlojit.lowering.index import variable
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.reduction_plan import make_plan, reduced_space, reductions_of
from hlojit.lowering.target import Target
from hlojit.simt.columns import emit_column_reduction
from hlojit.simt.dialect import Dialect
from hlojit.simt.frame import GridFrame
from hlojit.simt.partials import Partials, combiners_of
from hlojit.simt.rows import emit_row_reduction

_THREADS = 128


def emit_reduction(body: Body, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """A kernel with reductions among its roots; other roots must have the shape of the reductions' inputs."""
    instructions = reductions_of(body)
    if math.prod(reduced_space(instructions[0])[0]) == 0:
        return _emit_inits(body, target, dialect, symbol)
    plan = coalesced(body, make_plan(body, instructions))
    emit = emit_row_reduction if plan.by_rows else emit_column_reduction
    return emit(body, target, dialect, symbol, plan)


def _emit_inits(body: Body, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """Nothing to reduce: the results are the init values."""
    frame = GridFrame(target, body, dialect)
    b = frame.builder
    instructions = reductions_of(body)
    size = instructions[0].results[0].tensor_type.size
    partials = Partials(frame, instructions, size, 1)
    with frame.kernel(symbol, _THREADS):
        combiners = combiners_of(frame, instructions)
        flat = b.add(b.mul(b.zext(b.block, "i64"), b.constant("i64", _THREADS)), b.zext(b.thread, "i64"))
        frame.access.variables["flat"] = flat

        def store() -> None:
            for combiner in combiners.combiners:
                partials.store_finished(combiner, combiner.init(), variable("flat", 0, size - 1))

        b.when(b.icmp("slt", flat, b.constant("i64", size)), store)
    return frame.code([frame.phase(symbol, -(-size // _THREADS), 1.0)])
