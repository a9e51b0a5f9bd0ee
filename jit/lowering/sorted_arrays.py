"""What a kernel that sorts is given and what it writes: all of a sort instruction, or of a selection some neighbours.

sorted_arrays(sort of %x, %i)         sources (0, 1), outputs (0, 1), count: a line's length
selected_arrays(selection)            sources (0, None): numbers come from nowhere; outputs (1,); count 8
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from hlojit.ir.graph import Instruction
from hlojit.ir.ops.views import SortView
from hlojit.lowering.element_forms import memory_kind
from hlojit.lowering.selection import Selection


@final
@dataclass(frozen=True)
class SortedArrays:
    """Operands of a sort, where they lie, and which of them are wanted."""

    sort: Instruction
    sources: tuple[int | None, ...]
    """The kernel's buffer that each operand of the sort is; None: elements' numbers."""
    buffers: int
    """Operands of the kernel; its results follow them."""
    outputs: tuple[int, ...]
    """The operand of the sort that each result is sorted from."""
    count: int
    """Elements of a line that are wanted."""
    first: int = 0
    """The first of them in the sorted line."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of the sort's operands in memory."""
        return tuple(memory_kind(operand.tensor_type.element_type) for operand in self.sort.operands)

    @property
    def workspace(self) -> int:
        """The number of the kernel's last buffer."""
        return self.buffers + len(self.outputs)


def sorted_arrays(sort: Instruction) -> SortedArrays:
    """Those of a sort instruction."""
    numbers = tuple(range(len(sort.operands)))
    type = sort.operands[0].tensor_type
    return SortedArrays(sort, numbers, len(numbers), numbers, type.shape[SortView.of(sort).position(type.rank)])


def selected_arrays(selection: Selection, buffers: int) -> SortedArrays:
    """Those of a selection in a fusion with so many operands."""
    return SortedArrays(selection.sort, selection.sources, buffers, selection.outputs, selection.count, selection.first)
