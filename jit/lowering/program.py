"""The program: the record of what happens at run time, between the graph and the code that makes it happen.

A program is a list of steps over buffers: launch a kernel, copy, loop, branch; and, where several devices take part, call
another program's entry, transfer between memory spaces, wait, combine among participants.  The CPU's host emitter turns
it into one native function; ``program_interpreter`` runs it over NumPy memory; a profiler, a memory plan, a file or
another device reads the same record.  It is plain data: no graph, no function and no address is in it.

    print(program)                        # for people: program_text.text
    program_check.check(program)          # whether it makes sense
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import IntegerType
from hlojit.ir.graph import Instruction
from hlojit.ir.location import UNKNOWN, Location
from hlojit.ir.sizes import Size
from hlojit.lowering.affine_indices import AffineLoop
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.storage import HOST, Storage


class ProgramError(HlojitError):
    """A program record that makes no sense: a bug of the planner that made it, or a damaged file."""


class BufferKind(enum.Enum):
    """Where a buffer's memory comes from."""

    INPUT = "an argument of the call"
    OUTPUT = "a result, allocated for the call unless it is a donated argument's memory"
    CONSTANT = "memory that lives as long as the executable"
    TEMPORARY = "a part of the arena"
    SWAPPED = "one of two buffers, exchanged after every iteration of a loop"


@dataclass(eq=False, slots=True)
class Buffer:
    """A piece of memory and how a tensor lies in it; a buffer that holds several tensors in turn shows the first.

    ``index`` counts within the kind (a swapped buffer's is its pointer cell).  ``offset`` is the place of a temporary in
    its space's arena; ``start`` and ``end`` are the first and last position of the program at which it holds data.
    """

    kind: BufferKind
    storage: Storage
    index: int = 0
    offset: Size = 0
    start: int = 0
    end: int = 0

    @property
    def nbytes(self) -> Size:
        """Bytes of the memory."""
        return self.storage.nbytes

    @property
    def space(self) -> str:
        """The memory space."""
        return self.storage.space

    @property
    def is_writable(self) -> bool:
        """Whether steps may write it: not arguments, unless they are donated, and not constants."""
        return self.kind is not BufferKind.CONSTANT and (self.kind is not BufferKind.INPUT or self.storage.donated)

    def __str__(self) -> str:
        return f"{self.kind.name.lower()}{self.index}"


class Step:
    """Base of the steps.  ``reads`` and ``writes`` are buffers; steps inside a loop or branch are their own."""

    __slots__ = ()

    @property
    def reads(self) -> Sequence[Buffer]:
        """Buffers whose contents matter to the step."""
        return ()

    @property
    def writes(self) -> Sequence[Buffer]:
        """Buffers whose contents the step changes."""
        return ()

    @property
    def nested(self) -> Sequence[list[Step]]:
        """Lists of steps that this one runs."""
        return ()


@final
class LaunchName(str):
    """What messages call a launch: its instruction, and where that stands.

    ``members`` are the instructions of a fusion, in their order: the simulator says for which of them memory was accessed.
    """

    members: tuple[str, ...] = ()


@dataclass(slots=True)
class Launch(Step):
    """Run a kernel over its buffers.  A result may be an operand's buffer where ``kernel.in_place`` says so."""

    kernel: KernelCode
    operands: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    workspace: Buffer | None = None
    instruction_name: str = ""
    bytes_moved: int = 0
    location: Location = UNKNOWN
    members: tuple[tuple[str, Location], ...] = ()
    """The instructions of a fusion with their places, in their order, if messages may name them."""

    @property
    def title(self) -> LaunchName:
        """What messages call it."""
        name = LaunchName(f"{self.instruction_name} at {self.location}")
        name.members = tuple(f"{op} at {location}" for op, location in self.members)
        return name

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """What the kernel gets: operands, results, workspace."""
        return (*self.operands, *self.writes)

    @property
    def reads(self) -> Sequence[Buffer]:
        """The operands."""
        return self.operands

    @property
    def writes(self) -> Sequence[Buffer]:
        """The results and the workspace."""
        return self.results if self.workspace is None else (*self.results, self.workspace)


class Movement(Step):
    """Base of the steps that read one buffer and write another."""

    __slots__ = ()
    source: Buffer
    target: Buffer

    @property
    def reads(self) -> Sequence[Buffer]:
        """The source."""
        return (self.source,)

    @property
    def writes(self) -> Sequence[Buffer]:
        """The target."""
        return (self.target,)


@dataclass(slots=True)
class Copy(Movement):
    """Copy all bytes of a buffer to another one of the same space."""

    source: Buffer
    target: Buffer


@dataclass(slots=True)
class Swap(Step):
    """Exchange the addresses of two swapped buffers."""

    first: Buffer
    second: Buffer

    @property
    def reads(self) -> Sequence[Buffer]:
        """Both: each is the other one afterwards."""
        return (self.first, self.second)

    @property
    def writes(self) -> Sequence[Buffer]:
        """Both."""
        return (self.first, self.second)


@dataclass(slots=True)
class PointCell(Step):
    """Let a swapped buffer's cell point to a buffer, whose contents stay what they are."""

    cell: Buffer
    target: Buffer

    @property
    def writes(self) -> Sequence[Buffer]:
        """The cell."""
        return (self.cell,)


@dataclass(frozen=True, slots=True)
class Counted:
    """An integer in a buffer that lies between these, both included, where the body of a loop begins."""

    buffer: Buffer
    low: int
    high: int
    element: IntegerType


@dataclass(slots=True)
class Loop(Step):
    """Run ``condition``; while the ``predicate`` byte is not zero, run ``body`` and ``condition`` again."""

    condition: list[Step]
    predicate: Buffer
    body: list[Step]
    counted: tuple[Counted, ...] = ()
    most_rounds: int | None = None
    """How often the body runs at most, if that is known."""
    affine: AffineLoop[Buffer] | None = None
    """Indices that are inside of their arrays in all rounds if they are in the first and in the last one."""

    @property
    def reads(self) -> Sequence[Buffer]:
        """The predicate (after the condition has run)."""
        return (self.predicate,)

    @property
    def nested(self) -> Sequence[list[Step]]:
        """Condition and body."""
        return (self.condition, self.body)


@dataclass(slots=True)
class Branch(Step):
    """Run one of ``cases``: the one that the i32 in ``index`` says (the last, if out of range); i1 true takes case 0."""

    index: Buffer
    is_predicate: bool
    cases: list[list[Step]]

    @property
    def reads(self) -> Sequence[Buffer]:
        """The index."""
        return (self.index,)

    @property
    def nested(self) -> Sequence[list[Step]]:
        """The cases."""
        return self.cases


@dataclass(slots=True)
class Call(Step):
    """Run another program's entry function, ``i32 entry(ptr context, ptr slots)``, over buffers of this one.

    ``arena`` is memory for the callee's temporaries and ``constants`` are its constants, which belong to this program's
    now; ``program_calls.call`` makes a call of a callee's record.  What the callee returns but 0 ends this program.
    """

    entry: str
    arguments: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    arena: Buffer | None = None
    constants: tuple[Buffer, ...] = ()

    @property
    def reads(self) -> Sequence[Buffer]:
        """Arguments and constants."""
        return (*self.arguments, *self.constants)

    @property
    def writes(self) -> Sequence[Buffer]:
        """Results, the callee's temporaries, and arguments that it may write."""
        return self.results if self.arena is None else (*self.results, self.arena)


@dataclass(slots=True)
class Transfer(Movement):
    """Copy a buffer's contents to a buffer of any space and of the same layout.

    Without an ``event`` it is finished when the step is.  With one it only begins: until the ``Wait`` for the event,
    the target's contents are undefined and nothing writes the source.
    """

    source: Buffer
    target: Buffer
    event: int | None = None


class CollectiveKind(enum.Enum):
    """What participants do together: they move bytes, and kernels combine.  ``n`` is the size of the largest group."""

    ALL_GATHER = "every target is all sources, one after the other"
    ALL_TO_ALL = "part i of source j, of n, becomes part j of target i"
    BROADCAST = "every target is the first participant's source"
    PERMUTE = "a target is the source of the participant that a pair (from, to) names"


@dataclass(slots=True)
class Collective(Movement):
    """Move the sources of several participants to their targets.

    ``groups`` names the participants that act together, -1 nobody; of a permutation it holds pairs (from, to).  What nobody
    gives is zeros: the targets of who is in no group or pair, and in groups smaller than others what they lack.  ``event`` as
    for a transfer.  All participants of a group run the same collectives in the same order.
    """

    kind: CollectiveKind
    source: Buffer
    target: Buffer
    groups: tuple[tuple[int, ...], ...]
    event: int | None = None
    written_as: str = ""
    """The op that the program has for it."""
    location: Location = UNKNOWN

    @property
    def what(self) -> str:
        """For messages: the op or, without one, the kind, and where the program says so."""
        return f"{self.written_as or self.kind.name.lower()} at {self.location}"


@dataclass(slots=True)
class ProcessId(Step):
    """Write the number of this participant, a ui32."""

    target: Buffer

    @property
    def writes(self) -> Sequence[Buffer]:
        """The target."""
        return (self.target,)


@dataclass(slots=True)
class Begin(Step):
    """Have somebody else run ``body``, beside this program's next steps, until the ``Wait`` for the event.

    Until then what it writes is undefined, and nobody writes what it reads.  Bodies of one program run in the order in which
    they begin; they have no loops and begin nothing themselves.
    """

    event: int
    body: list[Step]

    @property
    def nested(self) -> Sequence[list[Step]]:
        """The body."""
        return (self.body,)

    @property
    def lent(self) -> Iterator[Step]:
        """The steps of the body and all that they hold."""
        stack: list[Step] = list(self.body)
        while stack:
            step = stack.pop()
            yield step
            for steps in step.nested:
                stack.extend(steps)


@dataclass(slots=True)
class Wait(Step):
    """Go on when the transfer, collective or body that began with this event has finished."""

    event: int


@dataclass(slots=True)
class Program:
    """Steps, buffers and sizes of one executable."""

    name: str
    steps: list[Step]
    inputs: list[Buffer]
    outputs: list[Buffer]
    constants: list[Any]
    """Arrays (C-contiguous, storage dtype) of the constant buffers, by index."""
    temporaries: list[Buffer]
    cells: int = 0
    arenas: dict[str, Size] = field(default_factory=dict)
    """Bytes of all temporaries by memory space."""
    aliases: dict[int, int] = field(default_factory=dict)
    """Outputs that are the memory of a donated input: output number to input number."""

    def __str__(self) -> str:
        # The text stands above the record, which does not know its module before somebody asks.
        return str(importlib.import_module("hlojit.lowering.program_text").text(self))

    @property
    def arena_bytes(self) -> int:
        """Bytes of the temporaries in the host's memory; ``ProgramError`` if they depend on the arguments."""
        nbytes = self.arenas.get(HOST, 0)
        if not isinstance(nbytes, int):
            raise ProgramError(f"{self.name}: the arena takes {nbytes} bytes, which only the arguments tell")
        return nbytes

    @property
    def donated(self) -> tuple[tuple[int, int], ...]:
        """Inputs whose memory the program takes, each with the output that is made in it, or -1."""
        outputs = {number: output for output, number in self.aliases.items()}
        return tuple((each.index, outputs.get(each.index, -1)) for each in self.inputs if each.storage.donated)

    def walk(self) -> Iterator[Step]:
        """Yield all steps, those of loops and branches after the one that holds them."""
        stack = list(reversed(self.steps))
        while stack:
            step = stack.pop()
            yield step
            for steps in reversed(step.nested):
                stack.extend(reversed(steps))

    def launches(self) -> list[Launch]:
        """Every launch that stands in the program (those in loops once)."""
        return [step for step in self.walk() if isinstance(step, Launch)]


def bytes_of_instruction(instruction: Instruction) -> int:
    """Bytes of all operands and results: what a kernel moves at least."""
    total = 0
    for value in (*instruction.operands, *instruction.results):
        total += getattr(value.type, "nbytes", 0)
    return total
