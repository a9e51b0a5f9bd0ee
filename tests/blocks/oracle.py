"""What encoding into blocks is, in exact fractions: written from the formats' specifications, not from hlojit's code.

Elements and scales are looked up in the values of ml_dtypes' types, of which every code is listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Kind:
    """A block format: ml_dtypes' names of its elements and scales, and the exponent of its largest element."""

    element: str
    emax: int
    scale: str = "float8_e8m0fnu"
    block: int = 32
    two_levels: bool = False


KINDS = {
    "mxfp8": Kind("float8_e4m3fn", 8),
    "mxfp8_e5m2": Kind("float8_e5m2", 15),
    "mxfp6_e2m3": Kind("float6_e2m3fn", 2),
    "mxfp6_e3m2": Kind("float6_e3m2fn", 4),
    "mxfp4": Kind("float4_e2m1fn", 2),
    "nvfp4": Kind("float4_e2m1fn", 2, "float8_e4m3fn", 16, True),
}
BITS = {"float8_e4m3fn": 8, "float8_e5m2": 8, "float6_e2m3fn": 6, "float6_e3m2fn": 6, "float4_e2m1fn": 4}


@cache
def magnitudes(name: str) -> tuple[Fraction, ...]:
    """The finite numbers of a format from zero up, in the order of their codes."""
    dtype = np.dtype(getattr(ml_dtypes, name))
    codes = np.arange(1 << (BITS[name] - 1), dtype=np.uint8).view(dtype).astype(np.float64)
    return tuple(Fraction(float(value)) for value in codes if np.isfinite(value))


def nearest(value: Fraction, name: str) -> Fraction:
    """The nearest number of a format, of two the one with the even code; beyond the largest one that."""
    table = magnitudes(name)
    size = min(abs(value), table[-1])
    code = min(range(len(table)), key=lambda at: (abs(table[at] - size), at % 2))
    return table[code] if value >= 0 else -table[code]


def floor_log2(value: Fraction) -> int:
    """The exponent of a positive number."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1


def encode_block(values: list[float], kind: Kind, overall: np.float32) -> tuple[float, list[Fraction]]:
    """The scale of a block (NaN where it cannot have one) and its elements."""
    if not all(map(np.isfinite, values)):
        return float("nan"), [Fraction(0)] * len(values)
    largest = max(map(abs, values))
    if not kind.two_levels:
        exponent = -127 if largest == 0 else floor_log2(Fraction(largest)) - kind.emax
        scale = Fraction(2) ** max(-127, min(127, exponent))
        return float(scale), [nearest(Fraction(value) / scale, kind.element) for value in values]
    wanted = np.float32(largest) / np.float32(float(magnitudes(kind.element)[-1])) / overall
    scale = nearest(Fraction(float(wanted)), kind.scale)
    total = np.float32(float(scale)) * overall
    if total == 0:
        return float(scale), [Fraction(0)] * len(values)
    quotients = [np.float32(value) / total for value in values]
    return float(scale), [nearest(Fraction(float(each)), kind.element) for each in quotients]


def tensor_scale(values: Any, kind: Kind) -> np.float32:
    """The f32 scale of the whole tensor: the largest finite number over 6 * 448."""
    if not kind.two_levels:
        return np.float32(1)
    finite = np.abs(values[np.isfinite(values)])
    if not finite.size or finite.max() == 0:
        return np.float32(1)
    return max(np.float32(finite.max() / np.float32(2688)), np.float32(2.0**-126))


def encode_rows(values: Any, kind: Kind) -> tuple[Any, Any, np.float32]:
    """Elements and scales as f64 of a matrix whose rows are in blocks, the last of a row perhaps shorter."""
    overall = tensor_scale(values, kind)
    elements, scales = np.zeros(values.shape), []
    for number, row in enumerate(values):
        scales.append([])
        for start in range(0, len(row), kind.block):
            scale, block = encode_block([float(each) for each in row[start : start + kind.block]], kind, overall)
            scales[-1].append(scale)
            elements[number, start : start + kind.block] = [float(each) for each in block]
    return elements, np.array(scales), overall


def decode_rows(elements: Any, scales: Any, overall: np.float32, kind: Kind) -> Any:
    """The numbers as f32: element times scale in exact fractions, rounded once; times the tensor's scale."""
    found = np.zeros(elements.shape, np.float32)
    for at in np.ndindex(elements.shape):
        scale = scales[at[0], at[1] // kind.block]
        exact = float(Fraction(elements[at]) * Fraction(scale)) if np.isfinite(scale) else np.nan
        with np.errstate(over="ignore"):
            found[at] = np.float32(exact) * overall
    return found
