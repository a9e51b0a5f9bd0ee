"""Short Fourier transforms written out: straight-line code for numbers in registers, against any builder.

    results = transform(builder, "f32", [(re, im), ...], inverse=False)

Composite lengths are split by Cooley and Tukey, preferring four; odd primes take the sums and differences of pairs, whose
factors are real.  All angles are constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.ir.ops.fourier import unit_roots

Number = tuple[Any, Any]
"""Real and imaginary part."""


def transform(b: Any, kind: str, values: Sequence[Number], *, inverse: bool, fused: bool) -> list[Number]:
    """Sums over j of ``values[j]`` times the roots of unity number j k (of the other sign: ``inverse``), for each k.

    ``fused``: the machine has multiply-adds that round once.
    """
    return _Codelet(b, kind, inverse, fused).transform(list(values))


def multiplications(length: int) -> float:
    """About how many instructions a transform of a length takes."""
    found, rest = 0.0, length
    while rest > 1:
        radix = _radix(rest)
        found += length * (6 if radix == 4 else 4 if radix == 2 else 2.0 * radix)
        rest //= radix
    return found


def _radix(length: int) -> int:
    if length % 4 == 0:
        return 4
    return next(prime for prime in range(2, length + 1) if length % prime == 0)


class _Codelet:
    def __init__(self, b: Any, kind: str, inverse: bool, fused: bool):
        self.b = b
        self.kind = kind
        self.inverse = inverse
        self.fused = fused

    def transform(self, values: list[Number]) -> list[Number]:
        length = len(values)
        if length == 1:
            return values
        radix = _radix(length)
        if radix == length:
            return self._short(values)
        rest = length // radix
        columns = [self._short(values[start::rest]) for start in range(rest)]
        results: list[Number] = [values[0]] * length
        for first in range(radix):
            row = [self.turned(columns[second][first], first * second, length) for second in range(rest)]
            for second, value in enumerate(self.transform(row)):
                results[first + radix * second] = value
        return results

    def _short(self, values: list[Number]) -> list[Number]:
        if len(values) == 2:
            return [self.add(*values), self.sub(*values)]
        return self._four(values) if len(values) == 4 else self._prime(values)

    def _four(self, values: list[Number]) -> list[Number]:
        first, second, third, fourth = values
        even, odd = self.add(first, third), self.add(second, fourth)
        difference, other = self.sub(first, third), self.quarter(self.sub(second, fourth))
        return [self.add(even, odd), self.add(difference, other), self.sub(even, odd), self.sub(difference, other)]

    def _prime(self, values: list[Number]) -> list[Number]:
        length, half = len(values), len(values) // 2
        sums = [self.add(values[j], values[length - j]) for j in range(1, half + 1)]
        differences = [self.sub(values[j], values[length - j]) for j in range(1, half + 1)]
        results = [values[0]] * length
        for each in sums:
            results[0] = self.add(results[0], each)
        for k in range(1, half + 1):
            cosines, sines = unit_roots(length, np.arange(1, half + 1) * k, inverse=True)
            even, odd = values[0], None
            for j in range(half):
                even = self.plus_scaled(even, sums[j], cosines[j])
                odd = self.plus_scaled(odd, differences[j], sines[j])
            assert odd is not None
            other = self.quarter(odd)
            results[k], results[length - k] = self.add(even, other), self.sub(even, other)
        return results

    # --------------------------------------------------------------------------------------------- complex arithmetic

    def add(self, x: Number, y: Number) -> Number:
        return self.b.fadd(x[0], y[0]), self.b.fadd(x[1], y[1])

    def sub(self, x: Number, y: Number) -> Number:
        return self.b.fsub(x[0], y[0]), self.b.fsub(x[1], y[1])

    def quarter(self, x: Number) -> Number:
        """Times the first root of four: -i, or i."""
        return (self.b.fneg(x[1]), x[0]) if self.inverse else (x[1], self.b.fneg(x[0]))

    def plus_scaled(self, total: Number | None, x: Number, factor: float) -> Number:
        scale = self.b.constant(self.kind, float(factor))
        if total is None:
            return self.b.fmul(x[0], scale), self.b.fmul(x[1], scale)
        real, imaginary = (multiply_add(self.b, part, scale, sum, fused=self.fused) for part, sum in zip(x, total))
        return real, imaginary

    def turned(self, x: Number, number: int, length: int) -> Number:
        """Times a root of unity."""
        eighth, rest = divmod(8 * (number % length), length)
        if rest == 0 and eighth % 2 == 0:
            for _ in range(eighth // 2):
                x = self.quarter(x)
            return x
        cosines, sines = unit_roots(length, np.array([number]), inverse=self.inverse)
        cosine, sine = (self.b.constant(self.kind, float(each[0])) for each in (cosines, sines))
        return times(self.b, x, (cosine, sine), fused=self.fused)


def multiply_add(b: Any, x: Any, y: Any, z: Any, *, fused: bool) -> Any:
    """``x * y + z``."""
    return b.fma(x, y, z) if fused else b.fadd(b.fmul(x, y), z)


def times(b: Any, x: Number, y: Number, *, fused: bool) -> Number:
    """The product of two complex numbers."""
    real = multiply_add(b, x[0], y[0], b.fneg(b.fmul(x[1], y[1])), fused=fused)
    return real, multiply_add(b, x[0], y[1], b.fmul(x[1], y[0]), fused=fused)
