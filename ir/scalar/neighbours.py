"""next_after in every float format: magnitudes are ordered like their codes."""

from __future__ import annotations

from hlojit.ir.formats import FloatFormat, NanEncoding
from hlojit.ir.scalar import formats
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.expression import INTEGER_KIND


def next_after(b: ScalarBuilder, format: FloatFormat, x: Scalar, y: Scalar) -> Scalar:
    """The number of the format that is next to x towards y; y itself if they are equal, NaN if either is."""
    code = b.bitcast(x, INTEGER_KIND[x.kind]) if format.is_native else formats.pack(b, x, format)
    above = b.fcmp("ogt", y, x)
    stepped = _stepped(b, format, code, b.fcmp("oeq", x, b.constant(x.kind, 0.0)), above)
    found = b.bitcast(stepped, x.kind) if format.is_native else formats.decode(b, stepped, format)
    found = b.select(b.fcmp("oeq", x, y), y, found)
    return b.select(b.fcmp("uno", x, y), b.fadd(x, y), found)


def _stepped(b: ScalarBuilder, format: FloatFormat, code: Scalar, is_zero: Scalar, above: Scalar) -> Scalar:
    """The code after one that is not NaN: the one above, or below."""
    one, nothing = b.constant(code.kind, 1), b.constant(code.kind, 0)
    larger, smaller = b.add(code, one), b.sub(code, one)
    if not format.signed:
        return b.select(above, larger, smaller)
    sign = b.constant(code.kind, 1 << (format.bits - 1))
    negative = b.icmp("ne", b.and_(code, sign), nothing)
    stepped = b.select(b.xor(negative, above), larger, smaller)
    if format.nan is NanEncoding.NEGATIVE_ZERO:
        # the pattern of a negative zero is no number
        stepped = b.select(b.icmp("eq", stepped, sign), nothing, stepped)
    return b.select(is_zero, b.select(above, one, b.or_(sign, one)), stepped)
