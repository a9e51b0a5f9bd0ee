"""Sorts beside NumPy's, turn by turn: ``python -m benchmarks.sorting [--quick] [--output FILE]``.

NumPy's vectorized ``np.sort``, its stable ``np.argsort`` and ``np.partition`` get the same arrays as hlojit's programs, in one
process: NumPy has no threads that could be in the way.  Results are compared first.  A ratio is NumPy's time divided by
hlojit's, both the least of several rounds; above 1, hlojit is faster.  Programs against JAX are among those of
``python -m benchmarks`` (``sort_64k``, ``sort_rows``, ``argsort_64k``, ``top_k_rows``, ``top_k_1m``, ``segment_sum_1m``).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hlojit
import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.__main__ import geometric_mean, machine

Array = np.ndarray[Any, Any]

TYPES = ("f4", "f8", "f2", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
LENGTHS = (256, 4096, 1 << 16, 1 << 20)
INPUTS = ("random", "sorted", "reversed", "constant", "few", "nan")
ROWS = ((4096, 64), (1024, 1000), (1000, 1024, 0))
"""Lines and their length; with a third number, the dimension that is sorted."""


@dataclass(frozen=True)
class Case:
    """One array, sorted by both."""

    name: str
    ours: Callable[[Any], Any]
    theirs: Callable[[Array], Array]
    array: Array


def cases(quick: bool) -> Iterator[Case]:
    """Types, lengths and inputs; rows; stable argsorts; the first elements."""
    generator = np.random.default_rng(0)
    for dtype in ("f4", "f8", "u1", "i8") if quick else TYPES:
        for length in LENGTHS[:3] if quick else LENGTHS:
            for kind in INPUTS:
                if kind != "nan" or dtype.startswith("f"):
                    name = f"sort {dtype} {length} {kind}"
                    yield Case(name, jnp.sort, np.sort, drawn(generator, dtype, length, kind))
            array = drawn(generator, dtype, length, "random")
            yield Case(
                f"argsort {dtype} {length}", jnp.argsort, lambda x: np.argsort(x, kind="stable").astype("i4"), array
            )
        for *shape, axis in [(*row, 1) if len(row) == 2 else row for row in ROWS]:
            array = drawn(generator, dtype, shape[0] * shape[1], "random").reshape(shape)
            yield Case(
                f"sort {dtype} {shape[0]}x{shape[1]} along {axis}",
                lambda x, axis=axis: jnp.sort(x, axis=axis),
                lambda x, axis=axis: np.sort(x, axis=axis),
                array,
            )
        for count in (8, 96):
            yield Case(
                f"first {count} of {dtype} 65536",
                lambda x, count=count: jnp.sort(x)[:count],
                lambda x, count=count: np.sort(np.partition(x, count)[:count]),
                drawn(generator, dtype, 1 << 16, "random"),
            )


def drawn(generator: np.random.Generator, dtype: str, length: int, kind: str) -> Array:
    """An array of a kind."""
    if np.dtype(dtype).kind == "f":
        array = generator.standard_normal(length).astype(dtype)
    else:
        limits = np.iinfo(dtype)
        array = generator.integers(limits.min, limits.max, length, dtype, endpoint=True)
    if kind in ("sorted", "reversed"):
        array = np.sort(array)[:: 1 if kind == "sorted" else -1].copy()
    elif kind == "constant":
        array[:] = 3
    elif kind == "few":
        array = generator.integers(0, 4, length).astype(dtype)
    elif kind == "nan":
        array[generator.random(length) < 0.05] = np.nan
    return array


def least(function: Callable[[], Any], runs: int) -> float:
    """Seconds of the fastest of some runs."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """Compile, compare and time one case."""
    text = jax.jit(case.ours).lower(case.array).as_text()
    start = time.perf_counter()
    program = hlojit.compile(text)
    seconds = time.perf_counter() - start
    np.testing.assert_array_equal(program(case.array), case.theirs(case.array), err_msg=case.name)
    runs = max(3, min(100, (1 << 20) // case.array.size))
    times: dict[str, list[float]] = {"hlojit": [], "numpy": []}
    for _ in range(rounds):
        times["hlojit"].append(least(lambda: program(case.array), runs))
        times["numpy"].append(least(lambda: case.theirs(case.array), runs))
    row = {system: min(each) for system, each in times.items()}
    medians = {f"{system}_median": statistics.median(each) for system, each in times.items()}
    return {"name": case.name, "compile": seconds, **row, **medians, "ratio": row["numpy"] / row["hlojit"]}


def main() -> int:
    """Run all cases and print those in which hlojit is slowest, and means by type."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.sorting", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few types and lengths, few rounds")
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    console = Console()
    rows = []
    with jax.enable_x64(True), console.status("") as status:
        for case in cases(options.quick):
            status.update(case.name)
            rows.append(measure(case, 2 if options.quick else 4))
    table = Table("case", "hlojit us", "NumPy us", "ratio", "compile ms")
    for row in sorted(rows, key=lambda row: float(row["ratio"]))[:25]:
        figures = (row["hlojit"] * 1e6, row["numpy"] * 1e6, row["ratio"], row["compile"] * 1e3)
        table.add_row(row["name"], *(f"{figure:.2f}" for figure in figures))
    console.print(table)
    for operation in ("sort", "argsort", "first"):
        for dtype in TYPES:
            found = [row["ratio"] for row in rows if row["name"].startswith(operation) and f" {dtype} " in row["name"]]
            if found:
                console.print(
                    f"{operation} {dtype}: geometric mean {geometric_mean(found):.2f}, least {min(found):.2f}"
                )
    console.print(str(machine()))
    if options.output:
        options.output.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
