"""Conversions to bf16 and to 8-bit floats by NVIDIA's instructions, where they do what the rules of all machines do.

They convert two values at once.  Those to 8 bits saturate, which StableHLO's conversions do not: what lies beyond the
largest number is decided by a comparison.  NaN becomes the machine's NaN (PTX ISA, ``cvt``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from hlojit.ir.formats import FloatFormat, NanEncoding, Overflow
from hlojit.ir.scalar.code_patterns import codes
from hlojit.ir.scalar.formats import is_bfloat
from hlojit.llvm.text import Val
from hlojit.lowering.target import KIND_BITS
from hlojit.simt.builder import SimtBuilder

EIGHT_BITS: Final = (8, 9)
"""The compute capability from which on there are conversions of 8-bit floats."""


@final
@dataclass(frozen=True, slots=True)
class _Narrow:
    """An 8-bit format that the machine knows."""

    name: str
    """In PTX."""
    beyond: float
    """Half-way between the largest number and what would come next."""
    is_kept: bool
    """Whether that itself is rounded to the largest number (whose last bit is 0)."""


_E4M3: Final = _Narrow("e4m3x2", 464.0, True)
_E5M2: Final = _Narrow("e5m2x2", 61440.0, False)


def encoded(b: SimtBuilder, value: Val, format: FloatFormat, capability: tuple[int, int]) -> Val | None:
    """What stands in memory for f32 values, or None where no instruction does what is wanted."""
    if value.kind != "f32":
        return None
    if is_bfloat(format):
        return _paired(b, value, "i16", _pair_of_bfloats)
    narrow = _narrow(format)
    if narrow is None or capability < EIGHT_BITS:
        return None

    def pair(b: SimtBuilder, low: Val, high: Val) -> Val:
        instruction = f'asm "cvt.rn.satfinite.{narrow.name}.f32 $0, $1, $2;", "=h,f,f"'
        return b.emit("i16", 1, f"call i16 {instruction}(float {high.text}, float {low.text})")

    special = codes(format)
    assert special.nan is not None
    inside = b.fcmp("ole" if narrow.is_kept else "olt", b.fabs(value), b.constant("f32", narrow.beyond))
    sign = b.and_(b.trunc(b.lshr(b.bitcast(value, "i32"), b.constant("i32", 24)), "i8"), b.constant("i8", 0x80))
    outside = b.constant("i8", special.overflow)
    if special.overflow != special.nan:
        outside = b.select(b.fcmp("uno", value, value), b.constant("i8", special.nan), outside)
    return b.select(inside, _paired(b, value, "i8", pair), b.or_(outside, sign))


def has_instruction(format: FloatFormat, capability: tuple[int, int]) -> bool:
    """Whether codes of 8 bits are read by an instruction."""
    return _narrow(format) is not None and capability >= EIGHT_BITS


def decoded(b: SimtBuilder, stored: Val, format: FloatFormat, capability: tuple[int, int]) -> Val | None:
    """f32 values of what stands in memory; exact, by way of f16, which holds them all."""
    narrow = _narrow(format)
    if narrow is None or not has_instruction(format, capability) or stored.kind != "i8":
        return None

    def pair(b: SimtBuilder, low: Val, high: Val) -> Val:
        both = b.or_(b.shl(b.zext(high, "i16"), b.constant("i16", 8)), b.zext(low, "i16"))
        return b.emit("i32", 1, f'call i32 asm "cvt.rn.f16x2.{narrow.name} $0, $1;", "=r,h"(i16 {both.text})')

    return b.half_to_float(_paired(b, stored, "i16", pair))


def _narrow(format: FloatFormat) -> _Narrow | None:
    fields = format.exponent_bits, format.mantissa_bits, format.bias, format.has_infinity, format.nan, format.overflow
    plain = format.signed and format.has_zero and format.decode is None and format.encode is None
    known = {
        (4, 3, 7, False, NanEncoding.ALL_ONES, Overflow.NAN): _E4M3,
        (5, 2, 15, True, NanEncoding.IEEE, Overflow.INFINITY): _E5M2,
    }
    return known.get(fields) if plain else None


def _pair_of_bfloats(b: SimtBuilder, low: Val, high: Val) -> Val:
    instruction = 'asm "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f"'
    return b.emit("i32", 1, f"call i32 {instruction}(float {high.text}, float {low.text})")


def _paired(b: SimtBuilder, values: Val, kind: str, convert: Callable[[SimtBuilder, Val, Val], Val]) -> Val:
    """Convert lanes two by two; the conversion of a low and a high one gives both as one integer."""
    if values.lanes == 1:
        return b.trunc(convert(b, values, b.constant(values.kind, 0)), kind)
    result = Val("poison", kind, values.lanes)
    for lane in range(0, values.lanes, 2):
        both = convert(b, b.extract(values, lane), b.extract(values, lane + 1))
        high = b.lshr(both, b.constant(both.kind, KIND_BITS[kind]))
        result = b.insert(result, lane, b.trunc(both, kind))
        result = b.insert(result, lane + 1, b.trunc(high, kind))
    return result
