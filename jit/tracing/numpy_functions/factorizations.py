"""``numpy.linalg``'s factorizations and eigenvalues on tracers: Cholesky's, QR, singular values, eigenvalues.

``eig`` and ``eigvals`` give complex numbers always, as the array API standard has it: NumPy gives real ones where all imaginary
parts are zero, which only the run tells.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from hlojit.ir.ops.derivatives.lapack import QR
from hlojit.tracing.numpy_functions.lapack_routines import (
    NO_EIGENVALUES,
    NO_SINGULAR_VALUES,
    NOT_FINITE,
    NOT_POSITIVE,
    Precision,
    adjoint,
    identities,
    matrices,
    nothing,
    require,
    routine,
    square_matrices,
)
from hlojit.tracing.numpy_functions.rules import Rules, implements
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer
from hlojit.tracing.transformed import with_derivative

# NumPy names the classes of its results nowhere else.
from numpy.linalg._linalg import EighResult, EigResult, QRResult, SVDResult

RULES: Rules = {}
"""Rules of this module, by NumPy's function."""


@implements(RULES, np.linalg.cholesky)
def cholesky(ops: Operations, a: Any, /, *, upper: bool = False) -> Tracer:
    operand: Any = ops.tracer(a)
    square_matrices(operand)
    precision = Precision.of(operand)
    value = operand.astype(precision.computed).value
    factor = ops.builder.create("cholesky", [value], attributes={"lower": not upper}).result
    found: Any = ops.wrap(factor)
    # NaN and infinities go through, as in NumPy, whose LAPACK looks for pivots that are not above zero.
    unknown = np.any(np.isnan(np.diagonal(found, axis1=-2, axis2=-1)), axis=-1)
    require(ops, unknown & np.all(np.isfinite(operand), axis=(-2, -1)), NOT_POSITIVE)
    return found.astype(precision.result)


# ---------------------------------------------------------------------------------------------------------------- QR

_OLD_MODES = {"f": "reduced", "full": "reduced", "e": "economic", "economic": "economic"}


def _qr_mode(mode: str) -> str:
    if mode in ("reduced", "complete", "r", "raw"):
        return mode
    if mode not in _OLD_MODES:
        raise ValueError(f"Unrecognized mode '{mode}'")
    warnings.warn(f"np.linalg.qr: the mode {mode!r} is deprecated", DeprecationWarning, stacklevel=2)
    return _OLD_MODES[mode]


@implements(RULES, np.linalg.qr)
def qr(ops: Operations, a: Any, mode: str = "reduced") -> Any:
    mode = _qr_mode(mode)
    operand = ops.tracer(a)
    _, rows, columns = matrices(operand)
    precision = Precision.of(operand)
    least = min(rows, columns)
    computed = operand.astype(precision.computed)
    if mode in ("reduced", "r") or (mode == "complete" and rows <= columns):
        q, r = with_derivative(ops, lambda value: _orthogonal_and_upper(ops, value, least), computed, QR)
        r = r.astype(precision.result)
        return r if mode == "r" else QRResult(q.astype(precision.result), r)
    if mode == "complete":
        return QRResult(*(each.astype(precision.result) for each in _orthogonal_and_upper(ops, computed, rows)))
    packed, reflectors = _packed(ops, computed)
    if mode == "economic":
        return packed.astype(precision.result)
    return np.swapaxes(packed, -1, -2).astype(precision.result), reflectors.astype(precision.result)


def _packed(ops: Operations, operand: Tracer) -> list[Tracer]:
    """R with reflectors below it, and the reflectors' scalars."""
    stack, rows, columns = matrices(operand)
    least = min(rows, columns)
    if not least:
        return [operand, nothing(ops, (*stack, 0), operand.dtype)]
    return routine(ops, "geqrf", [operand], {"m": rows, "n": columns, "k": least})


def _orthogonal_and_upper(ops: Operations, operand: Tracer, order: int) -> tuple[Any, Any]:
    """The first columns of Q, and as many rows of R."""
    packed, reflectors = _packed(ops, operand)
    return _orthogonal(ops, packed, reflectors, order), _upper(packed, order)


def _upper(packed: Any, rows: int) -> Any:
    return np.triu(packed[..., :rows, :])


def _orthogonal(ops: Operations, packed: Tracer, reflectors: Tracer, columns: int) -> Tracer:
    """The first columns of Q, of the reflectors that lie below R."""
    stack, rows, given = matrices(packed)
    count = reflectors.shape[-1]
    if not count:
        return identities(ops, stack, rows, packed.dtype)[..., :columns]
    kept = packed[..., : min(given, columns)]
    if columns > given:
        kept = ops.tracer(np.concatenate([kept, nothing(ops, (*stack, rows, columns - given), packed.dtype)], axis=-1))
    (q,) = routine(ops, "orgqr", [kept, reflectors], {"m": rows, "n": columns, "k": count})
    return q


# --------------------------------------------------------------------------------------------------- singular values


@implements(RULES, np.linalg.svd)
def svd(ops: Operations, a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    operand = ops.tracer(a)
    if hermitian:
        return _hermitian_svd(ops, operand, compute_uv)
    stack, rows, columns = matrices(operand)
    precision = Precision.of(operand)
    least = min(rows, columns)
    left, right = (rows, columns) if full_matrices else (least, least)
    u: Any
    s: Any
    vh: Any
    if not least:
        u, s, vh = (
            identities(ops, stack, rows, precision.computed)[..., :left],
            nothing(ops, (*stack, 0), precision.real),
            identities(ops, stack, columns, precision.computed)[..., :right, :],
        )
    else:
        mode = "N" if not compute_uv else "A" if full_matrices else "S"
        sizes = {"m": rows, "n": columns, "k": least, "u": left, "v": right}
        _, s, u, vh, info = routine(ops, "gesdd", [operand.astype(precision.computed)], sizes, mode=mode)
        require(ops, info, NO_SINGULAR_VALUES)
    values = s.astype(precision.real)
    return SVDResult(u.astype(precision.result), values, vh.astype(precision.result)) if compute_uv else values


def _hermitian_svd(ops: Operations, operand: Tracer, compute_uv: bool) -> Any:
    """Singular values are the sizes of the eigenvalues, in descending order."""
    if not compute_uv:
        values = np.linalg.eigvalsh(operand)
        return np.flip(np.sort(np.abs(values)), -1)
    values, u = np.linalg.eigh(operand)
    order = np.flip(np.argsort(np.abs(values)), -1)
    signs = np.take_along_axis(np.copysign(values.dtype.type(1), values), order, axis=-1)
    s = np.take_along_axis(np.abs(values), order, axis=-1)
    u = np.take_along_axis(u, order[..., None, :], axis=-1)
    return SVDResult(u, s, adjoint(u * signs[..., None, :]))


@implements(RULES, np.linalg.svdvals)
def svdvals(ops: Operations, x: Any, /) -> Tracer:
    return svd(ops, x, compute_uv=False)


# ------------------------------------------------------------------------------------------------------- eigenvalues


def _symmetric(ops: Operations, a: Any, UPLO: str, mode: str) -> tuple[Precision, Tracer, Tracer]:
    """Precision, eigenvalues and eigenvectors of matrices of which one triangle is read."""
    triangle = UPLO.upper()
    if triangle not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    operand = ops.tracer(a)
    stack, order = square_matrices(operand)
    precision = Precision.of(operand)
    if not order:
        return precision, nothing(ops, (*stack, 0), precision.real), nothing(ops, operand.shape, precision.result)
    vectors, values, info = routine(
        ops, "syevd", [operand.astype(precision.computed)], {"n": order}, mode=mode, uplo=triangle
    )
    require(ops, info, NO_EIGENVALUES)
    return precision, values.astype(precision.real), vectors.astype(precision.result)


@implements(RULES, np.linalg.eigh)
def eigh(ops: Operations, a: Any, UPLO: str = "L") -> EighResult:
    _, values, vectors = _symmetric(ops, a, UPLO, "V")
    return EighResult(values, vectors)  # type: ignore[arg-type]


@implements(RULES, np.linalg.eigvalsh)
def eigvalsh(ops: Operations, a: Any, UPLO: str = "L") -> Tracer:
    return _symmetric(ops, a, UPLO, "N")[1]


def _general(ops: Operations, a: Any, right: str) -> tuple[Tracer, Tracer]:
    """Eigenvalues and right eigenvectors of any square matrices, as complex numbers."""
    operand = ops.tracer(a)
    stack, order = square_matrices(operand)
    precision = Precision.of(operand)
    if not order:
        return nothing(ops, (*stack, 0), precision.complex), nothing(ops, operand.shape, precision.complex)
    given = operand.astype(precision.computed)
    require(ops, ~np.isfinite(given), NOT_FINITE)
    *values, _, vectors, info = routine(ops, "geev", [given], {"n": order}, compute_left="N", compute_right=right)
    joined = values[0] if precision.is_complex else ops.wrap(ops.builder.complex(*(each.value for each in values)))
    require(ops, info, NO_EIGENVALUES)
    return joined.astype(precision.complex), vectors.astype(precision.complex)


@implements(RULES, np.linalg.eig)
def eig(ops: Operations, a: Any) -> EigResult:
    return EigResult(*_general(ops, a, "V"))  # type: ignore[arg-type]


@implements(RULES, np.linalg.eigvals)
def eigvals(ops: Operations, a: Any) -> Tracer:
    return _general(ops, a, "N")[0]
