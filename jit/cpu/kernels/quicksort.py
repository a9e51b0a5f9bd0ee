"""A sort of signed integers as functions of a kernel's module: quicksort with vectors, over networks in registers.

    sorter = sorter_of("i32", target)
    sorter.call(b, context, x, y, n, low, high)          # in y; sorted into x
    sorter.call(b, context, x, y, n, low, high, (first, limit))    # as far as these places go
    kernel_code(b, ..., parts=(sorter.code,))            # one copy of the functions for all kernels of a process

A run lies in one of two areas and ends in the first.  What is not above a pivot goes to the first area, what is above it to
the second; whole vectors are written, over what was read already or into the room that the other part leaves.  So nothing
is swapped, and one loop serves all.

Numbers of a run are known to lie between two bounds, and every pivot narrows them on both sides: runs of equal numbers end
when both bounds meet, whatever the numbers are.  Long runs of few different numbers are counted (``few_values.py``).  Runs
that are cut badly too often are sorted as a heap: n log n in the worst case.

Where only some places of the sorted run are wanted, parts without one are left as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import final

from hlojit.cpu.kernels.addresses import ZERO, literal, minimum
from hlojit.cpu.kernels.few_values import FewValues
from hlojit.cpu.kernels.networks import Networks, copy_numbers
from hlojit.cpu.kernels.partitioning import Form, VectorForm, partition
from hlojit.ir.versions import versions_text
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.region import Variable, while_loop
from hlojit.llvm.text import LLVM_TYPE
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.target import KIND_BITS, Target

ONE = literal(1)
PREFIX = "hlojit_sorter"
MOST_ROWS = {"i16": 16, "i32": 16, "i64": 16}
"""Vectors of the largest network in registers: as many as are worth the time that LLVM takes for them."""
POLLED = 1 << 16
"""Numbers of a run before whose partition the call may be cancelled."""
LARGE = 1024
"""Numbers of a run of which more samples are taken, and which may be few different ones."""
MOST_SAMPLES = 64
DEPTH = 2
"""Partitions of a run for every halving that its length allows, before it is sorted as a heap."""


@final
@dataclass(frozen=True)
class Sorter:
    """Functions that sort one kind of integer, as a part of kernels."""

    code: KernelCode
    kind: str
    base: int
    """The most numbers that are sorted without a partition: they are read from ``y``, which stays as it is."""
    samples: int
    """Numbers that say whether there are few different ones."""

    def call(
        self,
        b: LlvmBuilder,
        context: Val,
        x: Val,
        y: Val,
        n: Val,
        low: Val,
        high: Val,
        wanted: tuple[Val, Val] | None = None,
    ) -> None:
        """Sort ``n`` numbers of ``y``, all between two bounds, into ``x``; both areas hold ``n``.

        ``wanted``: the first place of ``x`` that must be right, and the one behind the last.
        """
        kind = LLVM_TYPE[self.kind]
        first, limit = wanted or (ZERO, n)
        parameters = f"ptr, ptr, ptr, i64, {kind}, {kind}, i64, i64"
        b.declare(self.code.symbol, f"declare void @{self.code.symbol}({parameters})")
        b.line(
            f"call void @{self.code.symbol}(ptr {context.text}, ptr {x.text}, ptr {y.text}, i64 {n.text}, "
            f"{kind} {low.text}, {kind} {high.text}, i64 {first.text}, i64 {limit.text})"
        )

    def few(self, b: LlvmBuilder) -> FewValues:
        """What counts, and writes, a run of few different numbers, or of any elements that are as wide as they."""
        few = FewValues(b, self.kind, 1, self.samples, f"{self.code.symbol}_few")
        few.declare()
        return few

    @property
    def smallest(self) -> Val:
        """The smallest number of the kind."""
        return Val(str(-1 << (KIND_BITS[self.kind] - 1)), self.kind)

    @property
    def largest(self) -> Val:
        """The largest number of the kind."""
        return Val(str((1 << (KIND_BITS[self.kind] - 1)) - 1), self.kind)


@lru_cache(maxsize=16)
def sorter_of(kind: str, target: Target) -> Sorter:
    """The functions for a kind of word on a processor; their symbol is the hash of what they depend on."""
    form = VectorForm.of(kind, target)
    b = LlvmBuilder(form.lanes)
    quicksort = Quicksort(b, form, PREFIX, MOST_ROWS[kind])
    quicksort.emit()
    return Sorter(_part(b, target), kind, quicksort.base, quicksort.few.samples)


def _part(b: LlvmBuilder, target: Target) -> KernelCode:
    """A module as a part of kernels, the prefix of its symbols replaced by a hash."""
    content = f"{target.identity}\0{versions_text()}\0{b.module_text()}"
    symbol = f"hlojit_{hashlib.sha256(content.encode()).hexdigest()[:32]}"
    code = kernel_code(b, (Phase(PREFIX, 0, 0.0),))
    return replace(code, ir=code.ir.replace(PREFIX, symbol), phases=(Phase(symbol, 0, 0.0),))


@final
@dataclass(frozen=True)
class UnsignedNetworks:
    """The function that sorts few unsigned integers, as a part of kernels."""

    code: KernelCode
    most: int

    def call(self, b: LlvmBuilder, source: Val, target: Val, n: Val) -> None:
        """Sort at most ``most`` numbers."""
        b.declare(self.code.symbol, f"declare void @{self.code.symbol}(ptr, ptr, i64)")
        b.line(f"call void @{self.code.symbol}(ptr {source.text}, ptr {target.text}, i64 {n.text})")


@lru_cache(maxsize=16)
def unsigned_networks_of(kind: str, target: Target) -> UnsignedNetworks | None:
    """The function for a kind of word, None on processors that do not compare unsigned integers as fast as signed ones."""
    form = VectorForm.of(kind, target)
    if form.form is not Form.COMPRESS:
        return None
    b = LlvmBuilder(form.lanes)
    networks = Networks(b, form, PREFIX, MOST_ROWS[kind], signed=False)
    networks.emit()
    with b.function(PREFIX, [("ptr", "source"), ("ptr", "target"), ("i64", "n")]) as (source, sorted_, n):
        networks.call(source, sorted_, n)
    return UnsignedNetworks(_part(b, target), networks.most)


@final
@dataclass(frozen=True)
class Quicksort:
    """Emits the functions of one kind of integer; symbols begin with ``prefix``."""

    b: LlvmBuilder
    form: VectorForm
    prefix: str
    rows: int = 16
    """Vectors of the largest network."""

    @property
    def kind(self) -> str:
        """Of the numbers."""
        return self.form.kind

    @property
    def networks(self) -> Networks:
        """What sorts short runs."""
        return Networks(self.b, self.form, self.prefix, self.rows)

    @property
    def base(self) -> int:
        """The most numbers that networks sort."""
        return self.networks.most

    @property
    def few(self) -> FewValues:
        """What sorts runs of few different numbers."""
        samples = min(MOST_SAMPLES, self.base)
        return FewValues(self.b, self.kind, self.form.lanes, samples, f"{self.prefix}_few")

    def emit(self) -> None:
        """All functions."""
        self.networks.emit()
        self._emit_heap()
        self.few.emit()
        self._emit_sort()
        self._emit_entry()

    def _emit_entry(self) -> None:
        b, kind = self.b, self.kind
        parameters = [("ptr", "context"), ("ptr", "x"), ("ptr", "y"), ("i64", "n"), (kind, "low"), (kind, "high")]
        parameters += [("i64", "first"), ("i64", "limit")]
        with b.function(self.prefix, parameters) as (context, x, y, n, low, high, first, limit):
            bits = b.intrinsic("ctlz", n, extra="i1 false", extra_type="i1")
            depth = b.mul(b.sub(literal(66), bits), literal(DEPTH))
            self._call_sort(context, x, y, n, Val("true", "i1"), low, high, first, limit, depth)

    def _call_sort(self, context: Val, *run: Val) -> None:
        """``run``: as ``_State.run`` has it, and the depth that is left."""
        arguments = ", ".join(f"{self.b.type_of(value)} {value.text}" for value in (context, *run))
        self.b.line(f"call void @{self.prefix}_sort({arguments})")

    # -------------------------------------------------------------- quicksort

    def _emit_sort(self) -> None:
        b, kind = self.b, self.kind
        parameters = [("ptr", "context"), ("ptr", "x"), ("ptr", "y"), ("i64", "n"), ("i1", "in_y")]
        parameters += [(kind, "low"), (kind, "high"), ("i64", "first"), ("i64", "limit"), ("i64", "depth")]
        with b.function(f"{self.prefix}_sort", parameters, linkage="internal") as values:
            context = values[0]
            state = _State(*(Variable(b, value.kind, value) for value in values[1:]))
            leave = b.fresh_label("leave")
            while_loop(
                b,
                lambda: b.icmp("sgt", state.n.get(), literal(self.base)),
                lambda: self._emit_step(context, state, leave),
            )
            source = b.select(state.in_y.get(), state.y.get(), state.x.get())
            self.networks.call(source, state.x.get(), state.n.get())
            b.branch(leave)
            b.begin_block(leave)

    def _emit_step(self, context: Val, state: _State, leave: str) -> None:
        """One partition; the smaller part is sorted by a call, the larger one by the next turn."""
        b, kind = self.b, self.kind
        x, y, n, in_y = state.x.get(), state.y.get(), state.n.get(), state.in_y.get()
        low, high, depth = state.low.get(), state.high.get(), state.depth.get()
        first, limit = state.first.get(), state.limit.get()
        source = b.select(in_y, y, x)
        self._leave_if(b.icmp("sge", low, high), leave, lambda: self._copy_over(source, x, n, in_y))
        self._leave_if(b.icmp("sle", depth, ZERO), leave, lambda: self._sort_heap(source, x, n, in_y))
        self._poll(context, n, leave)
        sample, count = self._sample(source, n)
        self._leave_if(self._is_few(source, x, n, sample), leave, lambda: None)
        pivot = b.load(kind, b.element_pointer(sample, kind, b.lshr(count, ONE)))
        # A pivot that is the upper bound has nothing above it: the one below it is taken, and there is one.
        pivot = b.select(b.icmp("sge", pivot, high), b.sub(high, b.constant(kind, 1)), pivot)
        below = partition(b, self.form, source, x, y, n, pivot)
        above = b.sub(n, below)
        left = (x, b.element_pointer(y, kind, above), below, Val("false", "i1"), low, pivot, first, limit)
        right = (
            b.element_pointer(x, kind, below),
            y,
            above,
            Val("true", "i1"),
            b.add(pivot, b.constant(kind, 1)),
            high,
            b.sub(first, below),
            b.sub(limit, below),
        )
        is_left_smaller = b.icmp("slt", below, above)
        smaller = [b.select(is_left_smaller, p, q) for p, q in zip(left, right)]
        larger = [b.select(is_left_smaller, q, p) for p, q in zip(left, right)]
        depth = b.sub(depth, ONE)
        call, go = b.fresh_label("call"), b.fresh_label("go")
        b.branch_if(_has_wanted(b, *smaller), call, go)
        b.begin_block(call)
        self._call_sort(context, *smaller, depth)
        b.branch(go)
        b.begin_block(go)
        self._leave_if(b.xor(_has_wanted(b, *larger), Val("true", "i1")), leave, lambda: None)
        for variable, value in zip(state.run, larger):
            variable.set(value)
        state.depth.set(depth)

    def _leave_if(self, condition: Val, leave: str, finish: Callable[[], None]) -> None:
        b = self.b
        last, more = b.fresh_label("last"), b.fresh_label("more")
        b.branch_if(condition, last, more)
        b.begin_block(last)
        finish()
        b.branch(leave)
        b.begin_block(more)

    def _poll(self, context: Val, n: Val, leave: str) -> None:
        b = self.b
        ask, go = b.fresh_label("ask"), b.fresh_label("go")
        b.branch_if(b.icmp("sge", n, literal(POLLED)), ask, go)
        b.begin_block(ask)
        b.declare("hlojit_poll", "declare i32 @hlojit_poll(ptr)")
        answer = b.emit("i32", 1, f"call i32 @hlojit_poll(ptr {context.text})")
        b.branch_if(b.icmp("ne", answer, Val("0", "i32")), leave, go)
        b.begin_block(go)

    def _sample(self, source: Val, n: Val) -> tuple[Val, Val]:
        """Numbers that lie at equal distances, in order, and how many they are; the pivot is their median."""
        b, kind = self.b, self.kind
        most = self.few.samples
        count = b.select(b.icmp("slt", n, literal(LARGE)), literal(min(16, most)), literal(most))
        sample = b.array(kind, most)
        stride = b.udiv(n, count)
        start = b.lshr(stride, ONE)
        loop = b.begin_loop(ZERO, count, guarded=False)
        place = b.add(start, b.mul(loop.index, stride))
        b.store(b.load(kind, b.element_pointer(source, kind, place)), b.element_pointer(sample, kind, loop.index))
        b.end_loop(loop)
        self.networks.call(sample, sample, count)
        return sample, count

    def _is_few(self, source: Val, x: Val, n: Val, sample: Val) -> Val:
        """Whether a run held few different numbers, which lie in order now."""
        b = self.b
        done, few = Variable(b, "i1", Val("false", "i1")), self.few.room()
        look, count, fill, go = (b.fresh_label(stem) for stem in ("look", "count", "fill", "go"))
        b.branch_if(b.icmp("slt", n, literal(LARGE)), go, look)
        b.begin_block(look)
        b.branch_if(self.few.may_be_few(sample), count, go)
        b.begin_block(count)
        b.branch_if(b.icmp("ne", self.few.count(source, n, sample, few), ZERO), fill, go)
        b.begin_block(fill)
        self.few.fill(x, n, few)
        done.set(Val("true", "i1"))
        b.branch(go)
        b.begin_block(go)
        return done.get()

    # ------------------------------------------------------------ the ends of it

    def _copy_over(self, source: Val, x: Val, n: Val, in_y: Val) -> None:
        b = self.b
        copy_numbers(b, self.kind, source, x, b.select(in_y, n, ZERO))

    def _sort_heap(self, source: Val, x: Val, n: Val, in_y: Val) -> None:
        self.b.line(f"call void @{self.prefix}_heap(ptr {source.text}, i64 {n.text})")
        self._copy_over(source, x, n, in_y)

    def _emit_heap(self) -> None:
        """``heap(data, n)``: slow, never quadratic."""
        b, kind = self.b, self.kind
        with b.function(f"{self.prefix}_heap", [("ptr", "data"), ("i64", "n")], linkage="internal") as (data, n):
            start, end = Variable(b, "i64", b.lshr(n, ONE)), Variable(b, "i64", n)

            def step() -> None:
                first, last = start.get(), b.sub(end.get(), ONE)
                building = b.icmp("sgt", first, ZERO)
                heap, taken = b.sub(first, ONE), b.element_pointer(data, kind, last)
                # While the heap is built its next root sinks; then the largest number changes places with the last one.
                moved = b.load(kind, b.select(building, b.element_pointer(data, kind, heap), taken))
                root = b.load(kind, data)
                b.store(b.select(building, b.load(kind, taken), root), taken)
                start.set(b.select(building, heap, ZERO))
                end.set(b.select(building, b.add(last, ONE), last))
                self._sink(data, start.get(), end.get(), moved)

            while_loop(b, lambda: b.icmp("sgt", end.get(), ONE), step)

    def _sink(self, data: Val, start: Val, end: Val, moved: Val) -> None:
        b, kind = self.b, self.kind
        hole = Variable(b, "i64", start)
        going = Variable(b, "i1", Val("true", "i1"))

        def child() -> Val:
            return b.add(b.shl(hole.get(), ONE), ONE)

        def descend() -> None:
            left = child()
            right = minimum(b, b.add(left, ONE), b.sub(end, ONE))
            x, y = (b.load(kind, b.element_pointer(data, kind, place)) for place in (left, right))
            is_right = b.icmp("sgt", y, x)
            place, value = b.select(is_right, right, left), b.select(is_right, y, x)
            sinks = b.icmp("sgt", value, moved)
            at = b.element_pointer(data, kind, hole.get())
            b.store(b.select(sinks, value, b.load(kind, at)), at)
            hole.set(b.select(sinks, place, hole.get()))
            going.set(sinks)

        while_loop(b, lambda: b.and_(going.get(), b.icmp("slt", child(), end)), descend)
        b.store(moved, b.element_pointer(data, kind, hole.get()))


@dataclass
class _State:
    """What a turn of the loop changes."""

    x: Variable
    y: Variable
    n: Variable
    in_y: Variable
    low: Variable
    high: Variable
    first: Variable
    limit: Variable
    depth: Variable

    @property
    def run(self) -> tuple[Variable, ...]:
        """Everything but the depth: both areas, the length, whether it lies in the second one, both bounds, both places."""
        return (self.x, self.y, self.n, self.in_y, self.low, self.high, self.first, self.limit)


def _has_wanted(b: LlvmBuilder, *run: Val) -> Val:
    """Whether a run, as ``_State.run`` has it, holds a place that is wanted."""
    n, first, limit = run[2], run[6], run[7]
    return b.and_(b.icmp("slt", first, n), b.icmp("sgt", limit, ZERO))
