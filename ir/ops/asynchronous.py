"""Asynchronous pairs, as programs run them: a body that somebody else computes, and the place where it is waited for.

    %0 = async_start(%x) { all_gather }        =>    %0 = hlojit.async_start() { all_gather(%x) } : tensor<4xf32>
    %1 = add %x, %x                                  %1 = add %x, %x
    %2 = async_done(%0) : future -> tensor           %2 = hlojit.async_done(%0) : tensor<4xf32>

The body reads what it needs from outside, as a branch does, and its results are tensors whose contents nobody but the
``hlojit.async_done`` may look at.  A back end that has nobody else to compute it does the body where it is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.blocks import clone_instruction
from hlojit.ir.formats import ElementType
from hlojit.ir.ops.definition import (
    Constraint,
    InferenceRequest,
    OpDefinition,
    Operand,
    Structural,
    Trait,
    define,
)
from hlojit.ir.ops.parts import SEPARATELY
from hlojit.ir.ops.rules import spell
from hlojit.ir.types import Type

if TYPE_CHECKING:
    from hlojit.ir.builder import Builder
    from hlojit.ir.graph import Block, Instruction, Value

HANDED_OVER_BYTES: Final = 1 << 18
"""What only moves fewer bytes is done sooner than it is handed over to somebody else."""


def expand_async_done(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """A pair of hlojit's own; or, where that would gain or mean nothing, what was begun, done where it is waited for.

    A future that several instructions wait for, or that a loop or a branch waits for which it does not begin in, has no
    one place at which its memory is given back.
    """
    future = instruction.operands[0]
    start = future.producer
    if start is None or len(start.regions) != 1:
        return None
    body = start.regions[0]
    if start.block is not instruction.block or sum(future.users.values()) > 1 or not _is_worth_it(body):
        mapping: dict[Value, Value] = dict(zip(body.arguments, start.operands))
        assert body.first is not None
        builder.insert(clone_instruction(body.first, mapping))
        return [mapping.get(value, value) for value in body.returned]
    begun = _begun(builder, start)
    instruction.operands = ()
    start.erase()
    return list(builder.create("hlojit.async_done", begun.results).results)


def expand_async_start(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """Nothing, when those who wait for it have done it themselves; expansions begin with the last instruction."""
    if instruction.results[0].users:
        return None
    return [builder.create("tuple", instruction.operands).result]


def _is_worth_it(body: Block) -> bool:
    """Whether somebody else is to do it: it waits for other processes, or moves much."""
    first = body.first
    assert first is not None
    nbytes = sum(value.tensor_type.nbytes for value in body.returned if value.tensor_type.is_static)
    return Trait.EFFECT in first.op.traits or nbytes >= HANDED_OVER_BYTES


def _begun(builder: Builder, start: Instruction) -> Instruction:
    """The pair's first half in the place of ``start``, whose body it takes."""
    (body,) = start.regions
    start.regions = []
    for argument, operand in zip(body.arguments, start.operands):
        argument.replace_all_uses_with(operand)
    for number in reversed(range(len(body.arguments))):
        body.erase_argument(number)
    made: Instruction = builder.in_front_of(start).create("hlojit.async_start", regions=[body])
    made.location = start.location
    return made


def _done_here(builder: Any, instruction: Instruction) -> Sequence[Value]:
    """For back ends with nobody else: the body, where it is waited for."""
    start = instruction.operands[0].producer
    assert start is not None
    (body,) = start.regions
    returned = body.returned
    assert instruction.block is not None
    for member in tuple(body):
        if member is not body.terminator:
            member.unlink()
            instruction.block.insert_before(instruction, member)
    instruction.operands = ()
    start.erase()
    return returned


def _body_results(request: InferenceRequest) -> Sequence[Type]:
    return [value.type for value in request.regions[0].returned]


def _no_arguments(instruction: Instruction) -> str | None:
    found = [argument.type for argument in instruction.regions[0].arguments]
    return f"the body takes {spell(found)}, expected nothing" if found else None


def _is_waited_for(instruction: Instruction) -> str | None:
    """One ``hlojit.async_done`` in the same block has all results, and nobody else any."""
    users = {user for result in instruction.results for user in result.users}
    if len(users) == 1 and next(iter(users)).op.host_role == "finish":
        return None
    return f"its results have {len(users)} users, expected one hlojit.async_done"


def _is_begun(instruction: Instruction) -> str | None:
    start = instruction.operands[0].producer if instruction.operands else None
    if (
        start is not None
        and start.op.host_role == "start"
        and start.block is instruction.block
        and tuple(start.results) == tuple(instruction.operands)
    ):
        return None
    return "its operands are not all results of one hlojit.async_start of the same block"


ASYNC_START = define(
    OpDefinition(
        "hlojit.async_start",
        regions=("body",),
        infer=_body_results,
        constraints=(Constraint("C1", _no_arguments), Constraint("C2", _is_waited_for)),
        reference=lambda call: call.run(0),
        traits=frozenset({Trait.EFFECT}),
        lowering=Structural("start"),
        parts={ElementType: SEPARATELY},
        summary="has somebody else compute its body",
    )
)

ASYNC_DONE = define(
    OpDefinition(
        "hlojit.async_done",
        operands=(Operand("operands", variadic=True),),
        infer=lambda request: request.operand_types,
        constraints=(Constraint("C1", _is_begun),),
        reference=lambda call, *values: values,
        traits=frozenset({Trait.EFFECT}),
        lowering=Structural("finish", expansion=_done_here),
        parts={ElementType: SEPARATELY},
        summary="waits for a body that hlojit.async_start began",
    )
)
