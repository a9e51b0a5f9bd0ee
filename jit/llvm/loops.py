"""Loop nests as code: the frame of a kernel function, the walk over its units and over the lanes of a row.

What they walk over is decided by ``loop_plan``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast, final

from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.frame import Frame
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.vector_access import VectorAccess
from hlojit.lowering.body import Body
from hlojit.lowering.element_access import Access
from hlojit.lowering.elements import Elements
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.loop_plan import Units, tail_blocks
from hlojit.lowering.target import Target

KERNEL_PARAMETERS = (("ptr", "context"), ("ptr", "buffers"), ("i64", "begin"), ("i64", "end"))


@final
class KernelFrame(Frame):
    """One kernel function of a processor: a range of tasks, and the buffers' addresses in an array."""

    def __init__(self, target: Target, body: Body, builder: LlvmBuilder):
        super().__init__(target, body, builder)
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
    for start, count, mask_lanes in tail_blocks(whole, tail, frame.target):
        access.variables[name] = b.constant("i64", start)
        with frame.scope():
            body(lane_mask(mask_lanes, count) if mask_lanes < count else None, count)
    if done is not None:
        b.branch(done)
        b.begin_block(done)


def lane_mask(active: int, count: int) -> Val:
    """A literal mask with the first lanes set."""
    bits = ", ".join("i1 true" if lane < active else "i1 false" for lane in range(count))
    return Val(f"<{bits}>", "i1", count)


def empty_kernel(symbol: str) -> KernelCode:
    """The kernel of results without elements."""
    b = LlvmBuilder()
    with b.function(symbol, KERNEL_PARAMETERS):
        pass
    return kernel_code(b, (Phase(symbol, 0, 0.0),))
