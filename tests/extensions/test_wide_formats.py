"""Formats whose exact results f64 does not hold: every sum, product, quotient and root is rounded once, by fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.extensions import Rounding

ROWS = [
    ext.FloatFormat("w40", exponent_bits=8, mantissa_bits=31, bias=127),
    ext.FloatFormat("w57", exponent_bits=7, mantissa_bits=49, bias=63),
    ext.FloatFormat("w34u", exponent_bits=8, mantissa_bits=26, bias=127, signed=False),
    ext.FloatFormat("b16z", exponent_bits=8, mantissa_bits=7, bias=127, rounding=Rounding.TOWARD_ZERO),
    ext.FloatFormat("b16a", exponent_bits=8, mantissa_bits=7, bias=127, rounding=Rounding.AWAY_FROM_ZERO),
    ext.FloatFormat("w24", exponent_bits=8, mantissa_bits=15, bias=127),
    ext.FloatFormat("w33", exponent_bits=8, mantissa_bits=24, bias=127),
]
PLUGIN = SimpleNamespace(__name__="wide", hlojit_formats=ext.hookimpl(lambda: ROWS))


@pytest.fixture(scope="module", autouse=True)
def formats() -> Any:
    with ext.using(PLUGIN):
        yield


def rounded(value: Fraction, row: ext.FloatFormat) -> Fraction:
    """A number in the format's normal range; below zero without sign 0 stands for no number."""
    if value == 0:
        return value
    magnitude, m = abs(value), row.mantissa_bits
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, 1 - row.bias) - m)
    whole, rest = divmod(magnitude, unit)
    if row.rounding is Rounding.AWAY_FROM_ZERO:
        up = rest > 0
    elif row.rounding is Rounding.TOWARD_ZERO:
        up = False
    else:
        up = 2 * rest > unit or (2 * rest == unit and whole % 2 == 1)
    return (whole + up) * unit * (1 if value > 0 else -1)


def operands(row: ext.FloatFormat) -> list[tuple[Fraction, Fraction]]:
    """Numbers near ties of each other, of very different size, and any."""
    random, m = np.random.default_rng(2), row.mantissa_bits
    found = []
    for _ in range(300):
        first, second = (1 + Fraction(int(random.integers(0, 1 << m)), 1 << m) for _ in range(2))
        found.append((first, second * Fraction(2) ** int(random.integers(-12, 12))))
        distance = m + int(random.integers(-1, 4))
        found.append((first, Fraction(2) ** -distance * (1 + Fraction(int(random.integers(0, 3)), 1 << m))))
        found.append((first * 2, Fraction(1) * Fraction(2) ** -int(random.integers(20, 50))))
    if row.signed:
        found += [(a, -b) for a, b in found]
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_arithmetic_rounds_the_exact_result_once(row: ext.FloatFormat, backend: str) -> None:
    pairs = operands(row)
    x, y = (hlojit.Array.from_values(np.array([float(pair[k]) for pair in pairs]), row) for k in (0, 1))
    text = """func.func @main(%x: T, %y: T) -> (T, T, T, T, T) {
      %0 = stablehlo.add %x, %y : T
      %1 = stablehlo.subtract %x, %y : T
      %2 = stablehlo.multiply %x, %y : T
      %3 = stablehlo.divide %x, %y : T
      %4 = stablehlo.sqrt %x : T
      return %0, %1, %2, %3, %4 : T, T, T, T, T }""".replace("T", f"tensor<{len(pairs)}x{row.name}>")
    found = [each.to_values() for each in hlojit.compile(text, backend=backend)(x, y)]
    expected = [
        [a + b for a, b in pairs],
        [a - b for a, b in pairs],
        [a * b for a, b in pairs],
        [a / b for a, b in pairs],
    ]
    for values, exact in zip(found, expected):
        for value, result in zip(values.tolist(), exact):
            if row.signed or result > 0:
                assert Fraction(value) == rounded(result, row), (value, result)
    for value, (number, _) in zip(found[4].tolist(), pairs):
        shifted = number * Fraction(4) ** 200
        root = math.isqrt(int(shifted))
        exact = Fraction(root, 2**200) + (Fraction(1, 2**260) if root * root != shifted else 0)
        assert Fraction(value) == rounded(exact, row)


def test_a_constant_is_folded_as_it_is_computed() -> None:
    text = """func.func @main() -> tensor<w40> {
      %0 = stablehlo.constant dense<1.0> : tensor<w40>
      %1 = stablehlo.constant dense<2.3283064375979637e-10> : tensor<w40>
      %2 = stablehlo.add %0, %1 : tensor<w40>
      return %2 : tensor<w40> }"""
    row = ROWS[0]
    small = Fraction(float(hlojit.Array.from_values(2.3283064375979637e-10, row).to_values()))
    assert Fraction(float(hlojit.compile(text)().to_values())) == rounded(1 + small, row)


def test_a_branch_and_a_loop_compute_alike() -> None:
    text = """func.func @main(%x: tensor<w40>, %y: tensor<w40>) -> tensor<w40> {
      %z = stablehlo.constant dense<0> : tensor<i32>
      %w:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, tensor<w40>
      cond { %n = stablehlo.constant dense<5> : tensor<i32>
        %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do { %one = stablehlo.constant dense<1> : tensor<i32>
        %j = stablehlo.add %i, %one : tensor<i32>
        %u = stablehlo.divide %v, %y : tensor<w40>
        stablehlo.return %j, %u : tensor<i32>, tensor<w40> }
      return %w#1 : tensor<w40> }"""
    row = ROWS[0]
    given = [hlojit.Array.from_values(each, row) for each in (1.1, 0.7)]
    number, divisor = (Fraction(float(each.to_values())) for each in given)
    for _ in range(5):
        number = rounded(number / divisor, row)
    for backend in ("cpu", "reference"):
        assert Fraction(float(hlojit.compile(text, backend=backend)(*given).to_values())) == number


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(("exponent_bits", "mantissa_bits", "native"), [(8, 7, "f4"), (8, 15, "f4"), (11, 12, "f8")])
def test_codes_that_are_upper_bits_of_a_native_float(
    exponent_bits: int, mantissa_bits: int, native: str, backend: str
) -> None:
    """Subnormal numbers, infinities and signaling NaN among them."""
    bias = (1 << (exponent_bits - 1)) - 1
    row = ext.FloatFormat(
        "upper", exponent_bits=exponent_bits, mantissa_bits=mantissa_bits, bias=bias, rounding=Rounding.TOWARD_ZERO
    )
    codes = np.random.default_rng(1).integers(0, 1 << row.bits, 4096, dtype="u8")
    codes[:8] = 0, 1, 1 << (row.bits - 1), (1 << mantissa_bits) - 1, 1 << mantissa_bits, 3, 5, 7
    special = ((1 << exponent_bits) - 1) << mantissa_bits
    codes[8:11] = special, special | 1, special | 1 << (mantissa_bits - 1)
    width = 8 * np.dtype(native).itemsize
    with np.errstate(invalid="ignore"):
        wanted = (codes << np.uint64(width - row.bits)).astype(f"u{width // 8}").view(native).astype("f8")
    text = """func.func @main(%x: tensor<4096xupper>) -> tensor<4096xf64> {
      %0 = stablehlo.convert %x : (tensor<4096xupper>) -> tensor<4096xf64>
      return %0 : tensor<4096xf64> }"""
    with ext.using(SimpleNamespace(__name__="upper", hlojit_formats=ext.hookimpl(lambda: [row]))):
        x = hlojit.Array(codes.astype(row.storage), row)
        np.testing.assert_array_equal(hlojit.compile(text, backend=backend)(x), wanted)
        np.testing.assert_array_equal(x.to_values().astype("f8"), wanted)
