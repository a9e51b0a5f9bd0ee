"""The functions of ``examples/functions``, as they stand, under four systems: ``python -m benchmarks.functions``.

Each is called as NumPy runs it, under ``hlojit.jit``, under ``numba.njit`` (its helpers too), and under ``jax.jit`` with
``jax.numpy`` in the place of NumPy, in 64 bits and with its whole numbers static.  A peer that does not take a function as it
stands, or whose result differs from NumPy's, has no time.  A time is the least of many calls taken turn by turn in one process,
calls of Python included, of the better one of ``--threads`` (all take one thread each, or all processors).
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from benchmarks.__main__ import geometric_mean
from benchmarks.__main__ import machine as described

FOLDER = Path(__file__).parents[1] / "examples" / "functions"
PEERS = ("numpy", "numba", "jax")
PATIENCE = 60
"""Seconds that a peer may take to compile one function; XLA unrolls some for minutes."""
Function = Callable[..., Any]


def names() -> list[str]:
    """Of all examples."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def module_of(name: str) -> ModuleType:
    """A module of its own at each call: peers change its names."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def under_hlojit(name: str, arguments: tuple[Any, ...]) -> Function:
    """Decorated."""
    import hlojit

    return hlojit.jit(getattr(module_of(name), name))


def under_numpy(name: str, arguments: tuple[Any, ...]) -> Function:
    """As it is."""
    function: Function = getattr(module_of(name), name)
    return function


def under_numba(name: str, arguments: tuple[Any, ...]) -> Function:
    """Decorated, with the functions beside it."""
    import numba

    module = module_of(name)
    own = [
        key
        for key, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__
    ]
    for key in own:
        setattr(module, key, numba.njit(getattr(module, key)))
    function: Function = getattr(module, name)
    return function


def under_jax(name: str, arguments: tuple[Any, ...]) -> Function:
    """Decorated, with ``jax.numpy``."""
    import jax

    jax.config.update("jax_enable_x64", True)
    module = module_of(name)
    vars(module)["np"] = jax.numpy
    if "erf" in vars(module):
        vars(module)["erf"] = jax.scipy.special.erf
    static = tuple(number for number, value in enumerate(arguments) if type(value) is int)
    function = jax.jit(getattr(module, name), static_argnums=static)
    return lambda *given: jax.block_until_ready(function(*given))


SYSTEMS: dict[str, Callable[[str, tuple[Any, ...]], Function]] = {
    "hlojit": under_hlojit,
    "numpy": under_numpy,
    "numba": under_numba,
    "jax": under_jax,
}


def leaves(result: Any) -> Iterator[Any]:
    """Arrays and numbers of a result."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (tuple, list)):
        for each in result:
            yield from leaves(each)
    else:
        yield result


def agrees(found: Any, expected: Any) -> bool:
    """Whether a peer has computed what NumPy does; its dtypes may be others."""
    a, b = list(leaves(found)), list(leaves(expected))
    return len(a) == len(b) and all(
        x == y if isinstance(y, str) else np.shape(x) == np.shape(y) and np.allclose(x, y, rtol=1e-3, atol=1e-4)
        for x, y in zip(a, b)
    )


def is_patient_enough(system: str, name: str) -> bool:
    """Whether a peer gets through its first call in time, which only a process of its own can be stopped at."""
    command = [sys.executable, "-m", "benchmarks.functions", "--once", system, "--names", name]
    try:
        subprocess.run(command, timeout=PATIENCE, capture_output=True, check=False)
    except subprocess.TimeoutExpired:
        return False
    return True


def ready(name: str, arguments: tuple[Any, ...]) -> tuple[dict[str, Function], dict[str, str], dict[str, float]]:
    """The systems that take a function, why others do not, and how long the first call took."""
    expected = under_numpy(name, arguments)(*copy.deepcopy(arguments))
    taken, refused, first = {}, {}, {}
    for system, make in SYSTEMS.items():
        if system == "jax" and not is_patient_enough(system, name):
            refused[system] = f"compiles for more than {PATIENCE} seconds"
            continue
        start = time.perf_counter()
        try:
            function = make(name, arguments)
            result = function(*copy.deepcopy(arguments))
        except Exception as error:
            refused[system] = (
                f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120] if str(error).strip() else ''}"
            )
            continue
        first[system] = time.perf_counter() - start
        if agrees(result, expected):
            taken[system] = function
        else:
            refused[system] = "another result than NumPy's"
    return taken, refused, first


def measure(name: str, seconds: float) -> dict[str, Any]:
    """Time one function, turn by turn."""
    arguments = module_of(name).sample(np.random.default_rng(0))
    taken, refused, first = ready(name, arguments)
    least = dict.fromkeys(taken, float("inf"))
    for system, function in taken.items():
        start = time.perf_counter()
        function(*copy.deepcopy(arguments))
        least[system] = time.perf_counter() - start
    batch = {system: max(1, int(1e-4 / each)) for system, each in least.items()}
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < 3 or (time.perf_counter() < end and rounds < 2000):
        for system, function in taken.items():
            start = time.perf_counter()
            for _ in range(batch[system]):
                function(*arguments)
            least[system] = min(least[system], (time.perf_counter() - start) / batch[system])
        rounds += 1
    return {"name": name, "seconds": least, "first": first, "refused": refused}


def merged(runs: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Of each system the better one of several settings."""
    rows = []
    for several in zip(*runs):
        least = {
            system: min(each["seconds"][system] for each in several if system in each["seconds"])
            for system in SYSTEMS
            if any(system in each["seconds"] for each in several)
        }
        rows.append({**several[0], "seconds": least})
    return rows


def means(result: dict[str, Any]) -> str:
    """How many times as long the peers take, on average over what each takes."""
    ratios = {
        peer: [row["seconds"][peer] / row["seconds"]["hlojit"] for row in result["rows"] if peer in row["seconds"]]
        for peer in PEERS
    }
    each = [f"{peer} {geometric_mean(several):.2f} of {len(several)}" for peer, several in ratios.items() if several]
    return f"geometric means: {'; '.join(each)}"


def page(result: dict[str, Any]) -> str:
    """A result file as Markdown."""
    lines = ["| function | hlojit, ms | NumPy | numba | JAX |", "|---|---|---|---|---|"]
    for row in result["rows"]:
        seconds = row["seconds"]
        cells = [f"{seconds[peer] / seconds['hlojit']:.2f}" if peer in seconds else "-" for peer in PEERS]
        lines.append(f"| `{row['name']}` | {seconds['hlojit'] * 1e3:.3g} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"{result['machine']['cpu']}; {means(result)}."])


def in_process(threads: int, chosen: list[str], seconds: float) -> list[dict[str, Any]]:
    """Measure in a process of a number of threads."""
    variables = ("HLOJIT_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(variables, str(threads))}
    if threads == 1:
        environment["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    command = [sys.executable, "-m", "benchmarks.functions", "--worker", "--seconds", str(seconds), "--names", *chosen]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def main() -> int:
    """Run the functions and print, or write, what was measured."""
    parser = argparse.ArgumentParser(prog="benchmarks.functions", description=__doc__)
    parser.add_argument("--names", nargs="+", choices=names(), default=names())
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, os.cpu_count() or 1}))
    parser.add_argument("--seconds", type=float, default=0.5, help="for which each function is called")
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--once", choices=list(SYSTEMS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        arguments = module_of(options.names[0]).sample(np.random.default_rng(0))
        SYSTEMS[options.once](options.names[0], arguments)(*arguments)
        return 0
    if options.worker:
        warnings.simplefilter("ignore")
        rows = []
        for number, name in enumerate(options.names, 1):
            print(f"{name} ({number} of {len(options.names)})", file=sys.stderr)
            rows.append(measure(name, options.seconds))
        print(json.dumps(rows))
        return 0
    runs = [in_process(threads, options.names, options.seconds) for threads in options.threads]
    result = {"machine": {**described(), "threads": options.threads}, "rows": merged(runs)}
    if options.output:
        rounded = json.loads(json.dumps(result["rows"]), parse_float=lambda text: float(f"{float(text):.4g}"))
        lines = ",\n ".join(json.dumps(row) for row in rounded)
        options.output.write_text(f'{{"machine": {json.dumps(result["machine"])},\n"rows": [\n {lines}\n]}}\n')
    print(page(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
