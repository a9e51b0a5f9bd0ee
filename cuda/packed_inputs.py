"""Small floats as elements of 16 bits, two at once: what a kernel does with every operand of a vendor's 6-bit float.

A code's exponent and mantissa are moved to where those of the wider format end, and the number that then stands there is
multiplied by the power of two between the biases.  Subnormal numbers come out right by themselves, every product is exact:

    s eee mm   ->   s 00000eee mm00000  * 2**(127 - bias)

Codes that are no finite numbers, all above a magnitude, get the exponent of what is none; their mantissa says which they are.
"""

from __future__ import annotations

from typing import Final

from hlojit.cuda.narrow_floats import has_instruction
from hlojit.ir.formats import FloatFormat, NanEncoding
from hlojit.ir.scalar.code_patterns import codes
from hlojit.llvm.text import Val
from hlojit.lowering.grid_matrix_plan import MatrixInput
from hlojit.simt.builder import SimtBuilder

_MINUS_ZERO: Final = 0x80008000
_FIELDS: Final = {"bf16": (8, 7), "f16": (5, 10)}
"""Bits of exponent and mantissa."""


def packed_inputs(
    b: SimtBuilder, stored: Val, format: FloatFormat, input: MatrixInput, capability: tuple[int, int]
) -> Val | None:
    """Codes of 8 bits as elements of an input of 16 bits, or None where this is not the way to make them."""
    if input.name not in _FIELDS or not _is_simple(format, input) or stored.kind != "i8" or stored.lanes % 4:
        return None
    if has_instruction(format, capability):
        return None
    mantissa_bits = _FIELDS[input.name][1]
    bias = -input.exponents[0] + 1
    scale = ((bias - format.bias + bias) << mantissa_bits) * 0x10001
    words = _bitcast(b, stored, "i32", stored.lanes // 4)
    result = Val("poison", "i32", stored.lanes // 2)
    for lane in range(words.lanes):
        word = b.extract(words, lane) if words.lanes > 1 else words
        for half in range(2):
            pair = _spread(b, word, half)
            moved = _moved(b, pair, format, mantissa_bits)
            text = f'call i32 asm "fma.rn.{input.name}x2 $0, $1, $2, $3;", "=r,r,r,r"'
            made = b.emit("i32", 1, f"{text}(i32 {moved.text}, i32 {_signed(scale)}, i32 {_signed(_MINUS_ZERO)})")
            if (limit := _limit(format)) is not None:
                made = b.or_(made, _exponents(b, pair, format, limit, input))
            result = b.insert(result, 2 * lane + half, made)
    return _bitcast(b, result, "i16", stored.lanes)


def _limit(format: FloatFormat) -> int | None:
    """The first magnitude that is no finite number; None if all are."""
    special = codes(format)
    found = [each for each in (special.infinity, special.first_nan) if each is not None]
    return min(found, default=None)


def _exponents(b: SimtBuilder, pair: Val, format: FloatFormat, limit: int, input: MatrixInput) -> Val:
    """The exponent of what is no number where a magnitude is not below the limit, else nothing."""
    top = codes(format).top
    exponent_bits, mantissa_bits = _FIELDS[input.name]
    magnitude = b.and_(pair, b.constant("i32", top * 0x10001))
    carried = b.add(magnitude, b.constant("i32", (top + 1 - limit) * 0x10001))
    is_none = b.and_(carried, b.constant("i32", (top + 1) * 0x10001))
    exponent = (1 << exponent_bits) - 1 << mantissa_bits
    return b.mul(is_none, b.constant("i32", exponent // (top + 1)))


def _is_simple(format: FloatFormat, input: MatrixInput) -> bool:
    """Whether fields fit below the largest exponent, the factor is a number, and none are those of finite ones or above."""
    exponent_bits, mantissa_bits = _FIELDS[input.name]
    if format.decode is not None or not format.has_zero or format.nan is NanEncoding.NEGATIVE_ZERO:
        return False
    # Infinity's mantissa has to be zero, NaN's has to be something else.
    special = codes(format)
    if (special.infinity or 0) & ((1 << format.mantissa_bits) - 1):
        return False
    if special.first_nan is not None and not format.mantissa_bits:
        return False
    fits = format.exponent_bits < exponent_bits and format.mantissa_bits <= mantissa_bits
    return fits and special.top < 1 << mantissa_bits and 0 <= format.bias < -2 * input.exponents[0]


def _spread(b: SimtBuilder, word: Val, half: int) -> Val:
    """Two bytes of a word as the lower bytes of two halves."""
    selected = ("0x4140", "0x4342")[half]
    return b.emit("i32", 1, f'call i32 asm "prmt.b32 $0, $1, $2, {selected};", "=r,r,r"(i32 {word.text}, i32 0)')


def _moved(b: SimtBuilder, pair: Val, format: FloatFormat, mantissa_bits: int) -> Val:
    """Sign, exponent and mantissa of two codes where those of 16 bits are."""
    special = codes(format)
    magnitude = b.and_(pair, b.constant("i32", special.top * 0x10001))
    moved = b.shl(magnitude, b.constant("i32", mantissa_bits - format.mantissa_bits))
    if not special.sign:
        return moved
    sign = b.and_(pair, b.constant("i32", special.sign * 0x10001))
    return b.or_(moved, b.shl(sign, b.constant("i32", 16 - special.sign.bit_length())))


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def _bitcast(b: SimtBuilder, value: Val, kind: str, lanes: int) -> Val:
    return b.emit(kind, lanes, f"bitcast {b.type_of(value)} {value.text} to {b.type(kind, lanes)}")
