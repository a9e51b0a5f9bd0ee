"""Formats that no native float can carry, computed in integers: against exact fractions, on every back end, with every kind of op."""

from __future__ import annotations

import dataclasses
import math
import operator
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.extensions import NanEncoding, Overflow, Rounding
from hlojit.ir.interpreter import evaluate
from hlojit.ir.scalar import integer_floats
from hlojit.ir.scalar.builder import ScalarBuilder
from hlojit.ir.scalar.code_patterns import codes
from hlojit.ir.scalar.integer_floats import Form
from hlojit.ir.scalar.numpy_builder import NumpyBuilder, NumpyScalar

NONE: dict[str, Any] = {"has_infinity": False, "nan": NanEncoding.NONE, "overflow": Overflow.SATURATE}
NAN: dict[str, Any] = {"has_infinity": False, "overflow": Overflow.NAN}
WIDE = ext.FloatFormat("wide60", exponent_bits=15, mantissa_bits=44, bias=16383)
ROWS = [
    ext.FloatFormat("wide64", exponent_bits=11, mantissa_bits=52, bias=1000),
    WIDE,
    ext.FloatFormat("wide65", exponent_bits=2, mantissa_bits=62, bias=1, signed=False),
    ext.FloatFormat("wide1e", exponent_bits=1, mantissa_bits=63, bias=0, signed=False, **NONE),
    ext.FloatFormat(
        "widez", exponent_bits=1, mantissa_bits=62, bias=5, has_zero=False, nan=NanEncoding.ALL_ONES, **NAN
    ),
    ext.FloatFormat("widen", exponent_bits=6, mantissa_bits=57, bias=20, nan=NanEncoding.NEGATIVE_ZERO, **NAN),
    ext.FloatFormat("wide17", exponent_bits=12, mantissa_bits=4, bias=2000, overflow=Overflow.SATURATE),
    ext.FloatFormat("wide15", exponent_bits=14, mantissa_bits=0, bias=8000, **NONE),
]
STOCHASTIC = ext.FloatFormat("wides", exponent_bits=11, mantissa_bits=52, bias=1023, rounding=Rounding.STOCHASTIC)
NARROW = ext.FloatFormat("wide24", exponent_bits=8, mantissa_bits=15, bias=127)
AS_F64 = ext.FloatFormat("asf64", exponent_bits=11, mantissa_bits=52, bias=1023)
PLUGIN = SimpleNamespace(__name__="wide", hlojit_formats=ext.hookimpl(lambda: [*ROWS, STOCHASTIC, NARROW, AS_F64]))
BACKENDS = ("cpu", "reference")


@pytest.fixture(scope="module", autouse=True)
def formats() -> Iterator[None]:
    with ext.using(PLUGIN):
        yield


# ------------------------------------------------------------------------------------------------ the rules


def picked(row: ext.FloatFormat, count: int, seed: int) -> list[int]:
    """Codes: special ones, near 1, with few bits, any."""
    source, special = random.Random(seed), codes(row)
    fraction = (1 << row.mantissa_bits) - 1
    edges = (0, 1, special.largest, special.sign, special.top, special.sign | 1, row.bias << row.mantissa_bits)
    found = []
    for _ in range(count):
        code, kind = source.getrandbits(row.bits), source.random()
        if kind < 0.5:
            field = row.bias + source.randint(-row.mantissa_bits - 2, row.mantissa_bits + 2)
            field = min(max(field, 0), (1 << row.exponent_bits) - 1)
            code = code & (special.sign | fraction) | field << row.mantissa_bits
        if kind < 0.3:
            code &= ~((1 << source.randint(0, row.mantissa_bits)) - 1)
        found.append(source.choice(edges) & ((1 << row.bits) - 1) if kind > 0.85 else code)
    return found


def value(code: int, row: ext.FloatFormat) -> Fraction | None:
    """The finite number of a code."""
    special = codes(row)
    magnitude = code & special.top
    if (special.first_nan is not None and magnitude >= special.first_nan) or magnitude == special.infinity:
        return None
    if row.nan is NanEncoding.NEGATIVE_ZERO and code == special.sign:
        return None
    field, fraction = divmod(magnitude, 1 << row.mantissa_bits)
    hidden = 0 if row.has_zero and not field else 1 << row.mantissa_bits
    exponent = max(field, int(row.has_zero)) - row.bias - row.mantissa_bits
    return (fraction | hidden) * Fraction(2) ** exponent * (-1 if code & special.sign else 1)


def rounded(number: Fraction, row: ext.FloatFormat, negative: bool, power: int = 1) -> int:
    """The code of the number, of which ``number`` is a power, by bisection over all magnitudes."""
    special, size = codes(row), abs(number)
    missing = special.nan or 0

    def at(code: int) -> Fraction:
        field, fraction = divmod(code, 1 << row.mantissa_bits)
        hidden = 0 if row.has_zero and not field else 1 << row.mantissa_bits
        return (fraction | hidden) * Fraction(2) ** (max(field, int(row.has_zero)) - row.bias - row.mantissa_bits)

    def signed(code: int) -> int:
        if not row.signed:
            return missing if number < 0 else code
        keeps = row.nan is NanEncoding.NEGATIVE_ZERO and not code & special.top
        return code | special.sign if negative and not keeps else code

    if not size:
        return signed(0 if row.has_zero else missing)
    low, high = 0, special.top + 2
    if at(0) ** power > size:
        return signed(0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle) ** power <= size else (low, middle)
    half = ((at(low) + at(low + 1)) / 2) ** power
    is_odd = low & 1 if row.mantissa_bits else low > 0
    if at(low) ** power != size:
        low += {
            Rounding.TOWARD_ZERO: False,
            Rounding.AWAY_FROM_ZERO: True,
            Rounding.NEAREST_AWAY: size >= half,
            Rounding.NEAREST_EVEN: size > half or (size == half and is_odd),
        }[row.rounding]
    if low > special.largest:
        low = special.largest if row.rounding is Rounding.TOWARD_ZERO else special.overflow
    return signed(low)


def nearest_away(number: Fraction) -> Fraction:
    whole = Fraction(math.floor(abs(number) + Fraction(1, 2)))
    return -whole if number < 0 else whole


ARITHMETIC: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (integer_floats.add, operator.add),
    "subtract": (integer_floats.subtract, operator.sub),
    "multiply": (integer_floats.multiply, operator.mul),
    "divide": (integer_floats.divide, lambda x, y: x / y if y else None),
    "sqrt": (lambda x, y: integer_floats.sqrt(x), lambda x, y: x if x >= 0 else None),
    "floor": (lambda x, y: integer_floats.to_integral(x, "floor"), lambda x, y: Fraction(math.floor(x))),
    "ceil": (lambda x, y: integer_floats.to_integral(x, "ceil"), lambda x, y: Fraction(math.ceil(x))),
    "even": (lambda x, y: integer_floats.to_integral(x, "even"), lambda x, y: Fraction(round(x))),
    "away": (lambda x, y: integer_floats.to_integral(x, "away"), lambda x, y: nearest_away(x)),
}


@pytest.mark.parametrize("rounding", list(Rounding)[:4], ids=lambda each: each.name.lower())
@pytest.mark.parametrize("given", ROWS, ids=lambda row: row.name)
def test_arithmetic_is_rounded_once(given: ext.FloatFormat, rounding: Rounding) -> None:
    row = dataclasses.replace(given, rounding=rounding)
    special, form, b = codes(row), Form.of(row), NumpyBuilder()
    rules = cast(ScalarBuilder, b)
    xs, ys = picked(row, 20, 1), picked(row, 20, 2)
    ys = [x ^ special.sign ^ n % 2 if n % 5 == 0 else y for n, (x, y) in enumerate(zip(xs, ys))]
    x, y = (integer_floats.decoded(rules, cast(Any, b.value("i64", np.array(each, "u8"))), form) for each in (xs, ys))
    for name, (rule, exact) in ARITHMETIC.items():
        found = cast(NumpyScalar, integer_floats.encoded(rules, rule(x, y), form)).array.view("u8").tolist()
        for first, second, code in zip(xs, ys, found):
            left, right = value(first, row), value(second, row)
            wanted = exact(left, right) if left is not None and right is not None else None
            if wanted is None:
                continue
            signs = [bool(each & special.sign) for each in (first, second)]
            zero_sign = {"add": all(signs), "subtract": signs == [True, False], "multiply": signs[0] != signs[1]}
            zero_sign["divide"] = zero_sign["multiply"]
            negative = wanted < 0 or (wanted == 0 and zero_sign.get(name, signs[0]))
            expected = rounded(wanted, row, negative, 2 if name == "sqrt" else 1)
            assert code == expected, (name, hex(first), hex(second), hex(code), hex(expected))


# -------------------------------------------------------------------------------------------------- programs


def run(text: str, *arguments: Any, backend: str = "cpu") -> Any:
    return hlojit.compile(text, backend=backend)(*arguments)


def array(numbers: Any, row: ext.FloatFormat = WIDE) -> hlojit.Array:
    return hlojit.Array.from_values(np.asarray(numbers), row)


PROGRAM = """func.func @main(%x: tensor<5xwide60>, %y: tensor<5xwide60>) -> (tensor<5xwide60>, tensor<5xi1>, tensor<5xwide60>,
    tensor<5xwide60>, tensor<5xwide60>, tensor<5xwide60>, tensor<wide60>, tensor<5xwide60>, tensor<5xi1>) {
  %c = stablehlo.constant dense<0.1> : tensor<5xwide60>
  %z = stablehlo.constant dense<0.0> : tensor<wide60>
  %0 = stablehlo.multiply %x, %y : tensor<5xwide60>
  %1 = stablehlo.add %0, %c : tensor<5xwide60>
  %2 = stablehlo.compare LT, %x, %y : (tensor<5xwide60>, tensor<5xwide60>) -> tensor<5xi1>
  %3 = stablehlo.select %2, %x, %1 : tensor<5xi1>, tensor<5xwide60>
  %4 = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<wide60>, %b: tensor<wide60>):
    %d = stablehlo.compare LT, %a, %b : (tensor<wide60>, tensor<wide60>) -> tensor<i1>
    stablehlo.return %d : tensor<i1>
  }) {dimension = 0 : i64} : (tensor<5xwide60>) -> tensor<5xwide60>
  %5 = stablehlo.maximum %x, %y : tensor<5xwide60>
  %6 = stablehlo.negate %5 : tensor<5xwide60>
  %7 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : (tensor<5xwide60>, tensor<wide60>) -> tensor<wide60>
  %8 = stablehlo.iota dim = 0 : tensor<5xwide60>
  %9 = stablehlo.is_finite %1 : (tensor<5xwide60>) -> tensor<5xi1>
  return %1, %2, %3, %4, %6, %5, %7, %8, %9 : tensor<5xwide60>, tensor<5xi1>, tensor<5xwide60>,
    tensor<5xwide60>, tensor<5xwide60>, tensor<5xwide60>, tensor<wide60>, tensor<5xwide60>, tensor<5xi1>
}"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_program(backend: str) -> None:
    x, y = np.array([1.5, -2.25, 2.0**1000, 0.0, 7.0]), np.array([3.0, 4.0, 2.0**1000, -1.0, 7.0])
    found = [
        each.to_values() if isinstance(each, hlojit.Array) else np.asarray(each)
        for each in run(PROGRAM, array(x), array(y), backend=backend)
    ]
    assert np.allclose(found[0][:2], [4.6, -8.9], rtol=2.0**-43, atol=0)
    assert found[0][2] == math.inf  # as f64; 2**2000 is a number of the format, and finite
    assert found[1].tolist() == [True, True, False, False, False]
    assert found[2].tolist()[:2] == [1.5, -2.25]
    assert found[3].tolist() == sorted(x.tolist())
    assert found[4].tolist() == (-np.maximum(x, y)).tolist()
    assert found[6] == 2.0**1000 and found[7].tolist() == [0, 1, 2, 3, 4]
    assert found[8].all()


def test_the_interpreter_wants_the_pass_before_it() -> None:
    x = array([1.5, -2.25, 3.0, 0.0, 7.0])
    with pytest.raises(hlojit.HlojitError, match=r"wide60 is computed in integers.*the pass type-legalizer"):
        evaluate(hlojit.parse(PROGRAM), x.storage, x.storage)


KINDS = (
    "i1",
    "i8",
    "ui8",
    "i32",
    "i64",
    "ui64",
    "f8E4M3FN",
    "f4E2M1FN",
    "f16",
    "bf16",
    "f32",
    "f64",
    "wide24",
    "wide64",
    "asf64",
    "complex<f32>",
)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_conversions_there_and_back(kind: str, backend: str) -> None:
    """Small integers are numbers of all types; a number between those of a type is rounded as from f64, which holds it."""
    text = f"""func.func @main(%x: tensor<4xwide60>) -> (tensor<4x{kind}>, tensor<4xwide60>) {{
      %0 = stablehlo.convert %x : (tensor<4xwide60>) -> tensor<4x{kind}>
      %1 = stablehlo.convert %0 : (tensor<4x{kind}>) -> tensor<4xwide60>
      return %0, %1 : tensor<4x{kind}>, tensor<4xwide60> }}"""
    there, back = run(text, array([0.0, 1.0, 0.3, 3.9]), backend=backend)
    direct = text.replace("wide60", "f64")
    wanted, wanted_back = run(
        direct, np.array([0.0, 1.0, array(0.3).to_values(), array(3.9).to_values()]), backend=backend
    )
    stored = [each.storage if isinstance(each, hlojit.Array) else np.asarray(each) for each in (there, wanted)]
    assert stored[0].tobytes() == stored[1].tobytes()
    assert back.to_values().tolist() == array(wanted_back).to_values().tolist()


def test_integers_of_64_bits_are_exact_and_saturate() -> None:
    text = """func.func @main(%x: tensor<3xi64>, %y: tensor<3xwide1>) -> (tensor<3xwide1>, tensor<3xi64>, tensor<3xui64>) {
      %0 = stablehlo.convert %x : (tensor<3xi64>) -> tensor<3xwide1>
      %1 = stablehlo.convert %y : (tensor<3xwide1>) -> tensor<3xi64>
      %2 = stablehlo.convert %y : (tensor<3xwide1>) -> tensor<3xui64>
      return %0, %1, %2 : tensor<3xwide1>, tensor<3xi64>, tensor<3xui64> }"""
    row = ext.FloatFormat("wide1", exponent_bits=7, mantissa_bits=56, bias=63)
    with ext.using(SimpleNamespace(__name__="one", hlojit_formats=ext.hookimpl(lambda: [row]))):
        large = (1 << 56) + 1
        y = hlojit.Array.from_values(np.array([large, -(1 << 63), 1 << 64], object), row)
        codes_, signed, unsigned = run(text, np.array([large, -large, -(1 << 63)]), y)
        assert codes_.storage[0] == y.storage[0] and codes_.storage[2] == y.storage[1]
        assert signed.tolist() == [large, -(1 << 63), (1 << 63) - 1]
        assert unsigned.tolist() == [large, 0, (1 << 64) - 1]


def test_constants_are_rounded_once_and_printed_exactly() -> None:
    row = ROWS[0]
    text = "func.func @main() -> tensor<4xwide64> {\n %0 = stablehlo.constant dense<[0.1, 1.0e310, -0.0, 0x0123456789ABCDEF]> : tensor<4xwide64>\n return %0 : tensor<4xwide64> }"
    found = run(text).storage.tolist()
    assert found == [
        rounded(Fraction(1, 10), row, False), rounded(Fraction(10) ** 310, row, False), 1 << 63, 0x0123456789ABCDEF,
    ]  # fmt: skip
    module = hlojit.parse(text)
    assert str(hlojit.parse(str(module))) == str(module)


def test_the_simulated_gpu_gives_the_same_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    x, y = array([1.5, -2.25, 2.0**1000, 0.0, 7.0]), array([3.0, 4.0, 2.0**1000, -1.0, 7.0])
    for one, other in zip(run(PROGRAM, x, y), run(PROGRAM, x, y, backend="cuda")):
        assert np.array_equal(*(each.storage if isinstance(each, hlojit.Array) else each for each in (one, other)))


def test_products_of_matrices() -> None:
    x, y = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    text = """func.func @main(%x: tensor<2x3xwide60>, %y: tensor<3x4xwide60>) -> tensor<2x4xwide60> {
      %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<2x3xwide60>, tensor<3x4xwide60>) -> tensor<2x4xwide60>
      return %0 : tensor<2x4xwide60> }"""
    for backend in BACKENDS:
        assert (run(text, array(x), array(y), backend=backend).to_values() == x @ y).all()


def test_a_stochastic_rounding_draws_bits() -> None:
    text = """func.func @main(%w: tensor<4000xwides>, %d: tensor<4000xwides>) -> tensor<4000xf64> {
      %0 = stablehlo.add %w, %d : tensor<4000xwides>
      %1 = stablehlo.subtract %0, %w : tensor<4000xwides>
      %2 = stablehlo.convert %1 : (tensor<4000xwides>) -> tensor<4000xf64>
      return %2 : tensor<4000xf64> }"""
    arguments = [array(np.full(4000, number), STOCHASTIC) for number in (1.0, 2.0**-54)]
    one, other = (run(text, *arguments, backend=backend) for backend in BACKENDS)
    assert (one == other).all()
    assert set(one.tolist()) == {0.0, 2.0**-52} and abs(one.mean() * 2.0**54 - 1) < 0.15


def test_what_is_not_computed_in_integers_is_refused() -> None:
    for op in ("exponential", "tanh", "power"):
        operands = "%x, %x" if op == "power" else "%x"
        text = f"func.func @main(%x: tensor<4xwide60>) -> tensor<4xwide60> {{\n %0 = stablehlo.{op} {operands} : tensor<4xwide60>\n return %0 : tensor<4xwide60> }}"
        for backend in BACKENDS:
            with pytest.raises(hlojit.UnsupportedError, match="wide60 is computed in integers"):
                run(text, array([1.0, 2.0, 3.0, 4.0]), backend=backend)


# ------------------------------------------------------------------------------------------------------- jit


def test_jitted_functions() -> None:
    third = array([Fraction(1, 3), Fraction(2), Fraction(-7, 3)], ROWS[0])
    found = hlojit.jit(lambda a: a * a / 3 - a)(third)
    numbers = [value(int(code), ROWS[0]) for code in third.storage]
    for code, number in zip(found.storage.tolist(), numbers):
        assert number is not None
        square = value(rounded(number * number, ROWS[0], False), ROWS[0])
        assert square is not None
        quotient = value(rounded(square / 3, ROWS[0], False), ROWS[0])
        assert quotient is not None
        assert code == rounded(quotient - number, ROWS[0], quotient < number)
    assert hlojit.jit(lambda a: np.where(a > 1, abs(a), -a))(third).storage.tolist()[1] == third.storage[1]
    with pytest.raises(hlojit.HlojitError, match="none holds the numbers of wide64"):
        hlojit.jit(np.sum)(third)


def test_jitted_arithmetic_of_26_to_51_bits_is_rounded_once() -> None:
    """A product that f64 rounds to the middle between two numbers of 51 bits."""
    row = ext.FloatFormat("middle", exponent_bits=8, mantissa_bits=50, bias=127)
    with ext.using(SimpleNamespace(__name__="middle", hlojit_formats=ext.hookimpl(lambda: [row]))):
        source = np.random.default_rng(5)
        x, y = (hlojit.Array.from_values(source.standard_normal(1000), row) for _ in range(2))
        found = hlojit.jit(lambda a, b: a * b)(x, y)
        for a, b, code in zip(x.storage.tolist(), y.storage.tolist(), found.storage.tolist()):
            left, right = value(a, row), value(b, row)
            assert left is not None and right is not None
            assert code == rounded(left * right, row, left * right < 0)
