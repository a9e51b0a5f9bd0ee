"""Executables of programs with results whose size only the run tells: the arrays that come out have their actual sizes.

The program underneath returns each such result in memory of its bound's size, the sizes behind the other results, and behind
these whether one was beyond its bound (``ir/passes/dynamic_padder.py``).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, final

import numpy as np
from hlojit.arrays import Array
from hlojit.compiled import CompiledProgram, write
from hlojit.device_call import has_device_array
from hlojit.executable import Executable, ExecutableSpec
from hlojit.extensions import Device
from hlojit.ir.errors import ExecutionError
from hlojit.ir.passes.dynamic_padder import RunTimeSizes
from hlojit.ir.types import TensorType
from hlojit.placement import put


@final
class BoundedExecutable:
    """A program some of whose results are the beginnings of what the program underneath returns."""

    dynamic_shapes: Final = "static"
    """The sizes of all arguments are known."""

    def __init__(self, executable: Executable, outputs: Sequence[TensorType], sizes: RunTimeSizes):
        self._executable: Final = executable
        self.output_types: Final = tuple(outputs)
        """Types of the results, with bounds."""
        self._sizes: Final = sizes

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Run; results have the sizes that the program computed."""
        results = self._cut(self._executable(*arguments, **keywords))
        if has_device_array(arguments):
            results = [put(each, next(a.device for a in arguments if getattr(a, "device", None))) for each in results]
        return results[0] if len(results) == 1 else tuple(results)

    def execute(self, *arguments: Any, device: Device | str | None = None) -> Any:
        """As ``Executable.execute``, but that it waits for the sizes: arrays on a device have their sizes from the beginning."""
        started = self._executable.execute(*arguments, device=device)
        where = (started[0] if isinstance(started, tuple) else started).device
        results = [put(each, where) for each in self._cut(started)]
        return results[0] if len(results) == 1 else tuple(results)

    @property
    def spec(self) -> ExecutableSpec:
        """What the program underneath is made of."""
        return self._executable.spec

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        """Types of the arguments."""
        return self._executable.input_types

    @property
    def devices(self) -> tuple[Device, ...]:
        """Where the program can run."""
        return self._executable.devices

    def save(self, path: str | os.PathLike[str]) -> None:
        """As ``Executable.save``."""
        write(self.compiled_program(), path)

    def compiled_program(self) -> CompiledProgram:
        """As ``Executable.compiled_program``."""
        compiled = self._executable.compiled_program()
        results = zip(self.output_types, self._sizes.results, strict=True)
        bounded = tuple((type, tuple(sizes.items())) for type, sizes in results)
        limits = tuple((limit.place, limit.message) for limit in self._sizes.limits)
        return replace(compiled, bounded=bounded, limits=limits)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, types)) for types in (self.input_types, self.output_types))
        return f"<BoundedExecutable {self.spec.name}: ({inputs}) -> ({outputs})>"

    def _cut(self, returned: Any) -> list[Any]:
        values: list[Any] = list(returned) if isinstance(returned, tuple) else [returned]
        if self._sizes.limits:
            *values, broken, size = values
            number = int(np.asarray(broken))
            if number:
                raise ExecutionError(
                    f"{self.spec.name}: {self._sizes.limits[number - 1].complaint(int(np.asarray(size)))}"
                )
        found = []
        for sizes, value in zip(self._sizes.results, values):
            array = value.storage if isinstance(value, Array) else value
            ranges = [slice(None)] * array.ndim
            for dimension, position in sizes.items():
                ranges[dimension] = slice(int(np.asarray(values[position])))
            part = np.ascontiguousarray(array[tuple(ranges)]) if sizes else array
            found.append(Array(part, value.element_type) if isinstance(value, Array) else part)
        return found
