"""sin, cos, tan, with exact reduction of every argument."""

from __future__ import annotations

from hlojit.ir.scalar import coefficients as c
from hlojit.ir.scalar.arithmetic import multiply_high
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.exponential import ROUNDING
from hlojit.ir.scalar.expression import Term, maximum, rare, where

HALF_PI = {"f32": c.HALF_PI_F32, "f64": c.HALF_PI_F64}
SIN = {"f32": c.SIN_F32, "f64": c.SIN_F64}
TAN = {"f32": c.TAN_F32, "f64": c.TAN_F64}
COS = {"f32": c.COS_F32, "f64": c.COS_F64}
SMALL_ENOUGH = {"f32": 1e5, "f64": 2.0**40}
"""Up to here three parts of pi/2 are enough."""


def reduce_moderate(x: Term) -> tuple[Term, Term]:
    """(bits whose low two are the quadrant, x - n pi/2) for a moderate x, by Cody and Waite's method with three parts.

    The first fused step is exact, the second rounds relative to its result, the third adds what the parts left.
    """
    shifted = x.fma(c.TWO_OVER_PI, ROUNDING[x.kind])
    n = shifted - ROUNDING[x.kind]
    r = x
    for part in HALF_PI[x.kind]:
        r = n.fma(-part, r)
    return shifted.bits(), r


def sine_of_reduced(r: Term, square: Term) -> Term:
    """Sin r for |r| <= pi/4."""
    return (square * r).fma(square.polynomial(SIN[r.kind]), r)


def cosine_of_reduced(square: Term) -> Term:
    """Cos r for |r| <= pi/4, from r**2."""
    return (square * square).fma(square.polynomial(COS[square.kind]), square.fma(-0.5, 1.0))


def select_quadrant(quadrant: Term, r: Term) -> Term:
    """sin(r + quadrant pi/2): the sign bit comes from bit 1 of the quadrant, the function from bit 0."""
    square = r * r
    value = where((quadrant & 1).equals(0), sine_of_reduced(r, square), cosine_of_reduced(square))
    top = 30 if r.kind == "f32" else 62
    sign = (quadrant & 2) << top
    return (value.bits() ^ sign).as_float()


def _multiply_high(a: Term, b: Term) -> Term:
    """Upper 64 bits of an unsigned product."""
    return Term(a.b, multiply_high(a.b, a.value, b.value, bits=64, signed=False))


def _carry(total: Term, part: Term) -> Term:
    """1 if the unsigned sum ``total``, of which ``part`` was one summand, wrapped."""
    b = total.b
    return Term(b, b.zext(b.icmp("ult", total.value, part.value), "i64"))


def reduce_huge(x: Term) -> tuple[Term, Term, Term]:
    """(quadrant, r, r_low) with x - n pi/2 = r + r_low in f64, for x >= 2**16 in f64, by Payne and Hanek's method.

    x = M 2**e.  Digits of 2/pi that give multiples of 4 are skipped; the next 192, times M, have the quadrant in the
    top two bits and the fraction below, to 2**-137.
    """
    b = x.b
    bits = x.bits()
    mantissa = (bits & ((1 << 52) - 1)) | (1 << 52)
    exponent = (bits.logical_shift(52) & 0x7FF) - (1023 + 52)
    # the first digit that matters has the weight 2**(1 - e); the table begins with 64 zeros
    position = exponent + (64 - 2)
    shift = position & 63
    first = Term(b, b.trunc((position >> 6).value, "i32"))
    words = [Term(b, b.lookup("i64", c.TWO_OVER_PI_WORDS, (first + offset).value)) for offset in range(4)]
    # (w >> 1) >> (63 - shift) is w >> (64 - shift) without a shift by 64
    spill = shift.constant(63) - shift
    high, middle, low = ((words[k] << shift) | words[k + 1].logical_shift(1).logical_shift(spill) for k in range(3))
    part = mantissa * middle
    product_low = part + _multiply_high(mantissa, low)
    product_high = mantissa * high + _multiply_high(mantissa, middle) + _carry(product_low, part)
    quadrant = (product_high + (1 << 61)).logical_shift(62)
    # the signed fraction, 128 bits after the point, as a sum of two f64
    upper = (product_high << 2) | product_low.logical_shift(62)
    lower = product_low << 2
    head = (upper & ~0x7FF).to_float("f64")
    tail = (((upper & 0x7FF) << 52) | lower.logical_shift(12)).to_float("f64") * 2.0**-52
    fraction = head + tail
    fraction_low = tail - (fraction - head)
    half_pi, half_pi_low, _ = c.HALF_PI_F64
    high = fraction * half_pi
    low = fraction_low.fma(half_pi, fraction.fma(half_pi_low, fraction.fma(half_pi, -high)))
    r = high + low
    return quadrant, r * 2.0**-64, ((high - r) + low) * 2.0**-64


def huge_magnitude(x: Term) -> tuple[Term, Term]:
    """(whether finite, |x| in f64 and in the range of ``reduce_huge``)."""
    finite = x.abs() < float("inf")
    # anything in range for lanes that do not need this
    magnitude = maximum(where(finite, x.abs(), 0.0), 2.0**16)
    return finite, magnitude.widen() if x.kind == "f32" else magnitude


def _sin_huge(b: ScalarBuilder, x: Scalar, turn: int) -> Scalar:
    """sin(x + turn pi/2) for huge x; NaN for infinity and NaN."""
    term = Term(b, x)
    finite, magnitude = huge_magnitude(term)
    quadrant, r, _ = reduce_huge(magnitude)
    if turn == 0:
        quadrant = quadrant + where(term < 0.0, quadrant.constant(2), 0)
    result = select_quadrant(quadrant + turn, r)
    if term.kind == "f32":
        result = result.narrow()
    return where(finite, result, float("nan")).value


def sin_slow(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Sin x for |x| >= 2**16."""
    return _sin_huge(b, x, 0)


def cos_slow(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Cos x for |x| >= 2**16."""
    return _sin_huge(b, x, 1)


def sin_moderate(x: Term, turn: int) -> Term:
    """sin(x + turn pi/2) for moderate x."""
    quadrant, r = reduce_moderate(x)
    return select_quadrant(quadrant + turn if turn else quadrant, r)


def sin(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Sine of an angle in radians."""
    term = Term(b, x)
    fast = where(term.equals(0.0), term, sin_moderate(term, 0))
    return rare(term.abs().not_below(SMALL_ENOUGH[x.kind]), sin_slow, [term], fast).value


def cos(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Cosine of an angle in radians."""
    term = Term(b, x)
    fast = sin_moderate(term, 1)
    return rare(term.abs().not_below(SMALL_ENOUGH[x.kind]), cos_slow, [term], fast).value


def reduce_twice_as_long(x: Term) -> tuple[Term, Term, Term]:
    """``reduce_moderate`` with the remainder as a sum of two."""
    first, second, third = HALF_PI[x.kind]
    shifted = x.fma(c.TWO_OVER_PI, ROUNDING[x.kind])
    n = shifted - ROUNDING[x.kind]
    start = n.fma(-first, x)
    step = n * second
    step_low = n.fma(second, -step)
    r = start - step
    # what the subtraction lost, whichever of the two is larger
    back = start - r
    lost = (start - (r + back)) + (back - step)
    low = n.fma(-third, lost - step_low)
    total = r + low
    return shifted.bits(), total, (r - total) + low


def _tangent(quadrant: Term, r: Term, r_low: Term) -> Term:
    """tan(r + r_low + quadrant pi/2): the tangent, or its negative reciprocal, corrected for the rounding of both."""
    square = r * r
    rest = (r * square).fma(square.polynomial(TAN[r.kind]), square.fma(r_low, r_low))
    value = r + rest
    value_low = (r - value) + rest
    inverse = -1.0 / value
    # 1 + inverse * (value + value_low), zero for the exact inverse
    error = inverse.fma(value_low, inverse.fma(value, 1.0))
    return where((quadrant & 1).equals(0), value, inverse.fma(error, inverse))


def tan_slow(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Tan x for |x| >= 2**16."""
    term = Term(b, x)
    finite, magnitude = huge_magnitude(term)
    result = _tangent(*reduce_huge(magnitude))
    if term.kind == "f32":
        result = result.narrow()
    return where(finite, where(term < 0.0, -result, result), float("nan")).value


def tan(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Tangent of an angle in radians."""
    term = Term(b, x)
    fast = _tangent(*reduce_twice_as_long(term))
    # an exact zero has no remainder to work with, and keeps its sign
    fast = where(term.abs() < {"f32": 2.0**-60, "f64": 2.0**-500}[x.kind], term, fast)
    return rare(term.abs().not_below(SMALL_ENOUGH[x.kind]), tan_slow, [term], fast).value
