"""Factorizations and systems beside JAX's, turn by turn: ``python -m benchmarks.linear_algebra [--quick] [--threads N]``.

Programs of ``jax.numpy.linalg`` are compiled by JAX and, from the same text, by hlojit; both call the same LAPACK (SciPy's) where
they call it, with the same number of threads, in one process.  Results are compared first.  A ratio is JAX's time divided by
hlojit's, both the least of several rounds; above 1, hlojit is faster.

``--output FILE`` writes the figures as JSON; ``tools/linear_algebra_table.py`` puts the newest into docs/linear-algebra.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.__main__ import geometric_mean
from benchmarks.__main__ import machine as described

Array = np.ndarray[Any, Any]
TYPES: Final = ("f4", "f8")
SHAPES: Final = ((10_000, 4, 4), (2_500, 8, 8), (625, 16, 16), (4, 4), (64, 64), (256, 256), (1024, 1024))
ITERATED: Final = ("eigh", "svd")
"""Whose largest matrices take too long."""


@dataclass(frozen=True)
class Case:
    """One program and its arguments."""

    group: str
    dtype: str
    program: Callable[..., Any]
    arrays: tuple[Array, ...]

    @property
    def name(self) -> str:
        """The shape of the first argument."""
        return "x".join(map(str, self.arrays[0].shape))


def cases(groups: list[str], quick: bool) -> Iterator[Case]:
    """Every operation at every size."""
    generator = np.random.default_rng(0)
    for group, program in programs().items():
        for shape in SHAPES[:2] if quick else SHAPES:
            if group not in groups or (group in ITERATED and shape[-1] > 256):
                continue
            for dtype in TYPES:
                plain = generator.standard_normal(shape).astype(dtype)
                sides = generator.standard_normal(shape).astype(dtype)
                positive = plain @ np.swapaxes(plain, -1, -2) + shape[-1] * np.eye(shape[-1], dtype=dtype)
                two = group in ("solve", "triangular_solve")
                yield Case(group, dtype, program, (positive, sides) if two else (positive,))


def programs() -> dict[str, Callable[..., Any]]:
    """What is measured, by its name."""
    from jax import lax
    from jax.numpy import linalg

    return {
        "cholesky": lambda a: lax.linalg.cholesky(a, symmetrize_input=False),
        "triangular_solve": lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True),
        "lu": lambda a: tuple(lax.linalg.lu(a)),
        "qr": lambda a: tuple(linalg.qr(a)),
        "solve": linalg.solve,
        "inv": linalg.inv,
        "det": linalg.det,
        "eigh": lambda a: tuple(linalg.eigh(a)),
        "svd": lambda a: linalg.svd(a, compute_uv=False),
    }


GROUPS: Final = ("cholesky", "triangular_solve", "lu", "qr", "solve", "inv", "det", "eigh", "svd")


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """Compile, compare and time one case."""
    import hlojit
    import jax

    from benchmarks.sorting import least

    theirs = jax.jit(case.program)
    ours = hlojit.compile(theirs.lower(*case.arrays).as_text())
    on_device = [jax.device_put(array) for array in case.arrays]
    systems: dict[str, Callable[[], Any]] = {
        "hlojit": lambda: ours(*case.arrays),
        "jax": lambda: jax.block_until_ready(theirs(*on_device)),
    }
    first, second = (_parts(run()) for run in systems.values())
    if case.group != "eigh":  # whose vectors may be turned
        for mine, other in zip(first, second, strict=True):
            scale = float(np.abs(other).max())
            np.testing.assert_allclose(mine, other, 0, 1e-2 * scale if case.dtype == "f4" else 1e-8 * scale)
    runs = int(max(2, min(200, 0.01 / least(systems["hlojit"], 1))))
    seconds = dict.fromkeys(systems, float("inf"))
    for _ in range(rounds):
        for system, function in systems.items():
            time.sleep(0.002)  # until threads of the other one sleep
            seconds[system] = min(seconds[system], least(function, runs))
    ratio = seconds["jax"] / seconds["hlojit"]
    return {"group": case.group, "name": case.name, "type": case.dtype, "seconds": seconds, "ratio": ratio}


def _parts(result: Any) -> list[Array]:
    return [np.asarray(each) for each in (result if isinstance(result, (tuple, list)) else (result,))]


def page(result: dict[str, Any]) -> str:
    """A result file as Markdown: an operation a row, a size a column, ratios in f32 and in f64."""
    rows = result["rows"]
    sizes = list(dict.fromkeys(row["name"] for row in rows))
    found = {(row["group"], row["name"], row["type"]): row["ratio"] for row in rows}
    lines = ["| program | " + " | ".join(sizes) + " |", "|---|" + "---|" * len(sizes)]
    for group in dict.fromkeys(row["group"] for row in rows):
        cells = [", ".join(_short(found.get((group, size, dtype))) for dtype in TYPES) for size in sizes]
        lines.append(f"| {group} | " + " | ".join("" if cell == ", " else cell for cell in cells) + " |")
    slow = [f"{row['group']} {row['name']} {row['type']}: {row['ratio']:.2f}" for row in rows if row["ratio"] < 1]
    machine = result["machine"]
    mean = geometric_mean([row["ratio"] for row in rows])
    lines += [
        "",
        f"{machine['cpu']}, threads: {machine['threads']}, jaxlib {machine['jaxlib']}; geometric mean {mean:.2f}. "
        f"Below 1: {'; '.join(slow) or 'nothing'}.",
    ]
    return "\n".join(lines)


def _short(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def main() -> int:
    """Run cases and print, or write, what was measured."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.linear_algebra", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few sizes, few rounds")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=[*GROUPS])
    parser.add_argument("--threads", type=int, default=1, help="of hlojit, of JAX, and of LAPACK in both")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    parser.add_argument("--add", action="store_true", help="to those that the file holds")
    options = parser.parse_args()
    count = str(options.threads)
    wanted = {"HLOJIT_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count, "NPROC": count}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        # Libraries read these when they are loaded.
        arguments = [sys.executable, "-m", "benchmarks.linear_algebra", *sys.argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, **wanted})
    import jax

    console = Console(width=130)
    rows = []
    with jax.enable_x64(True), console.status("") as status:
        for case in cases(options.groups, options.quick):
            status.update(f"{case.group} {case.dtype} {case.name}")
            rows.append(measure(case, 2 if options.quick else options.rounds))
    table = Table("program", "hlojit us", "JAX us", "ratio")
    for row in rows:
        times = (f"{row['seconds'][system] * 1e6:.1f}" for system in ("hlojit", "jax"))
        table.add_row(f"{row['group']} {row['type']} {row['name']}", *times, f"{row['ratio']:.2f}")
    console.print(table)
    console.print(f"geometric mean of the ratios: {geometric_mean([row['ratio'] for row in rows]):.2f}")
    if options.output:
        if options.add and options.output.exists():
            kept = json.loads(options.output.read_text())["rows"]
            rows = [row for row in kept if row["group"] not in options.groups] + rows
        rounded = json.loads(json.dumps(rows), parse_float=lambda text: float(f"{float(text):.4g}"))
        lines = ",\n ".join(json.dumps(row) for row in rounded)
        head = json.dumps({**described(), "threads": options.threads})
        options.output.write_text(f'{{"machine": {head},\n"rows": [\n {lines}\n]}}\n')
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
