"""Regions of reductions, windows, scatters, sorts and maps as kernels take them: expressions of scalars.

    reduce(%x) { (a, b) -> a + b * %k }        =>    reduce(%x, broadcast %k) { (a, k, b, l) -> (a + b * k, k) }
    if(%p) { add(%a, %b) } else { %a }         =>    select(%p, add(%a, %b), %a)
    (a, b) -> a + b * sum(%t)                  =>    %s = sum(%t)    (a, b) -> a + b * %s
    reduce(%x : i8) { i32 }                    =>    reduce(convert %x : i32) { i32 }

An expression holds constants, pointwise ops and such as move elements to places that are known.  What does not depend on the
region's arguments is computed in front of the instruction; branches without loops become selections; scalars that are read
from outside, and are no constants, become operands whose every element is the scalar.  Regions that hold more than that run
element after element (``hlojit.ir.ops.region_loops``).  Numeric effect: none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hlojit.ir.blocks import Block, Instruction, Value, clone_instruction
from hlojit.ir.formats import ElementType, QuantizedType
from hlojit.ir.ops.definition import Indexed, Pointwise, Trait
from hlojit.ir.types import TensorType

if TYPE_CHECKING:
    from hlojit.ir.builder import Builder


def reason_against_region(instruction: Instruction) -> str:
    """Why kernels cannot take the regions of an instruction as they are, or an empty string."""
    if reason := reason_against_promotion(instruction):
        return reason
    for region in instruction.regions:
        for argument in region.arguments:
            if isinstance(argument.type, TensorType) and argument.type.shape:
                return f"its region takes values of type {argument.type}; what that means is not specified"
        for each in region:
            if not _is_scalar_code(each):
                return f"its region holds {each.name}, which is no expression of its arguments' elements"
        for value in captured_values(region):
            return f"its region uses a value of type {value.type} from outside that is not a constant"
    return ""


def is_rewritten(instruction: Instruction) -> bool:
    """Whether an instruction of known shapes has a region of scalars that kernels cannot take as it is."""
    region = instruction.regions[0]
    if all(map(_is_scalar_code, region)) and next(captured_values(region), None) is None:
        return False
    values = (*instruction.operands, *instruction.results)
    return all(isinstance(value.type, TensorType) and value.type.is_static for value in values) and not any(
        isinstance(argument.type, TensorType) and argument.type.shape for argument in region.arguments
    )


def is_expression(region: Block) -> bool:
    """Whether kernels can take a region that reads from outside no more than constants and scalars."""
    return all(map(_is_scalar_code, region)) and all(
        isinstance(value.type, TensorType) and not value.type.shape for value in captured_values(region)
    )


def _is_scalar_code(instruction: Instruction) -> bool:
    record = instruction.op
    if record.is_terminator or Trait.CONSTANT in record.traits:
        return True
    lowering = record.lowering
    return not instruction.regions and (
        isinstance(lowering, Pointwise) or (isinstance(lowering, Indexed) and not lowering.looks_up)
    )


def _is_constant(value: Value) -> bool:
    producer = value.producer
    return producer is not None and Trait.CONSTANT in producer.op.traits


def captured_values(region: Block) -> Iterator[Value]:
    """What a region reads from outside, each once, constants aside."""
    inside = set(region.arguments)
    found: dict[Value, None] = {}
    for instruction in region.walk():
        inside.update(instruction.results)
        for nested in instruction.regions:
            inside.update(nested.arguments)
        found.update(dict.fromkeys(instruction.operands))
    return (value for value in found if value not in inside and not _is_constant(value))


def _read_values(instruction: Instruction) -> set[Value]:
    """All that an instruction and its regions read, their own values too."""
    return {operand for each in instruction.walk() for operand in each.operands}


# promoted operands


def promotions(instruction: Instruction) -> dict[int, ElementType]:
    """The operands whose elements a combining region takes in another, wider type, with that type.

    The arguments of such a region are those of the operands that may be any number, in their order.  Quantized numbers are
    promoted where they become integers (``quantized_reductions``).
    """
    if not instruction.regions or Trait.SORTS in instruction.op.traits:
        return {}
    taken = [position for slot in _slots(instruction) for position in slot]
    arguments = instruction.regions[0].arguments
    if len(taken) != len(arguments):
        return {}
    wanted = {}
    for position, argument in zip(taken, arguments):
        given, element = (
            each.type.element_type if isinstance(each.type, TensorType) else None
            for each in (instruction.operands[position], argument)
        )
        if element is not None and given != element and not isinstance(given, QuantizedType):
            wanted[position] = element
    return wanted


def reason_against_promotion(instruction: Instruction) -> str:
    """Why kernels cannot take the operands of an instruction as they are, or an empty string."""
    for position, element in promotions(instruction).items():
        return f"its region takes elements of {instruction.operands[position].type} as {element}"
    return ""


def promoted(builder: Builder, value: Value, element: ElementType) -> Value:
    """A value in an element type to which its own can be promoted."""
    if value.tensor_type.element_type == element:
        return value
    if isinstance(element, QuantizedType):
        type = value.tensor_type.with_element_type(element)
        return builder.create("stablehlo.uniform_quantize", [value], result_types=[type]).result
    return builder.convert(value, element)


def with_promoted_operands(builder: Builder, instruction: Instruction) -> Sequence[Value]:
    """The instruction with operands in the types in which its region takes them."""
    operands = list(instruction.operands)
    for position, element in promotions(instruction).items():
        operands[position] = promoted(builder, operands[position], element)
    made = builder.create(
        instruction.op.name,
        operands,
        attributes=instruction.attributes,
        regions=[region.clone() for region in instruction.regions],
        result_types=instruction.result_types,
        discardable=instruction.discardable,
    )
    return made.results


# a region brought closer to an expression


def prepared_region(builder: Builder, region: Block) -> Block:
    """A copy without dead code, with selections for branches, that computes only what depends on its arguments.

    The rest is built in front.  Who is done with the copy has it drop its references.
    """
    copy = region.clone()
    for instruction in reversed(list(copy.walk())):
        if instruction.op.host_role == "alias" or _is_identity(instruction):
            instruction.replace_with(instruction.operands)
        elif instruction.op.host_role == "branch":
            _select(type(builder).in_front_of(instruction), instruction)
    for instruction in reversed(copy):
        if not any(result.users for result in instruction.results) and _may_move(instruction):
            instruction.erase()
    _hoist(builder, copy)
    return copy


def _is_identity(instruction: Instruction) -> bool:
    """Whether an instruction moves its one element to where it is."""
    lowering = instruction.op.lowering
    if not isinstance(lowering, Indexed) or not lowering.moves or len(instruction.operands) != 1:
        return False
    type = instruction.result.type
    return isinstance(type, TensorType) and not type.shape and instruction.operands[0].type == type


def _may_move(instruction: Instruction) -> bool:
    """Whether it makes no difference how often, and when, an instruction runs."""
    return all(
        (each.op.is_terminator and each is not instruction)
        or (each.op.is_pure and not each.op.callees and not (each.op.effect and each.op.effect(each)))
        for each in instruction.walk()
    )


def _select(builder: Builder, branch: Instruction) -> None:
    """Compute all branches and choose, if they are cheap and end."""
    if not all(map(_is_scalar_code, (each for region in branch.regions for each in region))):
        return
    computed = [builder.inline(region, ()) for region in branch.regions]
    chooser = branch.operands[0]
    if chooser.tensor_type.element_type.name == "i1":
        (chosen, otherwise) = computed
        conditions, choices = [chooser], [chosen]
    else:
        *choices, otherwise = computed
        numbers = [builder.constant(number, chooser.tensor_type) for number in range(len(choices))]
        conditions = [builder.compare(chooser, number, "EQ") for number in numbers]
    results = otherwise
    for condition, values in zip(conditions, choices):
        results = [builder.create("select", [condition, *pair]).result for pair in zip(values, results)]
    branch.replace_with(results)


def _hoist(builder: Builder, region: Block) -> None:
    """Build in front what reads run-time values and none of the region's arguments, and what is no scalar code."""
    varying = set(region.arguments)
    outside = set(captured_values(region))
    hoisted: dict[Instruction, None] = {}
    for instruction in region:
        read = _read_values(instruction)
        if instruction.op.is_terminator or Trait.CONSTANT in instruction.op.traits:
            continue
        loops = any(each.op.host_role == "loop" for each in instruction.walk())
        if read & varying or loops or not _may_move(instruction):
            varying.update(instruction.results)
        elif read & outside or not _is_scalar_code(instruction):
            outside.update(instruction.results)
            hoisted[instruction] = None
    if not hoisted:
        return
    wanted = set(hoisted)
    for instruction in reversed(region):
        if instruction in wanted:
            wanted.update(value.producer for value in _read_values(instruction) if value.producer is not None)
    mapping: dict[Value, Value] = {}
    for instruction in tuple(region):
        if instruction in wanted:
            made = builder.insert(clone_instruction(instruction, mapping))
            if instruction in hoisted:
                instruction.replace_with(made.results)


# scalars as operands


def _slots(instruction: Instruction) -> list[list[int]]:
    """The operands of each place of the record that takes any number of them."""
    record = instruction.op.operands
    variadic = sum(operand.variadic for operand in record)
    if not variadic:
        return []
    count = (len(instruction.operands) - (len(record) - variadic)) // variadic
    slots, at = [], 0
    for operand in record:
        width = count if operand.variadic else 1
        if operand.variadic:
            slots.append([*range(at, at + width)])
        at += width
    return slots


def with_operands(builder: Builder, instruction: Instruction, region: Block) -> Sequence[Value]:
    """The instruction with an expression, and with an operand for every scalar that the expression reads."""
    scalars = list(captured_values(region))
    slots, in_pairs = _slots(instruction), Trait.SORTS in instruction.op.traits
    operands: list[Value] = []
    for number, operand in enumerate(instruction.operands):
        operands.append(operand)
        for slot in slots:
            if number == slot[-1]:
                shape = instruction.operands[slot[0]].tensor_type.shape
                operands += [builder.broadcast_in_dim(scalar, shape) for scalar in scalars]
    _take(region, scalars, in_pairs, len(slots[0]))
    made = builder.create(
        instruction.op.name,
        operands,
        attributes=instruction.attributes,
        regions=[region],
        discardable=instruction.discardable,
    )
    return made.results[: len(instruction.results)]


def _take(region: Block, scalars: Sequence[Value], in_pairs: bool, count: int) -> None:
    """Give a region arguments for the scalars; what combines returns them as they are."""
    taken, again = ([Value(scalar.type, region, 0, scalar.name_hint) for scalar in scalars] for _ in range(2))
    if in_pairs:
        region.arguments.extend(value for pair in zip(taken, again) for value in pair)
    else:
        region.arguments[count:count] = taken
        region.arguments.extend(again)
    for number, argument in enumerate(region.arguments):
        argument.index = number
    inner = dict(zip(scalars, taken))
    for instruction in region:
        if any(operand in inner for operand in instruction.operands):
            instruction.operands = [inner.get(operand, operand) for operand in instruction.operands]
    if not in_pairs:
        region.terminator.operands = [*region.returned, *taken]
