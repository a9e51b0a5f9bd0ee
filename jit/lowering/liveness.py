"""Positions and last uses: which value is read until when, with loops and branches taken into account.

Values that share memory (a reshape and its operand) count as one, their *root*.
"""

from __future__ import annotations

from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.ops.definition import Trait

FOREVER = 1 << 60


def is_alias(instruction: Instruction) -> bool:
    """Whether the results are the operands' memory: an unfused reshape, a barrier, an annotation."""
    return Trait.BITCAST in instruction.op.traits or host_role(instruction) == "alias"


def host_role(instruction: Instruction) -> str:
    """What the host program does with an instruction that is no kernel (see ``Structural``), or an empty string."""
    return instruction.op.host_role


class Liveness:
    """Positions of instructions and last uses of values of one function body.

    A while loop, a branch and everything else occupy a span of positions; ``begin`` and ``end`` give it.  A value that is
    defined outside a loop and read inside is live until the loop's end.
    """

    def __init__(self, body: Block):
        self.begin: dict[Instruction, int] = {}
        self.end: dict[Instruction, int] = {}
        self._roots: dict[Value, Value] = {}
        self._last_use: dict[Value, int] = {}
        self.captured: set[Value] = set()
        """Roots that are read inside a construct which does not define them."""
        self._position = 0
        self._number(body)
        self._uses(body)

    def root(self, value: Value) -> Value:
        """The value whose memory ``value`` is."""
        return self._roots.get(value, value)

    def last_use(self, value: Value) -> int:
        """Last position at which the memory of ``value`` is read (-1: never)."""
        return self._last_use.get(self.root(value), -1)

    def _number(self, block: Block) -> None:
        for instruction in block:
            self._position += 1
            self.begin[instruction] = self._position
            if is_alias(instruction):
                for operand, result in zip(instruction.operands, instruction.results):
                    self._roots[result] = self.root(operand)
            if has_host_regions(instruction):
                for region in instruction.regions:
                    self._number(region)
                self._position += 1
            self.end[instruction] = self._position

    def _uses(self, block: Block) -> None:
        """Record every use; a use inside a nested block counts at the outermost construct that does not define it."""
        stack: list[tuple[Block, tuple[Instruction, ...]]] = [(block, ())]
        while stack:
            current, enclosing = stack.pop()
            for instruction in current:
                for operand in instruction.operands:
                    self._use(operand, instruction, enclosing)
                if has_host_regions(instruction):
                    stack.extend((region, (*enclosing, instruction)) for region in instruction.regions)

    def _use(self, operand: Value, user: Instruction, enclosing: tuple[Instruction, ...]) -> None:
        root = self.root(operand)
        position = self.end[user]
        home = root.owner.block if isinstance(root.owner, Instruction) else root.owner
        # From the innermost construct outward, until the one whose region defines the value.
        for construct in reversed(enclosing):
            if any(region is home for region in construct.regions):
                break
            position = self.end[construct]
            self.captured.add(root)
        if position > self._last_use.get(root, -1):
            self._last_use[root] = position


def has_host_regions(instruction: Instruction) -> bool:
    """Whether the host program executes the regions (while, if, case), as opposed to a kernel (reduce, sort, fusion)."""
    return host_role(instruction) in ("loop", "branch")
