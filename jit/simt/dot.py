"""``dot_general`` and ``convolution`` on machines with threads: which kernel computes them, and the sums of parts.

* few rows: ``vector_products``;
* elements that matrix instructions take, without loss: those of warps (``matrix_products``);
* everything else: tiles in shared memory (``products``).

Where there are few results and many terms, sums are cut into parts, which a second launch adds in their order.
Numeric effect: *permitted*; the order of the sums follows from shapes, types and the width of a warp.
"""

from __future__ import annotations

import math
from dataclasses import replace

from hlojit.ir.attributes import DotAlgorithm
from hlojit.ir.formats import ComplexType, ElementType, FloatFormat, element_type
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.views import DotView
from hlojit.llvm.product_elements import Elements, algorithm_elements
from hlojit.lowering.body import Body
from hlojit.lowering.convolution_problem import canonical_convolution
from hlojit.lowering.grid_dot_plan import Parts, TiledPlan, VectorPlan, plan_tiles, plan_vectors
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.grid_matrix_plan import TF32_FORMAT, MatrixInputs, MatrixPlan, matrix_inputs, plan_matrices
from hlojit.lowering.grid_plan import THREADS
from hlojit.lowering.grid_product import GridProduct, convolution_product, dot_product_of
from hlojit.lowering.index import delinearized, variable
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.library_product import library_product
from hlojit.lowering.target import Target
from hlojit.simt.dialect import Dialect
from hlojit.simt.frame import GridFrame
from hlojit.simt.matrix_products import MatrixProduct
from hlojit.simt.product_operands import Arithmetic, unit_bytes
from hlojit.simt.products import TiledProduct
from hlojit.simt.vector_products import VectorProduct

TripleOfElements = tuple[Elements, Elements, Elements]


def emit_dot_general(instruction: Instruction, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """Emit ``stablehlo.dot_general``."""
    lhs, rhs = (operand.tensor_type for operand in instruction.operands)
    dot = DotView.of(instruction)
    frame = GridFrame(target, Body.of(instruction), dialect)
    contracted = math.prod(lhs.shape[d] for d in dot.numbers.lhs_contracting)
    if not contracted or not instruction.result.tensor_type.size:
        return _emit_zeros(frame, instruction.result.tensor_type.element_type, symbol)
    return _emit_product(frame, instruction, dot_product_of(lhs, rhs, dot.numbers), dot.algorithm, symbol)


def emit_convolution(instruction: Instruction, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """Emit ``stablehlo.convolution``."""
    lhs, rhs = (operand.tensor_type for operand in instruction.operands)
    result = instruction.result.tensor_type
    frame = GridFrame(target, Body.of(instruction), dialect)
    problem = canonical_convolution(lhs, rhs, result, instruction.attributes)
    if not problem.macs or not lhs.size:
        return _emit_zeros(frame, result.element_type, symbol)
    return _emit_product(frame, instruction, convolution_product(problem), None, symbol)


def _emit_product(
    frame: GridFrame, instruction: Instruction, product: GridProduct, algorithm: DotAlgorithm | None, symbol: str
) -> KernelCode:
    types = [value.tensor_type.element_type for value in (*instruction.operands, instruction.result)]
    if isinstance(types[2], ComplexType):
        product, types = product.as_reals(), [element_type(types[2].component)] * 3
    elements = algorithm_elements(types[0], types[1], types[2], algorithm)
    by_side = elements[product.lhs.number], elements[product.rhs.number], elements[2]
    assert frame.target.grid is not None
    machine = frame.target.grid
    unit = unit_bytes(elements[2].compute)
    itemsizes = by_side[0].size, by_side[1].size
    vectors = plan_vectors(product, itemsizes, machine)
    inputs = _matrix_inputs(instruction, by_side, algorithm, machine) if vectors is None else None
    matrices = None
    if inputs is not None:
        by_side, chosen = inputs
        matrices = plan_matrices(product, chosen, itemsizes, machine)
    plan: VectorPlan | MatrixPlan | TiledPlan
    if vectors is not None:
        plan = vectors
        phases = [VectorProduct(frame, vectors, by_side).emit(symbol)]
    elif matrices is not None:
        plan = matrices
        phases = [MatrixProduct(frame, matrices, by_side).emit(symbol)]
    else:
        plan = tiles = plan_tiles(product, unit, itemsizes, machine)
        phases = [TiledProduct(frame, tiles, by_side).emit(symbol)]
    if len(phases) == 1:
        phases[0] = replace(phases[0], library=_library_call(instruction, product, by_side, algorithm))
    workspace_bytes = plan.parts.workspace_bytes(product, unit)
    if workspace_bytes:
        phases.append(_emit_sums(frame, product, plan.parts, by_side[2], f"{symbol}_sums"))
    return frame.code(phases, workspace_bytes)


def _library_call(
    instruction: Instruction, product: GridProduct, elements: TripleOfElements, algorithm: DotAlgorithm | None
) -> str:
    """The call of a library that may compute a product instead, or an empty string.

    Sums of 8-bit floats have fewer bits than f32 within an instruction, and between them where the algorithm allows it.
    """
    lhs, rhs, result = elements
    narrowed = {each.rounded_to for each in (lhs, rhs)}
    if narrowed not in ({None}, {TF32_FORMAT}) or result.compute == "f64":
        return ""
    names = lhs.element.name, rhs.element.name, result.element.name
    imprecise = algorithm is not None and algorithm.allow_imprecise_accumulation
    exact = algorithm is not None or "HIGHEST" in _precision(instruction)
    if names[0].startswith("f8") and exact and not imprecise:
        return ""
    call = library_product(product, names, rounds_to_tf32=narrowed == {TF32_FORMAT}, fast=imprecise)
    return "" if call is None else call.to_text()


def _precision(instruction: Instruction) -> tuple[str, ...]:
    return instruction.attributes.get("precision_config") or ("DEFAULT",)


def _matrix_inputs(
    instruction: Instruction, elements: TripleOfElements, algorithm: DotAlgorithm | None, machine: GridMachine
) -> tuple[TripleOfElements, MatrixInputs] | None:
    """What matrix instructions would multiply, and operands that are rounded to it where that is allowed."""
    lhs, rhs, result = elements
    if _allows_tf32(instruction, algorithm, machine):
        lhs, rhs = _narrowed(lhs), _narrowed(rhs)
    imprecise = algorithm is not None and algorithm.allow_imprecise_accumulation
    types = [each.rounded_to or each.element for each in (lhs, rhs)]
    found = matrix_inputs(types[0], types[1], result.compute, machine, imprecise=imprecise)
    return None if found is None else ((lhs, rhs, result), found)


def _allows_tf32(instruction: Instruction, algorithm: DotAlgorithm | None, machine: GridMachine) -> bool:
    """Whether operands of f32 may lose bits: an algorithm says so, or the precision on a machine that is told to use it."""
    if algorithm is not None:
        return algorithm.lhs_precision_type == algorithm.rhs_precision_type == "tf32"
    return machine.rounds_to_tf32 and "HIGHEST" not in _precision(instruction)


def _narrowed(elements: Elements) -> Elements:
    is_single = isinstance(elements.element, FloatFormat) and elements.element.name == "f32"
    return replace(elements, rounded_to=TF32_FORMAT) if is_single and elements.rounded_to is None else elements


def _emit_sums(frame: GridFrame, product: GridProduct, parts: Parts, result: Elements, symbol: str) -> Phase:
    """Add the parts of all sums in their order: a thread a result."""
    b, count = frame.builder, product.results
    arithmetic = Arithmetic(b, result.compute)
    workspace_bytes = parts.workspace_bytes(product, unit_bytes(result.compute))
    with frame.kernel(symbol, THREADS, workspace_bytes=workspace_bytes) as (workspace,):
        number = b.global_thread()

        def add() -> None:
            total = b.load(result.compute, b.element_pointer(workspace, result.compute, number))
            loop = b.begin_loop(b.constant("i64", 1), b.constant("i64", parts.count), 1, [total])
            place = b.add(b.mul(loop.index, b.constant("i64", count)), number)
            value = b.load(result.compute, b.element_pointer(workspace, result.compute, place))
            (total,) = b.end_loop(loop, [arithmetic.add(loop.carried[0], value)])
            frame.access.variables["number"] = number
            place_of = product.result_place(
                *delinearized(variable("number", 0, count - 1), (product.batch, product.m, product.n))
            )
            encoded = result.encode(b, total)
            b.store(encoded, b.element_pointer(frame.access.bases[-1], encoded.kind, frame.access.uniform(place_of)))

        b.when(b.icmp("slt", number, b.constant("i64", count)), add)
    blocks = -(-count // THREADS)
    assert frame.target.grid is not None
    return frame.phase(symbol, blocks, workspace_bytes / frame.target.grid.memory_bandwidth / blocks)


def _emit_zeros(frame: GridFrame, element: ElementType, symbol: str) -> KernelCode:
    """Sums of nothing."""
    b, access_size = frame.builder, 1
    real = element_type(element.component) if isinstance(element, ComplexType) else element
    access_size = 2 if isinstance(element, ComplexType) else 1
    elements = algorithm_elements(real, real, real, None)[2]
    size = frame.body.roots[0].tensor_type.size * access_size
    with frame.kernel(symbol, THREADS):
        number = b.global_thread()

        def write() -> None:
            zero = elements.encode(b, b.constant(elements.compute, 0))
            b.store(zero, b.element_pointer(frame.access.bases[-1], zero.kind, number))

        b.when(b.icmp("slt", number, b.constant("i64", size)), write)
    return frame.code((frame.phase(symbol, -(-size // THREADS), 1000.0),))
