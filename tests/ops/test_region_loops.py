"""Loops for regions: every element type, promotions, shapes without elements, sizes, time that grows with the elements."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.formats import element_type
from hlojit.ir.interpreter import evaluate
from hlojit.ir.passes.op_expander import OpExpander

N = "tensor<i32>"
SCATTER = "scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
COMBINERS = {"maximum": "i8 ui4 i4 ui64 f64 bf16 f8E4M3FN i1", "multiply": "complex<f32> complex<f64>"}
TYPES = [(name, op) for op, names in COMBINERS.items() for name in names.split()]


def region(element: str, op: str) -> str:
    """One step of a loop: the op of the region's arguments, by a count that the program does not know."""
    s = f"tensor<{element}>"
    return f"""({{
  ^bb0(%a: {s}, %b: {s}):
    %w:2 = "stablehlo.while"(%zero, %a) ({{
    ^bb1(%i: {N}, %c: {s}):
      %p = stablehlo.compare LT, %i, %one : ({N}, {N}) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    }}, {{
    ^bb1(%i: {N}, %c: {s}):
      %d = stablehlo.{op} %c, %b : {s}
      %j = stablehlo.add %i, %one : {N}
      stablehlo.return %j, %d : {N}, {s}
    }}) : ({N}, {s}) -> ({N}, {s})
    stablehlo.return %w#1 : {s}
  }})"""


def program(element: str, op: str, extents: tuple[int, int] = (3, 4), promoted: str = "") -> str:
    """A reduction, windows, a scatter and a map."""
    rows, columns = extents
    s = f"tensor<{element}>"
    x = f"tensor<{rows}x{columns}x{element}>"
    y, z, v = (f"tensor<{shape}x{promoted or element}>" for shape in (columns, f"{rows}x{columns}", 5))
    body = region(promoted or element, op)
    map_body = region(element, op)
    return f"""func.func @main(%x: {x}, %init: {s}, %n: {N}, %at: tensor<{columns}x1xi32>) -> ({y}, {z}, {v}, {x}) {{
  %zero = stablehlo.constant dense<0> : {N}
  %one = stablehlo.add %n, %zero : {N}
  %r = "stablehlo.reduce"(%x, %init) {body} {{dimensions = array<i64: 0>}} : ({x}, {s}) -> {y}
  %v0 = "stablehlo.reduce_window"(%x, %init) {body} {{window_dimensions = array<i64: 2, 2>,
    padding = dense<[[1, 0], [0, 1]]> : tensor<2x2xi64>}} : ({x}, {s}) -> {z}
  %five = stablehlo.broadcast_in_dim %init, dims = [] : ({s}) -> tensor<5x{element}>
  %u = stablehlo.broadcast_in_dim %init, dims = [] : ({s}) -> tensor<{columns}x{element}>
  %f = "stablehlo.scatter"(%five, %at, %u) {body} {{{SCATTER}}}
    : (tensor<5x{element}>, tensor<{columns}x1xi32>, tensor<{columns}x{element}>) -> {v}
  %m = "stablehlo.map"(%x, %x) {map_body} {{dimensions = array<i64: 0, 1>}} : ({x}, {x}) -> {x}
  return %r, %v0, %f, %m : {y}, {z}, {v}, {x}
}}"""


def agree(text: str, element: str, extents: tuple[int, int], backend: str) -> None:
    dtype: Any = element_type(element).dtype
    random = np.random.default_rng(0)
    kind = np.dtype(dtype).kind
    if kind == "c":
        x = random.choice(np.array([1, -1, 1j, -1j]), extents).astype(dtype)
    else:
        x = random.integers(0, 2 if element == "i1" else 7, extents).astype(dtype)
    init = np.ones((), dtype)
    at = random.integers(0, 7, (extents[1], 1), np.int32)
    arguments = x, init, np.int32(1), at
    expected = evaluate(hlojit.parse(text), *arguments)
    for found, wanted in zip(hlojit.compile(text, backend=backend)(*arguments), expected, strict=True):
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize(("element", "op"), TYPES)
def test_element_types(element: str, op: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    agree(program(element, op), element, (3, 4), backend)


@pytest.mark.parametrize("extents", [(0, 4), (3, 0), (0, 0), (1, 1), (2, 1)])
def test_few_elements(extents: tuple[int, int]) -> None:
    agree(program("f32", "maximum", extents), "f32", extents, "cpu")


@pytest.mark.parametrize(("element", "promoted"), [("i8", "i32"), ("f16", "f32"), ("bf16", "f64")])
def test_promotions(element: str, promoted: str) -> None:
    agree(program(element, "add", promoted=promoted), element, (3, 4), "cpu")


def test_what_is_expanded_is_valid_and_means_the_same() -> None:
    text = program("f32", "maximum")
    expanded = hlojit.parse(text)
    assert OpExpander().run(expanded)
    hlojit.verify(expanded)
    assert not {each.op.mnemonic for each in expanded.walk()} & {"reduce", "reduce_window", "scatter", "map"}
    arguments = np.ones((3, 4), "f4"), np.float32(1), np.int32(1), np.zeros((4, 1), "i4")
    for found, wanted in zip(evaluate(expanded, *arguments), evaluate(hlojit.parse(text), *arguments), strict=True):
        np.testing.assert_array_equal(found, wanted)
