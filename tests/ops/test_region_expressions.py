"""Regions that read scalars from outside, or branch, compute on every back end what the interpreter says."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.interpreter import evaluate
from hlojit.ir.passes.op_expander import OpExpander

F = "tensor<f32>"
X = "tensor<4x5xf32>"
# Associative, so that every order of combination gives the same: a b k, and the larger one but no more than k.
CAPTURES = f"""%m = stablehlo.multiply %a, %b : {F}
    %s = stablehlo.multiply %m, %k : {F}
    stablehlo.return %s : {F}"""
BRANCHES = f"""%p = stablehlo.compare GT, %a, %b : ({F}, {F}) -> tensor<i1>
    %l = "stablehlo.if"(%p) ({{
      %q = stablehlo.minimum %a, %k : {F}
      stablehlo.return %q : {F}
    }}, {{
      %q = stablehlo.minimum %b, %k : {F}
      stablehlo.return %q : {F}
    }}) : (tensor<i1>) -> {F}
    stablehlo.return %l : {F}"""
CASES = f"""%p = stablehlo.compare GT, %a, %b : ({F}, {F}) -> tensor<i1>
    %i = stablehlo.convert %p : (tensor<i1>) -> tensor<i32>
    %j = stablehlo.subtract %i, %n : tensor<i32>
    %l = "stablehlo.case"(%j) ({{
      stablehlo.return %b : {F}
    }}, {{
      stablehlo.return %a : {F}
    }}) : (tensor<i32>) -> {F}
    stablehlo.return %l : {F}"""
BODIES = {"captures": CAPTURES, "branches": BRANCHES, "cases": CASES}


def program(
    op: str, operands: str, attributes: str, types: str, result: str, body: str, comparator: bool = False
) -> str:
    return f"""func.func @main(%x: {X}, %k: {F}, %n: tensor<i32>) -> {result} {{
  %one = stablehlo.constant dense<1.0> : {F}
  %rows = stablehlo.constant dense<[[0], [2], [0]]> : tensor<3x1xi32>
  %u = stablehlo.slice %x [1:4, 0:5] : ({X}) -> tensor<3x5xf32>
  %r = "stablehlo.{op}"({operands}) ({{
  ^bb0(%a: {F}, %b: {F}):
    {body}
  }}) {{{attributes}}} : {types} -> {result}
  return %r : {result}
}}"""


def programs(body: str) -> dict[str, str]:
    scatter = "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
    return {
        "reduce": program("reduce", "%x, %one", "dimensions = array<i64: 1>", f"({X}, {F})", "tensor<4xf32>", body),
        "reduce_window": program(
            "reduce_window", "%x, %one", "window_dimensions = array<i64: 1, 3>", f"({X}, {F})", "tensor<4x3xf32>", body
        ),
        "scatter": program("scatter", "%x, %rows, %u", scatter, f"({X}, tensor<3x1xi32>, tensor<3x5xf32>)", X, body),
        "map": program("map", "%x, %x", "dimensions = array<i64: 0, 1>", f"({X}, {X})", X, body),
    }


def agree(text: str, backend: str) -> None:
    x = np.random.default_rng(0).choice([-4, -2, -1, -0.5, 0.5, 1, 2, 4], (4, 5)).astype("f4")
    for k, n in ((2, 0), (0.25, 1), (-1, -1)):
        arguments = x, np.float32(k), np.int32(n)
        expected = evaluate(hlojit.parse(text), *arguments)
        found: Any = hlojit.compile(text, backend=backend)(*arguments)
        np.testing.assert_array_equal(found, expected[0])


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("op", ["reduce", "reduce_window", "scatter", "map"])
@pytest.mark.parametrize("body", BODIES)
def test_combiners(body: str, op: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    text = programs(BODIES[body])[op]
    agree(text, backend)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_comparators(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the distance from a number that is given."""
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    body = f"""%m = stablehlo.subtract %a, %k : {F}
    %l = stablehlo.subtract %b, %k : {F}
    %o = stablehlo.abs %m : {F}
    %q = stablehlo.abs %l : {F}
    %p = stablehlo.compare LT, %o, %q : ({F}, {F}) -> tensor<i1>
    stablehlo.return %p : tensor<i1>"""
    agree(program("sort", "%x", "dimension = 1 : i64, is_stable = true", f"({X})", X, body), backend)


def test_they_are_what_kernels_take() -> None:
    """No loop is built for them: the instruction is there with an operand for each scalar."""
    for op, text in programs(CAPTURES).items():
        module = hlojit.parse(text)
        assert OpExpander().run(module) and not OpExpander().run(module)
        hlojit.verify(module)
        found = [each for each in module.walk() if each.op.mnemonic in ("while", op)]
        assert [each.op.mnemonic for each in found] == ([] if op == "map" else [op])


def test_constants_stay() -> None:
    text = programs(CAPTURES)["reduce"].replace("%m, %k", "%m, %one")
    assert not OpExpander().run(hlojit.parse(text))
