"""Rounding to a format without its code: the bits of the native float, cut and bounded.

    round_to_format(f8E4M3FN)   =>   add, and; add and subtract 2**k below the normal numbers; three selects

An op inside of a kernel needs the number that its result becomes, never the code.  Making a code and reading it again takes
twice as many instructions.
"""

from __future__ import annotations

from hlojit.ir.formats import FloatFormat, NanEncoding, Rounding
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.code_patterns import codes
from hlojit.ir.scalar.rounding import EXPONENT_BIAS, MANTISSA_BITS, NativeFloat, rounder_of


def is_rounded_in_place(format: FloatFormat) -> bool:
    """Whether ``rounded_in_place`` knows a format: nearest, with zeros, signs and NaN as IEEE has them."""
    usual = format.signed and format.has_zero and format.nan in (NanEncoding.IEEE, NanEncoding.ALL_ONES)
    usual = usual and format.rounding is Rounding.NEAREST_EVEN and format.decode is None and not format.in_integers
    if not usual or not 0 < format.mantissa_bits < MANTISSA_BITS[format.compute]:
        return False
    return EXPONENT_BIAS[format.compute] >= format.bias and codes(format).largest >> format.mantissa_bits > 0


def rounded_in_place(b: ScalarBuilder, value: Scalar, format: FloatFormat) -> Scalar:
    """``decode(encode(value))``, of a format that is rounded in place: without a code in between."""
    special, native = codes(format), NativeFloat(b, value.kind)
    bits = b.bitcast(value, native.integer)
    sign_bit = 1 << (native.bits - 1)
    magnitude = b.and_(bits, native.of(sign_bit - 1))
    rounder, rebias = rounder_of(native, format, None), native.bias - format.bias
    rounded = b.and_(rounder.raised(magnitude), native.of(-(1 << rounder.shift)))
    if rebias:
        # Adding 2**k rounds to a multiple of the smallest subnormal number, as in ``NearestEven.multiples``.
        anchor = native.power(special.minimum_exponent - format.mantissa_bits + native.mantissa_bits)
        low = b.fsub(b.fadd(b.bitcast(magnitude, native.kind), anchor), anchor)
        is_low = b.icmp("ult", magnitude, native.of(native.power_bits(special.minimum_exponent)))
        rounded = b.select(is_low, b.bitcast(low, native.integer), rounded)
    largest = (special.largest << rounder.shift) + (rebias << native.mantissa_bits)
    beyond = {special.infinity: native.infinity, special.nan: native.quiet_nan}.get(special.overflow, largest)
    rounded = b.select(b.icmp("sgt", rounded, native.of(largest)), native.of(beyond), rounded)
    if special.infinity is not None and beyond != native.infinity:
        is_infinite = b.icmp("eq", magnitude, native.of(native.infinity))
        rounded = b.select(is_infinite, native.of(native.infinity), rounded)
    is_nan = b.icmp("ugt", magnitude, native.of(native.infinity))
    rounded = b.select(is_nan, native.of(native.quiet_nan), rounded)
    return b.bitcast(b.or_(rounded, b.and_(bits, native.of(sign_bit))), native.kind)
