"""Factorizations and triangular systems of many small matrices at once, one in each lane (``matrix_lanes``).

The algorithms are LAPACK's unblocked ones (Golub and Van Loan, Matrix Computations, 3.4, 4.2 and 5.1), in place; what they say
of matrices that have no factors (``info``) is what LAPACK's do.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlojit.cpu.kernels.arithmetic import Arithmetic
from hlojit.cpu.kernels.matrix_lanes import Group, MatrixLanes, Number, as_value
from hlojit.llvm.builder import LlvmBuilder, Val


@dataclass(frozen=True, slots=True)
class LaneAlgorithms:
    """The algorithms for one group of matrices."""

    group: Group
    arithmetic: Arithmetic

    @property
    def _b(self) -> LlvmBuilder:
        return self.group.b

    def _constant(self, value: float) -> Val:
        return self._b.splat(self._b.constant(self.arithmetic.kind, value), self.group.lanes)

    def _variable(self, kind: str, value: Val) -> LaneVariable:
        return LaneVariable(self.group, kind, value)

    def _less_product(self, total: Val, x: Val, y: Val) -> Val:
        """``total - x * y``."""
        return self.arithmetic.multiply_add(self._b, self._b.fneg(x), y, total)

    def _larger(self, x: Val, y: Val) -> Val:
        """The larger one, or NaN if one is."""
        is_other = self._b.or_(self._b.fcmp("ogt", y, x), self._b.fcmp("uno", y, y))
        return self._b.select(is_other, y, x)

    def cholesky(self, a: MatrixLanes, lower: bool) -> Val:
        """The factor in one triangle of ``a``; returns ``info``: from 1, the first column without a positive pivot, or 0."""
        b, order = self._b, a.rows

        def element(row: Number, column: Number) -> tuple[Number, Number]:
            return (row, column) if lower else (column, row)

        info = self._variable("i32", b.constant("i32", 0))

        def column(k: Number) -> None:
            pivot = a.get(k, k)
            is_first = b.and_(
                b.xor(b.fcmp("ogt", pivot, self._constant(0.0)), b.splat(Val("true", "i1"), self.group.lanes)),
                b.icmp("eq", info.get(), b.constant("i32", 0)),
            )
            info.set(b.select(is_first, _as_i32(b, self.group.after(k)), info.get()))
            root = b.sqrt(pivot)
            a.set(k, k, root)
            rest = self.group.after(k)
            self.group.walk(rest, order, lambda i: a.set(*element(i, k), b.fdiv(a.get(*element(i, k)), root)))

            def update(j: Number) -> None:
                factor = a.get(*element(j, k))

                def inner(i: Number) -> None:
                    place = element(i, j)
                    a.set(*place, self._less_product(a.get(*place), a.get(*element(i, k)), factor))

                self.group.walk(j, order, inner)

            self.group.walk(rest, order, update)

        self.group.walk(0, order, column)
        return info.get()

    def finish_cholesky(self, a: MatrixLanes, lower: bool, info: Val) -> None:
        """Zeros beside the triangle, and in it NaN where there is no factor."""
        b = self._b
        failed = b.icmp("ne", info, b.constant("i32", 0))
        zero, unknown = self._constant(0.0), self._constant(float("nan"))

        def row(i: Number) -> None:
            behind = self.group.after(i)
            begin, end = (0, behind) if lower else (i, a.rows)
            self.group.walk(begin, end, lambda j: a.set(i, j, b.select(failed, unknown, a.get(i, j))))
            begin, end = (behind, a.rows) if lower else (0, i)
            self.group.walk(begin, end, lambda j: a.set(i, j, zero))

        self.group.walk(0, a.rows, row)

    def lu(self, a: MatrixLanes, pivots: MatrixLanes) -> Val:
        """L and U in the place of ``a``, rows exchanged; ``pivots`` and the result are LAPACK's, counted from 1."""
        b = self._b
        info = self._variable("i32", b.constant("i32", 0))

        def column(k: Number) -> None:
            best = self._variable(a.kind, b.fabs(a.get(k, k)))
            chosen = self._variable("i32", _as_i32(b, k))
            below = self.group.after(k)

            def compare(i: Number) -> None:
                size = b.fabs(a.get(i, k))
                is_larger = b.fcmp("ogt", size, best.get())
                best.set(b.select(is_larger, size, best.get()))
                chosen.set(b.select(is_larger, _as_i32(b, i), chosen.get()))

            self.group.walk(below, a.rows, compare)
            pivots.set(k, 0, b.add(chosen.get(), b.constant("i32", 1)))
            self._exchange(a, k, chosen.get())
            pivot = a.get(k, k)
            is_zero = b.fcmp("oeq", pivot, self._constant(0.0))
            is_first = b.and_(is_zero, b.icmp("eq", info.get(), b.constant("i32", 0)))
            info.set(b.select(is_first, _as_i32(b, below), info.get()))
            # A column of zeros stays what it is.
            divisor = b.select(is_zero, self._constant(1.0), pivot)
            self.group.walk(below, a.rows, lambda i: a.set(i, k, b.fdiv(a.get(i, k), divisor)))

            def update(j: Number) -> None:
                above = a.get(k, j)
                self.group.walk(
                    below, a.rows, lambda i: a.set(i, j, self._less_product(a.get(i, j), a.get(i, k), above))
                )

            self.group.walk(below, a.columns, update)

        self.group.walk(0, min(a.rows, a.columns), column)
        return info.get()

    def _exchange(self, a: MatrixLanes, k: Number, chosen: Val) -> None:
        """Row ``k`` and the row that each lane has chosen."""
        b = self._b

        def row(i: Number) -> None:
            is_chosen = b.icmp("eq", chosen, _as_i32(b, i))

            def element(j: Number) -> None:
                upper, lower = a.get(k, j), a.get(i, j)
                a.set(k, j, b.select(is_chosen, lower, upper))
                a.set(i, j, b.select(is_chosen, upper, lower))

            self.group.walk(0, a.columns, element)

        self.group.walk(self.group.after(k), a.rows, row)

    def solve(self, a: MatrixLanes, x: MatrixLanes, lower: bool, transposed: bool, unit: bool) -> None:
        """Put the solutions of ``a' x = b`` in the place of ``x``, where ``a'`` is a triangle of ``a`` or its transpose."""
        b, order, group = self._b, a.rows, self.group
        forward = lower != transposed

        def step(number: Number) -> None:
            k = number if forward else group.before(order, number)
            begin, end = (group.after(k), order) if forward else (0, k)

            def column(j: Number) -> None:
                value = x.get(k, j)
                if not unit:
                    value = b.fdiv(value, a.get(k, k))
                    x.set(k, j, value)

                def update(i: Number) -> None:
                    factor = a.get(k, i) if transposed else a.get(i, k)
                    x.set(i, j, self._less_product(x.get(i, j), factor, value))

                group.walk(begin, end, update)

            group.walk(0, x.columns, column)

        group.walk(0, order, step)

    def reflectors(self, a: MatrixLanes, factors: MatrixLanes) -> None:
        """R in the upper triangle of ``a``, below it Householder's vectors, whose first elements are 1; their factors."""

        def column(k: Number) -> None:
            self._reflector(a, factors, k)
            self._reflect(a, k, factors.get(k, 0), self.group.after(k))

        self.group.walk(0, min(a.rows, a.columns), column)

    def _reflector(self, a: MatrixLanes, factors: MatrixLanes, k: Number) -> None:
        """The vector that takes all below the diagonal of column ``k`` away; scaled, so that no square overflows."""
        b, group, below = self._b, self.group, self.group.after(k)
        zero, one = self._constant(0.0), self._constant(1.0)
        alpha = a.get(k, k)
        largest = self._variable(a.kind, zero)

        group.walk(below, a.rows, lambda i: largest.set(self._larger(largest.get(), b.fabs(a.get(i, k)))))
        is_done = b.fcmp("oeq", largest.get(), zero)
        scale = b.select(is_done, one, self._larger(largest.get(), b.fabs(alpha)))
        first = b.fdiv(alpha, scale)
        total = self._variable(a.kind, b.fmul(first, first))

        def add_square(i: Number) -> None:
            scaled = b.fdiv(a.get(i, k), scale)
            total.set(self.arithmetic.multiply_add(b, scaled, scaled, total.get()))

        group.walk(below, a.rows, add_square)
        beta = b.fneg(b.copysign(b.sqrt(total.get()), first))
        factor = b.fdiv(b.fsub(beta, first), beta)
        factors.set(k, 0, b.select(is_done, zero, factor))
        a.set(k, k, b.select(is_done, alpha, b.fmul(beta, scale)))
        divisor = b.select(is_done, one, b.fsub(first, beta))

        def divide(i: Number) -> None:
            a.set(i, k, b.fdiv(b.fdiv(a.get(i, k), scale), divisor))

        group.walk(below, a.rows, divide)

    def _reflect(self, a: MatrixLanes, k: Number, factor: Val, first_column: Number) -> None:
        """Apply reflector ``k`` to the columns from a first one on."""
        b, group, below = self._b, self.group, self.group.after(k)

        def column(j: Number) -> None:
            total = self._variable(a.kind, a.get(k, j))

            def add(i: Number) -> None:
                total.set(self.arithmetic.multiply_add(b, a.get(i, k), a.get(i, j), total.get()))

            group.walk(below, a.rows, add)
            weight = b.fmul(factor, total.get())
            a.set(k, j, b.fsub(a.get(k, j), weight))
            group.walk(below, a.rows, lambda i: a.set(i, j, self._less_product(a.get(i, j), a.get(i, k), weight)))

        group.walk(first_column, a.columns, column)

    def orthogonal(self, a: MatrixLanes, factors: MatrixLanes) -> None:
        """The columns of Q in the place of the vectors of its reflectors."""
        b, group, count = self._b, self.group, factors.rows
        zero, one = self._constant(0.0), self._constant(1.0)

        def unit_column(j: Number) -> None:
            group.walk(0, a.rows, lambda i: a.set(i, j, zero))
            a.set(j, j, one)

        group.walk(count, a.columns, unit_column)

        def step(number: Number) -> None:
            k = group.before(count, number)
            factor = factors.get(k, 0)
            self._reflect(a, k, factor, group.after(k))
            group.walk(group.after(k), a.rows, lambda i: a.set(i, k, b.fneg(b.fmul(factor, a.get(i, k)))))
            a.set(k, k, b.fsub(one, factor))
            group.walk(0, k, lambda i: a.set(i, k, zero))

        group.walk(0, count, step)


class LaneVariable:
    """A mutable vector."""

    def __init__(self, group: Group, kind: str, value: Val):
        self._group = group
        self._matrix = MatrixLanes(group, kind, 1, 1)
        self.set(value)

    def get(self) -> Val:
        """The current values."""
        return self._matrix.get(0, 0)

    def set(self, value: Val) -> None:
        """Assign, the same to all lanes where it is one."""
        self._matrix.set(0, 0, value)


def _as_i32(b: LlvmBuilder, number: Number) -> Val:
    return b.constant("i32", number) if isinstance(number, int) else b.trunc(as_value(number), "i32")
