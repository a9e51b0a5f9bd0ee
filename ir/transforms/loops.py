"""How often a loop runs at most."""

from __future__ import annotations

from hlojit.ir.formats import BooleanType
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.convert import CONVERT
from hlojit.ir.ops.definition import Trait
from hlojit.ir.passes.while_loop_simplifier import counted_turns
from hlojit.ir.types import TensorType


def most_turns(loop: Instruction) -> int | None:
    """The bound that a counter gives among what must hold for the loop to go on (``counter < 5 and not done``), or None."""
    pending, found = [loop.regions[0].returned[0].producer], list[int]()
    while pending:
        test = pending.pop()
        if test is None:
            continue
        turns = counted_turns(loop, test)
        if turns is not None:
            found.append(turns)
        elif Trait.CONJUNCTION in test.op.traits or _is_no_conversion(test):
            pending.extend(operand.producer for operand in test.operands)
    return min(found, default=None)


def _is_no_conversion(instruction: Instruction) -> bool:
    """Whether it makes booleans of booleans, as they are."""
    types = (*instruction.operand_types, *instruction.result_types)
    return (
        len(types) == 2
        and not instruction.regions
        and types[0] is types[1]
        and isinstance(types[0], TensorType)
        and isinstance(types[0].element_type, BooleanType)
        and instruction.op == CONVERT
    )
