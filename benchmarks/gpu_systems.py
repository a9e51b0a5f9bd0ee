"""The two systems of ``benchmarks.gpu`` in one process: how each compiles, runs, waits and is timed.

Both are given arrays that are on the device already, and leave their results there.  A *call* is waited for; *queued* calls are
started one after the other and waited for together, so that what the host does is hidden where the device takes longer.
The device's own time of a program is taken by events on hlojit's stream, of JAX's kernels by JAX's profiler.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

import jax
import numpy as np

from benchmarks.programs import Program

LEAD_BYTES = 256 << 20
"""Copied within the device to give the host a lead (``hlojit.gpu.launch_times``)."""
_ROUND_SECONDS = 0.03
_MOST_CALLS = 200


class System(ABC):
    """A program of one system, compiled, with its arguments on the device."""

    name: str
    compile_seconds: float

    @abstractmethod
    def start(self) -> Any:
        """Start the program; the results, which may be pending."""

    @abstractmethod
    def wait(self, results: Any) -> None:
        """Wait for them."""

    @abstractmethod
    def fetch(self, result: Any) -> np.ndarray[Any, Any]:
        """One result as an array of the host."""

    @abstractmethod
    def results(self) -> list[Any]:
        """Of one run, one after the other."""

    def call(self) -> float:
        """Seconds of one call that is waited for."""
        begin = time.perf_counter()
        self.wait(self.start())
        return time.perf_counter() - begin

    def queued(self, calls: int) -> tuple[float, float]:
        """Seconds a call of several that are waited for together: until all are started, and until all are done."""
        begin = time.perf_counter()
        for _ in range(calls - 1):
            self.start()
        last = self.start()
        started = time.perf_counter()
        self.wait(last)
        return (started - begin) / calls, (time.perf_counter() - begin) / calls


@final
class Hlojit(System):
    """hlojit on its back end ``cuda``; ``libraries`` says whether cuBLASLt may compute products."""

    def __init__(self, text: str, arguments: Sequence[Any], libraries: str = "auto"):
        import hlojit

        self.name = "hlojit" if libraries == "auto" else "hlojit, own kernels"
        begin = time.perf_counter()
        self.executable = hlojit.compile(text, backend="cuda", options={"libraries": libraries})
        self.compile_seconds = time.perf_counter() - begin
        self.arguments = list(arguments)
        self._get = hlojit.get

    @staticmethod
    def put(arrays: Sequence[Any]) -> list[Any]:
        """Arrays on the device."""
        import hlojit

        placed = [hlojit.put(each, "cuda") for each in arrays]
        for each in placed:
            each.wait()
        return placed

    def start(self) -> Any:
        return self.executable.execute(*self.arguments)

    def wait(self, results: Any) -> None:
        (results[-1] if isinstance(results, tuple) else results).wait()

    def results(self) -> list[Any]:
        found = self.start()
        return list(found) if isinstance(found, tuple) else [found]

    def fetch(self, result: Any) -> np.ndarray[Any, Any]:
        return np.asarray(self._get(result))

    def uses_library(self) -> bool:
        """Whether a library may compute a part of it."""
        launches = self.executable.spec.program.launches()
        return any(phase.library for launch in launches for phase in launch.kernel.phases)


@final
class Jax(System):
    """JAX's compiler for the platform that JAX runs on."""

    name = "jax"

    def __init__(self, program: Program, arguments: Sequence[Any]):
        leaves, structure = jax.tree.flatten(program.arguments)
        assert len(leaves) == len(arguments)
        self.arguments = jax.tree.unflatten(structure, arguments)
        lowered = jax.jit(program.function).lower(*self.arguments)
        begin = time.perf_counter()
        self._compiled = lowered.compile()
        self.compile_seconds = time.perf_counter() - begin

    @staticmethod
    def put(arrays: Sequence[Any]) -> list[Any]:
        """Arrays on the device."""
        return list(jax.block_until_ready([jax.device_put(each) for each in arrays]))

    def start(self) -> Any:
        return self._compiled(*self.arguments)

    def wait(self, results: Any) -> None:
        jax.block_until_ready(results)

    def results(self) -> list[Any]:
        return list(jax.tree.leaves(self.start()))

    def fetch(self, result: Any) -> np.ndarray[Any, Any]:
        return np.asarray(result)

    def device_seconds(self, runs: int = 5) -> float | None:
        """What the kernels of a run take together, as JAX's profiler says; None where it has seen none."""
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                for _ in range(runs):
                    self.wait(self.start())
            (path,) = Path(folder).rglob("*.xplane.pb")
            total = kernel_nanoseconds(jax.profiler.ProfileData.from_file(os.fspath(path)))
        return total / runs * 1e-9 if total else None


def kernel_nanoseconds(profile: Any) -> float:
    """Of all kernels on GPUs in a profile: the lines of streams, not those that group their kernels by what they compute."""
    total = 0.0
    for plane in profile.planes:
        if plane.name.startswith("/device:GPU"):
            streams = [line for line in plane.lines if line.name.startswith("Stream")]
            total += sum(event.duration_ns for line in streams for event in line.events)
    return total


def take_turns(systems: Sequence[System], rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Times of all systems turn by turn: of a call, of starting one, and of one that is queued; medians and least."""
    once = {system.name: min(system.call() for _ in range(3)) for system in systems}
    counts = {
        name: max(2, min(_MOST_CALLS, int(_ROUND_SECONDS / max(seconds, 1e-6)))) for name, seconds in once.items()
    }
    calls: dict[str, list[float]] = {system.name: [] for system in systems}
    queued: dict[str, list[tuple[float, float]]] = {system.name: [] for system in systems}
    for _ in range(rounds):
        for system in systems:
            calls[system.name] += [system.call() for _ in range(max(2, counts[system.name] // 10))]
            queued[system.name].append(system.queued(counts[system.name]))
    return {
        system.name: {
            "call": spread(calls[system.name]),
            "started": spread([started for started, _ in queued[system.name]]),
            "queued": spread([done for _, done in queued[system.name]]),
        }
        for system in systems
    }


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Median and least of some times."""
    return {"median": statistics.median(seconds), "least": min(seconds)}


def text_for(program: Program) -> str:
    """StableHLO as JAX lowers the program for NVIDIA's GPUs, which need not be there."""
    lower: Callable[..., Any] = jax.jit(program.function).trace(*program.arguments).lower
    return str(lower(lowering_platforms=("cuda",)).as_text())


COMPARED = 1 << 24
"""Elements of a result that are compared one by one; of more, some from everywhere, and both ends."""


def difference(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> float:
    """The largest difference of two results, relative to the largest element; infinite where one is no number."""
    assert ours.shape == theirs.shape, f"{ours.shape} and {theirs.shape}"
    a, b = sample(ours.reshape(-1)), sample(theirs.reshape(-1))
    if not a.size:
        return 0.0
    scale = max(float(np.abs(b).max()), 1e-30)
    worst = float(np.abs(a - b).max()) / scale
    return worst if np.isfinite(worst) else float("inf")


def sample(flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What is compared of a result."""
    if flat.size > COMPARED:
        step = flat.size // COMPARED * 2 + 1
        flat = np.concatenate([flat[:4096], flat[::step], flat[-4096:]])
    return flat.astype(np.float64)
