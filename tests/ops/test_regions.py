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


# Two operands: the nearest pair by the number of steps that Euclid's algorithm takes, the first number where they agree.
STEPS = f"""%zero = stablehlo.constant dense<0> : {S}
    %one = stablehlo.constant dense<1> : {S}
    %fixed = stablehlo.constant dense<34> : {S}
    %w:3 = "stablehlo.while"(%VALUE, %fixed, %zero) ({{
    ^bb1(%c: {S}, %d: {S}, %n0: {S}):
      %p0 = stablehlo.compare NE, %d, %zero : ({S}, {S}) -> {P}
      stablehlo.return %p0 : {P}
    }}, {{
    ^bb1(%c: {S}, %d: {S}, %n0: {S}):
      %e = stablehlo.remainder %c, %d : {S}
      %n1 = stablehlo.add %n0, %one : {S}
      stablehlo.return %d, %e, %n1 : {S}, {S}, {S}
    }}) : ({S}, {S}, {S}) -> ({S}, {S}, {S})"""


def steps(value: str, name: str) -> str:
    """Text that computes the steps of a value under a name of its own."""
    text = STEPS.replace("VALUE", value).replace("%w", f"%{name}")
    return text.replace("%zero", f"%{name}z").replace("%one", f"%{name}o").replace("%fixed", f"%{name}f")


LONGER = f"""{steps("a", "s")}
    {steps("c0", "t")}
    %more = stablehlo.compare GT, %s#2, %t#2 : ({S}, {S}) -> {P}
    %same = stablehlo.compare EQ, %s#2, %t#2 : ({S}, {S}) -> {P}
    %first = stablehlo.compare LE, %b, %d0 : ({S}, {S}) -> {P}
    %tie = stablehlo.and %same, %first : {P}
    %keep = stablehlo.or %more, %tie : {P}
    %r0:2 = "stablehlo.if"(%keep) ({{
      stablehlo.return %a, %b : {S}, {S}
    }}, {{
      stablehlo.return %c0, %d0 : {S}, {S}
    }}) : ({P}) -> ({S}, {S})
    stablehlo.return %r0#0, %r0#1 : {S}, {S}"""
VARIADIC = {
    "reduce": ("%x, %y, %none, %far", "dimensions = array<i64: 1>", f"({X}, {X}, {S}, {S})", "tensor<4xi32>"),
    "reduce_window": (
        "%x, %y, %none, %far",
        "window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 1>, base_dilations = array<i64: 1, 2>",
        f"({X}, {X}, {S}, {S})",
        "tensor<2x8xi32>",
    ),
    "scatter": ("%x, %y, %rows, %y, %x", SCATTER, f"({X}, {X}, tensor<4x1xi32>, {X}, {X})", X),
}


def of_two(op: str, operands: str, attributes: str, types: str, result: str, body: str, arguments: str) -> str:
    return f"""func.func @main(%x: {X}, %y: {X}) -> ({result}, {result}) {{
  %none = stablehlo.constant dense<34> : {S}
  %far = stablehlo.constant dense<100> : {S}
  %rows = stablehlo.constant dense<[[0], [2], [0], [9]]> : tensor<4x1xi32>
  %r:2 = "stablehlo.{op}"({operands}) ({{
  ^bb0({arguments}):
    {body}
  }}) {{{attributes}}} : {types} -> ({result}, {result})
  return %r#0, %r#1 : {result}, {result}
}}"""


def both_agree(text: str, backend: str) -> None:
    random = np.random.default_rng(0)
    arguments = random.integers(1, 60, (4, 5), np.int32), random.permutation(20).reshape(4, 5).astype(np.int32)
    expected = evaluate(hlojit.parse(text), *arguments)
    for found, wanted in zip(hlojit.compile(text, backend=backend)(*arguments), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("op", VARIADIC)
def test_combiners_of_two_operands(op: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    arguments = f"%a: {S}, %b: {S}, %c0: {S}, %d0: {S}"
    both_agree(of_two(op, *VARIADIC[op], LONGER, arguments), backend)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("dimension", [0, 1, -1])
def test_sorts_are_stable(dimension: int, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a key that takes a loop, with a payload; few keys, so that many elements are equal."""
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    body = f"""{steps("a", "s")}
    {steps("b", "t")}
    %less = stablehlo.compare LT, %s#2, %t#2 : ({S}, {S}) -> {P}
    stablehlo.return %less : {P}"""
    attributes = f"dimension = {dimension} : i64, is_stable = true"
    arguments = f"%a: {S}, %b: {S}, %c0: {S}, %d0: {S}"
    both_agree(of_two("sort", "%x, %y", attributes, f"({X}, {X})", X, body, arguments), backend)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_select_and_scatter(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The element that takes the most steps is selected, and both regions read a value from outside."""
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    text = f"""func.func @main(%x: {X}, %y: tensor<2x4xi32>, %k: {S}) -> {X} {{
  %none = stablehlo.constant dense<0> : {S}
  %r = "stablehlo.select_and_scatter"(%x, %y, %none) ({{
  ^bb0(%a: {S}, %b: {S}):
    {steps("a", "s")}
    {steps("b", "t")}
    %u = stablehlo.add %t#2, %k : {S}
    %more = stablehlo.compare GE, %s#2, %u : ({S}, {S}) -> {P}
    stablehlo.return %more : {P}
  }}, {{
  ^bb0(%a: {S}, %b: {S}):
    %u = stablehlo.maximum %a, %b : {S}
    %v = stablehlo.minimum %u, %k : {S}
    stablehlo.return %v : {S}
  }}) {{window_dimensions = array<i64: 3, 2>, window_strides = array<i64: 2, 1>, padding = dense<[[1, 0], [0, 0]]> : tensor<2x2xi64>}}
    : ({X}, tensor<2x4xi32>, {S}) -> {X}
  return %r : {X}
}}"""
    random = np.random.default_rng(0)
    x, y = random.integers(1, 60, (4, 5), np.int32), random.integers(0, 9, (2, 4), np.int32)
    for k in (0, 1, 5):
        (expected,) = evaluate(hlojit.parse(text), x, y, np.int32(k))
        np.testing.assert_array_equal(hlojit.compile(text, backend=backend)(x, y, np.int32(k)), expected)
