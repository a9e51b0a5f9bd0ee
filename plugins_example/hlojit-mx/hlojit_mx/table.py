"""What a layer costs in each format: bytes of the weights, error against f32, time beside f32 and f8.

    python -m hlojit_mx.table [--width 768] [--rounds 60] [--write README.md]

Formats take turns, so that other work on the machine meets all of them; the least time of each counts.
"""

from __future__ import annotations

import argparse
import math
import re
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hlojit_mx.layer import layer, matrices, quantized, random_weights

FORMATS = (
    "f8E4M3FN",
    "mxfp8",
    "mx_int8",
    "mxfp6_e2m3",
    "mxfp6_e3m2",
    "mxfp4",
    "nvfp4",
    "mx_int4",
    "mx_power4",
)
BITS = {"f32": 32.0, "f8E4M3FN": 8.0, "mxfp8": 8.25, "mx_int8": 8.25, "mxfp6_e2m3": 6.25, "mxfp6_e3m2": 6.25}
BITS |= {"mxfp4": 4.25, "nvfp4": 4.5, "mx_int4": 4.125, "mx_power4": 4.5}
"""Bits a number in a file that packs elements; in memory each takes a byte."""
TOKENS = 64


def relative(result: np.ndarray, exact: np.ndarray) -> float:
    """The error's norm in the norm of what is right."""
    return float(np.linalg.norm(result - exact) / np.linalg.norm(exact))


def rows(width: int, heads: int, rounds: int, formats: Sequence[str]) -> list[list[str]]:
    """A row of the table for f32 and every format."""
    weights = {"f32": random_weights(width)}
    weights |= {name: quantized(weights["f32"], name) for name in formats}
    x = np.random.default_rng(1).standard_normal((TOKENS, width)).astype(np.float32)
    exact = layer(x, weights["f32"], heads=heads)
    errors = {}
    for name, each in weights.items():
        one = layer(x, each, heads=heads)
        both = layer(x, each, heads=heads, activations="f4" if name == "f32" else name)
        errors[name] = (relative(one - x, exact - x), relative(both - x, exact - x))
    times = {count: dict.fromkeys(weights, math.inf) for count in (TOKENS, 1)}
    for count, least in times.items():
        for _ in range(rounds):
            for name, each in weights.items():
                begin = time.perf_counter()
                layer(x[:count], each, heads=heads)
                least[name] = min(least[name], time.perf_counter() - begin)
    table = []
    for name, each in weights.items():
        cells = [f"`{name}`", f"{sum(matrix.nbytes for matrix in matrices(each)) / 1e6:.2f}", f"{BITS[name]:g}"]
        cells += [f"{100 * error:.2f} %" for error in errors[name]]
        for least in times.values():
            mine = least[name]
            cells += [f"{1e3 * mine:.2f}", f"{mine / least['f32']:.2f}", f"{mine / least['f8E4M3FN']:.2f}"]
        table.append(cells)
    return table


def written(width: int, heads: int, rounds: int, formats: Sequence[str] = FORMATS) -> str:
    """The table in Markdown; ``formats`` hold ``f8E4M3FN``."""
    head = ["weights", "MB", "bits packed", "error", "error, inputs too"]
    for count in (TOKENS, 1):
        head += [f"{count} token{'s' * (count > 1)}, ms", "of f32", "of f8"]
    lines = [head, ["---"] * len(head), *rows(width, heads, rounds, formats)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def main() -> None:
    """Print the table, or write it between the marks of a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--write", type=Path, metavar="PAGE")
    options = parser.parse_args()
    table = written(options.width, options.heads, options.rounds)
    print(table, end="")
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        marks = r"(<!-- table: begin -->\n\n).*(\n<!-- table: end -->)"
        page = re.sub(marks, lambda found: found[1] + table + found[2], page, flags=re.DOTALL)
        options.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
