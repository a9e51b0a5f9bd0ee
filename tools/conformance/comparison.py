"""Whether a result is what is expected of it: equal, within a tolerance, within so many ULP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.conformance.checks import Check
from tools.conformance.tolerances import Tolerance

Array = np.ndarray[Any, Any]
FAR = (1 << 64) - 1
"""The distance of a number from what is not finite."""


def mismatch(checks: Sequence[Check], results: Sequence[Any]) -> str:
    """What is wrong with the results, or nothing."""
    for number, check in enumerate(checks):
        actual, expected = np.asarray(results[check.actual]), np.asarray(results[check.expected])
        if found := differs(check, actual, expected):
            return found if len(checks) == 1 else f"check {number}: {found}"
    return ""


def differs(check: Check, actual: Array, expected: Array) -> str:
    """How ``actual`` differs from ``expected`` by more than ``check`` allows, or nothing."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"{actual.dtype}{list(actual.shape)} for {expected.dtype}{list(expected.shape)}"
    if check.rule == "ulp":
        return _apart(actual, expected, check.least, check.most)
    if check.rule == "absolute":
        wrong = ~_near(actual, expected, check.tolerance)
        return _where(wrong, actual, expected, f"beyond {check.tolerance}")
    return _where(~same(actual, expected), actual, expected, "not equal")


def differs_by(allowed: Tolerance, actual: Array, expected: Array) -> str:
    """How ``actual`` differs from ``expected`` by more than ``allowed``, or nothing."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"{actual.dtype}{list(actual.shape)} for {expected.dtype}{list(expected.shape)}"
    if not is_float(expected):
        return _where(~same(actual, expected), actual, expected, "not equal")
    if expected.size == 0:
        return ""
    apart = distance(actual, expected)
    off = apart > allowed.ulp
    if not off.any():
        return ""
    large = _in_units_of(actual, expected, np.max(np.abs(_finite(parts(expected)))))
    wrong = off & ~(large <= allowed.of_largest)
    worst = float(apart[off].max())
    largest = float(np.nanmax(np.where(off, large, 0)))
    where = "not finite" if worst >= FAR or not np.isfinite(worst) else f"{worst:.6g} ULP"
    return _where(wrong, actual, expected, f"{where}, {largest:.3g} of the largest")


def distance(actual: Array, expected: Array) -> Array:
    """How far floats or complex numbers (part by part) are apart, as tolerances count it."""
    if expected.dtype.kind == "c":
        return _in_units_of(actual, expected, np.max(np.abs(_finite(parts(expected))), axis=-1, keepdims=True))
    return ulp_distance(np.ascontiguousarray(actual), np.ascontiguousarray(expected)).astype(np.float64)


def _finite(array: Array) -> Array:
    """As f64, 0 for what is not finite."""
    wide = array.astype(np.float64)
    return np.where(np.isfinite(wide), wide, 0.0)


def _in_units_of(actual: Array, expected: Array, magnitude: Any) -> Array:
    """Differences in units of the spacing of the type's numbers at a magnitude; infinite where that is meaningless."""
    import ml_dtypes

    limits: Any = ml_dtypes.finfo
    one, other = (parts(each) for each in (actual, expected))
    precision = limits(other.dtype)
    one, other = one.astype(np.float64), other.astype(np.float64)
    spacing = 2.0 ** np.floor(np.log2(np.maximum(magnitude, float(precision.tiny)))) * float(precision.eps)
    with np.errstate(all="ignore"):
        apart = np.abs(one - other) / spacing
    return np.where(np.isfinite(apart), apart, np.where(same(one, other), 0.0, np.inf))


def parts(array: Array) -> Array:
    """A complex array as pairs of reals, with a last dimension more; others as they are."""
    if array.dtype.kind != "c":
        return array
    return np.stack([array.real, array.imag], axis=-1)


def is_float(array: Array) -> bool:
    return array.dtype.kind in "fc" or (array.dtype.kind == "V" and "float" in array.dtype.name)


def _wide(array: Array) -> Array:
    if array.dtype.kind in "biuf":
        return array
    return array.astype(np.float64 if is_float(array) else np.int64)


def same(actual: Array, expected: Array) -> Array:
    """Equal, or both no numbers, element by element (and part by part of complex numbers)."""
    one, other = _wide(parts(actual)), _wide(parts(expected))
    equal: Array = one == other
    return equal | (np.isnan(one) & np.isnan(other)) if one.dtype.kind == "f" else equal


def _near(actual: Array, expected: Array, tolerance: float) -> Array:
    one, other = (parts(each).astype(np.float64) for each in (actual, expected))
    with np.errstate(all="ignore"):
        close = np.abs(one - other) <= tolerance
    result: Array = close | same(actual, expected)
    return result


def ulp_distance(actual: Array, expected: Array) -> Array:
    """How many numbers of the type lie between, as unsigned 64 bits; ``FAR`` if one of them is not finite and they differ."""
    one, other = parts(actual), parts(expected)
    bits = np.dtype(f"u{one.dtype.itemsize}")
    sign = bits.type(1 << (8 * bits.itemsize - 1)) if one.dtype.itemsize > 1 else _sign_of(one)
    first, second = one.view(bits), other.view(bits)
    magnitudes = [(each & ~sign).astype(np.uint64) for each in (first, second)]
    opposite = (first & sign) != (second & sign)
    apart = np.where(magnitudes[0] > magnitudes[1], magnitudes[0] - magnitudes[1], magnitudes[1] - magnitudes[0])
    apart = np.where(opposite, magnitudes[0] + magnitudes[1], apart)
    wide = [each.astype(np.float64) for each in (one, other)]
    finite = np.isfinite(wide[0]) & np.isfinite(wide[1])
    alike = (first == second) | (np.isnan(wide[0]) & np.isnan(wide[1]))
    return np.where(alike, np.uint64(0), np.where(finite, apart, np.uint64(FAR)))


def _sign_of(array: Array) -> Any:
    """The sign bit of a format of at most 8 bits, whose codes are in the low bits of a byte."""
    import ml_dtypes

    limits: Any = ml_dtypes.finfo
    return np.uint8(1 << (limits(array.dtype).bits - 1))


def _apart(actual: Array, expected: Array, least: int, most: int) -> str:
    if actual.size == 0:
        return ""
    apart = ulp_distance(np.ascontiguousarray(actual), np.ascontiguousarray(expected))
    wrong = (apart > np.uint64(most)) | (apart < np.uint64(least))
    if not wrong.any():
        return ""
    worst = int(apart[wrong].max())
    return _where(wrong, actual, expected, f"{'not finite' if worst == FAR else f'{worst} ULP'} (limit {most})")


def _where(wrong: Array, actual: Array, expected: Array, what: str) -> str:
    if not wrong.any():
        return ""
    # Distances of numbers without dimensions have one.
    one, other = (parts(each).reshape(wrong.shape) for each in (actual, expected))
    first = tuple(int(each) for each in np.argwhere(wrong)[0])
    count = int(np.count_nonzero(wrong))
    return f"{what}: {one[first]!s} for {other[first]!s} at {list(first)}; {count} of {wrong.size} elements"
