"""``convolution`` on the CPU: which of its forms computes it.

Windows of one element become plain products (``dot_forms``), complex convolutions real ones (``complex_products``),
convolutions of one channel a group multiply vectors of channels (``depthwise``); all others read the input through windows
(``convolution``).
"""

from __future__ import annotations

import math

from hlojit.cpu.kernels.complex_products import emit_complex_convolution
from hlojit.cpu.kernels.convolution import Convolution, padded_image
from hlojit.cpu.kernels.depthwise import Depthwise, is_depthwise
from hlojit.cpu.kernels.dot_forms import Boxes, emit_product, emit_product_group
from hlojit.ir.formats import ComplexType
from hlojit.ir.graph import Instruction
from hlojit.llvm.product_elements import Elements, compute_kind
from hlojit.llvm.prologue import ComputedElements
from hlojit.lowering.anchored_body import AnchoredBody
from hlojit.lowering.body import Body
from hlojit.lowering.convolution_problem import ConvolutionProblem, canonical_convolution
from hlojit.lowering.dot_problem import Axis, DotProblem, Matrix, merge_axes, without_terms
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.prologue_plan import ProloguePlan
from hlojit.lowering.target import Target


def emit_convolution(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """Emit ``stablehlo.convolution``."""
    lhs, rhs = (operand.tensor_type for operand in instruction.operands)
    result = instruction.result.tensor_type
    problem = canonical_convolution(lhs, rhs, result, instruction.attributes)
    types = (lhs.element_type, rhs.element_type, result.element_type)
    if problem.macs == 0:
        return emit_product(without_terms(math.prod(result.shape)), *types, target, symbol)
    if isinstance(result.element_type, ComplexType):
        return emit_complex_convolution(problem, result.element_type, target, symbol)
    product = as_product(problem)
    if product is not None:
        return emit_product(product, *types, target, symbol)
    if is_depthwise(problem):
        image, weights, out = (Elements(element, compute_kind(*types)) for element in types)
        return Depthwise(problem, image, weights, out, target, symbol).emit()
    convolution = Convolution(problem, types, target, symbol)
    convolution.emit()
    return convolution.code()


def emit_convolution_group(group: AnchoredBody, target: Target, symbol: str) -> Boxes | None:
    """Emit ``stablehlo.convolution`` that gives its results to what follows; None where that cannot be box by box."""
    lhs, rhs = (operand.tensor_type for operand in group.anchor.operands)
    result = group.anchor.result.tensor_type
    problem = canonical_convolution(lhs, rhs, result, group.anchor.attributes)
    types = (lhs.element_type, rhs.element_type, result.element_type)
    if problem.macs == 0 or isinstance(result.element_type, ComplexType):
        return None
    product = as_product(problem)
    if product is not None:
        return emit_product_group(group, product, *types, target, symbol)
    if is_depthwise(problem):
        return None
    image = _computed_image(problem, group.operands[0], Elements(types[0], compute_kind(*types)), target)
    operands = group.operands if image is None else (image.plan.stream, *group.operands[1:])
    follows = None if group.is_alone else group
    convolution = Convolution(problem, types, target, symbol, group=follows, image=image)
    epilogue = convolution.emit()
    if epilogue is None and follows is not None:
        return None
    return Boxes(convolution.code(), epilogue, operands)


def _computed_image(
    problem: ConvolutionProblem, operand: int | Body, elements: Elements, target: Target
) -> ComputedElements | None:
    """The input as elements that its padded copy computes, or None where there is none, or it reads them from memory."""
    if isinstance(operand, int) or (problem.is_plain and elements.is_native):
        return None
    line = padded_image(problem, elements, "", (0, 0), 0)[0].line
    plan = ProloguePlan.of(operand, line, target.native_lanes(elements.compute)) if line is not None else None
    return None if plan is None else ComputedElements.of(plan, elements, target)


def as_product(problem: ConvolutionProblem) -> DotProblem | None:
    """A convolution with windows of one element and steps of one, as a matrix product; None for others."""
    if problem.groups > 1:
        return None
    for axis in problem.spatial:
        if axis.window > 1 or axis.stride > 1 or not axis.is_plain or axis.padded != axis.input:
            return None
    pixels = merge_axes([Axis(axis.output, (axis.input_step, axis.output_step)) for axis in problem.spatial])
    if len(pixels) > 1:
        return None
    pixel = pixels[0] if pixels else Axis(1, (0, 1))
    weights = Matrix((0,), problem.kernel_channel_step, problem.kernel_feature_step)
    if problem.output_feature_step == 1 and pixel.strides[1] in (problem.features, 1 if pixel.extent == 1 else 0):
        batch = Axis(problem.batch, (problem.input_batch_step, problem.output_batch_step))
        rows = merge_axes([batch, pixel])
        row = rows[0] if rows else Axis(1, (0, 0))
        if len(rows) == 1 or not rows:
            image = Matrix((0,), row.strides[0], problem.input_channel_step)
            return DotProblem((1,), row.extent, problem.features, problem.channels, image, weights)
        if problem.output_batch_step != pixel.extent * problem.features:
            return None
        image = Matrix((problem.input_batch_step,), pixel.strides[0], problem.input_channel_step)
        return DotProblem((problem.batch,), pixel.extent, problem.features, problem.channels, image, weights)
    if pixel.strides[1] == 1 and problem.output_feature_step == pixel.extent:
        if problem.batch > 1 and problem.output_batch_step != pixel.extent * problem.features:
            return None
        image = Matrix((problem.input_batch_step,), problem.input_channel_step, pixel.strides[0])
        filters = Matrix((0,), problem.kernel_feature_step, problem.kernel_channel_step)
        return DotProblem(
            (problem.batch,), problem.features, pixel.extent, problem.channels, filters, image, operands=(1, 0)
        )
    return None
