"""Rules on tuples, control flow, reductions of nothing and annotations."""

from __future__ import annotations

from hlojit.ir.graph import Block, Instruction, Value, clone_instruction
from hlojit.ir.ops.definition import Trait
from hlojit.ir.ops.views import DimensionsView, DimensionView, SortView
from hlojit.ir.passes.graph_facts import constant_of, int_constant_of, is_terminator, splat_of
from hlojit.ir.passes.rewriting import Effect, Replacement, Rewriter, RuleSet
from hlojit.ir.passes.rules.matching import made_by, splat_number, static_shape

RULES = RuleSet("structure")
_ANNOTATIONS = frozenset(("Sharding", "annotate_device_placement"))


@RULES.rule("get_tuple_element", Effect.EXACT)
def element_of_tuple(rewriter: Rewriter, element: Instruction) -> Value | None:
    """An element of a tuple that is made here is what went into it."""
    made = made_by(element.operands[0], "tuple")
    return made.operands[element.attributes["index"]] if made is not None else None


@RULES.rule("tuple", Effect.EXACT)
def tuple_of_elements(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """A tuple of all elements of a tuple is that tuple."""
    if not instruction.operands:
        return None
    sources = set()
    for index, operand in enumerate(instruction.operands):
        element = made_by(operand, "get_tuple_element")
        if element is None or element.attributes["index"] != index:
            return None
        sources.add(element.operands[0])
    (source, *others) = sources
    return source if not others and source.type is instruction.result.type else None


@RULES.rule("if", Effect.EXACT)
def if_constant(rewriter: Rewriter, instruction: Instruction) -> Replacement:
    """A branch on a constant is the branch taken."""
    predicate = splat_number(instruction.operands[0])
    if predicate is None:
        return None
    return rewriter.inline(instruction.regions[0 if predicate else 1], ())


@RULES.rule("case", Effect.EXACT)
def case_constant(rewriter: Rewriter, instruction: Instruction) -> Replacement:
    """A case of a constant index is that branch; an index out of range means the last."""
    index = int_constant_of(instruction.operands[0])
    if index is None:
        return None
    count = len(instruction.regions)
    return rewriter.inline(instruction.regions[index if 0 <= index < count else count - 1], ())


@RULES.rule("while", Effect.EXACT)
def while_never(rewriter: Rewriter, loop: Instruction) -> Replacement:
    """A loop whose condition is the constant false does nothing."""
    condition = splat_number(loop.regions[0].returned[0])
    return loop.operands if condition is False else None


@RULES.rule("reduce", Effect.PERMITTED)
def reduce_of_single_elements(rewriter: Rewriter, reduce: Instruction) -> Value | None:
    """A reduction over nothing, or over dimensions of extent 1, combines each element with the initial value once."""
    if len(reduce.results) != 1:
        return None
    operand, initial = reduce.operands
    shape = static_shape(operand)
    if shape is None or any(shape[dimension] != 1 for dimension in DimensionsView.of(reduce).dimensions):
        return None
    combiner = _single_op(reduce.regions[0])
    if (
        combiner is None
        or splat_of(initial) is None
        or operand.tensor_type.element_type != (reduce.result.tensor_type.element_type)
    ):
        return None
    elements = rewriter.reshape(operand, reduce.result.tensor_type.shape)
    start = rewriter.splat(reduce.result.tensor_type, splat_of(initial))
    combined: Value = rewriter.create(combiner.op.name, [elements, start], reduce.result.type, combiner.attributes)
    return combined


@RULES.rule("reduce reduce_window", Effect.PERMITTED)
def reductions_of_their_own(rewriter: Rewriter, reduction: Instruction) -> Replacement:
    """Results that do not read each other's elements are reductions of their own: sums of complex numbers are two sums."""
    count = len(reduction.results)
    groups = _independent(reduction.regions[0]) if count > 1 else []
    if len(groups) < 2:
        return None
    replaced: dict[int, Value] = {}
    for group in groups:
        operands = [reduction.operands[number + offset] for offset in (0, count) for number in group]
        types = [reduction.results[number].type for number in group]
        part = _part_of_combiner(reduction.regions[0], group)
        made = rewriter.create(reduction.op.name, operands, types, reduction.attributes, [part])
        replaced.update(zip(group, made if len(group) > 1 else [made]))
    return tuple(replaced[number] for number in range(count))


def _independent(combiner: Block) -> list[list[int]]:
    """The numbers of a combiner's results in groups that read arguments of their own numbers only."""
    count = len(combiner.returned)
    read: dict[Value, frozenset[int]] = {
        argument: frozenset((number % count,)) for number, argument in enumerate(combiner.arguments)
    }
    for instruction in combiner:
        if instruction.regions:
            return []
        together = frozenset().union(*(read.get(operand, frozenset()) for operand in instruction.operands))
        read.update((result, together) for result in instruction.results)
    groups: list[set[int]] = []
    for number, value in enumerate(combiner.returned):
        group = {number, *read.get(value, frozenset())}
        for other in [other for other in groups if other & group]:
            groups.remove(other)
            group |= other
        groups.append(group)
    return [sorted(group) for group in groups]


def _part_of_combiner(combiner: Block, group: list[int]) -> Block:
    """The combiner of some results."""
    count = len(combiner.returned)
    arguments = [combiner.arguments[number + offset] for offset in (0, count) for number in group]
    part = Block([argument.type for argument in arguments])
    mapping: dict[Value, Value] = dict(zip(arguments, part.arguments))
    wanted = {combiner.returned[number] for number in group}
    for instruction in reversed(combiner):
        if any(result in wanted for result in instruction.results):
            wanted.update(instruction.operands)
    for instruction in combiner:
        if is_terminator(instruction):
            returned = [mapping.get(value, value) for value in (combiner.returned[number] for number in group)]
            part.append(Instruction(instruction.op, returned, (), location=instruction.location))
        elif any(result in wanted for result in instruction.results):
            part.append(clone_instruction(instruction, mapping))
    return part


@RULES.rule("sort", Effect.EXACT)
def sort_of_single_elements(rewriter: Rewriter, sort: Instruction) -> Replacement:
    """Rows of at most one element are sorted."""
    shape = static_shape(sort.operands[0])
    if shape is None or not shape:
        return sort.operands if shape is not None else None
    dimension = SortView.of(sort).dimension
    return sort.operands if shape[dimension] <= 1 else None


@RULES.rule("custom_call", Effect.EXACT)
def annotation_call(rewriter: Rewriter, call: Instruction) -> Value | None:
    """A call that only says where data should live is its operand: there is one device."""
    named = call.attributes.get("call_target_name") in _ANNOTATIONS
    if not named or len(call.operands) != 1 or call.operand_types != call.result_types:
        return None
    return call.operands[0]


@RULES.rule("sdy.sharding_constraint", Effect.EXACT)
def sharding_constraint(rewriter: Rewriter, constraint: Instruction) -> Value | None:
    """A sharding constraint computes nothing: there is one device."""
    (operand,) = constraint.operands
    return operand if operand.type is constraint.result.type else None


@RULES.rule("get_dimension_size", Effect.EXACT)
def size_of_known_dimension(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """The size of a dimension that is known is a constant."""
    extent = instruction.operands[0].tensor_type.shape[DimensionView.of(instruction).dimension]
    return rewriter.splat(instruction.result.tensor_type, extent) if extent >= 0 else None


def _single_op(region: Block) -> Instruction | None:
    """The commutative op that a combiner of two arguments consists of, or None."""
    first = region.first
    if first is None or first.next is not region.last or len(region.arguments) != 2:
        return None
    reads_both = set(first.operands) == set(region.arguments)
    if Trait.COMMUTATIVE not in first.op.traits or not reads_both or region.returned != first.results:
        return None
    return first if constant_of(first.result) is None else None
