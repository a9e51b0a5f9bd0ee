"""Second step of scheduling: which values are the same memory, until when each is read, and which may share memory.

Values that are the same memory count as one, their *root*: a reshape and its operand; what a loop hands on unchanged, in
the regions, and as a result.  Nothing is placed here; the questions are about values and kernels only.

    y = reshape x          root(y) is x
    z = tanh y             z may be written over x, if this is the last use of x and the kernel reads where it writes
"""

from __future__ import annotations

from typing import Protocol

from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.ops.definition import Structural, Trait
from hlojit.lowering.instruction_order import InstructionOrder, has_host_regions, visit
from hlojit.lowering.kernel import KernelCode


class KernelSource(Protocol):
    """Gives the code for an instruction."""

    def kernel(self, instruction: Instruction) -> KernelCode:
        """Code for one instruction; raises ``UnsupportedError``."""


def is_alias(instruction: Instruction) -> bool:
    """Whether the results are the operands' memory: an unfused reshape, a barrier, an annotation, a wait."""
    return Trait.BITCAST in instruction.op.traits or instruction.op.host_role in ("alias", "finish")


def home(value: Value) -> Block:
    """The block that defines a value."""
    block = value.owner.block if isinstance(value.owner, Instruction) else value.owner
    assert block is not None, value
    return block


def _end_of(construct: Instruction) -> Instruction:
    """Where nobody reads any more what the regions read: behind it, or where it is waited for."""
    return next(iter(construct.results[0].users)) if construct.op.host_role == "start" else construct


def is_invariant(loop: Instruction, number: int) -> bool:
    """Whether a loop hands on its value ``number`` unchanged."""
    body = loop.regions[1]
    return body.returned[number] is body.arguments[number]


class AliasAnalysis:
    """Roots and last uses of the values of one function body, and what follows from them and the kernels."""

    def __init__(self, body: Block, order: InstructionOrder, kernels: KernelSource):
        self.order = order
        self._kernels = kernels
        self._codes: dict[Instruction, KernelCode] = {}
        self.captured: set[Value] = set()
        """Roots that are read inside a construct which does not define them."""
        self._roots: dict[Value, Value] = {}
        self._last_use: dict[Value, int] = {}
        self._inner_use: dict[tuple[Value, Block], int] = {}
        """Last position in a region at which the memory of a value of outside is read."""
        self._find_roots(body)
        self._find_uses(body)

    def root(self, value: Value) -> Value:
        """The value whose memory ``value`` is."""
        return self._roots.get(value, value)

    def last_use(self, value: Value) -> int:
        """Last position at which the memory of ``value`` is read (-1: never)."""
        return self._last_use.get(self.root(value), -1)

    def kernel(self, instruction: Instruction) -> KernelCode:
        """The code of an instruction (asked for once)."""
        code = self._codes.get(instruction)
        if code is None:
            code = self._codes[instruction] = self._kernels.kernel(instruction)
        return code

    # ------------------------------------------------------------- questions

    def updated_operand(self, root: Value) -> Value | None:
        """The value in whose memory ``root`` is made, if the producer is an update, or a loop, and its last reader."""
        producer = root.producer
        if producer is None or not root.tensor_type.size:
            return None
        if producer.op.host_role == "loop":
            first = self.root(producer.operands[root.index])
            reads = sum(self.root(operand) is first for operand in producer.operands)
            return first if reads == 1 and self.dies_at(first, producer) else None
        if isinstance(producer.op.lowering, Structural):
            return None
        code = self.kernel(producer)
        numbers = [operand for operand, result in code.in_place if result == root.index]
        if not code.updates or not numbers:
            return None
        updated = self.root(producer.operands[numbers[0]])
        reads = sum(self.root(operand) is updated for operand in producer.operands)
        return updated if reads == 1 and self.last_use(updated) <= self.order.end[producer] else None

    def dies_at(self, value: Value, instruction: Instruction) -> bool:
        """Whether ``instruction`` reads the value's memory for the last time and stands where the value is defined."""
        root = self.root(value)
        return (
            not (root in self.captured and has_host_regions(instruction))
            and home(root) is instruction.block
            and self.last_use(value) <= self.order.end[instruction]
        )

    def may_write_over(self, argument: Value, value: Value, body: Block) -> bool:
        """Whether ``value`` may be computed in the memory of ``argument``: nothing in ``body`` reads the old one later.

        ``argument`` is an argument of the block, or of one around it that hands it to this branch.
        """
        root = self.root(value)
        producer = root.producer
        if producer is None or producer.block is not body or self.root(argument) is not argument:
            return False
        last = self.last_use(argument) if home(argument) is body else self._inner_use.get((argument, body), -1)
        if last < self.order.begin[producer]:
            return True
        if last > self.order.end[producer]:
            return False
        reads = [k for k, operand in enumerate(producer.operands) if self.root(operand) is argument]
        if producer.op.host_role == "branch":
            ends = [(region.returned[root.index], region) for region in producer.regions]
            return not reads and all(
                self.root(end) is argument or self.may_write_over(argument, end, region) for end, region in ends
            )
        if has_host_regions(producer):
            captured = any((argument, region) in self._inner_use for region in producer.regions)
            return producer.op.host_role == "loop" and not captured and reads == [root.index]
        if isinstance(producer.op.lowering, Structural):
            return False
        pairs = self.kernel(producer).in_place
        return bool(reads) and all((k, root.index) in pairs for k in reads)

    # --------------------------------------------------------------- reading

    def _find_roots(self, body: Block) -> None:
        for instruction, is_entered in visit(body):
            if not is_entered:
                continue
            if is_alias(instruction):
                for operand, result in zip(instruction.operands, instruction.results):
                    self._roots[result] = self.root(operand)
            elif instruction.op.host_role == "loop":
                for number, operand in enumerate(instruction.operands):
                    if is_invariant(instruction, number):
                        names = [*(region.arguments[number] for region in instruction.regions)]
                        self._roots |= dict.fromkeys([*names, instruction.results[number]], self.root(operand))

    def _find_uses(self, body: Block) -> None:
        """Record every use; a use inside a nested block counts at the outermost construct that does not define it."""
        stack: list[tuple[Block, tuple[Instruction, ...]]] = [(body, ())]
        while stack:
            current, enclosing = stack.pop()
            for instruction in current:
                for operand in instruction.operands:
                    self._use(operand, instruction, enclosing)
                if has_host_regions(instruction):
                    stack.extend((region, (*enclosing, instruction)) for region in instruction.regions)

    def _use(self, operand: Value, user: Instruction, enclosing: tuple[Instruction, ...]) -> None:
        root = self.root(operand)
        position = self.order.end[user]
        block, inner = home(root), user.block
        # From the innermost construct outward, until the one whose region defines the value.
        for construct in reversed(enclosing):
            if any(region is block for region in construct.regions):
                break
            assert inner is not None
            self._inner_use[root, inner] = max(position, self._inner_use.get((root, inner), -1))
            position, inner = self.order.end[_end_of(construct)], construct.block
            self.captured.add(root)
        if position > self._last_use.get(root, -1):
            self._last_use[root] = position
