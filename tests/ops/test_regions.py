"""Regions that hold what a program may hold compute on every back end what the interpreter says."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.interpreter import evaluate

S = "tensor<i32>"
P = "tensor<i1>"
X = "tensor<4x5xi32>"
HEAD = f"""func.func private @larger(%a: {S}, %b: {S}) -> {S} {{
  %p = stablehlo.compare GT, %a, %b : ({S}, {S}) -> {P}
  %r = "stablehlo.if"(%p) ({{
    stablehlo.return %a : {S}
  }}, {{
    stablehlo.return %b : {S}
  }}) : ({P}) -> {S}
  return %r : {S}
}}
"""
# All are associative and commutative and have the identity 0 in [0, 60): any order gives the same.
GCD = f"""%zero = stablehlo.constant dense<0> : {S}
    %w:2 = "stablehlo.while"(%a, %b) ({{
    ^bb1(%c: {S}, %d: {S}):
      %p = stablehlo.compare NE, %d, %zero : ({S}, {S}) -> {P}
      stablehlo.return %p : {P}
    }}, {{
    ^bb1(%c: {S}, %d: {S}):
      %e = stablehlo.remainder %c, %d : {S}
      stablehlo.return %d, %e : {S}, {S}
    }}) : ({S}, {S}) -> ({S}, {S})
    stablehlo.return %w#0 : {S}"""
BODIES = {
    "while": GCD,
    "while in branch": f"""%same = stablehlo.compare EQ, %a, %b : ({S}, {S}) -> {P}
    %l = "stablehlo.if"(%same) ({{
      stablehlo.return %a : {S}
    }}, {{
      {GCD}
    }}) : ({P}) -> {S}
    stablehlo.return %l : {S}""",
    "branches of branches": f"""%p = stablehlo.compare GT, %a, %b : ({S}, {S}) -> {P}
    %l:2 = "stablehlo.if"(%p) ({{
      %q = "stablehlo.case"(%n) ({{
        stablehlo.return %a : {S}
      }}, {{
        %s = stablehlo.maximum %a, %b : {S}
        stablehlo.return %s : {S}
      }}) : ({S}) -> {S}
      stablehlo.return %q, %b : {S}, {S}
    }}, {{
      stablehlo.return %b, %a : {S}, {S}
    }}) : ({P}) -> ({S}, {S})
    stablehlo.return %l#0 : {S}""",
    "call": f"""%r = func.call @larger(%a, %b) : ({S}, {S}) -> {S}
    stablehlo.return %r : {S}""",
    "nested reduce": f"""%zero = stablehlo.constant dense<0> : {S}
    %c = stablehlo.reshape %a : ({S}) -> tensor<1xi32>
    %d = stablehlo.reshape %b : ({S}) -> tensor<1xi32>
    %e = stablehlo.concatenate %c, %d, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %r = stablehlo.reduce(%e init: %zero) applies stablehlo.maximum across dimensions = [0] : (tensor<2xi32>, {S}) -> {S}
    stablehlo.return %r : {S}""",
    "nested reduce of loops": f"""%zero0 = stablehlo.constant dense<0> : {S}
    %c = stablehlo.reshape %a : ({S}) -> tensor<1xi32>
    %d = stablehlo.reshape %b : ({S}) -> tensor<1xi32>
    %e0 = stablehlo.concatenate %c, %d, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %r = "stablehlo.reduce"(%e0, %zero0) ({{
    ^bb0(%f: {S}, %g: {S}):
      {GCD.replace("%a, %b", "%f, %g").replace("%c", "%h").replace("%d", "%j")}
    }}) {{dimensions = array<i64: 0>}} : (tensor<2xi32>, {S}) -> {S}
    stablehlo.return %r : {S}""",
    "sort": f"""%c = stablehlo.reshape %a : ({S}) -> tensor<1xi32>
    %d = stablehlo.reshape %b : ({S}) -> tensor<1xi32>
    %e = stablehlo.concatenate %c, %d, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %f = "stablehlo.sort"(%e) ({{
    ^bb0(%g: {S}, %h: {S}):
      %p = stablehlo.compare LT, %g, %h : ({S}, {S}) -> {P}
      stablehlo.return %p : {P}
    }}) {{dimension = 0 : i64}} : (tensor<2xi32>) -> tensor<2xi32>
    %g0 = stablehlo.slice %f [1:2] : (tensor<2xi32>) -> tensor<1xi32>
    %r = stablehlo.reshape %g0 : (tensor<1xi32>) -> {S}
    stablehlo.return %r : {S}""",
    "product": f"""%c = stablehlo.reshape %a : ({S}) -> tensor<1xi32>
    %d = stablehlo.reshape %b : ({S}) -> tensor<1xi32>
    %e = stablehlo.concatenate %c, %d, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %ones = stablehlo.constant dense<1> : tensor<2xi32>
    %r = stablehlo.dot_general %e, %ones, contracting_dims = [0] x [0] : (tensor<2xi32>, tensor<2xi32>) -> {S}
    stablehlo.return %r : {S}""",
    # Addition modulo 60.
    "table": f"""%s = stablehlo.add %a, %b : {S}
    %c = "stablehlo.dynamic_slice"(%table, %s) {{slice_sizes = array<i64: 1>}} : (tensor<200xi32>, {S}) -> tensor<1xi32>
    %r = stablehlo.reshape %c : (tensor<1xi32>) -> {S}
    stablehlo.return %r : {S}""",
    "gather": f"""%s = stablehlo.add %a, %b : {S}
    %t = stablehlo.constant dense<[{", ".join(str(i % 60) for i in range(120))}]> : tensor<120xi32>
    %c = stablehlo.reshape %s : ({S}) -> tensor<1xi32>
    %r = "stablehlo.gather"(%t, %c) {{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0]>,
      slice_sizes = array<i64: 1>}} : (tensor<120xi32>, tensor<1xi32>) -> {S}
    stablehlo.return %r : {S}""",
    "captured sum": f"""%zero = stablehlo.constant dense<0> : {S}
    %t = stablehlo.reduce(%table init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<200xi32>, {S}) -> {S}
    %q = stablehlo.slice %table [3:4] : (tensor<200xi32>) -> tensor<1xi32>
    %u = stablehlo.reshape %q : (tensor<1xi32>) -> {S}
    %s = stablehlo.maximum %a, %b : {S}
    %v = stablehlo.add %t, %u : {S}
    %r = stablehlo.minimum %s, %v : {S}
    stablehlo.return %r : {S}""",
    "random bits": f"""%state = stablehlo.constant dense<[1, 2]> : tensor<2xui64>
    %g:2 = "stablehlo.rng_bit_generator"(%state) {{rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>}} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2xi32>)
    %h = stablehlo.slice %g#1 [1:2] : (tensor<2xi32>) -> tensor<1xi32>
    %j = stablehlo.reshape %h : (tensor<1xi32>) -> {S}
    %c = stablehlo.xor %a, %j : {S}
    %d = stablehlo.xor %c, %b : {S}
    %r = stablehlo.xor %d, %j : {S}
    stablehlo.return %r : {S}""",
    "map": f"""%r = "stablehlo.map"(%a, %b) ({{
    ^bb0(%f: {S}, %g: {S}):
      {GCD.replace("%a, %b", "%f, %g")}
    }}) {{dimensions = array<i64>}} : ({S}, {S}) -> {S}
    stablehlo.return %r : {S}""",
    "barrier": f"""%c, %d = stablehlo.optimization_barrier %a, %b : {S}, {S}
    %r = stablehlo.maximum %c, %d : {S}
    stablehlo.return %r : {S}""",
}


def program(op: str, operands: str, attributes: str, types: str, result: str, body: str) -> str:
    return f"""{HEAD}func.func @main(%x: {X}, %n: {S}, %table: tensor<200xi32>) -> {result} {{
  %none = stablehlo.constant dense<0> : {S}
  %rows = stablehlo.constant dense<[[0], [2], [0], [9]]> : tensor<4x1xi32>
  %r = "stablehlo.{op}"({operands}) ({{
  ^bb0(%a: {S}, %b: {S}):
    {body}
  }}) {{{attributes}}} : {types} -> {result}
  return %r : {result}
}}"""


SCATTER = "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
OPS: dict[str, tuple[str, ...]] = {
    "reduce": ("%x, %none", "dimensions = array<i64: 1>", f"({X}, {S})", "tensor<4xi32>"),
    "reduce_window": (
        "%x, %none",
        "window_dimensions = array<i64: 1, 3>, padding = dense<[[1, 0], [0, 2]]> : tensor<2x2xi64>",
        f"({X}, {S})",
        "tensor<5x5xi32>",
    ),
    "scatter": ("%x, %rows, %x", SCATTER, f"({X}, tensor<4x1xi32>, {X})", X),
    "map": ("%x, %x", "dimensions = array<i64: 0, 1>", f"({X}, {X})", X),
}


def agree(text: str, backend: str) -> None:
    x = np.random.default_rng(0).integers(0, 60, (4, 5), np.int32)
    table = (np.arange(200) % 60).astype(np.int32)
    for n in (0, 1, 7):
        arguments = x, np.int32(n), table
        expected = evaluate(hlojit.parse(text), *arguments)
        found: Any = hlojit.compile(text, backend=backend)(*arguments)
        np.testing.assert_array_equal(found, expected[0])


@pytest.mark.parametrize("backend", ["cpu", "cuda", "reference"])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("body", BODIES)
def test_combiners(body: str, op: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    agree(program(op, *OPS[op], BODIES[body]), backend)
