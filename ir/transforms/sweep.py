"""Removes what transformations built and nobody reads."""

from __future__ import annotations

from collections.abc import Collection

from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.passes.graph_facts import has_own_effect


def sweep(block: Block, before: Instruction | None = None, keep: Collection[Value] = ()) -> None:
    """Remove instructions whose results nobody reads; of a block in work those up to ``before`` stay, and what makes ``keep``."""
    instruction = block.last
    while instruction is not None and instruction is not before:
        previous = instruction.previous
        if _is_dead(instruction) and not any(result in keep for result in instruction.results):
            instruction.erase()
        else:
            for region in instruction.regions:
                sweep(region)
        instruction = previous


def _is_dead(instruction: Instruction) -> bool:
    if instruction.op.is_terminator or any(result.users for result in instruction.results):
        return False
    return not any(map(has_own_effect, instruction.walk()))
