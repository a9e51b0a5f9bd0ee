"""rng_bit_generator as ordinary integer ops, so that it fuses and vectorizes like any other arithmetic.

The same generators as the reference semantics in ``random_bits``, word for word: 20 rounds of Threefry-2x32, 10 of
Philox-4x32, on arrays of 32-bit words made from counters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.formats import BooleanType, IntegerType
from hlojit.ir.types import TensorType, tensor

if TYPE_CHECKING:
    from hlojit.ir.builder import Builder
    from hlojit.ir.graph import Instruction, Value

THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
THREEFRY_PARITY = 0x1BD11BDA
PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
PHILOX_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


def split_dimension(shape: Sequence[int]) -> int:
    """The dimension along which Threefry's two words alternate: the first even one, else the first of the largest."""
    for dimension, extent in enumerate(shape):
        if extent % 2 == 0:
            return dimension
    return int(np.argmax(shape))


class Words:
    """Arithmetic on unsigned words of one shape; Python numbers become constants of the other operand's type."""

    def __init__(self, builder: Builder):
        self.b = builder

    def op(self, name: str, x: Value, y: Value | int) -> Value:
        """``name`` of two words; a scalar is broadcast."""
        other = self.b.constant(y, x.tensor_type) if isinstance(y, int) else y
        if other.tensor_type.rank < x.tensor_type.rank:
            other = self.b.broadcast_in_dim(other, x.tensor_type.shape)
        result: Value = self.b.create(name, [x, other]).result
        return result

    def rotate(self, x: Value, amount: int) -> Value:
        """Rotate 32-bit words to the left."""
        left, right = self.op("shift_left", x, amount), self.op("shift_right_logical", x, 32 - amount)
        return self.op("or", left, right)

    def low(self, x: Value) -> Value:
        """Low 32 bits of 64."""
        return self.b.convert(x, "ui32")

    def high(self, x: Value) -> Value:
        """High 32 bits of 64."""
        return self.b.convert(self.op("shift_right_logical", x, 32), "ui32")

    def join(self, low: Value, high: Value) -> Value:
        """64-bit words."""
        wide = self.op("shift_left", self.b.convert(high, "ui64"), 32)
        return self.op("or", self.b.convert(low, "ui64"), wide)

    def product(self, x: Value, factor: int) -> tuple[Value, Value]:
        """Low and high half of 32 x 32 bits."""
        wide = self.op("multiply", self.b.convert(x, "ui64"), factor)
        return self.low(wide), self.high(wide)


def expand_rng_bit_generator(builder: Builder, instruction: Instruction) -> Sequence[Value]:
    """The new state and the random elements."""
    words = Words(builder)
    type = instruction.results[1].tensor_type
    state = _state_words(builder, instruction.operands[0])
    bits = 64 if type.element_type.bits == 64 else 32
    if not type.size:
        # No element is drawn: the state stays, and the result is any array without elements.
        return [
            instruction.operands[0],
            builder.broadcast_in_dim(builder.constant(0, tensor((), type.element_type)), type),
        ]
    threefry = instruction.attributes["rng_algorithm"] == "THREE_FRY"
    draw = _threefry_bits if threefry else _philox_bits
    new_state, drawn = draw(words, state, type.shape, bits)
    return [_state_back(builder, new_state, instruction.operands[0].tensor_type), _as_elements(words, drawn, type)]


def _state_words(b: Builder, state: Value) -> list[Value]:
    """The state's 64-bit words as scalars."""
    type = state.tensor_type
    if type.element_type.bits == 32:
        paired = b.reshape(state, (type.shape[0] // 2, 2))
        state = b.bitcast_convert(paired, tensor((type.shape[0] // 2,), "ui64"))
    elif type.element_type.name != "ui64":
        state = b.bitcast_convert(state, type.with_element_type("ui64"))
    count = state.tensor_type.shape[0]
    return [
        b.reshape(
            b.create(
                "slice",
                [state],
                attributes={"start_indices": (k,), "limit_indices": (k + 1,), "strides": (1,)},
            ).result,
            (),
        )
        for k in range(count)
    ]


def _state_back(b: Builder, words: Sequence[Value], type: TensorType) -> Value:
    parts = [b.reshape(word, (1,)) for word in words]
    joined = b.create("concatenate", parts, attributes={"dimension": 0}).result
    if type.element_type.bits == 32:
        pairs = b.bitcast_convert(joined, tensor((len(words), 2), type.element_type))
        return b.reshape(pairs, type)
    return b.bitcast_convert(joined, type) if type.element_type.name != "ui64" else joined


def _counters(words: Words, start: Value, count: int) -> Value:
    steps = words.b.iota(tensor((count,), "ui64"), 0)
    return words.op("add", steps, start)


def threefry(words: Words, key: tuple[Value, Value], counter: tuple[Value, Value]) -> tuple[Value, Value]:
    """Threefry-2x32 with 20 rounds: of words of 32 bits; those of the key may be scalars."""
    first, second = key
    third = words.op("xor", words.op("xor", first, second), THREEFRY_PARITY)
    keys = (first, second, third)
    x, y = (words.op("add", word, each) for word, each in zip(counter, keys))
    for group in range(5):
        for rotation in THREEFRY_ROTATIONS[group % 2]:
            x = words.op("add", x, y)
            y = words.op("xor", words.rotate(y, rotation), x)
        x = words.op("add", x, keys[(group + 1) % 3])
        y = words.op("add", words.op("add", y, keys[(group + 2) % 3]), group + 1)
    return x, y


def philox(words: Words, key: tuple[Value, Value], counter: tuple[Value, Value, Value, Value]) -> list[Value]:
    """Philox-4x32 with 10 rounds: four words of 32 bits of each counter; those of the key may be scalars."""
    (a, b), (x, y, z, w) = key, counter
    for _ in range(10):
        first_low, first_high = words.product(x, PHILOX_MULTIPLIERS[0])
        second_low, second_high = words.product(z, PHILOX_MULTIPLIERS[1])
        x, y = words.op("xor", words.op("xor", second_high, y), a), second_low
        z, w = words.op("xor", words.op("xor", first_high, w), b), first_low
        a, b = words.op("add", a, PHILOX_KEY_STEPS[0]), words.op("add", b, PHILOX_KEY_STEPS[1])
    return [x, y, z, w]


def interleaved(b: Builder, parts: Sequence[Value], size: int) -> Value:
    """The first ``size`` words: one of each part, then the next of each."""
    count = parts[0].tensor_type.size
    columns = [b.reshape(part, (count, 1)) for part in parts]
    flat = b.reshape(b.create("concatenate", columns, attributes={"dimension": 1}).result, (count * len(parts),))
    limits = {"start_indices": (0,), "limit_indices": (size,), "strides": (1,)}
    found: Value = b.create("slice", [flat], attributes=limits).result
    return found


def _threefry_of(words: Words, state: list[Value], count: int) -> tuple[Value, Value]:
    counters = _counters(words, state[1], count)
    key, counter = ((words.low(each), words.high(each)) for each in (state[0], counters))
    return threefry(words, key, counter)


def _threefry_bits(words: Words, state: list[Value], shape: tuple[int, ...], bits: int) -> tuple[list[Value], Value]:
    b = words.b
    if bits == 64:
        count = math.prod(shape)
        drawn = words.join(*_threefry_of(words, state, count))
        return [state[0], words.op("add", state[1], count), *state[2:]], b.reshape(drawn, shape)
    full = shape or (1,)
    split = split_dimension(full)
    half = (*full[:split], -(-full[split] // 2), *full[split + 1 :])
    count = math.prod(half)
    pair = _threefry_of(words, state, count)
    spread = (*half[: split + 1], 1, *half[split + 1 :])
    parts = [b.reshape(word, spread) for word in pair]
    stacked = b.create("concatenate", parts, attributes={"dimension": split + 1}).result
    drawn = b.reshape(stacked, (*full[:split], 2 * half[split], *full[split + 1 :]))
    if drawn.tensor_type.shape != full:
        limits = {"start_indices": (0,) * len(full), "limit_indices": full, "strides": (1,) * len(full)}
        drawn = b.create("slice", [drawn], attributes=limits).result
    return [state[0], words.op("add", state[1], count), *state[2:]], b.reshape(drawn, shape)


def _philox_bits(words: Words, state: list[Value], shape: tuple[int, ...], bits: int) -> tuple[list[Value], Value]:
    b = words.b
    size = math.prod(shape)
    blocks = -(-size * (2 if bits == 64 else 1) // 4)
    low, high = state[1], state[2] if len(state) > 2 else state[0]
    lows = _counters(words, low, blocks)
    carried = b.compare(lows, b.broadcast_in_dim(low, (blocks,)), "LT")
    highs = words.op("add", b.convert(carried, "ui64"), high)
    key = (words.low(state[0]), words.high(state[0]))
    x, y, z, w = philox(words, key, (words.low(lows), words.high(lows), words.low(highs), words.high(highs)))
    outputs = [words.join(x, y), words.join(z, w)] if bits == 64 else [x, y, z, w]
    drawn = interleaved(b, outputs, size)
    new_low = words.op("add", low, blocks)
    new_state = [state[0], new_low, *state[2:]]
    if len(state) > 2:
        wrapped = b.convert(b.compare(new_low, low, "LT"), "ui64")
        new_state[2] = words.op("add", state[2], wrapped)
    return new_state, b.reshape(drawn, shape)


def _as_elements(words: Words, drawn: Value, type: TensorType) -> Value:
    """Random words as elements: their low bits, taken as the element type's."""
    b = words.b
    element: Any = type.element_type
    if isinstance(element, BooleanType):
        return b.convert(words.op("and", drawn, 1), element)
    if isinstance(element, IntegerType):
        narrow = b.convert(drawn, f"ui{element.bits}")
        return narrow if not element.signed else b.bitcast_convert(narrow, type)
    # As wide as the format itself: a float of 4 bits is taken from ui4, although it fills a byte of memory.
    narrow = b.convert(drawn, f"ui{element.bits}")
    return b.bitcast_convert(narrow, type)
