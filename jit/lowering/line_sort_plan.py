"""What is decided about a sort by keys on a processor with vectors: the words that are sorted in the place of elements.

A *word* is a signed integer that says everything about an element.  Of a sort of one operand whose keys can be turned back
into what was stored it is the key.  Otherwise the element's number stands behind the key, in the low bits: words are all
different then, so that any sort of them is the stable one, and the operands are gathered afterwards.  Keys that leave no
room for a number are shortened first, see ``is_shortened``.

    sort of 65,536 f32                      i32    the key
    argsort of 65,536 f32                   i64    key (32 bits), number (16)
    argsort of 1,000 i8                     i32    key (8), number (10)
    argsort of 65,536 i16                   i32    the higher digit of the key (8), number (16): digits are counted
    argsort of 65,536 i64                   i64    the highest 48 bits of what keys need, number (16)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import final

from hlojit.ir.formats import BooleanType, FloatFormat, IntegerType
from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.ops.definition import Trait
from hlojit.ir.ops.sort_order import SortKey, sort_order
from hlojit.ir.ops.views import SortView
from hlojit.lowering.machine import Machine
from hlojit.lowering.sort_keys import KeyCode
from hlojit.lowering.sorted_arrays import SortedArrays
from hlojit.lowering.stored_order import StoredOrder
from hlojit.lowering.target import KIND_BITS, Target

WORD_BITS = 64
WORD_CYCLES = 6.0
"""Of a word in a sort: its share of the work of every network and partition, about."""
COLUMNS = 16
"""Lines side by side that are copied together where lines are not contiguous: a cache line has several of them."""
DIGIT_BITS = 8
"""Of keys that are counted."""
LEAST_COUNTED = (2048, 8192)
"""Elements of a line that pay for the tables of a sort that counts, of keys of one digit and of two."""
COUNTED_CYCLES = 5.0
"""Of counting and moving an element by one digit."""
ELEMENT_CYCLES = 8.0
"""Of gathering an element of one operand."""


@final
@dataclass(frozen=True)
class LineSortPlan:
    """``lines`` of ``length`` elements, ``inner`` apart, of one or several operands."""

    length: int
    inner: int
    lines: int
    codes: tuple[KeyCode, ...]
    order: StoredOrder | None
    """Where words are keys and nothing else."""
    word: str
    """The kind of a word."""
    tasks: int
    counts: bool
    """Whether keys are so narrow, and lines so long, that keys are counted."""
    first: int
    """The first element of a sorted line that is wanted."""
    count: int
    """How many are."""

    @staticmethod
    def of(arrays: SortedArrays, target: Target) -> LineSortPlan | None:
        """The plan of a sort with elements, or None where its comparator is no order by keys."""
        instruction = arrays.sort
        comparator = instruction.regions[0]
        keys = ordering_keys(instruction, comparator)
        if keys is None:
            return None
        codes = tuple(KeyCode.of(key, comparator) for key in keys)
        bits = sum(code.bits for code in codes)
        type = instruction.operands[0].tensor_type
        dimension = SortView.of(instruction).position(type.rank)
        length = type.shape[dimension]
        if bits > WORD_BITS or length > 1 << 31:
            return None
        order = None
        if len(instruction.operands) == len(keys) == 1:
            order = StoredOrder.of(keys[0], codes[0], comparator)
        counts = _counts(bits, length, arrays.count, order)
        needed = bits if order is not None else (bits if not counts else bits - DIGIT_BITS) + number_bits(length)
        narrow = order is not None and needed <= 16 and target.has_feature("avx512vbmi2") and target.has_masks
        word = "i16" if narrow else "i32" if needed <= 32 else "i64"
        lines, inner = type.size // length, math.prod(type.shape[dimension + 1 :])
        return LineSortPlan(
            length,
            inner,
            lines,
            codes,
            order,
            word,
            _tasks(lines // inner * -(-inner // COLUMNS), inner, target.machine),
            counts,
            arrays.first,
            arrays.count,
        )

    @property
    def key_bits(self) -> int:
        """Of all keys together."""
        return sum(code.bits for code in self.codes)

    @property
    def number_bits(self) -> int:
        """Of an element's number in a word."""
        return 0 if self.order is not None else number_bits(self.length)

    @property
    def is_shortened(self) -> bool:
        """Whether keys may have to lose their lowest bits.

        What is left of them decides unless it is equal; numbers that are equal so far are sorted once more, by the bits that
        were lost.  These are at most as many as a number has, so that a word holds both.
        """
        return not self.counts and self.key_bits + self.number_bits > KIND_BITS[self.word]

    @property
    def passes(self) -> int:
        """Digits that are counted."""
        return -(-self.key_bits // DIGIT_BITS) if self.counts else 0

    @property
    def word_bytes(self) -> int:
        """Of a word."""
        return KIND_BITS[self.word] // 8

    @property
    def area_bytes(self) -> int:
        """Of a line's words."""
        return -(-self.length * self.word_bytes // 64) * 64

    @property
    def sorts_in_result(self) -> bool:
        """Whether the result's own memory holds words."""
        return self.order is not None and not self.is_part and KIND_BITS[self.order.kind] == KIND_BITS[self.word]

    @property
    def is_part(self) -> bool:
        """Whether not all of a line is wanted."""
        return self.count < self.length

    @property
    def areas(self) -> int:
        """Of a line in the workspace: words before and after, keys that are shortened, words between two passes."""
        return self.passes - 1 if self.counts else (1 if self.sorts_in_result else 2) + self.is_shortened

    @property
    def task_bytes(self) -> int:
        """Workspace of a task: its areas."""
        return self.areas * self.area_bytes

    @property
    def groups(self) -> int:
        """Lines, or groups of neighbouring lines, that a task takes one after the other."""
        return self.lines // self.inner * -(-self.inner // COLUMNS)

    @property
    def columns(self) -> int:
        """Lines of a group, at most."""
        return min(COLUMNS, self.inner)

    def cycles(self, operands: int) -> float:
        """Of a line."""
        gathered = 0 if self.order is not None else operands * ELEMENT_CYCLES
        if self.counts:
            return self.length * (self.passes * COUNTED_CYCLES + gathered)
        return self.length * (max(1.0, math.log2(max(2, self.length)) / 10) * WORD_CYCLES + gathered)


def _tasks(groups: int, inner: int, machine: Machine) -> int:
    """So many that threads end together; where lines are copied, so few that their memory is used again and again."""
    return min(groups, machine.most_tasks if inner == 1 else 4 * machine.cores)


def _counts(bits: int, length: int, wanted: int, order: StoredOrder | None) -> bool:
    """Whether keys of so many bits are counted: of two digits only where numbers have to come along."""
    digits = -(-bits // DIGIT_BITS)
    return wanted == length and digits <= (2 if order is None else 1) and length >= LEAST_COUNTED[digits - 1]


def number_bits(length: int) -> int:
    """Bits of the numbers of so many elements."""
    return max(1, (length - 1).bit_length())


def ordering_keys(instruction: Instruction, comparator: Block) -> list[SortKey] | None:
    """The comparator's keys, NaN behind all numbers where the comparison leaves it without a place."""
    keys = sort_order(comparator)
    if keys is None or any(_is_from_outside(value, comparator) for inner in comparator for value in inner.operands):
        return None
    types = (BooleanType, IntegerType, FloatFormat)
    if not all(isinstance(operand.tensor_type.element_type, types) for operand in instruction.operands):
        return None
    return [replace(key, nan_last=True) if key.leaves_nan else key for key in keys]


def _is_from_outside(value: Value, comparator: Block) -> bool:
    """Whether a value is computed where the sort stands, and is no constant."""
    made = value.producer
    if made is None:
        return value not in comparator.arguments
    return made.block is not comparator and Trait.CONSTANT not in made.op.traits
