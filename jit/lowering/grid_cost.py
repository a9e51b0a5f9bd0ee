"""Estimated cycles of a launch whose blocks go over their terms step by step: what is the bottleneck, and how many waves.

    cycles = launch_cycles(blocks, resident, machine, work)

The blocks that are on a multiprocessor together share its units, and hide each other's waiting; a step takes as long as the
unit that is busiest, or as long as what the next steps need is on its way.  The last wave may have fewer of them.  Rates are
published ones, latencies those that measurements of several generations agree on, roughly: this decides between plans, and
says nothing about what a product takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from hlojit.lowering.dot_problem import ceil_divide
from hlojit.lowering.grid_machine import GridMachine

QUARTERS: Final = 4
"""Of a multiprocessor: each has a matrix unit, and the warps of a block are spread over them."""
SHARED_BYTES: Final = 128.0
"""That shared memory gives or takes in a cycle."""
FETCHED_BYTES: Final = 32.0
"""That a multiprocessor gets in a cycle of the second-level cache, when all of them ask."""
FETCH_LATENCY: Final = 600.0
"""Cycles until what is asked for is there, between the second-level cache's and the memory's."""
DEPENDENT: Final = 32.0
"""Cycles until an instruction can add to what a matrix instruction has added to."""
MEETING: Final = 40.0
"""Cycles that a block's warps wait for each other in a step, where no other block's work is there."""


@final
@dataclass(frozen=True, slots=True)
class BlockWork:
    """What one block does in each of its ``steps``, in cycles of each unit, and at its end."""

    steps: int
    warps: int
    multiply: float
    """Of a quarter's matrix unit, for one warp."""
    issue: float
    """Instructions that a quarter begins for one warp, one a cycle."""
    chain: float
    """From a warp's first instruction to its last, as they depend on each other."""
    shared: float
    fetch: float
    ahead: int
    """Steps that are asked for before they are multiplied."""
    finish: float

    def cycles(self, together: int) -> float:
        """From the beginning to the end of so many blocks on one multiprocessor."""
        multiply = ceil_divide(self.warps * together, QUARTERS) * max(self.multiply, self.issue)
        step = max(multiply, self.chain, together * self.shared, together * self.fetch)
        alone = MEETING if together == 1 else 0.0
        return FETCH_LATENCY + self.steps * max(step + alone, FETCH_LATENCY / self.ahead) + together * self.finish


def launch_cycles(blocks: int, resident: int, machine: GridMachine, work: BlockWork) -> float:
    """Of all waves; ``resident`` are the blocks that a multiprocessor has room for."""
    full, rest = divmod(blocks, machine.multiprocessors * resident)
    last = work.cycles(ceil_divide(rest, machine.multiprocessors)) if rest else 0.0
    return (full * work.cycles(resident) if full else 0.0) + last
