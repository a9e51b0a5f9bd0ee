"""Three block formats, with the formats of elements and scales that they need.

A float with one bit of exponent is an integer with a sign: without the bit the number is 0.m, with it 1.m, in the same steps.
So formats like MXINT8 are given by fields, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlojit.extensions import BlockFormat, FloatFormat, NanEncoding, Overflow, hookimpl

hlojit_api = (1, 2)

CLIP = 0.9375
"""What the scale rule of ``mx_int4`` leaves of the largest number of a block: the others are in finer steps for it."""

# 8 bits: -127/64 to 127/64 in steps of 1/64, as MXINT8's elements without their -2; signs and magnitudes.
INT8 = FloatFormat(
    "mx_i8",
    exponent_bits=1,
    mantissa_bits=6,
    bias=1,
    has_infinity=False,
    nan=NanEncoding.NONE,
    overflow=Overflow.SATURATE,
)
# 4 bits: -7/4 to 7/4 in steps of 1/4.
INT4 = FloatFormat(
    "mx_i4",
    exponent_bits=1,
    mantissa_bits=2,
    bias=1,
    has_infinity=False,
    nan=NanEncoding.NONE,
    overflow=Overflow.SATURATE,
)
# 4 bits: 0 and the powers of two from 2**-5 to 2, by which a multiplier is a shifter.
POWER4 = FloatFormat(
    "mx_p4",
    exponent_bits=3,
    mantissa_bits=0,
    bias=6,
    has_infinity=False,
    nan=NanEncoding.NONE,
    overflow=Overflow.SATURATE,
)
# Scales of 8 bits without a sign: steps of an eighth, from 2**-21 to 7168.
SCALE8 = FloatFormat(
    "mx_scale8",
    exponent_bits=5,
    mantissa_bits=3,
    bias=19,
    signed=False,
    has_infinity=False,
    nan=NanEncoding.ALL_ONES,
    overflow=Overflow.SATURATE,
)


def clipped(largest: float) -> float:
    """The scale of a block of ``mx_int4``: the largest element is a little less than the largest number."""
    return largest * CLIP / 1.75


@hookimpl
def hlojit_formats() -> Sequence[FloatFormat | BlockFormat]:
    """All formats, those of elements and scales first."""
    return [
        INT8,
        INT4,
        POWER4,
        SCALE8,
        BlockFormat("mx_int8", element=INT8),
        BlockFormat("mx_int4", element=INT4, scale=SCALE8, block=64, scaling=clipped),
        BlockFormat("mx_power4", element=POWER4, block=16),
    ]
