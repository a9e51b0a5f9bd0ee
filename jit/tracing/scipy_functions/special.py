"""Functions of ``scipy.special`` that are no ufuncs, on tracers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.lapack_routines import whole_number
from hlojit.tracing.numpy_functions.rules import Axis
from hlojit.tracing.operations import Operations
from hlojit.tracing.scipy_functions.special_ufuncs import RULES as UFUNCS
from hlojit.tracing.scipy_functions.special_ufuncs import hurwitz_zeta, psi, riemann_zeta

RULES: dict[str, Callable[..., Any]] = {}
"""Rules of this module, by the function's name."""


def _rule(rule: Callable[..., Any]) -> Callable[..., Any]:
    RULES[rule.__name__] = rule
    return rule


def _floats(ops: Operations, *operands: Any) -> list[Any]:
    """Real numbers in their common precision, integers as f8."""
    values = [ops.tracer(each) for each in operands]
    kind = np.result_type(*(each.dtype if each.dtype.kind in "fc" else np.float64 for each in values))
    if kind.kind == "c":
        raise TracingError("this function of scipy.special cannot be compiled for complex numbers yet")
    return [each.astype(kind) for each in values]


# --------------------------------------------------------------------------------------------------- exponentials


@_rule
def logsumexp(
    ops: Operations, a: Any, axis: Axis = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    """As SciPy has it: the largest terms are kept apart, so that what the others add to their logarithm is not rounded away."""
    value, *weights = _floats(ops, a) if b is None else _floats(ops, a, b)
    weight = weights[0] if weights else value.dtype.type(1)
    if value.ndim == 0:
        value = value.reshape(1)
    value = value + np.zeros_like(weight)
    if not value.size:
        total = np.sum(np.exp(value), axis=axis, keepdims=keepdims)
        return (np.log(total), total) if return_sign else np.log(total)
    parts: Any = {"axis": tuple(range(value.ndim)) if axis is None else axis, "keepdims": True}
    direct = np.sum(weight * np.exp(value), **parts)
    if weights:
        # A weight of zero leaves out even what is infinite.
        value = np.where(weight == 0, -np.inf, value)
    largest = np.max(value, **parts)
    is_largest = value == largest
    shifted = np.where(is_largest, 0, weight * np.exp(value - largest))
    kept = np.sum(np.where(is_largest, weight, 0), **parts)
    others = np.sum(shifted, **parts)
    others = np.where(others == 0, others, others / kept)
    sign = np.sign(others + 1) * np.sign(kept)
    others = np.where(others < -1, -others - 2, others)
    found = np.log1p(others) + np.log(np.abs(kept)) + largest
    if not return_sign:
        found = np.where(sign < 0, np.nan, found)
    finite = np.isfinite(found)
    found = np.where(finite, found, np.log(np.abs(direct) if return_sign else direct))
    results = (found, np.where(finite, sign, np.sign(direct)))
    if not keepdims:
        results = tuple(np.squeeze(each, axis=parts["axis"])[()] for each in results)
    return results if return_sign else results[0]


@_rule
def softmax(ops: Operations, x: Any, axis: Axis = None) -> Any:
    value: Any = ops.tracer(x)
    powers = np.exp(value - np.max(value, axis=axis, keepdims=True))
    return powers / np.sum(powers, axis=axis, keepdims=True)


@_rule
def log_softmax(ops: Operations, x: Any, axis: Axis = None) -> Any:
    value: Any = ops.tracer(x)
    largest = np.max(value, axis=axis, keepdims=True)
    shifted = value - np.where(np.isfinite(largest), largest, value.dtype.type(0))
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


# ------------------------------------------------------------------------------------------------ gamma functions


@_rule
def polygamma(ops: Operations, n: Any, x: Any) -> Any:
    """In f8, whatever the arguments are, as in SciPy."""
    order, value = (ops.tracer(each).astype(np.float64) for each in (n, x))
    sign = np.where(np.remainder(order, 2.0) == 0, -1.0, 1.0)
    higher = sign * UFUNCS["gamma"](ops, ops.tracer(order + 1)) * hurwitz_zeta(ops, ops.tracer(order + 1), value)
    return np.where(order == 0, psi(ops, value), higher)


@_rule
def zeta(ops: Operations, x: Any, q: Any = None, out: Any = None) -> Any:
    if out is not None:
        raise TracingError("scipy.special.zeta: out= cannot be compiled yet")
    values = _floats(ops, x) if q is None else _floats(ops, x, q)
    wide = [each.astype(np.float64) for each in values]
    found = riemann_zeta(ops, wide[0]) if q is None else hurwitz_zeta(ops, *wide)
    return ops.tracer(found).astype(np.float32 if values[0].dtype.itemsize < 8 else np.float64)


@_rule
def multigammaln(ops: Operations, a: Any, d: Any) -> Any:
    """Numbers that are not above (d - 1) / 2 end the call, as in SciPy."""
    dimensions = whole_number(d, "d should be a positive integer (dimension)")
    if dimensions <= 0:
        raise ValueError("d should be a positive integer (dimension)")
    value = ops.tracer(a).astype(np.float64)
    terms = [UFUNCS["gammaln"](ops, ops.tracer(value - number / 2)) for number in range(dimensions)]
    total = sum(terms[1:], terms[0]) + dimensions * (dimensions - 1) * 0.25 * math.log(math.pi)
    limit = 0.5 * (dimensions - 1)
    bad = ops.tracer(value <= limit)
    if bad.size:
        ops.check(bad.value, ValueError, f"condition a (some <= {limit:f}) > 0.5 * (d-1) not met")
    return total


@_rule
def factorial(ops: Operations, n: Any, exact: bool = False, extend: str = "zero") -> Any:
    if exact or extend != "zero":
        raise TracingError("scipy.special.factorial: exact=True and extend='complex' cannot be compiled")
    (value,) = _floats(ops, n)
    wide = value.astype(np.float64)
    found = ops.tracer(np.where(wide < 0, 0.0, UFUNCS["gamma"](ops, ops.tracer(wide + 1))))
    return found.astype(value.dtype)


@_rule
def comb(ops: Operations, N: Any, k: Any, *, exact: bool = False, repetition: bool = False) -> Any:
    """Whole numbers where there are such, as SciPy's products are."""
    if exact:
        raise TracingError("scipy.special.comb: exact=True cannot be compiled")
    total, chosen = (ops.tracer(each).astype(np.float64) for each in (N, k))
    if repetition:
        total = total + chosen - 1
    logarithm = UFUNCS["betaln"](ops, ops.tracer(total - chosen + 1), ops.tracer(chosen + 1))
    found = np.exp(-logarithm) / (total + 1)
    whole = (total == np.floor(total)) & (chosen == np.floor(chosen)) & (found < 1e12)
    found = np.where(whole, np.rint(found), found)
    return np.where((chosen <= total) & (total >= 0) & (chosen >= 0), found, 0.0)
