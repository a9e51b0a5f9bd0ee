"""What follows an anchor, as a function over boxes of its sums, which are near the processor when it is called.

    epilogue = Epilogue.of(group, target, elements, walk)
    entry = epilogue.entry(columns=48, step=192)              # while the anchor's kernel is emitted: it calls entries
    epilogue.emit(b, "kernel")
    # void kernel.then0(ptr buffers, ptr sums, i64 ..., i64 low, i64 high, i64 first, i64 columns)

The anchor's kernel knows nothing of what follows: it finds the functions in its table of buffers, and is the same kernel
whatever follows.  The sums lie in memory of the compute kind, rows ``step`` bytes apart, and are read as the anchor's kernel
would have written them: rounded into the element type of its result.  The code over them is that of any loop over elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, cast, final

from hlojit.ir.formats import BooleanType
from hlojit.llvm import product_elements
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.frame import Frame
from hlojit.llvm.loops import lane_mask
from hlojit.llvm.product_elements import at, load_kind, prefetch, scaled
from hlojit.llvm.vector_access import VectorAccess
from hlojit.lowering.anchored_body import AnchoredBody
from hlojit.lowering.element_access import Access
from hlojit.lowering.elements import Elements
from hlojit.lowering.index import Index
from hlojit.lowering.loop_plan import choose_lanes, element_nanoseconds, fitted_lanes, tail_blocks
from hlojit.lowering.probe import Facts, Load
from hlojit.lowering.target import KIND_BITS, Target

BUFFERS: Final = 4
"""In the table of an anchor's kernel, behind operands, result and workspace: the table of the fusion's buffers."""
AHEAD: Final = BUFFERS + 1
"""The function that asks for operands ahead."""
FIRST_FUNCTION: Final = BUFFERS + 2
"""Where the functions over boxes begin in it."""


@dataclass(frozen=True, slots=True)
class Walk:
    """How a box goes over the roots: ``fixed`` variables, one over ``row``s, and one over neighbours, the ``column``s."""

    fixed: tuple[str, ...]
    row: str
    column: str
    index: tuple[Index, ...]
    """Of the roots, in terms of these."""


@final
@dataclass(slots=True)
class Epilogue:
    """What follows one anchor; ``sums`` is how its result would stand in memory."""

    group: AnchoredBody
    target: Target
    sums: product_elements.Elements
    walk: Walk
    facts: Facts
    _entries: dict[tuple[int, int], int] = field(default_factory=dict)

    @staticmethod
    def of(group: AnchoredBody, target: Target, sums: product_elements.Elements, walk: Walk) -> Epilogue | None:
        """The epilogue, or None where elements of neighbouring columns are no neighbours in some buffer."""
        facts = group.facts(walk.index)
        facts.kinds.add(sums.compute)
        places = [load.linear for load in facts.loads]
        if facts.has_call or any(place.coefficient(walk.column) not in (0, 1) for place in places):
            return None
        if any(
            walk.column in place.variables and place.coefficient(walk.column) != 1
            for place in group.stored_at(walk.index)
        ):
            return None
        return Epilogue(group, target, sums, walk, facts)

    @property
    def in_place(self) -> tuple[tuple[int, int], ...]:
        """Operands and results that may share memory."""
        return self.group.in_place(self.walk.index, self.facts)

    @property
    def nanoseconds(self) -> float:
        """Estimated time of one element on one core."""
        stored = sum(root.tensor_type.element_type.itemsize for root in self.group.body.roots)
        return element_nanoseconds(self.facts, self.target, stored)

    def entry(self, columns: int, step: int) -> int:
        """The buffer (of the table that the anchor's kernel has) that is the function for boxes of so many columns.

        Rows of its sums are ``step`` bytes apart.
        """
        return self._entries.setdefault((columns, step), FIRST_FUNCTION + len(self._entries))

    @property
    def streams(self) -> list[Load]:
        """Loads of what is as large as the sums: near no processor, unless it is asked for ahead."""
        found = {
            (load.buffer, load.linear): load
            for load in self.facts.loads
            if {self.walk.row, self.walk.column} <= load.linear.variables
        }
        return list(found.values())

    def ahead(
        self, b: LlvmBuilder, table: Val, fixed: Sequence[Val], rows: tuple[Val, Val], columns: tuple[Val, int]
    ) -> None:
        """Emit the call that asks for what a box will read, some time before ``call``."""
        if self.streams:
            self.call(b, AHEAD, table, Val("null", "ptr"), fixed, rows, columns)

    def emit(self, b: LlvmBuilder, symbol: str) -> list[str]:
        """Emit the functions that were asked for; returns their symbols, in the order of the table.

        Widths whose last columns fill lanes alike have one function.
        """
        lanes = self._lanes([columns for columns, _ in self._entries])
        alike: dict[tuple[int, int], list[int]] = {}
        for columns, step in self._entries:
            alike.setdefault((columns % lanes, step), []).append(columns)
        names = {key: f"{symbol}.then{number}" for number, key in enumerate(alike)}
        for key, widths in alike.items():
            self._function(b, names[key], widths, key[1], lanes)
        ahead = "null"
        if self.streams:
            ahead = f"@{symbol}.ahead"
            self._ahead(b, f"{symbol}.ahead")
        return [ahead, *(f"@{names[columns % lanes, step]}" for columns, step in self._entries)]

    @property
    def _parameters(self) -> list[tuple[str, str]]:
        parameters = [("ptr", "buffers"), ("ptr", "sums"), *(("i64", name) for name in self.walk.fixed)]
        return [*parameters, ("i64", "low"), ("i64", "high"), ("i64", "first"), ("i64", "columns")]

    def _ahead(self, b: LlvmBuilder, symbol: str) -> None:
        line = self.target.machine.first.line
        with b.function(symbol, self._parameters, attributes="nounwind noinline", linkage="internal") as values:
            buffers, _, *fixed, low, high, first, columns = values
            frame = self._frame(b, buffers)
            frame.access.variables.update(zip(self.walk.fixed, fixed))
            frame.access.variables[self.walk.column] = first

            def row(_: Val) -> None:
                for load in self.streams:
                    size = max(8, KIND_BITS[load.kind]) // 8
                    begin = frame.access.pointer(load.buffer, load.kind, frame.access.uniform(load.linear))
                    loop = b.begin_loop(b.constant("i64", 0), scaled(b, columns, size), line)
                    prefetch(b, at(b, begin, loop.index), level=1)
                    b.end_loop(loop)

            frame.loop(self.walk.row, low, high, 1, row)

    def _lanes(self, widths: Sequence[int]) -> int:
        """Lanes of a block: several native vectors where all widths are multiples of these."""
        native = max(1, self.target.vector_bits // self.facts.widest_bits)
        lanes = choose_lanes(self.facts, self.target)
        while lanes > native and any(columns % lanes for columns in widths):
            lanes //= 2
        return fitted_lanes(lanes, max(widths), self.target)

    def _function(self, b: LlvmBuilder, symbol: str, widths: Sequence[int], step: int, lanes: int) -> None:
        tail = widths[0] % lanes
        with b.function(symbol, self._parameters, attributes="nounwind noinline", linkage="internal") as values:
            buffers, sums, *fixed, low, high, first, columns = values
            frame = self._frame(b, buffers)
            frame.access.variables.update(zip(self.walk.fixed, fixed))
            known = frozenset(self.walk.fixed)
            frame.evaluate(self.facts, known)
            whole = b.constant("i64", widths[0] - tail) if len(widths) == 1 else b.sub(columns, b.constant("i64", tail))

            def row(index: Val) -> None:
                frame.evaluate(self.facts, known | {self.walk.row})
                line = at(b, sums, scaled(b, b.sub(index, low), step))
                self._columns(frame, line, first, (whole, lanes), tail)

            frame.loop(self.walk.row, low, high, 1, row)

    @staticmethod
    def call(
        b: LlvmBuilder,
        entry: int,
        table: Val,
        sums: Val,
        fixed: Sequence[Val],
        rows: tuple[Val, Val],
        columns: tuple[Val, int],
    ) -> None:
        """Emit the call of an entry for a box: rows from and to, its first column and how many there are."""
        buffers, function = (_address(b, table, number) for number in (BUFFERS, entry))
        values = "".join(f", i64 {value.text}" for value in (*fixed, *rows, columns[0]))
        b.line(f"call void {function.text}(ptr {buffers.text}, ptr {sums.text}{values}, i64 {columns[1]})")

    def _frame(self, b: LlvmBuilder, buffers: Val) -> Frame:
        body = self.group.body
        frame = Frame(self.target, body, b)
        bases = [_address(b, buffers, number) for number in range(self.group.buffers)]
        frame.access = VectorAccess(b, self.target, bases, [body.length(number) for number in range(len(bases))])
        frame.elements = Elements(cast(Access, frame.access), body)
        return frame

    def _columns(self, frame: Frame, line: Val, first: Val, blocks: tuple[Val, int], tail: int) -> None:
        """One row: whole blocks of lanes, and what is left."""
        b, walk, (whole, lanes) = frame.builder, self.walk, blocks

        def block(local: Val, count: int, mask: Val | None) -> None:
            frame.access.variables[walk.column] = b.add(first, local)
            with frame.scope(), frame.access.lanes(count, walk.column, mask):
                self._block(frame, at(b, line, scaled(b, local, KIND_BITS[self.sums.compute] // 8)), count, mask)

        if whole.is_literal and int(whole.text) == lanes:
            block(b.constant("i64", 0), lanes, None)
        elif not whole.is_literal or int(whole.text):
            loop = b.begin_loop(b.constant("i64", 0), whole, lanes)
            block(loop.index, lanes, None)
            b.end_loop(loop)
        for start, count, active in tail_blocks(0, tail, self.target) if tail else ():
            block(b.add(whole, b.constant("i64", start)), count, lane_mask(active, count) if active < count else None)

    def _block(self, frame: Frame, pointer: Val, lanes: int, mask: Val | None) -> None:
        index, body = self.walk.index, self.group.body
        total = load_kind(frame.builder, self.sums.compute, pointer, lanes, mask)
        frame.elements.define_stored(self.group.sums, index, self._as_stored(frame.builder, total))
        values = [frame.elements.root(root, index, rounded=False) for root in body.roots]
        for number, scalar in enumerate(values):
            frame.store_root(number, index, scalar, rounded=False)

    def _as_stored(self, b: LlvmBuilder, total: Val) -> Val:
        if isinstance(self.sums.element, BooleanType):
            return b.icmp("ne", total, b.constant(total.kind, 0))
        return self.sums.encode(b, total)


def _address(b: LlvmBuilder, table: Val, number: int) -> Val:
    return b.emit("ptr", 1, f"load ptr, ptr {at(b, table, 8 * number).text}, align 8")
