"""Ops whose regions take elements in a wider type than the operands have (``is_promotable`` of the specification).

Every op with such a region and every pair of types that verifies: compiled, against the interpreter; what a kernel meets never
promotes, and a kernel is never asked to take what does.
"""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.formats import element_type
from hlojit.ir.interpreter import evaluate
from hlojit.ir.ops.region_expressions import promotions, reason_against_region
from hlojit.ir.ops.rules import is_promotable
from hlojit.ir.passes.op_expander import OpExpander

TYPES = "i1 i4 i8 i16 i32 i64 ui4 ui8 ui32 f8E4M3FN f8E5M2 f16 bf16 f32 f64 complex<f32> complex<f64>".split()
PAIRS = [
    (source, target)
    for source in TYPES
    for target in TYPES
    if source != target and is_promotable(element_type(source), element_type(target))
]
BODY = """({{
  ^bb0(%a: tensor<{t}>, %b: tensor<{t}>):
    %s = stablehlo.{op} %a, %b : tensor<{t}>
    stablehlo.return %s : tensor<{t}>
  }})"""
SELECT = """{{
  ^bb0(%a: tensor<{s}>, %b: tensor<{s}>):
    %p = stablehlo.compare GE, %a, %b : (tensor<{s}>, tensor<{s}>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }}"""
SCATTER = (
    "scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
    "index_vector_dim = 1>"
)
ROWS = 24

PROGRAMS = {
    "reduce": '"stablehlo.reduce"(%x, %i) {body} {{dimensions = array<i64: 0>}} : ({x}, {i}) -> {r}',
    "reduce_window": '"stablehlo.reduce_window"(%x, %i) {body} {{window_dimensions = array<i64: 3, 2>, '
    "padding = dense<[[1, 1], [0, 1]]> : tensor<2x2xi64>}} : ({x}, {i}) -> {r}",
    "cumulative": '"stablehlo.reduce_window"(%x, %i) {body} {{window_dimensions = array<i64: 24, 1>, '
    "padding = dense<[[23, 0], [0, 0]]> : tensor<2x2xi64>}} : ({x}, {i}) -> {r}",
    "scatter": '"stablehlo.scatter"(%x, %at, %u) {body} {{' + SCATTER.replace("index", "update_window_dims = [1], index")
    + "}} : ({x}, tensor<3x1xi32>, {u}) -> {r}",
    "select_and_scatter": '"stablehlo.select_and_scatter"(%x, %v, %i) ({select}, {inner}) {{window_dimensions = '
    "array<i64: 2, 1>, window_strides = array<i64: 2, 1>}} : ({x}, {v}, {i}) -> {r}",
}  # fmt: skip


def program(op: str, source: str, target: str, combine: str = "add") -> str:
    types = {"x": f"tensor<{ROWS}x5x{source}>", "i": f"tensor<{source}>", "u": f"tensor<3x5x{source}>"}
    types |= {"v": f"tensor<{ROWS // 2}x5x{source}>"}
    types |= {"r": f"tensor<5x{target}>" if op == "reduce" else f"tensor<{ROWS}x5x{target}>"}
    body = BODY.format(t=target, op=combine)
    select = SELECT.format(s=source)
    text = PROGRAMS[op].format(body=body, inner=body[1:-1], select=select, **types)
    arguments = f"%x: {types['x']}, %i: {types['i']}, %at: tensor<3x1xi32>, %u: {types['u']}, %v: {types['v']}"
    return f"func.func @main({arguments}) -> {types['r']} {{\n  %r = {text}\n  return %r : {types['r']}\n}}"


def arguments(source: str) -> list[Any]:
    random, element = np.random.default_rng(7), element_type(source)
    dtype: Any = element.dtype

    def values(*shape: int) -> Any:
        drawn = random.integers(0, 2 if source == "i1" else 7, shape)
        return (drawn * (1 + 2j) if np.dtype(dtype).kind == "c" else drawn).astype(dtype)

    return [values(ROWS, 5), values(), np.array([[3], [3], [ROWS]], np.int32), values(3, 5), values(ROWS // 2, 5)]


def agree(text: str, given: list[Any], backend: str, **options: Any) -> None:
    expected = evaluate(hlojit.parse(text), *given)[0]
    found = hlojit.compile(text, backend=backend, **options)(*given)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("op", PROGRAMS)
@pytest.mark.parametrize("source", sorted({source for source, _ in PAIRS}))
def test_cpu(op: str, source: str) -> None:
    if op == "select_and_scatter" and source.startswith("complex"):
        pytest.skip("complex numbers have no order to select by")
    for target in (target for other, target in PAIRS if other == source):
        exact = not (
            target.startswith("f") and element_type(target).bits <= 8
        )  # sums of few bits depend on their order
        agree(program(op, source, target, "add" if exact else "maximum"), arguments(source), "cpu")


@pytest.mark.parametrize("op", PROGRAMS)
@pytest.mark.parametrize(("source", "target"), [("i8", "i64"), ("f16", "f32")])
def test_machines_with_threads(op: str, source: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    agree(program(op, source, target), arguments(source), "cuda")


@pytest.mark.parametrize("combine", ["maximum", "multiply", "minimum"])
@pytest.mark.parametrize("op", PROGRAMS)
def test_combiners(op: str, combine: str) -> None:
    agree(program(op, "i8", "i32", combine), arguments("i8"), "cpu")


@pytest.mark.parametrize("op", PROGRAMS)
def test_open_sizes(op: str) -> None:
    given = arguments("i8")
    text = program(op, "i8", "i64")
    wanted = evaluate(hlojit.parse(text), *given)[0]
    for form in ("specialize", "symbolic"):
        opened = text.replace(f"tensor<{ROWS}x5x", "tensor<?x5x").replace(f"tensor<{ROWS // 2}x5x", "tensor<?x5x")
        found = hlojit.compile(opened, options={"dynamic_shapes": form})(*given)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("op", PROGRAMS)
def test_the_program_converts_in_front(op: str) -> None:
    module = hlojit.parse(program(op, "i8", "i32"))
    assert OpExpander().run(module)
    hlojit.verify(module)
    for each in module.walk():
        assert not promotions(each), each


@pytest.mark.parametrize("op", ["reduce", "reduce_window", "scatter"])
def test_kernels_are_not_asked(op: str) -> None:
    """What a pass of a plugin builds behind legalization is refused, never compiled."""
    module = hlojit.parse(program(op, "i8", "i32"))
    instruction = next(each for each in module.walk() if each.op.mnemonic == op)
    assert "as i32" in reason_against_region(instruction)
