"""Bring the regions of reductions, sorts, scatters and maps into the form that kernels take: scalars in, scalars out.

    reduce(%x) { (a, b) -> a + b * %k }        =>    reduce(%x, broadcast %k) { (a, k, b, l) -> (a + b * k, k) }
    if(%p) { add(%a, %b) } else { %a }         =>    select(%p, add(%a, %b), %a)

Scalars that a region reads from outside, and that are no constants, become operands whose every element is the scalar; inside,
branches without loops become selections.  Numeric effect: none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlojit.ir.blocks import Block, Instruction, Value
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Module
from hlojit.ir.ops.definition import Pointwise, Trait
from hlojit.ir.passes.graph_facts import is_constant, is_terminator
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.types import TensorType


@dataclass(frozen=True)
class RegionLegalizer(Pass):
    """Give regions of scalars what they read from outside, and no branches."""

    name: ClassVar[str] = "region-legalizer"
    phase: ClassVar[str] = "import"
    after: ClassVar[tuple[str, ...]] = ("token-removal",)

    def run(self, module: Module) -> bool:
        """Replace; return whether there was anything to replace."""
        changed = False
        for instruction in [each for each in module.walk() if each.regions and _has_scalar_region(each)]:
            for branch in reversed([each for each in instruction.regions[0].walk() if each.op.host_role == "branch"]):
                changed = _select(branch) or changed
            changed = _pass_scalars(instruction) or changed
        return changed


def _has_scalar_region(instruction: Instruction) -> bool:
    """Whether its region computes scalars of its operands' elements: as many as it takes, or one."""
    return len(instruction.regions) == 1 and not instruction.op.host_role and bool(_slots(instruction))


def _slots(instruction: Instruction) -> list[list[int]]:
    """The operands of each place of the record that takes any number of them, if all take as many and the region fits."""
    record, region = instruction.op.operands, instruction.regions[0]
    variadic = sum(operand.variadic for operand in record)
    count, rest = divmod(len(instruction.operands) - (len(record) - variadic), variadic or 1)
    roles = 2 if Trait.SORTS in instruction.op.traits else variadic
    if not variadic or rest or not count or len(region.arguments) != roles * count:
        return []
    slots, at = [], 0
    for operand in record:
        width = count if operand.variadic else 1
        if operand.variadic:
            slots.append([*range(at, at + width)])
        at += width
    return slots


def _outside(region: Block) -> Iterator[Value]:
    """Scalars that a region reads from outside, each once, constants aside."""
    inside = set(region.arguments)
    for instruction in region.walk():
        inside.update(instruction.results)
        for nested in instruction.regions:
            inside.update(nested.arguments)
    found: dict[Value, None] = {}
    for instruction in region.walk():
        found.update(dict.fromkeys(operand for operand in instruction.operands if operand not in inside))
    for value in found:
        producer = value.producer
        if isinstance(value.type, TensorType) and not value.type.shape and not (producer and is_constant(producer)):
            yield value


def _pass_scalars(instruction: Instruction) -> bool:
    """Replace an instruction by one with an operand for every scalar that its region reads."""
    scalars = list(_outside(instruction.regions[0]))
    if not scalars or not all(isinstance(operand.type, TensorType) for operand in instruction.operands):
        return False
    slots = _slots(instruction)
    builder = Builder.in_front_of(instruction)
    operands: list[Value] = []
    for number, operand in enumerate(instruction.operands):
        operands.append(operand)
        for slot in slots:
            if number == slot[-1]:
                shape = instruction.operands[slot[0]].tensor_type.shape
                operands += [builder.broadcast_in_dim(scalar, shape) for scalar in scalars]
    region, *_ = regions = instruction.regions
    instruction.regions = []
    combines = len(slots) > 1
    _take(region, scalars, Trait.SORTS in instruction.op.traits, len(slots[0]), combines)
    types = [result.type for result in instruction.results]
    if combines or Trait.SORTS in instruction.op.traits:
        first = instruction.results[0].tensor_type
        types += [first.with_element_type(scalar.tensor_type.element_type) for scalar in scalars]
    made = builder.insert(
        Instruction(
            instruction.op,
            operands,
            types,
            instruction.attributes,
            regions,
            instruction.discardable,
            instruction.location,
        )
    )
    instruction.replace_with(made.results[: len(instruction.results)])
    return True


def _take(region: Block, scalars: Sequence[Value], in_pairs: bool, count: int, combines: bool) -> None:
    """Give a region arguments for the scalars; what combines returns them as they are."""
    taken = [Value(scalar.type, region, 0, scalar.name_hint) for scalar in scalars]
    again = [Value(scalar.type, region, 0, scalar.name_hint) for scalar in scalars] if combines or in_pairs else []
    if in_pairs:
        region.arguments.extend(value for pair in zip(taken, again) for value in pair)
    else:
        region.arguments[count:count] = taken
        region.arguments.extend(again)
    for number, argument in enumerate(region.arguments):
        argument.index = number
    inner = dict(zip(scalars, taken))
    for instruction in region.walk():
        if any(operand in inner for operand in instruction.operands):
            instruction.operands = [inner.get(operand, operand) for operand in instruction.operands]
    if combines:
        region.terminator.operands = [*region.returned, *taken]


def _select(branch: Instruction) -> bool:
    """Compute all branches and choose, if they are cheap and end."""
    if not all(map(_is_simple, (each for region in branch.regions for each in region))):
        return False
    builder = Builder.in_front_of(branch)
    computed = [builder.inline(region, ()) for region in branch.regions]
    chooser = branch.operands[0]
    if chooser.tensor_type.element_type.name == "i1":
        (chosen, otherwise) = computed
        conditions = [chooser]
        choices = [chosen]
    else:
        *choices, otherwise = computed
        numbers = [builder.constant(number, chooser.tensor_type) for number in range(len(choices))]
        conditions = [builder.compare(chooser, number, "EQ") for number in numbers]
    results = otherwise
    for condition, values in zip(conditions, choices):
        results = [builder.create("select", [condition, *pair]).result for pair in zip(values, results)]
    branch.replace_with(results)
    return True


def _is_simple(instruction: Instruction) -> bool:
    return (
        is_terminator(instruction) or is_constant(instruction) or isinstance(instruction.op.lowering, Pointwise)
    ) and not instruction.regions
