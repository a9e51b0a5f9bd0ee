"""From a module and a list of back ends to a plan, and to an executable of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, final

from hlojit.extensions import Backend, CompileOptions
from hlojit.ir.attributes import Dense
from hlojit.ir.donation import donated_arguments, mark_donated
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Block, Instruction, Module, Value
from hlojit.ir.passes.graph_facts import Effects, constant_of, is_constant, is_control_flow, is_terminator
from hlojit.ir.types import TensorType
from hlojit.partition.assignment import Assigner, Assignment
from hlojit.partition.candidates import Answer, Candidates
from hlojit.partition.executable import PartitionedExecutable
from hlojit.partition.explanation import Explanation
from hlojit.partition.extraction import extracted, reads_of
from hlojit.partition.grouping import groups, ordered
from hlojit.partition.instances import first_places, spread
from hlojit.partition.joint import JointBackend, JointLegalizer, Place
from hlojit.partition.plan import BlockPlan, Branch, Loop, Plan, Segment, Step

CompileSegment = Callable[[Module, Backend], Any]
"""Makes an executable of a part of the program, for one of the back ends."""
_SMALL_CONSTANT: Final = 1024
"""Bytes of a constant that every segment which reads it has for itself."""


_ROUNDS: Final = 8
"""Of placements after which a part that is refused goes away with all that is in it."""


def partitioned(
    module: Module, backend: JointBackend, options: CompileOptions, compile_segment: CompileSegment
) -> PartitionedExecutable:
    """The executable of a program for several back ends; the module has passed ``JointLegalizer.check``."""
    return PartitionedExecutable(*planned(module, backend, options, compile_segment))


def planned(
    module: Module, backend: JointBackend, options: CompileOptions, compile_segment: CompileSegment
) -> tuple[Plan, Explanation]:
    """The plan of such a program, its segments with what ``compile_segment`` has made of them.

    What a back end refuses when it compiles a part, after it has said yes to what is in it, is placed again without it.
    """
    candidates = Candidates(module, JointLegalizer(backend, options).members(), backend.name)
    assigner = Assigner(backend, candidates)
    for number in itertools.count():
        assignment = assigner.of_function(module.main)
        planner = _Planner(module, backend, candidates, assigner)
        plan = planner.plan(assignment)
        planner.extract()
        refusals: list[tuple[Segment, UnsupportedError]] = []
        for segment in plan.segments:
            assert segment.module is not None
            try:
                segment.executable = compile_segment(segment.module, backend.members[segment.place.member])
            except UnsupportedError as error:
                refusals.append((segment, error))
        if not refusals:
            return plan, Explanation(module, backend, candidates, assigner, assignment, plan)
        for refused, why in refusals:
            _refuse(refused, why, candidates, is_last=number >= _ROUNDS)
    raise AssertionError("every round takes something away")


def _refuse(segment: Segment, error: UnsupportedError, candidates: Candidates, *, is_last: bool) -> None:
    """Have none of what a back end refused go there again: what its error names, or else all of the part."""
    inside = [each for instruction in segment.instructions for each in instruction.walk()]
    there = [each for each in inside if each.location == error.location and not is_terminator(each)]
    named = [each for each in there if each.op.name == error.op]
    readers = [
        each
        for each in segment.instructions
        for value in reads_of(each)
        if value.producer is not None and is_constant(value.producer) and value.producer.location == error.location
    ]
    refused = () if is_last else named or there or dict.fromkeys(readers)
    for instruction in refused or segment.instructions:
        candidates.refuse(instruction, segment.place.member, f"it was refused when it was compiled: {error.reason}")
        if not is_control_flow(instruction):
            candidates.check(instruction)


@final
class _Planner:
    """Builds the plan of one program."""

    def __init__(self, module: Module, backend: JointBackend, candidates: Candidates, assigner: Assigner):
        self._module = module
        self._backend = backend
        self._candidates = candidates
        self._assigner = assigner
        self._effects = Effects(module)
        self._slots: dict[Value, int] = {}
        self._types: dict[int, TensorType] = {}
        self._constants: dict[int, Dense] = {}
        self._segments: list[Segment] = []
        self._values: dict[Segment, tuple[list[Value], list[Value]]] = {}
        """Inputs and outputs of segments, constants that they hold themselves left aside."""
        self._shared: set[Value] = set()
        """Constants that are no part of segments."""

    def plan(self, assignment: Assignment) -> Plan:
        """The plan, with segments that are not programs yet."""
        main = self._module.main
        for argument in main.body.arguments:
            self._slot(argument)
        body = self._block(main.body, assignment, top=True)
        homes = assignment.homes
        firsts = self._firsts()
        made_at = {slot: segment.place for segment in self._segments for slot in segment.outputs}
        result_places = tuple(
            made_at.get(self._slots[value]) or firsts[homes.get(value, 0)] for value in main.body.returned
        )
        return Plan(
            main.name,
            tuple(argument.tensor_type for argument in main.body.arguments),
            tuple(value.tensor_type for value in main.body.returned),
            body,
            len(self._slots),
            self._types,
            self._constants,
            self._backend.places,
            result_places,
            tuple(donated_arguments(main)),
            self._segments,
        )

    def extract(self) -> None:
        """Make programs of the segments."""
        main = self._module.main
        given = self._given(tuple(donated_arguments(main)))
        for segment in self._segments:
            inputs, outputs = self._values[segment]
            constants = dict.fromkeys(
                value.producer
                for each in segment.instructions
                for value in self._assigner.reads(each)
                if value.producer is not None and is_constant(value.producer) and value not in self._shared
            )
            instructions = [each for each in constants if each is not None] + list(segment.instructions)
            made = extracted(self._module, f"{main.name}.{segment.number}", instructions, inputs, outputs)
            donated = [number for number, slot in enumerate(segment.inputs) if given.get(slot) is segment]
            mark_donated(made.module.main, donated)
            segment.module = made.module

    # ------------------------------------------------------------------------------------------------------ blocks

    def _block(self, block: Block, assignment: Assignment, *, top: bool = False) -> BlockPlan:
        places = self._placed(block, assignment, top=top)
        keys: dict[Instruction, Hashable] = {}
        instructions = []
        for each in block:
            if is_constant(each) or is_terminator(each):
                continue
            instructions.append(each)
            keys[each] = each if each in assignment.inner else places[each]
        found = groups(instructions, keys, self._assigner.reads, self._cost_of(assignment), self._effects)
        members = [frozenset(each) for each in found]
        steps = [self._step(group, inside, places, assignment) for group, inside in zip(found, members)]
        returned = tuple(self._runtime(value) for value in block.returned)
        return self._in_order(steps, returned, [self._slots[each] for each in block.arguments if each in self._slots])

    def _placed(self, block: Block, assignment: Assignment, *, top: bool) -> dict[Instruction, Place]:
        own = {each: assignment.members[each] for each in block if each in assignment.members}
        if not top:
            return first_places(self._backend, own)
        return spread(block, self._backend, own, self._assigner, self._cost_of(assignment))

    def _cost_of(self, assignment: Assignment) -> Any:
        def cost_of(instruction: Instruction) -> float:
            member = assignment.members.get(instruction)
            if member is None:
                return sum(part.nanoseconds for part in assignment.inner.get(instruction, ()))
            return self._answer(instruction).costs[member]

        return cost_of

    def _answer(self, instruction: Instruction) -> Answer:
        of = self._candidates.whole if is_control_flow(instruction) else self._candidates.of
        return of(instruction)

    def _step(
        self,
        group: Sequence[Instruction],
        inside: frozenset[Instruction],
        places: dict[Instruction, Place],
        assignment: Assignment,
    ) -> Step:
        first = group[0]
        if first in assignment.inner:
            return self._construct(first, assignment.inner[first])
        inputs: dict[Value, None] = {}
        outputs: list[Value] = []
        for each in group:
            for value in self._assigner.reads(each):
                if value.producer not in inside and not self._is_held(value):
                    inputs[value] = None
            outputs.extend(value for value in each.results if any(not _is_inside(user, inside) for user in value.users))
        for value in (*inputs, *outputs):
            if not isinstance(value.type, TensorType):
                why = f"a value of type {value.type} cannot go from one device to another"
                raise UnsupportedError(first.op.name, self._backend.name, why, first.location)
        cost_of = self._cost_of(assignment)
        segment = Segment(
            len(self._segments),
            places[first],
            tuple(group),
            tuple(map(self._slot, inputs)),
            tuple(map(self._slot, outputs)),
            sum(map(cost_of, group)),
            any(map(self._effects.has_effect, group)),
        )
        self._segments.append(segment)
        self._values[segment] = (list(inputs), outputs)
        return segment

    def _construct(self, instruction: Instruction, parts: Sequence[Assignment]) -> Step:
        has_effect = self._effects.has_effect(instruction)
        outputs = tuple(map(self._slot, instruction.results))
        if instruction.op.host_role == "branch":
            index = self._runtime(instruction.operands[0])
            regions = tuple(self._block(region, part) for region, part in zip(instruction.regions, parts))
            reads = tuple(dict.fromkeys((index, *map(self._runtime, self._assigner.reads(instruction)))))
            return Branch(instruction, reads, index, outputs, regions, has_effect)
        initial = tuple(map(self._runtime, instruction.operands))
        first, second = (tuple(map(self._slot, region.arguments)) for region in instruction.regions)
        condition, body = (self._block(region, parts[0]) for region in instruction.regions)
        captured = [value for value in self._assigner.reads(instruction) if not is_constant(value.producer)]
        reads = tuple(dict.fromkeys((*initial, *map(self._slot, captured))))
        return Loop(instruction, reads, initial, outputs, first, second, condition, body, has_effect)

    def _in_order(self, steps: Sequence[Step], returned: tuple[int, ...], arguments: Sequence[int]) -> BlockPlan:
        makers = {slot: number for number, step in enumerate(steps) for slot in step.outputs}
        after: dict[int, list[int]] = {}
        latest = -1
        for number, step in enumerate(steps):
            after[number] = [makers[slot] for slot in step.reads if slot in makers]
        for number in _in_program_order(steps, self._effects):
            if latest >= 0:
                after[number].append(latest)
            latest = number
        order = ordered(steps, after, _place_of, _cost_of_step)
        sorted_steps = [steps[number] for number in order]
        _choose_thread(sorted_steps)
        mortal = {*makers, *arguments} - {*returned}
        last = {
            slot: number
            for number, step in enumerate(sorted_steps)
            for slot in (*step.reads, *step.outputs)
            if slot in mortal
        }
        drops: list[list[int]] = [[] for _ in sorted_steps]
        for slot, number in last.items():
            drops[number].append(slot)
        return BlockPlan(sorted_steps, list(map(tuple, drops)), returned)

    # ------------------------------------------------------------------------------------------------------ values

    def _slot(self, value: Value) -> int:
        found = self._slots.get(value)
        if found is None:
            found = self._slots[value] = len(self._slots)
            if isinstance(value.type, TensorType):
                self._types[found] = value.type
        return found

    def _runtime(self, value: Value) -> int:
        """The slot of a value that the host hands on; of a constant one that is filled once."""
        slot = self._slot(value)
        dense = constant_of(value)
        if dense is not None:
            self._constants[slot] = dense
        return slot

    def _is_held(self, value: Value) -> bool:
        """Whether segments that read a constant have it for themselves; others are put on each device once."""
        dense = constant_of(value)
        if dense is None:
            return is_constant(value.producer)
        if value in self._shared:
            self._runtime(value)
            return False
        if dense.is_splat or dense.type.nbytes <= _SMALL_CONSTANT or len(value.users) == 1:
            return True
        self._shared.add(value)
        self._runtime(value)
        return False

    def _given(self, donated: Sequence[int]) -> dict[int, Segment]:
        """By slots of donated arguments, the one segment that reads them: it may have the memory."""
        found: dict[int, Segment] = {}
        body = self._module.main.body
        for number in donated:
            argument = body.arguments[number]
            slot = self._slots[argument]
            readers = [segment for segment in self._segments if slot in segment.inputs]
            # What is returned, or read within a construct that the host runs, has other users than one segment's instructions.
            if len(readers) == 1 and {*argument.users} <= {*readers[0].instructions}:
                found[slot] = readers[0]
        return found

    def _firsts(self) -> dict[int, Place]:
        found: dict[int, Place] = {}
        for place in self._backend.places:
            found.setdefault(place.member, place)
        return found


def _is_inside(user: Instruction, inside: frozenset[Instruction]) -> bool:
    """Whether an instruction is one of these, or within one of them."""
    current: Instruction | None = user
    while current is not None:
        if current in inside:
            return True
        parent = current.block.parent if current.block is not None else None
        current = parent if isinstance(parent, Instruction) else None
    return False


def _in_program_order(steps: Sequence[Step], effects: Effects) -> list[int]:
    """Numbers of steps with effects as the program has them."""
    position: dict[Instruction, int] = {}
    found = [
        (each, number)
        for number, step in enumerate(steps)
        if step.has_effect
        for each in (step.instructions if isinstance(step, Segment) else (step.instruction,))
        if effects.has_effect(each)
    ]
    if found and found[0][0].block is not None:
        position = {each: place for place, each in enumerate(found[0][0].block)}
    found.sort(key=lambda pair: position[pair[0]])
    return list(dict.fromkeys(number for _, number in found))


def _place_of(step: Step) -> Hashable:
    return step.place if isinstance(step, Segment) else None


def _cost_of_step(step: Step) -> float:
    return step.nanoseconds if isinstance(step, Segment) else 0.0


_LOOKED_AHEAD: Final = 32


def _choose_thread(steps: Sequence[Step]) -> None:
    """Have the thread that follows the plan run what nobody could run beside."""
    for number, step in enumerate(steps):
        if not isinstance(step, Segment):
            continue
        made = {*step.outputs}
        step.runs_here = True
        for other in steps[number + 1 : number + 1 + _LOOKED_AHEAD]:
            if not made.isdisjoint(other.reads):
                break
            if not isinstance(other, Segment) or other.place is not step.place:
                step.runs_here = False
                break
