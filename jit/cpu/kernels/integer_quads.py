"""Products of bytes by quads: four neighbouring k in an ``i32``, multiplied and added to a sum by one instruction.

    x86-64 (VNNI)        vpdpbusd       sum += a0 * b0 + a1 * b1 + a2 * b2 + a3 * b3       of unsigned by signed bytes
    AArch64 (dotprod)    sdot, udot     the same                                           of bytes of one sign

Nothing saturates: a product fits 16 bits, and sums wrap modulo 2**32.  The left operand is read as it lies.  Where the right one
has not the sign that the instruction wants, its first bits are turned when it is packed, which adds or takes off 128 everywhere;
128 times the sum of a row of the left operand is then taken off, or added, before the row's sums begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hlojit.cpu.kernels.padding import PaddedAxis
from hlojit.cpu.kernels.transposing import shuffle
from hlojit.ir.formats import ElementType, IntegerType, element_type
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.product_elements import Elements, at, load_kind
from hlojit.lowering.dot_problem import Axis, Copy, DotProblem, Matrix, dense_steps, round_up
from hlojit.lowering.target import Target

QUAD: Final = 4
SHORTEST: Final = 8
"""Sums of fewer products gain nothing."""
SHORTEST_PADDED: Final = 16
"""Those of no whole number of quads are worth the copies that make them one from this length on."""
_X86: Final = {4: "128", 8: "256", 16: "512"}
_AARCH64: Final = {2: "v2i32.v8i8", 4: "v4i32.v16i8"}
_FIRST_BITS: Final = -0x7F7F7F80
BYTES: Final = Elements(element_type("i8"), "i8")
"""Elements of 8 bits as they lie."""


@dataclass(frozen=True, slots=True)
class Quads:
    """How the products of two operands are computed by quads."""

    is_x86: bool
    lanes: int
    """Of a native vector of sums."""
    left_signed: bool
    right_signed: bool

    @classmethod
    def of(cls, problem: DotProblem, lhs: ElementType, rhs: ElementType, kind: str, target: Target) -> Quads | None:
        """The quads of a product, or None where it is not computed so."""
        shortest = SHORTEST_PADDED if problem.k % QUAD else SHORTEST
        if kind != "i32" or problem.k < shortest or not _has_instruction(target):
            return None
        signs = [_signs(element) for element in (lhs, rhs)]
        lanes = target.native_lanes(kind)
        ways = [cls(target.is_x86, lanes, left, right) for left in signs[0] for right in signs[1]]
        return min(ways, key=lambda way: way.turns, default=None)

    @property
    def turns(self) -> bool:
        """Whether the first bits of the right operand's elements are turned."""
        return (self.left_signed == self.right_signed) == self.is_x86

    @property
    def row_factor(self) -> int:
        """What the sums of the left operand's rows are multiplied by, and added to the rows' sums."""
        return (-128 if self.right_signed else 128) if self.turns else 0

    def multiply_add(self, b: LlvmBuilder, left: Val, right: Val, total: Val) -> Val:
        """``total`` and the four products of every lane; ``right`` with its first bits turned."""
        known = _X86 if self.is_x86 else _AARCH64
        lanes = min(count for count in known if count >= total.lanes)
        if total.lanes < lanes:
            wide = [_widened(b, value, lanes) for value in (left, right, total)]
            return shuffle(b, found := self.multiply_add(b, *wide), found, range(total.lanes))
        sums, parts = b.type("i32", lanes), b.type("i8", QUAD * lanes)
        name = f"x86.avx512.vpdpbusd.{known[lanes]}"
        operands = (right, left) if self.left_signed else (left, right)
        if not self.is_x86:
            name = f"aarch64.neon.{'sdot' if self.left_signed else 'udot'}.{known[lanes]}"
        b.declare(f"llvm.{name}", f"declare {sums} @llvm.{name}({sums}, {parts}, {parts})")
        texts = [b.emit("i8", QUAD * lanes, f"bitcast {sums} {value.text} to {parts}").text for value in operands]
        arguments = ", ".join(f"{parts} {text}" for text in texts)
        return b.emit("i32", lanes, f"call {sums} @llvm.{name}({sums} {total.text}, {arguments})")


def _has_instruction(target: Target) -> bool:
    if not target.is_x86:
        return target.has_feature("dotprod")
    if target.has_feature("avx512vnni") and target.has_feature("avx512vl"):
        return True
    return target.has_feature("avxvnni") and target.vector_bits == 256


def _signs(element: ElementType) -> tuple[bool, ...]:
    """What the bytes of an element may be taken for: those of few bits are the same number as signed and as unsigned ones."""
    if not isinstance(element, IntegerType) or element.bits > 8:
        return ()
    return (element.signed,) if element.signed or element.bits == 8 else (True, False)


def _widened(b: LlvmBuilder, value: Val, lanes: int) -> Val:
    if value.lanes == 1:
        return b.splat(value, lanes)
    return shuffle(b, value, value, [lane % value.lanes for lane in range(lanes)])


@dataclass(frozen=True, slots=True)
class QuadElements(Elements):
    """Quads that are neighbours in memory; ``turned`` has the first bits of their bytes turned."""

    turned: bool = False

    @classmethod
    def of(cls, *, turned: bool) -> QuadElements:
        """Such elements."""
        return cls(element_type("i32"), "i32", None, turned)

    @property
    def is_native(self) -> bool:
        return not self.turned

    def load(self, b: LlvmBuilder, pointer: Val, lanes: int = 1, mask: Val | None = None) -> Val:
        if mask is not None:
            return self.decode(b, b.masked_load("i32", pointer, mask))
        # Bytes begin anywhere.
        return self.decode(b, b.emit("i32", lanes, f"load {b.type('i32', lanes)}, ptr {pointer.text}, align 1"))

    def decode(self, b: LlvmBuilder, value: Val) -> Val:
        return b.xor(value, b.constant("i32", _FIRST_BITS)) if self.turned else value


@dataclass(frozen=True, slots=True)
class QuadColumns(Elements):
    """Quads whose bytes are ``step`` bytes apart, and the next quad's one byte behind: rows are put together as they are read."""

    step: int = 0
    turned: bool = False

    @classmethod
    def of(cls, step: int, *, turned: bool) -> QuadColumns:
        """Such elements."""
        return cls(element_type("i8"), "i32", None, step, turned)

    @property
    def is_native(self) -> bool:
        return False

    @property
    def rows(self) -> Sequence[int]:
        return range(0, QUAD * self.step, self.step)

    def load(self, b: LlvmBuilder, pointer: Val, lanes: int = 1, mask: Val | None = None) -> Val:
        rows = [load_kind(b, "i8", at(b, pointer, offset), lanes, mask) for offset in self.rows]
        if lanes == 1:
            parts = [b.zext(row, "i32") for row in rows]
            quads = parts[0]
            for number in range(1, QUAD):
                quads = b.or_(quads, b.shl(parts[number], b.constant("i32", 8 * number)))
        else:
            halves = [shuffle(b, x, y, range(2 * lanes)) for x, y in (rows[:2], rows[2:])]
            order = [row * lanes + lane for lane in range(lanes) for row in range(QUAD)]
            joined = shuffle(b, halves[0], halves[1], order)
            quads = b.emit("i32", lanes, f"bitcast {b.type_of(joined)} {joined.text} to {b.type('i32', lanes)}")
        return b.xor(quads, b.constant("i32", _FIRST_BITS)) if self.turned else quads


def with_quads(problem: DotProblem, quads: Quads) -> tuple[DotProblem, list[Elements]]:
    """The product with quads as its elements, and what these are of lhs and rhs.

    ``has_quads`` is true of both.  A left operand whose k are apart is copied.
    """
    m, k, lhs, rhs = problem.m, problem.k // QUAD, problem.lhs, problem.rhs
    problem = replace(problem, k=k)
    left: Elements = QuadElements.of(turned=False)
    if lhs.column == 1:
        problem = replace(problem, lhs=Matrix(tuple(step // QUAD for step in lhs.batch), lhs.row // QUAD, 1))
    else:
        left = QuadColumns.of(lhs.column, turned=False)
        strides = (*lhs.batch, lhs.row, QUAD * lhs.column)
        copy = Copy(tuple(Axis(extent, (step,)) for extent, step in zip((*problem.batch, m, k), strides)))
        problem = replace(problem, lhs=Matrix(tuple(dense_steps(problem.batch, m * k)), k, 1), lhs_copy=copy)
    if rhs.row == 1:
        rhs = Matrix(tuple(step // QUAD for step in rhs.batch), 1, rhs.column // QUAD)
        return replace(problem, rhs=rhs), [left, QuadElements.of(turned=quads.turns)]
    right = QuadColumns.of(rhs.row, turned=quads.turns)
    return replace(problem, rhs=Matrix(rhs.batch, QUAD * rhs.row, rhs.column)), [left, right]


def has_quads(problem: DotProblem, side: int) -> bool:
    """Whether an operand lies in memory so that quads are read from it; otherwise its bytes are copied first."""
    matrix = (problem.lhs, problem.rhs)[side]
    k_step, free_step = (matrix.column, matrix.row) if side == 0 else (matrix.row, matrix.column)
    if problem.k % QUAD:
        return False
    return free_step == 1 if k_step != 1 else all(step % QUAD == 0 for step in (*matrix.batch, free_step))


def whole_quads(problem: DotProblem, side: int) -> tuple[tuple[PaddedAxis, ...], Matrix]:
    """The copy of an operand's bytes that has as many k as quads have, zeros behind, and how it lies then."""
    matrix, k = (problem.lhs, problem.rhs)[side], round_up(problem.k, QUAD)
    k_step, free_step = (matrix.column, matrix.row) if side == 0 else (matrix.row, matrix.column)
    free = (problem.m, problem.n)[side]
    outer = [PaddedAxis(extent, extent, step) for extent, step in zip(problem.batch, matrix.batch)]
    inner, steps = [PaddedAxis(free, free, free_step), PaddedAxis(problem.k, k, k_step)], (k, 1)
    if k_step != 1 and free_step == 1:
        inner, steps = inner[::-1], (1, free)
    batch = tuple(dense_steps(problem.batch, free * k))
    return (*outer, *inner), Matrix(batch, *(steps if side == 0 else steps[::-1]))
