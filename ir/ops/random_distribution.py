"""rng out of random bits: their state comes from the host, anew each time, through the channel ``random``.

%state = what the host gives                    # two random words; or what the channel's handler returns
%bits = rng_bit_generator(%state)
uniform floats        a (1 - u) + b u, where u is a multiple of 2^-24 (of 2^-53 in f64), and below b
uniform integers      a + the high word of bits times (b - a)
normal                a + b sqrt(2) erf_inv(u), where u lies between -1 and 1
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.formats import BooleanType, FloatFormat
from hlojit.ir.ops.channel_expansion import received
from hlojit.ir.types import TensorType, tensor

if TYPE_CHECKING:
    from hlojit.ir.builder import Builder
    from hlojit.ir.graph import Instruction, Value

RANDOM: Final = "random"
"""The channel from which states come."""
_STATE: Final = tensor((2,), "ui64")


def expand_rng(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """The numbers; nothing where their shape is not known."""
    type = instruction.results[0].tensor_type
    if not type.is_static:
        return None
    normal = instruction.attributes["rng_distribution"] == "NORMAL"
    numbers = _Numbers(builder, type)
    first, second = instruction.operands[:2]
    if not isinstance(type.element_type, FloatFormat):
        return [numbers.integers(first, second)]
    return [numbers.normal(first, second) if normal else numbers.uniform(first, second)]


class _Numbers:
    """Arrays of one type, in arithmetic that is at least f32's."""

    def __init__(self, builder: Builder, type: TensorType):
        self.b: Any = builder
        self.type = type
        self.wide = type.with_element_type("f64" if type.element_type.name == "f64" else "f32")
        self.digits = 53 if type.element_type.name == "f64" else 24

    def bits(self, width: int) -> Value:
        """Random words."""
        (state,) = received(self.b, RANDOM, [_STATE])
        types = [_STATE, self.type.with_element_type(f"ui{width}")]
        drawn = self.b.create(
            "rng_bit_generator", [state], attributes={"rng_algorithm": "THREE_FRY"}, result_types=types
        )
        words: Value = drawn.results[1]
        return words

    def fractions(self, digits: int) -> Value:
        """Whole numbers of so many random bits, as floats."""
        words = self.bits(self.wide.element_type.bits)
        high = self.b.shift_right_logical(
            words, self.b.constant(words.tensor_type.element_type.bits - digits, words.type)
        )
        found: Value = self.b.convert(high, self.wide.element_type)
        return found

    def spread(self, scalar: Value) -> Any:
        """A scalar for every element, in wide arithmetic."""
        return self.b.broadcast_in_dim(self.b.convert(scalar, self.wide.element_type), self.wide)

    def scalar(self, number: float) -> Any:
        """A number for every element."""
        return self.b.constant(number, self.wide)

    def uniform(self, low: Value, high: Value) -> Any:
        """From low on, below high."""
        b = self.b
        share = b.multiply(self.fractions(self.digits), self.scalar(2.0**-self.digits))
        rest = b.subtract(self.scalar(1.0), share)
        mixed = b.add(b.multiply(self.spread(low), rest), b.multiply(self.spread(high), share))
        # Rounding can reach high, or leave the range where its ends are very different.
        found = b.convert(mixed, self.type.element_type)
        last = b.broadcast_in_dim(b.next_after(high, low), self.type)
        return b.minimum(b.maximum(found, b.broadcast_in_dim(low, self.type)), last)

    def normal(self, mean: Value, deviation: Value) -> Any:
        """Around a mean."""
        b, digits = self.b, self.digits - 1
        middle = b.add(self.fractions(digits), self.scalar(0.5))
        place = b.subtract(b.multiply(middle, self.scalar(2.0 ** (1 - digits))), self.scalar(1.0))
        deviate = b.multiply(b.erf_inv(place), self.scalar(math.sqrt(2)))
        found: Value = b.add(self.spread(mean), b.multiply(self.spread(deviation), deviate))
        return b.convert(found, self.type.element_type)

    def integers(self, low: Value, high: Value) -> Any:
        """From low on, below high."""
        b, element = self.b, self.type.element_type
        number = "ui8" if isinstance(element, BooleanType) else element
        ends = [b.convert(each, number) for each in (low, high)]
        # Signed numbers wrap around, and so do their differences as unsigned ones.
        start, end = (b.convert(b.convert(each, "i64" if _is_signed(number) else "ui64"), "ui64") for each in ends)
        span = b.broadcast_in_dim(b.subtract(end, start), self.type.with_element_type("ui64"))
        offset = b.mulhi(self.bits(64), span)
        moved = b.add(b.broadcast_in_dim(start, span.type), offset)
        return b.convert(b.convert(moved, number), element)


def _is_signed(element: Any) -> bool:
    return bool(getattr(element, "signed", False))
