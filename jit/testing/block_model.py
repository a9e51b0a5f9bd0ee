"""What numbers in blocks mean, worked out from a format's fields: element times scale, and what encoding makes of numbers.

    model = BlockModel(row)
    model.decode(parts)                  # f32
    model.encode(numbers)                # codes of elements and of scales, and the tensor's scale

Codes are those of ``hlojit.testing.exact``; scales are chosen in fractions, divisions are IEEE's in f32, as the formats are
defined.  Nothing of what encodes and decodes for programs takes part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np
from hlojit.extensions import BlockFormat, FloatFormat, Scaling
from hlojit.testing.exact import Model, exact, exponent_of, model_of

NDArray = np.ndarray[Any, Any]
F32 = np.float32

_LEAST_TENSOR_SCALE: Final = F32(2.0**-126)


class Part:
    """A part's format: what its codes mean and which code a number becomes."""

    def __init__(self, row: FloatFormat):
        self.row = row
        self.model: Model = model_of(row)
        self._codes: dict[tuple[float, bool], int] = {}
        self._values: dict[int, float] = {}

    @cached_property
    def finite(self) -> list[Fraction]:
        """All finite numbers, ascending; of a format of more than 16 bits, 0 and the ends."""
        bits = self.row.bits
        codes = range(1 << bits) if bits <= 16 else (0, (1 << (bits - 1)) - 1, 1 << (self.row.mantissa_bits))
        return sorted({value for code in codes if isinstance(value := self.model.value(code), Fraction)})

    @cached_property
    def top(self) -> Fraction:
        """The largest number."""
        return self.finite[-1]

    def value(self, code: int) -> float:
        """What a code means."""
        found = self._values.get(code)
        if found is None:
            found = self._values[code] = float(self.model.value(code))
        return found

    def values(self, codes: NDArray) -> NDArray:
        """What codes mean, in f64."""
        return np.array([self.value(code) for code in codes.reshape(-1).tolist()], "f8").reshape(codes.shape)

    def code(self, number: float) -> int:
        """The code of a number, rounded as the format says."""
        key = number, math.copysign(1.0, number) < 0
        found = self._codes.get(key)
        if found is None:
            found = self.model.encode(exact(number))
            if number == number:
                self._codes[key] = found
        return found


class BlockModel:
    """A block format by its fields."""

    def __init__(self, row: BlockFormat):
        self.row = row
        self.elements = Part(row.elements)
        self.scales = Part(row.scales)

    # decoding

    def decode(self, parts: Sequence[NDArray]) -> NDArray:
        """The numbers of codes and, of two levels, the tensor's scale: products, each rounded to f32."""
        elements = self.elements.values(parts[0])
        scales = self._of_elements(self.scales.values(parts[1]), elements.shape)
        with np.errstate(all="ignore"):
            # Products of at most 24 bits are exact in f64.
            found = (elements * scales).astype(F32)
            return found * parts[2].astype(F32) if len(parts) > 2 else found

    def _of_elements(self, scales: NDArray, shape: Sequence[int]) -> NDArray:
        axis = self.row.axis % len(shape)
        return np.repeat(scales, self.row.block, axis=axis).take(range(shape[axis]), axis=axis)

    # encoding

    def encode(self, numbers: NDArray) -> list[NDArray]:
        """Codes of the elements and of the scales, and the f32 scale of the tensor."""
        axis = self.row.axis % numbers.ndim
        lines = np.moveaxis(numbers.astype(F32), axis, -1)
        flat = lines.reshape(math.prod(lines.shape[:-1]), lines.shape[-1])
        overall = self._overall(flat)
        elements = np.zeros(flat.shape, np.uint64)
        count = -(-flat.shape[1] // self.row.block)
        scales = np.zeros((flat.shape[0], count), np.uint64)
        for line, values in enumerate(flat):
            for block in range(count):
                place = slice(block * self.row.block, (block + 1) * self.row.block)
                scales[line, block], elements[line, place] = self._block(values[place], overall)
        shaped = (each.reshape(*lines.shape[:-1], each.shape[-1]) for each in (elements, scales))
        parts = [np.moveaxis(each, -1, axis) for each in shaped]
        return parts if self.row.tensor_scale is None else [*parts, np.asarray(overall)]

    def _block(self, values: NDArray, overall: Any) -> tuple[int, list[int]]:
        nothing = [self.elements.code(0.0)] * len(values)
        if not np.isfinite(values).all():
            return self.scales.code(math.nan), nothing
        scale = self._scale(np.max(np.abs(values)), overall)
        with np.errstate(all="ignore"):
            total = F32(scale) * overall
            if not total > 0:
                return self.scales.code(scale), nothing
            quotients = values / total
        top = float(self.elements.top)
        return self.scales.code(scale), [self.elements.code(min(max(each, -top), top)) for each in quotients.tolist()]

    def _scale(self, largest: Any, overall: Any) -> float:
        """The scale of a block, a number of the scale format."""
        scaling = self.row.scaling
        low, high = self._exponents
        with np.errstate(all="ignore"):
            if scaling is Scaling.EXPONENT:
                wanted = exponent_of(Fraction(float(largest))) - exponent_of(self.elements.top) if largest > 0 else low
                return math.ldexp(1.0, min(max(wanted, low), high))
            if callable(scaling):
                given, least = F32(scaling(float(largest))), F32(math.ldexp(1.0, low))
                chosen = min(given, F32(float(self.scales.top))) if given > least else least
            else:
                chosen = min(largest / F32(float(self.elements.top)) / overall, F32(float(self.scales.top)))
        return self.scales.value(self.scales.code(float(chosen)))

    @cached_property
    def _exponents(self) -> tuple[int, int]:
        """The powers of two that are scales, as far as f32 has them."""
        positive = [each for each in self.scales.finite if each > 0]
        return max(exponent_of(positive[0]), -127), min(exponent_of(positive[-1]), 127)

    def _overall(self, numbers: NDArray) -> Any:
        """The tensor's scale: its largest number, but for blocks with NaN, over the largest that element times scale is."""
        if self.row.tensor_scale is None:
            return F32(1)
        starts = range(0, numbers.shape[1], self.row.block)
        blocks = [np.max(np.abs(line[start : start + self.row.block])) for line in numbers for start in starts]
        largest = max((each for each in blocks if np.isfinite(each)), default=F32(0))
        span = F32(float(self.elements.top * self.scales.top))
        return F32(1) if largest == 0 else max(F32(largest / span), _LEAST_TENSOR_SCALE)
