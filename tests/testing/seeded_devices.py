"""Devices in Python that are wrong, each in its own way: the kit has to find it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hlojit.extensions as ext
import numpy as np
from hlojit import testing
from hlojit.extensions import Event, Started
from hlojit.ir import evaluate_instruction

from .plugins import TINY, plugin

Check = Callable[[], testing.Report]


class Plain(ext.Machine):
    """A right one, whose memory is NumPy's."""

    def put(self, array: Any, type: Any, layout: Any) -> Any:
        return np.array(layout.pack(array))

    def get(self, memory: Any, type: Any, layout: Any) -> Any:
        return np.array(layout.unpack(memory, type.shape))

    def computed(self, instruction: Any, operands: Any, layouts: Any) -> list[Any]:
        with np.errstate(all="ignore"):
            results = evaluate_instruction(instruction, [each.read() for each in operands])
        types = [result.tensor_type for result in instruction.results]
        arrays = (np.asarray(each).astype(kind.element_type.storage) for each, kind in zip(results, types))
        return [np.array(layout.pack(each)) for each, layout in zip(arrays, layouts)]

    def evaluate(self, instruction: Any, operands: Any, layouts: Any) -> Any:
        return self.computed(instruction, operands, layouts)


class Flushing(Plain):
    """Denormals get lost on the way."""

    def put(self, array: Any, type: Any, layout: Any) -> Any:
        made = np.array(layout.pack(array))
        if made.dtype == np.float32:
            made[np.abs(made) < np.finfo("f4").tiny] = 0
        return made


class ByAddress(Plain):
    """Memory by address, of which the oldest is given away where there is no more."""

    most = 12

    def __init__(self) -> None:
        self.arrays: list[Any] = []

    def keep(self, array: Any) -> Any:
        self.arrays.append(np.array(array))
        if len(self.arrays) > self.most:
            self.arrays[-1 - self.most] = np.zeros_like(self.arrays[-1 - self.most])
        return len(self.arrays) - 1

    def put(self, array: Any, type: Any, layout: Any) -> Any:
        return self.keep(layout.pack(array))

    def get(self, memory: Any, type: Any, layout: Any) -> Any:
        return np.array(layout.unpack(self.arrays[memory], type.shape))

    def evaluate(self, instruction: Any, operands: Any, layouts: Any) -> Any:
        return [self.keep(each) for each in self.computed(instruction, operands, layouts)]


class FreedTwice(Plain):
    """Freed memory stands in the list twice, and is given to two."""

    def __init__(self) -> None:
        self.free_ones: list[Any] = []

    def keep(self, array: Any) -> Any:
        for number, each in enumerate(self.free_ones):
            if each.nbytes >= array.nbytes:
                cell = self.free_ones.pop(number)
                break
        else:
            cell = np.zeros(max(64, array.nbytes), np.uint8)
        cell[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return cell, array.dtype, array.shape

    def free(self, memory: Any) -> None:
        self.free_ones += [memory[0], memory[0]]

    def put(self, array: Any, type: Any, layout: Any) -> Any:
        return self.keep(np.asarray(layout.pack(array)))

    def get(self, memory: Any, type: Any, layout: Any) -> Any:
        cell, dtype, shape = memory
        nbytes = int(np.prod(shape, dtype=int)) * dtype.itemsize
        return np.array(layout.unpack(cell[:nbytes].view(dtype).reshape(shape), type.shape))

    def evaluate(self, instruction: Any, operands: Any, layouts: Any) -> Any:
        return [self.keep(each) for each in self.computed(instruction, operands, layouts)]


class Lending(Plain):
    """Results are views of what the machine writes to again."""

    def __init__(self) -> None:
        self.cells: dict[Any, Any] = {}

    def get(self, memory: Any, type: Any, layout: Any) -> Any:
        array = np.array(layout.unpack(memory, type.shape))
        cell = self.cells.setdefault((array.dtype, array.shape), array)
        cell[...] = array
        return cell


class Early(Plain):
    """Says that a command is done before it is."""

    def evaluate(self, instruction: Any, operands: Any, layouts: Any) -> Any:
        made = self.computed(instruction, operands, layouts)
        cells = [np.zeros_like(each) for each in made]

        def late() -> None:
            time.sleep(0.002)
            for cell, each in zip(cells, made):
                cell[...] = each

        threading.Thread(target=late, daemon=True).start()
        done = Event()
        done.complete()
        return Started(cells, done)


class Deaf(Plain):
    """Runs commands side by side, and does not wait for what they read."""

    def evaluate(self, instruction: Any, operands: Any, layouts: Any) -> Any:
        kinds = [result.tensor_type for result in instruction.results]
        cells = [np.zeros(layout.pack(np.zeros(kind.shape, kind.element_type.storage)).shape, kind.element_type.storage)
                 for kind, layout in zip(kinds, layouts)]  # fmt: skip
        done = Event()
        raw = [np.array(each.layout.unpack(each.memory, each.type.shape)) for each in operands]

        def run() -> None:
            time.sleep(0.001)
            with np.errstate(all="ignore"):
                results = evaluate_instruction(instruction, raw)
            for cell, each, layout in zip(cells, results, layouts):
                cell[...] = layout.pack(np.asarray(each).astype(cell.dtype))
            done.complete()

        threading.Thread(target=run, daemon=True).start()
        return Started(cells, done)


class Shared(Plain):
    """One scratch memory for all threads and all that is under way."""

    scratch: Any = None

    def evaluate(self, instruction: Any, operands: Any, layouts: Any) -> Any:
        Shared.scratch = self.computed(instruction, operands, layouts)
        time.sleep(0.0005)
        return [np.array(each) for each in Shared.scratch]


class LastTile(Plain):
    """What is in the last tile of a result is not written."""

    def evaluate(self, instruction: Any, operands: Any, layouts: Any) -> Any:
        made = self.computed(instruction, operands, layouts)
        kinds = [result.tensor_type for result in instruction.results]
        cells = [np.asarray(self.empty(kind)).reshape(each.shape) for each, kind in zip(made, kinds)]
        for cell, each in zip(cells, made):
            flat = each.reshape(-1)
            whole = flat.size // 16 * 16 if flat.size > 16 else flat.size
            cell.reshape(-1)[:whole] = flat[:whole]
        return cells


class Narrow(Plain):
    """Sums of f64 in f32."""

    def evaluate(self, instruction: Any, operands: Any, layouts: Any) -> Any:
        made = self.computed(instruction, operands, layouts)
        is_sum = instruction.name in ("stablehlo.add", "stablehlo.divide")
        with np.errstate(all="ignore"):
            return [each.astype("f4").astype("f8") if is_sum and each.dtype == "f8" else each for each in made]


class Small(Plain):
    """Has room for 100 elements."""

    def evaluate(self, instruction: Any, operands: Any, layouts: Any) -> Any:
        made = self.computed(instruction, operands, layouts)
        for each in made:
            each.reshape(-1)[100:] = 0
        return made


class Stuck(Plain):
    """A command that never ends."""

    def evaluate(self, instruction: Any, operands: Any, layouts: Any) -> Any:
        made = self.computed(instruction, operands, layouts)
        done = Event()
        if instruction.name != "stablehlo.tanh":
            done.complete()
        return Started(made, done)


def _backend(machine: Any, name: str = "kit-seeded") -> ext.Backend:
    class Seeded(ext.InterpretedBackend):
        def machines(self) -> Any:
            return machine if isinstance(machine, list) else [machine]

        def capability(self, instruction: Any) -> ext.Capability:
            return ext.DECOMPOSE if ext.can_decompose(instruction) else ext.YES

    Seeded.name = name
    return Seeded()


def check(machine: Any, *others: str, **said: Any) -> testing.Report:
    with ext.using(plugin("kit-seeded", backends=[_backend(machine)], api=(1, 2))):
        return testing.check_backend(["kit-seeded", *others] if others else "kit-seeded", **({"budget": TINY} | said))


DEVICES: dict[str, tuple[Check, tuple[str, ...]]] = {
    "a transfer that flushes denormals": (lambda: check(Flushing()), ("comes back as other bits",)),
    "memory that is given away while it is read": (lambda: check(ByAddress()), ()),
    "memory that is freed twice": (lambda: check(FreedTwice()), ()),
    "results that are written again": (lambda: check(Lending()), ("stay",)),
    "commands that are done too early": (lambda: check(Early()), ()),
    "commands that do not wait for what they read": (lambda: check(Deaf()), ()),
    "scratch memory that threads share": (lambda: check([Shared(), Shared()]), ("threads",)),
    "a last tile that is not written": (lambda: check(LastTile()), ("nobody has written",)),
    "f64 in f32": (lambda: check(Narrow()), ("f64",)),
    "a device with room for 100 elements": (lambda: check(Small()), ()),
    "a command that never ends": (
        lambda: check(Stuck(), budget=replace(TINY, run_seconds=0.3)),
        ("did not end within 0.3 s",),
    ),
    "a split device whose transfers lose": (lambda: check(Flushing(), "cpu"), ()),
}
