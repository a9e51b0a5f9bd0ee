"""Derivatives of factorizations, solves and Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.formats import ComplexType
from hlojit.ir.ops.derivatives.kinds import Linear, Pushed, Tangents, number, summed
from hlojit.ir.ops.derivatives.movement import padded, transposed
from hlojit.ir.ops.views import CholeskyView, FftView, TriangularSolveView
from hlojit.ir.types import tensor

if TYPE_CHECKING:
    from hlojit.ir.blocks import Instruction, Value


def is_complex(value: Value) -> bool:
    """Whether the elements are complex numbers."""
    return isinstance(value.tensor_type.element_type, ComplexType)


def turned(b: Any, value: Value) -> Any:
    """The matrices transposed."""
    rank = value.tensor_type.rank
    return transposed(b, value, [*range(rank - 2), rank - 1, rank - 2])


def adjoint(b: Any, value: Value) -> Any:
    """The matrices transposed and conjugated."""
    return turned(b, b.conj(value) if is_complex(value) else value)


def times(b: Any, lhs: Value, rhs: Value) -> Any:
    """Products of matrices in batches."""
    rank = lhs.tensor_type.rank
    batches = tuple(range(rank - 2))
    return b.dot_general(lhs, rhs, contracting_dims=((rank - 1,), (rank - 2,)), batching_dims=(batches, batches))


def masked(b: Any, value: Value, lower: bool, diagonal: float) -> Any:
    """One triangle of the matrices, the diagonal times a factor."""
    shape = value.tensor_type.shape
    size = shape[-1]
    factors = np.tri(size, k=-1) if lower else np.tri(size, k=-1).T
    factors = factors + diagonal * np.eye(size)
    constant = b.constant(factors, tensor(shape[-2:], value.tensor_type.element_type))
    rank = len(shape)
    spread = b.broadcast_in_dim(constant, shape, (rank - 2, rank - 1)) if rank > 2 else constant
    kept = b.constant(factors != 0, tensor(shape[-2:], "i1"))
    kept = b.broadcast_in_dim(kept, tensor(shape, "i1"), (rank - 2, rank - 1)) if rank > 2 else kept
    return b.select(kept, b.multiply(spread, value), number(b, 0, value))


def solve(b: Any, a: Value, right: Value, *, left_side: bool, lower: bool, unit: bool, transpose: str) -> Any:
    """``triangular_solve``."""
    attributes = {"left_side": left_side, "lower": lower, "unit_diagonal": unit, "transpose_a": transpose}
    return b.create("triangular_solve", [a, right], attributes=attributes).result


def _push_cholesky(b: Any, i: Instruction, tangents: Tangents) -> Tangents:
    """L phi(L^-1 dA L^-H), phi the lower triangle with half the diagonal; for U = L^H turned round.

    Only one triangle of the operand is read: its tangent counts for both.
    """
    (t,), lower = tangents, CholeskyView.of(i).lower
    assert t is not None
    factor = i.result if lower else adjoint(b, i.result)
    # Half the sum of both triangles is what JAX takes: the operand is symmetric.
    half = b.multiply(number(b, 0.5, t), b.add(t, adjoint(b, t)))
    turned_back = "ADJOINT" if is_complex(t) else "TRANSPOSE"
    inner = solve(b, factor, half, left_side=False, lower=True, unit=False, transpose=turned_back)
    inner = solve(b, factor, inner, left_side=True, lower=True, unit=False, transpose="NO_TRANSPOSE")
    found = times(b, factor, masked(b, inner, True, 0.5))
    return [found if lower else adjoint(b, found)]


CHOLESKY = Pushed(_push_cholesky)


def _operator(b: Any, view: TriangularSolveView, a: Value) -> Any:
    if view.transpose == "N":
        return a
    return turned(b, a) if view.transpose == "T" else adjoint(b, a)


def _triangle(b: Any, view: TriangularSolveView, a: Value) -> Any:
    """What of the matrix is read, in the place of the operand; of a unit diagonal nothing."""
    return masked(b, a, view.lower, 0.0 if view.unit_diagonal else 1.0)


def _push_solve(b: Any, i: Instruction, tangents: Tangents) -> Tangents:
    """Of op(A) X = B: op(A) dX = dB - op(dA) X."""
    view, (of_a, of_b) = TriangularSolveView.of(i), tangents
    if of_a is not None:
        change = b.negate(_operator(b, view, _triangle(b, view, of_a)))
        product = times(b, change, i.result) if view.left_side else times(b, i.result, change)
        of_b = summed(b, [of_b, product])
    assert of_b is not None
    return [b.create(i.op.name, [i.operands[0], of_b], attributes=i.attributes).result]


def _pull_solve(b: Any, i: Instruction, cotangents: Tangents, wanted: Sequence[bool]) -> Tangents:
    view, (t,), (a, _) = TriangularSolveView.of(i), cotangents, i.operands
    assert t is not None
    if view.transpose == "C" and is_complex(a):
        a, transpose = b.conj(a), "NO_TRANSPOSE"
    else:
        transpose = "TRANSPOSE" if view.transpose == "N" else "NO_TRANSPOSE"
    of_b = solve(b, a, t, left_side=view.left_side, lower=view.lower, unit=view.unit_diagonal, transpose=transpose)
    if not wanted[0]:
        return [None, of_b]
    x = turned(b, i.result)
    of_operator = b.negate(times(b, of_b, x) if view.left_side else times(b, x, of_b))
    return [_triangle(b, view, _operator(b, view, of_operator)), of_b]


TRIANGULAR_SOLVE = Pushed(_push_solve, _pull_solve)

# Fourier transforms


def _transform(b: Any, value: Value, kind: str, lengths: Sequence[int]) -> Any:
    return b.create("fft", [value], attributes={"fft_type": kind, "fft_length": tuple(lengths)}).result


def _pull_fft(b: Any, i: Instruction, t: Value) -> Sequence[Value | None]:
    """The matrices of complex transforms are symmetric; those of real ones are parts of them."""
    view = FftView.of(i)
    if view.kind in ("FFT", "IFFT"):
        return [_transform(b, t, view.kind, view.lengths)]
    shape = t.tensor_type.shape
    if view.kind == "RFFT":
        missing = [0] * (len(shape) - 1) + [view.lengths[-1] - shape[-1]]
        whole = padded(b, t, [0] * len(shape), missing, [0] * len(shape))
        return [b.real(_transform(b, whole, "FFT", view.lengths))]
    half = _transform(b, t, "RFFT", view.lengths)
    count = half.tensor_type.shape[-1]
    weights = np.full(count, 2.0)
    weights[0] = 1.0
    if count > 1 and view.lengths[-1] % 2 == 0:
        weights[-1] = 1.0
    type = half.tensor_type
    scale = b.constant(weights / math.prod(view.lengths), tensor((count,), type.element_type))
    return [b.conj(b.multiply(b.broadcast_in_dim(scale, type.shape, (type.rank - 1,)), half))]


FFT = Linear(_pull_fft)
