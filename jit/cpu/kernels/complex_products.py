"""Complex products as real ones: complex numbers are pairs of reals in memory, so that with

    lhs  M x 2K:  re im re im ...          rhs  2K x 2N:   re  im
                                                          -im  re

``lhs . rhs`` is the M x 2N of pairs that the complex product has, at the four multiplications that it needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlojit.cpu.kernels.addresses import PARAMETERS, ZERO, buffer, dot_product, literal, unflatten
from hlojit.cpu.kernels.convolution import Convolution
from hlojit.cpu.kernels.dot import RESULT, Product
from hlojit.cpu.kernels.dot_outputs import WORKSPACE, Place
from hlojit.cpu.kernels.dot_panels import dense
from hlojit.cpu.kernels.packing import CopyKernel
from hlojit.ir.formats import ComplexType
from hlojit.llvm.builder import LlvmBuilder
from hlojit.llvm.product_elements import Elements, at, scaled
from hlojit.lowering.convolution_problem import ConvolutionProblem
from hlojit.lowering.dot_problem import Axis, Copy, DotProblem, Matrix, dense_steps
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.target import Target


def pairs_of(copy: Copy) -> Copy:
    """A copy of complex elements as a copy of reals."""
    return Copy((*(Axis(axis.extent, (2 * axis.strides[0],)) for axis in copy.axes), Axis(2, (1,))))


PAIR_CYCLES = 8.0
"""Of an element that is read as two reals and written as four."""


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

    def emit(self, b: LlvmBuilder, target: Target) -> Phase:
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
        return Phase(self.symbol, Copy(tuple(outer)).size, target.machine.nanoseconds(last.extent * PAIR_CYCLES))


def emit_complex_product(problem: DotProblem, result: ComplexType, target: Target, symbol: str) -> KernelCode:
    """Emit a product of complex operands."""
    real = dense(result.component)
    left, right = problem.operands
    product = Product(problem, [real, real], real, target, symbol)
    batch, lhs, rhs = problem.batch, problem.lhs, problem.rhs
    places: list[Place] = [(left, 0), (right, 0)]
    copy = problem.lhs_copy
    if copy is None and lhs.column != 1 and problem.k > 1:
        sizes = zip([*batch, problem.m, problem.k], [*lhs.batch, lhs.row, lhs.column])
        copy = Copy(tuple(Axis(extent, (step,)) for extent, step in sizes))
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
    product.phases.append(pairs.emit(product.builder, target))
    k, n = 2 * problem.k, 2 * problem.n
    product.places = (places[0], places[1])
    product.problem = DotProblem(
        batch, problem.m, n, k,
        Matrix(tuple(2 * step for step in lhs.batch), 2 * lhs.row, 1),
        Matrix(tuple(dense_steps(batch, k * n)), n, 1),
    )  # fmt: skip
    product.emit()
    return product.code()


def emit_complex_convolution(
    problem: ConvolutionProblem, result: ComplexType, target: Target, symbol: str
) -> KernelCode:
    """Emit a convolution of complex operands: pairs are innermost, with copies into and out of that order."""
    real = dense(result.component)
    features = problem.features * problem.groups
    by_features = problem.input_group_step == problem.channels * problem.input_channel_step
    batches = problem.batch * (1 if by_features else problem.groups)
    channels = problem.channels * (problem.groups if by_features else 1)
    convolution = Convolution(problem, (real.element,) * 3, target, symbol)
    axes = [
        Axis(batches, (problem.input_batch_step,)),
        *(Axis(a.input, (a.input_step,)) for a in problem.spatial),
        Axis(channels, (problem.input_channel_step,)),
    ]
    copy = pairs_of(Copy(tuple(axes)))
    image = convolution.reserve(copy.size * real.size)
    builder, phases = convolution.builder, convolution.phases
    phases.append(CopyKernel(f"{symbol}.input", copy, real, 0, WORKSPACE, image).emit(builder, target))
    axes = [
        *(Axis(a.window, (a.kernel_step,)) for a in problem.spatial),
        Axis(problem.channels, (problem.kernel_channel_step,)),
        Axis(features, (problem.kernel_feature_step,)),
    ]
    pairs = PairMatrix(f"{symbol}.pairs", tuple(axes), real, (1, 0), 0)
    pairs = replace(pairs, offset=convolution.reserve(pairs.nbytes))
    if Copy(tuple(axes)).size:
        phases.append(pairs.emit(builder, target))
    out = convolution.reserve(problem.batch * problem.positions * 2 * features * real.size)
    inside = dense_steps([batches, *(a.input for a in problem.spatial), 2 * channels])
    kernel = dense_steps([*(a.window for a in problem.spatial), 2 * problem.channels, 2 * features])
    outside = dense_steps([problem.batch, *(a.output for a in problem.spatial), 2 * features])
    spatial = [
        replace(a, input_step=inside[1 + i], kernel_step=kernel[i], output_step=outside[1 + i])
        for i, a in enumerate(problem.spatial)
    ]
    convolution.places = ((WORKSPACE, image), (WORKSPACE, pairs.offset), (WORKSPACE, out))
    convolution.problem = replace(
        problem, spatial=tuple(spatial), channels=2 * problem.channels, features=2 * problem.features,
        input_batch_step=inside[0], input_channel_step=1,
        input_group_step=2 * problem.channels if by_features else problem.batch * inside[0],
        kernel_channel_step=2 * features, kernel_feature_step=1,
        output_batch_step=outside[0], output_feature_step=1,
    )  # fmt: skip
    convolution.emit()
    dimensions = [(problem.batch, outside[0], problem.output_batch_step), (features, 2, problem.output_feature_step)]
    dimensions += [(a.output, step, a.output_step) for a, step in zip(problem.spatial, outside[1:])]
    dimensions.sort(key=lambda d: (d[2], d[0]), reverse=True)
    copy = Copy((*(Axis(extent, (step,)) for extent, step, _ in dimensions), Axis(2, (1,))))
    phases.append(
        CopyKernel(f"{symbol}.result", copy, real, WORKSPACE, RESULT, 0, source_offset=out).emit(builder, target)
    )
    return convolution.code()
