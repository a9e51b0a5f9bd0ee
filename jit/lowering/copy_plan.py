"""What is decided about launches that only bring elements from one place to another: how many rows a task takes.

    work = divide_rows(rows, row_length, VECTOR_CYCLES, bytes_moved, machine)
    Phase(symbol, work.tasks, work.cost)

Costs are cycles of one element, where the elements come from near caches; where they are wide, memory decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlojit.lowering.machine import Machine

VECTOR_CYCLES = 0.4
"""Of an element that is moved with its neighbours."""
PAIRED_CYCLES = 0.6
"""Of an element that is put together with one of another row."""
SQUARE_CYCLES = 0.8
"""Of an element of a square that is transposed in registers."""
SINGLE_CYCLES = 2.4
"""Of an element that is moved alone."""


@dataclass(frozen=True, slots=True)
class RowTasks:
    """Tasks of ``per_task`` rows, and the nanoseconds of one."""

    per_task: int
    tasks: int
    cost: float


def divide_rows(rows: int, length: int, cycles: float, nbytes: int, machine: Machine) -> RowTasks:
    """Tasks that take about a grain each, of rows of ``length`` elements; ``nbytes`` are read and written for one of them."""
    row = max(1, length) * max(machine.nanoseconds(cycles), nbytes / machine.memory_bandwidth)
    per_task = max(1, min(rows, int(machine.grain_nanoseconds / row)))
    return RowTasks(per_task, -(-rows // per_task), per_task * row)
