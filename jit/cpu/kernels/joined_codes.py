"""Codes that have one key, put into the order in which they were: a sort of keys alone has made them all one code.

Where only a part of a sorted line is wanted, codes whose turn is outside of it are passed over.

operand  1.0  -0.0  0.0  -0.0        sorted by keys  0.0  0.0  0.0  1.0        mended  -0.0  0.0  -0.0  1.0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast, final

from hlojit.cpu.kernels.addresses import ZERO, literal
from hlojit.cpu.kernels.sort_words import load_lanes
from hlojit.llvm.builder import LlvmBuilder, Val, scalars
from hlojit.llvm.region import Variable, while_loop
from hlojit.lowering.line_sort_plan import LineSortPlan

ONE = literal(1)


@final
@dataclass(frozen=True)
class JoinedCodes:
    """Emits ``mend(operand, result)`` for lines of which the result is sorted by keys."""

    b: LlvmBuilder
    plan: LineSortPlan
    prefix: str
    lanes: int

    @property
    def keys(self) -> tuple[int, ...]:
        """The keys that several codes have."""
        return () if self.plan.order is None else self.plan.order.joined

    def call(self, operand: Val, result: Val) -> None:
        """Mend a line."""
        self.b.line(f"call void @{self.prefix}_mend(ptr {operand.text}, ptr {result.text})")

    def emit(self) -> None:
        """The function: for every such key, its codes in their order, where the sorted line has the key."""
        b = self.b
        with b.function(
            f"{self.prefix}_mend",
            [("ptr", "operand"), ("ptr", "result")],
            linkage="internal",
            attributes="nounwind noinline",
        ) as (operand, result):
            for key in self.keys:
                self._mend(operand, result, b.constant(self._kind, key))

    @property
    def _kind(self) -> str:
        assert self.plan.order is not None
        return self.plan.order.kind

    def _key(self, base: Val, index: Val, lanes: int) -> tuple[Val, Val]:
        b, order = self.b, self.plan.order
        assert order is not None
        stored = load_lanes(b, self._kind, base, index, lanes)
        return stored, cast(Val, order.key(scalars(b), stored))

    def _mend(self, operand: Val, result: Val, key: Val) -> None:
        b, plan, length = self.b, self.plan, self.plan.length
        lanes = min(self.lanes, length)
        whole = length - length % lanes
        start = b.sub(self._below(operand, key), literal(plan.first)) if plan.is_part else self._first(result, key)
        place = Variable(b, "i64", start)

        def move(index: Val) -> None:
            stored, found = self._key(operand, index, 1)
            here, done = b.fresh_label("here"), b.fresh_label("done")
            b.branch_if(b.icmp("eq", found, key), here, done)
            b.begin_block(here)
            there = place.get()
            place.set(b.add(there, ONE))
            if plan.is_part:
                write = b.fresh_label("write")
                b.branch_if(b.icmp("ult", there, literal(plan.count)), write, done)
                b.begin_block(write)
            b.store(stored, b.element_pointer(result, self._kind, there))
            b.branch(done)
            b.begin_block(done)

        def move_all(first: Val, limit: Val) -> None:
            loop = b.begin_loop(first, limit)
            move(loop.index)
            b.end_loop(loop)

        if lanes > 1:
            loop = b.begin_loop(ZERO, literal(whole), step=lanes)
            _, found = self._key(operand, loop.index, lanes)
            same = b.icmp("eq", found, key)
            some, none = b.fresh_label("some"), b.fresh_label("none")
            bits = b.emit(f"i{lanes}", 1, f"bitcast {b.type_of(same)} {same.text} to i{lanes}")
            b.branch_if(b.emit("i1", 1, f"icmp ne i{lanes} {bits.text}, 0"), some, none)
            b.begin_block(some)
            move_all(loop.index, b.add(loop.index, literal(lanes)))
            b.branch(none)
            b.begin_block(none)
            b.end_loop(loop)
        else:
            whole = 0
        move_all(literal(whole), literal(length))

    def _below(self, operand: Val, key: Val) -> Val:
        """How many keys are below one."""
        b = self.b
        loop = b.begin_loop(ZERO, literal(self.plan.length), carried=(ZERO,))
        _, found = self._key(operand, loop.index, 1)
        (count,) = b.end_loop(loop, (b.add(loop.carried[0], b.zext(b.icmp("ult", found, key), "i64")),))
        return count

    def _first(self, result: Val, key: Val) -> Val:
        """Where the first key of a sorted line is that is not below one."""
        b = self.b
        low, high = Variable(b, "i64", ZERO), Variable(b, "i64", literal(self.plan.length))

        def halve() -> None:
            middle = b.lshr(b.add(low.get(), high.get()), ONE)
            _, found = self._key(result, middle, 1)
            is_below = b.icmp("ult", found, key)
            low.set(b.select(is_below, b.add(middle, ONE), low.get()))
            high.set(b.select(is_below, high.get(), middle))

        while_loop(b, lambda: b.icmp("slt", low.get(), high.get()), halve)
        return low.get()
