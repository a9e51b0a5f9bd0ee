"""One run of a schedule on a machine: asks for one instruction after the other, and waits for what was begun at the end.

%0 = dot_general %x, %w     evaluate returns Started(memories, done): begun
%1 = tanh %0                begun, the machine runs it behind %0
while ...                   waits for the condition alone
the end                     waits for all; what failed first, in the program's order, is raised with its place
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, final

import numpy as np
from hlojit.extensions.backends.layouts import ROW_MAJOR, Layout
from hlojit.extensions.devices.events import READY, Event
from hlojit.extensions.devices.profiles import Timing, profiling
from hlojit.extensions.kernels.kernel import kernel_answer
from hlojit.extensions.machines.interpreted_schedule import Schedule, Step
from hlojit.extensions.machines.machine import Held, Machine, held_of, kept_until
from hlojit.extensions.machines.machine_checks import clock, memories_of
from hlojit.extensions.machines.started import Started
from hlojit.ir.errors import ExecutionError, HlojitError, PluginError, repr_of
from hlojit.ir.vendor_places import told


@final
class Box:
    """A handle: empty until the program that makes it has run."""

    __slots__ = ("held",)

    def __init__(self, held: Held | None = None):
        self.held = held

    def read(self) -> Held:
        """What is in it."""
        if self.held is None:
            raise ExecutionError("the value has not been made")
        return self.held


@final
class Run:
    """One run; see the module's docstring."""

    def __init__(self, machine: Machine, code: Schedule, device: str = ""):
        self._machine = machine
        self._code = code
        self._device: Final = device
        self._profile: Final = profiling()
        self._values: list[Held | None] = [None] * code.slots
        self._converted: dict[int, dict[Layout, Held]] = {}
        """By slots, in other layouts than their own."""
        self._begun: list[Event] = []
        """What may not have happened yet, in the program's order."""
        self._is_stopped = False

    def of(self, arguments: Sequence[Box]) -> list[Held]:
        """The results, when all that was begun has ended."""
        try:
            results = self._followed(arguments)
        except BaseException:
            self.stop()
            self._wait()
            raise
        if (failed := self._wait()) is not None:
            raise failed
        return results

    def stop(self) -> None:
        """Ask that it ends soon: behind the instruction that is evaluated, and with what can be ended of what was begun."""
        self._is_stopped = True
        for each in list(self._begun):
            each.stop()

    def _wait(self) -> BaseException | None:
        """Wait for all that was begun; returns the first error."""
        failed: BaseException | None = None
        for each in self._begun:
            try:
                each.wait()
            except ExecutionError:
                if failed is None:
                    failed = each.error
                    self.stop()
        return failed

    def _followed(self, arguments: Sequence[Box]) -> list[Held]:
        converted: list[tuple[Box, Held]] = []
        for slot, box, layout in zip(self._code.arguments, arguments, self._code.layouts):
            held = self._values[slot] = self._in(box.read(), layout)
            converted.append((box, held))
        for slot, held in self._constants():
            self._values[slot] = held
        results = self._block(self._code.body)
        for box, held in converted:
            held.ready.then(partial(_keep, box, held))
        return results

    def _block(self, block: tuple[Sequence[Step], Sequence[int]]) -> list[Held]:
        steps, returned = block
        for step in steps:
            if self._is_stopped:
                raise ExecutionError(f"stopped before {_where(step)}")
            for slot, held in zip(step.results, self._step(step)):
                self._values[slot] = held
                self._converted.pop(slot, None)
            for slot in step.drops:
                self._values[slot] = None
                self._converted.pop(slot, None)
        return [self._at(slot) for slot in returned]

    def _step(self, step: Step) -> Sequence[Held]:
        if step.regions:
            return self._loop(step) if step.instruction.op.host_role == "loop" else self._branch(step)
        operands = [self._wanted(slot, layout) for slot, layout in zip(step.operands, step.wanted)]
        if step.is_alias:
            return operands
        made = self._timed(step, operands)
        types = [result.tensor_type for result in step.instruction.results]
        try:
            memories = memories_of(self._machine, made, types, self._method(step))
        except PluginError as error:
            raise PluginError(f"{_where(step)}: {error}") from error
        ready = READY
        if isinstance(made, Started):
            ready = self._named(step, made.done)
        # What a machine hands through where only labels change is the operand, which is freed once.
        through = [next((held for held in operands if held.memory is each), None) for each in memories]
        if not step.is_relabelled:
            self._expect_new(step, operands, memories)
        results = [
            Held(self._machine, each, type_, layout, ready, step.instruction)
            if held is None or held.layout != layout
            else held
            for each, held, type_, layout in zip(memories, through, types, step.made)
        ]
        if not ready.is_settled:
            kept_until(ready, *results, *operands)
        return results

    def _expect_new(self, step: Step, operands: Sequence[Held], memories: Sequence[Any]) -> None:
        """Others may still read an operand: a machine that computes in its place changes their numbers."""
        for number, (memory, result) in enumerate(zip(memories, step.instruction.results)):
            if memory is None or result.tensor_type.size == 0:
                continue
            operand = next((index for index, held in enumerate(operands) if _is_in(memory, held.memory)), None)
            if operand is not None:
                machine = type(self._machine).__name__
                raise PluginError(
                    f"{_where(step)}: {machine} returned the memory of operand {operand} as result {number}; it returns "
                    "new memory, a copy where nothing changes, since others may still read the operand"
                )

    def _timed(self, step: Step, operands: Sequence[Held]) -> Any:
        """What the machine returns for an instruction; how long that took goes to whoever profiles."""
        profile = self._profile
        if profile is None:
            return self._made(step, operands)
        for each in operands:
            _wait_quietly(each.ready)
        begin = clock(self._machine)
        made = self._made(step, operands)
        took: float | None = None
        if isinstance(made, Started) and isinstance(made.done, Event):
            _wait_quietly(made.done)
            took = made.done.nanoseconds
        if took is None:
            took = clock(self._machine) - begin
        kernel = kernel_answer(step.instruction)
        what = step.instruction.name if kernel is None else kernel.name
        profile.add(Timing(self._device, what, str(step.instruction.location), took))
        return made

    def _made(self, step: Step, operands: Sequence[Held]) -> Any:
        """What the machine returns for an instruction."""
        machine, instruction = self._machine, step.instruction
        if step.is_relabelled:
            type_ = instruction.results[0].tensor_type
            made = self._called(step, machine.relabelled, operands[0], type_, step.made[0])
            return made if isinstance(made, Started) else [made]
        if step.captured:
            captured = {value: self._at(slot) for value, slot in step.captured}
            return self._called(step, machine.by_reference, instruction, operands, step.made, captured)
        if (kernel := kernel_answer(instruction)) is not None:
            return self._called(step, kernel.answer.function, machine, *operands)
        return self._called(step, machine.evaluate, instruction, operands, step.made)

    def _method(self, step: Step) -> str:
        """Which of the machine's methods computes an instruction; of a kernel none of them."""
        if step.is_relabelled:
            return "relabelled"
        if step.captured:
            return "by_reference"
        return "evaluate" if kernel_answer(step.instruction) is None else ""

    def _called(self, step: Step, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except HlojitError:
            raise
        except (Exception, SystemExit) as error:
            raise ExecutionError(
                f"{_where(step)}: {type(self._machine).__name__} raised {told(error, function)}"
            ) from error

    def _named(self, step: Step, done: Event) -> Event:
        """The end of an instruction that was begun, with an error that names it."""
        named = Event(done.stop)

        def ended(event: Event) -> None:
            named.nanoseconds = event.nanoseconds
            error = event.error
            if error is not None:
                failed = ExecutionError(f"{_where(step)}: {type(self._machine).__name__}: {repr_of(error)}")
                failed.__cause__ = error
                error = failed
            named.complete(error)

        self._begun = [each for each in self._begun if not each.is_settled or each.error is not None]
        self._begun.append(named)
        done.then(ended)
        return named

    def _loop(self, step: Step) -> list[Held]:
        state = [self._in(self._at(slot), ROW_MAJOR) for slot in step.operands]
        (conditions, condition), (arguments, body) = step.regions
        while True:
            self._fill(conditions, state)
            (going,) = self._block(condition)
            if not bool(going.read()):
                return state
            self._fill(arguments, state)
            self._fill(conditions, ())
            del state
            state = [self._in(each, ROW_MAJOR) for each in self._block(body)]

    def _branch(self, step: Step) -> list[Held]:
        index = self._at(step.operands[0]).read()
        count = len(step.regions)
        if index.dtype == np.bool_:
            number = 0 if bool(index) else 1
        else:
            number = int(index) if 0 <= int(index) < count else count - 1
        _, block = step.regions[number]
        return [self._in(each, ROW_MAJOR) for each in self._block(block)]

    def _fill(self, slots: Sequence[int], values: Sequence[Held]) -> None:
        for number, slot in enumerate(slots):
            self._values[slot] = values[number] if values else None
            self._converted.pop(slot, None)

    def _at(self, slot: int) -> Held:
        found = self._values[slot]
        assert found is not None, f"slot {slot} is empty"
        return found

    def _in(self, held: Held, layout: Layout) -> Held:
        if held.layout == layout:
            return held
        made = held_of(self._machine, self._machine.convert(held, layout), held.type, layout, "convert")
        if not made.ready.is_settled:
            self._begun.append(made.ready)
            kept_until(made.ready, held)
        return made

    def _wanted(self, slot: int, layout: Layout) -> Held:
        """A value in a layout; converted once, as long as the value lives."""
        held = self._at(slot)
        if held.layout == layout:
            return held
        known = self._converted.setdefault(slot, {})
        if layout not in known:
            known[layout] = self._in(held, layout)
        return known[layout]

    def _constants(self) -> list[tuple[int, Held]]:
        """Put on the machine once, and again if that failed."""
        machine = self._machine
        _, found = self._code.kept.get(id(machine), (machine, None))
        if found is None or any(held.ready.error is not None for _, held in found):
            found = [
                (slot, held_of(machine, machine.put(array, type_, layout), type_, layout))
                for slot, array, type_, layout in self._code.constants
            ]
            self._code.kept[id(machine)] = machine, found
        self._begun.extend(held.ready for _, held in found if not held.ready.is_settled)
        return found


def _is_in(memory: Any, operand: Any) -> bool:
    """Whether a memory is an operand's, or a view of it where both are NumPy's."""
    if isinstance(memory, np.ndarray) and isinstance(operand, np.ndarray):
        return bool(np.shares_memory(memory, operand))
    return memory is operand


def _wait_quietly(event: Event) -> None:
    """Wait; who needs the result gets the error."""
    with contextlib.suppress(ExecutionError):
        event.wait()


def _keep(box: Box, held: Held, ready: Event) -> None:
    """Have an argument lie as the program wants it from now on: the next one that is given it finds it so."""
    if ready.error is None:
        box.held = held


def _where(step: Step) -> str:
    return f"{step.instruction.name} at {step.instruction.location}"
