"""What a back end says of fusions: how large they may be, which kinds it has kernels for, and what it decides itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hlojit.ir.graph import Instruction
from hlojit.ir.ops.definition import Cost


@dataclass(frozen=True)
class FusionLimits:
    """Sizes beyond which a group no longer grows."""

    instructions: int = 64
    operands: int = 24
    evaluations: int = 128
    contexts: int = 8
    roots: int = 16
    rows: bool = False
    """Whether reductions and what reads them row by row may come together."""
    longest_row: int = 1 << 15
    """Elements of a row that are sure to stay near what computes on them."""
    fewest_rows: int = 8
    """With fewer, longer rows a row kernel could not use the machine."""
    longest_selection: int = 0
    """Elements of a sorted line of which a kernel keeps no others; 0 where there is no such kernel."""
    selects_anywhere: bool = False
    """Whether these may lie anywhere in the sorted line, and not only at its beginning."""
    places_nan: bool = False
    """Whether the back end's sorts give NaN a place of its own where a comparison leaves it without one."""
    longest_summed_row: int = 0
    """Bytes of a row of a row kernel that reduces columns of all rows as well; 0 where there is no such kernel."""
    anchors: frozenset[str] = frozenset()
    """Kernels (by the names that lowerings give them) that compute what follows them element by element as well."""
    decoded_rows: int = 0
    """Rows up to which a product with a matrix in blocks is a reduction of its numbers as they are decoded; 0: never."""
    prologues: frozenset[str] = frozenset()
    """Of the kernels that are anchors, those that compute the operand that they go over in streams element by element, too."""
    anchored_streams: int = 2
    """Arrays as large as an anchor's result that a group around it reads or writes besides it.  Where boxes of the result go
    over each of them a few columns at a time, memory is slower than for whole rows."""


class FusionPolicy(Protocol):
    """What a back end decides itself: None leaves a question to hlojit."""

    def fuses_into(self, producer: Instruction, group: Sequence[Instruction]) -> bool | None:
        """Whether a group that could compute ``producer`` itself is to do so; of two groups, whether they become one."""

    def element_cost(self, instruction: Instruction) -> Cost | None:
        """What computing one element costs."""
