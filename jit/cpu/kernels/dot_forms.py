"""``dot_general`` on the CPU: brought into canonical form (``problem.canonical_dot``), and into real numbers.

Complex products become real ones of twice the width and depth (``complex_products``); ``dot.Product`` emits all others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlojit.cpu.kernels.complex_products import emit_complex_product
from hlojit.cpu.kernels.dot import Product, by_several, with_rows
from hlojit.cpu.kernels.dot_outputs import dot_epilogue
from hlojit.cpu.kernels.dot_panels import can_compute_right, dense, pays_to_compute
from hlojit.cpu.kernels.dot_rows import can_compute_columns, prefers_rows
from hlojit.ir.attributes import DotAlgorithm
from hlojit.ir.formats import ComplexType, ElementType, element_type
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.views import DotView
from hlojit.llvm.epilogue import Epilogue
from hlojit.llvm.product_elements import Elements, algorithm_elements
from hlojit.llvm.prologue import ComputedElements
from hlojit.lowering.anchored_body import AnchoredBody
from hlojit.lowering.body import Body
from hlojit.lowering.dot_parts import cut_sum
from hlojit.lowering.dot_problem import DotProblem, canonical_dot
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.prologue_plan import ProloguePlan
from hlojit.lowering.target import Target


@dataclass(frozen=True)
class Boxes:
    """An anchor's kernel that gives its results box by box to what follows, if anything does."""

    code: KernelCode
    epilogue: Epilogue | None
    operands: tuple[int | Body, ...]
    """Of the anchor, as in ``AnchoredBody``: bodies of those that have to be in memory before."""


def emit_dot_general(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """Emit ``stablehlo.dot_general``."""
    lhs, rhs = (operand.tensor_type for operand in instruction.operands)
    result = instruction.result.tensor_type
    dot = DotView.of(instruction)
    problem = canonical_dot(lhs, rhs, dot.numbers)
    types = (lhs.element_type, rhs.element_type, result.element_type)
    return emit_product(problem, *types, target, symbol, dot.algorithm)


def emit_dot_group(group: AnchoredBody, target: Target, symbol: str) -> Boxes | None:
    """Emit ``stablehlo.dot_general`` between what computes its operands and what follows, as far as that can be."""
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
) -> Boxes | None:
    """Emit a product in canonical form between what computes its operands and what follows; types as in ``emit_product``.

    None where it can give no boxes to what follows.
    """
    problem = with_rows(problem)
    if isinstance(result, ComplexType) or not problem.macs or cut_sum(problem) is not None:
        return None
    left, right, out = algorithm_elements(lhs, rhs, result, algorithm)
    elements, operands = [left, right], list(group.operands)
    number = problem.operands[1]
    computed = (
        None
        if by_several(problem, elements, out.compute, target)
        else _computed(problem, operands[number], elements[number], target)
    )
    if computed is not None:
        elements[number], operands[number] = computed, computed.plan.stream
    epilogue = None
    if not group.is_alone:
        epilogue = dot_epilogue(group, target, problem, out)
        if epilogue is None:
            return None
        out = dense(out.compute)
    product = Product(problem, elements, out, target, symbol, epilogue=epilogue)
    product.emit()
    return Boxes(product.code(), epilogue, tuple(operands))


def _computed(problem: DotProblem, operand: int | Body, elements: Elements, target: Target) -> ComputedElements | None:
    """The right operand as elements that the product computes itself, or None where it reads them from memory."""
    if isinstance(operand, int) or problem.rhs_copy is not None:
        return None
    lanes = target.native_lanes(elements.compute)
    by_rows = prefers_rows(problem, elements.compute, target)
    if problem.rhs.row != 1 and (by_rows or problem.rhs.column != 1):
        return None
    plan = ProloguePlan.of(operand, problem.k if problem.rhs.row == 1 else problem.n, lanes)
    if plan is None:
        return None
    found = ComputedElements.of(plan, elements, target)
    if by_rows:
        return found if can_compute_columns(problem, found, target) else None
    fits = can_compute_right(problem, found, target) and pays_to_compute(problem, found, target)
    return found if fits else None


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
