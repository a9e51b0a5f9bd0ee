"""What is decided about a sort by keys on a machine with threads: a radix sort, the least significant digit first.

A block orders what it holds in shared memory by one digit after the other, stable each time.  Lines that fit are sorted by
one block, several short ones together, whose number is then the last digit.  Longer lines take three launches a digit:
blocks count the digits of their tiles, the counts are summed up, and each block orders its tile and writes it where it goes.

What is moved is either all operands, from whose bits the digit is computed each time, or the keys as integers and the
element's number, by which the operands are gathered at the end: whichever moves fewer bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from hlojit.ir.formats import ElementType
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.views import SortView
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.sort_keys import KeyCode, key_codes
from hlojit.lowering.sort_plan import ALIGNMENT, itemsize
from hlojit.lowering.target import KIND_BITS

DIGIT: Final = 8
"""Bits that are looked at in one pass."""
THREADS: Final = 256
"""Of a block: one for each value of a digit."""
SECTOR: Final = 32
"""Bytes that an access to one element far from others moves."""
SHORT_TILE: Final = 2048
"""Elements that a block with several lines holds."""
MOST_ROWS: Final = 1 << DIGIT
INDEX: Final = "i32"
"""Kind of an element's number in its line."""


class Digit(NamedTuple):
    """A part of a key that one pass looks at."""

    code: int
    shift: int
    bits: int


@dataclass(frozen=True)
class RadixPlan:
    """Lines of ``length`` elements of several operands, ``inner`` apart, sorted by ``codes``."""

    elements: tuple[ElementType, ...]
    codes: tuple[KeyCode, ...]
    length: int
    inner: int
    lines: int
    by_number: bool
    """Whether keys and elements' numbers are moved, not operands."""
    threads: int
    items: int
    """Elements of a thread."""
    rows: int
    """Lines that a block sorts by itself; 0 where a line takes several blocks."""
    count: int
    """Elements of a line that are wanted, the first ones."""

    @staticmethod
    def of(instruction: Instruction, machine: GridMachine, count: int | None = None) -> RadixPlan | None:
        """The plan of a sort instruction with elements, or None where it is not one by keys that order everything.

        With ``count`` only so many elements of each line are wanted, and keys are moved, not operands.
        """
        type = instruction.operands[0].tensor_type
        dimension = SortView.of(instruction).position(type.rank)
        length = type.shape[dimension]
        codes = key_codes(instruction.regions[0])
        if codes is None or length >= 1 << 31 or any(code.leaves_nan for code in codes):
            return None
        elements = tuple(operand.tensor_type.element_type for operand in instruction.operands)
        inner = math.prod(type.shape[dimension + 1 :])
        lines = type.size // length
        sizes = [itemsize(element) for element in elements]
        by_number = count is not None or _is_cheaper_by_number(codes, sizes)
        item = sum(code_bytes(code) for code in codes) + 4 if by_number else sum(sizes)
        made = _blocks(length, lines, item, machine)
        if made is None:
            return None
        return RadixPlan(elements, codes, length, inner, lines, by_number, *made, length if count is None else count)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is moved for an element, as integers."""
        if self.by_number:
            return (*(code.kind for code in self.codes), INDEX)
        return tuple(f"i{8 * itemsize(element)}" for element in self.elements)

    @cached_property
    def digits(self) -> tuple[Digit, ...]:
        """Of all keys, the least significant first; none where there is nothing to order."""
        if self.length == 1:
            return ()
        return tuple(digit for number in reversed(range(len(self.codes))) for digit in self.digits_of(number))

    def digits_of(self, number: int) -> tuple[Digit, ...]:
        """Of one key."""
        bits = self.codes[number].bits
        return tuple(Digit(number, shift, min(DIGIT, bits - shift)) for shift in range(0, bits, DIGIT))

    @property
    def tile(self) -> int:
        """Elements of a block."""
        return self.rows * self.length if self.rows else self.threads * self.items

    @property
    def tiles(self) -> int:
        """Blocks of a line."""
        return -(-self.length // self.tile)

    @property
    def blocks(self) -> int:
        """Blocks of a launch over all elements."""
        return -(-self.lines // self.rows) if self.rows else self.lines * self.tiles

    # --------------------------------------------------------------- the workspace

    @property
    def goes_through_results(self) -> bool:
        """Whether passes may leave elements in the results, whose lines are contiguous."""
        return not self.by_number and self.inner == 1

    def target(self, number: int) -> int | None:
        """The area of the workspace that a pass writes; None: the results."""
        left = len(self.digits) - 1 - number
        if self.goes_through_results:
            return None if left % 2 == 0 else 0
        return None if left == 0 else number % 2

    @property
    def areas(self) -> int:
        """How many the passes go through."""
        found = {self.target(number) for number in range(len(self.digits))}
        return len(found - {None})

    @cached_property
    def area_bytes(self) -> tuple[int, ...]:
        """Of everything that is moved, in one area of the workspace."""
        sizes = (KIND_BITS[kind] // 8 * self.length * self.lines for kind in self.kinds)
        return tuple(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)

    def area_offset(self, area: int, part: int) -> int:
        """Where a part of what is moved lies in the workspace."""
        return area * sum(self.area_bytes) + sum(self.area_bytes[:part])

    @property
    def counts_offset(self) -> int:
        """Where every tile's digits are counted: for each line and digit one number (i32) a tile."""
        return self.areas * sum(self.area_bytes)

    @property
    def totals_offset(self) -> int:
        """Where the digits of each line are counted."""
        return self.counts_offset + -(-4 * self.lines * self.tiles * (1 << DIGIT) // ALIGNMENT) * ALIGNMENT

    @property
    def workspace_bytes(self) -> int:
        """Nothing where blocks sort whole lines."""
        return 0 if self.rows or not self.digits else self.totals_offset + 4 * self.lines * (1 << DIGIT)


def code_bytes(code: KeyCode) -> int:
    """Bytes of a key as an integer."""
    return KIND_BITS[code.kind] // 8


def _is_cheaper_by_number(codes: tuple[KeyCode, ...], sizes: list[int]) -> bool:
    """By the bytes that all passes move."""
    passes = sum(-(-code.bits // DIGIT) for code in codes)
    moved = 2 * passes * sum(sizes)
    keys = sum(code_bytes(code) for code in codes)
    read = sum(sizes[number] for number in {number for code in codes for number in code.operands})
    gathered = sum(max(size, SECTOR) + size for size in sizes)
    return read + (2 * passes - 1) * (keys + 4) + gathered < moved


def _blocks(length: int, lines: int, item: int, machine: GridMachine) -> tuple[int, int, int] | None:
    """Threads, elements of a thread, and lines of a block."""
    rows = min(SHORT_TILE // length, lines, MOST_ROWS)
    # Rather more blocks than full ones.
    rows = max(1, min(rows, -(-lines // machine.multiprocessors)))
    if (whole := whole_block(rows * length, item, machine)) is not None:
        return *whole, rows
    most = _most_items(item)
    items = 16 if item <= 4 else min(most, 8)
    while items > 1 and not _fits(THREADS, items, item, machine):
        items //= 2
    return (THREADS, items, 0) if _fits(THREADS, items, item, machine) else None


def whole_block(elements: int, item: int, machine: GridMachine) -> tuple[int, int] | None:
    """Threads, and elements of a thread, of a block that sorts so many elements of ``item`` bytes, if one can."""
    for threads in (THREADS, 2 * THREADS):
        items = -(-elements // threads)
        if threads <= machine.threads_per_block and items <= _most_items(item) and _fits(threads, items, item, machine):
            return threads, items
    return None


def _most_items(item: int) -> int:
    """Elements of ``item`` bytes that a thread keeps in registers."""
    return 16 if item <= 8 else 8 if item <= 16 else 4


def _fits(threads: int, items: int, item: int, machine: GridMachine) -> bool:
    """Whether a block's shared memory holds elements (with the number of a line), and counts of every warp."""
    elements = threads * items * (item + 1)
    return elements + 4 * (1 << DIGIT) * (threads // machine.warp + 2) + 512 <= machine.shared_bytes
