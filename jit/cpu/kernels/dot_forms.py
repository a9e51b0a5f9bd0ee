"""``dot_general`` on the CPU: brought into canonical form (``problem.canonical_dot``), and into real numbers.

Complex products become real ones of twice the width and depth (``complex_products``); ``dot.Product`` emits all others.
"""

from __future__ import annotations

from dataclasses import replace

from hlojit.cpu.kernels.complex_products import emit_complex_product
from hlojit.cpu.kernels.dot import Product
from hlojit.cpu.kernels.elements import Elements, compute_kind
from hlojit.ir.attributes import DotAlgorithm
from hlojit.ir.formats import ComplexType, ElementType, FloatFormat, element_type, find_element_type
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.views import DotView
from hlojit.lowering.dot_problem import DotProblem, canonical_dot
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target


def emit_dot_general(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """Emit ``stablehlo.dot_general``."""
    lhs, rhs = (operand.tensor_type for operand in instruction.operands)
    result = instruction.result.tensor_type
    dot = DotView.of(instruction)
    problem = canonical_dot(lhs, rhs, dot.numbers)
    types = (lhs.element_type, rhs.element_type, result.element_type)
    return emit_product(problem, *types, target, symbol, dot.algorithm)


def emit_product(
    problem: DotProblem,
    lhs: ElementType,
    rhs: ElementType,
    result: ElementType,
    target: Target,
    symbol: str,
    algorithm: DotAlgorithm | None = None,
) -> KernelCode:
    """Emit a product in canonical form; ``lhs`` and ``rhs`` are the types of the instruction's operands 0 and 1."""
    if isinstance(result, ComplexType) and problem.macs:
        return emit_complex_product(problem, result, target, symbol)
    if isinstance(result, ComplexType):
        problem, result = replace(problem, n=2 * problem.n), element_type(result.component)
        lhs = rhs = result
    kind = compute_kind(lhs, rhs, result)
    elements = [Elements(lhs, kind), Elements(rhs, kind)]
    if algorithm is not None and isinstance(result, FloatFormat):
        kind = "f64" if algorithm.accumulation_type == "f64" else kind
        precisions = (
            (algorithm.lhs_precision_type, algorithm.lhs_component_count),
            (algorithm.rhs_precision_type, algorithm.rhs_component_count),
        )
        elements = [_narrowed(element, kind, *precision) for element, precision in zip((lhs, rhs), precisions)]
    product = Product(problem, elements, Elements(result, kind), target, symbol)
    product.emit()
    return product.code()


def _narrowed(element: ElementType, kind: str, precision: str, components: int) -> Elements:
    """Elements rounded as a dot algorithm asks; several components together are as good as the element itself."""
    narrow = find_element_type(precision)
    if components > 1 or not isinstance(narrow, FloatFormat) or not isinstance(element, FloatFormat):
        return Elements(element, kind)
    if narrow.bits >= element.bits:
        return Elements(element, kind)
    return Elements(element, kind, narrow)
