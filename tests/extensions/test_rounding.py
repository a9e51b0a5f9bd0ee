"""Directions of rounding against exact rational arithmetic, on every back end and in arrays."""

from __future__ import annotations

import bisect
import itertools
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.extensions import NanEncoding, Overflow, Rounding

Array = np.ndarray[Any, Any]
DIRECTIONS = [each for each in Rounding if each is not Rounding.STOCHASTIC]
SHAPES: dict[str, dict[str, Any]] = {
    "e3m2": {"exponent_bits": 3, "mantissa_bits": 2, "bias": 3},
    "e4m3": {"exponent_bits": 4, "mantissa_bits": 3, "bias": 7, "has_infinity": False, "nan": NanEncoding.ALL_ONES,
             "overflow": Overflow.NAN},
    "e5m2u": {"exponent_bits": 5, "mantissa_bits": 2, "bias": 20, "signed": False, "overflow": Overflow.SATURATE},
    "e2m3": {"exponent_bits": 2, "mantissa_bits": 3, "bias": -4, "has_infinity": False, "nan": NanEncoding.NONE,
             "overflow": Overflow.SATURATE},
    "e4m0": {"exponent_bits": 4, "mantissa_bits": 0, "bias": 5, "has_infinity": False, "nan": NanEncoding.NEGATIVE_ZERO,
             "overflow": Overflow.NAN},
    "e5m10": {"exponent_bits": 5, "mantissa_bits": 10, "bias": 15},
}  # fmt: skip
ROWS = {
    (shape, direction): ext.FloatFormat(f"r{shape}{number}", rounding=direction, **fields)
    for shape, fields in SHAPES.items() for number, direction in enumerate(DIRECTIONS)
}  # fmt: skip
PLUGIN = SimpleNamespace(__name__="rounding", hlojit_formats=ext.hookimpl(lambda: list(ROWS.values())))


class Exact:
    """The positive numbers of a format, worked out from its definition."""

    def __init__(self, row: ext.FloatFormat):
        self.row, m = row, row.mantissa_bits
        self.numbers: list[Fraction] = []
        for code in range(1 << row.exponent_bits + m):
            exponent, mantissa = code >> m, code & (1 << m) - 1
            top = exponent == (1 << row.exponent_bits) - 1
            if row.nan is NanEncoding.IEEE and top:
                continue
            if row.nan is NanEncoding.ALL_ONES and code == (1 << row.exponent_bits + m) - 1:
                continue
            self.numbers.append(
                (mantissa + (1 << m if exponent else 0)) * Fraction(2) ** (max(exponent, 1) - row.bias - m)
            )

    def rounded(self, value: Fraction) -> float:
        """A number, an infinity or NaN; of zero the sign is lost."""
        row, magnitude = self.row, abs(value)
        sign = -1.0 if value < 0 else 1.0
        if value < 0 and not row.signed:
            return self.missing()
        place = bisect.bisect_right(self.numbers, magnitude) - 1
        low = self.numbers[place]
        beyond = place == len(self.numbers) - 1
        high = 2 * low - self.numbers[place - 1] if beyond else self.numbers[place + 1]
        if beyond:  # the next number, had the format one more
            high = low + Fraction(2) ** (self._exponent(low) - row.mantissa_bits)
        if magnitude == low or self._goes_down(magnitude, low, high, place):
            return sign * float(low)
        if not beyond:
            return sign * float(high)
        return {Overflow.INFINITY: sign * np.inf, Overflow.NAN: np.nan, Overflow.SATURATE: sign * float(low)}[
            row.overflow
        ]

    def missing(self) -> float:
        """What stands for no number."""
        return 0.0 if self.row.nan is NanEncoding.NONE else np.nan

    def _exponent(self, number: Fraction) -> int:
        return number.numerator.bit_length() - number.denominator.bit_length() if number else 0

    def _goes_down(self, value: Fraction, low: Fraction, high: Fraction, place: int) -> bool:
        direction = self.row.rounding
        if direction is Rounding.TOWARD_ZERO:
            return True
        if direction is Rounding.AWAY_FROM_ZERO:
            return False
        if value - low != high - value:
            return value - low < high - value
        # Of one bit of precision both neighbours of a tie are odd, and the larger is taken.
        even = place % 2 == 0 if self.row.mantissa_bits else place == 0
        return direction is Rounding.NEAREST_EVEN and even


@pytest.fixture(scope="module", autouse=True)
def formats() -> Any:
    with ext.using(PLUGIN):
        yield


def same(found: Array, expected: list[float]) -> None:
    np.testing.assert_array_equal(np.where(found == 0, 0.0, found), np.where(np.array(expected) == 0, 0.0, expected))


@pytest.mark.parametrize("key", ROWS, ids=[f"{shape}-{direction.name.lower()}" for shape, direction in ROWS])
def test_conversions_to_a_format_are_rounded_in_its_direction(key: tuple[str, Rounding]) -> None:
    row = ROWS[key]
    exact = Exact(row)
    some = (
        exact.numbers
        if len(exact.numbers) < 100
        else exact.numbers[:20] + exact.numbers[1000:1040] + exact.numbers[-20:]
    )
    points = [
        *some,
        some[-1] * Fraction(17, 16),
        some[-1] * 2,
        some[-1] * Fraction(33, 32),
        some[1] / 2,
        some[1] / 1000,
    ]
    points += [(a + b) / 2 for a, b in itertools.pairwise(some)]
    given = [sign * near for each in map(float, points) for near in (each, np.nextafter(each, 0), np.nextafter(each, np.inf))
             for sign in (1.0, -1.0)]  # fmt: skip
    expected = [exact.rounded(Fraction(each)) for each in given]
    same(hlojit.Array.from_values(np.array(given), row).to_values(), expected)
    text = f"""func.func @main(%x: tensor<{len(given)}xf64>) -> tensor<{len(given)}x{row.name}> {{
      %0 = stablehlo.convert %x : (tensor<{len(given)}xf64>) -> tensor<{len(given)}x{row.name}>
      return %0 : tensor<{len(given)}x{row.name}> }}"""
    for backend in ("cpu", "reference"):
        same(hlojit.compile(text, backend=backend)(np.array(given)).to_values(), expected)
    # All digits: the shortest decimal of a number lies beside it, where a directed rounding takes another one.
    constant = ", ".join(f"{Decimal(float(each)):e}" for each in given[:50])
    text = f"""func.func @main() -> tensor<50x{row.name}> {{
      %0 = stablehlo.constant dense<[{constant}]> : tensor<50x{row.name}>
      return %0 : tensor<50x{row.name}> }}"""
    same(hlojit.compile(text)().to_values(), expected[:50])


OPS = {"add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
       "divide": lambda a, b: a / b if b else None}  # fmt: skip


@pytest.mark.parametrize("key", ROWS, ids=[f"{shape}-{direction.name.lower()}" for shape, direction in ROWS])
def test_arithmetic_rounds_the_exact_result_once(key: tuple[str, Rounding]) -> None:
    row = ROWS[key]
    exact, random = Exact(row), np.random.default_rng(5)
    few = (
        exact.numbers
        if len(exact.numbers) <= 64
        else [exact.numbers[k] for k in random.integers(0, len(exact.numbers), 40)]
    )
    few = few[:: max(1, len(few) // 12)]
    signs = (1, -1) if row.signed else (1,)
    pairs = [(s * a, t * b) for a in few for b in few for s in signs for t in signs]
    x, y = (hlojit.Array.from_values(np.array([float(pair[k]) for pair in pairs]), row) for k in (0, 1))
    body = "".join(f"%{k} = stablehlo.{op} %x, %y : T\n" for k, op in enumerate(OPS))
    text = f"func.func @main(%x: T, %y: T) -> (T, T, T, T) {{\n{body}return %0, %1, %2, %3 : T, T, T, T }}"
    text = text.replace("T", f"tensor<{len(pairs)}x{row.name}>")
    for backend in ("cpu", "reference"):
        for found, function in zip(hlojit.compile(text, backend=backend)(x, y), OPS.values()):
            values = found.to_values()
            for value, pair in zip(values, pairs):
                result = function(*pair)
                if result is not None:
                    np.testing.assert_equal(value + 0.0, exact.rounded(result) + 0.0, err_msg=f"{pair} {function}")


def test_infinity_is_no_large_number() -> None:
    """Toward zero what is too large is the largest number; infinity stays what it is."""
    row = ROWS["e3m2", Rounding.TOWARD_ZERO]
    found = hlojit.Array.from_values(np.array([1e9, np.inf, -1e9, -np.inf]), row).to_values()
    assert found.tolist() == [14.0, np.inf, -14.0, -np.inf]
    row = ROWS["e4m3", Rounding.TOWARD_ZERO]
    found = hlojit.Array.from_values(np.array([1e9, np.inf]), row).to_values()
    assert found[0] == 448.0 and np.isnan(found[1])


def test_formats_that_cannot_be_rounded_once_are_computed_in_integers() -> None:
    assert ext.FloatFormat("wide", exponent_bits=11, mantissa_bits=30, bias=1023).in_integers
    assert ext.FloatFormat(
        "wide", exponent_bits=8, mantissa_bits=30, bias=127, rounding=Rounding.STOCHASTIC
    ).in_integers
    assert not ext.FloatFormat("wide", exponent_bits=8, mantissa_bits=30, bias=127).in_integers
    with pytest.raises(hlojit.HlojitError, match="is rounded by encode"):
        ext.FloatFormat("coded", bits=8, decode=float, encode=int, rounding=Rounding.TOWARD_ZERO)
