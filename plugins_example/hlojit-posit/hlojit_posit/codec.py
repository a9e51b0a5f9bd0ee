"""What the codes of posits mean, by the Posit Standard (2022): functions of one number that numba compiles.

Behind the sign stand the regime (a run of equal bits, ended by the other one), two bits of exponent and the fraction,
each as far as there is room; negative posits are the two's complement. With a run of k ones the regime is k - 1, of k
zeros -k, and the number is ``(1 + fraction) * 2**(4 * regime + exponent)``:

    0 1110 01 1   posit8 0x73   regime 2, exponent 1, fraction 1/2: 1.5 * 2**9 = 768
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

FRACTION = 52  # bits of the fraction of f64
BIAS = 1023
FRACTION_MASK = (1 << FRACTION) - 1
MAGNITUDE_MASK = (1 << 63) - 1
INFINITY = 0x7FF << FRACTION  # what is not below it is no number
NEGATIVE_NAN = -1 << (FRACTION - 1)  # in a total order it comes before all numbers, as NaR does


def decoder(bits: int) -> Callable[[int], float]:
    """The function from codes of posits of up to 32 bits to numbers; NaR is NaN.

    Without branches, for vectors: the length of the run is read off the exponent of the bits behind it, as a float.
    """
    nar = 1 << (bits - 1)
    mask = (1 << bits) - 1
    word = 33 - bits  # the first bit of the regime goes to bit 31

    def decode(code):
        pattern = np.int64(code)
        negative = pattern >> (bits - 1)
        body = (((pattern ^ -negative) + negative) & mask) << word & 0xFFFFFFFF
        ones = body >> 31
        ended = body ^ (ones * 0xFFFFFFFF)
        run = 31 + BIAS - (np.float64(ended).view(np.int64) >> FRACTION)
        regime = (run ^ -(1 - ones)) + (1 - ones) - ones  # run - 1 of ones, -run of zeros
        rest = body << (run + 1 & 63) & 0xFFFFFFFF  # of the code 0 the run has no length
        exponent = 4 * regime + (rest >> 30)
        number = (negative << 63) | ((exponent + BIAS) << FRACTION) | ((rest & 0x3FFFFFFF) << (FRACTION - 30))
        if pattern == 0:
            return 0.0
        if pattern == nar:
            return np.int64(NEGATIVE_NAN).view(np.float64)
        return np.int64(number).view(np.float64)

    return decode


def encoder(bits: int) -> Callable[[float], int]:
    """The function from numbers to the codes of posits of up to 32 bits, rounded as the standard (section 4.1) says.

    The bits that would go on behind the last one are cut off and rounded to nearest, ties to the even code; numbers are never
    rounded to zero or NaR. NaN and infinities are NaR. The endless string of bits is made in one word: an arithmetic
    shift draws ``10`` and ``01`` in front of exponent and fraction out to the run of the regime.
    """
    nar = 1 << (bits - 1)
    mask = (1 << bits) - 1
    largest = nar - 1
    limit = 4 * (bits - 2)  # the exponent of the largest posit, and minus that of the smallest
    cut = 65 - bits

    def encode(value):
        pattern = np.float64(value).view(np.int64)
        magnitude = pattern & MAGNITUDE_MASK
        power = (magnitude >> FRACTION) - BIAS
        inside = min(max(power, -limit), limit - 1)
        regime = inside >> 2
        large = regime >= 0
        start = 2 if large else 1
        shift = regime if large else ~regime
        tail = ((inside & 3) << FRACTION) | (magnitude & FRACTION_MASK)
        string = np.int64(((start << (FRACTION + 2)) | tail) << 8)
        drawn = string >> shift
        lost = (string & ((1 << shift) - 1)) | (drawn & ((1 << (cut - 1)) - 1))
        code = (drawn >> cut) & largest
        code += (drawn >> (cut - 1)) & 1 & ((1 if lost != 0 else 0) | code)
        code = largest if power >= limit else code
        code = 1 if power < -limit else code
        code = (-code if pattern < 0 else code) & mask
        if magnitude == 0:
            return 0
        if magnitude >= INFINITY:
            return nar
        return code

    return encode
