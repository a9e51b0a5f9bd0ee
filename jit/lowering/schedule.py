"""From the final graph to a program: steps in order, and memory for every value.

Scheduling is five steps, each in a module of its own and with tests of its own::

    instruction_order   positions of instructions
    alias_analysis      values that are one memory; last uses; what may be written over what
    copy_insertion      a buffer for every value, copies where two values cannot share one
    build_program       (here) the steps: launches, loops and branches with those copies
    buffer_assignment   lives of the temporaries over these steps, and their places in the arena
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from hlojit.ir.donation import ALIASING_OUTPUT, donated_arguments
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import IntegerType
from hlojit.ir.graph import Block, Function, Instruction, Value
from hlojit.ir.location import Location
from hlojit.ir.ops.definition import Trait
from hlojit.ir.ops.internal import chosen_kernel
from hlojit.ir.ops.views import CollectiveView
from hlojit.ir.types import TensorType
from hlojit.lowering.affine_indices import affine_loop
from hlojit.lowering.alias_analysis import AliasAnalysis, KernelSource, is_alias
from hlojit.lowering.arena import ALIGNMENT
from hlojit.lowering.buffer_assignment import assign_buffers
from hlojit.lowering.copy_insertion import CopyInsertion, Placement
from hlojit.lowering.counted_loops import Counter, counters_of
from hlojit.lowering.instruction_order import InstructionOrder
from hlojit.lowering.program import (
    Begin,
    Branch,
    Buffer,
    BufferKind,
    Collective,
    CollectiveKind,
    Counted,
    Launch,
    Loop,
    PointCell,
    ProcessId,
    Program,
    Step,
    Wait,
    bytes_of_instruction,
)
from hlojit.lowering.storage import Storage

HOST_ROLES: Final = (
    *("constant", "loop", "branch", "call", "return", "alias", "tuple"),
    *("collective", "process_id"),
)
"""Roles of structural ops that program records stand for, whoever runs them."""

ASYNCHRONOUS_ROLES: Final = ("start", "finish")
"""Those for which somebody else has to be there."""


def build_program(
    function: Function,
    source: KernelSource,
    donated: Mapping[int, int | None] | None = None,
    *,
    alignment: int = ALIGNMENT,
    members: bool = False,
) -> Program:
    """Schedule ``function`` (all calls inlined, tensors only) with kernels from ``source``.

    ``donated`` maps numbers of donated arguments to the output that is to have their memory, or to None; by default they
    are those that the function's attributes name.  Places in the arena are multiples of ``alignment`` bytes.  With ``members``
    launches say of which instructions their kernels are made.
    """
    if donated is None:
        donated = checked_donations(function)
    for value in (*function.body.arguments, *function.body.returned):
        assert isinstance(value.type, TensorType), value
    order = InstructionOrder(function.body)
    aliases = AliasAnalysis(function.body, order, source)
    placement = CopyInsertion(function, aliases, donated).run()
    program = Program(
        function.name,
        StepEmitter(aliases, placement, members=members).emit(function.body),
        placement.inputs,
        placement.outputs,
        placement.constants,
        [],
        placement.cells,
        aliases=placement.aliases,
    )
    _give_back(program)
    assign_buffers(program, alignment)
    return program


def checked_donations(function: Function) -> dict[int, int | None]:
    """The donated arguments that a function's attributes name; ``HlojitError`` where they name no output that could be."""
    donated = donated_arguments(function)
    results = function.body.returned
    partners = [output for output in donated.values() if output is not None]
    for number, output in donated.items():
        if output is None:
            continue
        where = f"@{function.name}, argument {number}: {ALIASING_OUTPUT} = {output}"
        if not 0 <= output < len(results):
            raise HlojitError(f"{where}, but the function has {len(results)} results")
        if results[output].tensor_type.nbytes != function.body.arguments[number].tensor_type.nbytes:
            types = results[output].type, function.body.arguments[number].type
            raise HlojitError(f"{where}, but the result is {types[0]} and the argument {types[1]}")
        if partners.count(output) > 1:
            raise HlojitError(f"{where}, which is another argument's, too")
    return donated


def _give_back(program: Program) -> None:
    """Donated arguments that the program neither writes nor returns stay the caller's."""
    taken = {id(buffer) for step in program.walk() for buffer in step.writes}
    taken |= {id(step.target) for step in program.walk() if isinstance(step, PointCell)}
    for buffer in program.inputs:
        if buffer.storage.donated and id(buffer) not in taken and buffer.index not in program.aliases.values():
            buffer.storage = replace(buffer.storage, donated=False)


def _is_needed(instruction: Instruction) -> bool:
    """Whether a kernel has something to do: results with elements, or an effect beside its results."""
    has_effect = instruction.op.effect
    return any(result.tensor_type.size for result in instruction.results) or (
        has_effect is not None and has_effect(instruction)
    )


class StepEmitter:
    """Writes the steps of placed instructions."""

    def __init__(self, aliases: AliasAnalysis, placement: Placement, *, members: bool = False):
        self.aliases = aliases
        self.placement = placement
        self._names_members = members
        self._work: list[tuple[Block, list[Step]]] = []
        self._events: dict[Instruction, int] = {}
        """Of the asynchronous pairs, by the instruction that waits."""

    def emit(self, body: Block) -> list[Step]:
        """The steps of a function body."""
        steps: list[Step] = []
        self._work.append((body, steps))
        blocks = []
        while self._work:
            blocks.append(self._work.pop())
            self._block(*blocks[-1])
        for _, written in reversed(blocks):
            _unite_pairs(written)
        return steps

    def buffer(self, value: Value) -> Buffer:
        """The memory of a value."""
        return self.placement.buffers[self.aliases.root(value)]

    def _block(self, block: Block, steps: list[Step]) -> None:
        placement, terminator = self.placement, block.terminator
        for instruction in block:
            role = instruction.op.host_role
            if role == "finish":
                steps.append(Wait(self._events[instruction]))
            if instruction is terminator or is_alias(instruction) or role == "constant":
                continue
            steps.extend(placement.before.get(instruction, ()))
            if role == "loop":
                steps.append(self._loop(instruction))
            elif role == "branch":
                steps.append(self._branch(instruction))
            elif role == "start":
                steps.append(self._begin(instruction))
            elif role == "process_id":
                steps.append(ProcessId(self.buffer(instruction.result)))
            elif role == "collective":
                steps.extend(self._collective(instruction))
            elif _is_needed(instruction):
                steps.append(self._launch(instruction))
            steps.extend(placement.after.get(instruction, ()))
        steps.extend(placement.at_end.get(block, ()))

    def _launch(self, instruction: Instruction) -> Launch:
        code = self.aliases.kernel(instruction)
        operands = [self.buffer(operand) for operand in instruction.operands]
        results = tuple(self.buffer(result) for result in instruction.results)
        if code.updates:
            updated = {result: operand for operand, result in reversed(code.in_place)}
            for result, operand in updated.items():
                operands[operand] = results[result]
        workspace = None
        if code.workspace_bytes:
            workspace = Buffer(BufferKind.TEMPORARY, Storage.raw(code.workspace_bytes))
        moved = bytes_of_instruction(instruction)
        members: tuple[tuple[str, Location], ...] = ()
        if self._names_members and Trait.FUSION in instruction.op.traits:
            members = tuple((each.op.name, each.location) for each in instruction.regions[0])
        chosen = chosen_kernel(instruction)
        name = instruction.op.name if chosen is None else chosen.name
        return Launch(code, tuple(operands), results, workspace, name, moved, instruction.location, members)

    def _collective(self, instruction: Instruction) -> Iterator[Collective]:
        moves = CollectiveView.of(instruction)
        source, target = self.buffer(instruction.operands[0]), self.buffer(instruction.result)
        if instruction.result.tensor_type.size:
            kind = CollectiveKind[moves.kind.upper()]
            name = moves.written_as
            yield Collective(kind, source, target, moves.groups, None, name, instruction.location)

    def _begin(self, instruction: Instruction) -> Begin:
        (waiting,) = instruction.results[0].users
        event = self._events[waiting] = len(self._events)
        step = Begin(event, [])
        self._work.append((instruction.regions[0], step.body))
        return step

    def _loop(self, instruction: Instruction) -> Loop:
        condition, body = instruction.regions
        counters = counters_of(instruction)
        counted = tuple(self._counted(body.arguments[each.position], each) for each in counters)
        rounds = min((each.rounds for each in counters), default=None)
        affine = affine_loop(instruction, counters)
        step = Loop([], self.buffer(condition.returned[0]), [], counted, rounds, affine and affine.of(self.buffer))
        self._work += [(condition, step.condition), (body, step.body)]
        return step

    def _counted(self, argument: Value, counter: Counter) -> Counted:
        element = argument.tensor_type.element_type
        assert isinstance(element, IntegerType)
        return Counted(self.buffer(argument), counter.low, counter.high, element)

    def _branch(self, instruction: Instruction) -> Branch:
        index = instruction.operands[0]
        step = Branch(
            self.buffer(index), index.tensor_type.element_type.name == "i1", [[] for _ in instruction.regions]
        )
        self._work += zip(instruction.regions, step.cases)
        return step


def _unite_pairs(steps: list[Step]) -> None:
    """What is waited for as soon as it has begun, or is nothing, is done here; the bodies' steps are there already."""
    united: set[int] = set()
    kept: list[Step] = []
    for step, following in zip(steps, [*steps[1:], None]):
        if isinstance(step, Begin) and (
            not step.body or (isinstance(following, Wait) and following.event == step.event)
        ):
            united.add(step.event)
            kept.extend(step.body)
        elif not (isinstance(step, Wait) and step.event in united):
            kept.append(step)
    steps[:] = kept
