"""The demonstration behind ``make demo``: decorated functions and a real StableHLO program, compared with NumPy.

python examples/demo.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hlojit
import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

console = Console()


@hlojit.jit
def attention(q: Any, k: Any, v: Any) -> Any:
    """Softmax attention, as one would write it with NumPy."""
    scores = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True)) @ v


@hlojit.jit
def kmeans(points: Any, centers: Any) -> Any:
    """Clusters, with a loop, a branch, masks and a write, all on values that are known when it runs."""
    for rounds in range(1, 101):  # noqa: B007 - given back
        nearest = np.argmin(((points[:, None] - centers) ** 2).sum(axis=2), axis=1)
        moved = centers.copy()
        for k in range(len(centers)):
            if np.any(nearest == k):
                moved[k] = points[nearest == k].mean(axis=0)
        if np.allclose(moved, centers):
            break
        centers = moved
    return centers, nearest, rounds


def digits(weights: Any, x: Any) -> Any:
    """What examples/classifier.mlir computes, in NumPy: a two-layer network with softmax."""
    w1, b1, w2, b2 = weights
    logits = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def least_milliseconds(function: Callable[..., Any], *arguments: Any, repeat: int = 20) -> float:
    """The shortest of several runs."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def numpys_milliseconds(function: Callable[..., Any], *arguments: Any) -> float:
    """The better one of one thread and of all that NumPy's BLAS takes, which wait for each other under a quota of processors."""
    with threadpool_limits(limits=1):
        alone = least_milliseconds(function, *arguments)
    return min(alone, least_milliseconds(function, *arguments))


def difference(found: Any, expected: Any) -> float:
    """The largest between two results, of several arrays or of one."""
    if isinstance(expected, tuple):
        return max(difference(*each) for each in zip(found, expected, strict=True))
    return float(np.abs(np.subtract(found, expected)).max())


def show(table: Table, name: str, compiled: Any, plain: Any, arguments: tuple[Any, ...], seconds: float) -> bool:
    """Compare a compiled function with its NumPy form; add a row."""
    error = difference(compiled(*arguments), plain(*arguments))
    ours, numpys = least_milliseconds(compiled, *arguments), numpys_milliseconds(plain, *arguments)
    good = error < 1e-5
    table.add_row(
        name,
        f"{seconds:.2f} s",
        f"{ours:.3f} ms",
        f"{numpys:.3f} ms",
        f"{error:.1e}",
        "[green]yes" if good else "[red]NO",
    )
    return good


def main() -> int:
    """Run them and print what happened; the exit status says whether all agree with NumPy."""
    generator = np.random.default_rng(0)
    table = Table("program", "first call", "hlojit", "NumPy", "largest difference", "agrees", title="hlojit")

    arrays = tuple(generator.standard_normal((256, 64)).astype("f4") for _ in range(3))
    start = time.perf_counter()
    attention(*arrays)
    good = show(table, "@hlojit.jit attention", attention, attention.function, arrays, time.perf_counter() - start)

    points = generator.standard_normal((600, 2)) + 4 * generator.integers(0, 4, (600, 1))
    start = time.perf_counter()
    kmeans(points, points[:4])
    seconds = time.perf_counter() - start
    good &= show(table, "@hlojit.jit kmeans", kmeans, kmeans.function, (points, points[:4]), seconds)

    shapes = [(784, 128), (128,), (128, 10), (10,)]
    weights = [(generator.standard_normal(shape) * 0.1).astype("f4") for shape in shapes]
    x = generator.standard_normal((64, 784)).astype("f4")
    text = (Path(__file__).parent / "classifier.mlir").read_text()
    start = time.perf_counter()
    executable = hlojit.compile(text)
    executable(*weights, x)
    seconds = time.perf_counter() - start
    good &= show(table, "classifier.mlir", executable, lambda *a: digits(a[:4], a[4]), (*weights, x), seconds)
    console.print(table)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
