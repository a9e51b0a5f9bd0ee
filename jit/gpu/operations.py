"""A program record as a flat list of operations over a *frame*: the addresses of one run.

    frame      inputs | outputs | constants | arena | cells | status | own number | zeros
    launch     kernel over (place in the frame, offset), ...
    copy       bytes from one to the other
    point      a cell gets an address;  exchange  two cells exchange theirs
    fetch      what other processes have, meeting them
    talk       what the host sends or receives through a channel
    jump       to the operation number ...;  unless  jump if a byte on the device is 0;  choose  jump by an index there

Loops and branches are jumps, so that programs nested deeply are run without recursion.  A program without ``unless``,
``choose``, ``fetch`` and ``talk`` is *fixed*: what it launches is known before it runs.  The host's space of the record is
the device's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, final

from hlojit.gpu.driver import Grid
from hlojit.gpu.statuses import StatusLayout
from hlojit.ir.errors import HlojitError, UnsupportedError
from hlojit.ir.sizes import Size
from hlojit.lowering.kernel import HostWork
from hlojit.lowering.program import (
    Branch,
    Buffer,
    BufferKind,
    Collective,
    CollectiveKind,
    Copy,
    Launch,
    Loop,
    Movement,
    PointCell,
    ProcessId,
    Program,
    Step,
    Swap,
    Transfer,
    Wait,
)
from hlojit.lowering.storage import HOST


@dataclass(frozen=True, slots=True)
class Place:
    """Where an address is: the frame's entry number ``slot``, and the bytes behind it."""

    slot: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class LaunchKernel:
    """Launch one phase of a kernel, or have a ``library`` do it; ``what`` is for messages."""

    kernel: str
    symbol: str
    grid: Grid
    places: tuple[Place, ...]
    what: str
    library: str = ""


@dataclass(frozen=True, slots=True)
class CopyBytes:
    """Copy."""

    target: Place
    source: Place
    nbytes: int


@dataclass(frozen=True, slots=True)
class SetCell:
    """The frame's entry ``slot`` becomes the address of a buffer of so many bytes."""

    slot: int
    target: Place
    nbytes: int


@dataclass(frozen=True, slots=True)
class SwapCells:
    """Two entries of the frame are exchanged: what ``second`` points to afterwards holds nothing that is looked at."""

    first: int
    second: int


@dataclass(slots=True)
class Jump:
    """Go on elsewhere."""

    target: int = -1


@dataclass(slots=True)
class Unless:
    """Go on elsewhere if the byte is 0."""

    predicate: Place
    target: int = -1


@dataclass(slots=True)
class Choose:
    """Go on at the case that an i32 names (the last one if it names none), or, of a predicate, at case 0 if it is true.

    Every case ends with a jump to ``end``, which is behind the last one.
    """

    index: Place
    is_predicate: bool
    targets: list[int]
    end: int = -1


@dataclass(frozen=True, slots=True)
class Exchange:
    """Fetch what others have (``hlojit.gpu.exchanges``); ``what`` is for messages."""

    kind: CollectiveKind
    groups: tuple[tuple[int, ...], ...]
    source: Place
    source_bytes: int
    target: Place
    target_bytes: int
    what: str

    def in_order(self, members: tuple[int, ...]) -> bool:
        """Whether these members, in this order, are one of the groups, and no group is smaller than others."""
        return members in self.groups


@dataclass(frozen=True, slots=True)
class Talk:
    """The host takes what comes through a channel, or sends; ``what`` is for messages."""

    work: HostWork
    operands: tuple[Place, ...]
    results: tuple[Place, ...]
    what: str


Operation = Exchange | Talk | LaunchKernel | CopyBytes | SetCell | SwapCells | Jump | Unless | Choose


@final
class Operations:
    """The operations of a program and the layout of its frame."""

    def __init__(self, program: Program):
        self.program = program
        self.first_output: Final = len(program.inputs)
        self.first_constant: Final = self.first_output + len(program.outputs)
        self.arena: Final = self.first_constant + len(program.constants)
        self.first_cell: Final = self.arena + 1
        self.status: Final = self.first_cell + program.cells
        self.own_number: Final = self.status + 1
        self.zeros: Final = self.own_number + 1
        self.length: Final = self.zeros + 1
        self.statuses: Final = StatusLayout()
        self.code: list[Operation] = []
        self._emit(program.steps)
        self.has_loops: Final = any(isinstance(each, Unless) for each in self.code)
        self.stop: Final = Place(self.status, self.statuses.offset(()) if self.has_loops else 0)
        """Of a program with loops, the word that is not 0 when a run is to end."""
        self.has_status: Final = bool(self.statuses.nbytes)
        self.is_fixed: Final = not any(isinstance(each, (Unless, Choose, Exchange, Talk)) for each in self.code)
        self.launches: Final = [each for each in self.code if isinstance(each, LaunchKernel)]
        self.exchanges: Final = [each for each in self.code if isinstance(each, Exchange)]
        self.is_alone: Final = not self.exchanges and not any(isinstance(step, ProcessId) for step in program.walk())

    def place(self, buffer: Buffer) -> Place:
        """Where a buffer's address is."""
        if buffer.space != HOST:
            raise _unsupported(f"{buffer} lies in the memory space {buffer.space!r}; the device has one memory")
        first = {
            BufferKind.INPUT: 0,
            BufferKind.OUTPUT: self.first_output,
            BufferKind.CONSTANT: self.first_constant,
            BufferKind.SWAPPED: self.first_cell,
        }
        if buffer.kind is BufferKind.TEMPORARY:
            return Place(self.arena, _known(buffer.offset))
        return Place(first[buffer.kind] + buffer.index)

    def _emit(self, steps: Sequence[Step]) -> None:
        # Steps that are still to come and what closes loops and branches, the next one last.
        stack: list[Step | Callable[[], None]] = list(reversed(steps))
        while stack:
            item = stack.pop()
            if isinstance(item, Loop):
                self._loop(item, stack)
            elif isinstance(item, Branch):
                self._branch(item, stack)
            elif isinstance(item, Step):
                self._straight(item)
            else:
                item()

    def _loop(self, step: Loop, stack: list[Step | Callable[[], None]]) -> None:
        start = len(self.code)
        test = Unless(self.place(step.predicate))

        def close() -> None:
            self.code.append(Jump(start))
            test.target = len(self.code)

        stack.append(close)
        stack += reversed(step.body)
        stack.append(partial(self.code.append, test))
        stack += reversed(step.condition)

    def _branch(self, step: Branch, stack: list[Step | Callable[[], None]]) -> None:
        choice = Choose(self.place(step.index), step.is_predicate, [])
        ends: list[Jump] = []
        self.code.append(choice)

        def begin() -> None:
            choice.targets.append(len(self.code))

        def end() -> None:
            ends.append(Jump())
            self.code.append(ends[-1])

        def close() -> None:
            choice.end = len(self.code)
            for jump in ends:
                jump.target = len(self.code)

        stack.append(close)
        for case in reversed(step.cases):
            stack.append(end)
            stack += reversed(case)
            stack.append(begin)

    def _straight(self, step: Step) -> None:
        if isinstance(step, Launch) and step.kernel.host is not None:
            operands, results = (tuple(map(self.place, each)) for each in (step.operands, step.results))
            self.code.append(Talk(step.kernel.host, operands, results, step.title))
        elif isinstance(step, Launch):
            places = tuple(map(self.place, step.buffers))
            for phase in step.kernel.phases:
                grid = Grid(phase.tasks, phase.threads, phase.shared_bytes)
                status = (Place(self.status, self.statuses.offset(phase.reports)),) if phase.has_status else ()
                if phase.tasks:
                    launch = LaunchKernel(
                        step.kernel.symbol, phase.symbol, grid, places + status, step.title, phase.library
                    )
                    self.code.append(launch)
        elif isinstance(step, (Copy, Transfer)):
            self._copy(step)
        elif isinstance(step, Collective):
            self._exchange(step)
        elif isinstance(step, ProcessId):
            self.code.append(CopyBytes(self.place(step.target), Place(self.own_number), _known(step.target.nbytes)))
        elif isinstance(step, PointCell):
            cell, target = self.place(step.cell), self.place(step.target)
            self.code.append(SetCell(cell.slot, target, _known(step.cell.nbytes)))
        elif isinstance(step, Swap):
            self.code.append(SwapCells(self.place(step.first).slot, self.place(step.second).slot))
        elif not isinstance(step, Wait):  # everything is on one stream: what has begun is finished for what comes later
            raise _unsupported(f"a step {type(step).__name__.lower()}")

    def _exchange(self, step: Collective) -> None:
        source, target = self.place(step.source), self.place(step.target)
        sizes = _known(step.source.nbytes), _known(step.target.nbytes)
        self.code.append(Exchange(step.kind, step.groups, source, sizes[0], target, sizes[1], step.what))

    def _copy(self, step: Movement) -> None:
        nbytes = _known(step.source.nbytes)
        if nbytes:
            self.code.append(CopyBytes(self.place(step.target), self.place(step.source), nbytes))


def _known(size: Size) -> int:
    if not isinstance(size, int):
        raise _unsupported(f"a size that only the arguments tell ({size})")
    return size


def _unsupported(reason: str) -> HlojitError:
    return UnsupportedError("the program", "", f"{reason}: not on a device yet")
