"""Until where the values of a block are read, whose kernels run one after the other: then their memory can be another's."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.ops.symbolic_values import Access, Carrying, Choosing


def last_reads(
    block: Block, stored: Collection[Instruction], access: Mapping[Instruction, Access]
) -> dict[Instruction, list[Value]]:
    """By the instruction whose kernel reads them last, results of ``stored`` instructions.

    What loops and branches give, and what loops are given, is not among them: a state may lie where an operand does.
    """
    reading: dict[Instruction, Instruction] = {}
    position = {instruction: number for number, instruction in enumerate(block)}

    def reader(user: Instruction) -> Instruction:
        """The instruction of the block in whose kernel a user is computed."""
        while user.block is not block:
            parent = user.block.parent if user.block is not None else None
            assert isinstance(parent, Instruction), user
            user = parent
        return reading.get(user, user)

    found: dict[Instruction, list[Value]] = {}
    for instruction in reversed(block):
        users = {user for result in instruction.results for user in result.users}
        if instruction not in stored:
            # It is computed where it is used, the last time by the last of its users.
            last = max((reader(user) for user in users), key=position.__getitem__, default=instruction)
            reading[instruction] = last
        elif not isinstance(access[instruction], (Carrying, Choosing)):
            for result in instruction.results:
                if any(isinstance(access.get(user), Carrying) for user in result.users):
                    continue
                last = max((reader(user) for user in result.users), key=position.__getitem__, default=instruction)
                if last is not block.terminator:
                    found.setdefault(last, []).append(result)
    return found
