"""Decoding, encoding, rounding and conversion of every float format, against ml_dtypes, NumPy and exact fractions."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hlojit.ir.formats import (
    BooleanType,
    ElementType,
    FloatFormat,
    IntegerType,
    NanEncoding,
    Overflow,
    element_type,
    element_types,
)
from hlojit.ir.scalar import conversions, formats
from hlojit.ir.scalar.arrays import decode_array, encode_array, from_bits, round_array, to_bits, to_compute, to_storage
from hlojit.ir.scalar.numpy_builder import NumpyBuilder

FORMATS = [row for row in element_types() if isinstance(row, FloatFormat)]
NARROW = [row for row in FORMATS if not row.is_native]
INTEGERS = [row for row in element_types() if isinstance(row, IntegerType)]
IDS = {"ids": str}
B: Any = NumpyBuilder()


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


def patterns(format: FloatFormat) -> np.ndarray:
    return np.arange(1 << format.bits, dtype=np.uint32).astype(format.storage_bits)


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Equal bits, or both NaN."""
    unsigned = f"u{a.dtype.itemsize}"
    return (a.view(unsigned) == b.view(unsigned)) | (np.isnan(a) & np.isnan(b))


def hard_floats(format: FloatFormat, dtype: Any) -> np.ndarray:
    """Values of the format, the middles between neighbours, what lies next to them, and random bits."""
    values = decode_array(patterns(format), format).astype(dtype)
    finite = np.unique(values[np.isfinite(values)])
    middles = (finite[1:] + finite[:-1]) / 2
    near = [np.nextafter(middles, dtype(sign)) for sign in (np.inf, -np.inf)]
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    random = np.random.default_rng(7).integers(0, np.iinfo(unsigned).max, 50_000, dtype=unsigned).view(dtype)
    beyond = finite[-1] * np.array([1, 1.0625, 1.125, 1.25, 1.5, 2, 4], dtype)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype)
    return np.concatenate([values, middles, *near, random, beyond, -beyond, special]).astype(dtype)


@pytest.mark.parametrize("format", NARROW, **IDS)
def test_decode_agrees_with_ml_dtypes_on_every_pattern(format: FloatFormat) -> None:
    stored = patterns(format)
    expected = stored.view(format.dtype).astype(np.float32)
    assert same(decode_array(stored, format), expected).all()


@pytest.mark.parametrize("format", NARROW, **IDS)
def test_pack_restores_every_pattern_but_nan_payloads(format: FloatFormat) -> None:
    stored = patterns(format)
    values = decode_array(stored, format)
    bits = B.array(formats.pack(B, B.value("f32", values), format)).view(format.storage_bits)
    different = bits != stored
    assert np.isnan(values[different]).all()
    assert np.isnan(decode_array(bits[different], format)).all()


@pytest.mark.parametrize("format", NARROW, **IDS)
def test_encode_f32_agrees_with_ml_dtypes(format: FloatFormat) -> None:
    values = hard_floats(format, np.float32)
    if format.nan is NanEncoding.NONE:
        values = values[~np.isnan(values)]  # what NaN becomes is ours to say: see below
    if not format.has_zero:
        values = values[np.abs(values) >= 2.0**-126]  # ml_dtypes does not round f32's subnormals to the nearest
    expected = values.astype(format.dtype).astype(np.float32)
    assert same(decode_array(encode_array(values, format), format), expected).all()


def nearest(values: np.ndarray, format: FloatFormat) -> np.ndarray:
    """The representable number nearest to each finite value, ties to even, by exact comparison."""
    table = decode_array(patterns(format), format).astype(np.float64)
    magnitudes = sorted({float(abs(v)) for v in table if np.isfinite(v)})
    exact = [Fraction(v) for v in magnitudes]
    above = exact[-1] + (exact[-1] - exact[-2] if len(exact) > 1 and format.mantissa_bits else exact[-1])
    results = []
    for value in values.tolist():
        size = abs(Fraction(value))
        place = bisect_left(exact, size)
        if place < len(exact) and exact[place] == size:
            choice = magnitudes[place]
        elif place == 0:
            choice = magnitudes[0]
        else:
            high = exact[place] if place < len(exact) else above
            middle = (exact[place - 1] + high) / 2
            # Patterns count up with magnitudes, so that the even one is the one at an even place.
            first = 0 if format.has_zero else 1
            odd_below = format.mantissa_bits == 0 or (place - 1 - first) % 2 == (0 if not format.has_zero else 1)
            up = size > middle or (size == middle and odd_below)
            choice = magnitudes[place - 1] if not up else magnitudes[place] if place < len(exact) else np.inf
        if choice == np.inf and format.overflow is Overflow.SATURATE:
            choice = magnitudes[-1]
        if choice == np.inf and format.overflow is Overflow.NAN:
            choice = np.nan
        results.append(np.copysign(choice, value))
    return np.array(results)


@pytest.mark.parametrize("format", [row for row in NARROW if row.bits <= 8], **IDS)
def test_encode_f64_rounds_once(format: FloatFormat) -> None:
    values = hard_floats(format, np.float64)
    values = np.concatenate([values[:1100], values[-3000:]])
    values = values[np.isfinite(values) & (format.signed | (values > 0)) & (format.has_zero | (values != 0))]
    expected = nearest(values, format).astype(np.float32)
    found = decode_array(encode_array(values, format), format)
    if format.nan is NanEncoding.NEGATIVE_ZERO:
        expected = np.where(expected == 0, np.float32(0), expected)
    assert same(found, expected).all(), values[~same(found, expected)][:5]


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_encode_f64_to_16_bits_does_not_go_through_f32(name: str) -> None:
    format = formats.format_of(name)
    step = 2.0**-format.mantissa_bits
    # Just above a tie: f32 would round it to the tie, and the tie to even is below.
    value = 1 + step / 2 + 2.0**-40
    assert decode_array(encode_array(np.array([value, -value]), format), format).tolist() == [1 + step, -1 - step]
    values = hard_floats(format, np.float64)
    values = values[np.isfinite(values)][::37]
    expected = nearest(values, format).astype(np.float32)
    assert same(decode_array(encode_array(values, format), format), expected).all()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("f4E2M1FN", np.nan, -0.0),
        ("f4E2M1FN", np.inf, 6.0),
        ("f4E2M1FN", -100.0, -6.0),
        ("f8E4M3FN", 464.0, 448.0),
        ("f8E4M3FN", 465.0, np.nan),
        ("f8E4M3FN", np.inf, np.nan),
        ("f8E4M3FNUZ", -0.0, 0.0),
        ("f8E4M3FNUZ", -1e-10, 0.0),
        ("f8E5M2", 1e9, np.inf),
        ("f8E8M0FNU", 0.0, np.nan),
        ("f8E8M0FNU", -1.0, np.nan),
        ("f8E8M0FNU", 1.5, 2.0),
        ("f8E8M0FNU", 1.49, 1.0),
        ("f8E8M0FNU", 2.0**-149, 2.0**-127),
        ("f8E8M0FNU", 1.25 * 2.0**-127, 2.0**-127),
        ("f8E8M0FNU", 1.75 * 2.0**-127, 2.0**-126),
        ("bf16", 3.3961776e38, np.inf),
        ("f16", 65519.0, 65504.0),
        ("f16", 65520.0, np.inf),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_values(name: str, value: float, expected: float, dtype: Any) -> None:
    format = formats.format_of(name)
    found = decode_array(encode_array(np.array([value], dtype), format), format)
    assert same(found, np.array([expected], np.float32)).all(), found


MADE_UP = [
    FloatFormat("mine7", exponent_bits=3, mantissa_bits=3, bias=5),
    FloatFormat("mine_negative_bias", exponent_bits=3, mantissa_bits=2, bias=-4),
    FloatFormat("mine_p3109", exponent_bits=4, mantissa_bits=3, bias=8, nan=NanEncoding.NEGATIVE_ZERO),
    FloatFormat(
        "mine_unsigned",
        exponent_bits=4,
        mantissa_bits=2,
        bias=3,
        signed=False,
        has_infinity=False,
        nan=NanEncoding.ALL_ONES,
        overflow=Overflow.SATURATE,
    ),
    FloatFormat("mine_wide", exponent_bits=8, mantissa_bits=15, bias=127),
    FloatFormat("mine_far", exponent_bits=6, mantissa_bits=5, bias=300),
]


def value_of(code: int, format: FloatFormat) -> Fraction | None:
    """What a pattern means by the definition of the format's parameters; None for infinities and NaN."""
    magnitude = code & ((1 << (format.exponent_bits + format.mantissa_bits)) - 1)
    negative = format.signed and code >> (format.exponent_bits + format.mantissa_bits)
    exponent, mantissa = divmod(magnitude, 1 << format.mantissa_bits)
    top = (1 << (format.exponent_bits + format.mantissa_bits)) - 1
    if format.nan is NanEncoding.IEEE and exponent == (1 << format.exponent_bits) - 1:
        return None
    if format.nan is NanEncoding.ALL_ONES and magnitude == top:
        return None
    if format.nan is NanEncoding.NEGATIVE_ZERO and (magnitude == top or (negative and not magnitude)):
        return None
    significand = Fraction(mantissa, 1 << format.mantissa_bits) + (1 if exponent else 0)
    size = significand * Fraction(2) ** (max(exponent, 1) - format.bias)
    return -size if negative else size


@pytest.mark.parametrize("format", MADE_UP, **IDS)
def test_made_up_format_decodes_by_definition(format: FloatFormat) -> None:
    codes = patterns(format) if format.bits <= 12 else np.arange(0, 1 << format.bits, 997, dtype=np.uint32)
    found = decode_array(codes.astype(format.storage_bits), format)
    for code, value in zip(codes.tolist(), found.tolist()):
        exact = value_of(code, format)
        assert not np.isfinite(value) if exact is None else Fraction(value) == exact, (code, value, exact)


@pytest.mark.parametrize("format", [row for row in MADE_UP if row.bits <= 12], **IDS)
def test_made_up_format_rounds_to_the_nearest(format: FloatFormat) -> None:
    random = np.random.default_rng(3)
    values = decode_array(patterns(format), format).astype(np.float64)
    finite = np.unique(values[np.isfinite(values)])
    middles = (finite[1:] + finite[:-1]) / 2
    tests = np.concatenate([finite, middles, middles * (1 + 2.0**-45), middles * (1 - 2.0**-45)])
    scattered = random.choice(finite, 500) * random.uniform(0.8, 1.3, 500)
    tests = np.concatenate([tests, scattered, finite[-1:] * 1.2, finite[-1:] * 3])
    if not format.signed:
        tests = np.abs(tests)
    expected = nearest(tests, format)
    if format.nan is NanEncoding.NEGATIVE_ZERO:
        expected = np.where(expected == 0, 0.0, expected)
    found = decode_array(encode_array(tests, format), format).astype(np.float64)
    assert same(found, expected).all(), (tests[~same(found, expected)][:4], found[~same(found, expected)][:4])


def test_format_given_by_functions() -> None:
    def decode(bits: int) -> float:
        return (bits - 128) / 4

    def encode(value: float) -> int:
        return max(0, min(255, round(value * 4) + 128))

    format = FloatFormat("fixed8", bits=8, decode=decode, encode=encode)
    values = np.array([0.25, -32.0, 31.75, 100.0, 0.1], np.float32)
    assert encode_array(values, format).tolist() == [129, 0, 255, 255, 128]
    assert round_array(values, format).tolist() == [0.25, -32.0, 31.75, 31.75, 0.0]


# conversions between element types


def convert(values: np.ndarray, source: ElementType, target: ElementType) -> np.ndarray:
    """The rule applied to an array in compute form."""
    scalar = B.value(formats.compute_kind(source), values)
    result = conversions.convert(B, scalar, source, target)
    assert result.kind == formats.compute_kind(target)
    array = B.array(result)
    return array.view(target.storage) if isinstance(target, IntegerType) else array


def hard_integers(element: IntegerType) -> np.ndarray:
    random = np.random.default_rng(11)
    if element.bits <= 8:
        return np.arange(element.minimum, element.maximum + 1).astype(element.storage)
    numbers = {element.minimum, element.maximum, 0, 1, 7}
    for power in range(element.bits):
        for offset in (-1, 0, 1):
            for near in (1 << power, (1 << power) + (1 << power >> 9), (1 << power) + (1 << power >> 12)):
                numbers |= {near + offset, -near + offset}
    numbers |= set(random.integers(element.minimum, element.maximum, 300, dtype=element.storage).tolist())
    return np.array([n for n in sorted(numbers) if element.minimum <= n <= element.maximum], dtype=element.storage)


@pytest.mark.parametrize("target", FORMATS, **IDS)
@pytest.mark.parametrize("source", INTEGERS, **IDS)
def test_convert_integer_to_float_rounds_once(source: IntegerType, target: FloatFormat) -> None:
    numbers = hard_integers(source)
    found = convert(numbers, source, target)
    if target.is_native:
        assert np.array_equal(found, numbers.astype(target.storage))
        return
    keep = np.array([(n > 0 if not target.has_zero else True) for n in numbers.tolist()])
    numbers, found = numbers[keep], found[keep]
    # Numbers up to 2**53 are exact in f64; beyond, only those that f64 holds can be compared this way.
    exact = np.array([int(float(n)) == n for n in numbers.tolist()])
    expected = nearest(numbers[exact].astype(np.float64), target).astype(found.dtype)
    if target.nan is NanEncoding.NEGATIVE_ZERO:
        expected = np.where(expected == 0, np.float32(0), expected)
    assert same(found[exact], expected).all(), numbers[exact][~same(found[exact], expected)][:5]


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("source", ["i64", "ui64"])
def test_convert_i64_just_above_a_tie(name: str, source: str) -> None:
    target = formats.format_of(name)
    # A tie of the target with one more unit in the last place, which f64 (or f32) would lose.
    start = 15 if name == "f16" else 60
    number = (1 << start) + (1 << (start - target.mantissa_bits - 1)) + 1
    found = convert(np.array([number], element_type(source).storage), element_type(source), target)
    assert found[0] == (1 << start) + (1 << (start - target.mantissa_bits))


@pytest.mark.parametrize("target", INTEGERS, **IDS)
@pytest.mark.parametrize("source", FORMATS, **IDS)
def test_convert_float_to_integer_truncates_and_saturates(source: FloatFormat, target: IntegerType) -> None:
    if source.is_native:
        dtype = source.storage.type
        powers = np.ldexp(1.0, np.arange(-3, 70)).astype(dtype)
        values = np.concatenate([powers, np.nextafter(powers, dtype(0)), powers * dtype(1.5)])
        values = np.concatenate([values, -values, np.array([0, -0.0, np.nan, np.inf, -np.inf], dtype)])
    else:
        values = decode_array(patterns(source), source)[:: 7 if source.bits > 8 else 1]
    expected = []
    for value in values.tolist():
        if np.isnan(value):
            expected.append(0)
        elif abs(value) == float("inf"):
            expected.append(target.maximum if value > 0 else target.minimum)
        else:
            expected.append(min(max(int(value), target.minimum), target.maximum))
    assert convert(values, source, target).tolist() == expected


@pytest.mark.parametrize("source", FORMATS, **IDS)
def test_convert_float_to_float_is_one_rounding(source: FloatFormat) -> None:
    dtype = source.storage.type
    values = hard_floats(element_type("bf16"), dtype) if source.is_native else decode_array(patterns(source), source)
    for target in FORMATS:
        found = convert(values, source, target)
        assert same(found, round_array(values, target).astype(found.dtype)).all(), target
        if conversions.contains(target, source):
            assert same(found, values.astype(found.dtype)).all(), target


def test_contains_knows_the_usual_pairs() -> None:
    contains = conversions.contains
    by_name = {format.name: format for format in FORMATS}
    assert contains(by_name["f32"], by_name["bf16"]) and contains(by_name["f16"], by_name["f8E5M2"])
    assert contains(by_name["bf16"], by_name["f8E4M3FN"]) and contains(by_name["f64"], by_name["f32"])
    assert not contains(by_name["f16"], by_name["bf16"]) and not contains(by_name["bf16"], by_name["f16"])
    assert not contains(by_name["f8E4M3FNUZ"], by_name["f4E2M1FN"])  # no -0.0
    assert not contains(by_name["f4E2M1FN"], by_name["f6E2M3FN"])


@pytest.mark.parametrize("target", INTEGERS, **IDS)
@pytest.mark.parametrize("source", INTEGERS, **IDS)
def test_convert_integer_to_integer_wraps(source: IntegerType, target: IntegerType) -> None:
    numbers = hard_integers(source)
    modulus = 1 << target.bits
    expected = [(n - target.minimum) % modulus + target.minimum for n in numbers.tolist()]
    assert convert(numbers, source, target).tolist() == expected


@pytest.mark.parametrize("element", [*INTEGERS, *FORMATS], **IDS)
def test_convert_boolean(element: ElementType) -> None:
    boolean = BooleanType()
    found = convert(np.array([False, True]), boolean, element)
    zero = 0.0 if not isinstance(element, FloatFormat) or element.has_zero else np.nan
    assert np.array_equal(found.astype(np.float64), [zero, 1.0], equal_nan=True)
    back = convert(np.array([0, 1, 1], dtype=found.dtype), element, boolean)
    assert back.tolist() == [False, True, True]
    if isinstance(element, FloatFormat):
        assert convert(np.array([np.nan, -0.0], found.dtype), element, boolean).tolist() == [True, False]


@pytest.mark.parametrize("element", [*INTEGERS, *NARROW], **IDS)
def test_bits_round_trip(element: ElementType) -> None:
    count = min(1 << element.bits, 1 << 16)
    bits = np.arange(count).astype(f"u{element.itemsize}")
    values = from_bits(bits, element)
    keep = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(count, bool)
    assert np.array_equal(to_bits(values, element)[keep], bits[keep])
    assert np.array_equal(to_compute(to_storage(values, element), element)[keep], values[keep])
