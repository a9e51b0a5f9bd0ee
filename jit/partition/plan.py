"""What is done where: the plan that an executable of several devices follows.

Plain records.  Values of the program have numbers, *slots*; a slot's contents may lie on several devices at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from hlojit.ir.attributes import Dense
from hlojit.ir.graph import Instruction, Module
from hlojit.ir.types import TensorType
from hlojit.partition.joint import Place


@final
@dataclass(eq=False, slots=True)
class Segment:
    """A part of the program that one device runs as a program of its own."""

    number: int
    place: Place
    instructions: tuple[Instruction, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nanoseconds: float
    """Estimated."""
    has_effect: bool = False
    module: Module | None = None
    executable: Any = None
    runs_here: bool = False
    """Whether the thread that follows the plan may run it itself: nothing that could begin meanwhile has to wait for that."""
    measured: float | None = None
    """Nanoseconds of the latest run."""

    @property
    def reads(self) -> tuple[int, ...]:
        """Slots that have to be filled."""
        return self.inputs


@final
@dataclass(eq=False, slots=True)
class Loop:
    """A loop whose condition the host looks at."""

    instruction: Instruction
    reads: tuple[int, ...]
    initial: tuple[int, ...]
    outputs: tuple[int, ...]
    condition_arguments: tuple[int, ...]
    body_arguments: tuple[int, ...]
    condition: BlockPlan
    body: BlockPlan
    has_effect: bool = False


@final
@dataclass(eq=False, slots=True)
class Branch:
    """A branch that the host chooses."""

    instruction: Instruction
    reads: tuple[int, ...]
    index: int
    outputs: tuple[int, ...]
    regions: tuple[BlockPlan, ...]
    has_effect: bool = False


Step = Segment | Loop | Branch


@final
@dataclass(eq=False, slots=True)
class BlockPlan:
    """Steps in the order in which they are begun; ``drops`` are the slots that nothing reads behind each of them."""

    steps: list[Step]
    drops: list[tuple[int, ...]]
    returned: tuple[int, ...]


@final
@dataclass(eq=False, slots=True)
class Plan:
    """A whole program."""

    name: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    body: BlockPlan
    slots: int
    types: Mapping[int, TensorType]
    """Of slots with tensors."""
    constants: Mapping[int, Dense]
    """Slots that are filled once, for all runs."""
    places: Sequence[Place]
    result_places: tuple[Place, ...]
    donated: tuple[int, ...]
    segments: list[Segment] = field(default_factory=list)
    """All of them, those within loops and branches, too."""
