"""Indices that a loop's counter moves evenly: two questions in front of the loop answer those of all its rounds.

    while k < n: ... x[500 - k - w] ...         # inside of x in all rounds, if it is in the first and in the last one

An index that is a sum of constants, of integers that the loop does not change, and of its counter times one of these, lies
between its first and its last value.  Where these are inside of the array, no round counts it from the end, clamps it or
finds it out of bounds: a copy of the loop knows that, and is run if it is so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, final

from hlojit.ir.formats import IntegerType
from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.ops.definition import Trait, ValueRange
from hlojit.ir.ops.views import CompareView
from hlojit.ir.passes.graph_facts import constant_of
from hlojit.ir.passes.rules.matching import integer_range
from hlojit.lowering.counted_loops import Counter, Opened, step_of, surely

LARGEST: Final = 1 << 30
"""Of the integers in such a sum: products of two, and sums of a few of these, are exact in 64 bits."""
LARGEST_STEP: Final = 1 << 29
"""Of a counter up or down, which is then within 32 bits behind the last round, too."""
_UPWARDS: Final = {"LT": -1, "LE": 0}
_DOWNWARDS: Final = {"GT": 1, "GE": 0}
_MOST_OPERATIONS: Final = 6
_MOST_INDICES: Final = 16
_OPERATIONS: Final = {Trait.ADDS: "add", Trait.SUBTRACTS: "sub", Trait.MULTIPLIES: "mul"}


Leaf = TypeVar("Leaf")
Other = TypeVar("Other")


@final
@dataclass(frozen=True)
class Expression(Generic[Leaf]):
    """What computes an integer: ``operation`` ("add", "sub", "mul") of two, or else a leaf or a constant."""

    operation: str = ""
    operands: tuple[Expression[Leaf], ...] = ()
    leaf: Leaf | None = None
    constant: int = 0

    @property
    def leaves(self) -> Iterator[Leaf]:
        """What it is computed from."""
        if self.leaf is not None:
            yield self.leaf
        for operand in self.operands:
            yield from operand.leaves

    @property
    def size(self) -> int:
        """Its operations."""
        return bool(self.operation) + sum(operand.size for operand in self.operands)

    def of(self, other: Callable[[Leaf], Other]) -> Expression[Other]:
        """The same of other leaves."""
        leaf = None if self.leaf is None else other(self.leaf)
        return Expression(self.operation, tuple(each.of(other) for each in self.operands), leaf, self.constant)


@final
@dataclass(frozen=True)
class AffineIndex(Generic[Leaf]):
    """An index of the body; in no round is it clamped if it lies between 0 and ``high``, both included."""

    expression: Expression[Leaf]
    high: int
    bits: int


@final
@dataclass(frozen=True)
class AffineLoop(Generic[Leaf]):
    """A loop's indices, by a counter that lies between its beginning and ``limit + offset`` where the body begins."""

    counter: Leaf
    limit: Expression[Leaf]
    offset: int
    indices: tuple[AffineIndex[Leaf], ...]

    @property
    def leaves(self) -> Iterator[Leaf]:
        """The counter, and all that limit and indices are computed from."""
        yield self.counter
        yield from self.limit.leaves
        for index in self.indices:
            yield from index.expression.leaves

    def of(self, other: Callable[[Leaf], Other]) -> AffineLoop[Other]:
        """The same of other leaves."""
        indices = tuple(AffineIndex(each.expression.of(other), each.high, each.bits) for each in self.indices)
        return AffineLoop(other(self.counter), self.limit.of(other), self.offset, indices)


def affine_loop(loop: Instruction, counters: Sequence[Counter] = ()) -> AffineLoop[Value] | None:
    """The indices that one counter of a loop moves evenly; None where the loop has none, or loops inside.

    What ``counters`` say is inside in any case is no such index: the loop needs no other version for it.
    """
    condition, body = loop.regions
    if any(instruction.regions and Trait.FUSION not in instruction.op.traits for instruction in (*condition, *body)):
        return None
    opened = Opened(loop.regions)
    for position, argument in enumerate(body.arguments):
        step = _step(body.returned[position], argument, opened)
        if step == 0 or abs(step) > LARGEST_STEP:
            continue
        known = [(each.low, each.high) for each in counters if each.position == position]
        reader = _Reader(loop, position, known[0] if known else None)
        limit = reader.limit(_UPWARDS if step > 0 else _DOWNWARDS)
        indices = tuple(dict.fromkeys(reader.indices()))[:_MOST_INDICES] if limit is not None else ()
        if limit is not None and indices:
            return AffineLoop(argument, *limit, indices)
    return None


def _step(value: Value, argument: Value, opened: Opened) -> int:
    """What a carried value grows by in each round, or becomes less; 0 if that is no constant."""
    made = opened(value)
    up = step_of(value, argument, opened)
    if up is not None:
        return up
    operation = _operation(made.producer)
    if made.producer is not None and operation in ("add", "sub") and opened(made.producer.operands[0]) is argument:
        by = constant_of(opened(made.producer.operands[1]))
        if by is not None and by.is_splat:
            return int(by.splat_value) * (1 if operation == "add" else -1)
    return 0


def _operation(producer: Instruction | None) -> str | None:
    """What an instruction is in an expression, if it may be in one."""
    if producer is None:
        return None
    return next((name for trait, name in _OPERATIONS.items() if surely(producer, trait)), None)


@final
class _Reader:
    """Reads the expressions of a loop, before or after fusion."""

    def __init__(self, loop: Instruction, position: int, known: ValueRange | None):
        self._condition, self._body = loop.regions
        self._position = position
        self._known = known
        """Between what the counter lies in any case."""
        self._opened = Opened(loop.regions)
        self._blocks: set[Block] = {self._condition, self._body}
        for block in (self._condition, self._body):
            for instruction in block:
                if instruction.regions:
                    # Tells what its parameters are.
                    for result in instruction.results:
                        self._opened(result)
                    self._blocks.update(instruction.regions)

    def limit(self, offsets: Mapping[str, int]) -> tuple[Expression[Value], int] | None:
        """What the condition compares the counter with, and how far from that it is at the most, by the comparison."""
        work = [self._condition.returned[0]]
        while work:
            producer = self._opened(work.pop()).producer
            if producer is None:
                continue
            if surely(producer, Trait.CONJUNCTION):
                work += producer.operands
            elif surely(producer, Trait.COMPARISON):
                lhs, rhs = map(self._opened, producer.operands)
                view = CompareView.of(producer)
                direction = view.direction
                if rhs is self._condition.arguments[self._position]:
                    lhs, rhs, direction = rhs, lhs, view.mirrored
                if lhs is self._condition.arguments[self._position] and direction in offsets:
                    limit = self._leaf(rhs, in_condition=True)
                    if limit is not None:
                        return limit, offsets[direction]
        return None

    def indices(self) -> Iterator[AffineIndex[Value]]:
        """Of the body, and of fusions in it."""
        for instruction in self._body:
            yield from self._indices(instruction)
            for region in instruction.regions:
                for each in region:
                    yield from self._indices(each)

    def _indices(self, instruction: Instruction) -> Iterator[AffineIndex[Value]]:
        """What a slice, or an update of one, is told to begin at."""
        if Trait.BEGINS not in instruction.op.traits:
            return
        array, *others = instruction.operands
        starts = [others.pop() for _ in range(array.tensor_type.rank)][::-1]
        sizes = others[0] if others else instruction.result
        for start, extent, size in zip(starts, array.tensor_type.shape, sizes.tensor_type.shape, strict=True):
            if not isinstance(extent, int) or not isinstance(size, int) or extent == size or extent > LARGEST:
                continue
            expression = self._expression(self._counted_from_the_front(start))
            if expression is not None and expression.size <= _MOST_OPERATIONS:
                between = self._between(expression)
                if between is not None and between[0] >= 0 and between[1] <= extent - size:
                    continue
                element = start.tensor_type.element_type
                assert isinstance(element, IntegerType)
                yield AffineIndex(expression, extent - size, element.bits)

    def _counted_from_the_front(self, index: Value) -> Value:
        """``x`` of ``x < 0 ? x + size : x``."""
        index = self._opened(index)
        chosen = index.producer
        if chosen is None or Trait.SELECTION not in chosen.op.traits:
            return index
        predicate, _, otherwise = map(self._opened, chosen.operands)
        test = predicate.producer
        if test is None or Trait.COMPARISON not in test.op.traits or CompareView.of(test).direction != "LT":
            return index
        lhs, zero = map(self._opened, test.operands)
        dense = constant_of(zero)
        is_zero = dense is not None and dense.is_splat and dense.splat_value == 0
        return otherwise if is_zero and self._same(lhs, otherwise) else index

    def _same(self, a: Value, b: Value) -> bool:
        return a is b or (self._expression(a) is not None and self._expression(a) == self._expression(b))

    def _expression(self, value: Value, depth: int = 0) -> Expression[Value] | None:
        """An integer as a sum, if it is one that the counter moves evenly."""
        value = self._opened(value)
        leaf = self._leaf(value)
        if leaf is not None:
            return leaf
        producer, operation = value.producer, _operation(value.producer)
        if producer is None or operation is None or depth > _MOST_OPERATIONS:
            return None
        operands = [self._expression(operand, depth + 1) for operand in producer.operands]
        if any(each is None for each in operands):
            return None
        a, b = (each for each in operands if each is not None)
        if operation == "mul" and (a.operation or b.operation or (self._is_counted(a) and self._is_counted(b))):
            return None
        return Expression(operation, (a, b))

    def _between(self, expression: Expression[Value]) -> ValueRange | None:
        """Between what an integer lies in any case; None if nobody knows."""
        if expression.leaf is not None:
            is_counter = expression.leaf is self._body.arguments[self._position]
            return self._known if is_counter else integer_range(expression.leaf, surely=True)
        if not expression.operation:
            return expression.constant, expression.constant
        ranges = [self._between(operand) for operand in expression.operands]
        if ranges[0] is None or ranges[1] is None:
            return None
        (a, b), (c, d) = ranges[0], ranges[1]
        if expression.operation == "mul":
            ends = [a * c, a * d, b * c, b * d]
            return min(ends), max(ends)
        return (a + c, b + d) if expression.operation == "add" else (a - d, b - c)

    def _is_counted(self, expression: Expression[Value]) -> bool:
        return self._body.arguments[self._position] in expression.leaves

    def _leaf(self, value: Value, in_condition: bool = False) -> Expression[Value] | None:
        """A constant, the counter, or what the loop does not change."""
        value = self._opened(value)
        element = value.tensor_type.element_type
        if not isinstance(element, IntegerType) or not element.signed or element.bits not in (32, 64):
            return None
        if value.tensor_type.size != 1:
            return None
        dense = constant_of(value)
        if dense is not None:
            number = int(dense.splat_value)
            return Expression(constant=number) if abs(number) <= LARGEST else None
        block = self._condition if in_condition else self._body
        if value in block.arguments:
            position = block.arguments.index(value)
            argument = self._body.arguments[position]
            is_kept = self._opened(self._body.returned[position]) is argument
            return Expression(leaf=argument) if is_kept or position == self._position else None
        return Expression(leaf=value) if self._is_outside(value) else None

    def _is_outside(self, value: Value) -> bool:
        block = value.producer.block if value.producer is not None else value.owner
        return block not in self._blocks
