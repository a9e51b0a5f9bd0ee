"""Seconds to compile programs of 1,000 to 100,000 instructions, and the exponent of the growth.

python tools/scaling.py                      # 1000 10000 100000
python tools/scaling.py 1000 2000 4000
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable

import hlojit


def products(length: int) -> str:
    """A chain of small products and elementwise ops: as many kernel launches as instructions."""
    type = "tensor<2x2xf32>"
    lines = []
    value = "%x"
    for k in range(length // 2):
        lines.append(
            f"%d{k} = stablehlo.dot_general %w, {value}, contracting_dims = [1] x [0] : ({type}, {type}) -> {type}"
        )
        lines.append(f"%y{k} = stablehlo.maximum %d{k}, %w : {type}")
        value = f"%y{k}"
    body = "\n".join(lines)
    return f"func.func public @main(%x: {type}, %w: {type}) -> {type} {{\n{body}\nreturn {value} : {type} }}"


def elementwise(length: int) -> str:
    """A chain of elementwise ops, which fusion cuts into kernels of bounded length."""
    type = "tensor<64xf32>"
    names = ("add", "multiply", "maximum", "subtract")
    lines = [f"%v{k + 1} = stablehlo.{names[k % 4]} %v{k}, %w : {type}" for k in range(length)]
    body = "\n".join(lines)
    return f"func.func public @main(%v0: {type}, %w: {type}) -> {type} {{\n{body}\nreturn %v{length} : {type} }}"


def seconds(text: str) -> float:
    """How long one compilation takes."""
    begin = time.perf_counter()
    hlojit.compile(text)
    return time.perf_counter() - begin


def measure(name: str, program: Callable[[int], str], sizes: list[int]) -> None:
    """Print a table and the least-squares slope of log(seconds) over log(instructions)."""
    times = [seconds(program(size)) for size in sizes]
    for size, taken in zip(sizes, times):
        print(f"{name:12} {size:8} instructions {taken:8.3f} s {1e6 * taken / size:8.1f} us each")
    points = [(math.log(size), math.log(taken)) for size, taken in zip(sizes, times)]
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    print(f"{name:12} exponent {slope:.2f}")


def main(arguments: list[str]) -> None:
    """Measure both kinds of program."""
    sizes = [int(each) for each in arguments] or [1_000, 10_000, 100_000]
    seconds(products(10))
    for name, program in (("products", products), ("elementwise", elementwise)):
        measure(name, program, sizes)


if __name__ == "__main__":
    main(sys.argv[1:])
