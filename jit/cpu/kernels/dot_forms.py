"""``dot_general`` on the CPU: brought into canonical form (``problem.canonical_dot``), and into real numbers.

Complex products become real ones of twice the width and depth (``complex_products``); ``dot.Product`` emits all others.
"""

from __future__ import annotations

from dataclasses import replace

from hlojit.cpu.kernels.complex_products import emit_complex_product
from hlojit.cpu.kernels.dot import Product, with_rows
from hlojit.cpu.kernels.dot_outputs import dot_epilogue
from hlojit.cpu.kernels.dot_panels import dense
from hlojit.ir.attributes import DotAlgorithm
from hlojit.ir.formats import ComplexType, ElementType, element_type
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.views import DotView
from hlojit.llvm.epilogue import Epilogue
from hlojit.llvm.product_elements import algorithm_elements
from hlojit.lowering.anchored_body import AnchoredBody
from hlojit.lowering.dot_parts import cut_sum
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


def emit_dot_group(group: AnchoredBody, target: Target, symbol: str) -> tuple[KernelCode, Epilogue] | None:
    """Emit ``stablehlo.dot_general`` that gives its results to what follows; None where that cannot be box by box."""
    lhs, rhs = (operand.tensor_type for operand in group.anchor.operands)
    result = group.anchor.result.tensor_type
    dot = DotView.of(group.anchor)
    problem = canonical_dot(lhs, rhs, dot.numbers)
    types = (lhs.element_type, rhs.element_type, result.element_type)
    return emit_product_group(group, problem, *types, target, symbol, dot.algorithm)


def emit_product_group(
    group: AnchoredBody,
    problem: DotProblem,
    lhs: ElementType,
    rhs: ElementType,
    result: ElementType,
    target: Target,
    symbol: str,
    algorithm: DotAlgorithm | None = None,
) -> tuple[KernelCode, Epilogue] | None:
    """Emit a product in canonical form that gives its results to what follows, or None; types as in ``emit_product``."""
    problem = with_rows(problem)
    if isinstance(result, ComplexType) or not problem.macs or cut_sum(problem) is not None:
        return None
    left, right, out = algorithm_elements(lhs, rhs, result, algorithm)
    epilogue = dot_epilogue(group, target, problem, out)
    if epilogue is None:
        return None
    product = Product(problem, [left, right], dense(out.compute), target, symbol, epilogue=epilogue)
    product.emit()
    return product.code(), epilogue


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
