"""Groups of instructions that are offered to kernels: whether they can be one step, and their graphs.

    %0 = stablehlo.exponential %x           =>   %1 = hlojit.fusion(%x) {kind = "kernel", kernel = "nova.softmax"} {
    %1 = stablehlo.negate %0                     ^bb0(%a): ...

A group may take what stands anywhere in one block, as long as nothing that it needs is computed from what it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Block, Function, Instruction, Module, Value, clone_instruction
from hlojit.ir.location import UNKNOWN, FusedLocation, Location
from hlojit.ir.ops.control import FUNC_RETURN, RETURN
from hlojit.ir.ops.definition import Indexed
from hlojit.ir.ops.internal import FUSION, is_fusion
from hlojit.ir.passes.call_inliner import CallInliner
from hlojit.ir.passes.graph_facts import Effects, constant_of, is_terminator
from hlojit.ir.types import TensorType, Type

SMALL_CONSTANT: Final = 64
"""Elements of a constant that stands in a group's graph rather than among its operands."""
MOST_INSTRUCTIONS: Final = 4096
_MOST_LOCATIONS: Final = 8


class NoGroup(Exception):
    """Why instructions cannot be one step."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """A group that can be formed: its graph, and what it replaces.

    ``graph`` is frozen; ``inputs`` are the values for its arguments and ``outputs`` those that its results stand for;
    ``anchor`` is the instruction in it that was found.  ``form(fusion)`` puts the instruction in the members' place.
    """

    graph: Module
    anchor: Instruction | None
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    size: int
    location: Location
    what: str
    """What messages call the group."""
    form: Callable[[Instruction], None]

    def fusion(self, kernel: Any) -> Instruction:
        """The instruction that a kernel computes."""
        body, mapping = Block(), dict[Value, Value]()
        main = self.graph.main
        for argument in main.body.arguments:
            mapping[argument] = body.add_argument(argument.type)
        for each in main.body:
            if not is_terminator(each):
                body.append(clone_instruction(each, mapping))
        body.append(Instruction(RETURN, [mapping[value] for value in main.body.returned], []))
        types = [value.type for value in self.outputs]
        attributes = {"kind": "kernel", "kernel": kernel}
        return Instruction(FUSION, self.inputs, types, attributes, [body], location=self.location)


def of_instructions(members: Iterable[Instruction], anchor: Instruction, effects: Effects) -> Proposal:
    """The group of some instructions of one block; raises ``NoGroup``."""
    block = anchor.block
    assert block is not None
    chosen = {each for each in members if not _is_small_constant(each)} | {anchor}
    _check_members(chosen, block, effects)
    span = _span(chosen, block)
    computed = [each for each in span if each in chosen]
    chosen -= _copied(computed, anchor, block)
    later = _dependents(span, chosen, effects)
    ordered = [each for each in computed if each in chosen]
    outputs = tuple(
        result
        for each in ordered
        for result in each.results
        if any(_holder(user, block) not in chosen for user in result.users)
    )
    if not outputs:
        raise NoGroup("nothing reads what it gives")
    graph, inputs, mapping = _graph_of(computed, outputs)

    def form(fusion: Instruction) -> None:
        last = ordered[-1]
        block.insert_before(last, fusion)
        place = fusion
        for each in later:
            each.unlink()
            following = place.next
            assert following is not None
            block.insert_before(following, each)
            place = each
        _replace(outputs, fusion)
        for each in reversed(ordered):
            each.erase()

    anchored = mapping[anchor.results[0]].owner if anchor.results else None
    what = anchor.op.name if len(computed) == 1 else f"{len(computed)} instructions around {anchor.op.name}"
    assert anchored is None or isinstance(anchored, Instruction)
    location = _joined(computed)
    return Proposal(graph.freeze(), anchored, inputs, outputs, len(computed), location, what, form)


def of_composite(composite: Instruction, body: Block) -> Proposal:
    """The group of a composite, whose decomposition has the given body; raises ``NoGroup``."""
    _check_types(composite)
    module, function = _module([value.type for value in body.arguments], [value.type for value in body.returned])
    mapping = dict(zip(body.arguments, function.body.arguments, strict=True))
    size = 0
    for each in body:
        if not is_terminator(each):
            size += 1
            function.body.append(clone_instruction(each, mapping))
    _return(function, [mapping[value] for value in body.returned])
    if function.type.inputs != composite.operand_types or tuple(function.result_types) != composite.result_types:
        raise NoGroup("its decomposition has other types")

    def form(fusion: Instruction) -> None:
        assert composite.block is not None
        composite.block.insert_before(composite, fusion)
        composite.replace_with(fusion.results)

    what = f"composite {composite.attributes.get('name')!r}"
    inputs, outputs = tuple(composite.operands), tuple(composite.results)
    return Proposal(module.freeze(), None, inputs, outputs, size, composite.location, what, form)


def of_fusion(fusion: Instruction, anchor: Instruction) -> Proposal:
    """The group that the fusion passes have made, around one of its members."""
    region = fusion.regions[0]
    module, function = _module([value.type for value in region.arguments], [value.type for value in region.returned])
    mapping = dict(zip(region.arguments, function.body.arguments, strict=True))
    for each in region:
        if not is_terminator(each):
            function.body.append(clone_instruction(each, mapping))
    _return(function, [mapping[value] for value in region.returned])

    def form(made: Instruction) -> None:
        assert fusion.block is not None
        fusion.block.insert_before(fusion, made)
        fusion.replace_with(made.results)

    anchored = mapping[anchor.results[0]].owner
    assert isinstance(anchored, Instruction)
    size = len(list(region)) - 1
    what = f"{fusion.attributes['kind']} fusion of {size} instructions around {anchor.op.name}"
    inputs, outputs = tuple(fusion.operands), tuple(fusion.results)
    return Proposal(module.freeze(), anchored, inputs, outputs, size, fusion.location, what, form)


def decomposition(module: Module, name: str) -> Block | None:
    """The body of a function with all that it calls in its place; None if there is none."""
    function = module.functions.get(name)
    if function is None or function.is_declaration:
        return None
    alone = Module(module.name)
    alone.environment = module.environment
    pending = [name]
    while pending:
        found = module.functions.get(pending.pop())
        if found is None or found.name in alone.functions:
            continue
        copy = alone.add_function(found.clone())
        copy.visibility = "public" if copy.name == name else "private"
        pending.extend(callee for each in found.body.walk() for callee in each.callees)
    CallInliner().run(alone)
    return alone.functions[name].body


def captured(instruction: Instruction) -> list[Value]:
    """The values that an instruction reads: its operands, and what its regions read from outside."""
    read: dict[Value, None] = dict.fromkeys(instruction.operands)
    if instruction.regions:
        inside: set[Value] = set()
        stack = list(instruction.regions)
        while stack:
            block = stack.pop()
            inside.update(block.arguments)
            for each in block:
                inside.update(each.results)
                read.update(dict.fromkeys(each.operands))
                stack.extend(each.regions)
        return [value for value in read if value not in inside]
    return list(read)


# ------------------------------------------------------------------------------------------------------------- checks


def _check_members(chosen: set[Instruction], block: Block, effects: Effects) -> None:
    if len(chosen) > MOST_INSTRUCTIONS:
        raise NoGroup(f"it has {len(chosen)} instructions, {MOST_INSTRUCTIONS} are the most")
    for each in chosen:
        if each.block is not block:
            raise NoGroup(f"{each.op.name} stands in another block")
        if is_terminator(each) or effects.has_effect(each):
            raise NoGroup(f"{each.op.name} has an effect")
        if is_fusion(each):
            raise NoGroup("a part of it is one step already")
        _check_types(each)


def _check_types(instruction: Instruction) -> None:
    for value in (*captured(instruction), *instruction.results):
        _check_type(value.type)


def _check_type(kind: Type) -> None:
    if not isinstance(kind, TensorType):
        raise NoGroup(f"it has a value of type {kind}")
    if not kind.is_static:
        raise NoGroup(f"the shape of {kind} is not known")


def _is_small_constant(instruction: Instruction) -> bool:
    dense = constant_of(instruction.results[0]) if len(instruction.results) == 1 else None
    return dense is not None and (dense.is_splat or dense.array.size <= SMALL_CONSTANT)


def _span(chosen: set[Instruction], block: Block) -> list[Instruction]:
    """The block from the first of the chosen to the last one."""
    # From any of them outward, in both directions by turns: blocks are long, and groups are not.
    found = [next(iter(chosen))]
    missing = len(chosen) - 1
    before, after = found[0].previous, found[0].next
    head: list[Instruction] = []
    while missing:
        if before is not None:
            head.append(before)
            missing -= before in chosen
            before = before.previous
        if missing and after is not None:
            found.append(after)
            missing -= after in chosen
            after = after.next
    span = head[::-1] + found
    while span[0] not in chosen:
        span.pop(0)
    while span[-1] not in chosen:
        span.pop()
    return span


def _copied(members: Sequence[Instruction], anchor: Instruction, block: Block) -> set[Instruction]:
    """Broadcasts of what comes from outside, and iotas, that others read as well: the group computes them for itself.

    A mask that all layers of a model share would otherwise tie each layer's group to the layers before it.
    """
    inside, found = set(members), set[Instruction]()
    for each in members:
        lowering = each.op.lowering
        spreads = isinstance(lowering, Indexed) and (lowering.broadcasts is not None or not each.operands)
        is_free = all(value.owner not in inside or value.owner in found for value in captured(each))
        users = (_holder(user, block) for result in each.results for user in result.users)
        if spreads and is_free and each is not anchor and any(user not in inside for user in users):
            found.add(each)
    return found


def _dependents(span: Sequence[Instruction], chosen: set[Instruction], effects: Effects) -> list[Instruction]:
    """What of the span is computed from what the group gives: it has to come behind the group."""
    given: set[Value] = set()
    later: dict[Instruction, None] = {}
    for each in span:
        reads = captured(each)
        if each in chosen:
            moved = next((value.owner for value in reads if value.owner in later), None)
            if isinstance(moved, Instruction):
                raise NoGroup(
                    f"{moved.op.name} at {moved.location} is computed from a part of it, and another part is computed from that"
                )
            given.update(each.results)
        elif any(value in given or value.owner in later for value in reads):
            if effects.has_effect(each):
                raise NoGroup(f"{each.op.name}, which stands in between, has an effect")
            later[each] = None
    return list(later)


# ------------------------------------------------------------------------------------------------------------- graphs


def _graph_of(
    ordered: Sequence[Instruction], outputs: Sequence[Value]
) -> tuple[Module, tuple[Value, ...], dict[Value, Value]]:
    inside = {result for each in ordered for result in each.results}
    inputs: dict[Value, None] = {}
    constants: dict[Value, Instruction] = {}
    for each in ordered:
        for value in captured(each):
            if value in inside:
                continue
            owner = value.owner
            if isinstance(owner, Instruction) and _is_small_constant(owner):
                constants[value] = owner
            else:
                inputs[value] = None
    module, function = _module([value.type for value in inputs], [value.type for value in outputs])
    mapping: dict[Value, Value] = dict(zip(inputs, function.body.arguments))
    for each in (*constants.values(), *ordered):
        function.body.append(clone_instruction(each, mapping))
    _return(function, [mapping[value] for value in outputs])
    return module, tuple(inputs), mapping


def _module(arguments: Sequence[Type], results: Sequence[Type]) -> tuple[Module, Function]:
    module = Module("group")
    return module, module.add_function(Function("main", arguments, results))


def _return(function: Function, values: Sequence[Value]) -> None:
    function.body.append(Instruction(FUNC_RETURN, values, []))


def _holder(user: Instruction, block: Block) -> Instruction:
    """The instruction of a block that a user is, or that holds it."""
    while user.block is not block:
        parent = user.block.parent if user.block is not None else None
        if not isinstance(parent, Instruction):
            raise HlojitError("a value is read outside of its block")
        user = parent
    return user


def _replace(outputs: Sequence[Value], fusion: Instruction) -> None:
    for old, new in zip(outputs, fusion.results, strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)


def _joined(members: Sequence[Instruction]) -> Location:
    distinct = list(dict.fromkeys(each.location for each in members if each.location is not UNKNOWN))
    if len(distinct) <= 1:
        return distinct[0] if distinct else UNKNOWN
    return FusedLocation(tuple(distinct[:_MOST_LOCATIONS]))
