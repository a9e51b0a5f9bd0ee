"""Long lines whose keys have at most eight bits: keys are counted, and elements put where their key's turn is.

    keys 2 0 2 1      counts 1 1 2      places 0 1 2      elements, one after the other, to 2, 0, 3, 1

It is stable, and moves each element once.
"""

from __future__ import annotations

from typing import Final

from hlojit.cpu.kernels.addresses import ZERO, literal
from hlojit.cpu.kernels.sort_words import key_at
from hlojit.cpu.kernels.sorted_lines import Lines
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.lowering.line_sort_plan import LineSortPlan
from hlojit.lowering.sorted_arrays import SortedArrays

ONE: Final = literal(1)
TABLES: Final = 4
"""Neighbours are counted apart: an equal key would wait for the count before it."""


def counting_sort(
    b: LlvmBuilder, plan: LineSortPlan, arrays: SortedArrays, operands: Lines, results: list[Val]
) -> None:
    """Emit the sort of a line."""
    size = 1 << plan.key_bits
    counts = b.array("i32", TABLES * size)
    clear = b.begin_loop(ZERO, literal(TABLES * size))
    b.store(Val("0", "i32"), b.element_pointer(counts, "i32", clear.index))
    b.end_loop(clear)

    def key(index: Val) -> Val:
        return b.zext(key_at(b, plan.codes, "i8", arrays.kinds, operands, index, 1), "i64")

    whole = plan.length - plan.length % TABLES
    for first, limit, step in ((0, whole, TABLES), (whole, plan.length, 1)):
        loop = b.begin_loop(literal(first), literal(limit), step=step)
        for table in range(step):
            place = b.add(key(b.add(loop.index, literal(table))), literal(table * size))
            counter = b.element_pointer(counts, "i32", place)
            b.store(b.add(b.load("i32", counter), Val("1", "i32")), counter)
        b.end_loop(loop)
    _sum_up(b, counts, size)
    loop = b.begin_loop(ZERO, literal(plan.length))
    counter = b.element_pointer(counts, "i32", key(loop.index))
    place = b.load("i32", counter)
    b.store(b.add(place, Val("1", "i32")), counter)
    there = b.zext(place, "i64")
    for operand, result in zip(arrays.outputs, results):
        kind, source = arrays.kinds[operand], operands[operand]
        memory = "i8" if kind == "i1" else kind
        if source is None:
            value = b.trunc(loop.index, memory)
        else:
            value = b.load(memory, b.element_pointer(source, memory, loop.index))
        b.store(value, b.element_pointer(result, memory, there))
    b.end_loop(loop)


def _sum_up(b: LlvmBuilder, counts: Val, size: int) -> None:
    """The first table from counts to places."""
    loop = b.begin_loop(ZERO, literal(size), carried=(Val("0", "i32"),))
    (total,) = loop.carried
    several = [
        b.load("i32", b.element_pointer(counts, "i32", b.add(loop.index, literal(table * size))))
        for table in range(TABLES)
    ]
    b.store(total, b.element_pointer(counts, "i32", loop.index))
    for count in several:
        total = b.add(total, count)
    b.end_loop(loop, (total,))
