"""A region of scalars applied to all elements of tensors at once.

    map(%x) { (a) -> while(%i, %s = a) { %i < 5 } { %i + 1, (a / %s + %s) / 2 } }
                     =>    while(%i, %s = %x) { %i < 5 } { %i + 1, (%x / %s + %s) / 2 }

Pointwise ops become the same ops on tensors.  So do loops that run as often for one element as for any other: whose conditions
do not depend on the elements.  What does not depend on them stays scalar.  Others - loops that each element leaves when it is
done, which all would have to wait for - are run element after element (``hlojit.ir.ops.region_loops``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.blocks import Block, Instruction, Value, clone_instruction
from hlojit.ir.ops.definition import Pointwise, Trait
from hlojit.ir.types import TensorType

if TYPE_CHECKING:
    from hlojit.ir.builder import Builder

DEEPEST: Final = 8
"""Loops in loops that are lifted."""


def lifted_region(
    builder: Builder, region: Block, operands: Sequence[Value], shape: Sequence[int]
) -> list[Value] | None:
    """What the region returns for tensors of ``shape`` in the place of its arguments; None where it is not that simple."""
    if not _can_be_lifted(region, DEEPEST):
        return None
    varying, loops = _varying(region), list(filter(_is_loop, region.walk()))
    # For no elements the region is not to be run.
    if loops and (0 in shape or any(loop.regions[0].returned[0] in varying for loop in loops)):
        return None
    lifting = _Lifting(builder, varying, shape, dict(zip(region.arguments, operands)))
    return lifting.block(region, [True] * len(region.returned))


def _is_loop(instruction: Instruction) -> bool:
    return instruction.op.host_role == "loop"


def _is_constant(instruction: Instruction) -> bool:
    return Trait.CONSTANT in instruction.op.traits


def _can_be_lifted(region: Block, depth: int) -> bool:
    """Whether all that is computed are scalars, by pointwise ops, constants and loops."""
    for each in region:
        if not all(map(_is_scalar, (*each.operands, *each.results))):
            return False
        if _is_loop(each):
            if not depth or not all(_can_be_lifted(inner, depth - 1) for inner in each.regions):
                return False
        elif each.regions or not (
            each.op.is_terminator or isinstance(each.op.lowering, Pointwise) or _is_constant(each)
        ):
            return False
    return True


def _is_scalar(value: Value) -> bool:
    return isinstance(value.type, TensorType) and not value.type.shape


def _varying(region: Block) -> set[Value]:
    """All values that depend on the region's arguments."""
    states: dict[Value, list[Value]] = {}
    for loop in region.walk():
        if not _is_loop(loop):
            continue
        conditions, bodies = (inner.arguments for inner in loop.regions)
        for number, result in enumerate(loop.results):
            copies = [conditions[number], bodies[number], result]
            for source in (loop.operands[number], loop.regions[1].returned[number]):
                states.setdefault(source, []).extend(copies)
    found: set[Value] = set()
    pending = list(region.arguments)
    while pending:
        value = pending.pop()
        if value in found:
            continue
        found.add(value)
        pending.extend(states.get(value, ()))
        for user in value.users:
            if not _is_loop(user):
                pending.extend(user.results)
    return found


class _Lifting:
    """Builds one block: ``mapping`` has tensors for values that vary, and scalars for the others that are not outside."""

    def __init__(self, builder: Any, varying: set[Value], shape: Sequence[int], mapping: dict[Value, Value]):
        self._builder = builder
        self._varying = varying
        self._shape = shape
        self._mapping = mapping
        self._spread: dict[Value, Value] = {}

    def block(self, region: Block, as_tensors: Sequence[bool]) -> list[Value]:
        """Build all instructions; what is returned, as tensors or as scalars."""
        for instruction in region:
            if instruction.op.is_terminator:
                continue
            if not any(result in self._varying for result in instruction.results):
                if not _is_constant(instruction) or not all(map(self._varies, instruction.result.users)):
                    self._builder.insert(clone_instruction(instruction, self._mapping))
            elif _is_loop(instruction):
                self._mapping.update(zip(instruction.results, self._loop(instruction)))
            else:
                made = self._builder.create(
                    instruction.op.name,
                    list(map(self._tensor, instruction.operands)),
                    attributes=instruction.attributes,
                    result_types=[result.tensor_type.with_shape(self._shape) for result in instruction.results],
                )
                self._mapping.update(zip(instruction.results, made.results))
        return self._values(region.returned, as_tensors)

    def _varies(self, instruction: Instruction) -> bool:
        """Whether it takes and gives tensors."""
        return not _is_loop(instruction) and any(result in self._varying for result in instruction.results)

    def _values(self, values: Sequence[Value], as_tensors: Sequence[bool]) -> list[Value]:
        return [
            self._tensor(value) if as_tensor else self._mapping.get(value, value)
            for value, as_tensor in zip(values, as_tensors, strict=True)
        ]

    def _tensor(self, value: Value) -> Value:
        found = self._mapping.get(value, value)
        if value in self._varying:
            return found
        if found not in self._spread:
            producer = value.producer
            if producer is not None and _is_constant(producer):
                type = value.tensor_type.with_shape(self._shape)
                self._spread[found] = self._builder.constant(producer.attributes["value"].splat_element, type)
            else:
                self._spread[found] = self._builder.broadcast_in_dim(found, self._shape)
        return self._spread[found]

    def _loop(self, loop: Instruction) -> Sequence[Value]:
        condition, body = loop.regions
        as_tensors = [argument in self._varying for argument in body.arguments]

        def inside(builder: Any, region: Block, arguments: Sequence[Value], wanted: Sequence[bool]) -> list[Value]:
            mapping = {**self._mapping, **dict(zip(region.arguments, arguments))}
            return _Lifting(builder, self._varying, self._shape, mapping).block(region, wanted)

        found: Sequence[Value] = self._builder.while_(
            self._values(loop.operands, as_tensors),
            lambda inner, *arguments: inside(inner, condition, arguments, [False])[0],
            lambda inner, *arguments: inside(inner, body, arguments, as_tensors),
        )
        return found
