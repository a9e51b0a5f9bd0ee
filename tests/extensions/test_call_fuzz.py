"""Random scalar functions on random element types and shapes, inside random programs: the CPU and the reference agree.

``run_seed(number)`` is one program; loops over many seeds are for the command line.
"""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir.formats import FloatFormat, IntegerType, element_type

Array = np.ndarray[Any, Any]
KINDS = (
    "i1 i2 i4 i8 i16 i32 i64 ui2 ui4 ui8 ui16 ui32 f16 bf16 f32 f64 f8E4M3FN f8E5M2 f8E4M3FNUZ f6E2M3FN f4E2M1FN fuzz7"
).split()
ROW = ext.FloatFormat("fuzz7", exponent_bits=3, mantissa_bits=3, bias=4, has_infinity=False, nan=ext.NanEncoding.ALL_ONES,
                      overflow=ext.Overflow.SATURATE)  # fmt: skip
TABLE = np.linspace(-3, 3, 17)
SHAPES = ((1,), (7,), (33,), (130,), (5, 9), (17, 3), (2, 3, 5))
TOLERANCE = {"f64": 1e-12, "f32": 1e-5, "f16": 2e-3, "bf16": 2e-2}
"""numba computes products of f32 in f32, Python in f64; formats of 8 bits may differ by one code."""


def expression(choose: random.Random, names: list[str], depth: int) -> str:
    """Code of a random function of Python numbers."""
    if depth == 0 or choose.random() < 0.25:
        return choose.choice([*names, str(choose.randint(-3, 5))])
    a, b, c = (expression(choose, names, depth - 1) for _ in range(3))
    return choose.choice((
        f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"(int({a}) & int({b}))", f"({a} if {c} < {b} else {b})",
        f"min({a}, {b})", f"max({a}, {b})", f"abs({a})", f"(int({a}) >> {choose.randint(0, 5)})", f"TABLE[int({a}) % 17]",
        f"math.exp(-abs({a}))", f"({a} / 4)",
    ))  # fmt: skip


def spell(shape: tuple[int, ...], kind: str) -> str:
    """A tensor type."""
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + kind + ">"


def consumer(choose: random.Random, kind: str, shape: tuple[int, ...]) -> tuple[str, str, str]:
    """An op on %f with the result %r: its text, its result type, the kind of its elements."""
    type, first = spell(shape, kind), shape[0]
    one = "true" if kind == "i1" else "1.0" if isinstance(element_type(kind), FloatFormat) else "1"
    constant = f"%c = stablehlo.constant dense<{one}> : tensor<{kind}>\n"
    doubled, padded = spell((2 * first, *shape[1:]), kind), spell((2 * first + 2, *shape[1:]), kind)
    zeros, dims = ", 0" * (len(shape) - 1), list(range(len(shape)))[::-1]
    other = choose.choice(KINDS)
    return choose.choice((
        (f"%r = stablehlo.reverse %f, dims = [0] : {type}", type, kind),
        (f"%r = stablehlo.transpose %f, dims = {dims} : ({type}) -> {spell(shape[::-1], kind)}", spell(shape[::-1], kind), kind),
        (f"%r = stablehlo.concatenate %f, %f, dim = 0 : ({type}, {type}) -> {doubled}", doubled, kind),
        (f"{constant}%r = stablehlo.pad %f, %c, low = [1{zeros}], high = [2{zeros}], interior = [1{zeros}] "
         f": ({type}, tensor<{kind}>) -> {padded}", padded, kind),
        (f"{constant}%r = stablehlo.reduce(%f init: %c) applies stablehlo.maximum across dimensions = [0] "
         f": ({type}, tensor<{kind}>) -> {spell(shape[1:], kind)}", spell(shape[1:], kind), kind),
        (f"%r = stablehlo.convert %f : ({type}) -> {spell(shape, other)}", spell(shape, other), other),
    ))  # fmt: skip


def values(kind: str, shape: tuple[int, ...], draw: np.random.Generator) -> Any:
    """Random elements."""
    element = element_type(kind)
    if isinstance(element, IntegerType):
        low, high = max(element.minimum, -100), min(element.maximum, 200)
        return draw.integers(low, high, shape, endpoint=True).astype(element.dtype)
    if not isinstance(element, FloatFormat):
        return draw.integers(0, 2, shape).astype(bool)
    numbers = np.round(draw.normal(size=shape) * 4) / 2
    return numbers.astype(element.dtype) if element.dtype is not None else hlojit.Array.from_values(numbers, element)


def numbers_of(result: Any) -> Array:
    """Results as f64."""
    return (result.to_values() if isinstance(result, hlojit.Array) else np.asarray(result)).astype("f8")


def run_seed(seed: int) -> None:
    """Compile one random program for both back ends and compare."""
    choose = random.Random(seed)
    names = list("xyz"[: choose.randint(1, 3)])
    kinds, kind, shape = [choose.choice(KINDS) for _ in names], choose.choice(KINDS), choose.choice(SHAPES)
    code = expression(choose, names, 3)
    code = (
        f"({code}) > 0"
        if kind == "i1"
        else f"({code}) * 1.0"
        if isinstance(element_type(kind), FloatFormat)
        else f"int({code})"
    )
    function = eval(f"lambda {', '.join(names)}: {code}", {"math": math, "TABLE": TABLE})
    types, (body, result, element) = [spell(shape, each) for each in kinds], consumer(choose, kind, shape)
    arguments = ", ".join(f"%{name}: {type}" for name, type in zip(names, types))
    text = (
        f"func.func @main({arguments}) -> {result} {{\n%f = stablehlo.custom_call @test.f({', '.join(f'%{name}' for name in names)}) "
        f": ({', '.join(types)}) -> {spell(shape, kind)}\n{body}\nreturn %r : {result}\n}}"
    )
    calls = [ext.ElementwiseCall("test.f", function=function)]
    with ext.using(SimpleNamespace(__name__="fuzz-call", hlojit_custom_calls=ext.hookimpl(lambda: calls))):
        draw = np.random.default_rng(seed)
        made = [values(each, shape, draw) for each in kinds]
        ours, theirs = (numbers_of(hlojit.compile(text, backend=each)(*made)) for each in ("cpu", "reference"))
    exact = not isinstance(element_type(element), FloatFormat)
    tolerance = 0.0 if exact else TOLERANCE.get(element, 0.3)
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=0 if exact else 1e-6, err_msg=f"{code}\n{text}")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_call(seed: int) -> None:
    row = SimpleNamespace(__name__="fuzz-format", hlojit_formats=ext.hookimpl(lambda: [ROW]))
    with ext.using(row):
        run_seed(seed)
