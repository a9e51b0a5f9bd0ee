"""``dot_general`` and ``convolution`` on machines with threads: the kernels of the plan that is chosen, and the sums of parts.

Which plans there are is said by ``product_choice``.  Where there are few results and many terms, sums are cut into parts,
which a second launch adds in their order.
Numeric effect: *permitted*; the order of the sums follows from shapes, layouts, types, the width of a warp and what the
machine's matrix units take.
"""

from __future__ import annotations

from dataclasses import replace

from hlojit.ir.formats import ComplexType, ElementType, element_type
from hlojit.ir.graph import Instruction
from hlojit.llvm.product_elements import Elements, algorithm_elements
from hlojit.lowering.body import Body
from hlojit.lowering.candidates import library_way
from hlojit.lowering.grid_dot_plan import Parts, VectorPlan
from hlojit.lowering.grid_matrix_plan import MatrixPlan
from hlojit.lowering.grid_plan import THREADS
from hlojit.lowering.grid_product import GridProduct
from hlojit.lowering.index import delinearized, variable
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.target import Target
from hlojit.simt.dialect import Dialect
from hlojit.simt.frame import GridFrame
from hlojit.simt.matrix_products import MatrixProduct
from hlojit.simt.product_choice import ProductProblem, convolution_problem, dot_problem
from hlojit.simt.product_operands import Arithmetic, unit_bytes
from hlojit.simt.products import TiledProduct
from hlojit.simt.vector_products import VectorProduct


def emit_dot_general(
    instruction: Instruction, target: Target, dialect: Dialect, symbol: str, candidate: str = ""
) -> KernelCode:
    """Emit ``stablehlo.dot_general``."""
    return _emit(instruction, dot_problem(instruction, target), target, dialect, symbol, candidate)


def emit_convolution(
    instruction: Instruction, target: Target, dialect: Dialect, symbol: str, candidate: str = ""
) -> KernelCode:
    """Emit ``stablehlo.convolution``."""
    return _emit(instruction, convolution_problem(instruction, target), target, dialect, symbol, candidate)


def _emit(
    instruction: Instruction,
    problem: ProductProblem | None,
    target: Target,
    dialect: Dialect,
    symbol: str,
    candidate: str,
) -> KernelCode:
    frame = GridFrame(target, Body.of(instruction), dialect)
    if problem is None:
        return _emit_zeros(frame, instruction.result.tensor_type.element_type, symbol)
    plan, elements = problem.plan(candidate), problem.elements
    if isinstance(plan, VectorPlan):
        phases = [VectorProduct(frame, plan, elements).emit(symbol)]
    elif isinstance(plan, MatrixPlan):
        phases = [MatrixProduct(frame, plan, elements).emit(symbol)]
    else:
        phases = [TiledProduct(frame, plan, elements).emit(symbol)]
    way = library_way(candidate) if candidate else 0
    if plan.parts.count == 1 and way is not None:
        phases[0] = replace(phases[0], library=problem.library_call(way))
    workspace_bytes = plan.parts.workspace_bytes(problem.product, unit_bytes(elements[2].compute))
    if workspace_bytes:
        phases.append(_emit_sums(frame, problem.product, plan.parts, elements[2], f"{symbol}_sums"))
    return frame.code(phases, workspace_bytes)


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
