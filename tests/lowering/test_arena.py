"""Offsets in the arena: buffers that live at the same time do not overlap, dead ones give their place away."""

from __future__ import annotations

from hlojit.ir.sizes import evaluate, extent, multiply
from hlojit.lowering.arena import ALIGNMENT, assign_offsets
from hlojit.lowering.program import Buffer, BufferKind
from hlojit.lowering.storage import Storage
from hypothesis import given, settings
from hypothesis import strategies as st

LIVES = st.lists(st.tuples(st.integers(0, 700), st.integers(0, 30), st.integers(0, 12)), max_size=60)


def buffers_of(lives: list[tuple[int, int, int]]) -> list[Buffer]:
    return [Buffer(BufferKind.TEMPORARY, Storage.raw(size), k, start=start, end=start + length)
            for k, (size, start, length) in enumerate(lives)]  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(LIVES)
def test_live_buffers_do_not_overlap(lives: list[tuple[int, int, int]]) -> None:
    buffers = buffers_of(lives)
    total = assign_offsets(buffers)
    for number, one in enumerate(buffers):
        assert one.offset % ALIGNMENT == 0 and one.offset >= 0 and one.offset + one.nbytes <= total
        for other in buffers[:number]:
            if one.start <= other.end and other.start <= one.end:
                first, second = sorted((one, other), key=lambda each: each.offset)
                assert first.offset + max(1, first.nbytes) <= second.offset
    # No more than everything at once, and no less than what lives at any one time.
    rounded = [max(ALIGNMENT, -(-each.nbytes // ALIGNMENT) * ALIGNMENT) for each in buffers]
    assert total <= sum(rounded)
    for position in range(45):
        live = sum(size for size, each in zip(rounded, buffers) if each.start <= position <= each.end)
        assert total >= live


def test_chain_uses_two_places() -> None:
    assert assign_offsets(buffers_of([(100, k, 1) for k in range(1000)])) == 2 * 128


def test_order_of_the_list_does_not_matter() -> None:
    lives = [(64 * (k % 5 + 1), k * 3 % 17, k % 4) for k in range(40)]
    buffers, again = buffers_of(lives), buffers_of(lives)
    assert assign_offsets(buffers) == assign_offsets(sorted(again, key=lambda each: each.start))


def test_sizes_that_are_known_later_come_last() -> None:
    rows = extent(0, 0)
    buffers = [*buffers_of([(100, 0, 5)]), Buffer(BufferKind.TEMPORARY, Storage.raw(multiply(rows, 4)), 1),
               Buffer(BufferKind.TEMPORARY, Storage.raw(multiply(rows, 8)), 2)]  # fmt: skip
    total = assign_offsets(buffers)
    for count, places in ((1, [0, 128, 192]), (100, [0, 128, 128 + 448])):
        assert [evaluate(buffer.offset, [(count,)]) for buffer in buffers] == places
        assert evaluate(total, [(count,)]) == places[-1] + -(-8 * count // 64) * 64
