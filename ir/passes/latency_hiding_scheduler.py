"""Wait for what runs beside the program as late as possible.

    %0 = hlojit.async_start() { ... }                    %0 = hlojit.async_start() { ... }
    %1 = hlojit.async_done(%0)                 =>        %2 = dot_general %x, %y
    %2 = dot_general %x, %y                              %1 = hlojit.async_done(%0)
    %3 = add %1, %2                                      %3 = add %1, %2

A wait goes down to the first instruction of its block that reads what it waits for, itself or in a region.  Starts stay
where the program has them: what is begun sooner is in memory for longer.  Numeric effect: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlojit.ir.blocks import Block, Instruction
from hlojit.ir.graph import Module
from hlojit.ir.passes.graph_facts import program_blocks
from hlojit.ir.passes.pass_manager import Pass


@dataclass(frozen=True)
class LatencyHidingScheduler(Pass):
    """Move ``hlojit.async_done`` down to its first user."""

    name: ClassVar[str] = "latency-hiding-scheduler"
    phase: ClassVar[str] = "fusion"
    after: ClassVar[tuple[str, ...]] = ("instruction-fusion",)

    def run(self, module: Module) -> bool:
        """Move; return whether a wait was moved."""
        changed = False
        for function in module.functions.values():
            for block in list(program_blocks(function)):
                changed |= _sink_waits(block)
        return changed


def _sink_waits(block: Block) -> bool:
    if not any(instruction.op.host_role == "finish" for instruction in block):
        return False
    changed = False
    instructions = list(block)
    position = {instruction: number for number, instruction in enumerate(instructions)}
    for wait in reversed(instructions):
        if wait.op.host_role != "finish":
            continue
        users = {_member(block, user) for result in wait.results for user in result.users}
        first = min(users, key=position.__getitem__) if users else instructions[-1]
        if wait.next is not first:
            wait.unlink()
            block.insert_before(first, wait)
            position[wait] = position[first]
            changed = True
    return changed


def _member(block: Block, user: Instruction) -> Instruction:
    """The instruction of the block that is ``user`` or holds it."""
    while user.block is not block:
        assert user.block is not None and isinstance(user.block.parent, Instruction)
        user = user.block.parent
    return user
