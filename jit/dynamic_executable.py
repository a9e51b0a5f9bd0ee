"""Executables of programs that leave sizes open: they are compiled for the shapes that they are called with.

    executable = hlojit.compile("func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {...}")
    executable(np.ones((3, 4), np.float32))         # compiles for 3 rows
    executable(np.ones((5, 4), np.float32))         # and for 5
    executable                                      # ... 2 specializations of at most 64

What was compiled is kept, the least recently used of it given up when there is too much.  Arguments whose elements decide
shapes (a number of rows that is passed as an integer) count with their elements.  See docs/decisions/dynamic-shapes.md.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np
from hlojit.arrays import Array, plain_storage, to_storage
from hlojit.compiled import CompiledProgram, write
from hlojit.device_call import refuse_keywords
from hlojit.extensions import Device
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.ir.in_flight import InFlight, Role
from hlojit.ir.process_grid import ProcessGrid
from hlojit.ir.types import DYNAMIC, TensorType, UnrankedTensorType

Shapes = tuple[tuple[int, ...], ...]
Key = tuple[Shapes, tuple[bytes, ...]]


class Made(NamedTuple):
    """An executable, and why it is one for its shapes alone where the program is compiled once for all."""

    executable: Any
    why: str = ""


Specializer = Callable[[Sequence[TensorType], Mapping[int, Any]], Made]
"""``specialize(types, values)`` makes what runs arguments of these types, some with elements that are given by number."""

_compilations: Final = InFlight()
"""By executable and key."""


@final
class DynamicExecutable:
    """A program for arguments of many shapes, callable like an ``Executable``; see the module's docstring.

    ``dynamic_shapes`` is ``"specialize"`` where each combination of shapes has a compiled program of its own, and ``"symbolic"``
    where one serves all.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorType | UnrankedTensorType],
        outputs: Sequence[TensorType | UnrankedTensorType],
        specialize: Specializer,
        *,
        size_arguments: Sequence[int] = (),
        limit: int = 64,
        grid: ProcessGrid | None = None,
        dynamic_shapes: str = "specialize",
        why: str = "",
        program: CompiledProgram | None = None,
    ):
        self.name = name
        self.input_types: Final = tuple(inputs)
        self.output_types: Final = tuple(outputs)
        self.size_arguments: Final = tuple(size_arguments)
        """Numbers of the arguments whose elements decide shapes."""
        self.limit: Final = limit
        self.dynamic_shapes: Final = dynamic_shapes
        self.why: Final = why
        """Why the program is not compiled once for all shapes, if that was asked for."""
        self.program: Final = program
        """Of a program that is compiled once for all sizes, the program as data."""
        self._grid: Final = grid or ProcessGrid()
        self._specialize: Final = specialize
        self._known: dict[Key, list[Any]] = {}
        """Executable, time of the last use, and why it is an exception."""
        self._clock: Final = itertools.count()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Run with arrays of any shapes that fit; what has not run with their shapes before is compiled first."""
        if keywords:
            refuse_keywords(self.name, self.input_types, keywords)
        return self._for(arguments)(*arguments)

    def execute(self, *arguments: Any, **options: Any) -> Any:
        """As ``Executable.execute``: start and return at once (where it has to be compiled, after that)."""
        return self._for(arguments).execute(*arguments, **options)

    def specialized(self, *arguments: Any) -> Any:
        """The executable for the shapes of these arguments, compiled if there is none yet."""
        return self._for(arguments)

    def alone(self, types: Sequence[TensorType], values: Mapping[int, Any]) -> Any:
        """The executable for arguments of these types, some with known elements; it is not kept."""
        return self._specialize(types, values).executable

    @property
    def specializations(self) -> dict[Shapes, Any]:
        """The executables that are kept, by the arguments' shapes, the most recently used one last."""
        kept = sorted(self._known.items(), key=lambda item: item[1][1])
        return {key[0]: executable for key, (executable, *_) in kept}

    @property
    def exceptions(self) -> dict[Shapes, str]:
        """Of what is kept, the shapes for which one compilation for all would be wrong, and why: they have their own."""
        return {key[0]: why for key, (*_, why) in list(self._known.items()) if why}

    @property
    def num_replicas(self) -> int:
        """Of the grid of processes."""
        return self._grid.replicas

    @property
    def num_partitions(self) -> int:
        """Of each replica."""
        return self._grid.partitions

    @property
    def devices(self) -> tuple[Device, ...]:
        """Where the compiled programs can run; empty before there is one."""
        for executable, *_ in list(self._known.values()):
            found: tuple[Device, ...] = executable.devices
            return found
        return ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """As ``Executable.save``, of a program that is compiled once for all sizes; of others refused."""
        write(self.compiled_program(), path)

    def compiled_program(self) -> CompiledProgram:
        """The program as data, if it is compiled once for all sizes.

        Otherwise there is one for each combination of shapes, of which ``specialized(...)`` gives one that can be saved.
        """
        if self.program is not None:
            return self.program
        raise HlojitError(
            f"{self.name} is compiled for each combination of shapes and has no one file; save "
            "executable.specialized(*arguments), or the program's text"
        )

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, types)) for types in (self.input_types, self.output_types))
        count = len(self._known)
        return (
            f"<DynamicExecutable {self.name}: ({inputs}) -> ({outputs}), {self._how(count)}"
            f"{f', because {self.why}' if self.why else ''}>"
        )

    def _how(self, count: int) -> str:
        if self.dynamic_shapes == "symbolic":
            exceptions = len(self.exceptions)
            return "compiled once for all sizes" + (
                f", but for {exceptions} exception{'' if exceptions == 1 else 's'}" if exceptions else ""
            )
        return f"{count} specialization{'' if count == 1 else 's'} of at most {self.limit}"

    def _for(self, arguments: Sequence[Any]) -> Any:
        """The executable for arguments: the known one, or one that is compiled now."""
        row = arguments if self._grid.processes == 1 else self._one_row(arguments)
        key = self._key(row)
        entry = self._known.get(key)
        while entry is None:
            with _compilations.turn((id(self), key)) as role:
                if role is Role.AFTER:
                    entry = self._known.get(key)
                    continue
                types = [type_.refined(shape) for type_, shape in zip(self.input_types, key[0])]
                values = {
                    number: np.frombuffer(data, types[number].element_type.storage).reshape(types[number].shape)
                    for number, data in zip(self.size_arguments, key[1])
                }
                made = self._specialize(types, values)
                entry = [made.executable, 0, made.why]
                self._known[key] = entry
                self._forget(key)
        entry[1] = next(self._clock)
        return entry[0]

    def _forget(self, newest: Key) -> None:
        """Give up what was used longest ago, where there is too much."""
        while len(self._known) > self.limit:
            others = (item for item in list(self._known.items()) if item[0] != newest)
            oldest = min(others, key=lambda item: item[1][1], default=None)
            # Another thread may have given up the others meanwhile.
            if oldest is None:
                return
            self._known.pop(oldest[0], None)

    def _key(self, arguments: Sequence[Any]) -> Key:
        if len(arguments) != len(self.input_types):
            expected = len(self.input_types)
            raise ArgumentError(
                f"{self.name} takes {expected} argument{'s' if expected != 1 else ''}, not {len(arguments)}: "
                f"({', '.join(map(str, self.input_types))})"
            )
        shapes = tuple(
            argument.shape if type(argument) is np.ndarray else self._shape_of(argument, number)
            for number, argument in enumerate(arguments)
        )
        for number, (shape, type_) in enumerate(zip(shapes, self.input_types)):
            if isinstance(type_, TensorType) and shape != type_.shape:
                self._check(number, shape, type_)
        values = []
        for number in self.size_arguments:
            where, type_ = f"{self.name}, argument {number}", self.input_types[number].refined(shapes[number])
            values.append(to_storage(arguments[number], type_, where).tobytes())
        return shapes, tuple(values)

    def _shape_of(self, argument: Any, number: int) -> tuple[int, ...]:
        if isinstance(argument, (np.ndarray, Array)):
            return tuple(argument.shape)
        if isinstance(argument, (bool, int, float, complex)):
            return ()
        found = getattr(argument, "shape", None)
        if isinstance(found, tuple) and all(isinstance(extent, int) for extent in found):
            return found
        return plain_storage(argument, f"{self.name}, argument {number}")[1].shape

    def _check(self, number: int, shape: tuple[int, ...], type_: TensorType) -> None:
        """Raise ``ArgumentError`` if an argument cannot have this shape."""
        where = f"{self.name}, argument {number}: expected {type_}, got an array of shape {shape}"
        if len(shape) != type_.rank:
            raise ArgumentError(f"{where}: it has {len(shape)} dimensions, not {type_.rank}")
        bounds = type_.bounds or (DYNAMIC,) * type_.rank
        for dimension, (found, expected, bound) in enumerate(zip(shape, type_.shape, bounds)):
            if expected not in (DYNAMIC, found):
                raise ArgumentError(f"{where}: dimension {dimension} is {found}, not {expected}")
            if expected == DYNAMIC and bound != DYNAMIC and found > bound:
                raise ArgumentError(f"{where}: dimension {dimension} is {found}, more than its bound {bound}")

    def _one_row(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """The arguments of the first of several processes, whose shapes are those of all."""
        rows = arguments[0] if len(arguments) == 1 else None
        count = self._grid.processes
        if (
            not isinstance(rows, (list, tuple))
            or len(rows) != count
            or not all(isinstance(r, (list, tuple)) for r in rows)
        ):
            raise ArgumentError(
                f"{self.name} is run by {count} processes ({self._grid}): pass a list of {count} lists of arguments, one for "
                "each process"
            )
        keys = [self._key(row) for row in rows]
        for process, key in enumerate(keys):
            if key != keys[0]:
                raise ArgumentError(
                    f"{self.name}: the arguments of process {process} have shapes {key[0]}, those of process 0 {keys[0][0]}; "
                    "all processes run one program"
                )
        first: Sequence[Any] = rows[0]
        return first
