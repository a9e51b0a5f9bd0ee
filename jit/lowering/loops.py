"""Loop nests: the shape of a kernel around its elements.

A kernel walks over *units*: rows of the iteration space, or pieces of one row where rows are few and long.  A task is a
number of units that take about ``TASK_NANOSECONDS``.  Within a unit the innermost variable goes through the body in
blocks of lanes; what is left at the end takes a masked block, or narrower ones where the processor has no masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast, final

from hlojit.ir.graph import Value
from hlojit.ir.scalar import formats
from hlojit.ir.scalar.builder import Scalar
from hlojit.lowering.elements import Access, Body, Elements, is_narrow, memory_kind
from hlojit.lowering.index import Index, RunTime
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.llvm_builder import LlvmBuilder, Val
from hlojit.lowering.probe import Facts, Probe, ProbeScalar
from hlojit.lowering.target import KIND_BITS, Target
from hlojit.lowering.vector_access import VectorAccess, scalars

TASK_NANOSECONDS = 20_000.0
CYCLES_PER_NANOSECOND = 4.0
INSTRUCTIONS_PER_CYCLE = 2.0
BYTES_PER_NANOSECOND = 40.0

KERNEL_PARAMETERS = (("ptr", "context"), ("ptr", "buffers"), ("i64", "begin"), ("i64", "end"))


def probe_elements(body: Body, values: Sequence[tuple[Value, tuple[Index, ...]]]) -> Facts:
    """Dry-run some elements."""
    probe = Probe()
    elements = Elements(cast(Access, probe), body)
    found = [elements.value(value, index) for value, index in values]
    facts = probe.finish(cast(list[ProbeScalar], found))
    facts.requested = elements.requested
    facts.is_copy = all(
        elements.unchanged(scalar, value.tensor_type.element_type) is not None
        for scalar, (value, _) in zip(found, values)
    )
    for value, _ in values:
        facts.kinds.add(memory_kind(value.tensor_type.element_type))
    return facts


def element_nanoseconds(facts: Facts, target: Target, stored_bytes: int) -> float:
    """Rough time of one element on one core."""
    native = max(1, target.vector_bits // facts.widest_bits)
    compute = facts.cost / INSTRUCTIONS_PER_CYCLE / CYCLES_PER_NANOSECOND / native
    loaded = sum(max(8, KIND_BITS[load.kind]) // 8 for load in facts.loads if load.linear.variables)
    return max(compute, (loaded + stored_bytes) / BYTES_PER_NANOSECOND, 0.01)


def has_masks(target: Target) -> bool:
    """Whether masked loads and stores of all widths are instructions of the processor."""
    return target.has_feature("avx512vl") and target.has_feature("avx512bw")


def choose_lanes(facts: Facts, target: Target, *, widest_unroll: int | None = None) -> int:
    """Lanes of the main loop: several native vectors where the body's values leave registers for them."""
    if facts.has_call:
        return 1
    native = max(1, target.vector_bits // facts.widest_bits)
    unroll = widest_unroll or target.unroll
    # A heavy body has enough instructions in flight by itself, and its constants want registers too.
    while unroll > 1 and (facts.live + 2) * unroll > target.vector_registers:
        unroll //= 2
    if facts.cost > 60:
        unroll = min(unroll, 2)
    return native * unroll


def fitted_lanes(lanes: int, extent: int, target: Target) -> int:
    """No more lanes than a row can fill."""
    while lanes > 1 and (lanes // 2 >= extent if has_masks(target) else lanes > extent):
        lanes //= 2
    return lanes


@final
class KernelFrame:
    """One kernel function under construction: builder, buffers' addresses, access and elements."""

    def __init__(self, target: Target, body: Body, builder: LlvmBuilder):
        self.target = target
        self.body = body
        self.builder = builder
        self.access: VectorAccess
        self.elements: Elements
        self.begin: Val
        self.end: Val
        self.buffers: Val

    @contextmanager
    def function(self, symbol: str) -> Iterator[None]:
        """Open the function and load the addresses of all buffers."""
        b = self.builder
        with b.function(symbol, KERNEL_PARAMETERS) as (_, buffers, begin, end):
            self.begin, self.end, self.buffers = begin, end, buffers
            count = len(self.body.operand_types) + len(self.body.roots)
            bases = [self.address(number) for number in range(count)]
            sizes = [self.body.length(number) for number in range(count)]
            self.access = VectorAccess(b, self.target, bases, sizes)
            self.elements = Elements(cast(Access, self.access), self.body)
            yield

    def address(self, number: int) -> Val:
        """Address of a buffer: operands, results, workspace."""
        b = self.builder
        slot = b.emit("ptr", 1, f"getelementptr inbounds ptr, ptr {self.buffers.text}, i64 {number}")
        return b.emit("ptr", 1, f"load ptr, ptr {slot.text}, align 8")

    def evaluate(self, facts: Facts, known: frozenset[str]) -> None:
        """Compute now what the body will ask for and what depends on the known variables only."""
        for value, index in facts.requested:
            if all(position.variables <= known and self._has_atoms(position) for position in index):
                self.elements.value(value, index)

    def _has_atoms(self, index: Index) -> bool:
        return all(
            not isinstance(atom, RunTime) or self.elements.find(("atom", atom.key)) is not None
            for atom in index.atoms()
        )

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A block whose values do not reach beyond it."""
        with self.elements.scope(), self.access.scope():
            yield

    def loop(self, name: str, start: Val, end: Val, step: int, run: Callable[[Val], None]) -> None:
        """A loop over a variable that carries nothing."""
        loop = self.builder.begin_loop(start, end, step)
        self.access.variables[name] = loop.index
        with self.scope():
            run(loop.index)
        self.builder.end_loop(loop)

    def store_root(self, number: int, index: tuple[Index, ...], scalar: Scalar, *, rounded: bool) -> None:
        """Encode and store an element of a root."""
        element = self.body.roots[number].tensor_type.element_type
        unchanged = self.elements.unchanged(scalar, element)
        if unchanged is not None:
            scalar = unchanged
        elif is_narrow(element):
            encode = formats.pack if rounded else formats.encode
            scalar = encode(scalars(self.builder), scalar, element)
        buffer = len(self.body.operand_types) + number
        self.access.store(cast(Val, scalar), buffer, self.body.linear(buffer, index))


@dataclass(frozen=True)
class Units:
    """How a kernel's elements are divided: ``rows`` rows of ``extent``, each in ``pieces`` of ``piece`` elements."""

    rows: int
    extent: int
    pieces: int
    piece: int
    per_task: int
    """Units (pieces of rows) a task does."""
    nanoseconds: float
    """Of one unit."""

    @property
    def count(self) -> int:
        """Number of units."""
        return self.rows * self.pieces

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return -(-self.count // self.per_task)

    @property
    def cost(self) -> float:
        """Nanoseconds of a task."""
        return self.nanoseconds * min(self.per_task, self.count)


def divide(rows: int, extent: int, lanes: int, element_cost: float) -> Units:
    """Choose pieces and tasks."""
    wanted = max(1, int(TASK_NANOSECONDS / element_cost))
    if rows == 1 or extent >= 2 * wanted:
        piece = min(extent, -(-wanted // lanes) * lanes)
        pieces = -(-extent // piece)
        return Units(rows, extent, pieces, piece, 1, piece * element_cost)
    row_cost = extent * element_cost + 2.0
    return Units(rows, extent, 1, extent, max(1, min(rows, int(TASK_NANOSECONDS / row_cost))), row_cost)


def walk_units(frame: KernelFrame, units: Units, run: Callable[[Val, Val], None]) -> None:
    """Emit the loop over a call's units; ``run(low, high)`` emits one with variable ``row`` set."""
    b = frame.builder
    zero, extent = b.constant("i64", 0), b.constant("i64", units.extent)
    frame.access.variables["row"] = zero
    if units.count == 1:
        run(zero, extent)
        return
    first = b.mul(frame.begin, b.constant("i64", units.per_task))
    last = minimum(b, b.mul(frame.end, b.constant("i64", units.per_task)), b.constant("i64", units.count))
    if units.rows == 1:
        # Neighbouring pieces are one stretch of the only row.
        piece = b.constant("i64", units.piece)
        run(b.mul(first, piece), minimum(b, b.mul(last, piece), extent))
        return

    def unit(index: Val) -> None:
        if units.pieces == 1:
            frame.access.variables["row"] = index
            run(zero, extent)
            return
        pieces = b.constant("i64", units.pieces)
        frame.access.variables["row"] = b.udiv(index, pieces)
        low = b.mul(b.urem(index, pieces), b.constant("i64", units.piece))
        run(low, minimum(b, b.add(low, b.constant("i64", units.piece)), extent))

    frame.loop("unit", first, last, 1, unit)


def minimum(b: LlvmBuilder, x: Val, y: Val) -> Val:
    """The smaller of two signed integers."""
    if x.is_literal and y.is_literal:
        return x if int(x.text) < int(y.text) else y
    return b.select(b.icmp("slt", x, y), x, y)


def walk_lanes(
    frame: KernelFrame, name: str, extent: int, lanes: int, low: Val, high: Val, block: Callable[[], None]
) -> None:
    """Emit the innermost loop over ``name`` from low to high; ``block()`` emits the body for the access's lanes.

    ``low`` is a multiple of the lanes; ``high`` too, or else it is the extent.
    """
    b, access = frame.builder, frame.access
    tail = extent % lanes
    whole = extent - tail

    def body(mask: Val | None = None, count: int = lanes) -> None:
        with access.lanes(count, name, mask), frame.elements.scope():
            block()

    if whole:
        main_end = minimum(b, high, b.constant("i64", whole)) if tail else high
        frame.loop(name, low, main_end, lanes, lambda _: body())
    if not tail:
        return
    done = None
    if not high.is_literal:
        labels = b.fresh_label("tail"), b.fresh_label("done")
        done = labels[1]
        b.branch_if(b.icmp("eq", high, b.constant("i64", extent)), *labels)
        b.begin_block(labels[0])
    for start, count, mask_lanes in _tail_blocks(whole, tail, frame.target):
        access.variables[name] = b.constant("i64", start)
        with frame.scope():
            body(lane_mask(mask_lanes, count) if mask_lanes < count else None, count)
    if done is not None:
        b.branch(done)
        b.begin_block(done)


def _tail_blocks(start: int, tail: int, target: Target) -> Iterator[tuple[int, int, int]]:
    """(start, lanes, lanes that take part) of the blocks for what is left at the end."""
    if has_masks(target):
        count = 1 << (tail - 1).bit_length()
        yield start, count, tail
        return
    while tail:
        count = 1 << (tail.bit_length() - 1)
        yield start, count, count
        start += count
        tail -= count


def lane_mask(active: int, count: int) -> Val:
    """A literal mask with the first lanes set."""
    bits = ", ".join("i1 true" if lane < active else "i1 false" for lane in range(count))
    return Val(f"<{bits}>", "i1", count)


def in_place_pairs(body: Body, facts: Facts, linear: Index, mapping: dict[str, Index]) -> tuple[tuple[int, int], ...]:
    """Operands that are read only at the element being written, and results of the same size: they may share memory."""
    pairs = []
    for number, type in enumerate(body.operand_types):
        reads = [load.linear.substitute(mapping) for load in facts.loads if load.buffer == number]
        guarded = any(load.guarded for load in facts.loads if load.buffer == number)
        if not reads or guarded or any(read != linear for read in reads):
            continue
        for result, root in enumerate(body.roots):
            other = len(body.operand_types) + result
            same = not body.storages or replace(body.storages[number], donated=False) == body.storages[other]
            if root.tensor_type.nbytes == type.nbytes and root.tensor_type.size == type.size and same:
                pairs.append((number, result))
    return tuple(pairs)


def empty_kernel(symbol: str) -> KernelCode:
    """The kernel of results without elements."""
    b = LlvmBuilder()
    with b.function(symbol, KERNEL_PARAMETERS):
        pass
    return KernelCode.of(b, (Phase(symbol, 0, 0.0),))
