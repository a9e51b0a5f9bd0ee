"""Sums across the lanes of vectors, and of rows of a left operand."""

from __future__ import annotations

from collections.abc import Sequence

from hlojit.cpu.kernels.addresses import ZERO
from hlojit.cpu.kernels.arithmetic import Arithmetic
from hlojit.cpu.kernels.transposing import shuffle
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.product_elements import Elements, at, scaled


def add_across(b: LlvmBuilder, arithmetic: Arithmetic, vectors: Sequence[Val]) -> Val:
    """A vector whose lane ``i`` is the sum of the lanes of ``vectors[i]``; their number is a power of two."""
    count = len(vectors)
    lanes = vectors[0].lanes
    work = list(vectors)
    while len(work) > 1:
        even, odd = range(0, 2 * lanes, 2), range(1, 2 * lanes, 2)
        work = [arithmetic.add(b, shuffle(b, x, y, even), shuffle(b, x, y, odd)) for x, y in zip(work[::2], work[1::2])]
    total = work[0]
    while total.lanes > count:
        even, odd = range(0, total.lanes, 2), range(1, total.lanes, 2)
        total = arithmetic.add(b, shuffle(b, total, total, even), shuffle(b, total, total, odd))
    return total


def row_offsets(
    b: LlvmBuilder, arithmetic: Arithmetic, elements: Elements, a: Val, step: int, rows: int, k: Val
) -> list[Val]:
    """What the sums of ``rows`` rows begin with, ``step`` bytes apart from ``a`` on: multiples of the sums of their k elements.

    Where the arithmetic has quads whose right elements are not what they should be; empty otherwise.  The k are neighbours.
    """
    quads = arithmetic.quads
    if quads is None or not quads.row_factor:
        return []
    lanes = quads.lanes
    ones, zero = b.splat(b.constant("i32", 0x01010101), lanes), b.splat(b.constant("i32", 0), lanes)
    order = Val(f"<{', '.join(f'i32 {lane}' for lane in range(lanes))}>", "i32", lanes)
    loop = b.begin_loop(ZERO, k, lanes, [zero] * rows)
    mask = b.icmp("ult", order, b.splat(b.trunc(b.sub(k, loop.index), "i32"), lanes))
    place = at(b, a, scaled(b, loop.index, elements.size))
    parts = [elements.load(b, at(b, place, row * step), lanes, mask) for row in range(rows)]
    sums = b.end_loop(loop, [quads.multiply_add(b, x, ones, total) for x, total in zip(parts, loop.carried)])
    padded = 1 << (rows - 1).bit_length()
    total = add_across(b, arithmetic, [*sums, *[zero] * (padded - rows)])
    total = b.mul(total, b.constant("i32", quads.row_factor))
    return [b.extract(total, row) for row in range(rows)] if padded > 1 else [total]
