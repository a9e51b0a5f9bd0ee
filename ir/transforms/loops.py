"""How often a loop runs at most.

    cond { return counter < 5 and not done }                                    5
    cond { return going }  do { ... ; return going = next < 5 and x > 0, next }     5

The second form is that of loops whose test runs at the end of a turn; ``if a { return b } else { return a }`` is ``a and b``.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlojit.ir.formats import BooleanType
from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.ops.comparison import COMPARE
from hlojit.ir.ops.convert import CONVERT
from hlojit.ir.ops.definition import Trait
from hlojit.ir.ops.views import CompareView
from hlojit.ir.passes.graph_facts import int_constant_of
from hlojit.ir.passes.while_loop_simplifier import constant_step, counted_turns
from hlojit.ir.types import TensorType, Type


def most_turns(loop: Instruction) -> int | None:
    """The bound that a counter gives among what must hold for the loop to go on, or None."""
    condition, body = loop.regions
    found = list[int]()
    for value in _needed(condition.returned[0]):
        test = value.producer
        if test is not None:
            turns = counted_turns(loop, test)
            found += [] if turns is None else [turns]
        elif value.owner is condition:
            behind = (_turns_tested_behind(loop, each) for each in _needed(body.returned[value.index]))
            found += [each for each in behind if each is not None]
    return min(found, default=None)


def _needed(value: Value) -> Iterator[Value]:
    """The values that are true wherever this one is: what it is a conjunction of."""
    pending = [value]
    while pending:
        value = pending.pop()
        yield value
        test = value.producer
        if test is None:
            continue
        if Trait.CONJUNCTION in test.op.traits or _is_no_conversion(test):
            pending.extend(test.operands)
        elif test.op.host_role == "branch" and _is_boolean(test.operand_types[0]):
            first, second = (_unconverted(region.returned[value.index]) for region in test.regions)
            if second is _unconverted(test.operands[0]) or int_constant_of(second) == 0:
                pending += [test.operands[0], first]


def _turns_tested_behind(loop: Instruction, value: Value) -> int | None:
    """The number of turns when ``value``, which is computed in the body, is false at the latest."""
    test = value.producer
    if test is None or test.op != COMPARE:
        return None
    counter, bound = test.operands
    last = int_constant_of(bound)
    place = _place(loop.regions[1], counter)
    if last is None or place is None:
        return None
    number, is_new = place
    first, step = int_constant_of(loop.operands[number]), constant_step(loop.regions[1], number)
    distance = {"LT": 0, "LE": 1}.get(CompareView.of(test).direction)
    if first is None or not step or step < 0 or distance is None:
        return None
    tests = max(0, -(-(last + distance - first) // step))
    return max(tests, 1) if is_new else tests + 1


def _place(body: Block, counter: Value) -> tuple[int, bool] | None:
    """Which carried value this is, and whether it is the one behind the turn."""
    if counter.owner is body:
        return counter.index, False
    return next(((number, True) for number, each in enumerate(body.returned) if each is counter), None)


def _unconverted(value: Value) -> Value:
    while value.producer is not None and _is_no_conversion(value.producer):
        value = value.producer.operands[0]
    return value


def _is_no_conversion(instruction: Instruction) -> bool:
    """Whether it makes booleans of booleans, as they are."""
    types = (*instruction.operand_types, *instruction.result_types)
    return instruction.op == CONVERT and types[0] is types[1] and _is_boolean(types[0])


def _is_boolean(type: Type) -> bool:
    return isinstance(type, TensorType) and isinstance(type.element_type, BooleanType)
