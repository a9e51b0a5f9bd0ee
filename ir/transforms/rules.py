"""Finds the rule for an instruction: that of its record, or what the op expands into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlojit.ir.builder import Builder
from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.ops.control import callee_of
from hlojit.ir.ops.derivatives.kinds import Chosen, Derivative, Rewritten
from hlojit.ir.passes.op_expander import ExpansionRule, expansion_of
from hlojit.ir.transforms.errors import no_derivative


def derivative_of(instruction: Instruction) -> Derivative:
    """The rule; raises ``UnsupportedError`` where there is none."""
    found: Derivative | str | None = instruction.op.derivative
    while isinstance(found, Chosen):
        found = found.choose(instruction)
    if isinstance(found, str):
        raise no_derivative(instruction, found)
    if found is not None:
        return found
    rule = expansion(instruction)
    if rule is None:
        raise no_derivative(instruction)
    return Rewritten(rule)


def expansion(instruction: Instruction) -> ExpansionRule | None:
    """What the instruction is made of: the body of the function that it calls, or what its record expands it into."""
    return (
        _called_body if instruction.op.callees and instruction.op.host_role != "function" else expansion_of(instruction)
    )


def _called_body(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    attribute = instruction.op.callees[0]
    if not isinstance(instruction.attributes.get(attribute), str):
        return None
    callee = callee_of(instruction, attribute)
    made: Sequence[Value] | None = None if callee is None else builder.inline(callee.body, instruction.operands)
    return made


def made_of(instruction: Instruction, rule: Any) -> Block | None:
    """A block of what ``rule`` builds for an instruction, which returns what stands for its results."""
    block = Block()
    builder = Builder(block, location=instruction.location)
    values = rule(builder, instruction)
    if values is None:
        return None
    builder.create("stablehlo.return", values)
    return block
