"""What is decided about row kernels that also reduce the columns of all rows, on a machine with threads.

A block takes every so many-th row, and each of its threads the same columns of every one of them.  What it found of its
columns it holds in registers from row to row.  The order of combination: a thread combines its rows from the first to the
last, then the teams of a block come together, the lower half into the upper one, and what blocks found is combined by a
second phase, each of whose threads takes every so many-th block, from the first to the last.  It follows from shape and
types.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlojit.ir.errors import UnsupportedError
from hlojit.lowering.body import Body
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.grid_reduction_plan import ENOUGH_THREADS, MOST_ROUNDS, RowGrid, fitting_lanes, row_kinds
from hlojit.lowering.reduction_plan import accumulator_kinds, is_free
from hlojit.lowering.row_plan import RowPlan
from hlojit.lowering.target import KIND_BITS

THREADS = 256
"""Threads of a block whose rows need no more."""
MOST_THREADS = 512
"""Of a block: with more, each had too few registers for what it carries from row to row."""
MOST_WORDS = 32
"""32-bit registers of a thread for what is kept of a row and the sums of its columns."""
FEWEST_STEPS = 4
"""Rows that a team takes before there are more blocks: what a block found is written and read again."""


@dataclass(frozen=True)
class SummedRowGrid:
    """``blocks`` blocks, each of which does the work of every ``blocks``-th one of ``rows``."""

    rows: RowGrid
    blocks: int
    across: int
    """Columns of a block of the second phase."""
    down: int
    """Threads of a column there."""


def summed_row_plan(body: Body) -> RowPlan:
    """The loops of a row kernel that also reduces columns: what it keeps stays in registers."""
    return RowPlan(body, 0, keeps_operands=True, sums_columns=True)


def summed_row_grid(plan: RowPlan, machine: GridMachine) -> SummedRowGrid:
    """The grid of such a kernel; raises ``UnsupportedError`` where rows are too long or an order is asked for."""
    reductions = [*plan.columns, *(one for loop in plan.loops for one in loop.reductions)]
    if not all(map(is_free, reductions)):
        one = next(one for one in reductions if not is_free(one))
        raise UnsupportedError(one.op.name, "", "no order within a row kernel that reduces columns", one.location)
    facts, kinds = [loop.facts for loop in plan.loops], row_kinds(plan)
    sums = sum(-(-KIND_BITS[kind] // 32) for one in plan.columns for kind in accumulator_kinds(one))
    words = max(1, plan.words) + sums
    # Rows of whole pieces only: every thread has the same columns of each.
    lanes = fitting_lanes(machine, facts, kinds, plan.extent, 2)
    while lanes > 1 and lanes * words > MOST_WORDS:
        lanes //= 2
    pieces, warp = plan.extent // lanes, machine.warp
    rounds = max(1, MOST_WORDS // (words * lanes))
    team = _power(pieces if pieces <= warp else max(warp, -(-pieces // rounds)))
    team = min(team, MOST_THREADS, machine.threads_per_block, warp**2)
    if -(-pieces // team) > MOST_ROUNDS:
        reason = "rows are too long for a kernel that reduces columns as well"
        raise UnsupportedError("hlojit.fusion", "", reason, plan.columns[0].location)
    teams = max(1, THREADS // team)
    while teams > 1 and FEWEST_STEPS * teams // 2 >= plan.rows and team * teams > warp:
        teams //= 2
    rows = RowGrid(plan.rows, 1, plan.extent, lanes, team, teams, 1, resident=True)
    blocks = max(1, min(ENOUGH_THREADS // rows.threads, rows.blocks // FEWEST_STEPS))
    return SummedRowGrid(rows, blocks, warp, min(max(1, THREADS // warp), _power(blocks)))


def _power(count: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << max(0, count - 1).bit_length()
