"""How tasks share a scatter without changing the order in which an element is updated.

Every task goes through all updates, in ascending order.  Of windows each does the elements that lie in its part of the
input (``WindowShare``), so that no two tasks update one element; so it is of single elements (``PlaceShare``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hlojit.lowering.machine import Machine
from hlojit.lowering.scatter_plan import ScatterPlan

SMALLEST_SHARE = 128
"""Bytes of a window for a task, at least."""
LEAST_PLACES = 1 << 14
"""Updates that pay for reading every index several times."""
MOST_READERS = 8
"""Tasks that read every index, at most."""
LINE_ELEMENTS = 16
READ_CYCLES, UPDATE_CYCLES = 1.0, 2.5
"""Of looking at an index, and of updating an element."""
WORTH = 0.75
"""Of the time on one core, what sharing must not exceed: others need cores as well."""


@dataclass(frozen=True)
class WindowShare:
    """What each of some tasks does of every window: rows, or places along the windows' last dimension, whole cache lines.

    Rows (``extent`` of them in a window) are shared if no index moves a window along their dimensions: the same row is at
    another place in every other window then.  Places are counted in the *input* (``extent`` of them), from where a window
    begins if no index moves it along them, so that an element belongs to one task whichever windows reach it.
    """

    tasks: int
    extent: int
    by_rows: bool

    @staticmethod
    def of(plan: ScatterPlan, itemsize: int, machine: Machine) -> WindowShare:
        """As many tasks as there are cores, if windows have so much to share."""
        shape = plan.window_shape
        if not shape:
            return WindowShare(1, 1, True)
        row, rows = shape[-1], math.prod(shape[:-1])
        *row_dims, last = plan.operand_window_dims
        moved = set(plan.numbers.scatter_dims_to_operand_dims)
        places = plan.input.shape[last] if last in moved else row
        per_task = max(1, SMALLEST_SHARE // itemsize)
        tasks = max(1, min(machine.cores, rows * row // per_task))
        if not moved.intersection(row_dims) and (rows >= 4 * tasks or rows * row < 2 * per_task):
            return WindowShare(min(tasks, max(1, rows)), rows, True)
        return WindowShare(max(1, min(tasks, places // per_task)), places, False)

    @property
    def size(self) -> int:
        """Rows, or places, of a task."""
        grain = 1 if self.by_rows else LINE_ELEMENTS
        return -(-self.extent // (self.tasks * grain)) * grain


@dataclass(frozen=True)
class PlaceShare:
    """Parts of an input's only dimension, each as long as ``size`` (the last one may be shorter)."""

    tasks: int
    extent: int

    @staticmethod
    def of(plan: ScatterPlan, machine: Machine) -> PlaceShare | None:
        """Of single elements at indices that lie one behind the other as updates do, if there are enough; else None."""
        numbers = plan.numbers
        simple = plan.input.rank == 1 and not plan.window_dims and len(numbers.scatter_dims_to_operand_dims) == 1
        tasks = max(1, min(machine.cores, MOST_READERS))
        if not simple or plan.batch_positions or plan.updates.size < LEAST_PLACES:
            return None
        if READ_CYCLES + UPDATE_CYCLES / tasks > WORTH * UPDATE_CYCLES:
            return None
        return PlaceShare(tasks, plan.input.size)

    @property
    def size(self) -> int:
        """Elements of a part, whole cache lines of them."""
        return -(-self.extent // (self.tasks * LINE_ELEMENTS)) * LINE_ELEMENTS
