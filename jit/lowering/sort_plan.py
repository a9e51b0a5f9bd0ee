"""What is decided about a sort on a machine with threads: tiles that a block sorts in shared memory, then merges."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from hlojit.ir.formats import ElementType
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.views import SortView
from hlojit.lowering.element_forms import memory_kind
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.target import KIND_BITS

LARGEST_TILE = 1024
ALIGNMENT = 256


@dataclass(frozen=True)
class GridSortPlan:
    """Lines of ``length`` elements of several operands, ``inner`` apart; a block sorts ``tile`` of one line at first.

    Merging doubles the sorted runs, pass by pass.  Passes go back and forth between two areas of the workspace, each line
    contiguous; the last one writes the results.
    """

    elements: tuple[ElementType, ...]
    length: int
    inner: int
    lines: int
    tile: int
    """A power of two."""

    @staticmethod
    def of(instruction: Instruction, machine: GridMachine) -> GridSortPlan:
        """The plan of a sort instruction with elements."""
        type = instruction.operands[0].tensor_type
        dimension = SortView.of(instruction).position(type.rank)
        elements = tuple(operand.tensor_type.element_type for operand in instruction.operands)
        length = type.shape[dimension]
        item = sum(itemsize(element) for element in elements)
        tile = 2
        while (
            tile < min(length, LARGEST_TILE)
            and 2 * tile * (2 * item + 4) + 32 * (2 * len(elements) + 2) <= machine.shared_bytes
        ):
            tile *= 2
        inner = math.prod(type.shape[dimension + 1 :])
        return GridSortPlan(elements, length, inner, type.size // length, tile)

    @property
    def threads(self) -> int:
        """Of a block: one for every element of a tile, as far as that is a whole warp."""
        return max(32, self.tile)

    @property
    def tiles(self) -> int:
        """Tiles of a line; the last one may be shorter."""
        return -(-self.length // self.tile)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Of the sorted runs that each merging pass finds."""
        widths = []
        width = self.tile
        while width < self.length:
            widths.append(width)
            width *= 2
        return tuple(widths)

    @cached_property
    def area_bytes(self) -> tuple[int, ...]:
        """Of every operand in one area of the workspace."""
        return tuple(
            -(-self.length * self.lines * itemsize(element) // ALIGNMENT) * ALIGNMENT for element in self.elements
        )

    @property
    def rank_kind(self) -> str:
        """Of an element's place in the other run."""
        return "i32" if self.length < 1 << 31 else "i64"

    @property
    def areas(self) -> int:
        """None where tiles are whole lines, one for one merging pass, two for more."""
        return min(2, len(self.widths))

    @property
    def ranks_offset(self) -> int:
        """Where the ranks lie in the workspace, one for each element of an operand."""
        return self.areas * sum(self.area_bytes)

    @property
    def flags_offset(self) -> int:
        """Where the flags lie, one (i32) for each pair of runs."""
        nbytes = self.length * self.lines * KIND_BITS[self.rank_kind] // 8
        return self.ranks_offset + -(-nbytes // ALIGNMENT) * ALIGNMENT

    def pairs(self, width: int) -> int:
        """Pairs of runs of ``width`` in a line."""
        return -(-self.length // (2 * width))

    @property
    def workspace_bytes(self) -> int:
        """Everything between the tiles and the results."""
        return self.flags_offset + 4 * self.lines * self.pairs(self.tile) if self.widths else 0

    def area_offset(self, area: int, operand: int) -> int:
        """Where an operand lies in the workspace."""
        return area * sum(self.area_bytes) + sum(self.area_bytes[:operand])


def itemsize(element: ElementType) -> int:
    """Bytes of one element in memory."""
    return max(8, KIND_BITS[memory_kind(element)]) // 8
