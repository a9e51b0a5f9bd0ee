"""cholesky and triangular_solve of small matrices on machines with threads.

A block of threads factors one matrix in shared memory, column by column; a thread solves one system, whose right side is a
column (or a row), reading the matrix through the caches that all threads share.  Larger matrices are taken apart into these
and products (``hlojit.ir.ops.factorizations``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, final

from hlojit.ir.formats import ComplexType
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.factorizations import block_order, is_large
from hlojit.ir.ops.views import CholeskyView, TriangularSolveView
from hlojit.ir.types import TensorType
from hlojit.llvm.text import Val
from hlojit.lowering.body import Body
from hlojit.lowering.grid_plan import THREADS
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.dialect import Dialect
from hlojit.simt.frame import GridFrame

STEP_NANOSECONDS: Final = 4.0
"""Of a multiply-add that waits for memory."""

Number = tuple[Val, ...]
"""A real number, or the parts of a complex one."""


def size_reason(instruction: Instruction) -> str:
    """Why the kernels are not for an instruction, or an empty string."""
    order = block_order(instruction.operands[0].tensor_type)
    return f"matrices of an order above {order} are taken apart" if is_large(instruction) else ""


@final
class _Numbers:
    """Arithmetic of one element type, and where numbers lie."""

    def __init__(self, b: SimtBuilder, kind: TensorType):
        element = kind.element_type
        self.b = b
        self.parts = 2 if isinstance(element, ComplexType) else 1
        self.kind = element.component if isinstance(element, ComplexType) else element.name

    def load(self, base: Val, index: Val) -> Number:
        b = self.b
        first = b.mul(index, b.constant("i64", self.parts))
        places = [b.add(first, b.constant("i64", part)) for part in range(self.parts)]
        return tuple(b.load(self.kind, b.element_pointer(base, self.kind, place)) for place in places)

    def store(self, value: Number, base: Val, index: Val) -> None:
        b = self.b
        first = b.mul(index, b.constant("i64", self.parts))
        for part, stored in enumerate(value):
            b.store(stored, b.element_pointer(base, self.kind, b.add(first, b.constant("i64", part))))

    def constant(self, value: float) -> Number:
        return (self.b.constant(self.kind, value),) * self.parts

    def select(self, condition: Val, x: Number, y: Number) -> Number:
        return tuple(self.b.select(condition, first, second) for first, second in zip(x, y))

    def conjugate(self, x: Number) -> Number:
        return x if self.parts == 1 else (x[0], self.b.fneg(x[1]))

    def scaled(self, x: Number, factor: Val) -> Number:
        return tuple(self.b.fmul(part, factor) for part in x)

    def minus_product(self, total: Number, x: Number, y: Number) -> Number:
        """``total - x * y``."""
        b = self.b
        if self.parts == 1:
            return (b.fma(b.fneg(x[0]), y[0], total[0]),)
        negated = b.fneg(x[0])
        real = b.fma(x[1], y[1], b.fma(negated, y[0], total[0]))
        return real, b.fma(b.fneg(x[1]), y[0], b.fma(negated, y[1], total[1]))

    def quotient(self, x: Number, y: Number) -> Number:
        """``x / y``; of complex numbers by the larger part of ``y``, which keeps what need not overflow."""
        b = self.b
        if self.parts == 1:
            return (b.fdiv(x[0], y[0]),)
        is_flat = b.fcmp("oge", b.fabs(y[0]), b.fabs(y[1]))
        large, small = b.select(is_flat, y[0], y[1]), b.select(is_flat, y[1], y[0])
        ratio = b.fdiv(small, large)
        divisor = b.fma(small, ratio, large)
        first, second = b.select(is_flat, x[0], x[1]), b.select(is_flat, x[1], x[0])
        real = b.fdiv(b.fma(second, ratio, first), divisor)
        other = b.fdiv(b.fma(b.fneg(first), ratio, second), divisor)
        return real, b.select(is_flat, other, b.fneg(other))


def _batch(kind: TensorType) -> int:
    return math.prod(kind.shape[:-2])


# --------------------------------------------------------------------------------------------------------- cholesky


def emit_cholesky(instruction: Instruction, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """A block of threads for each matrix."""
    kind = instruction.operands[0].tensor_type
    frame = GridFrame(target, Body.of(instruction), dialect)
    with frame.kernel(symbol, THREADS):
        _Cholesky(frame, kind, lower=CholeskyView.of(instruction).lower).emit()
    order = kind.shape[-1]
    cost = STEP_NANOSECONDS * order * (order * order / THREADS + 3)
    return frame.code((frame.phase(symbol, _batch(kind), cost),))


@final
class _Cholesky:
    def __init__(self, frame: GridFrame, kind: TensorType, *, lower: bool):
        self.b = b = frame.builder
        self.source, self.result = frame.access.bases
        self.order = kind.shape[-1]
        self.lower = lower
        self.numbers = _Numbers(b, kind)
        self.matrix = b.shared(self.numbers.kind, self.order * self.order * self.numbers.parts)
        self.thread = b.zext(b.thread, "i64")
        self.first = b.mul(b.zext(b.block, "i64"), b.constant("i64", self.order * self.order))

    def emit(self) -> None:
        b = self.b
        self._each(self._load)
        b.barrier()
        loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", self.order))
        self._column(loop.index)
        b.end_loop(loop)
        last = self.numbers.load(self.matrix, b.constant("i64", self.order * self.order - 1))[0]
        failed = b.fcmp("uno", last, last)
        self._each(lambda row, column, index: self._store(row, column, index, failed))

    def _each(self, body: Callable[[Val, Val, Val], Any]) -> None:
        """``body(row, column, number)`` for every element, shared among the threads."""
        b = self.b
        order, count = b.constant("i64", self.order), b.constant("i64", self.order * self.order)
        loop = b.begin_loop(self.thread, count, b.threads)
        body(b.udiv(loop.index, order), b.urem(loop.index, order), loop.index)
        b.end_loop(loop)

    def _at(self, row: Val, column: Val) -> Val:
        return self.b.add(self.b.mul(row, self.b.constant("i64", self.order)), column)

    def _load(self, row: Val, column: Val, index: Val) -> None:
        """The lower triangle; of an upper one the adjoint."""
        b, numbers = self.b, self.numbers
        read = index if self.lower else self._at(column, row)
        value = numbers.load(self.source, b.add(self.first, read))
        value = value if self.lower else numbers.conjugate(value)
        inside = b.icmp("sle", column, row)
        numbers.store(numbers.select(inside, value, numbers.constant(0.0)), self.matrix, index)

    def _column(self, column: Val) -> None:
        """Divide a column by the root of its diagonal, and take its products off the columns behind it."""
        b, numbers = self.b, self.numbers
        diagonal = numbers.load(self.matrix, self._at(column, column))[0]
        is_positive = b.fcmp("ogt", diagonal, b.constant(numbers.kind, 0.0))
        pivot = b.select(is_positive, b.sqrt(diagonal), b.constant(numbers.kind, float("nan")))
        b.barrier()
        row = b.add(column, self.thread)

        def divide() -> None:
            place = self._at(row, column)
            value = numbers.load(self.matrix, place)
            divided = tuple(b.fdiv(part, pivot) for part in value)
            on_diagonal = (pivot, *(b.constant(numbers.kind, 0.0) for _ in range(numbers.parts - 1)))
            numbers.store(numbers.select(b.icmp("eq", row, column), on_diagonal, divided), self.matrix, place)

        b.when(b.icmp("slt", row, b.constant("i64", self.order)), divide)
        b.barrier()
        self._update(column)
        b.barrier()

    def _update(self, column: Val) -> None:
        b, numbers = self.b, self.numbers
        after = b.add(column, b.constant("i64", 1))
        rest = b.sub(b.constant("i64", self.order), after)
        loop = b.begin_loop(self.thread, b.mul(rest, rest), b.threads)
        row = b.add(after, b.udiv(loop.index, rest))
        other = b.add(after, b.urem(loop.index, rest))

        def take() -> None:
            place = self._at(row, other)
            x = numbers.load(self.matrix, self._at(row, column))
            y = numbers.conjugate(numbers.load(self.matrix, self._at(other, column)))
            numbers.store(numbers.minus_product(numbers.load(self.matrix, place), x, y), self.matrix, place)

        b.when(b.icmp("sle", other, row), take)
        b.end_loop(loop)

    def _store(self, row: Val, column: Val, index: Val, failed: Val) -> None:
        """The factor or, where there is none, NaN; zeros beside it."""
        b, numbers = self.b, self.numbers
        read = index if self.lower else self._at(column, row)
        value = numbers.load(self.matrix, read)
        value = value if self.lower else numbers.conjugate(value)
        value = numbers.select(failed, numbers.constant(float("nan")), value)
        inside = b.icmp("sle", column, row) if self.lower else b.icmp("sge", column, row)
        numbers.store(numbers.select(inside, value, numbers.constant(0.0)), self.result, b.add(self.first, index))


# ------------------------------------------------------------------------------------------------- triangular_solve


def emit_triangular_solve(instruction: Instruction, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """A thread for each column of the right sides (each row, where the matrix acts from the right)."""
    matrix, sides = (operand.tensor_type for operand in instruction.operands)
    view = TriangularSolveView.of(instruction)
    order = matrix.shape[-1]
    systems = sides.shape[-1] if view.left_side else sides.shape[-2]
    count = _batch(sides) * systems
    blocks = -(-count // THREADS)
    frame = GridFrame(target, Body.of(instruction), dialect)
    with frame.kernel(symbol, THREADS):
        b = frame.builder
        number = b.global_thread()
        solve = _System(frame, sides, view, order, systems)
        b.when(b.icmp("slt", number, b.constant("i64", count)), lambda: solve.emit(number))
    return frame.code((frame.phase(symbol, blocks, STEP_NANOSECONDS * order * order / 2),))


@final
class _System:
    def __init__(self, frame: GridFrame, kind: TensorType, view: TriangularSolveView, order: int, systems: int):
        self.b = frame.builder
        self.matrix, self.sides, self.result = frame.access.bases
        self.view = view
        self.order = order
        self.systems = systems
        self.numbers = _Numbers(self.b, kind)
        is_transposed = view.transpose != "N"
        self.swaps = is_transposed == view.left_side
        """Whether the element that row i of the system has in column j is the matrix's in row j and column i."""
        self.forwards = (view.lower != is_transposed) == view.left_side

    def emit(self, number: Val) -> None:
        b = self.b
        systems = b.constant("i64", self.systems)
        batch, system = b.udiv(number, systems), b.urem(number, systems)
        self.first = b.mul(batch, b.constant("i64", self.order * self.order))
        start = b.mul(batch, b.constant("i64", self.order * self.systems))
        step = self.systems if self.view.left_side else 1
        self.start = b.add(start, system if self.view.left_side else b.mul(system, b.constant("i64", self.order)))
        self.step = b.constant("i64", step)
        loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", self.order))
        self._row(loop.index)
        b.end_loop(loop)

    def _known(self, number: Val) -> Val:
        """The row of the system that becomes known as this number."""
        return number if self.forwards else self.b.sub(self.b.constant("i64", self.order - 1), number)

    def _coefficient(self, row: Val, column: Val) -> Number:
        b, numbers = self.b, self.numbers
        first, second = (column, row) if self.swaps else (row, column)
        place = b.add(b.mul(first, b.constant("i64", self.order)), second)
        value = numbers.load(self.matrix, b.add(self.first, place))
        return numbers.conjugate(value) if self.view.transpose == "C" else value

    def _place(self, row: Val) -> Val:
        return self.b.add(self.start, self.b.mul(row, self.step))

    def _row(self, number: Val) -> None:
        b, numbers = self.b, self.numbers
        row = self._known(number)
        total = numbers.load(self.sides, self._place(row))
        loop = b.begin_loop(b.constant("i64", 0), number, carried=list(total))
        column = self._known(loop.index)
        solved = numbers.load(self.result, self._place(column))
        change = numbers.minus_product(tuple(loop.carried), self._coefficient(row, column), solved)
        total = b.end_loop(loop, list(change))
        if not self.view.unit_diagonal:
            total = numbers.quotient(total, self._coefficient(row, row))
        numbers.store(total, self.result, self._place(row))
