"""Float formats as rules: bits to a native float and back, and rounding.

    value = decode(b, bits, element_type("f8E4M3FN"))     # f32
    total = round_to_format(b, b.fadd(value, value), element_type("f8E4M3FN"))
    bits = pack(b, total, element_type("f8E4M3FN"))       # i8

Everything follows from the parameters of the format's row; f16 and bf16 only take shorter ways to the same result.
Rounding is to nearest, ties to even, always in one step (f64 to bf16 does not go through f32).  With one bit of
precision both neighbours of a tie are odd and the larger is taken, as IEEE 754-2019 says (4.3.1).

Beyond what a row says: a NaN becomes -0.0 (0 if unsigned) in a format without NaN; a negative number becomes NaN (or 0)
in one without sign; zero becomes NaN (or the smallest number) in one without zero; where there is no infinity, it is
treated like an overflow.  Where a format has infinities but does not reserve a whole exponent (``NanEncoding`` other
than ``IEEE``), infinity is the largest pattern that is not NaN.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import (
    BooleanType,
    ElementType,
    FloatFormat,
    IntegerType,
    NanEncoding,
    Overflow,
    Rounding,
    element_type,
)
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.code_patterns import codes
from hlojit.ir.scalar.codec_tables import MOST_BITS, Cells, CodecTables, codec_tables, nan_of
from hlojit.ir.scalar.in_place_rounding import is_rounded_in_place, rounded_in_place
from hlojit.ir.scalar.rounding import EXPONENT_BIAS as EXPONENT_BIAS  # noqa: PLC0414
from hlojit.ir.scalar.rounding import INTEGER_KIND as INTEGER_KIND  # noqa: PLC0414
from hlojit.ir.scalar.rounding import MANTISSA_BITS as MANTISSA_BITS  # noqa: PLC0414
from hlojit.ir.scalar.rounding import NativeFloat, Rounder, rounder_of

INTEGER_KINDS = ("i1", "i8", "i16", "i32", "i64")


def storage_kind(element: ElementType) -> str:
    """Kind of one element in memory: ``i1`` (a byte), an integer, ``f32``, ``f64``, or the bits of any other float."""
    if isinstance(element, BooleanType):
        return "i1"
    if isinstance(element, FloatFormat):
        return element.name if element.is_native else f"i{element.storage_bits.itemsize * 8}"
    if isinstance(element, IntegerType):
        return f"i{max(element.bits, 8)}"
    raise HlojitError(f"elements of type {element} have no native form")


def compute_kind(element: ElementType) -> str:
    """Kind of one element in compute form."""
    if isinstance(element, FloatFormat) and not element.in_integers:
        return element.compute
    return storage_kind(element)


def is_half(format: FloatFormat) -> bool:
    """Whether the format is IEEE binary16, for which most processors have instructions."""
    return _parameters(format) == (5, 10, 15)


def is_bfloat(format: FloatFormat) -> bool:
    """Whether the format is the upper half of binary32."""
    return _parameters(format) == (8, 7, 127)


def _parameters(format: FloatFormat) -> tuple[int, int, int] | None:
    plain = format.signed and format.has_zero and format.has_infinity and format.nan is NanEncoding.IEEE
    plain = plain and format.rounding is Rounding.NEAREST_EVEN
    if not plain or format.overflow is not Overflow.INFINITY or format.decode or format.encode:
        return None
    return format.exponent_bits, format.mantissa_bits, format.bias


# decode


def decode(b: ScalarBuilder, stored: Scalar, element: ElementType) -> Scalar:
    """An element as it stands in memory (of ``storage_kind``) in compute form."""
    if isinstance(element, IntegerType):
        return wrap_integer(b, stored, element)
    if not isinstance(element, FloatFormat) or element.is_native or element.in_integers:
        return stored
    if element.decode is not None:
        code = _own_bits(b, stored, element)
        if (tables := _tables(b, element)) is not None:
            return _tabulated(b, element.compute, tables.values, code)
        number = b.call(element.decode, (_code_kind(element),), element.compute, (code,), decode_user(element))
        return b.select(b.fcmp("uno", number, number), _nan(b, element), number)
    if is_half(element):
        return b.half_to_float(stored)
    if (made := _by_instruction(b, "decoded", stored, element)) is not None:
        return made
    if is_bfloat(element):
        return b.bitcast(b.shl(b.zext(stored, "i32"), b.constant("i32", 16)), "f32")
    return _decode_generic(b, stored, element)


def _native_of_upper_bits(format: FloatFormat) -> str:
    """The native float of which a format's codes are the upper bits: its numbers, infinities and NaN; "" if there is none."""
    usual = format.signed and format.has_zero and format.has_infinity and format.nan is NanEncoding.IEEE
    fields = format.exponent_bits, format.bias
    native = {(8, 127): "f32", (11, 1023): "f64"}.get(fields, "") if usual else ""
    return native if native and format.mantissa_bits <= MANTISSA_BITS[native] else ""


def _decode_generic(b: ScalarBuilder, stored: Scalar, format: FloatFormat) -> Scalar:
    if native_name := _native_of_upper_bits(format):
        kind = INTEGER_KIND[native_name]
        missing = MANTISSA_BITS[native_name] - format.mantissa_bits
        bits = b.shl(to_width(b, stored, kind), b.constant(kind, missing))
        return float_resized(b, b.bitcast(bits, native_name), format.compute)
    special, native = codes(format), NativeFloat(b, format.compute)
    wide = b.zext(stored, native.integer) if stored.kind != native.integer else stored
    magnitude = b.and_(wide, native.of(special.top))
    bits = b.bitcast(_decode_finite(native, magnitude, format), native.integer)
    if special.infinity is not None:
        bits = b.select(b.icmp("eq", magnitude, native.of(special.infinity)), native.of(native.infinity), bits)
    if special.first_nan is not None:
        bits = b.select(b.icmp("uge", magnitude, native.of(special.first_nan)), native.of(native.quiet_nan), bits)
    if special.sign:
        sign = b.and_(wide, native.of(special.sign))
        shift = native.bits - special.sign.bit_length()
        bits = b.or_(bits, b.shl(sign, native.of(shift)) if shift else sign)
    if format.nan is NanEncoding.NEGATIVE_ZERO:
        used = b.and_(wide, native.of(special.top | special.sign))
        bits = b.select(b.icmp("eq", used, native.of(special.sign)), native.of(native.quiet_nan), bits)
    return b.bitcast(bits, native.kind)


def _decode_finite(native: NativeFloat, magnitude: Scalar, format: FloatFormat) -> Scalar:
    """The value of a magnitude as if it meant a finite number."""
    b, mantissa_bits = native.b, format.mantissa_bits
    shifted = b.shl(magnitude, native.of(native.mantissa_bits - mantissa_bits))
    rebias = native.bias - format.bias
    normal = b.bitcast(b.add(shifted, native.of(rebias << native.mantissa_bits)), native.kind)
    if format.has_zero:
        if rebias == 0:
            return normal
        # Multiples of the smallest subnormal number are small integers: their conversion is exact.
        smallest = native.power(1 - format.bias - mantissa_bits)
        subnormal = b.fmul(b.sitofp(magnitude, native.kind), smallest)
        return b.select(b.icmp("ult", magnitude, native.of(1 << mantissa_bits)), subnormal, normal)
    if rebias >= 1:
        return normal
    # The lowest exponents lie among the native float's subnormals: make them larger, and smaller again exactly.
    larger = b.bitcast(b.add(shifted, native.of((rebias + 32) << native.mantissa_bits)), native.kind)
    low = b.fmul(larger, native.power(-32))
    return b.select(b.icmp("ult", magnitude, native.of((1 - rebias) << mantissa_bits)), low, normal)


# encode


def encode(b: ScalarBuilder, value: Scalar, element: ElementType, random: Scalar | None = None) -> Scalar:
    """A value of compute kind, or of a wider float, rounded to what stands in memory (of ``storage_kind``).

    ``random``: 32 bits (i32) for a stochastic rounding, which is to nearest without them.
    """
    if not isinstance(element, FloatFormat):
        return value
    if element.is_native:
        return float_resized(b, value, element.name)
    if element.encode is not None:
        tables = _tables(b, element)
        if tables is not None and (cells := tables.cells(value.kind)) is not None:
            return to_width(b, _looked_up(b, value, cells), storage_kind(element))
        number = float_resized(b, value, "f64")
        return b.call(element.encode, ("f64",), f"c{element.bits}", (number,), encode_user(element))
    if value.kind == "f32" and element.compute == "f64":
        value = b.fpext(value)
    if is_half(element):
        return b.float_to_half(value if value.kind == "f32" else narrowed_to_odd(b, value))
    if (made := _by_instruction(b, "encoded", value, element)) is not None:
        return made
    if is_bfloat(element) and value.kind == "f32":
        return b.trunc(b.lshr(_round_bfloat(b, value), b.constant("i32", 16)), "i16")
    return _encode_generic(b, value, element, random)


def _by_instruction(b: ScalarBuilder, method: str, value: Scalar, format: FloatFormat) -> Scalar | None:
    """What a builder's instruction makes of a value, if it has one."""
    known = getattr(b, method, None) if format.rounding is Rounding.NEAREST_EVEN else None
    made: Scalar | None = known(value, format) if known is not None else None
    return made


def pack(b: ScalarBuilder, value: Scalar, element: ElementType) -> Scalar:
    """``encode`` of a value that is in compute form already, so that nothing is left to round."""
    if isinstance(element, FloatFormat) and is_bfloat(element):
        return b.trunc(b.lshr(b.bitcast(value, "i32"), b.constant("i32", 16)), "i16")
    return encode(b, value, element)


def _encode_generic(b: ScalarBuilder, value: Scalar, format: FloatFormat, random: Scalar | None) -> Scalar:
    special, native = codes(format), NativeFloat(b, value.kind)
    rounder = rounder_of(native, format, random)
    bits = b.bitcast(value, native.integer)
    magnitude = b.and_(bits, native.of((1 << (native.bits - 1)) - 1))
    code = _encode_magnitude(native, magnitude, format, rounder)
    overflow = special.largest if format.rounding is Rounding.TOWARD_ZERO else special.overflow
    code = b.select(b.icmp("sgt", code, native.of(special.largest)), native.of(overflow), code)
    if format.rounding is Rounding.TOWARD_ZERO and special.infinity is None:
        code = b.select(b.icmp("eq", magnitude, native.of(native.infinity)), native.of(special.overflow), code)
    if special.infinity is not None and overflow != special.infinity:
        code = b.select(b.icmp("eq", magnitude, native.of(native.infinity)), native.of(special.infinity), code)
    is_nan = b.icmp("ugt", magnitude, native.of(native.infinity))
    missing = 0 if special.nan is None else special.nan
    if not format.has_zero:
        code = b.select(b.icmp("eq", magnitude, native.of(0)), native.of(missing), code)
    if format.nan in (NanEncoding.IEEE, NanEncoding.ALL_ONES) and special.nan is not None:
        code = b.select(is_nan, native.of(special.nan), code)
    if format.signed:
        sign = b.and_(b.lshr(bits, native.of(native.bits - special.sign.bit_length())), native.of(special.sign))
        signed = b.or_(code, sign)
        if format.nan is NanEncoding.NEGATIVE_ZERO:
            signed = b.select(b.icmp("eq", b.and_(code, native.of(special.top)), native.of(0)), code, signed)
        code = signed
    else:
        negative = b.fcmp("olt", value, b.constant(native.kind, 0.0))
        code = b.select(negative, native.of(missing), code)
    if format.nan in (NanEncoding.NEGATIVE_ZERO, NanEncoding.NONE):
        code = b.select(is_nan, native.of(special.sign), code)
    return to_width(b, code, storage_kind(format))


def _encode_magnitude(native: NativeFloat, magnitude: Scalar, format: FloatFormat, rounder: Rounder) -> Scalar:
    """The rounded code of a magnitude; beyond the format's range it is some larger integer."""
    b, mantissa_bits = native.b, format.mantissa_bits
    rebias = native.bias - format.bias
    code = b.sub(rounder.bits(magnitude), native.of(rebias << mantissa_bits))
    minimum = codes(format).minimum_exponent
    if format.has_zero:
        if rebias == 0 and mantissa_bits:
            return code
        low = rounder.multiples(magnitude, minimum - mantissa_bits)
        return b.select(b.icmp("ult", magnitude, native.of(native.power_bits(minimum))), low, code)
    if rebias < 1:
        larger = b.fmul(b.bitcast(magnitude, native.kind), native.power(64))
        rounded = rounder.bits(b.bitcast(larger, native.integer))
        low = b.sub(rounded, native.of((rebias + 64) << mantissa_bits))
        code = b.select(
            b.icmp("ult", magnitude, native.of(native.power_bits(max(minimum, 1 - native.bias) + 4))), low, code
        )
    return b.select(b.icmp("slt", code, native.of(0)), native.of(0), code)


def _round_bfloat(b: ScalarBuilder, value: Scalar) -> Scalar:
    """The bits of an f32 rounded to bf16, with garbage in the lower half; NaN stays NaN."""
    bits = b.bitcast(value, "i32")
    last = b.and_(b.lshr(bits, b.constant("i32", 16)), b.constant("i32", 1))
    rounded = b.add(b.add(bits, b.constant("i32", 0x7FFF)), last)
    quiet = b.or_(bits, b.constant("i32", 0x400000))
    return b.select(b.fcmp("uno", value, value), quiet, rounded)


def narrowed_to_odd(b: ScalarBuilder, value: Scalar) -> Scalar:
    """f64 to f32 rounded to odd: rounding once more to 11 bits or fewer then gives what one rounding would."""
    bits = b.bitcast(value, "i64")
    dropped = b.and_(bits, b.constant("i64", (1 << 29) - 1))
    kept = b.and_(bits, b.constant("i64", -(1 << 29)))
    sticky = b.or_(kept, b.constant("i64", 1 << 29))
    odd = b.select(b.icmp("ne", dropped, b.constant("i64", 0)), sticky, bits)
    return b.fptrunc(b.bitcast(odd, "f64"))


def round_to_format(b: ScalarBuilder, value: Scalar, element: ElementType) -> Scalar:
    """The representable value nearest to ``value``, in compute form; other element types pass through."""
    if not isinstance(element, FloatFormat):
        return value
    if element.is_native:
        return float_resized(b, value, element.name)
    if is_bfloat(element) and value.kind == "f32":
        made = _by_instruction(b, "encoded", value, element)
        if made is not None:
            return decode(b, made, element)
        return b.bitcast(b.and_(_round_bfloat(b, value), b.constant("i32", 0xFFFF0000)), "f32")
    if value.kind == element.compute and is_rounded_in_place(element) and not is_half(element):
        made = _by_instruction(b, "encoded", value, element)
        return rounded_in_place(b, value, element) if made is None else decode(b, made, element)
    return decode(b, encode(b, value, element), element)


def float_resized(b: ScalarBuilder, value: Scalar, kind: str) -> Scalar:
    """An f32 or f64 as one of the given kind."""
    if value.kind == kind:
        return value
    return b.fpext(value) if kind == "f64" else b.fptrunc(value)


# integers


def wrap_integer(b: ScalarBuilder, value: Scalar, element: ElementType) -> Scalar:
    """Keep an integer's low ``bits`` and extend them again; only sub-byte types need it."""
    if not isinstance(element, IntegerType) or element.bits >= 8:
        return value
    if not element.signed:
        return b.and_(value, b.constant("i8", element.maximum))
    shift = b.constant("i8", 8 - element.bits)
    return b.ashr(b.shl(value, shift), shift)


def to_width(b: ScalarBuilder, value: Scalar, kind: str, *, signed: bool = False) -> Scalar:
    """An integer as one of the given kind: cut off, or extended."""
    if value.kind == kind:
        return value
    if INTEGER_KINDS.index(value.kind) > INTEGER_KINDS.index(kind):
        return b.trunc(value, kind)
    return b.sext(value, kind) if signed else b.zext(value, kind)


def largest_number(format: FloatFormat) -> Fraction:
    """The largest finite number of a format."""
    exponent, mantissa = divmod(codes(format).largest, 1 << format.mantissa_bits)
    return (1 + Fraction(mantissa, 1 << format.mantissa_bits)) * Fraction(2) ** (exponent - format.bias)


# formats given by functions


def _tables(b: Any, element: FloatFormat) -> CodecTables | None:
    """A format's tables, if it has some and the builder looks things up; found once for each kernel."""
    if element.bits > MOST_BITS or not hasattr(b, "tabulated"):
        return None
    known: dict[FloatFormat, CodecTables | None] | None = getattr(b, "codecs", None)
    if known is None:
        return codec_tables(element)
    if element not in known:
        known[element] = codec_tables(element)
    return known[element]


def _tabulated(b: Any, kind: str, table: Any, index: Scalar) -> Scalar:
    """An element of a table; the index, an integer of any width, is unsigned and within it."""
    found: Scalar = b.tabulated(kind, table, to_width(b, index, "i32"))
    return found


def _looked_up(b: ScalarBuilder, number: Scalar, cells: Cells) -> Scalar:
    """The code of a number, see ``Cells``."""
    native = NativeFloat(b, number.kind)
    bits = b.bitcast(number, native.integer)
    start = _tabulated(b, "i32", cells.starts, b.lshr(bits, native.of(native.mantissa_bits)))
    mantissa = b.and_(bits, native.of((1 << native.mantissa_bits) - 1))
    shift = to_width(b, b.and_(start, b.constant("i32", 63)), native.integer)
    within = to_width(b, b.lshr(mantissa, shift), "i32")
    cell = b.add(b.lshr(start, b.constant("i32", 6)), within)
    is_above = b.icmp("uge", mantissa, _tabulated(b, native.integer, cells.bounds, cell))
    pair = _tabulated(b, "i32", cells.pairs, cell)
    low, high = b.and_(pair, b.constant("i32", 0xFFFF)), b.lshr(pair, b.constant("i32", 16))
    return b.select(is_above, high, low)


def _nan(b: ScalarBuilder, element: FloatFormat) -> Scalar:
    """NaN of a format given by functions, which has one sign wherever it is computed."""
    native = NativeFloat(b, element.compute)
    sign = math.copysign(1.0, nan_of(element)) < 0
    return b.bitcast(native.of(native.quiet_nan | (1 << native.bits - 1 if sign else 0)), native.kind)


def decode_user(element: FloatFormat) -> str:
    """How messages name a format's decode function."""
    return f"the decode function of {element.name}"


def encode_user(element: FloatFormat) -> str:
    """How messages name a format's encode function."""
    return f"the encode function of {element.name}"


def _own_bits(b: ScalarBuilder, code: Scalar, element: FloatFormat) -> Scalar:
    """The bits of a code that are the format's; others may hold anything."""
    if element.bits == element.storage_bits.itemsize * 8:
        return code
    return b.and_(code, b.constant(code.kind, (1 << element.bits) - 1))


def _code_kind(element: FloatFormat) -> str:
    """The kind as which a format's functions see its bits: an unsigned integer."""
    return f"u{element.storage_bits.itemsize * 8}"


def format_of(name: str) -> FloatFormat:
    """The float format called ``name``."""
    found = element_type(name)
    if not isinstance(found, FloatFormat):
        raise HlojitError(f"{name} is not a float format")
    return found
