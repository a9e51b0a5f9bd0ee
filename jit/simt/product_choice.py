"""What a ``dot_general`` or ``convolution`` is as a product, and the plans by which it could be computed.

* few rows: vectors (``vector_products``);
* elements that matrix instructions take, without loss: those of warps (``matrix_products``);
* everything else: tiles in shared memory (``products``).

Which of these it is, and into which parts its sums are cut, follows from shapes, types, the width of a warp and the inputs
that the machine's matrix units take; that is the order of the sums.
Plans beside the first keep it (``plans``) or do not (``others``, a library); who measures says which may
be taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, final

from hlojit.ir.attributes import DotAlgorithm
from hlojit.ir.formats import ComplexType, FloatFormat, element_type
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.dot_algorithms import TF32
from hlojit.ir.ops.views import DotView
from hlojit.llvm.product_elements import Elements, algorithm_elements
from hlojit.lowering.candidates import MOST_WAYS, Candidate, library_name, library_way
from hlojit.lowering.convolution_problem import canonical_convolution
from hlojit.lowering.grid_dot_plan import Parts, TiledPlan, VectorPlan, other_parts, tiled_plans, vector_plans
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.grid_matrix_plan import MatrixInputs, MatrixPlan, matrix_inputs, matrix_plans
from hlojit.lowering.grid_product import GridProduct, convolution_product, dot_product_of
from hlojit.lowering.library_product import LibraryProduct, library_product
from hlojit.lowering.target import Target
from hlojit.simt.matrix_products import in_memory
from hlojit.simt.product_operands import unit_bytes

TripleOfElements: TypeAlias = tuple[Elements, Elements, Elements]
ProductPlan: TypeAlias = VectorPlan | MatrixPlan | TiledPlan


@final
@dataclass(frozen=True, slots=True)
class ProductProblem:
    """A product, the elements of lhs, rhs and result, and what matrix instructions would multiply."""

    product: GridProduct
    elements: TripleOfElements
    inputs: MatrixInputs | None
    machine: GridMachine
    algorithm: DotAlgorithm | None
    precision: tuple[str, ...]

    def of_buffers(self, numbers: Sequence[int]) -> ProductProblem:
        """The product whose operands are these of a kernel's buffers."""
        lhs, rhs = (replace(each, number=numbers[each.number]) for each in (self.product.lhs, self.product.rhs))
        return replace(self, product=replace(self.product, lhs=lhs, rhs=rhs))

    def plans(self, parts: Parts | None = None) -> list[ProductPlan]:
        """Plans that add in the same order, the best by estimate first; ``parts`` are the sums' if not what the shape says."""
        itemsizes = self.elements[0].size, self.elements[1].size
        if parts is None and (vectors := vector_plans(self.product, itemsizes, self.machine)):
            return [*vectors]
        if self.inputs is not None:
            memory = in_memory(self.elements[0], self.inputs.lhs), in_memory(self.elements[1], self.inputs.rhs)
            if matrices := matrix_plans(self.product, self.inputs, memory, self.machine, parts):
                return [*matrices]
        return [*tiled_plans(self.product, unit_bytes(self.elements[2].compute), itemsizes, self.machine, parts)]

    def others(self) -> list[ProductPlan]:
        """Plans that add in other orders."""
        first = self.plans()[0]
        if isinstance(first, VectorPlan):
            return []
        return [self.plans(parts)[0] for parts in other_parts(self.product, first.parts)]

    def plan(self, candidate: str) -> ProductPlan:
        """The plan of a name, the first for none; beside a library's call one that takes a single launch."""
        plans = self.plans()
        if library_way(candidate) is not None:
            return plans[0] if plans[0].parts.count == 1 else self.plans(Parts(1, self.product.k))[0]
        if not candidate:
            return plans[0]
        return next(plan for plan in (*plans, *self.others()) if plan.candidate.name == candidate)

    def library_call(self) -> LibraryProduct | None:
        """The call of a library that may compute the product instead, if there is one.

        Sums of 8-bit floats have fewer bits than f32 within an instruction, and between them where the algorithm allows it.
        """
        lhs, rhs, result = self.elements
        narrowed = {each.rounded_to for each in (lhs, rhs)}
        if narrowed not in ({None}, {TF32}) or result.compute == "f64":
            return None
        names = lhs.element.name, rhs.element.name, result.element.name
        imprecise = self.algorithm is not None and self.algorithm.allow_imprecise_accumulation
        exact = self.algorithm is not None or "HIGHEST" in self.precision
        if names[0].startswith("f8") and exact and not imprecise:
            return None
        return library_product(self.product, names, rounds_to_tf32=narrowed == {TF32}, fast=imprecise)


def dot_problem(instruction: Instruction, target: Target) -> ProductProblem | None:
    """A ``dot_general``, or None if its sums have no terms or there are no sums."""
    lhs, rhs = (operand.tensor_type for operand in instruction.operands)
    dot = DotView.of(instruction)
    contracted = math.prod(lhs.shape[d] for d in dot.numbers.lhs_contracting)
    if not contracted or not instruction.result.tensor_type.size:
        return None
    return _problem(instruction, target, dot_product_of(lhs, rhs, dot.numbers), dot.algorithm)


def convolution_problem(instruction: Instruction, target: Target) -> ProductProblem | None:
    """A ``convolution``, or None if its sums have no terms or there are no sums."""
    lhs, rhs = (operand.tensor_type for operand in instruction.operands)
    problem = canonical_convolution(lhs, rhs, instruction.result.tensor_type, instruction.attributes)
    if not problem.macs or not lhs.size:
        return None
    return _problem(instruction, target, convolution_product(problem), None)


def dot_matrix_type(instruction: Instruction, target: Target) -> str:
    """What matrix instructions multiply for a ``dot_general``, or an empty string where others compute it."""
    return _matrix_type(dot_problem(instruction, target))


def convolution_matrix_type(instruction: Instruction, target: Target) -> str:
    """What matrix instructions multiply for a ``convolution``, or an empty string where others compute it."""
    return _matrix_type(convolution_problem(instruction, target))


def _matrix_type(problem: ProductProblem | None) -> str:
    plan = None if problem is None else problem.plan("")
    return plan.inputs.lhs.name if isinstance(plan, MatrixPlan) else ""


def dot_candidates(instruction: Instruction, target: Target) -> tuple[Candidate, ...]:
    """The ways to compute a ``dot_general``, the default first."""
    return _candidates(dot_problem(instruction, target))


def convolution_candidates(instruction: Instruction, target: Target) -> tuple[Candidate, ...]:
    """The ways to compute a ``convolution``, the default first."""
    return _candidates(convolution_problem(instruction, target))


def dot_library_call(instruction: Instruction, target: Target) -> LibraryProduct | None:
    """The call of a library that may compute a ``dot_general``, if there is one."""
    return _library_call(dot_problem(instruction, target))


def convolution_library_call(instruction: Instruction, target: Target) -> LibraryProduct | None:
    """The call of a library that may compute a ``convolution``, if there is one."""
    return _library_call(convolution_problem(instruction, target))


def _library_call(problem: ProductProblem | None) -> LibraryProduct | None:
    return None if problem is None else problem.library_call()


def _candidates(problem: ProductProblem | None) -> tuple[Candidate, ...]:
    if problem is None:
        return ()
    # Nobody says in which order a library adds.
    names = [library_name(way) for way in range(MOST_WAYS)] if problem.library_call() else []
    plans = (*problem.plans(), *problem.others())
    return (*(plan.candidate for plan in plans), *(Candidate(name, name) for name in names))


def _problem(
    instruction: Instruction, target: Target, product: GridProduct, algorithm: DotAlgorithm | None
) -> ProductProblem:
    assert target.grid is not None
    machine = target.grid
    types = [value.tensor_type.element_type for value in (*instruction.operands, instruction.result)]
    if isinstance(types[2], ComplexType):
        product, types = product.as_reals(), [element_type(types[2].component)] * 3
    elements = algorithm_elements(types[0], types[1], types[2], algorithm)
    by_side = elements[product.lhs.number], elements[product.rhs.number], elements[2]
    precision = instruction.attributes.get("precision_config") or ("DEFAULT",)
    inputs = None
    if not vector_plans(product, (by_side[0].size, by_side[1].size), machine):
        by_side, inputs = _matrix_inputs(by_side, algorithm, precision, machine)
    return ProductProblem(product, by_side, inputs, machine, algorithm, precision)


def _matrix_inputs(
    elements: TripleOfElements, algorithm: DotAlgorithm | None, precision: tuple[str, ...], machine: GridMachine
) -> tuple[TripleOfElements, MatrixInputs | None]:
    """What matrix instructions would multiply, and operands that are rounded to it where that is allowed."""
    lhs, rhs, result = elements
    if _allows_tf32(algorithm, precision, machine):
        lhs, rhs = _narrowed(lhs), _narrowed(rhs)
    imprecise = algorithm is not None and algorithm.allow_imprecise_accumulation
    types = [each.rounded_to or each.element for each in (lhs, rhs)]
    found = matrix_inputs(types[0], types[1], result.compute, machine, imprecise=imprecise)
    return (elements, None) if found is None else ((lhs, rhs, result), found)


def _allows_tf32(algorithm: DotAlgorithm | None, precision: tuple[str, ...], machine: GridMachine) -> bool:
    """Whether operands of f32 may lose bits: an algorithm says so, or the precision on a machine that is told to use it."""
    if algorithm is not None:
        return algorithm.lhs_precision_type == algorithm.rhs_precision_type == "tf32"
    return machine.rounds_to_tf32 and "HIGHEST" not in precision


def _narrowed(elements: Elements) -> Elements:
    is_single = isinstance(elements.element, FloatFormat) and elements.element.name == "f32"
    return replace(elements, rounded_to=TF32) if is_single and elements.rounded_to is None else elements
