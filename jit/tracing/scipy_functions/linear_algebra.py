"""``scipy.linalg`` on tracers: by NumPy's functions where these compute the same, and what NumPy does not have.

Results have SciPy's dtypes and are computed in f8 or c16, as NumPy's are.  ``overwrite_*`` and ``check_finite`` change
nothing; ``LinAlgError`` is raised by the call, as in ``numpy.linalg``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from hlojit.ir.graph import Value
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.lapack_routines import (
    Precision,
    adjoint,
    identities,
    matrices,
    require,
    routine,
    square_matrices,
    whole_number,
)
from hlojit.tracing.numpy_functions.row_swaps import row_order, rows_taken
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

RULES: dict[str, Callable[..., Any]] = {}
"""Rules of this module, by the function's name."""
_IGNORED: Final = {"overwrite_a", "overwrite_b", "check_finite", "lwork", "lapack_driver", "driver"}
"""Parameters that choose how, not what."""


def _rule(rule: Callable[..., Any]) -> Callable[..., Any]:
    RULES[rule.__name__] = rule
    return rule


def _refuse(name: str, options: dict[str, Any], **defaults: Any) -> None:
    """Raises for options that have a meaning and another value than the default."""
    for key, value in options.items():
        if key in _IGNORED:
            continue
        if key not in defaults:
            raise TypeError(f"scipy.linalg.{name}() got an unexpected keyword argument {key!r}")
        if value is not defaults[key] and (isinstance(value, Tracer) or not np.array_equal(value, defaults[key])):
            raise TracingError(f"scipy.linalg.{name}: {key}={value!r} cannot be compiled yet")


# ----------------------------------------------------------------------------------------------------------- systems


def _whole(ops: Operations, a: Any, structure: str | None, lower: bool) -> Any:
    """The matrix that SciPy sees of ``a`` where it is told a structure, and reads a part of it only."""
    operand: Any = ops.tracer(a)
    names = {"symmetric": "sym", "hermitian": "her", "positive definite": "pos", "general": "gen"}
    name = None if structure is None else names.get(structure, structure)
    if name in (None, "gen", "banded", "tridiagonal"):
        return operand
    if name in ("sym", "her", "pos"):
        triangle, rest = (np.tril(operand), np.tril(operand, -1)) if lower else (np.triu(operand), np.triu(operand, 1))
        mirrored = np.swapaxes(rest, -1, -2)
        return triangle + (mirrored if name == "sym" or operand.dtype.kind != "c" else np.conjugate(mirrored))
    if name in ("lower triangular", "upper triangular"):
        return np.tril(operand) if name[0] == "l" else np.triu(operand)
    if name == "diagonal":
        return np.where(np.eye(operand.shape[-1], dtype=bool), operand, operand.dtype.type(0))
    raise ValueError(f"{structure} is not a recognized option")


@_rule
def solve(
    ops: Operations, a: Any, b: Any, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False,
    check_finite: bool = True, assume_a: str | None = None, transposed: bool = False,
) -> Any:  # fmt: skip
    operand = _whole(ops, a, assume_a, lower)
    if transposed:
        operand = np.swapaxes(operand, -1, -2)
    return np.linalg.solve(operand, ops.tracer(b))


@_rule
def inv(
    ops: Operations, a: Any, overwrite_a: bool = False, check_finite: bool = True, *, assume_a: str | None = None,
    lower: bool = False,
) -> Any:  # fmt: skip
    return np.linalg.inv(_whole(ops, a, assume_a, lower))


def _triangular(
    ops: Operations, a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False
) -> Any:
    """Zeros on the diagonal are divided by."""
    matrix, sides = ops.tracer(a), ops.tracer(b)
    _, order = square_matrices(matrix)
    precision = Precision.of(matrix, sides)
    is_vector = sides.ndim == 1
    if is_vector:
        sides = sides[:, None]
    if sides.shape[-2] != order:
        raise ValueError(f"shapes of a {matrix.shape} and b {ops.tracer(b).shape} are incompatible")
    stack = np.broadcast_shapes(matrix.shape[:-2], sides.shape[:-2])
    operands = [
        ops.broadcast(each.astype(precision.computed).value, (*stack, *each.shape[-2:])) for each in (matrix, sides)
    ]
    names = {0: "NO_TRANSPOSE", "N": "NO_TRANSPOSE", 1: "TRANSPOSE", "T": "TRANSPOSE", 2: "ADJOINT", "C": "ADJOINT"}
    attributes = {
        "left_side": True,
        "lower": bool(lower),
        "unit_diagonal": bool(unit_diagonal),
        "transpose_a": names[trans],
    }
    found = ops.wrap(ops.builder.create("triangular_solve", operands, attributes=attributes).result)
    found = found.astype(precision.result)
    return found[..., 0] if is_vector else found


@_rule
def solve_triangular(
    ops: Operations, a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False, **options: Any
) -> Any:
    _refuse("solve_triangular", options)
    found = _triangular(ops, a, b, trans, lower, unit_diagonal)
    if not unit_diagonal:
        diagonal: Any = np.diagonal(ops.tracer(a), axis1=-2, axis2=-1)
        require(ops, diagonal == 0, "singular matrix")
    return found


@_rule
def det(ops: Operations, a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    operand = ops.tracer(a)
    # In f8 or c16, whatever the matrix is of.
    return np.linalg.det(operand.astype(Precision.of(operand).computed))


@_rule
def lstsq(ops: Operations, a: Any, b: Any, cond: Any = None, **options: Any) -> Any:
    _refuse("lstsq", options)
    matrix, sides = ops.tracer(a), ops.tracer(b)
    epsilon = float(np.finfo(Precision.of(matrix, sides).result).eps)
    return np.linalg.lstsq(matrix, sides, rcond=epsilon if cond is None else cond)


@_rule
def pinv(
    ops: Operations, a: Any, *, atol: Any = None, rtol: Any = None, return_rank: bool = False, check_finite: bool = True
) -> Any:
    operand = ops.tracer(a)
    _, rows, columns = matrices(operand)
    precision = Precision.of(operand)
    u, s, vh = np.linalg.svd(operand, full_matrices=False)
    absolute = 0.0 if atol is None else atol
    default = max(rows, columns) * float(np.finfo(precision.result).eps)
    relative = default if rtol is None and atol is None else 0.0 if rtol is None else rtol
    kept = s > absolute + np.max(s, axis=-1, keepdims=True, initial=0) * relative
    inverse = np.where(kept, 1 / s, s.dtype.type(0))
    found = adjoint(vh) @ (inverse[..., None] * adjoint(u))
    return (found, np.sum(kept, axis=-1)) if return_rank else found


@_rule
def norm(
    ops: Operations, a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False, check_finite: bool = True
) -> Any:
    operand = ops.tracer(a)
    # What SciPy gives to BLAS and LAPACK comes back as f8.
    is_library = (operand.ndim == 1 and ord in (None, 2)) or (operand.ndim == 2 and ord in (1, math.inf))
    if axis is None and not keepdims and is_library and operand.size and operand.dtype.char in "fF":
        operand = operand.astype(Precision.of(operand).computed)
    return np.linalg.norm(operand, ord, axis, keepdims)


# -------------------------------------------------------------------------------------------------- LU and Cholesky


def _factored(ops: Operations, a: Any) -> tuple[Precision, Tracer, Tracer]:
    """The precision, LU factors in one matrix and pivots from 1."""
    operand = ops.tracer(a)
    _, rows, columns = matrices(operand)
    precision = Precision.of(operand)
    sizes = {"m": rows, "n": columns, "k": min(rows, columns)}
    factors, pivots, _ = routine(ops, "getrf", [operand.astype(precision.computed)], sizes)
    return precision, factors, pivots


@_rule
def lu_factor(ops: Operations, a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    precision, factors, pivots = _factored(ops, a)
    return factors.astype(precision.result), pivots - 1


@_rule
def lu_solve(ops: Operations, lu_and_piv: Any, b: Any, trans: int = 0, **options: Any) -> Any:
    _refuse("lu_solve", options)
    factors, pivots = map(ops.tracer, lu_and_piv)
    sides: Any = ops.tracer(b)
    is_vector = sides.ndim == 1
    if is_vector:
        sides = sides[:, None]
    order: Any = row_order(ops, ops.tracer(pivots + 1), factors.shape[-1])
    if trans == 0:
        found = _triangular(ops, factors, rows_taken(sides, order), lower=True, unit_diagonal=True)
        found = _triangular(ops, factors, found)
    else:
        found = _triangular(ops, factors, sides, trans)
        found = _triangular(ops, factors, found, trans, lower=True, unit_diagonal=True)
        found = rows_taken(found, np.argsort(order, axis=-1))
    return found[..., 0] if is_vector else found


@_rule
def lu(
    ops: Operations, a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True,
    p_indices: bool = False,
) -> Any:  # fmt: skip
    precision, factors, pivots = _factored(ops, a)
    stack, rows, columns = matrices(factors)
    least = min(rows, columns)
    packed: Any = factors.astype(precision.result)
    unit = identities(ops, stack, rows, precision.result)[..., :least]
    lower = np.tril(packed[..., :least], -1) + unit
    upper = np.triu(packed[..., :least, :])
    # Row i of the product is row order[i] of the matrix, and so it goes back to there.
    order: Any = np.argsort(row_order(ops, pivots, rows), axis=-1)
    if permute_l:
        return rows_taken(lower, order), upper
    if p_indices:
        return order.astype(np.int32), lower, upper
    permutation = (order[..., :, None] == np.arange(rows)).astype(precision.real)
    return permutation, lower, upper


@_rule
def cholesky(ops: Operations, a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    return np.linalg.cholesky(ops.tracer(a), upper=not lower)


@_rule
def cho_factor(
    ops: Operations, a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Any:
    """The other triangle holds what it held."""
    operand: Any = ops.tracer(a)
    factor: Any = cholesky(ops, operand, lower)
    rest = np.triu(operand, 1) if lower else np.tril(operand, -1)
    return factor + rest.astype(factor.dtype), lower


@_rule
def cho_solve(ops: Operations, c_and_lower: Any, b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    factor, lower = c_and_lower
    first = _triangular(ops, factor, b, 0 if lower else 2, lower)
    return _triangular(ops, factor, first, 2 if lower else 0, lower)


# ----------------------------------------------------------------------------------------------- other factorizations


@_rule
def qr(
    ops: Operations, a: Any, overwrite_a: bool = False, lwork: Any = None, mode: str = "full", pivoting: bool = False,
    check_finite: bool = True,
) -> Any:  # fmt: skip
    if pivoting:
        raise TracingError("scipy.linalg.qr: pivoting=True cannot be compiled yet")
    modes = {"full": "complete", "r": "complete", "economic": "reduced"}
    if mode not in modes:
        raise TracingError(f"scipy.linalg.qr: mode {mode!r} cannot be compiled; 'full', 'r' and 'economic' can")
    q, r = np.linalg.qr(ops.tracer(a), modes[mode])  # type: ignore[call-overload]
    return (r,) if mode == "r" else (q, r)


@_rule
def svd(ops: Operations, a: Any, full_matrices: bool = True, compute_uv: bool = True, **options: Any) -> Any:
    _refuse("svd", options)
    found: Any = np.linalg.svd(ops.tracer(a), full_matrices, compute_uv)  # type: ignore[call-overload]
    return tuple(found) if compute_uv else found


@_rule
def svdvals(ops: Operations, a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    return np.linalg.svdvals(ops.tracer(a))


def _chosen(options: dict[str, Any], order: int) -> slice:
    """Eigenvalues by their numbers; SciPy's limits are both included."""
    limits = options.pop("subset_by_index", None)
    if limits is None:
        return slice(None)
    first, last = (whole_number(each, "subset_by_index takes whole numbers") for each in limits)
    if not 0 <= first <= last < order:
        raise ValueError(f"Requested eigenvalue indices are not valid. Valid range is [0, {order - 1}]")
    return slice(first, last + 1)


@_rule
def eigh(
    ops: Operations, a: Any, b: Any = None, *, lower: bool = True, eigvals_only: bool = False, **options: Any
) -> Any:
    operand = ops.tracer(a)
    _, order = square_matrices(operand)
    part = _chosen(options, order)
    _refuse("eigh", {"b": b, **options}, b=None, type=1, subset_by_value=None)
    triangle: Any = "L" if lower else "U"
    if eigvals_only:
        return np.linalg.eigvalsh(operand, triangle)[..., part]
    values, vectors = np.linalg.eigh(operand, triangle)
    return values[..., part], vectors[..., part]


@_rule
def eigvalsh(ops: Operations, a: Any, b: Any = None, *, lower: bool = True, **options: Any) -> Any:
    return eigh(ops, a, b, lower=lower, eigvals_only=True, **options)


@_rule
def eig(ops: Operations, a: Any, b: Any = None, left: bool = False, right: bool = True, **options: Any) -> Any:
    _refuse("eig", {"b": b, "left": left, **options}, b=None, left=False, homogeneous_eigvals=False)
    return tuple(np.linalg.eig(ops.tracer(a))) if right else np.linalg.eigvals(ops.tracer(a))


@_rule
def eigvals(ops: Operations, a: Any, b: Any = None, **options: Any) -> Any:
    return eig(ops, a, b, right=False, **options)


# ------------------------------------------------------------------------------------------------ functions of matrices

_PADE: Final = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0,
    670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_PADE_RADIUS: Final = 5.371920351148152
"""Of norms up to this the approximant of order 13 is exact in f8 (Higham, 2005)."""


@_rule
def expm(ops: Operations, A: Any) -> Any:
    """By scaling and squaring (Higham, 2005), always with the approximant of order 13; f4 is computed in f8."""
    operand = ops.tracer(A)
    stack, order = square_matrices(operand)
    precision = Precision.of(operand)
    x: Any = operand.astype(precision.computed)
    if not x.size:
        return x.astype(precision.result)
    size = np.max(np.sum(np.abs(x), axis=-2), axis=-1)
    squarings = np.where(size > _PADE_RADIUS, np.ceil(np.log2(np.maximum(size, 1.0) / _PADE_RADIUS)), 0.0)
    squarings = np.where(np.isfinite(squarings), squarings, 0.0)
    x = x * np.exp2(-squarings)[..., None, None]
    one, second = identities(ops, stack, order, precision.computed), x @ x
    fourth = second @ second
    sixth = fourth @ second
    p = _PADE
    odd = sixth @ (p[13] * sixth + p[11] * fourth + p[9] * second)
    odd = x @ (odd + p[7] * sixth + p[5] * fourth + p[3] * second + p[1] * one)
    even = sixth @ (p[12] * sixth + p[10] * fourth + p[8] * second)
    even = even + p[6] * sixth + p[4] * fourth + p[2] * second + p[0] * one
    return _squared(ops, np.linalg.solve(even - odd, even + odd), squarings).astype(precision.result)


def _squared(ops: Operations, matrix: Any, counts: Any) -> Tracer:
    """Each matrix squared as often as its count says: as many rounds as the largest one."""
    b = ops.builder
    state = [ops.tracer(each).value for each in (0.0 * np.max(counts), np.max(counts), counts, matrix)]

    def condition(inner: Any, number: Value, last: Value, counts: Value, matrix: Value) -> Value:
        return inner.compare(number, last, "LT")

    def body(inner: Any, number: Value, last: Value, counts: Value, matrix: Value) -> Sequence[Value]:
        shape = matrix.tensor_type.shape
        rank = len(shape) - 2
        batch = tuple(range(rank))
        square = inner.dot_general(
            matrix, matrix, batching_dims=(batch, batch), contracting_dims=((rank + 1,), (rank,)), type=matrix.type
        )
        spread = inner.broadcast_in_dim(number, counts.tensor_type.shape, ())
        left = inner.compare(spread, counts, "LT")
        chosen = inner.select(inner.broadcast_in_dim(left, shape, batch), square, matrix)
        return [inner.add(number, inner.constant(1.0, number.type)), last, counts, chosen]

    return ops.wrap(b.while_(state, condition, body)[-1])


# ------------------------------------------------------------------------------------------------- special matrices


@_rule
def toeplitz(ops: Operations, c: Any, r: Any = None) -> Any:
    column: Any = ops.tracer(c).reshape(-1)
    row: Any = (
        np.conjugate(column)
        if r is None and column.dtype.kind == "c"
        else column
        if r is None
        else ops.tracer(r).reshape(-1)
    )
    values = np.concatenate([np.flip(column, 0), row[1:]])
    rows, columns = column.shape[0], row.shape[0]
    return values[np.arange(rows)[::-1][:, None] + np.arange(columns)[None, :]]


@_rule
def hankel(ops: Operations, c: Any, r: Any = None) -> Any:
    column: Any = ops.tracer(c).reshape(-1)
    row: Any = np.zeros_like(column) if r is None else ops.tracer(r).reshape(-1)
    values = np.concatenate([column, row[1:]])
    return values[np.arange(column.shape[0])[:, None] + np.arange(row.shape[0])[None, :]]


@_rule
def circulant(ops: Operations, c: Any) -> Any:
    column: Any = ops.tracer(c)
    count = column.shape[-1]
    return column[..., (np.arange(count)[:, None] - np.arange(count)[None, :]) % count]


@_rule
def block_diag(ops: Operations, *arrs: Any) -> Any:
    blocks: list[Any] = [ops.tracer(each) for each in arrs]
    blocks = [each.reshape((1,) * (2 - each.ndim) + each.shape) for each in blocks]
    if any(each.ndim > 2 for each in blocks):
        raise TracingError("scipy.linalg.block_diag of stacks of matrices cannot be compiled yet")
    kind = np.result_type(*(each.dtype for each in blocks))
    width, before, lines = sum(each.shape[1] for each in blocks), 0, []
    for each in blocks:
        rows, columns = each.shape
        sides = [np.zeros((rows, before), kind), each.astype(kind), np.zeros((rows, width - before - columns), kind)]
        lines.append(np.concatenate(sides, axis=1))
        before += columns
    return np.concatenate(lines, axis=0)
