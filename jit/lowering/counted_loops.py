"""Integers that a loop counts: between what they lie where its body begins, and how often the body runs at most.

    i = 2; while i < n and more: ...; i = i + 3         # Counter(position, low=2, high=n's greatest - 1, step=3)

What is known of a counter makes the clamps of its uses as an index superfluous, and questions whether to stop: a loop that is
short need not ask.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import final

from hlojit.ir.formats import IntegerType
from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.ops import is_built_in
from hlojit.ir.ops.definition import Trait
from hlojit.ir.ops.views import CompareView
from hlojit.ir.passes.graph_facts import constant_of
from hlojit.ir.passes.rules.matching import integer_range


@final
@dataclass(frozen=True, slots=True)
class Counter:
    """One carried value that grows by a constant and is limited by the condition."""

    position: int
    """Among what the loop carries."""
    low: int
    high: int
    """Both included, where the body begins."""
    step: int

    @property
    def rounds(self) -> int:
        """How often the body runs at most."""
        return max(0, self.high - self.low) // self.step + 1


def counters_of(loop: Instruction) -> tuple[Counter, ...]:
    """The counters of a loop, whose regions are its condition and its body, before or after fusion."""
    condition, body = loop.regions
    opened = Opened()
    positions = {argument: position for position, argument in enumerate(condition.arguments)}
    limits: dict[int, int] = {}
    for position, limit in _limits(condition.returned[0], positions, opened):
        limits[position] = min(limit, limits.get(position, limit))
    found = []
    for position, limit in limits.items():
        argument = body.arguments[position]
        element = argument.tensor_type.element_type
        begin, step = (
            integer_range(loop.operands[position], surely=True),
            step_of(body.returned[position], argument, opened),
        )
        if begin is None or step is None or not isinstance(element, IntegerType) or limit + step > element.maximum:
            continue
        found.append(Counter(position, begin[0], max(limit, begin[0]), step))
    return tuple(found)


def surely(instruction: Instruction, trait: Trait) -> bool:
    """Whether an op is what a trait says: LLVM leaves clamps out for it, so that no plugin's word counts."""
    return trait in instruction.op.traits and is_built_in(instruction.op)


@final
class Opened:
    """Values as the regions of fusions compute them; of those in certain blocks, if these are given."""

    def __init__(self, blocks: Collection[Block] | None = None) -> None:
        self._blocks = blocks
        self._outside: dict[Value, Value] = {}
        """What parameters of fusions are outside."""

    def __call__(self, value: Value) -> Value:
        while True:
            producer = value.producer
            if value in self._outside:
                value = self._outside[value]
            elif producer is not None and surely(producer, Trait.FUSION) and self._opens(producer):
                (region,) = producer.regions
                self._outside.update(zip(region.arguments, producer.operands))
                value = region.returned[producer.results.index(value)]
            else:
                return value

    def _opens(self, fusion: Instruction) -> bool:
        return self._blocks is None or fusion.block in self._blocks


def _limits(predicate: Value, positions: dict[Value, int], opened: Opened) -> Iterator[tuple[int, int]]:
    """The greatest value with which the body is entered, by position, as far as conditions that all hold say so."""
    work = [predicate]
    while work:
        producer = opened(work.pop()).producer
        if producer is None:
            continue
        if surely(producer, Trait.CONJUNCTION):
            work += producer.operands
        elif surely(producer, Trait.COMPARISON):
            lhs, rhs = map(opened, producer.operands)
            view = CompareView.of(producer)
            direction = view.direction
            if rhs in positions:
                lhs, rhs, direction = rhs, lhs, view.mirrored
            limit = integer_range(rhs, surely=True)
            if lhs in positions and limit is not None and direction in ("LT", "LE"):
                yield positions[lhs], limit[1] - (direction == "LT")


def step_of(value: Value, argument: Value, opened: Opened) -> int | None:
    """By what positive constant a carried value grows."""
    producer = opened(value).producer
    if producer is None or not surely(producer, Trait.ADDS):
        return None
    operands = [opened(each) for each in producer.operands]
    if argument not in operands:
        return None
    by = constant_of(operands[1 - operands.index(argument)])
    if by is None or not by.is_splat:
        return None
    step = int(by.splat_value)
    return step if step > 0 else None
