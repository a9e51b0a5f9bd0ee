"""What is decided about the first elements of sorted lines (top-k) on a machine with threads.

Lines that a block holds are sorted by it, and the first elements written.  Of longer lines the key of the last element that
is wanted is found digit by digit, the most significant first: each launch counts how often the next digit occurs behind
those that are known, and every block of the next one finds from the counts which digit the key has.  What lies below the key,
and as many elements equal to it as are left, in their order, are then gathered and sorted by one block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.radix_plan import DIGIT, THREADS, Digit, RadixPlan, code_bytes, whole_block
from hlojit.lowering.selection import Selection
from hlojit.lowering.sort_plan import ALIGNMENT

ITEMS = 16
"""Elements of a thread that only looks at them."""


@dataclass(frozen=True)
class SelectionPlan:
    """Lines whose first ``radix.count`` elements are wanted."""

    radix: RadixPlan
    """Its tiles are those of the launches over all elements; with ``rows`` it says everything."""
    threads: int
    items: int
    """Of the block that sorts what was found in a line."""

    @staticmethod
    def of(selection: Selection, machine: GridMachine) -> SelectionPlan:
        """The plan of a selection; those that ``hlojit.ir.passes.selection_fusion`` makes all have one."""
        radix = RadixPlan.of(selection.sort, machine, selection.count)
        assert radix is not None
        if radix.rows:
            return SelectionPlan(radix, radix.threads, radix.items)
        item = sum(code_bytes(code) for code in radix.codes) + 4
        last = whole_block(radix.count, item, machine)
        assert last is not None
        return SelectionPlan(replace(radix, threads=THREADS, items=ITEMS), *last)

    @property
    def digits(self) -> tuple[Digit, ...]:
        """Of all keys, the most significant first."""
        return self.radix.digits[::-1]

    # ---------------------------------------------------------------- the workspace

    @property
    def totals_bytes(self) -> int:
        """How often each line has each digit where it is looked at: zero at first."""
        return _rounded(4 * self.radix.lines * len(self.digits) << DIGIT)

    @property
    def counts_bytes(self) -> int:
        """Two numbers (i32) a tile: elements below the key, and equal to it."""
        return _rounded(8 * self.radix.lines * self.radix.tiles)

    def found_offset(self, part: int) -> int:
        """Where a part of what was found lies: the keys, then the elements' numbers."""
        sizes = [_rounded(size * self.radix.lines * self.radix.count) for size in self.part_bytes]
        return self.totals_bytes + self.counts_bytes + sum(sizes[:part])

    @property
    def part_bytes(self) -> tuple[int, ...]:
        """Bytes of the parts of one element."""
        return (*(code_bytes(code) for code in self.radix.codes), 4)

    @property
    def workspace_bytes(self) -> int:
        """Everything between the launches."""
        return 0 if self.radix.rows else self.found_offset(len(self.part_bytes))


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
