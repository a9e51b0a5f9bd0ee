"""Which loops of a program become native functions of their own, with the kernels that they launch inside.

A launch costs a call, and what passes from one kernel to the next goes through memory.  That is nothing to a kernel of a
million elements, and everything to a loop over scalars: so the kernels of a loop that take little time are put into the
function that runs it, where LLVM makes one body of them.  The small buffers that only such kernels touch are variables of that
function, of which most end in registers:

    loop                                              i = 1; mean = x[0]
      launch p = less(i, n)                           while i < n:
    while p                                  =>         mean += a * (x[i] - mean)
      launch t, i, mean = fusion(i, x, a, mean)         y[i] = mean
      launch y = dynamic_update_slice(y, t, i)          i += 1

Kernels that take long are launched from there as from the program.  The program record is the same; what is decided here is how
its loops become code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.liveness import Liveness
from hlojit.lowering.program import (
    Branch,
    Buffer,
    BufferKind,
    Copy,
    Launch,
    Loop,
    PointCell,
    Program,
    Step,
    Swap,
)
from hlojit.lowering.storage import HOST

INLINED_NANOSECONDS: Final = 2_000.0
"""A kernel that takes longer gains nothing from being inside."""
KERNEL_BYTES: Final = 24 << 10
"""Of the text of a kernel that is put inside."""
FUNCTION_BYTES: Final = 96 << 10
"""Of the texts of all of them: LLVM's time."""
LOCAL_BYTES: Final = 4 << 10
"""Of a buffer that is the function's own."""
FRAME_BYTES: Final = 64 << 10
"""Of all of them: they lie on the stack."""
MOST_STEPS: Final = 160
"""Of a loop that becomes a function; those in it may where it does not."""
DEEPEST: Final = 8
"""Loops and branches within one another in one function."""
POLL_NANOSECONDS: Final = 100_000.0
"""Between two questions whether the call is to stop, about."""
LONGEST_INTERVAL: Final = 1 << 14
"""Iterations between two polls at most: estimates of short kernels are low."""


@dataclass(frozen=True, slots=True)
class Local:
    """A variable of a loop's function in place of a buffer: whether it begins as the buffer, and is written back."""

    copied_in: bool
    copied_out: bool
    constant: Buffer | None = None
    """What has just been copied to the buffer where the loop begins: LLVM sees from where indices count."""


@dataclass(slots=True)
class LoopFunction:
    """One loop that becomes a function."""

    step: Loop
    inlined: dict[int, Launch] = field(default_factory=dict)
    """Launches whose kernels are inside, by identity."""
    locals: dict[Buffer, Local] = field(default_factory=dict)
    constants: set[Buffer] = field(default_factory=set)
    """Those that are small: their elements are part of the code."""
    cells: dict[Buffer, Local] = field(default_factory=dict)
    """Pointers that are exchanged."""

    @property
    def kernels(self) -> tuple[KernelCode, ...]:
        """The kernels inside, each once."""
        return tuple({launch.kernel.symbol: launch.kernel for launch in self.inlined.values()}.values())


def plan_loop_functions(program: Program) -> list[LoopFunction]:
    """The loops of a program that become functions, the outermost that can."""
    loops = list(_candidates(program.steps))
    if not loops:
        return []
    liveness = Liveness(program)
    pointed = {step.target for step in program.walk() if isinstance(step, PointCell)}
    beginnings = dict(_beginnings(program.steps))
    users = _CellUsers(program)
    functions = []
    for loop, inlined in loops:
        function = LoopFunction(loop, inlined)
        _choose_locals(function, liveness, pointed, beginnings[id(loop)])
        users.choose(function)
        functions.append(function)
    return functions


def poll_interval(loop: Loop) -> int:
    """Every how many iterations a loop asks whether to stop: a power of two; 0 if it ends before it would."""
    nanoseconds = _round_nanoseconds(loop)
    if _is_short(loop, nanoseconds):
        return 0
    interval = int(min(LONGEST_INTERVAL, max(1.0, POLL_NANOSECONDS / nanoseconds)))
    return 1 << (interval.bit_length() - 1)


def _is_short(loop: Loop, round_nanoseconds: float) -> bool:
    rounds = loop.most_rounds
    return rounds is not None and rounds < LONGEST_INTERVAL and rounds * round_nanoseconds < POLL_NANOSECONDS


def _round_nanoseconds(loop: Loop) -> float:
    """Of one iteration; loops in there that ask themselves count as one of theirs."""
    total = 0.5
    work: list[tuple[Step, float]] = [(step, 1.0) for steps in loop.nested for step in steps]
    while work:
        step, times = work.pop()
        if isinstance(step, Launch):
            total += times * _nanoseconds(step)
        elif isinstance(step, Loop) and step.most_rounds is not None:
            total += times * 0.5
            times *= step.most_rounds
        work += [(each, times) for steps in step.nested for each in steps]
    return total


def _nanoseconds(launch: Launch) -> float:
    return sum(phase.tasks * phase.cost for phase in launch.kernel.phases)


def _candidates(steps: Sequence[Step]) -> Iterator[tuple[Loop, dict[int, Launch]]]:
    work = list(reversed(steps))
    while work:
        step = work.pop()
        if isinstance(step, Loop) and (inlined := _inlined(step)):
            yield step, inlined
            continue
        for nested in step.nested:
            work += reversed(nested)


def _inlined(loop: Loop) -> dict[int, Launch]:
    """The launches whose kernels are put into a loop; none if it does not become a function."""
    steps = _steps_of(loop)
    if steps is None:
        return {}
    launches = [step for step in steps if isinstance(step, Launch) and _is_small(step)]
    chosen: dict[int, Launch] = {}
    nbytes = 0
    for launch in sorted(launches, key=_nanoseconds):
        nbytes += len(launch.kernel.ir)
        if nbytes > FUNCTION_BYTES:
            break
        chosen[id(launch)] = launch
    return chosen


def _steps_of(loop: Loop) -> list[Step] | None:
    """All steps of a loop, if they are few and of kinds that functions have."""
    found: list[Step] = []
    work: list[tuple[Step, int]] = [(loop, 0)]
    while work:
        step, depth = work.pop()
        found.append(step)
        if len(found) > MOST_STEPS or depth > DEEPEST:
            return None
        if not isinstance(step, (Launch, Copy, Swap, PointCell, Loop, Branch)):
            return None
        if any(buffer.space != HOST for buffer in (*step.reads, *step.writes)):
            return None
        work += [(each, depth + 1) for steps in step.nested for each in steps]
    return found


def _is_small(launch: Launch) -> bool:
    """Whether a kernel is plain code that takes little time."""
    code = launch.kernel
    is_plain = code.pipeline in ("lean", "plain") and not (code.linked or code.parts or code.host or code.imports)
    return (
        is_plain
        and len(code.ir) <= KERNEL_BYTES
        and _nanoseconds(launch) <= INLINED_NANOSECONDS
        and "target-features" not in code.ir
    )


def _touched(loop: Loop) -> dict[Buffer, bool]:
    """The buffers that the steps of a loop use, and whether some step writes them."""
    touched: dict[Buffer, bool] = {}
    work: list[Step] = [loop]
    while work:
        step = work.pop()
        for buffer in step.reads:
            touched.setdefault(buffer, False)
        for buffer in step.writes:
            touched[buffer] = True
        for steps in step.nested:
            work += steps
    return touched


def _beginnings(steps: Sequence[Step]) -> Iterator[tuple[int, dict[Buffer, Buffer]]]:
    """For each loop, by identity, the buffers that hold a constant where it begins, and which one."""
    work = [steps]
    while work:
        held: dict[Buffer, Buffer] = {}
        for step in work.pop():
            if isinstance(step, Loop):
                yield id(step), dict(held)
            if step.nested:
                # What is written in there is seldom read again before it is copied anew.
                held.clear()
                work += step.nested
            for buffer in step.writes:
                held.pop(buffer, None)
            if isinstance(step, Copy) and step.source.kind is BufferKind.CONSTANT:
                held[step.target] = step.source


def _choose_locals(
    function: LoopFunction, liveness: Liveness, pointed: set[Buffer], beginning: Mapping[Buffer, Buffer]
) -> None:
    """The small buffers become variables; what is outside of the loop's span is copied, and nothing else.

    Another buffer may have the place in the arena of one that does not live where the loop begins or ends.
    """
    start, end = liveness.spans[id(function.step)]
    room = FRAME_BYTES
    touched = _touched(function.step)
    sizes = {buffer: buffer.nbytes for buffer in touched}
    known = {buffer: nbytes for buffer, nbytes in sizes.items() if isinstance(nbytes, int)}
    for buffer, nbytes in sorted(known.items(), key=lambda item: item[1]):
        is_written = touched[buffer]
        if buffer.kind is BufferKind.SWAPPED or buffer in pointed or not 0 < nbytes <= min(LOCAL_BYTES, room):
            continue
        if buffer.kind is BufferKind.CONSTANT:
            function.constants.add(buffer)
            continue
        if buffer.kind is BufferKind.INPUT and (is_written or buffer.storage.donated):
            continue
        room -= nbytes
        life = liveness.lives[buffer]
        is_outer = buffer.kind is not BufferKind.TEMPORARY
        function.locals[buffer] = Local(
            copied_in=life.start < start or life.is_read_unwritten or buffer.kind is BufferKind.INPUT,
            copied_out=is_written and (is_outer or life.end > end),
            constant=beginning.get(buffer),
        )


class _CellUsers:
    """Where in a program the cells of exchanged pointers are used."""

    def __init__(self, program: Program):
        self._users: dict[Buffer, int] = {}
        for step in program.walk():
            for cell in _cells(step):
                self._users[cell] = self._users.get(cell, 0) + 1

    def choose(self, function: LoopFunction) -> None:
        """The cells of a loop's function: those used elsewhere come from there, and go back."""
        own: dict[Buffer, int] = {}
        work: list[Step] = [function.step]
        while work:
            step = work.pop()
            for cell in _cells(step):
                own[cell] = own.get(cell, 0) + 1
            for steps in step.nested:
                work += steps
        for cell, count in own.items():
            is_shared = count < self._users[cell]
            function.cells[cell] = Local(is_shared, is_shared)


def _cells(step: Step) -> Iterator[Buffer]:
    for buffer in dict.fromkeys((*step.reads, *step.writes)):
        if buffer.kind is BufferKind.SWAPPED:
            yield buffer
