"""``NumpyBuilder`` itself, against Python integers and exact fractions: other tests lean on it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hlojit.ir.scalar import arithmetic
from hlojit.ir.scalar.builder import ScalarBuilder
from hlojit.ir.scalar.numpy_builder import DTYPE, NumpyBuilder, saturate

B: Any = NumpyBuilder()


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


def test_implements_the_protocol() -> None:
    assert isinstance(B, ScalarBuilder)


def floats(dtype: Any, count: int, spread: int) -> np.ndarray:
    random = np.random.default_rng(spread)
    limits = np.finfo(dtype)
    scattered = np.ldexp(random.normal(size=count), random.integers(-spread, spread, count)).astype(dtype)
    hard = [0.0, -0.0, 1.0, -1.0, limits.max, -limits.max, limits.tiny, limits.smallest_subnormal, 1 + limits.eps]
    return np.concatenate([np.array(hard, dtype), scattered])


def rounded_to_single(exact: Fraction) -> np.float32:
    """The f32 nearest to a fraction: a double that has the right f32 on either side decides, except on a tie."""
    guess = np.float32(exact.numerator / exact.denominator)
    candidates = {guess, np.nextafter(guess, np.float32(np.inf)), np.nextafter(guess, np.float32(-np.inf))}
    finite = [c for c in candidates if np.isfinite(c)]
    return min(finite, key=lambda c: (abs(Fraction(float(c)) - exact), int(np.float32(c).view(np.int32)) & 1))


@pytest.mark.parametrize("spread", [2, 60, 149])
def test_fma_f32_rounds_once(spread: int) -> None:
    a, b, c = (np.roll(floats(np.float32, 300, spread), shift) for shift in (0, 1, 5))
    # Sums that cancel, and sums next to a tie, where rounding twice goes wrong.
    b[20:150], c[20:150] = a[20:150], -(a[20:150] ** 2)
    found = B.array(B.fma(*(B.value("f32", x) for x in (a, b, c))))
    for x, y, z, result in zip(a.tolist(), b.tolist(), c.tolist(), found.tolist()):
        exact = Fraction(x) * Fraction(y) + Fraction(z) if np.isfinite([x, y, z]).all() else None
        if exact is not None and abs(exact) < 2**127 and exact != 0:
            assert np.float32(result) == rounded_to_single(exact), (x, y, z)


@pytest.mark.parametrize("spread", [2, 400, 1020])
def test_fma_f64_rounds_once(spread: int) -> None:
    a, b, c = (np.roll(floats(np.float64, 300, spread), shift) for shift in (0, 1, 5))
    b[20:150], c[20:150] = a[20:150], -(a[20:150] ** 2)
    found = B.array(B.fma(*(B.value("f64", x) for x in (a, b, c))))
    for x, y, z, result in zip(a.tolist(), b.tolist(), c.tolist(), found.tolist()):
        if not np.isfinite([x, y, z]).all():
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        try:
            wanted = exact.numerator / exact.denominator
        except OverflowError:
            wanted = np.inf if exact > 0 else -np.inf
        assert result == wanted, (x, y, z)


def test_fma_of_special_values() -> None:
    a = np.array([np.inf, np.inf, 0.0, -0.0, np.nan])
    b = np.array([1.0, 0.0, np.inf, 1.0, 1.0])
    c = np.array([-np.inf, 1.0, 1.0, 0.0, 1.0])
    found = B.array(B.fma(*(B.value("f64", x) for x in (a, b, c))))
    assert np.array_equal(found, [np.nan, np.nan, np.nan, 0.0, np.nan], equal_nan=True)


def test_undefined_divisions_raise() -> None:
    zero, one = B.constant("i32", 0), B.constant("i32", 1)
    for divide in (B.sdiv, B.udiv, B.srem, B.urem):
        with pytest.raises(ZeroDivisionError):
            divide(one, zero)
    for divide in (B.sdiv, B.srem):
        with pytest.raises(OverflowError):
            divide(B.constant("i32", -(2**31)), B.constant("i32", -1))


def test_shift_by_the_width_is_garbage_that_a_select_can_discard() -> None:
    shifted = B.shl(B.constant("i8", 1), B.constant("i8", 8))
    assert int(B.array(shifted)) not in (0, 1, -1)
    assert int(B.array(arithmetic.shift_left(B, B.constant("i8", 1), B.constant("i8", 8), 8))) == 0


@pytest.mark.parametrize("kind", ["i8", "i16", "i32", "i64"])
def test_integer_operations_against_python(kind: str) -> None:
    random, dtype = np.random.default_rng(4), DTYPE[kind]
    width, limits = dtype.itemsize * 8, np.iinfo(dtype)
    x = np.concatenate([[limits.min, limits.max, 0, 1, -1], random.integers(limits.min, limits.max, 50)]).astype(dtype)
    y = np.roll(np.where(x == 0, dtype.type(3), x), 7)
    y = np.where((x == limits.min) & (y == -1), dtype.type(5), y)
    a, b = B.value(kind, x), B.value(kind, y)

    def signed(number: int) -> int:
        number &= (1 << width) - 1
        return number - (1 << width) if number >> (width - 1) else number

    def unsigned(number: int) -> int:
        return number & ((1 << width) - 1)

    rows = list(zip(x.tolist(), y.tolist()))
    assert B.array(B.mul(a, b)).tolist() == [signed(p * q) for p, q in rows]
    quotients = [abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1) for p, q in rows]
    assert B.array(B.sdiv(a, b)).tolist() == quotients
    assert B.array(B.srem(a, b)).tolist() == [p - t * q for (p, q), t in zip(rows, quotients)]
    assert B.array(B.udiv(a, b)).tolist() == [signed(unsigned(p) // unsigned(q)) for p, q in rows]
    assert B.array(B.urem(a, b)).tolist() == [signed(unsigned(p) % unsigned(q)) for p, q in rows]
    assert B.array(B.icmp("ult", a, b)).tolist() == [unsigned(p) < unsigned(q) for p, q in rows]
    assert B.array(B.icmp("sge", a, b)).tolist() == [p >= q for p, q in rows]
    assert B.array(B.count_leading_zeros(a)).tolist() == [width - unsigned(p).bit_length() for p in x.tolist()]
    assert B.array(B.population_count(a)).tolist() == [unsigned(p).bit_count() for p in x.tolist()]
    three = B.constant(kind, 3)
    assert B.array(B.lshr(a, three)).tolist() == [unsigned(p) >> 3 for p in x.tolist()]
    assert B.array(B.ashr(a, three)).tolist() == [p >> 3 for p in x.tolist()]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_saturate(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    values = [0.9, -0.9, 1e30, -1e30, np.inf, -np.inf, np.nan, float(limits.max), float(limits.min), 100.5]
    expected = [0, 0, limits.max, limits.min, limits.max, limits.min, 0, limits.max, limits.min, 100]
    assert saturate(np.array(values), np.dtype(dtype)).tolist() == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_remainder_is_exact(dtype: Any) -> None:
    unsigned = np.uint32 if dtype is np.float32 else np.uint64
    random = np.random.default_rng(8)
    kind = "f32" if dtype is np.float32 else "f64"
    x, y = (random.integers(0, np.iinfo(unsigned).max, 20_000, dtype=unsigned).view(dtype) for _ in range(2))
    y[::3] = random.normal(size=y[::3].shape)
    y[1::3] = random.integers(1, 1 << 20, y[1::3].shape) * np.finfo(dtype).smallest_subnormal
    found = B.array(arithmetic.float_remainder(B, B.value(kind, x), B.value(kind, y)))
    expected = np.fmod(x, y)
    assert ((found.view(unsigned) == expected.view(unsigned)) | (np.isnan(found) & np.isnan(expected))).all()
