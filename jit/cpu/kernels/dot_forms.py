"""``dot_general`` on the CPU: brought into canonical form (``problem.canonical_dot``), and into real numbers.

Complex products become real ones of twice the width and depth (``complex_products``); ``dot.Product`` emits all others.
"""

from __future__ import annotations

from dataclasses import replace

from hlojit.cpu.kernels.complex_products import emit_complex_product
from hlojit.cpu.kernels.dot import Product
from hlojit.ir.attributes import DotAlgorithm
from hlojit.ir.formats import ComplexType, ElementType, element_type
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.views import DotView
from hlojit.llvm.product_elements import algorithm_elements
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
    left, right, out = algorithm_elements(lhs, rhs, result, algorithm)
    product = Product(problem, [left, right], out, target, symbol)
    product.emit()
    return product.code()
