"""The schedule of a program for a machine that computes one instruction at a time (``interpreted.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from hlojit.extensions.backends.backend import Backend
from hlojit.extensions.backends.layouts import ROW_MAJOR, Layout, LayoutPlan, assign_layouts
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Block, Instruction, Module, Value
from hlojit.ir.passes.graph_facts import constant_of, is_control_flow
from hlojit.ir.types import TensorType

Constant = tuple[int, np.ndarray[Any, Any], TensorType, Layout]
"""A slot, its elements, and how they are to lie."""
Region = tuple[Sequence[int], tuple[Sequence["Step"], Sequence[int]]]
"""Slots of a region's arguments, its steps, and the slots that it returns."""


@final
@dataclass(frozen=True, slots=True)
class Step:
    """One instruction: slots of what it reads and makes, the layouts of both, and the slots that nothing reads behind it."""

    instruction: Instruction
    operands: tuple[int, ...]
    results: tuple[int, ...]
    wanted: tuple[Layout, ...]
    made: tuple[Layout, ...]
    drops: tuple[int, ...]
    is_relabelled: bool = False
    is_alias: bool = False
    captured: tuple[tuple[Value, int], ...] = ()
    """What regions that are no control flow read from outside."""
    regions: tuple[Region, ...] = ()
    """Of a loop or branch."""


@final
@dataclass(frozen=True, slots=True)
class Schedule:
    """A program: slots of its arguments and the layouts that it wants them in, its constants, its steps."""

    slots: int
    arguments: tuple[int, ...]
    layouts: tuple[Layout, ...]
    constants: tuple[Constant, ...]
    body: tuple[Sequence[Step], Sequence[int]]
    kept: dict[int, tuple[Any, list[tuple[int, Any]]]] = field(default_factory=dict, compare=False)
    """The constants on the machines that have run the program, by slots.

    By the machines' identity, beside the machine, which keeps its number from another one: equal machines have memories of
    their own.
    """


def schedule(module: Module, backend: Backend) -> Schedule:
    """Of the entry function of a module."""
    return _Scheduler(backend, assign_layouts(module, backend)).of(module)


@final
@dataclass(slots=True)
class _Scheduler:
    backend: Backend
    layouts: LayoutPlan
    slots: dict[Value, int] = field(default_factory=dict)
    constants: list[Constant] = field(default_factory=list)

    def of(self, module: Module) -> Schedule:
        body = module.main.body
        arguments = tuple(map(self._slot, body.arguments))
        layouts = tuple(self.layouts.made.get(each, ROW_MAJOR) for each in body.arguments)
        steps = self._block(body)
        return Schedule(len(self.slots), arguments, layouts, tuple(self.constants), steps)

    def _block(self, block: Block) -> tuple[Sequence[Step], Sequence[int]]:
        found: list[tuple[Instruction, tuple[Value, ...], tuple[Region, ...]]] = []
        for instruction in block:
            dense = constant_of(instruction.results[0]) if instruction.results else None
            if dense is not None:
                array = np.ascontiguousarray(dense.array).reshape(dense.type.shape)
                layout = self.layouts.made.get(instruction.results[0], ROW_MAJOR)
                self.constants.append((self._slot(instruction.results[0]), array, dense.type, layout))
            elif not instruction.op.is_terminator:
                found.append((instruction, _captured(instruction), self._regions(instruction)))
        returned = tuple(map(self._slot, block.returned))
        last: dict[int, int] = {}
        mortal: set[int] = set()
        for number, (instruction, captured, _) in enumerate(found):
            made = [self._slot(each) for each in instruction.results]
            mortal.update(made)
            for slot in (*made, *map(self._slot, (*instruction.operands, *captured))):
                last[slot] = number
        drops: dict[int, list[int]] = {}
        for slot, number in last.items():
            if slot in mortal and slot not in returned:
                drops.setdefault(number, []).append(slot)
        steps = [self._step(each, tuple(drops.get(number, ()))) for number, each in enumerate(found)]
        return steps, returned

    def _step(self, found: tuple[Instruction, tuple[Value, ...], tuple[Region, ...]], drops: tuple[int, ...]) -> Step:
        instruction, captured, regions = found
        for result in instruction.results:
            if not isinstance(result.type, TensorType):
                why = f"a machine computes tensors, not {result.type}"
                raise UnsupportedError(instruction.name, self.backend.name, why, instruction.location)
        plan = self.layouts
        return Step(
            instruction,
            tuple(map(self._slot, instruction.operands)),
            tuple(map(self._slot, instruction.results)),
            plan.wanted.get(instruction, (ROW_MAJOR,) * len(instruction.operands)),
            tuple(plan.made.get(each, ROW_MAJOR) for each in instruction.results),
            drops,
            instruction in plan.relabelled,
            instruction.op.host_role == "alias",
            () if regions else tuple((each, self._slot(each)) for each in captured),
            regions,
        )

    def _regions(self, instruction: Instruction) -> tuple[Region, ...]:
        if not is_control_flow(instruction):
            return ()
        if instruction.op.host_role not in ("loop", "branch"):
            why = "a machine runs loops and branches, no other construct"
            raise UnsupportedError(instruction.name, self.backend.name, why, instruction.location)
        return tuple((tuple(map(self._slot, region.arguments)), self._block(region)) for region in instruction.regions)

    def _slot(self, value: Value) -> int:
        return self.slots.setdefault(value, len(self.slots))


def _captured(instruction: Instruction) -> tuple[Value, ...]:
    """The values that an instruction's regions read from outside of it."""
    if not instruction.regions:
        return ()
    inside = {value for each in instruction.walk() for value in each.results}
    for each in instruction.walk():
        for region in each.regions:
            inside.update(region.arguments)
    read = (value for each in instruction.walk() if each is not instruction for value in each.operands)
    return tuple(dict.fromkeys(value for value in read if value not in inside))
