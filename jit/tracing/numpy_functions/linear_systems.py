"""``numpy.linalg``'s systems and determinants on tracers: solve, inv, lstsq, pinv, det, matrix_rank, cond and their kin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from hlojit.ir.ops.derivatives.lapack import PSEUDO_INVERSE
from hlojit.tracing.numpy_functions.lapack_routines import (
    SINGULAR,
    Precision,
    identities,
    matrices,
    nothing,
    or_nan,
    require,
    routine,
    square_matrices,
    two_dimensional,
    whole_number,
)
from hlojit.tracing.numpy_functions.row_swaps import row_order, rows_taken
from hlojit.tracing.numpy_functions.rules import Rules, implements
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer
from hlojit.tracing.transformed import is_transformed, with_derivative
from numpy.linalg import LinAlgError

# NumPy names the class of this result nowhere else.
from numpy.linalg._linalg import SlogdetResult

RULES: Rules = {}
"""Rules of this module, by NumPy's function."""


# ------------------------------------------------------------------------------------------------ systems, inverses


_SMALL: Final = 24
_MANY: Final = 16
"""Order and number of matrices whose factors and triangular systems are generated code (docs/linear-algebra.md)."""


def _solved_by_factors(ops: Operations, matrix: Tracer, sides: Tracer) -> tuple[Tracer, Tracer]:
    """In three steps, of which each is faster than LAPACK for many small matrices."""
    order = matrix.shape[-1]
    factors, pivots, info = routine(ops, "getrf", [matrix], {"m": order, "n": order, "k": order})
    value = ops.tracer(rows_taken(sides, row_order(ops, pivots, order))).value
    for lower in (True, False):
        attributes = {"left_side": True, "lower": lower, "unit_diagonal": lower, "transpose_a": "NO_TRANSPOSE"}
        value = ops.builder.create("triangular_solve", [factors.value, value], attributes=attributes).result
    return ops.wrap(value), info


def _solved(ops: Operations, matrix: Tracer, sides: Tracer) -> tuple[Tracer, Tracer]:
    """Solutions of stacks of systems with several right sides each, in the precision that is computed in, and which failed."""
    stack = np.broadcast_shapes(matrix.shape[:-2], sides.shape[:-2])
    order, count = sides.shape[-2:]
    if not order or not count:
        return nothing(ops, (*stack, order, count), matrix.dtype), nothing(ops, stack, np.dtype(np.int32))
    operands = [
        ops.wrap(ops.broadcast(matrix.value, (*stack, order, order))),
        ops.wrap(ops.broadcast(sides.value, (*stack, order, count))),
    ]
    if matrix.dtype.kind == "f" and order <= _SMALL and math.prod(stack) >= _MANY:
        return _solved_by_factors(ops, *operands)
    _, _, solution, info = routine(ops, "gesv", operands, {"n": order, "m": count})
    return solution, info


@implements(RULES, np.linalg.solve)
def solve(ops: Operations, a: Any, b: Any) -> Tracer:
    matrix, sides = ops.tracer(a), ops.tracer(b)
    _, order = square_matrices(matrix)
    precision = Precision.of(matrix, sides)
    # As in NumPy 2: only one dimension is a vector.
    is_vector = sides.ndim == 1
    if is_vector:
        sides = sides[:, None]
    if sides.ndim < 2 or sides.shape[-2] != order:
        raise ValueError(f"solve: the matrices have shape {matrix.shape}, and the right sides {ops.tracer(b).shape}")
    found, info = _solved(ops, matrix.astype(precision.computed), sides.astype(precision.computed))
    require(ops, info, SINGULAR)
    found = found.astype(precision.result)
    return found[..., 0] if is_vector else found


def _inverse(ops: Operations, operand: Tracer) -> tuple[Tracer, Tracer]:
    """In the precision that is computed in, and which matrices have none."""
    _, order = square_matrices(operand)
    dtype = Precision.of(operand).computed
    return _solved(ops, operand.astype(dtype), identities(ops, (), order, dtype))


@implements(RULES, np.linalg.inv)
def inv(ops: Operations, a: Any) -> Tracer:
    operand = ops.tracer(a)
    inverse, info = _inverse(ops, operand)
    require(ops, info, SINGULAR)
    return inverse.astype(Precision.of(operand).result)


@implements(RULES, np.linalg.tensorsolve)
def tensorsolve(ops: Operations, a: Any, b: Any, axes: Sequence[int] | None = None) -> Tracer:
    operand, sides = ops.tracer(a), ops.tracer(b)
    if axes is not None:
        order = list(range(operand.ndim))
        for axis in axes:
            order.remove(axis)
            order.insert(operand.ndim, axis)
        operand = operand.transpose(order)
    shape = operand.shape[-(operand.ndim - sides.ndim) :]
    count = math.prod(shape)
    if operand.size != count**2:
        raise LinAlgError("Input arrays must satisfy the requirement prod(a.shape[b.ndim:]) == prod(a.shape[:b.ndim])")
    return solve(ops, operand.reshape(count, count), sides.reshape(-1)).reshape(shape)


@implements(RULES, np.linalg.tensorinv)
def tensorinv(ops: Operations, a: Any, ind: int = 2) -> Tracer:
    operand = ops.tracer(a)
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    inside, outside = operand.shape[:ind], operand.shape[ind:]
    return inv(ops, operand.reshape(math.prod(outside), -1)).reshape(*outside, *inside)


@implements(RULES, np.linalg.matrix_power)
def matrix_power(ops: Operations, a: Any, n: Any) -> Tracer:
    operand = ops.tracer(a)
    stack, order = square_matrices(operand)
    count = whole_number(n, "exponent must be an integer")
    if not count:
        return identities(ops, stack, order, operand.dtype)
    if count < 0:
        operand, count = inv(ops, operand), -count
    if count == 3:
        # Where squaring and multiplying, as for other exponents, would group otherwise than NumPy.
        return ops.tracer((operand @ operand) @ operand)
    square, result = operand, None
    while True:
        if count & 1:
            result = square if result is None else result @ square
        count >>= 1
        if not count:
            return ops.tracer(result)
        square = square @ square


# ------------------------------------------------------------------------------------------------------ determinants


@implements(RULES, np.linalg.slogdet)
def slogdet(ops: Operations, a: Any) -> SlogdetResult:
    operand = ops.tracer(a)
    precision = Precision.of(operand)
    sign, logarithm = _sign_and_logarithm(ops, operand, precision)
    return SlogdetResult(sign.astype(precision.result), logarithm.astype(precision.real))


@implements(RULES, np.linalg.det)
def det(ops: Operations, a: Any) -> Tracer:
    operand = ops.tracer(a)
    precision = Precision.of(operand)
    sign, logarithm = _sign_and_logarithm(ops, operand, precision)
    return ops.tracer(sign * np.exp(logarithm)).astype(precision.result)


def _sign_and_logarithm(ops: Operations, operand: Tracer, precision: Precision) -> tuple[Any, Any]:
    """Of the determinants, out of the diagonals of LU factors; a zero on one makes them 0 and -inf."""
    stack, order = square_matrices(operand)
    if not order:
        one = ops.full(1, precision.computed, stack)
        return ops.wrap(one), nothing(ops, stack, np.dtype(np.float64))
    sizes = {"m": order, "n": order, "k": order}
    factors, pivots, info = routine(ops, "getrf", [operand.astype(precision.computed)], sizes)
    diagonal: Any = np.diagonal(factors, axis1=-2, axis2=-1)
    swaps = np.sum(pivots != np.arange(1, order + 1, dtype=np.int32), axis=-1)
    # The sign of a NaN is 1, as in NumPy.
    signs = np.sign(diagonal) if precision.is_complex else np.where(diagonal < 0, -1.0, 1.0)
    sign = np.where(swaps % 2 == 1, -1.0, 1.0) * np.prod(signs, axis=-1)
    logarithm = np.sum(np.log(np.abs(diagonal)), axis=-1)
    is_singular = info > 0
    return (
        ops.tracer(np.where(is_singular, precision.computed.type(0), sign)),
        ops.tracer(np.where(is_singular, -np.inf, logarithm)),
    )


# -------------------------------------------------------------------------------------------- out of singular values


@implements(RULES, np.linalg.lstsq)
def lstsq(ops: Operations, a: Any, b: Any, rcond: Any = None) -> tuple[Any, ...]:
    """Residuals of a matrix with more rows than columns are NaN where its rank is lower; NumPy leaves them out there."""
    matrix, sides = ops.tracer(a), ops.tracer(b)
    is_vector = sides.ndim == 1
    if is_vector:
        sides = sides[:, None]
    two_dimensional(matrix, sides)
    rows, columns = matrix.shape
    if rows != sides.shape[0]:
        raise LinAlgError("Incompatible dimensions")
    precision = Precision.of(matrix, sides)
    matrix, sides = matrix.astype(precision.computed), sides.astype(precision.computed)
    epsilon = float(np.finfo(np.float64).eps)
    limit = ops.tracer(epsilon * max(rows, columns) if rcond is None else rcond)
    limit = ops.tracer(np.where(limit < 0, epsilon, limit))
    u, s, vh = np.linalg.svd(matrix, full_matrices=False)
    kept = s > limit * s[..., :1]
    rank = np.sum(kept, axis=-1, dtype=np.int32)
    if is_transformed():
        # The rule of the pseudoinverse holds where singular values are equal, too.
        solution = ops.tracer(np.linalg.pinv(matrix, limit) @ sides)
    else:
        scaled = (np.conjugate(u).T @ sides) * np.where(kept, 1 / s, 0.0)[:, None]
        solution = ops.tracer(np.conjugate(vh).T @ scaled)
    if rows > columns:
        difference = sides - matrix @ solution
        squares = difference.real**2 + difference.imag**2 if precision.is_complex else difference**2
        residuals = ops.tracer(np.where(rank == columns, np.sum(squares, axis=0), np.nan))
    else:
        residuals = nothing(ops, (0,), precision.real)
    solution = ops.tracer(solution[:, 0] if is_vector else solution)
    return (
        solution.astype(precision.result),
        residuals.astype(precision.real),
        ops.tracer(rank),
        s.astype(precision.real),
    )


@implements(RULES, np.linalg.pinv)
def pinv(ops: Operations, a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = np._NoValue) -> Tracer:
    operand = ops.tracer(a)
    stack, rows, columns = matrices(operand)
    if rcond is None:
        rcond = 1e-15 if rtol is np._NoValue else rtol
        if rcond is None:
            rcond = max(rows, columns) * np.finfo(operand.dtype).eps
    elif rtol is not np._NoValue:
        raise ValueError("`rtol` and `rcond` can't be both set.")
    if not rows or not columns:
        return nothing(ops, (*stack, columns, rows), operand.dtype)
    relative = ops.tracer(rcond).astype(np.float64)[..., None]

    def inverted(matrix: Any) -> tuple[Any]:
        u, s, vh = np.linalg.svd(np.conjugate(matrix), full_matrices=False, hermitian=hermitian)
        limit = relative * np.max(s, axis=-1, keepdims=True)
        inverse = np.where(s > limit, 1 / s, s.dtype.type(0))
        return (np.swapaxes(vh, -1, -2) @ (inverse[..., None] * np.swapaxes(u, -1, -2)),)

    if operand.dtype.kind not in "fc":
        return ops.tracer(*inverted(operand))
    return ops.tracer(*with_derivative(ops, inverted, operand, PSEUDO_INVERSE))


@implements(RULES, np.linalg.matrix_rank)
def matrix_rank(ops: Operations, A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tracer:
    if rtol is not None and tol is not None:
        raise ValueError("`tol` and `rtol` can't be both set.")
    operand = ops.tracer(A)
    if operand.ndim < 2:
        return ops.tracer(np.any(operand != 0)).astype(np.int64)
    values = np.linalg.svd(operand, compute_uv=False, hermitian=hermitian)
    if tol is None:
        own = max(operand.shape[-2:]) * np.finfo(values.dtype).eps
        relative = own if rtol is None else ops.tracer(rtol)[..., None]
        limit = np.max(values, axis=-1, keepdims=True, initial=0) * relative
    else:
        limit = ops.tracer(tol)[..., None]
    return ops.tracer(np.count_nonzero(values > limit, axis=-1))


@implements(RULES, np.linalg.cond)
def cond(ops: Operations, x: Any, p: Any = None) -> Tracer:
    operand = ops.tracer(x)
    if operand.ndim >= 2 and not operand.shape[-1] * operand.shape[-2]:
        raise LinAlgError("cond is not defined on empty arrays")
    if p is None or p in (2, -2):
        values = np.linalg.svd(operand, compute_uv=False)
        largest, least = values[..., 0], values[..., -1]
        ratio: Any = least / largest if p == -2 else largest / least
    else:
        square_matrices(operand)
        real = Precision.of(operand).real
        inverse = or_nan(ops, *reversed(_inverse(ops, operand)))
        norms = [np.linalg.norm(each, p, axis=(-2, -1)) for each in (operand, inverse)]
        ratio = ops.tracer(norms[0] * norms[1]).astype(real)
    # A singular matrix has an infinite condition, and one with NaN none.
    unknown = np.isnan(ratio) & ~np.any(np.isnan(operand), axis=(-2, -1))
    return ops.tracer(np.where(unknown, ratio.dtype.type(np.inf), ratio))
