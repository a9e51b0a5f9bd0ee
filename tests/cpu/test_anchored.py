"""Anchored fusions: products and convolutions with what follows them give, bit for bit, what they give apart."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.compiler import lower, parse
from hlojit.cpu.backend import CpuBackend
from hlojit.extensions.backends.backend import CompileOptions
from hlojit.ir.ops.internal import is_fusion

Array = np.ndarray[Any, Any]
TYPES = {
    "f32": "f4",
    "f64": "f8",
    "f16": "f2",
    "bf16": ml_dtypes.bfloat16,
    "i1": "?",
    "i8": "i1",
    "i32": "i4",
    "i64": "i8",
}
PLAIN = CpuBackend.fusion_limits


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


def anchored(text: str) -> int:
    """How many anchored fusions there are."""
    module = lower(parse(text), CpuBackend(), CompileOptions())
    return sum(is_fusion(each) and each.attributes["kind"] == "anchor" for each in module.main.body)


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch


def run(text: str, arrays: Sequence[Array], patch: pytest.MonkeyPatch, *, whole: bool) -> list[Array]:
    patch.setattr(CpuBackend, "fusion_limits", PLAIN if whole else replace(PLAIN, anchors=frozenset()))
    found = hlojit.compile(text, backend="cpu")(*arrays)
    return [np.asarray(each) for each in (found if isinstance(found, (tuple, list)) else (found,))]


def check(text: str, arrays: Sequence[Array], patch: pytest.MonkeyPatch) -> None:
    """Whole and apart: the same bits, but for those of a NaN, of which processors take that of either operand."""
    for one, other in zip(run(text, arrays, patch, whole=True), run(text, arrays, patch, whole=False), strict=True):
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


@pytest.mark.parametrize("seed", range(40))
def test_random_products(seed: int, limits: pytest.MonkeyPatch) -> None:
    choose, rng = random.Random(seed), np.random.default_rng(seed)
    sizes = [1, 2, 3, 7, 8, 16, 17, 33, 48, 64, 100, 130]
    m, n = choose.choice(sizes), choose.choice(sizes)
    k = choose.choice([8, 9, 33, 64, 130, 300, 520])
    batch = choose.choice([(), (), (3,), (2, 3), (1,)])
    writer = product(batch, m, k, n, choose.choice(PAIRS), (choose.random() < 0.3, choose.random() < 0.3))
    extend(writer, choose, len(writer.shape) - 1)
    check(writer.text(), writer.arrays(rng), limits)


@pytest.mark.parametrize("seed", range(20))
def test_random_convolutions(seed: int, limits: pytest.MonkeyPatch) -> None:
    choose, rng = random.Random(seed), np.random.default_rng(seed)
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
    extend(writer, choose, layout.index("f"))
    check(writer.text(), writer.arrays(rng), limits)


WHOLE = {
    "sums kept in workspace between blocks of k": product((), 600, 300, 130, ("f32", "f32")),
    "a right operand that is packed": product((), 70, 400, 130, ("bf16", "bf16"), (False, True)),
    "rows": product((), 2, 600, 130, ("f32", "f32"), (False, True)),
    "a vector": product((), 130, 300, 1, ("f32", "f32")),
    "a sum in parts": product((), 3, 70000, 5, ("f32", "f32")),
    "quads of bytes": product((), 33, 130, 65, ("i8", "i32")),
    "taps around the loop over tiles": convolution(1, 9, 600, 48, 3, 1, "b01f"),
    "features apart": convolution(1, 9, 16, 48, 3, 2, "bf01"),
    "a depthwise convolution": convolution(1, 9, 48, 48, 3, 1, "b01f", 48),
}


@pytest.mark.parametrize("name", WHOLE)
def test_forms(name: str, limits: pytest.MonkeyPatch) -> None:
    """Every form of the kernels, on its own or followed by a loop."""
    writer = replace(WHOLE[name], arguments=[*WHOLE[name].arguments], lines=[*WHOLE[name].lines], roots=[])
    for number, op in enumerate(("bias", "residual", "root", "relu")):
        writer.step(number, op, len(writer.shape) - 1)
    text = writer.text()
    assert anchored(text) == 1
    check(text, writer.arrays(np.random.default_rng(0)), limits)


def test_result_of_another_shape(limits: pytest.MonkeyPatch) -> None:
    """What follows goes over a reshaped result, and somebody else reads the result itself."""
    text = """func.func @main(%x: tensor<6x40xf32>, %y: tensor<40x48xf32>, %b: tensor<12xf32>) -> (tensor<2x3x4x12xf32>, tensor<48xf32>) {
  %d = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<6x40xf32>, tensor<40x48xf32>) -> tensor<6x48xf32>
  %r = stablehlo.reshape %d : (tensor<6x48xf32>) -> tensor<2x3x4x12xf32>
  %w = stablehlo.broadcast_in_dim %b, dims = [3] : (tensor<12xf32>) -> tensor<2x3x4x12xf32>
  %s = stablehlo.add %r, %w : tensor<2x3x4x12xf32>
  %t = stablehlo.tanh %s : tensor<2x3x4x12xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %q = stablehlo.reduce(%d init: %z) applies stablehlo.add across dimensions = [0] : (tensor<6x48xf32>, tensor<f32>) -> tensor<48xf32>
  return %t, %q : tensor<2x3x4x12xf32>, tensor<48xf32>
}"""
    assert anchored(text) == 1
    rng = np.random.default_rng(0)
    check(text, [rng.standard_normal(shape).astype("f4") for shape in ((6, 40), (40, 48), (12,))], limits)


@pytest.mark.parametrize("op", ["add", "subtract"])
def test_operand_that_is_also_added(op: str, limits: pytest.MonkeyPatch) -> None:
    """An operand of the product may not be the memory of the result, though it is read element by element afterwards."""
    text = f"""func.func @main(%x: tensor<64x64xf32>, %y: tensor<64x64xf32>) -> tensor<64x64xf32> {{
  %e = stablehlo.exponential %x : tensor<64x64xf32>
  %d = stablehlo.dot_general %e, %y, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %s = stablehlo.{op} %d, %e : tensor<64x64xf32>
  return %s : tensor<64x64xf32>
}}"""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((64, 64)).astype("f4") for _ in range(2)]
    check(text, arrays, limits)
    np.testing.assert_allclose(
        run(text, arrays, limits, whole=True)[0],
        getattr(np, op)(np.exp(arrays[0].astype("f8")) @ arrays[1], np.exp(arrays[0].astype("f8"))),
        rtol=1e-3,
        atol=1e-3,
    )


def test_donated_residual() -> None:
    """The residual's memory becomes that of the result: each element is read where it is written."""
    text = """func.func @main(%x: tensor<96x80xf32>, %y: tensor<80x96xf32>, %r: tensor<96x96xf32>) -> tensor<96x96xf32> {
  %d = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<96x80xf32>, tensor<80x96xf32>) -> tensor<96x96xf32>
  %s = stablehlo.add %d, %r : tensor<96x96xf32>
  return %s : tensor<96x96xf32>
}"""
    rng = np.random.default_rng(0)
    x, y, r = (rng.standard_normal(shape).astype("f4") for shape in ((96, 80), (80, 96), (96, 96)))
    expected = x.astype("f8") @ y + r
    result = hlojit.compile(text, donate=[2])(x, y, r)
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-4, atol=1e-4)


def test_state_of_a_loop(limits: pytest.MonkeyPatch) -> None:
    """A recurrent step: the state is an operand of the product, and what is added to it."""
    text = """func.func @main(%h: tensor<16x64xf32>, %w: tensor<64x64xf32>, %n: tensor<i32>) -> tensor<16x64xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %s = %h) : tensor<i32>, tensor<16x64xf32>
   cond {
    %c = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %d = stablehlo.dot_general %s, %w, contracting_dims = [1] x [0] : (tensor<16x64xf32>, tensor<64x64xf32>) -> tensor<16x64xf32>
    %a = stablehlo.add %d, %s : tensor<16x64xf32>
    %t = stablehlo.tanh %a : tensor<16x64xf32>
    stablehlo.return %j, %t : tensor<i32>, tensor<16x64xf32>
  }
  return %0#1 : tensor<16x64xf32>
}"""
    rng = np.random.default_rng(0)
    h, w = rng.standard_normal((16, 64)).astype("f4"), rng.standard_normal((64, 64)).astype("f4") / 8
    check(text, [h, w, np.int32(7)], limits)


def test_kernels_are_shared() -> None:
    """What follows a product is no part of the product's code: one for all kernels that end in something else."""
    first, second = product((), 64, 64, 64, ("f32", "f32")), product((), 64, 64, 64, ("f32", "f32"))
    first.step(0, "relu", 1)
    second.step(0, "tanh", 1)
    backend = CpuBackend()
    products = set()
    for writer in (first, second):
        (launch,) = backend.program(lower(parse(writer.text()), backend, CompileOptions()).freeze()).launches()
        products.add(launch.kernel.parts[0].symbol)
    assert len(products) == 1
