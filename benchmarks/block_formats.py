"""Products and a transformer layer with weights in block formats, beside f8E4M3FN, f16 and f32: least of interleaved runs.

python benchmarks/block_formats.py [--repeat 40]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import hlojit
import ml_dtypes
import numpy as np

FORMATS = ("f32", "f16", "f8E4M3FN", "mxfp8", "mxfp6_e2m3", "mxfp4", "nvfp4")
DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "f8E4M3FN": ml_dtypes.float8_e4m3fn}
WIDTH, ROWS, HEADS = 768, 64, 12


def in_format(numbers: Any, name: str) -> Any:
    """Numbers as an array of a format."""
    return numbers.astype(DTYPES[name]) if name in DTYPES else hlojit.Array.from_values(numbers, name)


def product(x: Any, y: Any) -> Any:
    """Rows of one matrix times rows of another, as numbers in f32: contracted along the blocks of both."""
    return x.astype(np.float32) @ y.astype(np.float32).T


def layer(x: Any, weights: Any) -> Any:
    """A layer like GPT-2's: attention and two products with a gelu between them; weights are in the format."""
    qkv, out, up, down = (each.astype(np.float32).T for each in weights)
    normal = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    q, k, v = (
        (normal @ qkv)[:, n * WIDTH : (n + 1) * WIDTH].reshape(ROWS, HEADS, -1).transpose(1, 0, 2) for n in range(3)
    )
    scores = np.exp(q @ k.transpose(0, 2, 1) / np.float32(8))
    mixed = (scores / scores.sum(-1, keepdims=True)) @ v
    x = x + mixed.transpose(1, 0, 2).reshape(ROWS, WIDTH) @ out
    hidden = x @ up
    return x + hidden / (1 + np.exp(-1.702 * hidden)) @ down


def least(calls: dict[str, Callable[[], Any]], repeat: int) -> dict[str, float]:
    """Least milliseconds of each call; they take turns."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(repeat):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            found[name] = min(found[name], (time.perf_counter() - start) * 1e3)
    return found


def cases() -> dict[str, tuple[Callable[..., Any], Callable[[str], tuple[Any, ...]]]]:
    """Name, function, and arguments in a format."""
    random = np.random.default_rng(0)
    square = [random.normal(size=(512, 512)).astype(np.float32) for _ in range(2)]
    shapes = ((3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH))
    weights = [(random.normal(size=shape) / 30).astype(np.float32) for shape in shapes]
    rows = random.normal(size=(ROWS, WIDTH)).astype(np.float32)
    long, large = (random.normal(size=(rows, 4096)).astype(np.float32) for rows in (1, 4096))
    one = random.normal(size=(1, WIDTH)).astype(np.float32)
    return {
        "product 512 x 512 x 512": (product, lambda name: tuple(in_format(each, name) for each in square)),
        "1 row x 768 x 3072": (product, lambda name: (one, in_format(weights[2], name))),
        "1 row x 4096 x 4096": (product, lambda name: (long, in_format(large, name))),
        "layer, 64 rows": (layer, lambda name: (rows, [in_format(each, name) for each in weights])),
        "encoding 512 x 512": (lambda x: x, lambda name: (square[0], name)),
    }


def main() -> None:
    """Print a table: milliseconds, ratios to f32, and the largest error of the layer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=40)
    repeat = parser.parse_args().repeat
    for case, (function, arguments) in cases().items():
        calls: dict[str, Callable[[], Any]] = {}
        results: dict[str, Any] = {}
        for name in FORMATS:
            given = arguments(name)
            if case.startswith("encoding"):
                kind = DTYPES.get(name, name)
                encode = hlojit.jit(lambda x, kind=kind: x.astype(kind))
                calls[name] = lambda encode=encode, x=given[0]: encode(x)  # type: ignore[misc]
            else:
                jitted = hlojit.jit(function)
                calls[name] = lambda jitted=jitted, given=given: jitted(*given)  # type: ignore[misc]
            results[name] = np.asarray(calls[name]()).astype(np.float32)
        times = least(calls, repeat)
        print(case)
        for name, milliseconds in times.items():
            error = np.abs(results[name] - results["f32"]).max() / np.abs(results["f32"]).max()
            print(f"  {name:12} {milliseconds:8.3f} ms  {milliseconds / times['f32']:6.2f} of f32   error {error:.1e}")


if __name__ == "__main__":
    main()
