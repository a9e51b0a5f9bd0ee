"""An interpreter of program records over NumPy memory: what every step means, for tests and for devices in Python.

    outputs = run(program, [x, y], launch)

``launch(step, memories)`` does what a kernel does, over one array of bytes for each of ``step.buffers``; the interpreter
does everything else.  Several participants are run step by step together (``run_together``), meeting at collectives.
What an event has not finished is not there: until the wait, a target holds ``UNFINISHED`` bytes.  What somebody else is to
run is run when it is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from hlojit.ir.errors import HlojitError
from hlojit.ir.sizes import evaluate
from hlojit.lowering.program import (
    Begin,
    Branch,
    Buffer,
    BufferKind,
    Call,
    Collective,
    CollectiveKind,
    Copy,
    Launch,
    Loop,
    PointCell,
    ProcessId,
    Program,
    Step,
    Swap,
    Transfer,
    Wait,
)
from hlojit.lowering.storage_arrays import from_memory, to_memory

Memory = np.ndarray[Any, Any]
"""Bytes."""
LaunchFunction = Callable[[Launch, list[Memory]], None]

UNFINISHED = 0xA5


class Machine:
    """One participant: the memory of one run of a program, and its steps."""

    def __init__(
        self,
        program: Program,
        inputs: Sequence[Memory],
        launch: LaunchFunction,
        callees: Mapping[str, Program] | None = None,
        *,
        shapes: Sequence[Sequence[int]] = (),
        has_arena: bool = True,
        number: int = 0,
    ):
        """``has_arena=False`` gives every temporary memory of its own: then nothing can overlap."""
        self.number = number
        self.program = program
        self.launch = launch
        self.callees = callees or {}
        self.shapes = shapes
        self.inputs = list(inputs)
        self.outputs = [self._new(evaluate(buffer.nbytes, shapes)) for buffer in program.outputs]
        for output, given in program.aliases.items():
            self.outputs[output] = self.inputs[given]
        self.constants = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in program.constants]
        self.arenas = {space: self._new(evaluate(size, shapes)) for space, size in program.arenas.items()}
        self.cells: dict[int, Buffer] = {}
        self._own: dict[Buffer, Memory] = {}
        if not has_arena:
            self._own = {buffer: self._new(evaluate(buffer.nbytes, shapes)) for buffer in program.temporaries}
        self._begun: dict[int, tuple[Memory, Memory] | Begin] = {}

    @staticmethod
    def _new(nbytes: int) -> Memory:
        return np.full(nbytes, UNFINISHED, np.uint8)

    def memory(self, buffer: Buffer) -> Memory:
        """The bytes of a buffer."""
        if buffer.kind is BufferKind.SWAPPED:
            return self.memory(self.cells[buffer.index])
        nbytes = evaluate(buffer.nbytes, self.shapes)
        if buffer.kind is BufferKind.INPUT:
            return self.inputs[buffer.index][:nbytes]
        if buffer.kind is BufferKind.OUTPUT:
            return self.outputs[buffer.index][:nbytes]
        if buffer.kind is BufferKind.CONSTANT:
            return self.constants[buffer.index][:nbytes]
        if buffer in self._own:
            return self._own[buffer]
        start = evaluate(buffer.offset, self.shapes)
        return self.arenas[buffer.space][start : start + nbytes]

    def run(self) -> Iterator[Collective]:
        """Do the steps; yields every collective with several participants, which the caller performs."""
        stack: list[Iterator[Step] | Loop] = [iter(self.program.steps)]
        while stack:
            top = stack.pop()
            if isinstance(top, Loop):
                if self.memory(top.predicate)[0]:
                    stack += [top, iter(top.condition), iter(top.body)]
                continue
            step = next(top, None)
            if step is None:
                continue
            stack.append(top)
            if isinstance(step, Loop):
                stack += [step, iter(step.condition)]
            elif isinstance(step, Branch):
                stack.append(iter(step.cases[self._chosen(step)]))
            elif isinstance(step, Collective):
                yield step
            elif isinstance(step, Call):
                yield from self._call(step)
            elif isinstance(step, Wait) and isinstance(begun := self._begun.get(step.event), Begin):
                del self._begun[step.event]
                stack.append(iter(begun.body))
            else:
                _STEPS[type(step)](self, step)

    def _chosen(self, step: Branch) -> int:
        memory = self.memory(step.index)
        if step.is_predicate:
            return 0 if memory[0] else 1
        index = int(memory.view(np.int32)[0])
        return index if 0 <= index < len(step.cases) else len(step.cases) - 1

    def _call(self, step: Call) -> Iterator[Collective]:
        callee = Machine(
            self.callees[step.entry],
            [self.memory(each) for each in step.arguments],
            self.launch,
            self.callees,
            number=self.number,
        )
        for number, buffer in enumerate(step.results):
            callee.outputs[number] = self.memory(buffer)
        callee.constants = [self.memory(buffer) for buffer in step.constants]
        yield from callee.run()

    def do_launch(self, step: Launch) -> None:
        """Run a kernel."""
        self.launch(step, [self.memory(buffer) for buffer in step.buffers])

    def do_copy(self, step: Copy) -> None:
        """Copy."""
        self.memory(step.target)[...] = self.memory(step.source)

    def do_swap(self, step: Swap) -> None:
        """Exchange what two cells point to."""
        first, second = step.first.index, step.second.index
        self.cells[first], self.cells[second] = self.cells[second], self.cells[first]

    def do_point(self, step: PointCell) -> None:
        """Let a cell point to a buffer."""
        self.cells[step.cell.index] = step.target

    def do_transfer(self, step: Transfer) -> None:
        """Copy, now or when it is waited for."""
        self.finish(step, self.memory(step.source))

    def do_process_id(self, step: ProcessId) -> None:
        """Who this is."""
        self.memory(step.target).view(np.uint32)[0] = self.number

    def finish(self, step: Transfer | Collective, source: Memory) -> None:
        """Write what a transfer or collective gives: now, or when it is waited for."""
        target = self.memory(step.target)
        if step.event is None:
            target[...] = source
        else:
            self._begun[step.event] = (source, target)
            target[...] = UNFINISHED

    def do_begin(self, step: Begin) -> None:
        """Nothing but that results and temporaries are not what they were."""
        self._begun[step.event] = step
        for inner in step.lent:
            for buffer in inner.writes:
                self.memory(buffer)[...] = UNFINISHED

    def do_wait(self, step: Wait) -> None:
        """Finish what began with the event."""
        begun = self._begun.pop(step.event)
        assert not isinstance(begun, Begin)
        source, target = begun
        target[...] = source

    def results(self) -> list[np.ndarray[Any, Any]]:
        """The outputs as arrays."""
        buffers = self.program.outputs
        return [from_memory(memory, buffer.storage, self.shapes) for memory, buffer in zip(self.outputs, buffers)]


_STEPS: dict[type[Step], Callable[[Machine, Any], None]] = {
    Launch: Machine.do_launch,
    Copy: Machine.do_copy,
    Swap: Machine.do_swap,
    PointCell: Machine.do_point,
    ProcessId: Machine.do_process_id,
    Transfer: Machine.do_transfer,
    Wait: Machine.do_wait,
    Begin: Machine.do_begin,
}


def run(
    program: Program,
    arrays: Sequence[np.ndarray[Any, Any]],
    launch: LaunchFunction,
    callees: Mapping[str, Program] | None = None,
    *,
    has_arena: bool = True,
) -> list[np.ndarray[Any, Any]]:
    """Run with one participant; returns the outputs.  The arrays given are not changed."""
    return run_together(program, [arrays], launch, callees, has_arena=has_arena)[0]


def run_together(
    program: Program,
    arrays: Sequence[Sequence[np.ndarray[Any, Any]]],
    launch: LaunchFunction,
    callees: Mapping[str, Program] | None = None,
    *,
    has_arena: bool = True,
) -> list[list[np.ndarray[Any, Any]]]:
    """Run as many participants as there are sets of arguments; returns the outputs of each."""
    machines = []
    for number, given in enumerate(arrays):
        shapes = [np.shape(array) for array in given]
        memories = [to_memory(array, each.storage, shapes) for array, each in zip(given, program.inputs, strict=True)]
        machine = Machine(program, memories, launch, callees, shapes=shapes, has_arena=has_arena, number=number)
        machines.append(machine)
    running = [machine.run() for machine in machines]
    while True:
        steps = [next(each, None) for each in running]
        if all(step is None for step in steps):
            return [machine.results() for machine in machines]
        first = steps[0]
        if first is None or any(step is not first for step in steps):
            raise HlojitError(f"{program.name}: participants arrive at different collectives")
        _combine(first, machines)


def _combine(step: Collective, machines: Sequence[Machine]) -> None:
    """Perform a collective for all participants."""
    sources = [machine.memory(step.source).copy() for machine in machines]
    members = {member for group in step.groups for member in group if member != -1}
    if not members <= set(range(len(machines))):
        raise HlojitError(f"a collective among {step.groups}, with {len(machines)} participants")
    if step.kind is CollectiveKind.PERMUTE:
        givers = {target: source for source, target in step.groups}
        for number, machine in enumerate(machines):
            giver = givers.get(number)
            machine.finish(step, np.zeros_like(sources[0]) if giver is None else sources[giver])
        return
    count = max(map(len, step.groups))
    for number, machine in enumerate(machines):
        group = [member for group in step.groups if number in group for member in group if member != -1]
        found = (
            _share(step, [sources[member] for member in group], group.index(number), count) if group else sources[0][:0]
        )
        whole = np.zeros(machine.memory(step.target).size, np.uint8)
        whole[: found.size] = found
        machine.finish(step, whole)


def _share(step: Collective, sources: Sequence[Memory], position: int, count: int) -> Memory:
    """What the participant at ``position`` of a group gets, the largest group having ``count`` members."""
    if step.kind is CollectiveKind.BROADCAST:
        return sources[0]
    if step.kind is CollectiveKind.ALL_GATHER:
        return np.concatenate(sources)
    return np.concatenate([np.split(source, count)[position] for source in sources])
