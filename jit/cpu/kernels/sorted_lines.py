"""Lines of a sort's operands and results in memory, and results gathered by the numbers that sorted words hold."""

from __future__ import annotations

from collections.abc import Sequence

from hlojit.cpu.kernels.addresses import ZERO, literal
from hlojit.cpu.kernels.update import copy_bytes, load_buffer
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.lowering.line_sort_plan import LineSortPlan
from hlojit.lowering.sorted_arrays import SortedArrays
from hlojit.lowering.target import KIND_BITS

Lines = list[Val | None]
"""Addresses of a line's first element in each operand of the sort; None: elements' numbers."""


def line_start(b: LlvmBuilder, line: Val, length: int) -> Val:
    """Linear index of the first element of a contiguous line."""
    return b.mul(line, literal(length))


def operand_lines(b: LlvmBuilder, arrays: SortedArrays, buffers: Val, start: Val) -> Lines:
    """The operands' lines."""
    return [
        None if source is None else b.element_pointer(load_buffer(b, buffers, source), kind, start)
        for source, kind in zip(arrays.sources, arrays.kinds)
    ]


def result_lines(b: LlvmBuilder, arrays: SortedArrays, buffers: Val, start: Val) -> list[Val]:
    """The results' lines."""
    return [
        b.element_pointer(load_buffer(b, buffers, arrays.buffers + number), arrays.kinds[operand], start)
        for number, operand in enumerate(arrays.outputs)
    ]


def copy_lines(b: LlvmBuilder, arrays: SortedArrays, operands: Lines, results: Sequence[Val]) -> None:
    """Results from the elements that are wanted of contiguous lines that are in order."""
    for operand, result in zip(arrays.outputs, results):
        kind, source = arrays.kinds[operand], operands[operand]
        memory = "i8" if kind == "i1" else kind
        if source is not None:
            source = b.element_pointer(source, memory, literal(arrays.first)) if arrays.first else source
            copy_bytes(b, result, source, arrays.count * KIND_BITS[memory] // 8)
            continue
        loop = b.begin_loop(ZERO, literal(arrays.count))
        number = b.add(loop.index, literal(arrays.first)) if arrays.first else loop.index
        b.store(b.trunc(number, memory), b.element_pointer(result, memory, loop.index))
        b.end_loop(loop)


def gather_lines(
    b: LlvmBuilder, plan: LineSortPlan, arrays: SortedArrays, words: Val, operands: Lines, results: Sequence[Val]
) -> None:
    """Results from the elements whose numbers words hold."""
    loop = b.begin_loop(ZERO, literal(arrays.count))
    word = b.load(plan.word, b.element_pointer(words, plan.word, loop.index))
    write_word(b, plan, arrays, word, operands, results, loop.index)
    b.end_loop(loop)


def write_word(
    b: LlvmBuilder,
    plan: LineSortPlan,
    arrays: SortedArrays,
    word: Val,
    operands: Lines,
    results: Sequence[Val],
    place: Val,
) -> None:
    """The element whose number a word holds to a place of the results."""
    mask = b.constant(plan.word, (1 << plan.number_bits) - 1)
    write_element(b, arrays, b.zext(b.and_(word, mask), "i64"), operands, results, place)


def write_element(
    b: LlvmBuilder, arrays: SortedArrays, number: Val, operands: Lines, results: Sequence[Val], place: Val
) -> None:
    """An element of the operands, by its number, to a place of the results."""
    for operand, result in zip(arrays.outputs, results):
        kind, source = arrays.kinds[operand], operands[operand]
        memory = "i8" if kind == "i1" else kind
        if source is None:
            value = b.trunc(number, memory)
        else:
            value = b.load(memory, b.element_pointer(source, memory, number))
        b.store(value, b.element_pointer(result, memory, place))
