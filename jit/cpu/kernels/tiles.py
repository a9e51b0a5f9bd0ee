"""The micro-kernel of a product: a tile of accumulators in registers, summed over k.

Rows of the tile broadcast elements of the left operand, its columns are vectors of the right one::

    accumulator[row][segment] += splat(a[row, k]) * b[k, segment]

Every element is one chain of multiply-adds in the order of k (or ``chains`` interleaved ones, added at the end, where a
tile is too small to hide the latency of one), so a result does not depend on how the product was cut into tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hlojit.cpu.kernels.arithmetic import Arithmetic
from hlojit.cpu.kernels.row_sums import row_offsets
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.product_elements import Elements, at, constant_mask, load_kind, passed, prefetch, scaled
from hlojit.lowering.dot_tiles import LATENCY_CHAINS
from hlojit.lowering.target import KIND_BITS


@dataclass(frozen=True, slots=True)
class Segment:
    """A vector of columns: where it begins, its lanes, and how many of them exist."""

    offset: int
    lanes: int
    count: int

    @property
    def mask(self) -> Val | None:
        """Literal mask of the lanes that exist; None for all."""
        return constant_mask(self.count, self.lanes)


def segments_of(width: int, lanes: int) -> tuple[Segment, ...]:
    """Cut ``width`` columns into vectors of ``lanes``; the last is as narrow as a power of two allows, and masked."""
    found = [Segment(start, lanes, lanes) for start in range(0, width - lanes + 1, lanes)]
    rest = width % lanes
    if rest:
        narrow = 1 << (rest - 1).bit_length()
        found.append(Segment(width - rest, narrow, rest))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Side:
    """One buffer as a tile walks it: elements, and byte strides along rows (or columns) and k."""

    elements: Elements
    step_row: int
    step_k: int


@dataclass(frozen=True, slots=True)
class Tile:
    """A micro-kernel: ``void symbol(ptr a, ptr b, ptr c, i64 k, i1 resume, i1 edge)``, and what reading b takes besides.

    ``resume`` makes it continue the sums found in ``c`` (which then must hold the compute kind).  ``edge`` asks for the
    last rows, ``edge_rows`` of them: a second body in the same function, which is cheaper to compile than another one.
    """

    symbol: str
    arithmetic: Arithmetic
    rows: int
    segments: tuple[Segment, ...]
    a: Side
    b: Side
    c: Side
    can_resume: bool = False
    interleaves: bool = True
    """Whether few sums are split into several chains each, which hides the latency of a multiply-add."""
    prefetch: int = 0
    """How many rows of b ahead to prefetch; 0 for none."""
    line: int = 64
    """Bytes that a prefetch brings."""
    outer: tuple[tuple[int, int, int], ...] = ()
    """Loops around the one over k: extent, and byte steps in a and b (the taps of a convolution)."""
    out_segments: tuple[Segment, ...] | None = None
    """The segments as they exist in c, where those of b are padded."""
    edge_rows: int = 0

    def __post_init__(self) -> None:
        assert not (self.can_resume and self.interleaves)
        assert all(extent > 0 for extent, _, _ in self.outer)
        assert self.arithmetic.quads is None or (not self.outer and self.a.step_k == self.a.elements.size)

    @property
    def chains(self) -> int:
        """Interleaved sums per element (never with ``resume``)."""
        count = self.rows * len(self.segments)
        return LATENCY_CHAINS // count if self.interleaves and count < LATENCY_CHAINS else 1

    def emit(self, b: LlvmBuilder) -> None:
        """Emit the function."""
        parameters = [("ptr", "a"), ("ptr", "b"), ("ptr", "c"), ("i64", "k"), ("i1", "resume"), ("i1", "edge")]
        parameters += self.b.elements.parameters
        with b.function(self.symbol, parameters, attributes="nounwind noinline", linkage="internal") as values:
            operands, edge, sources = values[:5], values[5], values[6:]
            self.b.elements.begin(b, sources)
            if self.edge_rows and self.rows:
                labels = b.fresh_label("last"), b.fresh_label("whole")
                b.branch_if(edge, *labels)
                b.begin_block(labels[0])
            if self.edge_rows:
                replace(self, rows=self.edge_rows)._body(b, *operands)
            if self.edge_rows and self.rows:
                b.line("ret void")
                b.begin_block(labels[1])
            if self.rows:
                self._body(b, *operands)

    def _body(self, b: LlvmBuilder, a: Val, right: Val, c: Val, k: Val, resume: Val) -> None:
        sums = self._initial(b, c, resume)
        offsets = row_offsets(b, self.arithmetic, self.a.elements, a, self.a.step_row, self.rows, k)
        if offsets:
            sums = [b.add(x, b.splat(offsets[i // len(self.segments)], x.lanes)) for i, x in enumerate(sums)]
        parts = self._nest(b, 0, a, right, k, [sums] + [self._zeros(b) for _ in range(self.chains - 1)])
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [[self.arithmetic.add(b, x, y) for x, y in zip(parts[i], parts[i + half])] for i in range(half)]
        self._store(b, c, parts[0])

    def call(
        self,
        b: LlvmBuilder,
        a: Val,
        right: Val,
        c: Val,
        k: Val,
        resume: Val,
        *,
        edge: bool = False,
        sources: Sequence[Val] = (),
    ) -> None:
        """Emit a call; ``k`` is not 0."""
        assert not k.is_literal or int(k.text) > 0, "a sum without terms is no tile's"
        last = "true" if edge else "false"
        arguments = f"ptr {a.text}, ptr {right.text}, ptr {c.text}, i64 {k.text}, i1 {resume.text}, i1 {last}"
        b.line(f"call void @{self.symbol}({arguments}{passed(sources)})")

    def _zeros(self, b: LlvmBuilder) -> list[Val]:
        return [b.splat(self.arithmetic.zero, part.lanes) for _ in range(self.rows) for part in self.segments]

    def _initial(self, b: LlvmBuilder, c: Val, resume: Val) -> list[Val]:
        zeros = self._zeros(b)
        if not self.can_resume:
            return zeros
        load, join = b.fresh_label("resume"), b.fresh_label("start")
        before = b.label
        b.branch_if(resume, load, join)
        b.begin_block(load)
        kind = self.arithmetic.kind
        size = KIND_BITS[kind] // 8
        loaded = [
            load_kind(b, kind, at(b, c, row * self.c.step_row + part.offset * size), part.lanes, part.mask)
            for row in range(self.rows)
            for part in self.out_segments or self.segments
        ]
        b.branch(join)
        b.begin_block(join)
        return [b.phi(kind, x.lanes, [(x, load), (zero, before)]) for x, zero in zip(loaded, zeros)]

    def _nest(self, b: LlvmBuilder, level: int, a: Val, right: Val, k: Val, chains: list[list[Val]]) -> list[list[Val]]:
        """The loops of ``outer`` from ``level`` on, and in them the one over k."""
        if level < len(self.outer):
            extent, step_a, step_b = self.outer[level]
            count = len(chains[0])
            end = Val(str(extent), "i64")
            loop = b.begin_loop(Val("0", "i64"), end, 1, [a, right, *(x for chain in chains for x in chain)])
            sums = [list(loop.carried[2 + i * count : 2 + (i + 1) * count]) for i in range(len(chains))]
            sums = self._nest(b, level + 1, loop.carried[0], loop.carried[1], k, sums)
            following = [at(b, loop.carried[0], step_a), at(b, loop.carried[1], step_b)]
            after = b.end_loop(loop, [*following, *(x for chain in sums for x in chain)])
            return [list(after[2 + i * count : 2 + (i + 1) * count]) for i in range(len(chains))]
        step = len(chains)
        if step == 1:
            return self._loop(b, a, right, Val("0", "i64"), k, 1, chains)
        whole = b.and_(k, Val(str(-step), "i64"))
        chains = self._loop(b, a, right, Val("0", "i64"), whole, step, chains)
        return [self._loop(b, a, right, whole, k, 1, chains[:1])[0], *chains[1:]]

    def _loop(
        self, b: LlvmBuilder, a: Val, right: Val, start: Val, end: Val, step: int, chains: Sequence[list[Val]]
    ) -> list[list[Val]]:
        """Sum over start <= k < end; chain ``i`` takes every ``step``-th product from ``i`` on."""
        count = len(self._zeros(b))
        carried = [at(b, a, scaled(b, start, self.a.step_k)), at(b, right, scaled(b, start, self.b.step_k))]
        # Sums without terms are filled, not computed (``call`` asserts it): an uncut loop runs at least once.
        sums_before = [x for chain in chains for x in chain]
        loop = b.begin_loop(start, end, step, [*carried, *sums_before], guarded=self.chains > 1)
        a_k, b_k = loop.carried[:2]
        sums = [list(loop.carried[2 + i * count : 2 + (i + 1) * count]) for i in range(len(chains))]
        for position in range(step):
            sums[position] = self._step(b, a_k, b_k, position, sums[position])
        next_a, next_b = at(b, a_k, self.a.step_k * step), at(b, b_k, self.b.step_k * step)
        after = b.end_loop(loop, [next_a, next_b, *(x for chain in sums for x in chain)])
        return [list(after[2 + i * count : 2 + (i + 1) * count]) for i in range(len(chains))]

    def _step(self, b: LlvmBuilder, a: Val, right: Val, position: int, sums: list[Val]) -> list[Val]:
        """One step of k."""
        base = position * self.b.step_k
        size = self.b.elements.size
        if self.prefetch:
            self._prefetch(b, right, base + self.prefetch * self.b.step_k)
        vectors = [
            self.b.elements.load(b, at(b, right, base + part.offset * size), part.lanes, part.mask)
            for part in self.segments
        ]
        result = []
        for row in range(self.rows):
            scalar = self.a.elements.load(b, at(b, a, row * self.a.step_row + position * self.a.step_k))
            splats: dict[int, Val] = {}
            for number, vector in enumerate(vectors):
                splat = splats.get(vector.lanes)
                if splat is None:
                    splat = splats[vector.lanes] = b.splat(scalar, vector.lanes)
                total = sums[row * len(vectors) + number]
                result.append(self.arithmetic.multiply_add(b, splat, vector, total))
        return result

    def _prefetch(self, b: LlvmBuilder, right: Val, offset: int) -> None:
        last = self.segments[-1]
        width = (last.offset + last.count) * self.b.elements.size
        rows = self.b.elements.rows
        # Lines of several rows, which may be any power of two apart, drive each other out of the first level.
        level = 1 if len(rows) == 1 else 2
        for row in rows:
            for line in range(0, width, self.line):
                prefetch(b, at(b, right, offset + row + line), level=level)

    def _store(self, b: LlvmBuilder, c: Val, sums: Sequence[Val]) -> None:
        """The only place that writes results: the hook for a fused epilogue."""
        size = self.c.elements.size
        for row in range(self.rows):
            for number, part in enumerate(self.out_segments or self.segments):
                pointer = at(b, c, row * self.c.step_row + part.offset * size)
                self.c.elements.store(b, sums[row * len(self.segments) + number], pointer, part.mask)
