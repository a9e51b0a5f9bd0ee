"""What instruction fusion knows about the cost of instructions.

Costs are few: a constant is free, movement costs index arithmetic, a cheap pointwise op an instruction or two an
element, an expensive one (a division or a polynomial) as much as reading memory.  Only the last must never be
computed twice.
"""

from __future__ import annotations

import enum

from hlojit.ir.environment import tables
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.definition import Cost, Indexed, OpDefinition, Pointwise, Reduction, Trait
from hlojit.ir.passes.graph_facts import constant_of
from hlojit.ir.types import TensorType


class Role(enum.Enum):
    """What an instruction can be in a fusion."""

    OPAQUE = "stays an instruction of its own"
    SPLAT = "a constant of one element value, copied into every fusion that reads it"
    POINTWISE = "the element at an index from elements at that index"
    MOVEMENT = "the element at an index from elements elsewhere"
    REDUCTION = "a root that reduces"


def _kind_of(op: OpDefinition) -> Role:
    """The role that the lowering admits, before shapes are looked at; remembered with the tables that the op is from."""
    known = tables().fusion_roles
    found = known.get(op.name)
    # Records of one name are equal, and need not be the same.
    if found is None or found[0] is not op:
        found = known.keep(op.name, (op, _new_kind(op)))
    return found[1]


def _new_kind(op: OpDefinition) -> Role:
    lowering = op.lowering
    if Trait.EFFECT in op.traits:
        return Role.OPAQUE
    if Trait.CONSTANT in op.traits:
        return Role.SPLAT
    if isinstance(lowering, Pointwise):
        return Role.POINTWISE
    if isinstance(lowering, Indexed):
        return Role.MOVEMENT
    return Role.REDUCTION if isinstance(lowering, Reduction) else Role.OPAQUE


def role_of(instruction: Instruction) -> Role:
    """What the instruction can be in a fusion."""
    kind = _kind_of(instruction.op)
    if kind is Role.OPAQUE:
        return kind
    if kind is Role.SPLAT:
        dense = constant_of(instruction.results[0])
        return kind if dense is not None and (dense.is_splat or dense.array.size == 1) else Role.OPAQUE
    for value in (*instruction.results, *instruction.operands):
        if not isinstance(value.type, TensorType) or not value.type.is_static:
            return Role.OPAQUE
    if kind is Role.REDUCTION:
        return kind if _has_simple_combiner(instruction) else Role.OPAQUE
    return kind if len(instruction.results) == 1 else Role.OPAQUE


def _has_simple_combiner(instruction: Instruction) -> bool:
    """Whether the combiner is straight pointwise code that reads nothing from outside."""
    body = instruction.regions[0]
    for inner in body:
        if Trait.TERMINATOR not in inner.op.traits and _kind_of(inner.op) not in (Role.POINTWISE, Role.SPLAT):
            return False
        for operand in inner.operands:
            owner = operand.owner
            if owner is not body and not (isinstance(owner, Instruction) and owner.block is body):
                return False
    return True


def is_expensive(instruction: Instruction) -> bool:
    """Whether computing an element twice costs more than reading it from memory."""
    cost = instruction.op.cost
    if cost is not None:
        return cost is Cost.EXPENSIVE
    return isinstance(instruction.op.lowering, Pointwise) or bool(instruction.regions)


def evaluations_per_element(user: Instruction, number: int) -> float:
    """How many elements of operand ``number`` one evaluated element of ``user`` reads, on average."""
    lowering = user.op.lowering
    if isinstance(lowering, Indexed) and lowering.reads is not None:
        return lowering.reads(user, number)
    return 1.0


def is_free_copy(instruction: Instruction) -> bool:
    """Whether computing the result anew beats reading it: an iota, or a broadcast of something much smaller."""
    result = instruction.results[0].tensor_type
    return all(4 * operand.tensor_type.nbytes <= result.nbytes for operand in instruction.operands)


def is_worth_duplicating(instruction: Instruction, copies: int, *, expensive: bool) -> bool:
    """Whether ``copies`` fusions should each compute the result instead of reading it from memory.

    Compared are bytes: written once and read ``copies`` times, against the operands read ``copies`` times.
    """
    if expensive:
        return False
    if is_free_copy(instruction):
        return True
    result = instruction.results[0].tensor_type.nbytes
    source = sum(
        value.tensor_type.nbytes for value in dict.fromkeys(instruction.operands) if not _is_splat(value.owner)
    )
    return copies <= 4 and copies * source <= (copies + 1) * result + source


def _is_splat(owner: object) -> bool:
    return isinstance(owner, Instruction) and role_of(owner) is Role.SPLAT
