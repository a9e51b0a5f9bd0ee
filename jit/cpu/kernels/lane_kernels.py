"""Kernels of small matrices, a vector's lanes of them at a time: which calls they are for, and their code.

The library takes some hundred nanoseconds to get to work, and has no vectors for a matrix of four rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hlojit.cpu.kernels.addresses import PARAMETERS, literal, minimum
from hlojit.cpu.kernels.arithmetic import Arithmetic
from hlojit.cpu.kernels.lane_factorizations import LaneAlgorithms
from hlojit.cpu.kernels.matrix_lanes import Group, MatrixLanes
from hlojit.cpu.kernels.update import load_buffer
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.lapack_calls import LapackCall
from hlojit.ir.ops.views import CholeskyView, TriangularSolveView
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.lowering.dot_problem import ceil_divide
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.target import Target

KINDS: Final = {"s": "f32", "d": "f64"}
"""Of the numbers that lanes hold, by LAPACK's letters."""
WRITTEN_OUT_ORDER: Final = 4
"""Up to so many rows and columns the code has no loops: more of it takes longer to compile than it saves."""
_OPERATIONS_A_CYCLE: Final = 0.25
"""Of vectors, about, with what is loaded and stored for them."""


def largest_order(target: Target) -> int:
    """Rows and columns up to which lanes are faster; for more the library has vectors, and lanes do not fit into caches."""
    return 3 * target.vector_bits // 64


Body = Callable[[LaneAlgorithms, Sequence[Val]], None]
"""Writes the code of one group of matrices, whose buffers it gets: operands, then results."""


@dataclass(frozen=True, slots=True)
class LaneCall:
    """What is done with each matrix of a batch: ``sizes`` are those of its matrices, ``operations`` what one takes, about."""

    letter: str
    batch: int
    sizes: tuple[int, ...]
    operations: float
    buffers: int
    in_place: tuple[tuple[int, int], ...]
    body: Body

    def fits(self, target: Target) -> bool:
        """Whether lanes are for it: there must be enough small matrices."""
        if self.letter not in KINDS or not 0 < min(self.sizes) <= max(self.sizes) <= largest_order(target):
            return False
        return self.batch >= target.native_lanes(KINDS[self.letter]) > 1

    def emit(self, target: Target, symbol: str) -> KernelCode:
        """The kernel, of one task for each group of matrices."""
        kind = KINDS[self.letter]
        lanes = target.native_lanes(kind)
        b = LlvmBuilder()
        with b.function(symbol, PARAMETERS) as (_, buffers, begin, end):
            places = [load_buffer(b, buffers, number) for number in range(self.buffers)]
            loop = b.begin_loop(begin, end)
            first = b.mul(loop.index, literal(lanes))
            active = minimum(b, literal(lanes), b.sub(literal(self.batch), first))
            group = Group(b, lanes, first, active, max(self.sizes) <= WRITTEN_OUT_ORDER)
            self.body(LaneAlgorithms(group, Arithmetic.of(kind, target)), places)
            b.end_loop(loop)
        moved = 2.0 * max(self.sizes) ** 2
        cost = target.machine.nanoseconds((self.operations + moved) / _OPERATIONS_A_CYCLE)
        phase = Phase(symbol, ceil_divide(self.batch, lanes), cost)
        return kernel_code(b, (phase,), in_place=self.in_place, updates=bool(self.in_place))


# ------------------------------------------------------------------------------------------------------ StableHLO's ops


def cholesky_in_lanes(instruction: Instruction, letter: str, batch: int) -> LaneCall:
    """``stablehlo.cholesky``."""
    order, lower = instruction.operands[0].tensor_type.shape[-1], CholeskyView.of(instruction).lower

    def body(algorithms: LaneAlgorithms, buffers: Sequence[Val]) -> None:
        a = MatrixLanes(algorithms.group, KINDS[letter], order, order, by_columns=False)
        a.read(buffers[1])
        algorithms.finish_cholesky(a, lower, algorithms.cholesky(a, lower))
        a.write(buffers[1])

    return LaneCall(letter, batch, (order,), order**3 / 6, 2, ((0, 0),), body)


def triangular_solve_in_lanes(instruction: Instruction, letter: str, batch: int) -> LaneCall:
    """``stablehlo.triangular_solve``."""
    order, shape = (operand.tensor_type.shape[-2:] for operand in instruction.operands)
    view = TriangularSolveView.of(instruction)
    system = _System(letter, order[0], shape[0], shape[1], by_columns=False)
    body = system.solved(view.left_side, view.lower, view.transpose != "N", view.unit_diagonal)
    return LaneCall(letter, batch, (*order, *shape), order[0] * shape[0] * shape[1] / 2, 3, ((1, 0),), body)


@dataclass(frozen=True, slots=True)
class _System:
    letter: str
    order: int
    rows: int
    columns: int
    by_columns: bool

    def solved(self, left: bool, lower: bool, transposed: bool, unit: bool) -> Body:
        """``a' x = b`` or, from the right side, ``x a' = b``, which is ``a'' x' = b'``."""

        def body(algorithms: LaneAlgorithms, buffers: Sequence[Val]) -> None:
            kind, group = KINDS[self.letter], algorithms.group
            a = MatrixLanes(group, kind, self.order, self.order, by_columns=self.by_columns)
            x = MatrixLanes(group, kind, self.rows, self.columns, by_columns=self.by_columns)
            a.read(buffers[0])
            x.read(buffers[2])
            sides = x if left else x.transposed()
            algorithms.solve(a, sides, lower, transposed == left, unit)
            x.write(buffers[2])

        return body


# ------------------------------------------------------------------------------------------------------ LAPACK's routines


def lapack_in_lanes(found: LapackCall) -> LaneCall | None:
    """A call of LAPACK's, or None where it is not among those that lanes do."""
    make = _ROUTINES.get(found.name)
    if make is None:
        return None
    sizes, operations, body = make(found)
    count = len(found.routine.operands) + len(found.routine.results)
    return LaneCall(found.letter, found.batch, sizes, operations, count, found.routine.in_place, body)


Made = tuple[tuple[int, ...], float, Body]


def _potrf(found: LapackCall) -> Made:
    order = found.dimensions["n"]

    def body(algorithms: LaneAlgorithms, buffers: Sequence[Val]) -> None:
        a = MatrixLanes(algorithms.group, KINDS[found.letter], order, order)
        a.read(buffers[1])
        info = algorithms.cholesky(a, found.options["uplo"] == "L")
        a.write(buffers[1])
        algorithms.group.write_numbers(info, buffers[2])

    return (order,), order**3 / 6, body


def _getrf(found: LapackCall) -> Made:
    m, n, k = (found.dimensions[letter] for letter in "mnk")

    def body(algorithms: LaneAlgorithms, buffers: Sequence[Val]) -> None:
        a = MatrixLanes(algorithms.group, KINDS[found.letter], m, n)
        pivots = MatrixLanes(algorithms.group, "i32", k, 1)
        a.read(buffers[1])
        info = algorithms.lu(a, pivots)
        a.write(buffers[1])
        pivots.write(buffers[2])
        algorithms.group.write_numbers(info, buffers[3])

    return (m, n), 1.0 * m * n * k, body


def _trsm(found: LapackCall) -> Made:
    r, m, n = (found.dimensions[letter] for letter in "rmn")
    options = found.options
    body = _System(found.letter, r, m, n, by_columns=True).solved(
        options["side"] == "L", options["uplo"] == "L", options["trans_x"] != "N", options["diag"] == "U"
    )
    return (r, m, n), r * m * n / 2, body


def _geqrf(found: LapackCall) -> Made:
    m, n, k = (found.dimensions[letter] for letter in "mnk")

    def body(algorithms: LaneAlgorithms, buffers: Sequence[Val]) -> None:
        kind = KINDS[found.letter]
        a, factors = MatrixLanes(algorithms.group, kind, m, n), MatrixLanes(algorithms.group, kind, k, 1)
        a.read(buffers[1])
        algorithms.reflectors(a, factors)
        a.write(buffers[1])
        factors.write(buffers[2])

    return (m, n), 2.0 * m * n * k, body


def _orgqr(found: LapackCall) -> Made:
    m, n, k = (found.dimensions[letter] for letter in "mnk")

    def body(algorithms: LaneAlgorithms, buffers: Sequence[Val]) -> None:
        kind = KINDS[found.letter]
        a, factors = MatrixLanes(algorithms.group, kind, m, n), MatrixLanes(algorithms.group, kind, k, 1)
        a.read(buffers[2])
        factors.read(buffers[1])
        algorithms.orthogonal(a, factors)
        a.write(buffers[2])

    return (m, n, k), 2.0 * m * n * k, body


_ROUTINES: Final[Mapping[str, Callable[[LapackCall], Made]]] = {
    "potrf": _potrf,
    "getrf": _getrf,
    "trsm": _trsm,
    "geqrf": _geqrf,
    "orgqr": _orgqr,
}
