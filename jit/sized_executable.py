"""Executables of programs that are compiled once for all sizes: code, sizes as data, and a way out where these do not hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hlojit.compiled import CompiledProgram
from hlojit.dynamic_executable import DynamicExecutable, Made
from hlojit.executable import Executable
from hlojit.extensions import Backend, SizedCode
from hlojit.parallel_executable import ParallelExecutable
from hlojit.refined_program import check_sizes

Alone = Callable[[Sequence[Any], Mapping[int, Any]], Any]
"""Makes the executable for arguments of certain types alone, some with known elements."""


def sized_executable(
    compiled: CompiledProgram, code: SizedCode, backend: Backend, alone: Alone, limit: int
) -> DynamicExecutable:
    """The executable of a program with sizes (``compiled.sized``), of which ``code`` is the code in this process."""
    sized = compiled.sized
    assert sized is not None

    def make(types: Sequence[Any], values: Mapping[int, Any]) -> Made:
        own = code.unfit(types, values) or ""
        if own:
            return Made(alone(types, values), own)
        check_sizes(compiled.name, sized.stated, types, values)
        bound = Executable(code.bind(types, values), backend)
        return Made(bound if compiled.grid.processes == 1 else ParallelExecutable(bound, compiled.grid))

    return DynamicExecutable(
        compiled.name,
        compiled.inputs,
        compiled.outputs,
        make,
        size_arguments=sized.size_arguments,
        limit=limit,
        grid=compiled.grid,
        dynamic_shapes="symbolic",
        program=compiled,
    )
