"""The program: the small record of what happens at run time, between the graph and the emitted host code.

A program is a list of steps over buffers: launch a kernel, copy, loop, branch.  The CPU's host emitter turns it into one
native function; a profiler, a memory plan or another device reads the same record.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hlojit.ir.graph import Instruction
from hlojit.ir.location import UNKNOWN, Location
from hlojit.lowering.kernel import KernelCode


class BufferKind(enum.Enum):
    """Where a buffer's memory comes from."""

    INPUT = "an argument of the call"
    OUTPUT = "a result, allocated for the call"
    CONSTANT = "memory that lives as long as the executable"
    TEMPORARY = "a part of the arena"
    SWAPPED = "one of two temporaries, exchanged after every iteration of a loop"


@dataclass(eq=False, slots=True)
class Buffer:
    """A piece of memory.  ``index`` counts within the kind; ``offset`` is the place of a temporary in the arena.

    ``start`` and ``end`` are the first and last position in the program at which a temporary holds data.
    A swapped buffer's ``index`` is its pointer cell.
    """

    kind: BufferKind
    nbytes: int
    index: int = 0
    offset: int = 0
    start: int = 0
    end: int = 0


class Step:
    """Base of the steps."""

    __slots__ = ()


@dataclass(slots=True)
class Launch(Step):
    """Run a kernel over its buffers (operands, results, workspace)."""

    kernel: KernelCode
    buffers: tuple[Buffer, ...]
    instruction_name: str
    bytes_moved: int = 0
    location: Location = UNKNOWN


@dataclass(slots=True)
class Copy(Step):
    """Copy all bytes of a buffer."""

    source: Buffer
    target: Buffer


@dataclass(slots=True)
class Swap(Step):
    """Exchange the addresses of two swapped buffers."""

    first: Buffer
    second: Buffer


@dataclass(slots=True)
class PointCell(Step):
    """Let a swapped buffer's cell point to a buffer."""

    cell: Buffer
    target: Buffer


@dataclass(slots=True)
class Loop(Step):
    """Run ``condition``; while the ``predicate`` byte is not zero, run ``body`` and ``condition`` again."""

    condition: list[Step]
    predicate: Buffer
    body: list[Step]


@dataclass(slots=True)
class Branch(Step):
    """Run one of ``cases``: the one that the i32 in ``index`` says (the last, if out of range); i1 true takes case 0."""

    index: Buffer
    is_predicate: bool
    cases: list[list[Step]]


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
    arena_bytes: int = 0

    def walk(self) -> Iterator[Step]:
        """Yield all steps, those of loops and branches after the one that holds them."""
        stack = list(reversed(self.steps))
        while stack:
            step = stack.pop()
            yield step
            if isinstance(step, Loop):
                stack.extend(reversed([*step.condition, *step.body]))
            elif isinstance(step, Branch):
                for case in reversed(step.cases):
                    stack.extend(reversed(case))

    def launches(self) -> list[Launch]:
        """Every launch that stands in the program (those in loops once)."""
        return [step for step in self.walk() if isinstance(step, Launch)]


def bytes_of_instruction(instruction: Instruction) -> int:
    """Bytes of all operands and results: what a kernel moves at least."""
    total = 0
    for value in (*instruction.operands, *instruction.results):
        total += getattr(value.type, "nbytes", 0)
    return total
