"""Elements of a product that are computed while they are read (``ProloguePlan``), as its kernels read others.

    right = ComputedElements.of(plan, elements, target)      # in the place of ``elements``, those of the operand in memory
    with b.function("pack", [..., *right.parameters]) as (..., *sources):
        right.begin(b, sources)                              # in every function that reads
        vector = right.load(b, pointer, lanes)               # a pointer into the stream

Functions that read are given the table of the fusion's buffers.  Where an element lies follows from its address in the
stream, which costs a few instructions of integers for each vector, and none where only the stream is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, cast, final

from hlojit.ir.formats import IntegerType
from hlojit.ir.scalar import formats
from hlojit.llvm.builder import LlvmBuilder, Val, scalars
from hlojit.llvm.epilogue import BUFFERS
from hlojit.llvm.frame import Frame
from hlojit.llvm.product_elements import Elements, at, load_kind
from hlojit.llvm.vector_access import VectorAccess
from hlojit.lowering.element_access import Access
from hlojit.lowering.elements import Elements as GraphElements
from hlojit.lowering.prologue_plan import LANE, OUTER, STEP, ProloguePlan
from hlojit.lowering.target import Target

_ZERO: Final = Val("0", "i64")


@dataclass(slots=True)
class _Function:
    """What the function under construction reads from."""

    frame: Frame | None = None


@final
@dataclass(frozen=True, slots=True)
class ComputedElements(Elements):
    """Elements of the type ``element``, as they would be read from memory, computed from the plan's operands."""

    plan: ProloguePlan = field(kw_only=True)
    target: Target = field(kw_only=True)
    _function: _Function = field(default_factory=_Function, kw_only=True, compare=False)

    @staticmethod
    def of(plan: ProloguePlan, elements: Elements, target: Target) -> ComputedElements:
        """Computed elements in the place of those in memory."""
        return ComputedElements(elements.element, elements.compute, elements.rounded_to, plan=plan, target=target)

    @property
    def size(self) -> int:
        """Bytes between neighbouring elements of the stream."""
        return self.plan.size

    @property
    def is_computed(self) -> bool:
        """They are."""
        return True

    @property
    def nanoseconds(self) -> float:
        """Estimated time in which one element is computed."""
        return self.plan.nanoseconds(self.target)

    def widest(self, lanes: int) -> int:
        """Twice as many where the place of an element is asked for, and those of two vectors follow from one."""
        return 2 * lanes if self.plan.finds_places and self.plan.fits(2 * lanes) else lanes

    @property
    def parameters(self) -> Sequence[tuple[str, str]]:
        """The table of the fusion's buffers."""
        return (("ptr", "sources"),)

    def arguments(self, b: LlvmBuilder, buffers: Val) -> Sequence[Val]:
        """The fusion's table, from that of the product's kernel."""
        return (b.emit("ptr", 1, f"load ptr, ptr {at(b, buffers, 8 * BUFFERS).text}, align 8"),)

    def begin(self, b: LlvmBuilder, sources: Sequence[Val]) -> None:
        """Find the buffers, at the beginning of a function."""
        (table,), body = sources, self.plan.body
        bases = [Val("null", "ptr")] * len(body.operand_types)
        for number in self.plan.buffers:
            bases[number] = b.emit("ptr", 1, f"load ptr, ptr {at(b, table, 8 * number).text}, align 8")
        frame = Frame(self.target, body, b)
        frame.access = VectorAccess(b, self.target, bases, [body.length(number) for number in range(len(bases))])
        frame.elements = GraphElements(cast(Access, frame.access), body)
        self._function.frame = frame

    def load(self, b: LlvmBuilder, pointer: Val, lanes: int = 1, mask: Val | None = None) -> Val:
        """Compute ``lanes`` consecutive elements, the first of which is a multiple of them; those left out are 0."""
        if not self.plan.finds_places:
            return self.load_in_line(b, pointer, _ZERO, _ZERO, lanes, mask)
        number = self._number_of(b, pointer)
        length = b.constant("i64", self.plan.line)
        line = b.udiv(number, length)
        return self.load_in_line(b, pointer, line, b.sub(number, b.mul(line, length)), lanes, mask)

    def line_of(self, b: LlvmBuilder, pointer: Val) -> Val:
        """The number of the line that begins at a pointer into the stream."""
        if not self.plan.finds_places:
            return _ZERO
        return b.udiv(self._number_of(b, pointer), b.constant("i64", self.plan.line))

    def lines(self, nbytes: int) -> int:
        """How many lines so many bytes of the stream are."""
        return nbytes // (self.plan.line * self.size)

    def load_in_line(
        self, b: LlvmBuilder, pointer: Val, line: Val, position: Val, lanes: int = 1, mask: Val | None = None
    ) -> Val:
        """Compute elements from ``position`` of a line on, a multiple of ``lanes``."""
        frame, plan = self._function.frame, self.plan
        assert frame is not None and frame.builder is b
        raw = load_kind(b, plan.kind, pointer, lanes, mask)
        with frame.scope(), frame.access.lanes(lanes, LANE, mask):
            if plan.finds_places:
                step = b.emit("i64", 1, f"lshr exact i64 {position.text}, {lanes.bit_length() - 1}")
                frame.access.variables.update({OUTER: line, STEP: step, LANE: _ZERO})
            index = plan.index(lanes)
            frame.elements.define_loaded(plan.stream, plan.body.linear(plan.stream, index), raw)
            value = cast(Val, frame.elements.value(plan.root, index))
            if self.rounded_to is not None:
                value = cast(Val, formats.round_to_format(scalars(b), value, self.rounded_to))
            value = b.splat(self._resized(b, value), lanes)
        zero = b.constant(self.compute, 0 if self.compute.startswith("i") else 0.0)
        return value if mask is None else b.select(mask, value, b.splat(zero, lanes))

    def _resized(self, b: LlvmBuilder, value: Val) -> Val:
        """A number of the element type in the compute kind."""
        if isinstance(self.element, IntegerType):
            return self.decode(b, value)
        return cast(Val, formats.float_resized(scalars(b), value, self.compute))

    def _number_of(self, b: LlvmBuilder, pointer: Val) -> Val:
        """Which element of the stream a pointer points to."""
        frame = self._function.frame
        assert frame is not None
        places = [
            b.emit("i64", 1, f"ptrtoint ptr {each.text} to i64")
            for each in (pointer, frame.access.bases[self.plan.stream])
        ]
        number = b.sub(places[0], places[1])
        if self.size == 1:
            return number
        return b.emit("i64", 1, f"lshr exact i64 {number.text}, {self.size.bit_length() - 1}")
