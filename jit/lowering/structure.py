"""Structural identity of instructions: equal keys mean that one kernel serves both.

Names, locations and the rest of the program do not count; ops, attributes, types and the way in which values are
connected do.  A GPT's twelve layers share their kernels this way.
"""

from __future__ import annotations

import hashlib

from hlojit.ir.attributes import Dense
from hlojit.ir.graph import Block, Instruction, Value


def structure_text(instruction: Instruction) -> str:
    """Canonical text of an instruction with everything that its code depends on."""
    parts: list[str] = []
    _describe(instruction, {}, parts)
    return "".join(parts)


def structure_key(instruction: Instruction) -> str:
    """A short hash of ``structure_text``."""
    return hashlib.sha256(structure_text(instruction).encode()).hexdigest()[:16]


def _describe(instruction: Instruction, numbers: dict[Value, int], parts: list[str]) -> None:
    parts.append(instruction.op.name)
    parts.append("(")
    for operand in instruction.operands:
        number = numbers.setdefault(operand, len(numbers))
        parts.append(f"{number}:{operand.type},")
    parts.append(")->")
    for result in instruction.results:
        numbers[result] = len(numbers)
        parts.append(f"{result.type},")
    for name in sorted(instruction.attributes):
        parts.append(f"{name}={_attribute(instruction.attributes[name])};")
    for region in instruction.regions:
        _describe_block(region, numbers, parts)
    parts.append("\n")


def _describe_block(block: Block, numbers: dict[Value, int], parts: list[str]) -> None:
    parts.append("{")
    for argument in block.arguments:
        numbers[argument] = len(numbers)
        parts.append(f"{argument.type},")
    for instruction in block:
        _describe(instruction, numbers, parts)
    parts.append("}")


def _attribute(value: object) -> str:
    if isinstance(value, Dense):
        return f"{value.type}{hashlib.sha256(value.tobytes()).hexdigest()}{value.is_splat}"
    return repr(value)
