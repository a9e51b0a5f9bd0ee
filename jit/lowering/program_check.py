"""Whether a program record makes sense: before a file's is run, and after every change of the planner in tests.

    check(program)      # ProgramError: main: copy input0 -> output0: 64 bytes into 32

Checked are: numbers of buffers and their places; who may write what; that steps stay within one memory space, except
transfers; sizes; that a result shares an operand's memory only where the kernel allows it; that every event begins once
and is waited for once, with nothing in between that would see or disturb what is on its way; that nothing is read before
it is written; that temporaries that live at the same time do not overlap.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from hlojit.ir.sizes import Size, known, multiply
from hlojit.lowering.liveness import Liveness
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
    ProgramError,
    Step,
    Swap,
    Transfer,
    Wait,
)
from hlojit.lowering.program_text import step_text
from hlojit.lowering.storage import HOST


def check(program: Program) -> None:
    """Raise ``ProgramError`` for the first contradiction."""
    _check_signature(program)
    known: dict[BufferKind, Sequence[Any]] = {
        BufferKind.INPUT: program.inputs,
        BufferKind.OUTPUT: program.outputs,
        BufferKind.CONSTANT: program.constants,
        BufferKind.TEMPORARY: program.temporaries,
        BufferKind.SWAPPED: range(program.cells),
    }
    for step in program.walk():
        for buffer in _buffers(step):
            _check_buffer(program, step, buffer, known[buffer.kind])
        for buffer in step.writes:
            if not buffer.is_writable:
                _refuse(program, step, f"{buffer} must not be written")
        _CHECKS.get(type(step), _check_nothing)(program, step)
    _check_events(program)
    _check_lives(program)


def _refuse(program: Program, step: Step | None, what: str) -> NoReturn:
    place = f"{program.name}: {step_text(step)}: " if step is not None else f"{program.name}: "
    raise ProgramError(f"program record: {place}{what}")


# ------------------------------------------------------------------------------------------------------------- buffers


def _buffers(step: Step) -> Sequence[Buffer]:
    if isinstance(step, PointCell):
        return (step.cell, step.target)
    return (*step.reads, *step.writes)


def _check_signature(program: Program) -> None:
    kinds = ((BufferKind.INPUT, program.inputs), (BufferKind.OUTPUT, program.outputs))
    for kind, buffers in (*kinds, (BufferKind.TEMPORARY, program.temporaries)):
        for number, buffer in enumerate(buffers):
            if buffer.kind is not kind or buffer.index != number:
                _refuse(program, None, f"{buffer} stands in the place of {kind.name.lower()}{number}")
    given = Counter(program.aliases.values())
    for output, number in program.aliases.items():
        if not 0 <= output < len(program.outputs) or not 0 <= number < len(program.inputs):
            _refuse(program, None, f"no output {output} or no input {number} to share memory")
        target, source = program.outputs[output], program.inputs[number]
        if not source.storage.donated or given[number] > 1 or source.nbytes != target.nbytes:
            _refuse(program, None, f"{target} cannot be the memory of {source}")


def _check_buffer(program: Program, step: Step, buffer: Buffer, members: Sequence[Any]) -> None:
    """``members`` are the program's buffers of the kind."""
    if not 0 <= buffer.index < len(members):
        _refuse(program, step, f"there is no {buffer}")
    member = members[buffer.index]
    if isinstance(member, Buffer) and member is not buffer:
        _refuse(program, step, f"{buffer} is another one than the program's")
    if buffer.kind is BufferKind.CONSTANT and member.nbytes != buffer.nbytes:
        _refuse(program, step, f"{buffer} has {buffer.nbytes} bytes, its array {member.nbytes}")
    if buffer.kind is BufferKind.TEMPORARY:
        arena = program.arenas.get(buffer.space, 0)
        numbers = isinstance(arena, int) and isinstance(buffer.offset, int) and isinstance(buffer.nbytes, int)
        if numbers and not 0 <= known(buffer.offset) <= known(buffer.offset) + known(buffer.nbytes) <= known(arena):
            _refuse(program, step, f"{buffer} lies outside the arena of {arena} bytes")
    if buffer.kind is BufferKind.OUTPUT and buffer.index in program.aliases:
        _refuse(program, step, f"{buffer} is input{program.aliases[buffer.index]}, which steps must name")


# --------------------------------------------------------------------------------------------------------------- steps


def _check_nothing(program: Program, step: Step) -> None:
    """Nothing beyond its buffers."""


def _one_space(program: Program, step: Step, buffers: Sequence[Buffer]) -> None:
    spaces = {buffer.space for buffer in buffers}
    if len(spaces) > 1:
        _refuse(program, step, f"buffers of several memory spaces: {', '.join(sorted(spaces))}")


def _same_bytes(program: Program, step: Step, source: Size, target: Size) -> None:
    if source != target:
        _refuse(program, step, f"{source} bytes into {target}")


def _check_launch(program: Program, step: Launch) -> None:
    _one_space(program, step, step.buffers)
    if (step.workspace is None) == bool(step.kernel.workspace_bytes):
        _refuse(program, step, f"the kernel needs {step.kernel.workspace_bytes} bytes of workspace")
    for number, result in enumerate(step.results):
        for operand, buffer in enumerate(step.operands):
            if buffer is result and result.nbytes and (operand, number) not in step.kernel.in_place:
                _refuse(program, step, f"the kernel may not write {result} while it reads it")


def _check_copy(program: Program, step: Copy) -> None:
    _one_space(program, step, (step.source, step.target))
    _same_bytes(program, step, step.source.nbytes, step.target.nbytes)


def _check_swap(program: Program, step: Swap) -> None:
    for cell in (step.first, step.second):
        if cell.kind is not BufferKind.SWAPPED:
            _refuse(program, step, f"{cell} is no cell")
    _one_space(program, step, (step.first, step.second))
    _same_bytes(program, step, step.first.nbytes, step.second.nbytes)


def _check_cell(program: Program, step: PointCell) -> None:
    if step.cell.kind is not BufferKind.SWAPPED or step.target.kind is BufferKind.SWAPPED:
        _refuse(program, step, "a cell points to a buffer that is none")
    if not step.target.is_writable:
        _refuse(program, step, f"{step.target} must not be written")
    _one_space(program, step, (step.cell, step.target))
    _same_bytes(program, step, step.cell.nbytes, step.target.nbytes)


def _check_control(program: Program, step: Loop | Branch) -> None:
    (decides,) = step.reads
    if decides.space != HOST:
        _refuse(program, step, f"the host reads {decides}, which lies in {decides.space}")
    if isinstance(step, Branch) and (not step.cases or (step.is_predicate and len(step.cases) != 2)):
        _refuse(program, step, f"{len(step.cases)} cases")


def _check_call(program: Program, step: Call) -> None:
    _one_space(program, step, (*step.reads, *step.writes))
    if any(result is argument for result in step.results for argument in step.arguments if result.nbytes):
        _refuse(program, step, "a result is an argument")


def _check_transfer(program: Program, step: Transfer) -> None:
    source, target = step.source.storage, step.target.storage
    if (source.strides, source.packing) != (target.strides, target.packing):
        _refuse(program, step, f"from {source} to {target}: the layouts differ")
    _same_bytes(program, step, source.nbytes, target.nbytes)


def _check_collective(program: Program, step: Collective) -> None:
    _one_space(program, step, (step.source, step.target))
    members = [member for group in step.groups for member in group if member != -1]
    count = max(map(len, step.groups), default=0)
    if not members:
        _refuse(program, step, "nobody takes part")
    if step.kind is CollectiveKind.PERMUTE:
        if any(len(set(column)) != len(step.groups) for column in zip(*step.groups)) or count != 2 or -1 in members:
            _refuse(program, step, "a permutation is pairs (from, to) with different sources and different targets")
    elif len(set(members)) != len(members):
        _refuse(program, step, "a participant is in two groups")
    source = step.source.nbytes
    if step.kind is CollectiveKind.ALL_GATHER:
        source = multiply(source, count)
    _same_bytes(program, step, source, step.target.nbytes)


def _check_process_id(program: Program, step: ProcessId) -> None:
    _same_bytes(program, step, 4, step.target.nbytes)


def _check_begin(program: Program, step: Begin) -> None:
    for inner in step.lent:
        if isinstance(inner, (Begin, Loop, Wait)):
            _refuse(program, inner, "no step of a body that somebody else runs")


_CHECKS: dict[type[Step], Callable[[Program, Any], None]] = {
    Launch: _check_launch,
    Copy: _check_copy,
    Swap: _check_swap,
    PointCell: _check_cell,
    Loop: _check_control,
    Branch: _check_control,
    Call: _check_call,
    Transfer: _check_transfer,
    Collective: _check_collective,
    ProcessId: _check_process_id,
    Begin: _check_begin,
}


# ------------------------------------------------------------------------------------------------------ events, lives


def _check_events(program: Program) -> None:
    """Every event begins once and is waited for once, in the same list of steps."""
    begun: set[int] = set()
    lists: list[list[Step]] = [program.steps, *(steps for step in program.walk() for steps in step.nested)]
    for steps in lists:
        pending: dict[int, Transfer | Collective | Begin] = {}
        for step in steps:
            if isinstance(step, Wait):
                if pending.pop(step.event, None) is None:
                    _refuse(program, step, "nothing that began in this list of steps is to be waited for")
                continue
            if pending:
                _check_undisturbed(program, step, pending)
            if isinstance(step, (Transfer, Collective, Begin)) and step.event is not None:
                if step.event in begun:
                    _refuse(program, step, f"event {step.event} begins twice")
                begun.add(step.event)
                pending[step.event] = step
        for left in pending.values():
            _refuse(program, left, "nobody waits for the event")


def _check_undisturbed(program: Program, step: Step, pending: dict[int, Transfer | Collective | Begin]) -> None:
    inside = [step]
    while inside:
        each = inside.pop()
        inside.extend(nested for steps in each.nested for nested in steps)
        for other in pending.values():
            for moved in other.lent if isinstance(other, Begin) else (other,):
                for buffer in moved.writes:
                    if any(used is buffer for used in _buffers(each)):
                        _refuse(program, each, f"{buffer} is on its way until event {other.event}")
                for buffer in moved.reads:
                    if any(written is buffer for written in each.writes):
                        _refuse(program, each, f"{buffer} is being read until event {other.event}")


def _check_lives(program: Program) -> None:
    """Nothing is read unwritten; the recorded lives hold the real ones, and no two of them overlap in memory."""
    lives = Liveness(program).lives
    for buffer, life in lives.items():
        if life.is_read_unwritten and buffer.kind is not BufferKind.SWAPPED:
            _refuse(program, None, f"{buffer} is read before it is written")
        if buffer.kind is BufferKind.TEMPORARY and not buffer.start <= life.start <= life.end <= buffer.end:
            _refuse(
                program, None, f"{buffer} lives from {life.start} to {life.end}, not {buffer.start} to {buffer.end}"
            )
    for space in program.arenas:
        _check_overlaps(program, [buffer for buffer in program.temporaries if buffer.space == space])


def _check_overlaps(program: Program, buffers: Sequence[Buffer]) -> None:
    events: list[tuple[int, int, int, int, Buffer]] = []
    for number, buffer in enumerate(buffers):
        if isinstance(buffer.offset, int) and isinstance(buffer.nbytes, int) and buffer.nbytes:
            events.append((buffer.start, 1, buffer.offset, number, buffer))
            events.append((buffer.end, 2, buffer.offset, number, buffer))
    live: list[tuple[int, int, Buffer]] = []
    for _, kind, offset, number, buffer in sorted(events, key=lambda event: event[:4]):
        place = bisect.bisect_left(live, (offset, number), key=lambda entry: entry[:2])
        if kind == 2:
            live.pop(place)
            continue
        for other in live[max(0, place - 1) : place + 1]:
            first, second = sorted((buffer, other[2]), key=lambda each: known(each.offset))
            if known(first.offset) + known(first.nbytes) > known(second.offset):
                first, second = sorted((first, second), key=lambda each: each.index)
                _refuse(program, None, f"{first} and {second} live at the same time in the same memory")
        live.insert(place, (offset, number, buffer))
