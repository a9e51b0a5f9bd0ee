"""Carry less round a loop, and compute outside of it what does not change inside.

    %r:2 = stablehlo.while(%i = %zero, %w = %weights)     =>   %t = stablehlo.transpose %weights
    cond { %c = compare LT, %i, %n ; return %c }               %r = stablehlo.while(%i = %zero)
    do {                                                       cond { %c = compare LT, %i, %n ; return %c }
      %t = stablehlo.transpose %w                              do {
      %j = ... %t ...                                            %j = ... %t ...
      return %j, %w                                              return %j
    }                                                          }

A carried value that the body returns unchanged is read from outside instead (regions may read outer values).  Work on
outer values moves in front of the loop if its result takes no more memory than what it is made of: a broadcast is
better made again in every round.  A loop that runs exactly once is its body; one that never runs is its initial
values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlojit.ir.graph import Block, Instruction, Module, Value
from hlojit.ir.ops.comparison import COMPARE
from hlojit.ir.ops.elementwise import ADD
from hlojit.ir.ops.views import CompareView
from hlojit.ir.passes.dead_code_elimination import rebuild_with_results
from hlojit.ir.passes.graph_facts import (
    Effects,
    blocks_inner_first,
    int_constant_of,
    is_constant,
    is_terminator,
)
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.types import TensorType


@dataclass(frozen=True)
class WhileLoopSimplifier(Pass):
    """Hoist invariants out of ``while`` loops; dissolve loops that run at most once."""

    name: ClassVar[str] = "while-loop-simplifier"
    phase: ClassVar[str] = "simplify"
    after: ClassVar[tuple[str, ...]] = ("algebraic-simplifier",)
    before: ClassVar[tuple[str, ...]] = ("common-subexpression-elimination", "dead-code-elimination")
    hoist: bool = True

    def run(self, module: Module) -> bool:
        """Simplify every loop, inner ones first; return whether anything changed."""
        effects = Effects(module)
        changed = False
        for block in blocks_inner_first(module):
            for instruction in block:
                if instruction.op.host_role == "loop":
                    changed |= self._simplify(instruction, effects)
        return changed

    def _simplify(self, loop: Instruction, effects: Effects) -> bool:
        slimmer = _without_invariants(loop, effects)
        trips = trip_count(slimmer, at_most=1)
        if trips == 0:
            slimmer.replace_with(slimmer.operands)
            return True
        if trips == 1:
            _run_once(slimmer)
            return True
        hoisted = self.hoist and _hoist(slimmer, effects)
        return hoisted or slimmer is not loop


def _without_invariants(loop: Instruction, effects: Effects) -> Instruction:
    """Make invariant carried values outer values; returns the loop that is left."""
    condition, body = loop.regions
    keep = []
    for i, (initial, returned) in enumerate(zip(loop.operands, body.returned)):
        if returned is body.arguments[i] or (returned is initial):
            for old in (condition.arguments[i], body.arguments[i], loop.results[i]):
                old.replace_all_uses_with(initial)
        else:
            keep.append(i)
    if len(keep) == len(loop.operands):
        return loop
    body.terminator.operands = [body.returned[i] for i in keep]
    for i in reversed(range(len(loop.operands))):
        if i not in keep:
            body.erase_argument(i)
            condition.erase_argument(i)
    return rebuild_with_results(loop, [loop.operands[i] for i in keep], keep, effects)


def _hoist(loop: Instruction, effects: Effects) -> bool:
    """Move invariant instructions in front of the loop.

    Invariant instructions that alone would take more memory than their operands move if an instruction that reads them
    moves and nothing that stays does.
    """
    body = loop.regions[1]
    invariant: dict[Instruction, None] = {}
    for instruction in body:
        if not _may_move(instruction, effects):
            continue
        if all(_is_outer(operand, body) or operand.owner in invariant for operand in instruction.operands):
            invariant[instruction] = None
    moving: set[Instruction] = set()
    for instruction in reversed(invariant):
        users = [user for result in instruction.results for user in result.users]
        if (users and all(user in moving for user in users)) or (
            not is_constant(instruction) and _is_no_larger(instruction)
        ):
            moving.add(instruction)
    if not moving:
        return False
    assert loop.block is not None
    for instruction in reversed(invariant):
        # What a moving instruction reads must move along.
        if instruction in moving or any(user in moving for result in instruction.results for user in result.users):
            moving.add(instruction)
    changed = False
    for instruction in invariant:
        if instruction in moving:
            instruction.unlink()
            loop.block.insert_before(loop, instruction)
            changed |= not is_constant(instruction)
    return changed


def _may_move(instruction: Instruction, effects: Effects) -> bool:
    return not (is_terminator(instruction) or effects.has_effect(instruction) or instruction.regions)


def _is_outer(value: Value, body: Block) -> bool:
    owner = value.owner
    return owner is not body and not (isinstance(owner, Instruction) and owner.block is body)


def _is_no_larger(instruction: Instruction) -> bool:
    """Whether keeping the results takes no more memory than the operands do."""
    types = (*instruction.operand_types, *instruction.result_types)
    if not all(isinstance(type, TensorType) and type.is_static for type in types):
        return False
    source = sum(
        value.tensor_type.nbytes for value in dict.fromkeys(instruction.operands) if not is_constant(value.producer)
    )
    return sum(result.tensor_type.nbytes for result in instruction.results) <= source


def trip_count(loop: Instruction, at_most: int = 1 << 40) -> int | None:
    """How often a loop runs that counts an integer by a constant step from a constant to a constant.

    None where that is not its form, or where it runs more than ``at_most`` times.
    """
    test = loop.regions[0].returned[0].producer
    return None if test is None else counted_turns(loop, test, at_most)


def counted_turns(loop: Instruction, test: Instruction, at_most: int = 1 << 40) -> int | None:
    """After how many turns ``test``, an instruction of the condition, is false for the first time; None as ``trip_count``."""
    condition, body = loop.regions
    if test.op != COMPARE or test.block is not condition:
        return None
    counter, bound = test.operands
    if counter.owner is not condition:
        return None
    last = int_constant_of(bound)
    first = int_constant_of(loop.operands[counter.index])
    step = constant_step(body, counter.index)
    if last is None or first is None or not step:
        return None
    direction = CompareView.of(test).direction
    distance = {"LT": last - first, "LE": last - first + 1}.get(direction)
    if distance is None or step < 0:
        return None
    count = max(0, -(-distance // step))
    return count if count <= at_most else None


def constant_step(body: Block, position: int) -> int | None:
    """The constant that the body adds to a carried integer."""
    increment = body.returned[position].producer
    if increment is None or increment.op != ADD:
        return None
    for counter, step in (increment.operands, reversed(increment.operands)):
        if counter is body.arguments[position]:
            return int_constant_of(step)
    return None


def _run_once(loop: Instruction) -> None:
    """Put the body in place of a loop that runs exactly once."""
    body = loop.regions[1]
    for argument, initial in zip(body.arguments, loop.operands):
        argument.replace_all_uses_with(initial)
    assert loop.block is not None
    for instruction in body:
        if not is_terminator(instruction):
            instruction.unlink()
            loop.block.insert_before(loop, instruction)
    loop.replace_with(body.returned)
