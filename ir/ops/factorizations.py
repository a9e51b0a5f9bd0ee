"""Factorizations of large matrices out of those of small ones and products, for back ends whose routines have a limit.

    cholesky(n x n)   =>   for each panel of columns: minus what the columns before give, a small cholesky, a triangular_solve
    triangular_solve  =>   for each block of rows: a small triangular_solve, and what follows from it for the rows to come

Floats that nobody computes in are widened first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from hlojit.ir.attributes import DotDimensionNumbers
from hlojit.ir.formats import ComplexType, FloatFormat, element_type
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.views import CholeskyView, TriangularSolveView
from hlojit.ir.types import TensorType, tensor

NATIVE: Final = ("f32", "f64", "complex<f32>", "complex<f64>")
"""Element types that factorizations are computed in."""
BLOCK: Final = 64
WIDE_BLOCK: Final = 48
"""Matrices of these orders are small, of complex f64 the latter: they fit the 48 KB that the threads of a block share."""


def declined(instruction: Instruction) -> str:
    """Why no routine takes an instruction: elements of a type that is computed in a wider one."""
    element = instruction.operands[0].tensor_type.element_type
    return "" if element.name in NATIVE else f"elements of type {element} are computed in a wider one"


def is_large(instruction: Instruction) -> bool:
    """Whether the matrices that are taken apart or solved with are more than one block."""
    kind = instruction.operands[0].tensor_type
    return kind.shape[-1] > block_order(kind)


def block_order(kind: TensorType) -> int:
    """The order of a block of matrices."""
    return BLOCK if kind.element_type.itemsize <= 8 else WIDE_BLOCK


def expand_cholesky(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """In the type that sums are taken in, or by panels; None where neither is called for."""
    widened = _widened(builder, instruction)
    if widened is not None or not _can_split(instruction):
        return widened
    (a,) = instruction.operands
    if CholeskyView.of(instruction).lower:
        return [_checked(builder, _cholesky(builder, a), lower=True)]
    factor = _adjoint(builder, _cholesky(builder, _adjoint(builder, a)))
    return [_checked(builder, factor, lower=False)]


def expand_triangular_solve(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """In the type that sums are taken in, or by blocks; None where neither is called for."""
    widened = _widened(builder, instruction)
    if widened is not None or not _can_split(instruction):
        return widened
    a, b = instruction.operands
    return [_solved(builder, a, b, TriangularSolveView.of(instruction), instruction)]


def _can_split(instruction: Instruction) -> bool:
    kinds = [operand.tensor_type for operand in instruction.operands]
    return all(kind.is_static and kind.element_type.name in NATIVE for kind in kinds) and is_large(instruction)


def _widened(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """The op in the type in which sums of short floats are taken."""
    kind = instruction.result.tensor_type
    if kind.element_type.name in NATIVE or not isinstance(kind.element_type, FloatFormat):
        return None
    wide = element_type(kind.element_type.accumulator)
    operands = [builder.convert(operand, wide) for operand in instruction.operands]
    made = builder.create(
        instruction.op.name,
        operands,
        attributes=instruction.attributes,
        result_types=[kind.with_element_type(wide)],
    )
    return [builder.convert(made.result, kind.element_type)]


# --------------------------------------------------------------------------------------------------------- cholesky


def _cholesky(builder: Any, a: Value) -> Value:
    """The lower factor, panel by panel; what stands above the diagonal of ``a`` is not read."""
    order, size = a.tensor_type.shape[-1], block_order(a.tensor_type)
    columns: list[Value] = []
    known: Value | None = None
    for start in range(0, order, size):
        width = min(size, order - start)
        panel = part(builder, a, (start, order), (start, start + width))
        if known is not None:
            first = part(builder, known, (0, width), None)
            panel = builder.subtract(panel, product(builder, known, _conjugate(builder, first), (1, 1)))
        factor = builder.cholesky(part(builder, panel, (0, width), None), lower=True)
        pieces = [_zeros(builder, a.tensor_type, (start, width)), factor]
        if start + width < order:
            below = builder.triangular_solve(
                factor,
                part(builder, panel, (width, order - start), None),
                left_side=False,
                lower=True,
                unit_diagonal=False,
                transpose_a="ADJOINT",
            )
            pieces.append(below)
            rest = [part(builder, known, (width, order - start), None)] if known is not None else []
            known = _beside(builder, [*rest, below], -1)
        columns.append(_beside(builder, pieces if start else pieces[1:], -2))
    return _beside(builder, columns, -1)


def _checked(builder: Any, factor: Value, *, lower: bool) -> Value:
    """NaN in the whole triangle of a factor whose last element is none: what went wrong before has come that far."""
    kind = factor.tensor_type
    order = kind.shape[-1]
    last = part(builder, factor, (order - 1, order), (order - 1, order))
    last = builder.real(last) if isinstance(kind.element_type, ComplexType) else last
    sound = builder.compare(last, last, "EQ")
    triangle = np.tri(order, dtype=np.bool_)
    outside = builder.constant(~(triangle if lower else triangle.T), tensor((order, order), "i1"))
    flags = tensor(kind.shape, "i1")
    kept = builder.or_(
        builder.broadcast_in_dim(sound, flags, broadcast_dimensions=tuple(range(kind.rank))),
        builder.broadcast_in_dim(outside, flags, broadcast_dimensions=(kind.rank - 2, kind.rank - 1)),
    )
    nothing = builder.broadcast_in_dim(builder.constant(float("nan"), kind.with_shape(())), kind)
    chosen: Value = builder.select(kept, factor, nothing)
    return chosen


# ------------------------------------------------------------------------------------------------- triangular_solve


def _solved(builder: Any, a: Value, b: Value, view: TriangularSolveView, instruction: Instruction) -> Value:
    """Block by block, in the order in which they become known; each is taken off what is left at once."""
    order, size = a.tensor_type.shape[-1], block_order(a.tensor_type)
    is_transposed = view.transpose != "N"
    # The matrix as it acts is lower, and its first rows are known first, unless it acts from the right.
    first_to_last = (view.lower != is_transposed) == view.left_side
    starts = list(range(0, order, size))
    found: dict[int, Value] = {}
    left, low, high = b, 0, order
    for start in starts if first_to_last else starts[::-1]:
        stop = min(start + size, order)
        own = (start - low, stop - low)
        block = builder.create(
            instruction.op.name,
            [part(builder, a, (start, stop), (start, stop)), _slab(builder, left, own, view)],
            attributes=instruction.attributes,
        ).result
        found[start] = block
        low, high, kept = (stop, high, (own[1], high - low)) if first_to_last else (low, start, (0, start - low))
        if low == high:
            break
        rows, columns = (
            ((low, high), (start, stop)) if is_transposed != view.left_side else ((start, stop), (low, high))
        )
        beside = part(builder, a, rows, columns)
        beside = _conjugate(builder, beside) if view.transpose == "C" else beside
        contracted = 1 if rows == (low, high) else 0
        change = (
            product(builder, beside, block, (contracted, 0))
            if view.left_side
            else product(builder, block, beside, (1, contracted))
        )
        left = builder.subtract(_slab(builder, left, kept, view), change)
    return _beside(builder, [found[start] for start in starts], -2 if view.left_side else -1)


def _slab(builder: Any, value: Value, bounds: tuple[int, int], view: TriangularSolveView) -> Value:
    return part(builder, value, bounds, None) if view.left_side else part(builder, value, None, bounds)


# ---------------------------------------------------------------------------------------------------------- the parts


def part(builder: Any, value: Value, rows: tuple[int, int] | None, columns: tuple[int, int] | None) -> Value:
    """Rows and columns of matrices (None: all of them)."""
    shape = value.tensor_type.shape
    bounds = [*((0, extent) for extent in shape[:-2]), rows or (0, shape[-2]), columns or (0, shape[-1])]
    if all(bound == (0, extent) for bound, extent in zip(bounds, shape)):
        return value
    sliced: Value = builder.slice(
        value,
        start_indices=tuple(low for low, _ in bounds),
        limit_indices=tuple(high for _, high in bounds),
        strides=(1,) * len(shape),
    )
    return sliced


def product(builder: Any, lhs: Value, rhs: Value, contracted: tuple[int, int]) -> Value:
    """Matrix products, over the rows (0) or columns (1) of either side."""
    kind = lhs.tensor_type
    batch = kind.rank - 2
    dimensions = tuple(range(batch))
    numbers = DotDimensionNumbers(dimensions, dimensions, (batch + contracted[0],), (batch + contracted[1],))
    free = (kind.shape[batch + 1 - contracted[0]], rhs.tensor_type.shape[batch + 1 - contracted[1]])
    made: Value = builder.dot_general(
        lhs,
        rhs,
        dot_dimension_numbers=numbers,
        precision_config=("HIGHEST", "HIGHEST"),
        type=kind.with_shape((*kind.shape[:-2], *free)),
    )
    return made


def _beside(builder: Any, values: Sequence[Value], dimension: int) -> Value:
    if len(values) == 1:
        return values[0]
    joined: Value = builder.concatenate(list(values), dimension=values[0].tensor_type.rank + dimension)
    return joined


def _zeros(builder: Any, kind: TensorType, shape: tuple[int, int]) -> Value:
    zero = builder.constant(0, kind.with_shape(()))
    spread: Value = builder.broadcast_in_dim(zero, kind.with_shape((*kind.shape[:-2], *shape)))
    return spread


def _conjugate(builder: Any, value: Value) -> Value:
    if not isinstance(value.tensor_type.element_type, ComplexType):
        return value
    made: Value = builder.complex(builder.real(value), builder.negate(builder.imag(value)))
    return made


def _adjoint(builder: Any, value: Value) -> Value:
    rank = value.tensor_type.rank
    order = (*range(rank - 2), rank - 1, rank - 2)
    moved: Value = builder.transpose(_conjugate(builder, value), permutation=order)
    return moved
