"""``dot_general`` and ``convolution`` on machines with threads: the kernels of the plan that is chosen, and the sums of parts.

Which plans there are is said by ``product_choice``.  Where there are few results and many terms, sums are cut into parts,
which a second launch adds in their order.  Of an anchored fusion what follows is computed where sums would be written;
where a library is to compute the product, the candidate of its name, it is a launch of its own.
Numeric effect: *permitted*; the order of the sums follows from shapes, layouts, types, the width of a warp and what the
machine's matrix units take.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hlojit.ir.errors import UnsupportedError
from hlojit.ir.formats import ComplexType, ElementType, element_type
from hlojit.ir.graph import Instruction
from hlojit.ir.ops import internal
from hlojit.llvm.product_elements import algorithm_elements
from hlojit.lowering.anchored_body import AnchoredBody
from hlojit.lowering.body import Body
from hlojit.lowering.candidates import library_way
from hlojit.lowering.grid_dot_plan import Parts, VectorPlan
from hlojit.lowering.grid_matrix_plan import MatrixPlan
from hlojit.lowering.grid_plan import THREADS
from hlojit.lowering.index import constant, delinearized, variable
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.library_product import LibraryProduct
from hlojit.lowering.target import Target
from hlojit.simt.dialect import Dialect
from hlojit.simt.elementwise import emit_loop_phase
from hlojit.simt.frame import GridFrame
from hlojit.simt.matrix_products import MatrixProduct
from hlojit.simt.product_choice import ProductPlan, ProductProblem, convolution_problem, dot_problem
from hlojit.simt.product_operands import Arithmetic
from hlojit.simt.product_results import Outputs
from hlojit.simt.products import TiledProduct
from hlojit.simt.vector_products import VectorProduct

FUSION: Final = internal.FUSION.name


def emit_dot_general(
    instruction: Instruction, target: Target, dialect: Dialect, symbol: str, candidate: str = ""
) -> KernelCode:
    """Emit ``stablehlo.dot_general``."""
    return _emit_alone(instruction, dot_problem(instruction, target), target, dialect, symbol, candidate)


def emit_convolution(
    instruction: Instruction, target: Target, dialect: Dialect, symbol: str, candidate: str = ""
) -> KernelCode:
    """Emit ``stablehlo.convolution``."""
    return _emit_alone(instruction, convolution_problem(instruction, target), target, dialect, symbol, candidate)


def emit_dot_group(
    group: AnchoredBody, target: Target, dialect: Dialect, symbol: str, candidate: str = ""
) -> KernelCode:
    """Emit an anchored fusion around a ``stablehlo.dot_general``."""
    return _emit_group(group, dot_problem(group.anchor, target), target, dialect, symbol, candidate)


def emit_convolution_group(
    group: AnchoredBody, target: Target, dialect: Dialect, symbol: str, candidate: str = ""
) -> KernelCode:
    """Emit an anchored fusion around a ``stablehlo.convolution``."""
    return _emit_group(group, convolution_problem(group.anchor, target), target, dialect, symbol, candidate)


def _emit_alone(
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
    plan, outputs = problem.plan(candidate), Outputs(problem.product, problem.elements[2])
    phases = _launches(frame, problem, plan, outputs, symbol)
    call = problem.library_call() if len(phases) == 1 else None
    return frame.code(_called(phases, call, candidate), outputs.workspace_bytes(plan.parts))


def _emit_group(
    group: AnchoredBody,
    problem: ProductProblem | None,
    target: Target,
    dialect: Dialect,
    symbol: str,
    candidate: str,
) -> KernelCode:
    operands = [each for each in group.operands if isinstance(each, int)]
    if problem is None or len(operands) < len(group.operands):
        what = "of nothing" if problem is None else "with operands that are computed for them"
        raise UnsupportedError(
            FUSION, "", f"no GPU kernel for groups around products {what} yet", group.anchor.location
        )
    problem = problem.of_buffers(operands)
    plan, outputs = problem.plan(candidate), Outputs(problem.product, problem.elements[2], group)
    call = problem.library_call() if plan.parts.count == 1 else None
    if call is not None and call.takes_bias and (bias := outputs.bias()) is not None:
        buffers = *call.buffers[:2], len(group.body.operand_types)
        call = replace(call, bias=bias, buffers=buffers)
    elif library_way(candidate) is not None:
        assert call is not None
        return _emit_apart(group, problem, call, target, dialect, symbol, candidate)
    else:
        call = None  # it would write another result than this kernel
    frame = GridFrame(target, group.body, dialect)
    phases = _called(_launches(frame, problem, plan, outputs, symbol), call, candidate)
    return frame.code(phases, outputs.workspace_bytes(plan.parts), in_place=outputs.in_place())


def _emit_apart(
    group: AnchoredBody,
    problem: ProductProblem,
    call: LibraryProduct,
    target: Target,
    dialect: Dialect,
    symbol: str,
    candidate: str,
) -> KernelCode:
    """A library's call, or the product's kernel in its place, and a loop over the result."""
    plan, outputs = problem.plan(candidate), Outputs(problem.product, problem.elements[2], group, apart=True)
    frame, nbytes = GridFrame(target, group.body, dialect), outputs.workspace_bytes(plan.parts)
    call = replace(call, buffers=(*call.buffers[:2], group.buffers))
    phases = _called(_launches(frame, problem, plan, outputs, symbol), call, candidate)
    behind = GridFrame(target, group.as_loop(), dialect, frame.builder, len(group.body.operand_types))
    phases.append(emit_loop_phase(behind, f"{symbol}_behind", nbytes))
    return frame.code(phases, nbytes, in_place=outputs.in_place())


def _called(phases: list[Phase], call: LibraryProduct | None, candidate: str) -> list[Phase]:
    """The launches, the first of which a library may do instead, where a candidate leaves that to it."""
    way = library_way(candidate) if candidate else 0
    if call is not None and way is not None:
        phases[0] = replace(phases[0], library=replace(call, way=way).to_text())
    return phases


def _launches(
    frame: GridFrame, problem: ProductProblem, plan: ProductPlan, outputs: Outputs, symbol: str
) -> list[Phase]:
    """The kernel of a plan, and that of the parts of its sums."""
    operands = problem.elements[:2]
    if isinstance(plan, VectorPlan):
        phases = [VectorProduct(frame, plan, operands, outputs).emit(symbol)]
    elif isinstance(plan, MatrixPlan):
        phases = [MatrixProduct(frame, plan, operands, outputs).emit(symbol)]
    else:
        phases = [TiledProduct(frame, plan, operands, outputs).emit(symbol)]
    if plan.parts.count > 1:
        phases.append(_emit_sums(frame, plan.parts, outputs, f"{symbol}_sums"))
    return phases


def _emit_sums(frame: GridFrame, parts: Parts, outputs: Outputs, symbol: str) -> Phase:
    """Add the parts of all sums in their order: a thread a result."""
    product, kind = outputs.product, outputs.elements.compute
    b, count = frame.builder, product.results
    arithmetic = Arithmetic(b, kind)
    workspace_bytes = outputs.workspace_bytes(parts)
    with frame.kernel(symbol, THREADS, workspace_bytes=workspace_bytes) as (workspace,):
        writer = outputs.last_writer(frame, ())
        number = b.global_thread()

        def add() -> None:
            total = b.load(kind, b.element_pointer(workspace, kind, number))
            loop = b.begin_loop(b.constant("i64", 1), b.constant("i64", parts.count), 1, [total])
            place = b.add(b.mul(loop.index, b.constant("i64", count)), number)
            value = b.load(kind, b.element_pointer(workspace, kind, place))
            (total,) = b.end_loop(loop, [arithmetic.add(loop.carried[0], value)])
            frame.access.variables["number"] = number
            extents = product.batch, product.m, product.n
            batch, row, column = delinearized(variable("number", 0, count - 1), extents)
            writer.put(constant(0), batch, row, column, writer.encoded(total))

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
