"""Which values regions read from outside."""

from __future__ import annotations

from collections.abc import Iterable

from hlojit.ir.graph import Instruction, Value


def free_values(instruction: Instruction) -> Iterable[Value]:
    """Values that regions of an instruction read; some of them are inside."""
    return dict.fromkeys(
        operand for region in instruction.regions for inner in region.walk() for operand in inner.operands
    )
