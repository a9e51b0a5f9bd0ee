"""cholesky and triangular_solve: LAPACK's ``potrf`` and BLAS's ``trsm`` over row-major matrices.

A row-major matrix is the transpose of what the library, which goes by columns, takes it for: lower triangles are upper ones
to it, and ``A X = B`` is ``X' A' = B'``, solved from the other side.
"""

from __future__ import annotations

import math
from typing import Final

from hlojit.cpu.kernels.lane_kernels import cholesky_in_lanes, triangular_solve_in_lanes
from hlojit.cpu.kernels.lapack import ONE
from hlojit.cpu.kernels.library_calls import Batch, Number, Parameters, Place, Scratch, emit_calls
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.views import CholeskyView, TriangularSolveView
from hlojit.ir.types import TensorType
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target

LETTERS: Final = {"f32": "s", "f64": "d", "complex<f32>": "c", "complex<f64>": "z"}


def _matrix(kind: TensorType, buffer: int) -> Place:
    return Place(buffer, kind.shape[-1] * kind.shape[-2] * kind.element_type.itemsize)


def _batch(kind: TensorType) -> int:
    return math.prod(kind.shape[:-2])


def emit_cholesky(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """The factor in one triangle and zeros in the other; NaN in the triangle of matrices that have none."""
    kind = instruction.operands[0].tensor_type
    letter, order = LETTERS[kind.element_type.name], kind.shape[-1]
    in_lanes = cholesky_in_lanes(instruction, letter, _batch(kind))
    if in_lanes.fits(target):
        return in_lanes.emit(target, symbol)
    lower = CholeskyView.of(instruction).lower
    made = Parameters(f"{letter}potrf").add("U" if lower else "L", order, _matrix(kind, 1), max(1, order))
    made.add(Scratch("i", 1))
    complex_factor = 4 if letter in "cz" else 1

    def after(b: LlvmBuilder, addresses: list[Val]) -> None:
        _finish(b, letter, order, lower, addresses[2], b.load("i32", addresses[4]))

    batch = Batch(_batch(kind), complex_factor * order**3 / 3, ((0, 0),), after=after)
    return emit_calls(symbol, made, batch)


def _finish(b: LlvmBuilder, letter: str, order: int, lower: bool, matrix: Val, info: Val) -> None:
    """Write what is no part of the factor, row by row."""
    kind = "f32" if letter in "sc" else "f64"
    parts = 2 if letter in "cz" else 1
    zero, count = b.constant("i64", 0), b.constant("i64", order)
    failed = b.icmp("ne", info, b.constant("i32", 0))

    def fill(row: Val, begin: Val, end: Val, value: Val) -> None:
        start = b.mul(row, count)
        first, last = (b.mul(b.add(start, each), b.constant("i64", parts)) for each in (begin, end))
        loop = b.begin_loop(first, last)
        b.store(value, b.element_pointer(matrix, kind, loop.index))
        b.end_loop(loop)

    rows = b.begin_loop(zero, count)
    row, after = rows.index, b.add(rows.index, b.constant("i64", 1))
    inside, outside = ((zero, after), (after, count)) if lower else ((row, count), (zero, row))
    fill(row, *outside, b.constant(kind, 0.0))
    begin, end = inside
    fill(row, begin, b.select(failed, end, begin), b.constant(kind, float("nan")))
    b.end_loop(rows)


def emit_triangular_solve(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """The solutions, in the memory of the right sides."""
    matrix, sides = (operand.tensor_type for operand in instruction.operands)
    view = TriangularSolveView.of(instruction)
    letter = LETTERS[sides.element_type.name]
    in_lanes = triangular_solve_in_lanes(instruction, letter, _batch(sides))
    if in_lanes.fits(target):
        return in_lanes.emit(target, symbol)
    order, (rows, columns) = matrix.shape[-1], sides.shape[-2:]
    made = Parameters(f"{letter}trsm").add("R" if view.left_side else "L", "U" if view.lower else "L")
    made.add(view.transpose, "U" if view.unit_diagonal else "N", columns, rows, Number(ONE[letter]))
    made.add(_matrix(matrix, 0), max(1, order), _matrix(sides, 2), max(1, columns))
    flops = (4 if letter in "cz" else 1) * 1.0 * order * rows * columns
    return emit_calls(symbol, made, Batch(_batch(sides), flops, ((1, 0),)))
