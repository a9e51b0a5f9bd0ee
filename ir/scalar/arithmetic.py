"""Arithmetic that is total: division, shifts, powers, maxima and remainders with every input defined.

What StableHLO leaves to the implementation is what XLA does: x / 0 is all ones, x % 0 is x, minimum / -1 is minimum, a
shift by the width and more gives 0 (or the sign).  Integers are in compute form; ``bits`` is the width of the element
type where that is less than the kind's (i4 in an i8), and results are then to be wrapped by the caller.
"""

from __future__ import annotations

from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.formats import EXPONENT_BIAS, INTEGER_KIND, MANTISSA_BITS

KIND_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "f32": 32, "f64": 64}


# integers


def divide(b: ScalarBuilder, x: Scalar, y: Scalar, *, signed: bool) -> Scalar:
    """Quotient toward zero; x / 0 is all ones, minimum / -1 is minimum."""
    zero = b.icmp("eq", y, b.constant(y.kind, 0))
    quotient = (b.sdiv if signed else b.udiv)(x, _safe_divisor(b, x, y, zero, signed=signed))
    return b.select(zero, b.constant(x.kind, -1), quotient)


def remainder(b: ScalarBuilder, x: Scalar, y: Scalar, *, signed: bool) -> Scalar:
    """Remainder with the dividend's sign; x % 0 is x, minimum % -1 is 0."""
    zero = b.icmp("eq", y, b.constant(y.kind, 0))
    rest = (b.srem if signed else b.urem)(x, _safe_divisor(b, x, y, zero, signed=signed))
    return b.select(zero, x, rest)


def _safe_divisor(b: ScalarBuilder, x: Scalar, y: Scalar, zero: Scalar, *, signed: bool) -> Scalar:
    """The divisor, or 1 where the division would be undefined (which gives minimum / -1 its result)."""
    undefined = zero
    if signed:
        smallest = b.constant(x.kind, 1 << (KIND_BITS[x.kind] - 1))
        overflow = b.and_(b.icmp("eq", x, smallest), b.icmp("eq", y, b.constant(y.kind, -1)))
        undefined = b.or_(zero, overflow)
    return b.select(undefined, b.constant(y.kind, 1), y)


def multiply_high(b: ScalarBuilder, x: Scalar, y: Scalar, *, bits: int, signed: bool) -> Scalar:
    """The upper ``bits`` of the product of two integers, which has twice as many."""
    if x.kind == "i64":
        return _multiply_high_64(b, x, y, signed=signed)
    wide = {"i8": "i16", "i16": "i32", "i32": "i64"}[x.kind]
    extended = [b.sext(each, wide) if signed else b.zext(each, wide) for each in (x, y)]
    product, amount = b.mul(*extended), b.constant(wide, bits)
    return b.trunc(b.ashr(product, amount) if signed else b.lshr(product, amount), x.kind)


def _multiply_high_64(b: ScalarBuilder, x: Scalar, y: Scalar, *, signed: bool) -> Scalar:
    """From products of halves; what a negative factor counts too much, 2**64 times the other one, is taken off."""
    mask, half = b.constant("i64", 0xFFFFFFFF), b.constant("i64", 32)
    x_low, x_high, y_low, y_high = b.and_(x, mask), b.lshr(x, half), b.and_(y, mask), b.lshr(y, half)
    first = b.mul(x_low, y_low)
    second = b.add(b.mul(x_high, y_low), b.lshr(first, half))
    third = b.add(b.mul(x_low, y_high), b.and_(second, mask))
    high = b.add(b.add(b.mul(x_high, y_high), b.lshr(second, half)), b.lshr(third, half))
    if not signed:
        return high
    sign = b.constant("i64", 63)
    surplus = b.add(b.and_(b.ashr(x, sign), y), b.and_(b.ashr(y, sign), x))
    return b.sub(high, surplus)


def shift_left(b: ScalarBuilder, x: Scalar, amount: Scalar, bits: int) -> Scalar:
    """X * 2**amount; 0 for amounts (taken as unsigned) of ``bits`` and more."""
    return _guarded_shift(b, b.shl, x, amount, bits)


def shift_right_logical(b: ScalarBuilder, x: Scalar, amount: Scalar, bits: int) -> Scalar:
    """The ``bits`` of x moved down, filled with zeros; 0 for amounts of ``bits`` and more."""
    if bits < KIND_BITS[x.kind]:
        x = b.and_(x, b.constant(x.kind, (1 << bits) - 1))
    return _guarded_shift(b, b.lshr, x, amount, bits)


def shift_right_arithmetic(b: ScalarBuilder, x: Scalar, amount: Scalar, bits: int) -> Scalar:
    """X / 2**amount rounded down, x taken as signed; all sign for amounts of ``bits`` and more."""
    if bits < KIND_BITS[x.kind]:
        spare = b.constant(x.kind, KIND_BITS[x.kind] - bits)
        x = b.ashr(b.shl(x, spare), spare)
    last = b.constant(x.kind, bits - 1)
    return b.ashr(x, b.select(b.icmp("ult", amount, last), amount, last))


def _guarded_shift(b: ScalarBuilder, shift: object, x: Scalar, amount: Scalar, bits: int) -> Scalar:
    zero = b.constant(x.kind, 0)
    inside = b.icmp("ult", amount, b.constant(x.kind, bits))
    assert callable(shift)
    shifted: Scalar = shift(x, b.select(inside, amount, zero))
    return b.select(inside, shifted, zero)


def integer_power(b: ScalarBuilder, base: Scalar, exponent: Scalar, *, signed: bool) -> Scalar:
    """Base ** exponent, wrapping; a negative exponent gives 0 unless the base is 1 or -1.  0 ** 0 is 1."""
    kind = base.kind
    one, zero = b.constant(kind, 1), b.constant(kind, 0)
    result, square = one, base
    for position in range(KIND_BITS[kind]):
        bit = b.and_(exponent, b.constant(kind, 1 << position))
        result = b.select(b.icmp("ne", bit, zero), b.mul(result, square), result)
        if position + 1 < KIND_BITS[kind]:
            square = b.mul(square, square)
    if not signed:
        return result
    unit = b.or_(b.icmp("eq", base, one), b.icmp("eq", base, b.constant(kind, -1)))
    negative = b.icmp("slt", exponent, zero)
    vanishes = b.and_(negative, b.xor(unit, b.constant("i1", 1)))
    return b.select(vanishes, zero, result)


def integer_absolute(b: ScalarBuilder, x: Scalar) -> Scalar:
    """The magnitude of a signed integer; the minimum stays as it is."""
    zero = b.constant(x.kind, 0)
    return b.select(b.icmp("slt", x, zero), b.sub(zero, x), x)


def integer_sign(b: ScalarBuilder, x: Scalar) -> Scalar:
    """-1, 0 or 1."""
    zero, one = b.constant(x.kind, 0), b.constant(x.kind, 1)
    positive = b.select(b.icmp("sgt", x, zero), one, zero)
    return b.select(b.icmp("slt", x, zero), b.constant(x.kind, -1), positive)


def integer_extremum(b: ScalarBuilder, x: Scalar, y: Scalar, *, largest: bool, signed: bool) -> Scalar:
    """The larger or the smaller of two integers."""
    predicate = ("s" if signed else "u") + ("gt" if largest else "lt")
    return b.select(b.icmp(predicate, x, y), x, y)


# floats


def float_maximum(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    """IEEE 754-2019 maximum: NaN if either is NaN, and -0.0 is less than 0.0.

    A processor's maximum returns its second operand for equal ones and for NaN; exchanging the operands where the
    second is negative makes that operand the right zero.  A builder that has ``extremum`` may know an instruction.
    """
    return _float_extremum(b, x, y, "ogt", swap_if_negative=True)


def float_minimum(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    """IEEE 754-2019 minimum: NaN if either is NaN, and -0.0 is less than 0.0."""
    return _float_extremum(b, x, y, "olt", swap_if_negative=False)


def _float_extremum(b: ScalarBuilder, x: Scalar, y: Scalar, predicate: str, *, swap_if_negative: bool) -> Scalar:
    instruction = getattr(b, "extremum", None)
    found: Scalar | None = instruction(x, y, is_maximum=swap_if_negative) if instruction is not None else None
    if found is not None:
        return found
    integer = INTEGER_KIND[x.kind]
    negative = b.icmp("slt", b.bitcast(y, integer), b.constant(integer, 0))
    swapped = (y, x) if swap_if_negative else (x, y)
    straight = (x, y) if swap_if_negative else (y, x)
    first, second = (b.select(negative, s, t) for s, t in zip(swapped, straight))
    best = b.select(b.fcmp(predicate, first, second), first, second)
    return b.select(b.fcmp("uno", first, first), first, best)


def float_sign(b: ScalarBuilder, x: Scalar) -> Scalar:
    """-1.0 or 1.0 by the sign; zeros and NaN as they are."""
    one = b.copysign(b.constant(x.kind, 1.0), x)
    return b.select(b.fcmp("one", x, b.constant(x.kind, 0.0)), one, x)


def round_away(b: ScalarBuilder, x: Scalar) -> Scalar:
    """The nearest integer, ties away from zero; the sign of zero is kept."""
    magnitude = b.fabs(x)
    whole = b.truncate(magnitude)
    rest = b.fsub(magnitude, whole)
    up = b.fcmp("oge", rest, b.constant(x.kind, 0.5))
    return b.copysign(b.select(up, b.fadd(whole, b.constant(x.kind, 1.0)), whole), x)


def total_order_key(b: ScalarBuilder, x: Scalar) -> Scalar:
    """An integer whose signed order is IEEE 754's total order of floats (-NaN, -inf, ..., -0, 0, ..., inf, NaN)."""
    integer = INTEGER_KIND[x.kind]
    bits = b.bitcast(x, integer)
    width = KIND_BITS[integer]
    sign = b.ashr(bits, b.constant(integer, width - 1))
    return b.xor(bits, b.and_(sign, b.constant(integer, (1 << (width - 1)) - 1)))


def float_remainder(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    """X - trunc(x / y) * y, exact for all inputs (C's fmod); the sign is x's.

    The magnitudes are written as integers times powers of two, p * 2**i and q * 2**j.  For i >= j the remainder is
    (p mod q) * (2**(i - j) mod q) mod q times 2**j, where the power is taken by repeated squaring modulo q: no loop
    whose length depends on the data, and no branch.
    """
    if x.kind == "f32":
        # Exact, as f64 holds every f32 and every remainder of two; but exponents differ by less.
        return b.fptrunc(_float_remainder(b, b.fpext(x), b.fpext(y), squarings=3))
    return _float_remainder(b, x, y, squarings=6)


def _float_remainder(b: ScalarBuilder, x: Scalar, y: Scalar, squarings: int) -> Scalar:
    constant = b.constant
    a, c = b.fabs(x), b.fabs(y)
    p, i = _whole_mantissa(b, a)
    q, j = _whole_mantissa(b, c)
    # Both mantissas have 53 bits, so p < 2 * q.
    p = b.select(b.fcmp("oge", p, q), b.fsub(p, q), p)
    difference = b.sub(i, j)
    difference = b.select(b.icmp("slt", difference, constant("i64", 0)), constant("i64", 0), difference)
    # 2**(difference >> squarings) is below 2**52, hence below q.
    power = _power_of_two(b, b.lshr(difference, constant("i64", squarings)))
    for step in reversed(range(squarings)):
        power = _multiply_modulo(b, power, power, q)
        double = b.fadd(power, power)
        # 2 * power < 2 * q < 2**54 is even, hence exact.
        double = b.select(b.fcmp("oge", double, q), b.fsub(double, q), double)
        bit = b.and_(difference, constant("i64", 1 << step))
        power = b.select(b.icmp("ne", bit, constant("i64", 0)), double, power)
    rest = _multiply_modulo(b, p, power, q)
    # Two exact steps, since 2**j alone may be subnormal or less.
    half = b.ashr(j, constant("i64", 1))
    rest = b.fmul(b.fmul(rest, _power_of_two(b, half)), _power_of_two(b, b.sub(j, half)))
    rest = b.select(b.fcmp("olt", a, c), a, rest)
    infinity = constant("f64", float("inf"))
    valid = b.and_(b.fcmp("olt", a, infinity), b.fcmp("ogt", c, constant("f64", 0.0)))
    return b.select(valid, b.copysign(rest, x), constant("f64", float("nan")))


def _whole_mantissa(b: ScalarBuilder, magnitude: Scalar) -> tuple[Scalar, Scalar]:
    """A positive f64 as an integer in [2**52, 2**53), held in f64, and the exponent (i64) of its power of two."""
    mantissa_bits, bias = MANTISSA_BITS["f64"], EXPONENT_BIAS["f64"]
    subnormal = b.fcmp("olt", magnitude, b.constant("f64", 2.0**-1022))
    scaled = b.select(subnormal, b.fmul(magnitude, b.constant("f64", 2.0**54)), magnitude)
    bits = b.bitcast(scaled, "i64")
    exponent = b.sub(b.lshr(bits, b.constant("i64", mantissa_bits)), b.constant("i64", bias + mantissa_bits))
    exponent = b.select(subnormal, b.sub(exponent, b.constant("i64", 54)), exponent)
    fraction = b.and_(bits, b.constant("i64", (1 << mantissa_bits) - 1))
    whole = b.or_(fraction, b.constant("i64", (bias + mantissa_bits) << mantissa_bits))
    return b.bitcast(whole, "f64"), exponent


def _power_of_two(b: ScalarBuilder, exponent: Scalar) -> Scalar:
    """2**exponent as f64, for exponents of normal numbers."""
    biased = b.add(exponent, b.constant("i64", EXPONENT_BIAS["f64"]))
    return b.bitcast(b.shl(biased, b.constant("i64", MANTISSA_BITS["f64"])), "f64")


def _multiply_modulo(b: ScalarBuilder, x: Scalar, y: Scalar, modulus: Scalar) -> Scalar:
    """X * y mod modulus for integers 0 <= x, y < modulus < 2**53 and modulus >= 2**52, held in f64; exact.

    The product is high + low exactly.  high / modulus is off by at most half after rounding, so that
    high - quotient * modulus is an integer of magnitude below 2**53, which a fused multiply-add gives exactly.  It is
    brought to the sign opposite to low's before the two are added, so that the sum is exact too.
    """
    zero = b.constant("f64", 0.0)
    high = b.fmul(x, y)
    low = b.fma(x, y, b.fneg(high))
    quotient = b.round_even(b.fdiv(high, modulus))
    rest = b.fma(b.fneg(quotient), modulus, high)
    negative = b.fcmp("olt", low, zero)
    lift = b.and_(negative, b.fcmp("olt", rest, zero))
    rest = b.select(lift, b.fadd(rest, modulus), rest)
    lower = b.fcmp("ogt", rest, b.select(negative, b.constant("f64", float("inf")), zero))
    rest = b.select(lower, b.fsub(rest, modulus), rest)
    total = b.fadd(rest, low)
    total = b.select(b.fcmp("olt", total, zero), b.fadd(total, modulus), total)
    return b.select(b.fcmp("oge", total, modulus), b.fsub(total, modulus), total)
