"""Checks before accesses, as text: lengths of memory, and races.

An access that is wrong is reported and not done: its thread ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hlojit.llvm.text import Val
from hlojit.lowering.target import KIND_BITS
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.dialect import Memory, Use

MOST_SITES: Final = 0xFFFF
"""What an entry of a race has room for."""
_USES: Final = {Use.LOAD: 0, Use.STORE: 1, Use.ATOMIC: 2}


@dataclass(frozen=True, slots=True)
class Access:
    """One instruction: ``lanes`` neighbours from a pointer on, or one element at each of several pointers."""

    memory: Memory
    pointer: Val
    lanes: int
    kind: str
    mask: Val | None
    use: Use
    site: int

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return max(8, KIND_BITS[self.kind]) // 8


def emit_check(b: SimtBuilder, access: Access, leave: str) -> None:
    """Branch to ``leave`` instead of making a wrong access."""
    if access.mask is None and access.pointer.lanes == 1:
        offset = _distance(b, access.pointer, access.memory.base)
        size = access.lanes * access.itemsize
        bad = _beyond(b, offset, access.memory.nbytes - size)
        _unless(b, bad, access, offset, leave)
        _note(b, access, offset, b.constant("i64", size), leave)
        return
    offsets = _offsets(b, access)
    lanes = [b.extract(offsets, lane) for lane in range(access.lanes)]
    for lane, offset in enumerate(lanes):
        # A lane that is masked off may lie anywhere.
        active = b.extract(access.mask, lane) if access.mask is not None else b.constant("i1", 1)
        bad = b.and_(active, _beyond(b, offset, access.memory.nbytes - access.itemsize))
        _unless(b, bad, access, offset, leave)
        nbytes = b.select(active, b.constant("i64", access.itemsize), b.constant("i64", 0))
        _note(b, access, offset, nbytes, leave)


def _distance(b: SimtBuilder, pointer: Val, base: Val) -> Val:
    address = b.emit("i64", 1, f"ptrtoint ptr {pointer.text} to i64")
    return b.sub(address, b.emit("i64", 1, f"ptrtoint ptr {base.text} to i64"))


def _offsets(b: SimtBuilder, access: Access) -> Val:
    """Bytes from the beginning of the memory to every lane's element."""
    lanes = access.lanes
    if access.pointer.lanes == 1:
        first = b.splat(_distance(b, access.pointer, access.memory.base), lanes)
        steps = ", ".join(f"i64 {lane * access.itemsize}" for lane in range(lanes))
        return b.add(first, Val(f"<{steps}>", "i64", lanes))
    addresses = b.emit("i64", lanes, f"ptrtoint <{lanes} x ptr> {access.pointer.text} to <{lanes} x i64>")
    return b.sub(addresses, b.splat(b.emit("i64", 1, f"ptrtoint ptr {access.memory.base.text} to i64"), lanes))


def _beyond(b: SimtBuilder, offset: Val, last: int) -> Val:
    """Whether an offset, as an unsigned number, is beyond the last that is allowed (which there may not be)."""
    return b.icmp("ugt", offset, b.constant("i64", last)) if last >= 0 else b.constant("i1", 1)


def _unless(b: SimtBuilder, bad: Val, access: Access, offset: Val, leave: str) -> None:
    symbol = "hlojit_simulator_outside"
    b.declare(symbol, f"declare void @{symbol}(ptr, i32, i32, i64) cold")
    outside, inside = b.fresh_label("outside"), b.fresh_label("inside")
    b.branch_if(bad, outside, inside)
    b.begin_block(outside)
    b.line(f"call void @{symbol}(ptr %block, i32 %thread, i32 {access.site}, i64 {offset.text})")
    b.branch(leave)
    b.begin_block(inside)


def _note(b: SimtBuilder, access: Access, offset: Val, nbytes: Val, leave: str) -> None:
    """Tell who accesses what; leave if others do and nothing orders them."""
    memory = access.memory
    who = f"ptr %block, i32 %thread, i32 {access.site}"
    if memory.is_shared:
        symbol = "hlojit_simulator_shared"
        b.declare(symbol, f"declare i1 @{symbol}(ptr, i32, i32, i64, i64, i64, i32)")
        shared = b.add(offset, b.constant("i64", memory.offset))
        what = f"i64 {shared.text}, i64 {nbytes.text}, i64 {memory.itemsize}, i32 {_USES[access.use]}"
    else:
        symbol = "hlojit_simulator_buffer"
        b.declare(symbol, f"declare i1 @{symbol}(ptr, i32, i32, i64, i64, i64, i64, i64, i32)")
        place = f"i64 {memory.number}, i64 {offset.text}, i64 {nbytes.text}"
        step = max(1, access.itemsize // memory.itemsize)
        what = f"{place}, i64 {memory.itemsize}, i64 {step}, i32 {_USES[access.use]}"
    raced = b.emit("i1", 1, f"call i1 @{symbol}({who}, {what})")
    following = b.fresh_label("alone")
    b.branch_if(raced, leave, following)
    b.begin_block(following)
