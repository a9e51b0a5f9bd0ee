"""Texts of programs that begin with a product or a convolution and go on element by element, and their arguments."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
TYPES = {
    "f32": "f4",
    "f64": "f8",
    "f16": "f2",
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "bf16": ml_dtypes.bfloat16,
    "i1": "?",
    "i8": "i1",
    "i32": "i4",
    "i64": "i8",
}


def tensor(shape: Sequence[int], element: str) -> str:
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + element + ">"


def values(shape: Sequence[int], element: str, rng: np.random.Generator) -> Array:
    if element == "i1":
        return rng.integers(0, 2, shape).astype("?")
    if element.startswith("i"):
        return rng.integers(-100, 100, shape).astype(TYPES[element])
    found = rng.standard_normal(shape)
    found[rng.random(shape) < 0.002] = np.inf
    return found.astype(TYPES[element])


@dataclass
class Writer:
    """Text of a program that begins with an anchor and goes on element by element."""

    shape: tuple[int, ...]
    element: str
    arguments: list[tuple[str, Sequence[int], str]]
    lines: list[str]
    current: str = "%d"
    roots: list[tuple[str, str]] = field(default_factory=list)

    @property
    def type(self) -> str:
        return tensor(self.shape, self.element)

    def step(self, number: int, op: str, dimension: int) -> None:
        new, other = f"%v{number}", f"%w{number}"
        if op in ("bias", "rows", "residual"):
            kept = {"bias": (dimension,), "rows": (0,), "residual": tuple(range(len(self.shape)))}[op]
            shape = [self.shape[d] for d in kept]
            self.arguments.append((f"%a{number}", shape, self.element))
            source = tensor(shape, self.element)
            self.lines.append(
                f"{other} = stablehlo.broadcast_in_dim %a{number}, dims = {list(kept)} : ({source}) -> {self.type}"
            )
            self.lines.append(f"{new} = stablehlo.add {self.current}, {other} : {self.type}")
        elif op == "relu":
            zero = "0" if self.element[0] == "i" else "0.0"
            self.lines.append(f"{other} = stablehlo.constant dense<{zero}> : {self.type}")
            self.lines.append(f"{new} = stablehlo.maximum {self.current}, {other} : {self.type}")
        elif op == "iota":
            self.lines.append(f"{other} = stablehlo.iota dim = {dimension} : {self.type}")
            self.lines.append(f"{new} = stablehlo.multiply {self.current}, {other} : {self.type}")
        elif op == "choose":
            self.arguments.append((f"%a{number}", self.shape, "i1"))
            mask = tensor(self.shape, "i1")
            self.lines.append(
                f"{new} = stablehlo.select %a{number}, {self.current}, {self.current} : {mask}, {self.type}"
            )
        elif op == "root":
            self.roots.append((self.current, self.type))
            return
        elif op in TYPES:
            before, self.element = self.type, op
            self.lines.append(f"{new} = stablehlo.convert {self.current} : ({before}) -> {self.type}")
        else:
            self.lines.append(f"{new} = stablehlo.{op} {self.current} : {self.type}")
        self.current = new

    def text(self) -> str:
        roots = [*self.roots, (self.current, self.type)]
        signature = ", ".join(f"{name}: {tensor(shape, element)}" for name, shape, element in self.arguments)
        names, types = (", ".join(each) for each in zip(*roots))
        body = "\n  ".join(self.lines)
        return f"func.func @main({signature}) -> ({types}) {{\n  {body}\n  return {names} : {types}\n}}"

    def arrays(self, rng: np.random.Generator) -> list[Array]:
        return [values(shape, element, rng) for _, shape, element in self.arguments]


def product(
    batch: Sequence[int], m: int, k: int, n: int, types: tuple[str, str], transposed: tuple[bool, bool] = (False, False)
) -> Writer:
    depth = len(batch)
    lhs = [*batch, *((k, m) if transposed[0] else (m, k))]
    rhs = [*batch, *((n, k) if transposed[1] else (k, n))]
    numbers = [depth if transposed[0] else depth + 1], [depth + 1 if transposed[1] else depth]
    batching = f"batching_dims = {list(range(depth))} x {list(range(depth))}, " if depth else ""
    source, result = types
    shape = (*batch, m, n)
    line = (
        f"%d = stablehlo.dot_general %x, %y, {batching}contracting_dims = {numbers[0]} x {numbers[1]} : "
        f"({tensor(lhs, source)}, {tensor(rhs, source)}) -> {tensor(shape, result)}"
    )
    return Writer(shape, result, [("%x", lhs, source), ("%y", rhs, source)], [line])


def convolution(
    batch: int, size: int, channels: int, features: int, window: int, stride: int, layout: str, groups: int = 1
) -> Writer:
    pad, out = window // 2, (size + 2 * (window // 2) - window) // stride + 1
    x = {"b": batch, "f": channels, "0": size, "1": size}
    y = {"b": batch, "f": features, "0": out, "1": out}
    lhs, shape = [x[d] for d in layout], tuple(y[d] for d in layout)
    rhs = [window, window, channels // groups, features]
    dims = ", ".join(layout)
    line = (
        f"%d = stablehlo.convolution(%x, %y) dim_numbers = [{dims}]x[0, 1, i, o]->[{dims}], "
        f"window = {{stride = [{stride}, {stride}], pad = [[{pad}, {pad}], [{pad}, {pad}]]}} "
        f"{{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}} : "
        f"({tensor(lhs, 'f32')}, {tensor(rhs, 'f32')}) -> {tensor(shape, 'f32')}"
    )
    return Writer(shape, "f32", [("%x", lhs, "f32"), ("%y", rhs, "f32")], [line])


def check_same_bits(found: Sequence[Array], expected: Sequence[Array], text: str) -> None:
    """The same bits, but for those of a NaN, of which processors take that of either operand."""
    for one, other in zip(found, expected, strict=True):
        nan = (one != one) & (other != other)
        bits = f"u{one.itemsize}" if one.dtype != bool else "?"
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one.view(bits)[~nan], other.view(bits)[~nan], err_msg=text)


FLOATS = ("bias", "rows", "residual", "relu", "iota", "choose", "root", "tanh", "negate", "bf16", "f32", "i32")
INTEGERS = ("bias", "rows", "residual", "relu", "iota", "choose", "root", "abs", "i8", "i32")
PAIRS = [("f32", "f32")] * 4 + [("f64", "f64"), ("bf16", "bf16"), ("bf16", "f32"), ("f16", "f16")]
PAIRS += [("i8", "i32"), ("i8", "i8"), ("i32", "i32"), ("i64", "i64")]


def extend(writer: Writer, choose: random.Random, dimension: int) -> Writer:
    for number in range(choose.randint(1, 4)):
        kinds = INTEGERS if writer.element[0] == "i" else FLOATS
        writer.step(number, choose.choice(kinds), dimension)
    return writer


def random_product(seed: int, pairs: Sequence[tuple[str, str]] = PAIRS) -> Writer:
    """A product of random sizes and types, and up to four steps behind it."""
    choose = random.Random(seed)
    sizes = [1, 2, 3, 7, 8, 16, 17, 33, 48, 64, 100, 130]
    m, n = choose.choice(sizes), choose.choice(sizes)
    k = choose.choice([8, 9, 33, 64, 130, 300, 520])
    batch = choose.choice([(), (), (3,), (2, 3), (1,)])
    writer = product(batch, m, k, n, choose.choice(pairs), (choose.random() < 0.3, choose.random() < 0.3))
    return extend(writer, choose, len(writer.shape) - 1)


def random_convolution(seed: int) -> Writer:
    """A convolution of random sizes and layouts, and up to four steps behind it."""
    choose = random.Random(seed)
    groups = choose.choice([1, 1, 1, 2, 16])
    channels = groups * choose.choice([1, 3, 16])
    features = groups * choose.choice([1, 8, 33])
    layout = choose.choice(["b01f", "b01f", "bf01", "01bf"])
    writer = convolution(
        choose.choice([1, 2]),
        choose.choice([3, 9, 17]),
        channels,
        features,
        choose.choice([1, 3]),
        choose.choice([1, 1, 2]),
        layout,
        groups,
    )
    return extend(writer, choose, layout.index("f"))


def followed(begun: Writer, steps: Sequence[str]) -> Writer:
    """A program that begins like another one."""
    writer = replace(begun, arguments=[*begun.arguments], lines=[*begun.lines], roots=[])
    for number, op in enumerate(steps):
        writer.step(number, op, len(writer.shape) - 1)
    return writer
