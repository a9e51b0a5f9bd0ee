"""A product of real numbers or integers: what has to be copied first, and which of two forms writes it; see ``Product``.

* panels (``dot_panels``): tiles of rows x vectors of columns, the right operand read in place or packed by panels;
* rows (``dot_rows``): vectors along k, for few rows against a right operand whose k are neighbours.

A long sum with few results is cut into parts, that are added in their order.  Numeric effect: *permitted*.  The order of
the sums depends on shapes, types and the instruction set only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hlojit.cpu.kernels.addresses import PARAMETERS, buffer, literal
from hlojit.cpu.kernels.arithmetic import Arithmetic
from hlojit.cpu.kernels.dot_outputs import WORKSPACE, Place
from hlojit.cpu.kernels.dot_panels import DotPanels, dense
from hlojit.cpu.kernels.dot_rows import DotRows, prefers_rows
from hlojit.cpu.kernels.integer_pairs import PairElements, can_pair, dense_pairs, pair_copies, paired
from hlojit.cpu.kernels.integer_quads import BYTES, QUAD, Quads, has_quads, whole_quads, with_quads
from hlojit.cpu.kernels.packing import CopyKernel
from hlojit.cpu.kernels.padding import PaddedCopy
from hlojit.ir.formats import IntegerType
from hlojit.llvm.builder import LlvmBuilder
from hlojit.llvm.epilogue import Epilogue
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.product_elements import Elements, at, scaled
from hlojit.lowering.dot_parts import SumParts, cut_sum
from hlojit.lowering.dot_problem import Axis, Copy, DotProblem, Matrix, dense_steps, round_up
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.target import KIND_BITS, Target

RESULT = 2
ADD_CYCLES = 4.0


@dataclass(slots=True)
class Product:
    """State of one emission: the builder, the launches and the workspace so far.

    ``elements`` and ``places`` belong to operands 0 and 1, whichever side of the problem they stand on.
    """

    problem: DotProblem
    elements: list[Elements]
    result: Elements
    target: Target
    symbol: str
    places: tuple[Place, Place] = ((0, 0), (1, 0))
    result_at: Place = (RESULT, 0)
    builder: LlvmBuilder = field(default_factory=LlvmBuilder)
    phases: list[Phase] = field(default_factory=list)
    workspace: int = 0
    epilogue: Epilogue | None = None
    """What takes the sums, box by box, in the place of ``result_at``; the result has the compute kind then."""

    @property
    def kind(self) -> str:
        """The compute kind."""
        return self.result.compute

    def code(self) -> KernelCode:
        """What was emitted."""
        return kernel_code(self.builder, self.phases, self.workspace, finished=True)

    def reserve(self, size: int) -> int:
        """Take workspace; returns its offset."""
        offset = self.workspace
        self.workspace += round_up(size, 64)
        return offset

    def emit(self) -> None:
        """Emit all launches of the problem."""
        problem = self.problem
        if problem.macs == 0:
            self._zero_fill()
            return
        self.problem = problem = with_rows(problem)
        parts = cut_sum(problem)
        if parts is not None:
            assert self.epilogue is None, "sums of parts are no box of any task"
            self._parts(parts)
            return
        arithmetic = Arithmetic.of(self.kind, self.target, problem.k)
        types = [self.elements[number].element for number in problem.operands]
        quads = Quads.of(problem, types[0], types[1], self.kind, self.target)
        if quads is not None:
            self._by_quads(quads)
            problem, arithmetic = self.problem, replace(arithmetic, quads=quads)
        elif can_pair(problem, types[0], types[1], self.kind, self.target):
            self._pair()
            problem, arithmetic = self.problem, replace(arithmetic, pairs=True)
        by_rows = problem.rhs_copy is None and prefers_rows(problem, self.kind, self.target)
        if by_rows:
            self._bring_k_together()
        sides = [self._operand(0, in_place=by_rows), self._operand(1, in_place=True)]
        (left, left_at), (right, right_at) = sides
        if by_rows:
            rows = DotRows(
                self.symbol,
                self.problem,
                arithmetic,
                self.target,
                left,
                left_at,
                right,
                right_at,
                self.result,
                self.result_at,
                self.reserve,
                self.epilogue,
            )
            self.phases.append(rows.emit(self.builder))
        else:
            panels = DotPanels(
                self.symbol,
                self.problem,
                self.target,
                left,
                left_at,
                right,
                right_at,
                self.result,
                self.result_at,
                arithmetic,
                self.reserve,
                self.epilogue,
            )
            self.phases.extend(panels.emit(self.builder))

    def _pair(self) -> None:
        """Bring narrow integers into pairs; the problem goes on with those as its elements."""
        copies = pair_copies(self.problem, self.elements, self.places, self.symbol)
        problem = paired(self.problem)
        places, elements = list(self.places), list(self.elements)
        for number, copy in enumerate(copies):
            element = self.elements[number].element
            assert isinstance(element, IntegerType)
            elements[number] = PairElements.of(element)
            if copy is not None:
                side = problem.operands.index(number)
                matrix = dense_pairs(problem, side)
                problem = replace(problem, lhs=matrix) if side == 0 else replace(problem, rhs=matrix)
                size = 4 * problem.batch_size * problem.k * (problem.m, problem.n)[side]
                places[number] = WORKSPACE, self.reserve(size)
                made = replace(copy, destination=places[number])
                self.phases.append(made.emit(self.builder, self.target))
                elements[number] = dense("i32")
        self.problem, self.elements, self.places = problem, elements, (places[0], places[1])

    def _by_quads(self, quads: Quads) -> None:
        """Have quads of bytes as the problem's elements, where need be of copies."""
        for side in (0, 1):
            if (self.problem.lhs_copy, self.problem.rhs_copy)[side] is not None:
                self._copy_bytes(side)
            if not has_quads(self.problem, side):
                self._make_quads_whole(side)
        self.problem = replace(self.problem, k=round_up(self.problem.k, QUAD))
        self.problem, elements = with_quads(self.problem, quads)
        self.elements = [elements[self.problem.operands.index(number)] for number in (0, 1)]

    def _copy_bytes(self, side: int) -> None:
        """Copy an operand whose dimensions have to be merged as it is."""
        problem = self.problem
        copy = (problem.lhs_copy, problem.rhs_copy)[side]
        assert copy is not None
        number = problem.operands[side]
        source, offset = self.places[number], self.reserve(copy.size)
        kernel = CopyKernel(
            f"{self.symbol}.bytes{side}", copy, BYTES, source[0], WORKSPACE, offset, source_offset=source[1]
        )
        self.phases.append(kernel.emit(self.builder, self.target))
        self._move(number, (WORKSPACE, offset))
        self.problem = replace(problem, lhs_copy=None) if side == 0 else replace(problem, rhs_copy=None)

    def _make_quads_whole(self, side: int) -> None:
        """Copy an operand's bytes into an order that has quads, with zeros behind the last k."""
        axes, matrix = whole_quads(self.problem, side)
        number = self.problem.operands[side]
        copy = PaddedCopy(f"{self.symbol}.whole{side}", axes, BYTES, *self.places[number], WORKSPACE, self.workspace)
        self.reserve(copy.size)
        self.phases.append(copy.emit(self.builder, self.target))
        self._move(number, (WORKSPACE, copy.offset))
        self.problem = replace(self.problem, lhs=matrix) if side == 0 else replace(self.problem, rhs=matrix)

    def _move(self, number: int, place: Place) -> None:
        places = list(self.places)
        places[number] = place
        self.places = places[0], places[1]

    def _bring_k_together(self) -> None:
        """Plan copies of operands whose k are apart in memory."""
        problem = self.problem
        batch, lhs, rhs = problem.batch, problem.lhs, problem.rhs
        if lhs.column != 1 and problem.lhs_copy is None:
            copy = _copy_of([*batch, problem.m, problem.k], [*lhs.batch, lhs.row, lhs.column])
            steps = tuple(dense_steps(batch, problem.m * problem.k))
            problem = replace(problem, lhs_copy=copy, lhs=Matrix(steps, problem.k, 1))
        if rhs.row != 1:
            copy = _copy_of([*batch, problem.n, problem.k], [*rhs.batch, rhs.column, rhs.row])
            steps = tuple(dense_steps(batch, problem.n * problem.k))
            problem = replace(problem, rhs_copy=copy, rhs=Matrix(steps, 1, problem.k))
        self.problem = problem

    def _operand(self, side: int, *, in_place: bool) -> tuple[Elements, Place]:
        """Where one side is read from after the copy that it needs; ``in_place`` decodes while reading."""
        problem = self.problem
        number = problem.operands[side]
        elements, place = self.elements[number], self.places[number]
        copy = (problem.lhs_copy, problem.rhs_copy)[side]
        if copy is None and not in_place and not elements.is_native:
            lhs = problem.lhs
            copy = _copy_of([*problem.batch, problem.m, problem.k], [*lhs.batch, lhs.row, lhs.column])
            steps = tuple(dense_steps(problem.batch, problem.m * problem.k))
            self.problem = replace(problem, lhs=Matrix(steps, problem.k, 1))
        if copy is None:
            return elements, place
        offset = self.reserve(copy.size * KIND_BITS[self.kind] // 8)
        kernel = CopyKernel(
            f"{self.symbol}.copy{side}", copy, elements, place[0], WORKSPACE, offset, source_offset=place[1]
        )
        self.phases.append(kernel.emit(self.builder, self.target))
        return dense(self.kind), (WORKSPACE, offset)

    def _parts(self, cut: SumParts) -> None:
        """Compute the parts of a sum apart, and add them in their order."""
        problem, parts = self.problem, cut.parts
        count = problem.batch_size * problem.m * problem.n
        unit = KIND_BITS[self.kind] // 8
        sums = self.reserve((parts + (cut.rest > 0)) * count * unit)
        self._part(cut.equal_parts(problem), ".part", 0, sums)
        if cut.rest:
            self._part(replace(problem, k=cut.rest), ".rest", parts * cut.length, sums + parts * count * unit)
        self._add_parts(sums, parts + (cut.rest > 0), count)

    def _part(self, problem: DotProblem, suffix: str, start: int, offset: int) -> None:
        """Emit one product of the parts, which begins at ``start`` of k, into workspace."""
        steps = {problem.operands[0]: problem.lhs.column, problem.operands[1]: problem.rhs.row}
        places = [
            (place[0], place[1] + start * steps[i] * self.elements[i].size) for i, place in enumerate(self.places)
        ]
        product = Product(
            problem,
            self.elements,
            dense(self.kind),
            self.target,
            self.symbol + suffix,
            (places[0], places[1]),
            (WORKSPACE, offset),
            self.builder,
            self.phases,
            self.workspace,
        )
        product.emit()
        self.workspace = product.workspace

    def _add_parts(self, offset: int, parts: int, count: int) -> None:
        b, sums = self.builder, dense(self.kind)
        arithmetic = Arithmetic.of(self.kind, self.target)
        with b.function(self.symbol, PARAMETERS) as (_, buffers, begin, end):
            source = at(b, buffer(b, buffers, WORKSPACE), offset)
            out = at(b, buffer(b, buffers, self.result_at[0]), self.result_at[1])
            loop = b.begin_loop(begin, end)
            element = at(b, source, scaled(b, loop.index, sums.size))
            inner = b.begin_loop(literal(1), literal(parts), carried=[sums.load(b, element)], guarded=parts < 2)
            value = sums.load(b, at(b, element, scaled(b, inner.index, count * sums.size)))
            total = b.end_loop(inner, [arithmetic.add(b, inner.carried[0], value)])[0]
            self.result.store(b, total, at(b, out, scaled(b, loop.index, self.result.size)))
            b.end_loop(loop)
        self.phases.append(Phase(self.symbol, count, self.target.machine.nanoseconds(ADD_CYCLES * parts)))

    def _zero_fill(self) -> None:
        """An empty sum: every element of the result is zero."""
        b = self.builder
        count = self.problem.batch_size * self.problem.m * self.problem.n
        zero = Arithmetic.of(self.kind, self.target).zero
        with b.function(self.symbol, PARAMETERS) as (_, buffers, begin, end):
            out = buffer(b, buffers, self.result_at[0])
            loop = b.begin_loop(begin, end)
            self.result.store(b, zero, at(b, out, scaled(b, loop.index, self.result.size)))
            b.end_loop(loop)
        self.phases.append(Phase(self.symbol, count, self.target.machine.nanoseconds(ADD_CYCLES)))


def by_several(problem: DotProblem, elements: Sequence[Elements], kind: str, target: Target) -> bool:
    """Whether narrow integers are multiplied several at a time, as they lie in memory."""
    left, right = (elements[number].element for number in problem.operands)
    if Quads.of(problem, left, right, kind, target) is not None:
        return True
    return can_pair(problem, left, right, kind, target)


def with_rows(problem: DotProblem) -> DotProblem:
    """The problem with a matrix on its right where it has a vector there."""
    return problem.exchanged() if problem.n == 1 and problem.m > 1 else problem


def _copy_of(extents: list[int], strides: list[int]) -> Copy:
    return Copy(tuple(Axis(extent, (step,)) for extent, step in zip(extents, strides)))
