"""What ``numpy.linalg`` has in common: the precision that it computes in, its complaints, and calls of LAPACK's routines.

NumPy computes everything in f8 or c16 and rounds results of f4 and c8 once; so do the rules.  Where NumPy finds at run time
that a matrix is singular, not positive definite, or that an iteration does not end, it raises ``LinAlgError``; so does the
call of a compiled function (``require``).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from hlojit.ir.ops.lapack_calls import routine_call
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer
from numpy.linalg import LinAlgError


@final
@dataclass(frozen=True, slots=True)
class Precision:
    """The dtype in which operands meet, and that of the result."""

    result: np.dtype[Any]

    @property
    def is_complex(self) -> bool:
        """Whether the numbers are complex."""
        return self.result.kind == "c"

    @property
    def computed(self) -> np.dtype[Any]:
        """The dtype that everything is computed in."""
        return np.dtype(np.complex128 if self.is_complex else np.float64)

    @property
    def real(self) -> np.dtype[Any]:
        """The dtype of real results."""
        return self.result.type(0).real.dtype

    @property
    def complex(self) -> np.dtype[Any]:
        """The dtype of results that are complex for real operands, too."""
        return np.result_type(self.result, np.complex64)

    @classmethod
    def of(cls, *operands: Tracer) -> Precision:
        """That of operands; raises NumPy's ``TypeError`` for floats that LAPACK has no routines for."""
        kinds = []
        for operand in operands:
            dtype = operand.dtype
            if np.issubdtype(dtype, np.inexact) and dtype.char not in "fdFD":
                raise TypeError(f"array type {dtype.name} is unsupported in linalg")
            kinds.append(dtype if dtype.char in "fdFD" else np.dtype(np.float64))
        return cls(functools.reduce(np.promote_types, kinds))


def matrices(operand: Tracer) -> tuple[tuple[int, ...], int, int]:
    """The stack's shape, rows and columns; raises ``LinAlgError`` where there are no matrices."""
    if operand.ndim < 2:
        raise LinAlgError(f"{operand.ndim}-dimensional array given. Array must be at least two-dimensional")
    return operand.shape[:-2], operand.shape[-2], operand.shape[-1]


def square_matrices(operand: Tracer) -> tuple[tuple[int, ...], int]:
    """The stack's shape and the order; raises ``LinAlgError`` where the matrices are not square."""
    stack, rows, columns = matrices(operand)
    if rows != columns:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    return stack, rows


def two_dimensional(*operands: Tracer) -> None:
    """Raises ``LinAlgError`` for an operand that is no single matrix."""
    for operand in operands:
        if operand.ndim != 2:
            raise LinAlgError(f"{operand.ndim}-dimensional array given. Array must be two-dimensional")


def routine(
    ops: Operations, name: str, operands: Sequence[Tracer], dimensions: Mapping[str, int], **options: str | bool
) -> list[Tracer]:
    """Results of LAPACK's double or complex double routine (``syevd`` is ``zheevd`` for the latter) for matrices by rows."""
    is_complex = operands[0].dtype.kind == "c"
    found = ("z" + _COMPLEX_NAMES.get(name, name)) if is_complex else "d" + name
    values = routine_call(ops.builder, found, [each.value for each in operands], dict(dimensions), options)
    return [ops.wrap(value) for value in values]


_COMPLEX_NAMES = {"syevd": "heevd", "orgqr": "ungqr"}


SINGULAR = "Singular matrix"
NO_EIGENVALUES = "Eigenvalues did not converge"
NO_SINGULAR_VALUES = "SVD did not converge"
NOT_POSITIVE = "Matrix is not positive definite"
NOT_FINITE = "Array must not contain infs or NaNs"
"""NumPy's messages."""


def require(ops: Operations, failed: Any, message: str) -> None:
    """Have the call raise ``LinAlgError`` where one of the numbers or truths is not zero when the function runs."""
    bad = ops.tracer(failed)
    if bad.size:
        ops.check(bad.astype(bool).value, LinAlgError, message)


def or_nan(ops: Operations, info: Tracer, result: Any) -> Tracer:
    """The results of a stack of matrices, NaN for those whose routine says that it failed."""
    value = ops.tracer(result)
    succeeded = ops.tracer(info == 0).reshape(info.shape + (1,) * (value.ndim - info.ndim))
    return ops.tracer(np.where(succeeded, value, value.dtype.type(np.nan)))


def identities(ops: Operations, stack: Sequence[int], order: int, dtype: np.dtype[Any]) -> Tracer:
    """A stack of identity matrices."""
    return ops.wrap(ops.broadcast(ops.value(np.eye(order, dtype=dtype)), (*stack, order, order)))


def nothing(ops: Operations, shape: Sequence[int], dtype: np.dtype[Any]) -> Tracer:
    """An array of zeros, usually one without elements."""
    return ops.wrap(ops.full(0, dtype, shape))


def whole_number(number: Any, message: str) -> int:
    """A number that must be known; raises ``TypeError`` with NumPy's message."""
    try:
        return operator.index(number)
    except TypeError as error:
        raise TypeError(message) from error


def adjoint(operand: Any) -> Any:
    """The transposed matrices, conjugated."""
    return np.conjugate(np.swapaxes(operand, -1, -2))


Rule = Callable[..., Any]
