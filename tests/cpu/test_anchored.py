"""Anchored fusions: products and convolutions with what follows them give, bit for bit, what they give apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import hlojit
import numpy as np
import pytest
from hlojit.compiler import lower, parse
from hlojit.cpu.backend import CpuBackend
from hlojit.extensions.backends.backend import CompileOptions
from hlojit.ir.ops.internal import is_fusion

from ..anchored_programs import (
    Array,
    check_same_bits,
    convolution,
    followed,
    product,
    random_convolution,
    random_product,
)

PLAIN = CpuBackend.fusion_limits


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
    """Whole and apart."""
    check_same_bits(run(text, arrays, patch, whole=True), run(text, arrays, patch, whole=False), text)


@pytest.mark.parametrize("seed", range(40))
def test_random_products(seed: int, limits: pytest.MonkeyPatch) -> None:
    writer = random_product(seed)
    check(writer.text(), writer.arrays(np.random.default_rng(seed)), limits)


@pytest.mark.parametrize("seed", range(20))
def test_random_convolutions(seed: int, limits: pytest.MonkeyPatch) -> None:
    writer = random_convolution(seed)
    check(writer.text(), writer.arrays(np.random.default_rng(seed)), limits)


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
    writer = followed(WHOLE[name], ("bias", "residual", "root", "relu"))
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
