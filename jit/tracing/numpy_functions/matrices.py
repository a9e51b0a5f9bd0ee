"""Products and parts of matrices on tracers: what ``numpy.linalg`` adds to ``numpy.matmul`` and ``numpy.dot``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from hlojit.tracing.numpy_functions.complex_numbers import is_complex
from hlojit.tracing.numpy_functions.lapack_routines import two_dimensional
from hlojit.tracing.numpy_functions.rules import Rules, implements, refuse
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

RULES: Rules = {}
"""Rules of this module, by NumPy's function."""


@implements(RULES, np.linalg.matmul)
def matmul(ops: Operations, x1: Any, x2: Any, /) -> Tracer:
    return ops.tracer(np.matmul(ops.tracer(x1), x2))


@implements(RULES, np.linalg.tensordot)
def tensordot(ops: Operations, x1: Any, x2: Any, /, *, axes: Any = 2) -> Tracer:
    return ops.tracer(np.tensordot(ops.tracer(x1), x2, axes=axes))


@implements(RULES, np.linalg.outer)
def outer(ops: Operations, x1: Any, x2: Any, /) -> Tracer:
    lhs, rhs = ops.tracer(x1), ops.tracer(x2)
    if lhs.ndim != 1 or rhs.ndim != 1:
        raise ValueError(
            f"Input arrays must be one-dimensional, but they are x1.ndim={lhs.ndim} and x2.ndim={rhs.ndim}."
        )
    return ops.tracer(np.outer(lhs, rhs))


@implements(RULES, np.linalg.matrix_transpose)
def matrix_transpose(ops: Operations, x: Any, /) -> Tracer:
    operand = ops.tracer(x)
    if operand.ndim < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {operand.ndim}")
    return ops.tracer(np.swapaxes(operand, -1, -2))


@implements(RULES, np.linalg.diagonal)
def diagonal(ops: Operations, x: Any, /, *, offset: int = 0) -> Tracer:
    return ops.tracer(np.diagonal(ops.tracer(x), offset, axis1=-2, axis2=-1))


@implements(RULES, np.linalg.trace)
def trace(ops: Operations, x: Any, /, *, offset: int = 0, dtype: Any = None) -> Tracer:
    return ops.tracer(np.trace(ops.tracer(x), offset, axis1=-2, axis2=-1, dtype=dtype))


@implements(RULES, np.linalg.cross)
def cross(ops: Operations, x1: Any, x2: Any, /, *, axis: int = -1) -> Tracer:
    lhs: Any = ops.tracer(x1)
    rhs: Any = ops.tracer(x2)
    extents = lhs.shape[axis], rhs.shape[axis]
    if extents != (3, 3):
        raise ValueError(
            "Both input arrays must be (arrays of) 3-dimensional vectors, but they are "
            f"{extents[0]} and {extents[1]} dimensional instead."
        )
    a, b = ([np.moveaxis(each, axis, -1)[..., number] for number in range(3)] for each in (lhs, rhs))
    parts = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
    return ops.tracer(np.stack(parts, axis=axis))


# --------------------------------------------------------------------------------------------------------- multi_dot


@implements(RULES, np.linalg.multi_dot)
def multi_dot(ops: Operations, arrays: Sequence[Any], *, out: Any = None) -> Tracer:
    """In the order that takes the fewest multiplications, which for three matrices is NumPy's own rule, too."""
    refuse("linalg.multi_dot", out=out)
    operands: list[Any] = [ops.tracer(each) for each in arrays]
    if len(operands) < 2:
        raise ValueError("Expecting at least two arrays.")
    first, last = operands[0].ndim, operands[-1].ndim
    if len(operands) == 2:
        return ops.tracer(np.dot(*operands))
    if first == 1:
        operands[0] = operands[0][None, :]
    if last == 1:
        operands[-1] = operands[-1][:, None]
    two_dimensional(*operands)
    splits = _splits([each.shape[0] for each in operands] + [operands[-1].shape[1]])
    product = _multiplied(operands, splits, 0, len(operands) - 1)
    if first == 1 and last == 1:
        return product[0, 0]
    return product.reshape(-1) if 1 in (first, last) else product


Splits = dict[tuple[int, int], int]


def _splits(sizes: Sequence[int]) -> Splits:
    """Behind which matrix a chain of matrices, by its first and last one, is cut in two (Cormen et al., chapter 15.2)."""
    count = len(sizes) - 1
    costs, splits = {(first, first): 0 for first in range(count)}, {}
    for length in range(1, count):
        for first in range(count - length):
            last = first + length
            prices = [
                costs[first, cut] + costs[cut + 1, last] + sizes[first] * sizes[cut + 1] * sizes[last + 1]
                for cut in range(first, last)
            ]
            costs[first, last] = min(prices)
            splits[first, last] = first + prices.index(min(prices))
    return splits


def _multiplied(operands: Sequence[Tracer], splits: Splits, first: int, last: int) -> Tracer:
    """The product of a part of the chain, which is as deep as it is long."""
    if first == last:
        return operands[first]
    cut = splits[first, last]
    left, right = _multiplied(operands, splits, first, cut), _multiplied(operands, splits, cut + 1, last)
    product: Tracer = np.dot(left, right)
    return product


# ---------------------------------------------------------------------------- ufuncs with a signature: "(n),(n)->()"


def _conjugated(operand: Tracer) -> Any:
    return np.conjugate(operand) if is_complex(operand) else operand


def _vector_by_vector(lhs: Tracer, rhs: Tracer) -> Any:
    return (_conjugated(lhs)[..., None, :] @ rhs[..., :, None])[..., 0, 0]


def _matrix_by_vector(lhs: Tracer, rhs: Tracer) -> Any:
    return (lhs @ rhs[..., None])[..., 0]


def _vector_by_matrix(lhs: Tracer, rhs: Tracer) -> Any:
    return (_conjugated(lhs)[..., None, :] @ rhs)[..., 0, :]


_PRODUCTS: Final[dict[np.ufunc, tuple[Callable[[Tracer, Tracer], Any], int, int]]] = {
    np.vecdot: (_vector_by_vector, 1, 1),
    np.matvec: (_matrix_by_vector, 2, 1),
    np.vecmat: (_vector_by_matrix, 1, 2),
}
"""Each with the dimensions that it reads of its operands."""


def product_ufunc(ops: Operations, ufunc: np.ufunc, inputs: Sequence[Any], options: Mapping[str, Any]) -> Tracer:
    """``np.vecdot``, ``np.matvec`` and ``np.vecmat``; the vector is conjugated where NumPy does it."""
    rule, *ranks = _PRODUCTS[ufunc]
    rest = dict(options)
    axis, dtype = rest.pop("axis", -1), rest.pop("dtype", None)
    refuse(ufunc.__name__, **rest)
    kind = np.result_type(*(ops.tracer(each).dtype for each in inputs)) if dtype is None else np.dtype(dtype)
    operands: list[Any] = [ops.tracer(each).astype(kind) for each in inputs]
    for operand, rank in zip(operands, ranks):
        if operand.ndim < rank:
            raise ValueError(f"{ufunc.__name__}: an operand of {operand.ndim} dimensions needs {rank} or more")
    if ufunc is np.vecdot and axis != -1:
        operands = [np.moveaxis(each, axis, -1) for each in operands]
    sizes = operands[0].shape[-1], operands[1].shape[-2 if ranks[1] == 2 else -1]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"{ufunc.__name__}: operands of shapes {ops.tracer(inputs[0]).shape} and {ops.tracer(inputs[1]).shape} do not fit "
            "together"
        )
    return ops.tracer(rule(operands[0], operands[1]))


UFUNCS: Final[dict[np.ufunc, Callable[..., Any]]] = dict.fromkeys(_PRODUCTS, product_ufunc)
"""The rules of ufuncs that are products: ``rule(operations, ufunc, operands, options)``."""


@implements(RULES, np.linalg.vecdot)
def vecdot(ops: Operations, x1: Any, x2: Any, /, *, axis: int = -1) -> Tracer:
    return product_ufunc(ops, np.vecdot, [x1, x2], {"axis": axis})
