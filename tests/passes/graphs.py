"""Programs of any size for the scaling of the passes; run as a script it measures seconds and fits the exponent.

PYTHONPATH=build/dev python tests/passes/graphs.py
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from hlojit.ir.builder import Builder
from hlojit.ir.graph import Function, Module, Value
from hlojit.ir.passes.pass_manager import order_passes
from hlojit.ir.passes.registry import default_passes
from hlojit.ir.types import tensor

TYPE = tensor((16, 32), "f32")
ROW = tensor((16,), "f32")


def chain(builder: Builder, x: Value, size: int) -> Value:
    """Every instruction reads the one before."""
    for number in range(size):
        x = builder.negate(x) if number % 3 else builder.exponential(x)
    return x


def fan(builder: Builder, x: Value, size: int) -> Value:
    """One value that everything reads."""
    hub = builder.tanh(x)
    total = x
    for _ in range(size // 2):
        total = builder.add(total, builder.multiply(hub, total))
    return total


def layers(builder: Builder, x: Value, size: int) -> Value:
    """Normalizations: reductions, broadcasts, residuals."""
    zero = builder.constant(0.0, tensor((), "f32"))
    for _ in range(size // 8):
        total = builder.reduce([x], [zero], builder.combiner("add", "f32"), dimensions=(1,))
        mean = builder.multiply(total, builder.constant(1 / 32, ROW))
        centered = builder.subtract(x, builder.broadcast_in_dim(mean, TYPE, (0,)))
        x = builder.add(x, builder.multiply(centered, builder.exponential(centered)))
    return x


def simplifiable(builder: Builder, x: Value, size: int) -> Value:
    """Much for the rules to do, one rewrite making room for the next."""
    zero = builder.constant(0.0, TYPE)
    for number in range(size // 3):
        x = (
            builder.subtract(builder.negate(builder.negate(x)), zero)
            if number % 2
            else builder.transpose(builder.transpose(x, permutation=(1, 0)), permutation=(1, 0))
        )
    return builder.add(x, x)


SHAPES = [chain, fan, layers, simplifiable]


def program(make: Callable[[Builder, Value, int], Value], size: int) -> Module:
    module = Module()
    function = module.add_function(Function("main", [TYPE], [TYPE]))
    builder = Builder(function.body)
    builder.return_(make(builder, function.body.arguments[0], size))
    return module


def measure(make: Callable[[Builder, Value, int], Value], sizes: tuple[int, ...] = (1_000, 10_000, 100_000)) -> None:
    """Print the seconds that all default passes take, and the power with which they grow."""
    seconds = []
    for size in sizes:
        module = program(make, size)
        start = time.perf_counter()
        order_passes(default_passes()).run(module)
        seconds.append(time.perf_counter() - start)
    slope = math.log(seconds[-1] / seconds[0]) / math.log(sizes[-1] / sizes[0])
    print(f"{make.__name__:14s} {' '.join(f'{each:8.3f}' for each in seconds)} s   exponent {slope:.2f}")


if __name__ == "__main__":
    for shape in SHAPES:
        measure(shape)
