"""pow, rsqrt, cbrt."""

from __future__ import annotations

from hlojit.ir.scalar import coefficients as c
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.exponential import ROUNDING
from hlojit.ir.scalar.expression import Term, maximum, minimum, power_of_two, where
from hlojit.ir.scalar.logarithm import LEAST_NORMAL, LIFT, split_exponent

INFINITY = float("inf")
SIGN_BIT = {"f32": -(2**31), "f64": -(2**63)}


def rsqrt(b: ScalarBuilder, x: Scalar) -> Scalar:
    """1 / sqrt(x)."""
    return (1.0 / Term(b, x).sqrt()).value


CBRT = {
    # kind: (below this, multiplied by, result multiplied by, shift, multiplier, its bits, start)
    "f32": (2.0**-80, 2.0**72, 2.0**-24, 8, 0x155, 10, 0x54A21D2A),
    "f64": (2.0**-900, 2.0**540, 2.0**-180, 40, 0x5555, 16, 0x553EF0FF289DD796),
}


def cbrt(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Cube root: steps of fourth order towards |x|**(-1/3), then one correction of x * y**2."""
    term = Term(b, x)
    border, lift, lower, shift, third, third_bits, start = CBRT[x.kind]
    magnitude = term.abs()
    small = magnitude < border
    a = where(small, magnitude * lift, magnitude)
    # a third of the bits, in integers without overflow
    part = ((a.bits().logical_shift(shift) * third).logical_shift(third_bits)) << shift
    y = (start - part).as_float()
    for _ in range(2):
        error = (-(a * y) * y).fma(y, 1.0)
        y = (y * error).fma(error.polynomial((1 / 3, 2 / 9, 14 / 81)), y)
    square = y * y
    root = a * square
    root_square = root * root
    rest = (-root_square).fma(root, a) - root.fma(root, -root_square) * root
    root = (rest * square).fma(1 / 3, root)
    root = where(small, root * lower, root).with_sign_of(term)
    exceptional = term.equals(0.0) | magnitude.not_below(INFINITY)
    return where(exceptional, term, root).value


def _positive_power_f32(base: Term, exponent: Term) -> Term:
    """base**exponent for a positive finite base, through f64."""
    denormal = base < LEAST_NORMAL["f32"]
    normal = where(denormal, base * 2.0 ** LIFT["f32"], base)
    e, m = split_exponent(normal)
    e = where(denormal, e - int(LIFT["f32"]), e)
    return _short_power_of_parts(e, m.widen(), exponent).narrow()


def short_power(base: Term, exponent: Term) -> Term:
    """base**exponent for a positive normal base in f64, to the accuracy of f32."""
    return _short_power_of_parts(*split_exponent(base), exponent)


def _short_power_of_parts(e: Term, m: Term, exponent: Term) -> Term:
    f = m - 1.0
    logarithm = f.fma(f.polynomial(c.LOG2_SHORT), e.to_float("f64"))
    wide = exponent.widen() if exponent.kind == "f32" else exponent
    product = minimum(maximum(logarithm * wide, -1000.0), 1000.0)
    shifted = product + ROUNDING["f64"]
    r = product - (shifted - ROUNDING["f64"])
    mantissa = r.fma(r.polynomial(c.EXP2_SHORT), 1.0)
    return (mantissa.bits() + (shifted.bits() << 52)).as_float()


def _times(a: Term, a_low: Term | float, other: Term | float, other_low: Term | float) -> tuple[Term, Term]:
    """Product of two unevaluated sums."""
    high = a * other
    low = a.fma(other, -high)
    low = a.fma(other_low, low)
    if isinstance(a_low, Term):
        low = a_low.fma(other, low)
    return high, low


def log2_parts(e: Term, m: Term) -> tuple[Term, Term]:
    """The sum e + log2(m) to about 2**-64 of its value, for sqrt(1/2) <= m < sqrt(2), as a sum of two f64."""
    f = m - 1.0
    d = m + 1.0
    d_low = m - (d - 1.0)
    reciprocal = 1.0 / d
    s = f * reciprocal
    s_low = (-s).fma(d_low, (-s).fma(d, f)) * reciprocal
    z = s * s
    z_low = (s + s).fma(s_low, s.fma(s, -z))
    third, third_low = c.ONE_THIRD
    tail = z * z.polynomial(c.LOG_LONG_F64)
    w = tail + third
    w_low = (tail - (w - third)) + third_low
    v, v_low = _times(z, z_low, w, w_low)
    k = v + 1.0
    k_low = (v - (k - 1.0)) + v_low
    scaled, scaled_low = _times(s, s_low, *c.TWO_OVER_LN2)
    value, value_low = _times(scaled, scaled_low, k, k_low)
    total = e + value
    # |e| is 0 or at least 1, more than |value|
    return total, (value - (total - e)) + value_low


def positive_power(base: Term, exponent: Term) -> Term:
    """base**exponent for a positive base; an infinite one, and zero, too."""
    denormal = base < LEAST_NORMAL["f64"]
    normal = where(denormal, base * 2.0 ** LIFT["f64"], base)
    e, m = split_exponent(normal)
    e = where(denormal, e - int(LIFT["f64"]), e)
    logarithm, low = log2_parts(e.to_float("f64"), m)
    high = exponent * logarithm
    low = exponent.fma(low, exponent.fma(logarithm, -high))
    extreme = high.abs().not_below(1200.0)
    high = minimum(maximum(high, -1200.0), 1200.0)
    low = where(extreme, 0.0, low)
    shifted = high + ROUNDING["f64"]
    n = shifted - ROUNDING["f64"]
    r = (high - n) + low
    mantissa = r.fma(r.polynomial(c.EXP2_F64), 1.0)
    number = shifted.bits() - high.constant(ROUNDING["f64"]).bits()
    half = number >> 1
    return mantissa * power_of_two(half) * power_of_two(number - half)


def pow(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    """x**y with C's special values: 1 for x = 1 or y = 0 even with NaN, NaN for a negative x and a fractional y."""
    base, exponent = Term(b, x), Term(b, y)
    magnitude = base.abs()
    positive = _positive_power_f32 if x.kind == "f32" else positive_power
    result = positive(magnitude, exponent)
    # zero and infinity, of the base or of the exponent
    up = (magnitude > 1.0) ^ (exponent < 0.0)
    extreme = magnitude.equals(0.0) | magnitude.equals(INFINITY) | exponent.abs().equals(INFINITY)
    result = where(extreme, where(up, result.constant(INFINITY), 0.0), result)
    integral = exponent.truncate().equals(exponent)
    half = exponent * 0.5
    odd = integral & half.truncate().differs(half)
    sign = base.bits() & where(odd, base.bits().constant(SIGN_BIT[x.kind]), 0)
    result = (result.bits() | sign).as_float()
    negative = (base < 0.0) & ~integral & magnitude.differs(INFINITY)
    result = where(negative, float("nan"), result)
    result = where(base.is_nan() | exponent.is_nan(), base + exponent, result)
    one = base.equals(1.0) | exponent.equals(0.0) | (base.equals(-1.0) & exponent.abs().equals(INFINITY))
    return where(one, 1.0, result).value
