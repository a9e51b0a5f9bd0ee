"""PTX's arithmetic on NumPy arrays: comparisons, conversions, fused products, as the PTX ISA defines them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
TYPES = {f"{letter}{bits}": np.dtype(f"{kind}{bits // 8}") for letter, kind in zip("ubs", "uui") for bits in UNSIGNED}
TYPES |= {"f16": np.dtype("f2"), "f32": np.dtype("f4"), "f64": np.dtype("f8")}


def number_first(function: Any, least: bool) -> Any:
    """minNum and maxNum of IEEE 754-2019: -0 is less than +0, a number is before NaN."""

    def chosen(a: Any, b: Any) -> Any:
        result = function(a, b)
        if a.dtype.kind != "f":
            return result
        both = (a == 0) & (b == 0)
        negative = np.signbit(a) | np.signbit(b) if least else np.signbit(a) & np.signbit(b)
        return np.where(both, np.where(negative, a.dtype.type(-0.0), a.dtype.type(0.0)), result)

    return chosen


def compared(compare: str, a: Any, b: Any) -> Any:
    if a.dtype.kind != "f":
        names = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater}
        return (names | {"ge": np.greater_equal})[compare](a, b)
    unordered = np.isnan(a) | np.isnan(b)
    if compare in ("nan", "num"):
        return unordered if compare == "nan" else ~unordered
    ordered = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    if compare.endswith("u"):
        return ordered[compare[:-1]] | unordered
    return ordered[compare] & ~unordered


def fused(a: Any, b: Any, c: Any) -> Any:
    """A product and a sum with one rounding."""
    if a.dtype == np.float64:
        return np.array([_fused_double(*map(float, each)) for each in zip(a, b, c)], np.float64)
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    # Rounded to odd, a sum of 53 bits can be rounded once more without harm.
    virtual = total - product
    error = (product - (total - virtual)) + (addend - virtual)
    even = (total.view(np.int64) & 1) == 0
    inexact = np.isfinite(total) & (error != 0) & even
    towards = np.where(error > 0, np.inf, -np.inf)
    return np.where(inexact, np.nextafter(total, towards), total).astype(a.dtype)


def fused_pairs(kind: str, a: Any, b: Any, c: Any) -> Any:
    """``fma.rn`` of two halves of each word: a product and a sum of 16-bit floats, rounded once."""
    dtype = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}[kind]
    # Products of 16-bit floats and their sums with a number not far away are exact in 64 bits.
    wide = [np.ascontiguousarray(each).view(dtype).astype(np.float64) for each in (a, b, c)]
    return (wide[0] * wide[1] + wide[2]).astype(dtype).view(np.uint32)


def _fused_double(a: float, b: float, c: float) -> float:
    if not all(map(np.isfinite, (a, b, c))) or 0 in (a, b):
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    try:
        return float(exact)
    except OverflowError:
        return float(np.copysign(np.inf, float(exact > 0) - 0.5))


def converted(value: Any, target: np.dtype[Any], modes: Sequence[str]) -> Any:
    """``cvt``: to integers with saturation, to floats to the nearest."""
    if value.dtype.kind == "f" and target.kind == "f":
        rounding = {"rni": np.rint, "rmi": np.floor, "rpi": np.ceil, "rzi": np.trunc}
        found = [rounding[mode] for mode in modes if mode in rounding]
        assert found or "rn" in modes or target.itemsize >= value.dtype.itemsize, modes
        return (found[0](value) if found else value).astype(target)
    if value.dtype.kind == "f":
        assert "rzi" in modes or "rni" in modes
        limits = np.iinfo(target)
        whole = np.rint(value) if "rni" in modes else np.trunc(value)
        invalid = 0 if target.itemsize <= 4 else -(1 << 63) if target.kind == "i" else 1 << 63
        numbers = [
            invalid
            if np.isnan(x)
            else limits.max
            if x >= limits.max
            else max(limits.min, int(x) if np.isfinite(x) else limits.min)
            for x in whole
        ]
        return np.array(
            [each & ((1 << target.itemsize * 8) - 1) for each in numbers], UNSIGNED[target.itemsize * 8]
        ).view(target)
    return value.astype(target)


NARROW = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
CANONICAL_NAN = {"bf16": 0x7FFF, "f16": 0x7FFF, "e4m3": 0x7F, "e5m2": 0x7F}


def narrowed(value: Any, kind: str, modes: Sequence[str]) -> Any:
    """The bits of f32 values as a narrow format: to nearest, 8-bit formats saturate, NaN is the machine's."""
    assert "rn" in modes and ("satfinite" in modes) == (kind not in ("bf16", "f16"))
    dtype = np.dtype(NARROW[kind])
    bits = UNSIGNED[dtype.itemsize * 8]
    limit = float(ml_dtypes.finfo(dtype).max)
    number = value if kind in ("bf16", "f16") else np.clip(value, -limit, limit)
    return np.where(np.isnan(value), bits(CANONICAL_NAN[kind]), number.astype(dtype).view(bits))


def widened(codes: Any, kind: str) -> Any:
    """The bits of f16 values that 8-bit codes mean."""
    value = codes.view(NARROW[kind]).astype(np.float16)
    return np.where(np.isnan(value), np.uint16(0x7FFF), value.view(np.uint16))
