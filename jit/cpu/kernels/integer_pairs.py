"""Products of narrow integers by pairs: two neighbouring k in the halves of an ``i32``, multiplied and added at once.

x86 multiplies sixteen-bit halves and adds the two products in one instruction, exactly modulo 2**32.  The operands are
brought into pairs first (an ``i16`` operand whose k are neighbours is in that form already); what remains is a product
of ``i32`` elements with half the k.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlojit.cpu.kernels.addresses import PARAMETERS, ZERO, buffer, dot_product, literal, minimum, unflatten
from hlojit.ir.formats import ElementType, IntegerType, element_type
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.product_elements import Elements, at, constant_mask, scaled, store_kind
from hlojit.lowering.copy_plan import PAIRED_CYCLES, divide_rows
from hlojit.lowering.dot_problem import Copy, DotProblem, Matrix, dense_steps
from hlojit.lowering.kernel import Phase
from hlojit.lowering.target import Target

MINIMUM_ROWS = 6
"""Rows from which on the pairing of the other operand pays."""


def can_pair(problem: DotProblem, lhs: ElementType, rhs: ElementType, kind: str, target: Target) -> bool:
    """Whether the product can be computed by pairs, and gains from it."""
    if kind != "i32" or not target.is_x86 or not target.has_feature("avx2") or problem.k % 2 or problem.k < 4:
        return False
    if problem.lhs_copy is not None or problem.rhs_copy is not None or min(problem.m, problem.n) < MINIMUM_ROWS:
        return False
    for element in (lhs, rhs):
        if not isinstance(element, IntegerType) or element.bits > (16 if element.signed else 8):
            return False
    return 1 in (problem.lhs.row, problem.lhs.column) and 1 in (problem.rhs.row, problem.rhs.column)


@dataclass(frozen=True, slots=True)
class PairElements(Elements):
    """Pairs that are neighbours in memory: elements of twice the width, spread to the halves of an ``i32``."""

    signed: bool = True

    @classmethod
    def of(cls, element: IntegerType) -> Elements:
        """Pairs of this element type; those of 16 bits are ``i32`` as they lie."""
        if element.bits == 16:
            return Elements(element_type("i32"), "i32")
        return cls(element_type("i16"), "i32", None, element.signed)

    def decode(self, b: LlvmBuilder, value: Val) -> Val:
        """Spread two bytes."""
        low, high = b.trunc(value, "i8"), value
        if self.signed:
            low = b.and_(b.sext(low, "i32"), b.constant("i32", 0xFFFF))
            high = b.ashr(b.sext(high, "i32"), b.constant("i32", 8))
        else:
            low, high = b.zext(low, "i32"), b.lshr(b.zext(high, "i32"), b.constant("i32", 8))
        return b.or_(low, b.shl(high, b.constant("i32", 16)))


def paired(problem: DotProblem) -> DotProblem:
    """The problem in pairs, as far as strides go, for operands whose k are neighbours."""
    lhs, rhs = problem.lhs, problem.rhs
    if lhs.column == 1:
        lhs = Matrix(tuple(step // 2 for step in lhs.batch), lhs.row // 2, 1)
    if rhs.row == 1:
        rhs = Matrix(tuple(step // 2 for step in rhs.batch), 1, rhs.column // 2)
    return replace(problem, k=problem.k // 2, lhs=lhs, rhs=rhs)


@dataclass(frozen=True, slots=True)
class PairCopy:
    """A launch that pairs an operand whose free dimension is dense: batch x k / 2 x free pairs.

    ``batch``, ``k_step`` and ``extents`` (batch extents, k, free) describe the source, in elements.
    """

    symbol: str
    elements: Elements
    source: tuple[int, int]
    destination: tuple[int, int]
    extents: tuple[int, ...]
    batch: tuple[int, ...]
    k_step: int

    def emit(self, b: LlvmBuilder, target: Target) -> Phase:
        """Emit the launch."""
        *batch, k, free = self.extents
        size, lanes = self.elements.size, target.native_lanes("i32")
        rows = Copy(()).size * k // 2
        for extent in batch:
            rows *= extent
        # Two elements become one of 32 bits.
        work = divide_rows(rows, free, PAIRED_CYCLES, 2 * size + 4, target.machine)
        with b.function(self.symbol, PARAMETERS) as (_, buffers, begin, end):
            source, out = (at(b, buffer(b, buffers, p[0]), p[1]) for p in (self.source, self.destination))
            loop = b.begin_loop(
                scaled(b, begin, work.per_task), minimum(b, scaled(b, end, work.per_task), literal(rows))
            )
            coordinates = unflatten(b, loop.index, [*batch, k // 2])
            low = at(b, source, dot_product(b, coordinates, [s * size for s in (*self.batch, 2 * self.k_step)]))
            target_row = at(b, out, scaled(b, loop.index, 4 * free))
            whole = free // lanes * lanes
            if whole:
                inner = b.begin_loop(ZERO, literal(whole), lanes)
                place = at(b, target_row, scaled(b, inner.index, 4))
                self._vector(b, at(b, low, scaled(b, inner.index, size)), place, lanes, None)
                b.end_loop(inner)
            if free > whole:
                narrow = 1 << (free - whole - 1).bit_length()
                mask = constant_mask(free - whole, narrow)
                self._vector(b, at(b, low, whole * size), at(b, target_row, 4 * whole), narrow, mask)
            b.end_loop(loop)
        return Phase(self.symbol, work.tasks, work.cost)

    def _vector(self, b: LlvmBuilder, source: Val, out: Val, lanes: int, mask: Val | None) -> None:
        low = self.elements.load(b, source, lanes, mask)
        high = self.elements.load(b, at(b, source, self.k_step * self.elements.size), lanes, mask)
        low = b.and_(low, b.constant("i32", 0xFFFF))
        store_kind(b, b.or_(low, b.shl(high, b.constant("i32", 16))), out, mask)


def pair_copies(
    problem: DotProblem, elements: list[Elements], places: tuple[tuple[int, int], tuple[int, int]], symbol: str
) -> list[PairCopy | None]:
    """The launches that pair operands 0 and 1 (destinations still to be filled in); None where none is needed."""
    copies: list[PairCopy | None] = [None, None]
    for side, matrix in enumerate((problem.lhs, problem.rhs)):
        k_step, free = (matrix.column, problem.m) if side == 0 else (matrix.row, problem.n)
        if k_step != 1:
            number = problem.operands[side]
            copies[number] = PairCopy(
                f"{symbol}.pair{side}", elements[number], places[number], (0, 0), (*problem.batch, problem.k, free),
                matrix.batch, k_step,
            )  # fmt: skip
    return copies


def dense_pairs(problem: DotProblem, side: int) -> Matrix:
    """How the result of ``PairCopy`` for one side is read (``problem`` has its k in pairs already)."""
    free = (problem.m, problem.n)[side]
    steps = tuple(dense_steps(problem.batch, problem.k * free))
    return Matrix(steps, 1, free) if side == 0 else Matrix(steps, free, 1)
