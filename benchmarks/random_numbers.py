"""``hlojit.random`` beside ``jax.random``, turn by turn: ``python -m benchmarks.random_numbers [--output FILE]``.

The public functions are called as they are, eagerly, with one key, for a million numbers and for eight; JAX's results are waited
for.  The figure is the least of several rounds; above 1, hlojit is faster.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hlojit
import jax
import numpy as np
from rich.console import Console
from rich.table import Table

SIZES = (1_000_000, 8)
ROUNDS = 15


def pairs(size: int) -> dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]:
    """Ours and JAX's of a key, by what is drawn."""
    ours, theirs, shape = hlojit.random, jax.random, (size,)
    found: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
        "bits ui32": (lambda k: ours.bits(k, shape), lambda k: theirs.bits(k, shape, np.uint32)),
    }
    for dtype in (np.float32, np.float64):
        name = np.dtype(dtype).name
        for each in ("uniform", "normal", "exponential"):
            found[f"{each} {name}"] = (
                lambda k, each=each, dtype=dtype: getattr(ours, each)(k, shape, dtype),
                lambda k, each=each, dtype=dtype: getattr(theirs, each)(k, shape, dtype),
            )
        found[f"gamma {name}"] = (
            lambda k, dtype=dtype: ours.gamma(k, 2.5, shape, dtype),
            lambda k, dtype=dtype: theirs.gamma(k, 2.5, shape, dtype),
        )
    found["integers"] = (lambda k: ours.integers(k, 0, 100, shape), lambda k: theirs.randint(k, shape, 0, 100))
    found["poisson"] = (lambda k: ours.poisson(k, 4.0, shape), lambda k: theirs.poisson(k, 4.0, shape))
    found["permutation"] = (lambda k: ours.permutation(k, size), lambda k: theirs.permutation(k, size))
    return found


def seconds(function: Callable[[], Any], runs: int) -> float:
    """Of one call."""
    start = time.perf_counter()
    for _ in range(runs):
        function()
    return (time.perf_counter() - start) / runs


def measured(size: int) -> dict[str, dict[str, float]]:
    """Microseconds by what is drawn: both of hlojit's generators, and JAX's."""
    key, philox = hlojit.random.key(0), hlojit.random.key(0, "philox")
    theirs = jax.random.key(0)
    runs, found = 1 if size > 1000 else 300, {}
    for name, (ours, other) in pairs(size).items():
        calls: dict[str, Callable[[], Any]] = {
            "threefry": lambda ours=ours: ours(key),
            "philox": lambda ours=ours: ours(philox),
            "jax": lambda other=other: other(theirs).block_until_ready(),
        }
        for call in calls.values():
            call()
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(ROUNDS):
            for each, call in calls.items():
                best[each] = min(best[each], seconds(call, runs))
        found[name] = {each: value * 1e6 for each, value in best.items()}
    return found


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="benchmarks.random_numbers", description=__doc__)
    parser.add_argument("--output", type=Path, help="a file for the figures, JSON")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    figures = {str(size): measured(size) for size in SIZES}
    for size, rows in figures.items():
        table = Table("microseconds", "threefry", "philox", "jax", "jax / threefry", title=f"{size} numbers")
        for name, row in rows.items():
            shown = [f"{row[each]:.1f}" for each in ("threefry", "philox", "jax")]
            table.add_row(name, *shown, f"{row['jax'] / row['threefry']:.2f}")
        Console().print(table)
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
