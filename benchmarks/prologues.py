"""Convolutions and integer products whose operand is computed by their kernel or in front of it: least of interleaved runs.

python benchmarks/prologues.py [--repeat 40] [--only TEXT]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
from hlojit.cpu.backend import CpuBackend

RANDOM = np.random.default_rng(0)
DTYPES: dict[str, Any] = {
    "i8": np.int8,
    "ui8": np.uint8,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f32": np.float32,
    "bf16": ml_dtypes.bfloat16,
    "i32": np.int32,
}


def tensor(shape: tuple[int, ...], element: str) -> str:
    """The type of an array."""
    return f"tensor<{'x'.join(map(str, shape))}x{element}>"


def numbers(shape: tuple[int, ...], element: str) -> Any:
    """Random elements."""
    if element.startswith(("i", "ui")):
        return RANDOM.integers(0 if element == "ui8" else -100, 100, shape).astype(DTYPES[element])
    return RANDOM.standard_normal(shape).astype(DTYPES[element])


def scaled(name: str, shape: tuple[int, ...], element: str, dimension: int) -> str:
    """Numbers decoded, and scaled along a dimension."""
    wide, row = tensor(shape, "f32"), tensor((shape[dimension],), "f32")
    return (
        f"%c = stablehlo.convert {name} : ({tensor(shape, element)}) -> {wide}\n"
        f"%b = stablehlo.broadcast_in_dim %s, dims = [{dimension}] : ({row}) -> {wide}\n%v = stablehlo.multiply %c, %b : {wide}\n"
    )


def normalised(name: str, shape: tuple[int, ...], element: str, dimension: int) -> str:
    """The same, and what is negative is 0."""
    wide = tensor(shape, "f32")
    found = scaled(name, shape, element, dimension).replace("%v =", "%m =")
    return f"{found}%z = stablehlo.constant dense<0.0> : {wide}\n%v = stablehlo.maximum %m, %z : {wide}\n"


def convolution(
    image: tuple[int, ...], kernel: tuple[int, ...], *, last: bool, stored: str, of_image: bool, stride: int = 1
) -> tuple[str, list[Any]]:
    """A convolution, ``last`` with features as neighbours, whose input or weights are computed."""
    order = (
        ("[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", 3, 1) if last else ("[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]", 1, 2)
    )
    side = kernel[0 if last else 2]
    pad = side // 2
    extent = (image[order[2]] + 2 * pad - side) // stride + 1
    features = kernel[3 if last else 0]
    result = (image[0], extent, extent, features) if last else (image[0], features, extent, extent)
    dimension = order[1] if of_image else (3 if last else 0)
    shape = image if of_image else kernel
    body = (normalised if of_image else scaled)("%w", shape, stored, dimension)
    other = kernel if of_image else image
    x, y = ("%v", "%x") if of_image else ("%x", "%v")
    text = (
        f"func.func @main(%w: {tensor(shape, stored)}, %x: {tensor(other, 'f32')}, %s: {tensor((shape[dimension],), 'f32')}) -> "
        f"{tensor(result, 'f32')} {{\n{body}"
        f"%d = stablehlo.convolution({x}, {y}) dim_numbers = {order[0]}, window = {{stride = [{stride}, {stride}], "
        f"pad = [[{pad}, {pad}], [{pad}, {pad}]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : "
        f"({tensor(image, 'f32')}, {tensor(kernel, 'f32')}) -> {tensor(result, 'f32')}\n"
        f"return %d : {tensor(result, 'f32')}\n}}"
    )
    return text, [numbers(shape, stored), numbers(other, "f32"), np.abs(numbers((shape[dimension],), "f32")) / 50]


def integers(rows: int, size: int) -> tuple[str, list[Any]]:
    """Rows times a matrix of bytes less their zero points."""
    x, w, y = tensor((rows, size), "i32"), tensor((size, size), "i32"), tensor((rows, size), "i32")
    stored, zeros = tensor((size, size), "i8"), tensor((size,), "i32")
    text = (
        f"func.func @main(%w: {stored}, %x: {x}, %s: {zeros}) -> {y} {{\n"
        f"%c = stablehlo.convert %w : ({stored}) -> {w}\n%b = stablehlo.broadcast_in_dim %s, dims = [1] : ({zeros}) -> {w}\n"
        f"%v = stablehlo.subtract %c, %b : {w}\n"
        f"%d = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : ({x}, {w}) -> {y}\nreturn %d : {y}\n}}"
    )
    return text, [numbers((size, size), "i8"), numbers((rows, size), "i32"), numbers((size,), "i32")]


CASES: dict[str, Callable[[], tuple[str, list[Any]]]] = {
    "1x1, 7x7 pixels, 512 to 2048 features, int8 weights": lambda: convolution(
        (1, 7, 7, 512), (1, 1, 512, 2048), last=True, stored="i8", of_image=False),
    "1x1, 7x7 pixels, 512 to 2048 features, f8 weights": lambda: convolution(
        (1, 7, 7, 512), (1, 1, 512, 2048), last=True, stored="f8E4M3FN", of_image=False),
    "1x1, 1 pixel, 2048 to 1000 features, int8 weights": lambda: convolution(
        (1, 1, 1, 2048), (1, 1, 2048, 1000), last=True, stored="i8", of_image=False),
    "1x1, 28x28 pixels, 128 to 512 features, int8 weights": lambda: convolution(
        (1, 28, 28, 128), (1, 1, 128, 512), last=True, stored="i8", of_image=False),
    "1x1, 56x56 pixels, 64 to 256 features, int8 weights": lambda: convolution(
        (1, 56, 56, 64), (1, 1, 64, 256), last=True, stored="i8", of_image=False),
    "1x1, features first, 56x56 pixels, 64 to 64, image normalised": lambda: convolution(
        (1, 64, 56, 56), (64, 64, 1, 1), last=False, stored="f32", of_image=True),
    "1x1, features first, 56x56 pixels, 256 to 64, image normalised": lambda: convolution(
        (1, 256, 56, 56), (64, 256, 1, 1), last=False, stored="f32", of_image=True),
    "1x1, features first, 14x14 pixels, 256 to 1024, image normalised": lambda: convolution(
        (1, 256, 14, 14), (1024, 256, 1, 1), last=False, stored="f32", of_image=True),
    "3x3, 56x56 pixels, 64 to 64 features, image normalised": lambda: convolution(
        (1, 56, 56, 64), (3, 3, 64, 64), last=True, stored="f32", of_image=True),
    "3x3, 56x56 pixels, 256 to 16 features, image normalised": lambda: convolution(
        (1, 56, 56, 256), (3, 3, 256, 16), last=True, stored="f32", of_image=True),
    "3x3, 56x56 pixels, 256 to 16 features, bf16 image": lambda: convolution(
        (1, 56, 56, 256), (3, 3, 256, 16), last=True, stored="bf16", of_image=True),
    "3x3, features first, 56x56 pixels, 64 to 16, image normalised": lambda: convolution(
        (1, 64, 56, 56), (16, 64, 3, 3), last=False, stored="f32", of_image=True),
    "7x7, features first, 224x224 pixels of 3 bytes to 64": lambda: convolution(
        (1, 3, 224, 224), (64, 3, 7, 7), last=False, stored="ui8", of_image=True, stride=2),
    "integers, 1 row, 2048 x 2048": lambda: integers(1, 2048),
    "integers, 16 rows, 2048 x 2048": lambda: integers(16, 2048),
    "integers, 256 rows, 2048 x 2048": lambda: integers(256, 2048),
}  # fmt: skip
WAYS = ("in the kernel", "in front of it")


def compiled(text: str, way: str) -> Any:
    """A program with prologues, or without."""
    limits = CpuBackend.fusion_limits
    try:
        CpuBackend.fusion_limits = limits if way == WAYS[0] else replace(limits, prologues=frozenset())
        return hlojit.compile(text, backend="cpu")
    finally:
        CpuBackend.fusion_limits = limits


def main() -> None:
    """Print milliseconds of both ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=40)
    parser.add_argument("--only", default="", help="cases whose names have this in them")
    given = parser.parse_args()
    for name, made in CASES.items():
        if given.only not in name:
            continue
        text, arrays = made()
        programs = [compiled(text, way) for way in WAYS]
        results = [np.asarray(program(*arrays)) for program in programs]
        assert np.array_equal(*results), f"{name}: different results"
        least = [float("inf")] * 2
        for _ in range(given.repeat):
            for number, program in enumerate(programs):
                start = time.perf_counter()
                program(*arrays)
                least[number] = min(least[number], (time.perf_counter() - start) * 1e3)
        print(
            f"{name}, ms: {', '.join(f'{way} {ms:.3f}' for way, ms in zip(WAYS, least))}, {least[0] / least[1]:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
