"""Conversions and elementwise ops on quantized numbers, bit for bit against exact fractions rounded at every step."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.ir.interpreter import evaluate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import Run
from .oracle import LIMITS, PRECISIONS, Number, Quantization, exact, mapped, operated, quantizations, rounded, stored

EXPRESSED = sorted(PRECISIONS)
FLOATS = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype("f4"),
    "f64": np.dtype("f8"),
}
SOME = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def function(arguments: str, result: str, body: str) -> str:
    return f"func.func @main({arguments}) -> {result} {{\n{body}\n  return %r : {result}\n}}"


def same(found: np.ndarray, expected: np.ndarray) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)


def numbers_for(quantization: Quantization, draw: st.DrawFn, count: int) -> np.ndarray:
    """Floats around the limits, ties, special ones, and many within the range."""
    dtype = FLOATS[quantization.expressed]
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale, zero = quantization.scales[0], quantization.zeros[0]
    steps = generator.integers(quantization.low - 3, quantization.high + 4, count) - zero
    values = (steps + generator.choice([0, 0.5, -0.5, 0.25], count)) * scale
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30]
    with np.errstate(all="ignore"):
        return np.concatenate([values, special])[: count + len(special)].astype(dtype)


@pytest.mark.parametrize("expressed", EXPRESSED)
@SOME
@given(data=st.data())
def test_quantize(run: Run, expressed: str, data: st.DataObject) -> None:
    """Ties, the ends of the range, infinities; NaN becomes the integer nearest to 0."""
    target = data.draw(quantizations(expressed=expressed))
    values = numbers_for(target, data.draw, 40)
    source = f"tensor<{values.size}x{expressed}>"
    text = function(
        f"%a: {source}",
        target.type(values.size),
        f"  %r = stablehlo.uniform_quantize %a : ({source}) -> {target.type(values.size)}",
    )
    same(run(text, values)[0], target.integers(mapped(exact, [values.astype(object)])))


@pytest.mark.parametrize("expressed", EXPRESSED)
@SOME
@given(data=st.data())
def test_dequantize(run: Run, expressed: str, data: st.DataObject) -> None:
    """Of every storage type, per tensor and per axis."""
    per_axis = data.draw(st.booleans())
    source = data.draw(quantizations(expressed=expressed, axis=(1, 3) if per_axis else None))
    values = stored(data.draw, source, 5, 3)
    result = f"tensor<5x3x{expressed}>"
    text = function(
        f"%a: {source.type(5, 3)}",
        result,
        f"  %r = stablehlo.uniform_dequantize %a : ({source.type(5, 3)}) -> {result}",
    )
    same(run(text, values)[0], source.numbers(values).astype(np.float64).astype(FLOATS[expressed]))


@pytest.mark.parametrize("expressed", EXPRESSED)
@SOME
@given(data=st.data())
def test_requantize(run: Run, expressed: str, data: st.DataObject) -> None:
    """From one type to another, along other axes as well."""
    axes = [None, (0, 4), (1, 3)]
    source = data.draw(quantizations(expressed=expressed, axis=data.draw(st.sampled_from(axes))))
    target = data.draw(quantizations(expressed=expressed, axis=data.draw(st.sampled_from(axes))))
    values = stored(data.draw, source, 4, 3)
    text = function(
        f"%a: {source.type(4, 3)}",
        target.type(4, 3),
        f"  %r = stablehlo.uniform_quantize %a : ({source.type(4, 3)}) -> {target.type(4, 3)}",
    )
    same(run(text, values)[0], target.integers(source.numbers(values)))


BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")


def of_two(name: str, a: Number, b: Number, format: str) -> Number:
    if name in ("maximum", "minimum"):
        return max(a, b) if name == "maximum" else min(a, b)
    return rounded(operated(name, a, b), format)


@pytest.mark.parametrize("name", BINARY)
@SOME
@given(data=st.data())
def test_binary(run: Run, name: str, data: st.DataObject) -> None:
    """Operands and result have one storage and expressed type, and scales and zero points of their own."""
    storage, expressed = data.draw(st.sampled_from(sorted(LIMITS))), data.draw(st.sampled_from(EXPRESSED))
    a, b, c = (data.draw(quantizations(storage, expressed, limits=LIMITS[storage])) for _ in range(3))
    if data.draw(st.booleans()):
        b = a
    x, y = stored(data.draw, a, 30), stored(data.draw, b, 30)
    types = f"({a.type(30)}, {b.type(30)}) -> {c.type(30)}"
    text = function(f"%a: {a.type(30)}, %b: {b.type(30)}", c.type(30), f'  %r = "stablehlo.{name}"(%a, %b) : {types}')
    expected = c.integers(mapped(lambda p, q: of_two(name, p, q, expressed), [a.numbers(x), b.numbers(y)]))
    if a == b == c and name in ("maximum", "minimum"):
        # Integers are compared: exactly, where the expressed type would round.
        expected = getattr(np, name)(x.astype(np.int64), y.astype(np.int64)).astype(c.dtype)
    same(run(text, x, y)[0], expected)


@SOME
@given(data=st.data())
def test_what_orders_numbers_of_one_type_is_exact(run: Run, data: st.DataObject) -> None:
    """Integers are compared and moved: no rounding of an expressed type shows, however narrow it is."""
    q = data.draw(quantizations(expressed=data.draw(st.sampled_from(EXPRESSED))))
    x, y, z = (stored(data.draw, q, 30) for _ in range(3))
    chosen = np.arange(30) % 3 == 0
    body = f"""
  %0 = stablehlo.maximum %a, %b : {q.type(30)}
  %1 = stablehlo.clamp %a, %b, %c : {q.type(30)}
  %2 = stablehlo.compare LT, %a, %b : ({q.type(30)}, {q.type(30)}) -> tensor<30xi1>
  %3 = stablehlo.select %p, %a, %b : tensor<30xi1>, {q.type(30)}
  %4 = stablehlo.minimum %a, %b : {q.type(30)}
  %5 = stablehlo.compare EQ, %a, %b, TOTALORDER : ({q.type(30)}, {q.type(30)}) -> tensor<30xi1>
  return %0, %1, %2, %3, %4, %5 : {q.type(30)}, {q.type(30)}, tensor<30xi1>, {q.type(30)}, {q.type(30)}, tensor<30xi1>"""
    results = f"({q.type(30)}, {q.type(30)}, tensor<30xi1>, {q.type(30)}, {q.type(30)}, tensor<30xi1>)"
    arguments = f"%a: {q.type(30)}, %b: {q.type(30)}, %c: {q.type(30)}, %p: tensor<30xi1>"
    found = run(f"func.func @main({arguments}) -> {results} {{{body}\n}}", x, y, z, chosen)
    i, j, k = (each.astype(np.int64) for each in (x, y, z))
    wide = [np.maximum(i, j), np.minimum(np.maximum(j, i), k), i < j, np.where(chosen, i, j), np.minimum(i, j), i == j]
    for result, expected in zip(found, wide):
        same(result, expected if expected.dtype == bool else expected.astype(q.dtype))


@SOME
@given(data=st.data())
def test_unary_and_chains(run: Run, data: st.DataObject) -> None:
    """A program of several ops, each with a result type of its own, that fuse into one kernel."""
    storage, expressed = (
        data.draw(st.sampled_from(["i8", "ui8", "i16"])),
        data.draw(st.sampled_from(["f16", "bf16", "f32"])),
    )
    types = [data.draw(quantizations(storage, expressed, limits=LIMITS[storage])) for _ in range(5)]
    names = [
        data.draw(st.sampled_from(["abs", "negate", "floor", "ceil", "round_nearest_even", "sign"])) for _ in range(4)
    ]
    x = stored(data.draw, types[0], 40)
    lines, expected = [], x
    for number, (name, a, b) in enumerate(zip(names, types, types[1:])):
        operand, result = "%a" if number == 0 else f"%{number}", "%r" if number == 3 else f"%{number + 1}"
        lines.append(f'  {result} = "stablehlo.{name}"({operand}) : ({a.type(40)}) -> {b.type(40)}')
        expected = b.integers(mapped(lambda p, name=name: of_one(name, p), [a.numbers(expected)]))
    same(run(function(f"%a: {types[0].type(40)}", types[-1].type(40), "\n".join(lines)), x)[0], expected)


def of_one(name: str, a: Number) -> Number:
    if isinstance(a, float):
        return {"abs": abs(a), "negate": -a, "sign": float(np.sign(a))}.get(name, a)
    functions: dict[str, Any] = {
        "abs": abs,
        "negate": lambda x: -x,
        "floor": lambda x: Fraction(x.__floor__()),
        "ceil": lambda x: Fraction(x.__ceil__()),
        "round_nearest_even": lambda x: Fraction(round(x)),
        "sign": lambda x: Fraction((x > 0) - (x < 0)),
    }
    return functions[name](a)


def test_addition_along_axes(run: Run) -> None:
    """One side quantized per axis, and so the result."""
    a = Quantization("i8", "f32", (0.5, 0.25, 2.0), (3, -4, 0), -128, 127, 1)
    b = Quantization("i8", "f32", (0.75,), (10,), -128, 127)
    c = Quantization("i8", "f32", (1.5, 0.5, 1.0), (0, 1, -2), -128, 127, 1)
    x, y = (np.random.default_rng(0).integers(-128, 128, (4, 3)).astype(np.int8) for _ in range(2))
    types = f"({a.type(4, 3)}, {b.type(4, 3)}) -> {c.type(4, 3)}"
    text = function(
        f"%a: {a.type(4, 3)}, %b: {b.type(4, 3)}", c.type(4, 3), f'  %r = "stablehlo.add"(%a, %b) : {types}'
    )
    expected = mapped(lambda p, q: rounded(p + q, "f32"), [a.numbers(x), b.numbers(y)])
    same(run(text, x, y)[0], c.integers(expected))


def test_blocks(run_everywhere: Run) -> None:
    """MLIR's sub-channel types convert as others do, with the parameters of each block."""
    type = "!quant.uniform<i8:f32:{0:1, 1:2}, {{2.0:10, 3.0:20}, {3.5:30, 4.0}}>"
    text = function(
        f"%a: tensor<2x4x{type}>",
        "tensor<2x4xf32>",
        f"  %r = stablehlo.uniform_dequantize %a : (tensor<2x4x{type}>) -> tensor<2x4xf32>",
    )
    x = np.arange(8, dtype=np.int8).reshape(2, 4) * 9 - 30
    zeros, scales = np.repeat([[10, 20], [30, 0]], 2, axis=1), np.repeat([[2, 3], [3.5, 4]], 2, axis=1)
    numbers = ((x.astype(int) - zeros) * scales).astype(np.float32)
    same(run_everywhere(text, x)[0], numbers)
    back = function(
        "%a: tensor<2x4xf32>",
        f"tensor<2x4x{type}>",
        f"  %r = stablehlo.uniform_quantize %a : (tensor<2x4xf32>) -> tensor<2x4x{type}>",
    )
    same(run_everywhere(back, numbers)[0], x)


def test_finite_and_indices(run_everywhere: Run) -> None:
    """``is_finite`` is true, and ``iota`` quantizes its indices."""
    q = Quantization("i8", "f16", (2.5,), (-3,), -128, 127)
    text = f"""func.func @main(%a: {q.type(5)}) -> (tensor<5xi1>, {q.type(5)}) {{
  %0 = stablehlo.is_finite %a : ({q.type(5)}) -> tensor<5xi1>
  %1 = stablehlo.iota dim = 0 : {q.type(5)}
  return %0, %1 : tensor<5xi1>, {q.type(5)}
}}"""
    finite, indices = run_everywhere(text, np.array([-128, -1, 0, 1, 127], np.int8))
    same(finite, np.ones(5, bool))
    same(indices, q.integers(np.array([Fraction(i) for i in range(5)], object)))


@pytest.mark.parametrize("expressed", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide"])
def test_the_interpreter_rounds_to_the_expressed_type(op: str, expressed: str) -> None:
    kind = f"tensor<65536x!quant.uniform<u8:{expressed}, 0.0123:59>>"
    text = f"""
    func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{
      %0 = stablehlo.{op} %a, %b : {kind}
      return %0 : {kind}
    }}"""
    a, b = (each.ravel() for each in np.meshgrid(*[np.arange(256, dtype="u1")] * 2))
    (interpreted,) = evaluate(hlojit.parse(text), a, b)
    np.testing.assert_array_equal(interpreted, hlojit.compile(text)(a, b))
