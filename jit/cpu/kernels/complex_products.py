"""Complex products as real ones: complex numbers are pairs of reals in memory, so that with

    lhs  M x 2K:  re im re im ...          rhs  2K x 2N:   re  im
                                                          -im  re

``lhs . rhs`` is the M x 2N of pairs that the complex product has, at the four multiplications that it needs.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlojit.cpu.kernels.dot import Product
from hlojit.cpu.kernels.dot_panels import PARAMETERS, WORKSPACE, Place, dense
from hlojit.cpu.kernels.elements import Elements, at, scaled
from hlojit.cpu.kernels.packing import ZERO, CopyKernel, buffer, dot_product, literal, unflatten
from hlojit.cpu.kernels.problem import Axis, Copy, DotProblem, Matrix, dense_steps
from hlojit.ir.formats import ComplexType, element_type
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.llvm_builder import LlvmBuilder
from hlojit.lowering.target import Target


def pairs_of(copy: Copy) -> Copy:
    """A copy of complex elements as a copy of reals."""
    return Copy((*(Axis(axis.extent, (2 * axis.strides[0],)) for axis in copy.axes), Axis(2, (1,))))


@dataclass(frozen=True, slots=True)
class PairMatrix:
    """A launch that writes a complex right operand as the real one of twice the rows and columns.

    ``axes`` are the operand's dimensions (element strides), the last two being k and n; the result is dense.
    """

    symbol: str
    axes: tuple[Axis, ...]
    elements: Elements
    source: Place
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes written."""
        return 4 * Copy(self.axes).size * self.elements.size

    def emit(self, b: LlvmBuilder) -> Phase:
        """Emit the launch; a task is one row of n."""
        *outer, last = self.axes
        size, width = self.elements.size, 2 * last.extent * self.elements.size
        with b.function(self.symbol, PARAMETERS) as (_, buffers, begin, end):
            source = at(b, buffer(b, buffers, self.source[0]), self.source[1])
            out = at(b, buffer(b, buffers, WORKSPACE), self.offset)
            loop = b.begin_loop(begin, end)
            coordinates = unflatten(b, loop.index, [axis.extent for axis in outer])
            row = at(b, source, dot_product(b, coordinates, [2 * axis.strides[0] * size for axis in outer]))
            upper = at(b, out, scaled(b, loop.index, 2 * width))
            lower = at(b, upper, width)
            inner = b.begin_loop(ZERO, literal(last.extent))
            element = at(b, row, scaled(b, inner.index, 2 * last.strides[0] * size))
            real, imaginary = self.elements.load(b, element), self.elements.load(b, at(b, element, size))
            place = scaled(b, inner.index, 2 * size)
            for value, line, shift in ((real, upper, 0), (imaginary, upper, size), (real, lower, size)):
                self.elements.store(b, value, at(b, at(b, line, place), shift))
            self.elements.store(b, b.fneg(imaginary), at(b, lower, place))
            b.end_loop(inner)
            b.end_loop(loop)
        return Phase(self.symbol, Copy(tuple(outer)).size, last.extent * 2.0)


def emit_complex_product(problem: DotProblem, result: ComplexType, target: Target, symbol: str) -> KernelCode:
    """Emit a product of complex operands."""
    real = dense(result.component)
    assert isinstance(element_type(result.component), type(real.element))
    left, right = problem.operands
    product = Product(problem, [real, real], real, target, symbol)
    batch, lhs, rhs = problem.batch, problem.lhs, problem.rhs
    places: list[Place] = [(left, 0), (right, 0)]
    copy = problem.lhs_copy
    if copy is None and lhs.column != 1 and problem.k > 1:
        axes = zip([*batch, problem.m, problem.k], [*lhs.batch, lhs.row, lhs.column])
        copy = Copy(tuple(Axis(extent, (step,)) for extent, step in axes))
        lhs = Matrix(tuple(dense_steps(batch, problem.m * problem.k)), problem.k, 1)
    if copy is not None:
        copy = pairs_of(copy)
        places[0] = WORKSPACE, product.reserve(copy.size * real.size)
        kernel = CopyKernel(f"{symbol}.copy0", copy, real, left, WORKSPACE, places[0][1])
        product.phases.append(kernel.emit(product.builder, target))
    if problem.rhs_copy is not None:
        copy = pairs_of(problem.rhs_copy)
        places[1] = WORKSPACE, product.reserve(copy.size * real.size)
        kernel = CopyKernel(f"{symbol}.copy1", copy, real, right, WORKSPACE, places[1][1])
        product.phases.append(kernel.emit(product.builder, target))
    extents, strides = [*batch, problem.k, problem.n], [*rhs.batch, rhs.row, rhs.column]
    axes = tuple(Axis(extent, (step,)) for extent, step in zip(extents, strides))
    pairs = PairMatrix(f"{symbol}.pairs", axes, real, places[1], 0)
    places[1] = WORKSPACE, product.reserve(pairs.nbytes)
    pairs = PairMatrix(pairs.symbol, axes, real, pairs.source, places[1][1])
    product.phases.append(pairs.emit(product.builder))
    k, n = 2 * problem.k, 2 * problem.n
    product.places = (places[0], places[1])
    product.problem = DotProblem(
        batch, problem.m, n, k,
        Matrix(tuple(2 * step for step in lhs.batch), 2 * lhs.row, 1),
        Matrix(tuple(dense_steps(batch, k * n)), n, 1),
    )  # fmt: skip
    product.emit()
    return product.code()
