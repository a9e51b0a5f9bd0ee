"""Functions of NumPy and ``scipy.special`` under ``@jit`` beside themselves: ``python -m benchmarks.numpy_functions``.

A ratio is NumPy's time divided by hlojit's, both the least of many calls taken turn by turn in one process with one thread each
(``--threads``), calls of Python included; above 1, hlojit is faster.  ``--output FILE`` writes the figures as JSON and prints the
table of docs/linear-algebra.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.__main__ import geometric_mean
from benchmarks.__main__ import machine as described

Row = tuple[str, str, Callable[..., Any], tuple[Any, ...]]
"""Name, size, function, arguments."""


def matrices() -> Iterator[Row]:
    """Factorizations and systems, of one matrix and of many small ones."""
    generator, linalg = np.random.default_rng(0), np.linalg
    for shape in ((64, 64), (256, 256), (512, 512), (10_000, 4, 4), (625, 16, 16)):
        a = generator.standard_normal(shape)
        positive = a @ np.swapaxes(a, -1, -2) + shape[-1] * np.eye(shape[-1])
        side = generator.standard_normal((*shape[:-1], 8))
        size = "x".join(map(str, shape))
        yield "solve", size, linalg.solve, (a, side)
        yield "inv", size, linalg.inv, (a,)
        yield "det", size, lambda a: linalg.det(a / 8), (a,)
        yield "cholesky", size, linalg.cholesky, (positive,)
        yield "qr", size, lambda a: tuple(linalg.qr(a)), (a,)
        if shape[0] <= 625:
            yield "eigh", size, lambda a: tuple(linalg.eigh(a)), (positive,)
            yield "svd", size, lambda a: tuple(linalg.svd(a)), (a,)


def transforms() -> Iterator[Row]:
    """Fourier transforms of powers of two, primes and rows."""
    generator = np.random.default_rng(0)
    for length in (64, 1000, 1009, 1024, 4096, 10_007, 65_536, 1 << 20):
        x = generator.standard_normal(length)
        yield "fft", str(length), np.fft.fft, (x + 1j,)
        yield "fft f4", str(length), np.fft.fft, ((x + 1j).astype("c8"),)
        yield "rfft", str(length), np.fft.rfft, (x,)
    yield "fft2", "256x256", np.fft.fft2, (generator.standard_normal((256, 256)),)


def special() -> Iterator[Row]:
    """Functions of a million numbers."""
    import scipy.special

    x = np.random.default_rng(0).uniform(0.01, 0.99, 1_000_000)
    for name in ("erf", "expit", "logit", "gamma", "gammaln", "psi", "ndtri", "log_ndtr", "i0e", "xlogy"):
        function = getattr(scipy.special, name)
        yield name, "1000000", lambda *x, function=function: function(*x), (x, x) if name == "xlogy" else (x,)


GROUPS = {"matrices": matrices, "transforms": transforms, "special": special}


def measure(name: str, size: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Time one function, turn by turn."""
    import hlojit

    systems = {"hlojit": hlojit.jit(function), "numpy": function}
    seconds = dict.fromkeys(systems, float("inf"))
    for run in systems.values():
        run(*arguments)
    end, rounds = time.perf_counter() + 0.6, 0
    while rounds < 3 or (time.perf_counter() < end and rounds < 2000):
        for system, run in systems.items():
            start = time.perf_counter()
            run(*arguments)
            seconds[system] = min(seconds[system], time.perf_counter() - start)
        rounds += 1
    ratio = seconds["numpy"] / seconds["hlojit"]
    return {"name": name, "size": size, "seconds": seconds, "ratio": ratio}


def page(result: dict[str, Any]) -> str:
    """A result file as Markdown."""
    rows = result["rows"]
    lines = ["| function | ratio at each size |", "|---|---|"]
    for name in dict.fromkeys(row["name"] for row in rows):
        cells = ", ".join(f"{row['size']}: {row['ratio']:.2f}" for row in rows if row["name"] == name)
        lines.append(f"| `{name}` | {cells} |")
    mean = geometric_mean([row["ratio"] for row in rows])
    machine = result["machine"]
    return "\n".join([*lines, "", f"{machine['cpu']}, threads: {machine['threads']}; geometric mean {mean:.2f}."])


def main() -> int:
    """Run the groups and print, or write, what was measured."""
    parser = argparse.ArgumentParser(prog="benchmarks.numpy_functions", description=__doc__)
    parser.add_argument("--groups", nargs="+", choices=[*GROUPS], default=[*GROUPS])
    parser.add_argument("--threads", type=int, default=1, help="of hlojit and of the LAPACK of both")
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    wanted = {"HLOJIT_NUM_THREADS": str(options.threads), "OPENBLAS_NUM_THREADS": str(options.threads)}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        # Libraries read these when they are loaded.
        arguments = [sys.executable, "-m", "benchmarks.numpy_functions", *sys.argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, **wanted})
    rows = [measure(*row) for group in options.groups for row in GROUPS[group]()]
    result = {"machine": {**described(), "threads": options.threads}, "rows": rows}
    if options.output:
        rounded = json.loads(json.dumps(rows), parse_float=lambda text: float(f"{float(text):.4g}"))
        lines = ",\n ".join(json.dumps(row) for row in rounded)
        options.output.write_text(f'{{"machine": {json.dumps(result["machine"])},\n"rows": [\n {lines}\n]}}\n')
    print(page(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
