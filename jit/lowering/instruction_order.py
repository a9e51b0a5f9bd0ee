"""First step of scheduling: the order in which instructions happen, as positions.

    a = ...            1
    w = while          2 .. 6        (a construct spans the positions of what it holds)
      cond: c = ...    3
      body: b = ...    4
            return     5
    return w           7

The order is the one in which the passes left the graph: fusion has put every kernel where its operands are there.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlojit.ir.graph import Block, Instruction


def has_host_regions(instruction: Instruction) -> bool:
    """Whether the host program executes the regions (while, if, case, the body of an asynchronous pair).

    Those of reduce, sort and fusion are a kernel's.
    """
    return instruction.op.host_role in ("loop", "branch", "start")


def visit(body: Block) -> Iterator[tuple[Instruction, bool]]:
    """Yield every instruction of the host program in order, as (instruction, True).

    After a loop or branch and all that it holds comes (loop or branch, False).
    """
    stack: list[Iterator[Instruction] | Instruction] = [iter(body)]
    while stack:
        top = stack[-1]
        if isinstance(top, Instruction):
            stack.pop()
            yield top, False
            continue
        instruction = next(top, None)
        if instruction is None:
            stack.pop()
            continue
        yield instruction, True
        if has_host_regions(instruction):
            stack.append(instruction)
            stack.extend(iter(region) for region in reversed(instruction.regions))


class InstructionOrder:
    """Positions of the instructions of one function body; ``begin`` and ``end`` of a loop or branch span its regions."""

    def __init__(self, body: Block):
        self.begin: dict[Instruction, int] = {}
        self.end: dict[Instruction, int] = {}
        for position, (instruction, is_entered) in enumerate(visit(body), 1):
            if is_entered:
                self.begin[instruction] = position
            self.end[instruction] = position
