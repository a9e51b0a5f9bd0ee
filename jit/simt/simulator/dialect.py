"""The simulator's dialect: threads as functions of a processor, coroutines where they wait for each other.

A kernel becomes::

    define void @symbol(ptr context, ptr buffers, i64 first, i64 last)      ; the CPU's form: tasks are blocks
        for each block: for each thread: call @symbol.thread(context, block, buffers, thread)     ; never waits: inlined
        for each block: call @hlojit_simulator_run(block, @symbol.thread)                         ; waits: a coroutine

A coroutine suspends itself where the thread waits, having noted where that is; the scheduler resumes it when all that
should be there are there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import final

from hlojit.llvm.text import Val
from hlojit.lowering.grid_machine import check_warp
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.dialect import Dialect, MemoryAccess, Use
from hlojit.simt.simulator import checks
from hlojit.simt.simulator.facts import BufferFacts, KernelFacts, facts_symbol
from hlojit.simt.simulator.records import BLOCK, COPIES_BYTES, LANE, LANE_BYTES, MOST_THREADS, Meeting

_FRAME_ALIGNMENT = 64
_PARAMETERS = (("ptr", "context"), ("ptr", "block"), ("ptr", "buffers"), ("i32", "thread"))
_LEAVE, _LEFT = "leave", "left"


@dataclass(slots=True)
class _Kernel:
    """The kernel under construction."""

    sites: list[str] = field(default_factory=lambda: ["nowhere"])
    members: list[int] = field(default_factory=lambda: [-1])
    meetings: Counter[str] = field(default_factory=Counter)
    """How many of a kind there are."""
    copies: str = ""
    """Address of the thread's queue of asynchronous copies, if it makes some."""

    @property
    def waits(self) -> bool:
        """Whether threads wait for each other."""
        return bool(self.meetings)


@final
class SimulatorDialect(Dialect):
    """What runs on the host's processor; warps of ``warp`` lanes, a power of two from 8 to 64."""

    name = "simulator"

    def __init__(self, warp: int = 32):
        check_warp(warp)
        self.warp = warp
        self._kernel = _Kernel()

    def for_module(self) -> SimulatorDialect:
        return SimulatorDialect(self.warp)

    # ---------------------------------------------------------- form of a kernel

    @contextmanager
    def kernel(self, b: SimtBuilder, symbol: str, buffers: int, threads: int) -> Iterator[list[Val]]:
        assert 1 <= threads <= MOST_THREADS
        self._kernel = _Kernel()
        definition = len(b.lines)
        with b.function(f"{symbol}.thread", _PARAMETERS, result="ptr", linkage="private") as (_, _, array, _):
            prologue = len(b.lines)
            b.line("")
            b.branch("body")
            b.begin_block("body")
            yield [_loaded(b, array, 8 * number) for number in range(buffers)]
            b.foreign.end()
            b.branch(_LEAVE)
            b.begin_block(_LEAVE)
            if self._kernel.waits:
                _store_word(b, LANE["meeting"].offset, "0")
                b.branch(_LEFT)
                b.begin_block(_LEFT)
                b.line("call void @llvm.coro.end(ptr %frame, i1 false, token none)")
                b.line("ret ptr %frame")
                b.lines[prologue] = _coroutine(b)
            else:
                b.line("ret ptr null")
            if self._kernel.copies:
                b.lines[prologue] += f"\n  store <4 x i64> zeroinitializer, ptr {self._kernel.copies}, align 8"
        kind = "presplitcoroutine" if self._kernel.waits else "alwaysinline"
        b.lines[definition] = b.lines[definition].replace(" nounwind {", f" nounwind {kind} {{")
        self._launched(b, symbol, threads)
        self._facts(b, symbol, threads)

    def _facts(self, b: SimtBuilder, symbol: str, threads: int) -> None:
        """What launches and messages need, as a text in the object."""
        memories = [BufferFacts(each.what, each.nbytes, each.itemsize, each.is_written) for each in b.all_buffers]
        facts = KernelFacts(
            threads, b.shared_bytes, tuple(memories), tuple(self._kernel.sites), tuple(self._kernel.members)
        )
        name, text = facts_symbol(symbol), facts.to_text().encode() + b"\0"
        escaped = "".join(f"\\{byte:02X}" for byte in text)
        b.declare(name, f'@{name} = constant [{len(text)} x i8] c"{escaped}"')

    def _launched(self, b: SimtBuilder, symbol: str, threads: int) -> None:
        """The function that is called: over blocks, and over threads if they do not wait."""
        b.declare("hlojit_simulator_open", "declare ptr @hlojit_simulator_open(ptr, ptr, i32, i32, i64)")
        b.declare("hlojit_simulator_begin", "declare i1 @hlojit_simulator_begin(ptr, i64)")
        b.declare("hlojit_simulator_run", "declare void @hlojit_simulator_run(ptr, ptr)")
        b.declare("hlojit_simulator_close", "declare void @hlojit_simulator_close(ptr)")
        parameters = (("ptr", "context"), ("ptr", "buffers"), ("i64", "first"), ("i64", "last"))
        shift = self.warp.bit_length() - 1
        with b.function(symbol, parameters) as (_, _, first, last):
            sizes = f"i32 {threads}, i32 {shift}, i64 {b.shared_bytes}"
            b.line(f"%block = call ptr @hlojit_simulator_open(ptr %context, ptr %buffers, {sizes})")
            opened = b.emit("i1", 1, "icmp ne ptr %block, null")
            b.branch_if(opened, "blocks", "done")
            b.begin_block("blocks")
            loop = b.begin_loop(first, last)
            goes_on = b.emit("i1", 1, f"call i1 @hlojit_simulator_begin(ptr %block, i64 {loop.index.text})")
            b.branch_if(goes_on, "run", "close")
            b.begin_block("run")
            if self._kernel.waits:
                b.line(f"call void @hlojit_simulator_run(ptr %block, ptr @{symbol}.thread)")
            else:
                inner = b.begin_loop(b.constant("i64", 0), b.constant("i64", threads))
                thread = b.trunc(inner.index, "i32")
                arguments = f"ptr %context, ptr %block, ptr %buffers, i32 {thread.text}"
                b.line(f"call ptr @{symbol}.thread({arguments})")
                b.end_loop(inner)
            b.end_loop(loop)
            b.branch("close")
            b.begin_block("close")
            b.line("call void @hlojit_simulator_close(ptr %block)")
            b.branch("done")
            b.begin_block("done")

    def thread(self, b: SimtBuilder) -> Val:
        return Val("%thread", "i32")

    def block(self, b: SimtBuilder) -> Val:
        place = b.emit("ptr", 1, f"getelementptr inbounds i8, ptr %block, i64 {BLOCK['number'].offset}")
        return b.trunc(b.load("i64", place), "i32")

    def shared(self, b: SimtBuilder, offset: int) -> Val:
        base = _loaded(b, Val("%block", "ptr"), BLOCK["shared"].offset)
        return b.emit("ptr", 1, f"getelementptr inbounds i8, ptr {base.text}, i64 {offset}")

    def status(self, b: SimtBuilder, number: int) -> Val:
        place, address = b.name(), b.name()
        b.at_entry(
            f"{place} = getelementptr inbounds i8, ptr %buffers, i64 {8 * number}",
            f"{address} = load ptr, ptr {place}, align 8",
        )
        return Val(address, "ptr")

    def number(self, b: SimtBuilder, position: int) -> Val:
        place, number = b.name(), b.name()
        b.at_entry(
            f"{place} = getelementptr inbounds i8, ptr %buffers, i64 {8 * position}",
            f"{number} = load i64, ptr {place}, align 8",
        )
        return Val(number, "i64")

    def set_condition(self, b: SimtBuilder, handle: Val, value: Val) -> bool:
        # A handle is the address of a word that the driver has for the node.
        word = b.emit("ptr", 1, f"inttoptr i64 {handle.text} to ptr")
        b.line(f"store i32 {value.text}, ptr {word.text}, align 4")
        return True

    # ---------------------------------------------------------- meetings

    def barrier(self, b: SimtBuilder) -> None:
        self._meet(b, Meeting.BARRIER, "barrier")

    def sync_warp(self, b: SimtBuilder) -> None:
        self._meet(b, Meeting.WARP, "meeting of the warp")

    def shuffle(self, b: SimtBuilder, value: Val, mask: int) -> Val:
        turn = self._offer(b, value, "shuffle")
        return _taken(b, turn, b.xor(b.thread, b.constant("i32", mask)))

    def shuffle_from(self, b: SimtBuilder, value: Val, lane: Val) -> Val:
        turn = self._offer(b, value, "shuffle")
        lanes = self.warp - 1
        base = b.and_(b.thread, b.constant("i32", ~lanes))
        return _taken(b, turn, b.or_(base, b.and_(lane, b.constant("i32", lanes))))

    def ballot(self, b: SimtBuilder, predicate: Val) -> Val:
        turn = self._offer(b, b.zext(predicate, "i32"), "vote")
        symbol = "hlojit_simulator_ballot"
        b.declare(symbol, f"declare i64 @{symbol}(ptr, i32, i32)")
        votes = b.emit("i64", 1, f"call i64 @{symbol}(ptr %block, i32 %thread, i32 {turn.text})")
        return votes if self.vote_kind == "i64" else b.trunc(votes, "i32")

    def _offer(self, b: SimtBuilder, value: Val, what: str) -> Val:
        """Put a value into one of the lane's two slots and wait for the others; returns which slot it was."""
        turn = b.load("i32", _word(b, LANE["turn"].offset))
        slots = _word(b, LANE["slots"].offset)
        b.store(value, b.emit("ptr", 1, f"getelementptr inbounds i8, ptr {slots.text}, i32 {turn.text}"))
        _store_word(b, LANE["turn"].offset, b.xor(turn, b.constant("i32", 4)).text)
        self._meet(b, Meeting.EXCHANGE, what)
        return turn

    def _meet(self, b: SimtBuilder, kind: Meeting, what: str) -> None:
        self._kernel.meetings[what] += 1
        number = self.site(f"{what} {self._kernel.meetings[what]}")
        _store_word(b, LANE["meeting"].offset, str(number << 2 | kind))
        resumed = b.emit("i8", 1, "call i8 @llvm.coro.suspend(token none, i1 false)")
        following = b.fresh_label("go")
        # Nobody destroys coroutines (1): they own nothing.
        b.line(f"switch i8 {resumed.text}, label %{_LEFT} [ i8 0, label %{following} ]")
        b.begin_block(following)

    # ---------------------------------------------------------- asynchronous copies

    # The bytes are there at once (``Dialect.copy_async``); that nobody may touch them is what the check notes.

    def commit_copies(self, b: SimtBuilder) -> None:
        symbol = "hlojit_simulator_commit"
        b.declare(symbol, f"declare void @{symbol}(ptr)")
        b.line(f"call void @{symbol}(ptr {self._copies(b)})")

    def wait_for_copies(self, b: SimtBuilder, left: int) -> None:
        symbol = "hlojit_simulator_wait"
        b.declare(symbol, f"declare void @{symbol}(ptr, i32, ptr, i64)")
        b.line(f"call void @{symbol}(ptr %block, i32 %thread, ptr {self._copies(b)}, i64 {left})")

    def _copies(self, b: SimtBuilder) -> str:
        """Address of the thread's queue."""
        if not self._kernel.copies:
            self._kernel.copies = b.name()
            b.at_entry(f"{self._kernel.copies} = alloca [{COPIES_BYTES} x i8], align 8")
        return self._kernel.copies

    # ---------------------------------------------------------- checks

    def site(self, what: str, member: int = -1) -> int:
        """A number for an instruction that messages may name; ``member`` is that of the fusion's instruction it belongs to."""
        self._kernel.sites.append(what)
        self._kernel.members.append(member)
        return min(len(self._kernel.sites) - 1, checks.MOST_SITES)

    def check(self, b: SimtBuilder, access: MemoryAccess) -> None:
        queue = self._copies(b) if access.use is Use.COPY else ""
        verb = "into" if access.use is Use.COPY else "of"
        site = self.site(f"{access.use.value} {verb} {access.memory.what}", access.member)
        checks.emit_check(b, access, site, _LEAVE, queue)


def _loaded(b: SimtBuilder, record: Val, offset: int) -> Val:
    """An address that a record holds."""
    place = b.emit("ptr", 1, f"getelementptr inbounds i8, ptr {record.text}, i64 {offset}")
    return b.emit("ptr", 1, f"load ptr, ptr {place.text}, align 8")


def _word(b: SimtBuilder, offset: int, thread: Val | None = None) -> Val:
    """Address of a word that a lane has; by default the thread's own."""
    lanes = _loaded(b, Val("%block", "ptr"), BLOCK["lanes"].offset)
    lane = b.mul(b.zext(b.thread if thread is None else thread, "i64"), b.constant("i64", LANE_BYTES))
    place = b.add(lane, b.constant("i64", offset))
    return b.emit("ptr", 1, f"getelementptr inbounds i8, ptr {lanes.text}, i64 {place.text}")


def _store_word(b: SimtBuilder, offset: int, text: str) -> None:
    b.line(f"store i32 {text}, ptr {_word(b, offset).text}, align 4")


def _taken(b: SimtBuilder, turn: Val, thread: Val) -> Val:
    """What another lane has put into the slot of this turn."""
    slots = _word(b, LANE["slots"].offset, thread)
    return b.load("i32", b.emit("ptr", 1, f"getelementptr inbounds i8, ptr {slots.text}, i32 {turn.text}"))


def _coroutine(b: SimtBuilder) -> str:
    """What a coroutine begins with: its frame lies in memory that the block has for all of its threads."""
    for declaration in (
        "token @llvm.coro.id(i32, ptr, ptr, ptr)",
        "i64 @llvm.coro.size.i64()",
        "ptr @llvm.coro.begin(token, ptr)",
        "i8 @llvm.coro.suspend(token, i1)",
        "void @llvm.coro.end(ptr, i1, token)",
        "ptr @hlojit_simulator_frame(ptr, i64, i32)",
    ):
        b.declare(declaration.split("@")[1].split("(")[0], f"declare {declaration}")
    return f"""\
  %coroutine = call token @llvm.coro.id(i32 {_FRAME_ALIGNMENT}, ptr null, ptr null, ptr null)
  %frame.size = call i64 @llvm.coro.size.i64()
  %frame.memory = call ptr @hlojit_simulator_frame(ptr %block, i64 %frame.size, i32 %thread)
  %frame.none = icmp eq ptr %frame.memory, null
  br i1 %frame.none, label %refused, label %begun
refused:
  ret ptr null
begun:
  %frame = call ptr @llvm.coro.begin(token %coroutine, ptr %frame.memory)"""
