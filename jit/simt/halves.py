"""What threads of a block that lie above each other have found comes together, the lower half into the upper one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hlojit.llvm.combiners import Combiners
from hlojit.llvm.text import Val
from hlojit.simt.frame import GridFrame


def together_down(
    frame: GridFrame,
    combiners: Combiners,
    flat: Sequence[Val],
    down: Val,
    count: int,
    threads: int,
    arrays: Sequence[int] = (),
) -> list[Val]:
    """In the threads whose ``down`` is 0: what all ``count``, a power of two, of the block's ``threads`` below have.

    Every thread of the block must come here.  ``arrays``: shared memory of ``threads`` times the values' lanes (default: new
    ones); what somebody reads there must have been read.
    """
    b, access = frame.builder, frame.access
    found = list(flat)
    half, lanes = count // 2, found[0].lanes
    if half and not arrays:
        arrays = [access.add_shared(value.kind, threads * lanes) for value in found]
    place = b.mul(b.zext(b.thread, "i64"), b.constant("i64", lanes))

    def write(values: Sequence[Val]) -> None:
        for array, value in zip(arrays, values, strict=True):
            access.store_at(value, array, place)

    def take_in(values: Sequence[Val], other: Val) -> list[Val]:
        others = [access.load_at(array, value.kind, other, value.lanes) for array, value in zip(arrays, values)]
        return combiners.merge(values, others)

    while half:
        upper, lower = b.constant("i64", half), b.constant("i64", 2 * half)
        gives = b.and_(b.icmp("sge", down, upper), b.icmp("slt", down, lower))
        b.when(gives, partial(write, found))
        b.barrier()
        other = b.add(place, b.constant("i64", half * (threads // count) * lanes))
        found = b.either(b.icmp("slt", down, upper), partial(take_in, found, other), found)
        half //= 2
    return found
