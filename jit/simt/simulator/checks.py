"""Checks before accesses, as text: lengths of memory, alignment, races.

An access that is wrong is reported and not done: its thread ends.
"""

from __future__ import annotations

from typing import Final

from hlojit.llvm.text import Val
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.dialect import MemoryAccess, Use

MOST_SITES: Final = 0xFFFF
"""What an entry of a race has room for."""
_USES: Final = {Use.LOAD: 0, Use.STORE: 1, Use.ATOMIC: 2, Use.COPY: 1}


def emit_check(b: SimtBuilder, access: MemoryAccess, site: int, leave: str, queue: str = "") -> None:
    """Branch to ``leave`` instead of making a wrong access; messages name the instruction by its number ``site``.

    ``queue`` is the address of the thread's queue of asynchronous copies, if the access is one.
    """
    if access.mask is None and access.pointer.lanes == 1:
        offset = _distance(b, access.pointer, access.memory.base)
        size = access.lanes * access.itemsize
        _unless(b, _beyond(b, offset, access.memory.nbytes - size), "outside", site, offset, leave)
        _unless(b, _misaligned(b, offset, access.align), "misaligned", site, offset, leave)
        _note(b, access, site, offset, b.constant("i64", size), leave)
        if queue:
            _note_copy(b, access, site, offset, queue, leave)
        return
    offsets = _offsets(b, access)
    lanes = [b.extract(offsets, lane) for lane in range(access.lanes)]
    for lane, offset in enumerate(lanes):
        # A lane that is masked off may lie anywhere.
        active = b.extract(access.mask, lane) if access.mask is not None else b.constant("i1", 1)
        beyond = _beyond(b, offset, access.memory.nbytes - access.itemsize)
        _unless(b, b.and_(active, beyond), "outside", site, offset, leave)
        _unless(b, b.and_(active, _misaligned(b, offset, access.align)), "misaligned", site, offset, leave)
        nbytes = b.select(active, b.constant("i64", access.itemsize), b.constant("i64", 0))
        _note(b, access, site, offset, nbytes, leave)


def _distance(b: SimtBuilder, pointer: Val, base: Val) -> Val:
    address = b.emit("i64", 1, f"ptrtoint ptr {pointer.text} to i64")
    return b.sub(address, b.emit("i64", 1, f"ptrtoint ptr {base.text} to i64"))


def _offsets(b: SimtBuilder, access: MemoryAccess) -> Val:
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


def _misaligned(b: SimtBuilder, offset: Val, align: int) -> Val:
    """Whether an offset is no multiple of the alignment; the memory itself begins at a multiple."""
    return b.icmp("ne", b.and_(offset, b.constant("i64", align - 1)), b.constant("i64", 0))


def _unless(b: SimtBuilder, bad: Val, stem: str, site: int, offset: Val, leave: str) -> None:
    """Report, by the function of that name, and leave."""
    symbol = f"hlojit_simulator_{stem}"
    b.declare(symbol, f"declare void @{symbol}(ptr, i32, i32, i64) cold")
    wrong, following = b.fresh_label(stem), b.fresh_label("well")
    b.branch_if(bad, wrong, following)
    b.begin_block(wrong)
    b.line(f"call void @{symbol}(ptr %block, i32 %thread, i32 {site}, i64 {offset.text})")
    b.branch(leave)
    b.begin_block(following)


def _note(b: SimtBuilder, access: MemoryAccess, site: int, offset: Val, nbytes: Val, leave: str) -> None:
    """Tell who accesses what; leave if others do and nothing orders them."""
    memory = access.memory
    who = f"ptr %block, i32 %thread, i32 {site}"
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


def _note_copy(b: SimtBuilder, access: MemoryAccess, site: int, offset: Val, queue: str, leave: str) -> None:
    """What a copy has noted as its store is under way until the thread waits for it."""
    symbol = "hlojit_simulator_copy"
    b.declare(symbol, f"declare i1 @{symbol}(ptr, i32, i32, ptr, i64, i64, i64)")
    begin = b.add(offset, b.constant("i64", access.memory.offset))
    what = f"i64 {begin.text}, i64 {access.align}, i64 {access.memory.itemsize}"
    failed = b.emit("i1", 1, f"call i1 @{symbol}(ptr %block, i32 %thread, i32 {site}, ptr {queue}, {what})")
    following = b.fresh_label("begun")
    b.branch_if(failed, leave, following)
    b.begin_block(following)
