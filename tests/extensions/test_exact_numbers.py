"""A number reaches a format as it is, from wherever it comes, and is rounded once: beside fractions, on every back end."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.extensions import FloatFormat, Rounding
from hlojit.ir.formats import element_type
from hlojit.ir.passes.exact_arithmetic import rounds_twice

from .listed_formats import POSIT
from .test_codec_tables import FIXED, LOGARITHM

BACKENDS = ["cpu", "reference", "cuda"]
LARGEST = 2.0**12


def encode_never_zero(value: float) -> int:
    """Of ``listed_formats``' posits, with the standard's ends: no number becomes zero or none."""
    if value != value or abs(value) == math.inf:
        return 128
    if value == 0.0:
        return 0
    magnitude = min(max(abs(value), 2.0**-12), LARGEST)
    low = int(np.searchsorted(POSITIVE, magnitude, side="right")) - 1
    if low < 127:
        rest = magnitude - POSITIVE[low]
        room = POSITIVE[low + 1] - magnitude
        if rest > room or (rest == room and low % 2 == 1):
            low += 1
    return 256 - low if value < 0.0 else low


POSITIVE = np.array([float(POSIT.number(code) or 0) for code in range(128)], "f4")
DOWN = np.array([-math.inf, *[float(k) for k in range(-8, 8)]])


def decode_floor(code: int) -> float:
    """Integers from -8 to 7."""
    return float((code ^ 8) - 8)


def encode_floor(value: float) -> int:
    """Rounded down, without end, as fixed point is by a shift."""
    if value != value:
        return 0
    return math.floor(min(max(value, -8.0), 7.0)) & 15


def decode_twice(code: int) -> float:
    """Two codes for each number of eight."""
    return float(code & 7)


def encode_twice(value: float) -> int:
    """The second code for what was rounded up; a number of the format has the first."""
    if value != value:
        return 0
    clipped = min(max(value, 0.0), 7.0)
    near = math.floor(clipped + 0.5)
    return int(near) + (8 if near > clipped else 0)


def decode_none(code: int) -> float:
    return -math.inf + math.inf * (code * 1.0) if code == 1 else code * 1.0


def encode_none(value: float) -> int:
    """Falls and rises: no tables."""
    return 1 if value != value else int(min(abs(value) * 2.0, 3.0))


def decode_wide_none(code: int) -> float:
    return -float("nan") if code == 1 else code * 1.0


def encode_wide_none(value: float) -> int:
    return 1 if value != value else int(min(max(value, 0.0), 2.0**19))


NEVER = FloatFormat("exactposit8", bits=8, decode=POSIT.row.decode, encode=encode_never_zero)
FLOOR = FloatFormat("exactfloor4", bits=4, decode=decode_floor, encode=encode_floor)
TWICE = FloatFormat("exacttwice4", bits=4, decode=decode_twice, encode=encode_twice)
NONE = FloatFormat("exactnone3", bits=3, decode=decode_none, encode=encode_none)
WIDE_NONE = FloatFormat("exactnone20", bits=20, decode=decode_wide_none, encode=encode_wide_none)
WIDE = FloatFormat("exact59", exponent_bits=8, mantissa_bits=50, bias=127)
PLAIN = FloatFormat("exact8", exponent_bits=4, mantissa_bits=3, bias=7, rounding=Rounding.AWAY_FROM_ZERO)
ROWS = [NEVER, FLOOR, TWICE, NONE, WIDE_NONE, WIDE, PLAIN, LOGARITHM, FIXED]


@pytest.fixture(autouse=True)
def simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")


@pytest.fixture(scope="module", autouse=True)
def formats() -> Any:
    with ext.using(SimpleNamespace(__name__="exact", hlojit_formats=ext.hookimpl(lambda: ROWS))):
        yield


def converted(source: str, target: str, x: Any, backend: str) -> Any:
    one, other = f"tensor<{len(x)}x{source}>", f"tensor<{len(x)}x{target}>"
    text = f"func.func @main(%x: {one}) -> {other} {{ %0 = stablehlo.convert %x : ({one}) -> {other} return %0 : {other} }}"
    return hlojit.compile(text, backend=backend)(x)


FAR = [5e-324, -1e-300, 1e-46, -1e-45, 0.0, -0.0, 1e39, 1.7e308, -1.7e308, -1e39, math.inf, -math.inf, math.nan]
TIES = [1 + 1 / 16, 1 + 1 / 16 + 2.0**-40, 1 + 1 / 16 - 2.0**-40, -3.25 - 2.0**-30, -3.25, 2.0, 2 - 2.0**-50]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("row", [NEVER, FLOOR, TWICE], ids=str)
def test_numbers_of_f64_reach_encode_as_they_are(row: FloatFormat, backend: str) -> None:
    given = np.array(FAR + TIES)
    assert row.encode is not None and row.decode is not None
    kept = [row.encode(row.decode(row.encode(each))) for each in given]
    assert converted("f64", row.name, given, backend).storage.tolist() == kept
    for times in (1, 1000):
        assert hlojit.Array.from_values(np.tile(given, times), row).storage.tolist() == kept * times
    numbers = ", ".join(str(each) for each in given[np.isfinite(given)])
    kind = f"tensor<{np.isfinite(given).sum()}x{row.name}>"
    text = f"func.func @main() -> {kind} {{ %0 = stablehlo.constant dense<[{numbers}]> : {kind} return %0 : {kind} }}"
    found = hlojit.compile(text, backend=backend)().storage
    assert found.tolist() == np.array(kept)[np.isfinite(given)].tolist()


def nearest(number: Fraction, bits: int = 51) -> float:
    """A number rounded to so many bits, ties to even."""
    unit = Fraction(2) ** max(abs(int(number)).bit_length() - bits, 0)
    return float(round(number / unit) * unit)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["i64", "ui64"])
def test_integers_of_64_bits_are_rounded_once(kind: str, backend: str) -> None:
    rng = random.Random(1)
    given = [2**54 + 16, 2**54 - 1, 2**63 - 1, 2**53 + 1, 2**54 + 8, 2**54 + 9, 2**62 + 2**11, 2**62 + 2**11 + 1]
    given += [rng.getrandbits(rng.randint(50, 63)) for _ in range(200)]
    given += [2**64 - 1, 2**63 + 2**12 + 1] if kind == "ui64" else [-each for each in given] + [-(2**63)]
    array = np.array(given, "u8" if kind == "ui64" else "i8")
    wanted = [nearest(Fraction(each)) for each in given]
    assert converted(kind, WIDE.name, array, backend).to_values().tolist() == wanted
    for numbers in (array, array.astype(array.dtype.newbyteorder())):
        assert hlojit.Array.from_values(numbers, WIDE).to_values().tolist() == wanted


def test_numbers_beyond_f64_are_rounded_once() -> None:
    tie = Fraction(17, 16)
    above, below = tie + Fraction(1, 10**30), tie - Fraction(1, 10**30)
    plain = FloatFormat("exact8even", exponent_bits=4, mantissa_bits=3, bias=7)
    numbers = [above, tie, below, Decimal("1.0625000000000000000000000001"), 10**400, -(2**70)]
    found = hlojit.Array.from_values(np.array(numbers, object), plain).to_values()
    assert found.tolist() == [1.125, 1.0, 1.0, 1.125, math.inf, -math.inf]
    if np.finfo(np.longdouble).nmant > 52:
        long = np.longdouble(1) + np.array([1, -1], "g") * np.longdouble(2) ** -60
        assert hlojit.Array.from_values(long, PLAIN).to_values().tolist() == [1.125, 1.0]
    with pytest.raises(hlojit.HlojitError, match="encodes real numbers"):
        hlojit.Array.from_values(np.array([1j]), PLAIN)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_program_keeps_is_what_from_values_makes(backend: str) -> None:
    """Of a number with two codes the one that its number is encoded to."""
    given = np.array([0.75, 1.25, 3.5, 6.9, 7.0, math.nan])
    made = hlojit.Array.from_values(given, TWICE)
    assert made.storage.tolist() == [1, 1, 4, 7, 7, 0]
    assert converted("f64", TWICE.name, given, backend).storage.tolist() == made.storage.tolist()
    assert converted("f32", TWICE.name, given.astype("f4"), backend).storage.tolist() == made.storage.tolist()


@pytest.mark.parametrize("row", [NONE, WIDE_NONE, NEVER, LOGARITHM], ids=str)
def test_nan_has_one_sign(row: FloatFormat) -> None:
    assert row.encode is not None
    none = hlojit.Array(np.array([row.encode(math.nan)], row.storage_bits), row)
    signs = [bool(np.signbit(none.to_values()[0]))]
    for backend in BACKENDS:
        signs += [bool(np.signbit(converted(row.name, kind, none, backend)[0])) for kind in ("f64", "f32")]
    assert len(set(signs)) == 1


# ------------------------------------------------------------------------------------------------------- arithmetic

OPS: dict[str, Callable[[Fraction, Fraction], Fraction | None]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y if y else None,
}


def computed(op: str, name: str, x: Any, y: Any, backend: str) -> Any:
    kind = f"tensor<{len(x)}x{name}>"
    text = f"func.func @main(%x: {kind}, %y: {kind}) -> {kind} {{ %0 = stablehlo.{op} %x, %y : {kind} return %0 : {kind} }}"
    return hlojit.compile(text, backend=backend)(x, y)


def scale(number: Fraction | None) -> int:
    """The code of f8E8M0FNU: the nearest power of two from 2**-127 to 2**127, the larger of two; 255 is NaN."""
    if number is None or number <= 0:
        return 255
    doubled = 2 * number.numerator // number.denominator if number >= 1 else 0
    exponent = doubled.bit_length() - 2 if doubled else -((number.denominator - 1) // number.numerator).bit_length()
    power = Fraction(2) ** exponent
    assert power <= number < 2 * power
    code = exponent + 127 + (2 * number >= 3 * power)
    return 255 if code > 254 else max(code, 0)


@pytest.mark.parametrize("op", OPS)
def test_powers_of_two_are_rounded_once(op: str) -> None:
    """All pairs of a format without zero, whose products are not: below f32's range they are the least number."""
    codes = np.arange(256, dtype="u1")
    x, y = np.repeat(codes, 256), np.tile(codes, 256)
    row = element_type("f8E8M0FNU")
    numbers = [Fraction(2) ** (code - 127) for code in range(255)]
    wanted = np.array(
        [
            255 if a == 255 or b == 255 else scale(OPS[op](numbers[a], numbers[b]))
            for a, b in zip(x.tolist(), y.tolist(), strict=True)
        ]
    )
    assert row.dtype is not None
    for backend in BACKENDS:
        chosen = slice(None, None, 101 if backend == "cuda" else 1)
        found = computed(op, row.name, x[chosen].view(row.dtype), y[chosen].view(row.dtype), backend)
        np.testing.assert_array_equal(found.view("u1"), wanted[chosen])


@pytest.mark.parametrize("op", OPS)
def test_a_format_whose_encode_rounds_down_sees_the_exact_result(op: str) -> None:
    """Here sums and products are exact; 7 / 3, and with a finer format 1 - 2**-60, are not."""
    codes = np.arange(16, dtype="u1")
    x, y = np.repeat(codes, 16), np.tile(codes, 16)
    wanted = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        left, right = Fraction(decode_floor(a)), Fraction(decode_floor(b))
        exact = OPS[op](left, right)
        number = float(exact) if exact is not None else math.copysign(math.inf, left) if left else math.nan
        wanted.append(encode_floor(number if exact is None else min(max(math.floor(exact), -8), 7)))
    for backend in BACKENDS:
        given = (hlojit.Array(each, FLOOR) for each in (x, y))
        assert computed(op, FLOOR.name, *given, backend).storage.tolist() == wanted


def test_what_is_rounded_to_odd_is_what_has_to_be() -> None:
    assert not rounds_twice(POSIT.row) and not rounds_twice(FIXED) and not rounds_twice(NEVER)
    assert rounds_twice(FLOOR) and rounds_twice(LOGARITHM) and rounds_twice(NONE) and rounds_twice(WIDE)
    built_in = {
        row.name for row in hlojit.ir.formats.element_types() if isinstance(row, FloatFormat) and rounds_twice(row)
    }
    assert built_in - {row.name for row in ROWS} == {"f8E8M0FNU"}


def test_normal_numbers_below_those_of_f32_are_numbers() -> None:
    """Of a large bias: all codes, and sums, on every back end."""
    row = FloatFormat("exact5low", exponent_bits=3, mantissa_bits=1, bias=143)
    codes = np.arange(14, dtype="u1")
    wanted = [math.ldexp((code & 1) + 2 * (code > 1), max(code >> 1, 1) - 144) for code in range(14)]
    with ext.using(SimpleNamespace(__name__="low", hlojit_formats=ext.hookimpl(lambda: [row]))):
        given = hlojit.Array(codes, row)
        assert given.to_values().tolist() == wanted
        for backend in BACKENDS:
            assert converted(row.name, "f64", given, backend).tolist() == wanted
            assert converted("f64", row.name, np.array(wanted), backend).storage.tolist() == codes.tolist()
            assert computed("maximum", row.name, given, given, backend).storage.tolist() == codes.tolist()


LOW = [
    FloatFormat("exactaway8", exponent_bits=3, mantissa_bits=4, bias=97, rounding=Rounding.AWAY_FROM_ZERO),
    FloatFormat("exactnozero", exponent_bits=4, mantissa_bits=1, bias=143, signed=False, has_zero=False),
]


@pytest.mark.parametrize("row", LOW, ids=str)
def test_products_below_the_numbers_of_f32_are_rounded_by_what_they_are(row: FloatFormat) -> None:
    """Away from zero, or without one, the least number; and conversions of f32's subnormal numbers."""
    with ext.using(SimpleNamespace(__name__="low", hlojit_formats=ext.hookimpl(lambda: [row]))):
        codes = np.arange(1, 25, dtype="u1")
        given = hlojit.Array(codes, row)
        small = given.to_values()[:12]
        for backend in BACKENDS:
            found = computed("multiply", row.name, given, given, backend).to_values()
            assert (found == min(given.to_values()[0], hlojit.Array(codes * 0, row).to_values()[0] or math.inf)).all()
            narrow = converted("f32", row.name, small.astype("f4"), backend)
            exact = small.astype("f4") == small
            np.testing.assert_array_equal(narrow.storage[exact], codes[:12][exact])
