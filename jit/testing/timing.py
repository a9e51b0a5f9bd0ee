"""Times beside what is built in: least of several, in turns, reported and never judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hlojit.arrays import from_storage
from hlojit.compiler import compile as compile_program
from hlojit.ir.builder import build_function
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Module
from hlojit.ir.types import tensor
from hlojit.testing.arguments import Values, arguments_for
from hlojit.testing.execution import argument_types
from hlojit.testing.findings import Timing
from hlojit.testing.recorder import Recorder

_TURNS = 7


def least_times(functions: Sequence[Callable[[], Any]], turns: int = _TURNS) -> list[float]:
    """Nanoseconds of one call of each, the least of some turns."""
    best = [float("inf")] * len(functions)
    for function in functions:
        function()
    for _ in range(turns):
        for number, function in enumerate(functions):
            start = time.perf_counter_ns()
            function()
            best[number] = min(best[number], time.perf_counter_ns() - start)
    return best


def multiply_and_add(element: str, count: int) -> Module:
    """``x * y + z`` over ``count`` elements."""
    module = Module()
    kind = tensor((count,), element)
    with build_function(module, "main", [kind, kind, kind]) as builder:
        x, y, z = builder.arguments
        builder.return_(builder.add(builder.multiply(x, y), z))
    return module


def prepared(module: Module, backend: str | Sequence[str], seed: int = 0) -> Callable[[], Any]:
    """A call of a program with ordinary arguments."""
    executable = compile_program(module, backend=backend)
    arrays = arguments_for(module, seed=seed, values=Values.ORDINARY)
    outside: list[Any] = [
        from_storage(np.ascontiguousarray(a), kind) for a, kind in zip(arrays, argument_types(module))
    ]
    return lambda: executable(*outside)


def compare_times(recorder: Recorder, what: str, element: str, baselines: Sequence[str], count: int) -> None:
    """Report ``x * y + z`` of an element type beside others, on the CPU."""
    try:
        calls = [prepared(multiply_and_add(name, count), "cpu", recorder.seed) for name in (element, *baselines)]
        own, *others = least_times(calls)
    except HlojitError:
        return  # what fails is reported where it is checked
    name = f"{what} over {count:,} {element}"
    recorder.timings += [Timing(name, own, baseline, other) for baseline, other in zip(baselines, others)]
