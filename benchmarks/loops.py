"""Loops under ``@jit`` beside numba and JAX: ``python -m benchmarks.loops``.

Each program is written as users of each system would: with ``hlojit.fori_loop`` and its kin, as Python's own loops for
``numba.njit``, and with ``jax.lax``'s loops.  ``same`` is hlojit, too: numba's own function, every loop and element of it, under
``hlojit.jit`` as it stands.  A ratio is a peer's time divided by hlojit's, both the least of many calls taken turn by turn in one
process with one thread each (``--threads``), calls of Python included; above 1, hlojit is faster.  Results are compared first.
The first call of each system is timed as well, with no cache on disk; ``--output FILE`` writes the figures as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hlojit.tracing.errors import TracingError

from benchmarks.__main__ import geometric_mean
from benchmarks.__main__ import machine as described


def run_together(
    systems: dict[str, Callable[..., Any]], arguments: tuple[Any, ...], seconds: float
) -> dict[str, float]:
    """The least time of a call of each system, taken turn by turn."""
    least = dict.fromkeys(systems, float("inf"))
    batch = {}
    for system, run in systems.items():
        begun = time.perf_counter()
        run(*arguments)
        batch[system] = max(1, int(5e-5 / max(time.perf_counter() - begun, 1e-7)))
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < 3 or (time.perf_counter() < end and rounds < 5000):
        for system, run in systems.items():
            count = batch[system]
            begun = time.perf_counter()
            for _ in range(count):
                run(*arguments)
            least[system] = min(least[system], (time.perf_counter() - begun) / count)
        rounds += 1
    return least


def as_tuple(result: Any) -> tuple[Any, ...]:
    """Results as a tuple of arrays."""
    return tuple(np.asarray(each) for each in (result if isinstance(result, tuple) else (result,)))


def check(name: str, system: str, found: Any, expected: Any) -> None:
    """Compare the results of two systems."""
    for one, other in zip(as_tuple(found), as_tuple(expected), strict=True):
        if not np.allclose(one, other, rtol=1e-6, atol=1e-9):
            raise AssertionError(f"{name}: {system} differs by {np.abs(one - other).max()}")


def _ready(result: Any) -> Any:
    import jax

    return jax.block_until_ready(result)


def measure(name: str, with_jax: bool, seconds: float) -> dict[str, Any]:
    """Compile, compare and time one program."""
    from benchmarks.loop_programs import PROGRAMS

    program = PROGRAMS[name]()
    systems = {"hlojit": program.hlojit, "numba": program.numba, "same": same_function(program.numba)}
    if with_jax and program.jax is not None:
        peer = program.jax
        systems["jax"] = lambda *arguments: _ready(peer(*arguments))
    first, results, refused = {}, {}, {}
    for system, run in list(systems.items()):
        begun = time.perf_counter()
        try:
            results[system] = as_tuple(run(*program.arguments))
        except (TracingError, AttributeError) as error:
            refused[system] = str(error)
            del systems[system]
            continue
        first[system] = time.perf_counter() - begun
        check(name, system, results[system], results[next(iter(systems))])
    least = run_together(systems, program.arguments, seconds)
    return {"name": name, "seconds": least, "first_call": first, "refused": refused}


def same_function(of_numba: Any) -> Callable[..., Any]:
    """What numba compiles, compiled by hlojit."""
    import hlojit

    compiled: Callable[..., Any] = hlojit.jit(of_numba.py_func)
    return compiled


def line(row: dict[str, Any]) -> str:
    """A row for people."""
    seconds, first = row["seconds"], row["first_call"]
    own = seconds["hlojit"]
    peers = "".join(
        f" {system} {seconds[system] * 1e6:11.2f} us {seconds[system] / own:7.2f}x"
        for system in seconds
        if system != "hlojit"
    )
    calls = " ".join(f"{system} {first[system]:.2f}" for system in first)
    return f"{row['name']:18} hlojit {own * 1e6:11.2f} us {peers}   first call, s: {calls}"


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", help="names of programs; all without")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.7, help="of each program")
    parser.add_argument("--no-jax", action="store_true")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    wanted = {
        "HLOJIT_CACHE": "off",
        "HLOJIT_NUM_THREADS": str(options.threads),
        "OPENBLAS_NUM_THREADS": str(options.threads),
        "JAX_ENABLE_X64": "1",
        "JAX_PLATFORMS": "cpu",
    }
    if options.threads == 1:
        wanted["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        # Libraries read these when they are loaded.
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.loops", *sys.argv[1:]], {**os.environ, **wanted})
    from benchmarks.loop_programs import PROGRAMS

    rows = []
    for name in options.programs or PROGRAMS:
        rows.append(measure(name, not options.no_jax, options.seconds))
        print(line(rows[-1]), flush=True)
    for peer in ("numba", "jax"):
        for own in ("hlojit", "same"):
            both = [row["seconds"] for row in rows if {peer, own} <= set(row["seconds"])]
            ratios = [each[peer] / each[own] for each in both]
            if ratios:
                mean, least = geometric_mean(ratios), min(ratios)
                print(f"geometric mean of {peer} / {own}: {mean:.2f} of {len(ratios)}, least {least:.2f}")
    if options.output:
        rounded = json.loads(json.dumps(rows), parse_float=lambda text: float(f"{float(text):.4g}"))
        lines = ",\n ".join(json.dumps(row) for row in rounded)
        machine = {**described(), "threads": options.threads}
        options.output.write_text(f'{{"machine": {json.dumps(machine)},\n"rows": [\n {lines}\n]}}\n')


if __name__ == "__main__":
    sys.exit(main())
