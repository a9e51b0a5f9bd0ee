"""Expressions that Hypothesis draws, compiled and on NumPy: values, dtypes and shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import agree

Expression = Callable[[Any, Any], Any]

LEAVES: list[Expression] = [
    lambda x, y: x, lambda x, y: y, lambda x, y: x[0], lambda x, y: y[..., None][..., 0], lambda x, y: x[:, :1], lambda x, y: x[::-1], lambda x, y: y[1, ::-1],
    lambda x, y: 2, lambda x, y: 1.5, lambda x, y: True, lambda x, y: np.float32(0.5), lambda x, y: np.arange(4, dtype="i2"),
]  # fmt: skip
UNARY: list[Callable[[Any], Any]] = [
    np.abs, np.square, np.isfinite, np.floor, lambda a: np.sum(a, axis=-1, keepdims=True) if np.ndim(a) else a, lambda a: np.max(a, axis=0) if np.ndim(a) == 2 else a,
    lambda a: np.transpose(a).T, lambda a: np.where(a > 0, a, 0), lambda a: np.clip(a, -3, 3), lambda a: np.sort(a, axis=-1) if np.ndim(a) else a,
]  # fmt: skip
BINARY: list[Callable[[Any, Any], Any]] = [
    np.add, np.multiply, np.maximum, np.minimum, np.less, np.equal, np.logical_and, np.true_divide, np.where, np.arctan2,
]  # fmt: skip


def _choose(a: Expression, b: Expression) -> Expression:
    return lambda x, y: np.where(np.greater(a(x, y), 0), a(x, y), b(x, y))


def _apply(function: Callable[..., Any], *parts: Expression) -> Expression:
    return lambda x, y: function(*(part(x, y) for part in parts))


EXPRESSIONS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.builds(_apply, st.sampled_from(UNARY), inner),
        st.builds(_apply, st.sampled_from([each for each in BINARY if each is not np.where]), inner, inner),
        st.builds(_choose, inner, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(EXPRESSIONS, st.sampled_from(["f4", "f8", "i4", "i1", "u2", "?"]), st.sampled_from(["f4", "i4", "i8", "?"]))
def test_drawn_expressions(expression: Expression, left: str, right: str) -> None:
    x = np.array([[1, -2, 3, 0], [5, 2, -1, 7], [0, 0, 4, -3]]).astype(left)
    y = np.array([[2, 2, 0, 1], [-3, 6, 1, 1], [1, 0, -7, 2]]).astype(right)
    with np.errstate(all="ignore"):
        try:
            kind = np.asarray(expression(x, y)).dtype.kind
        except (TypeError, ValueError, OverflowError, IndexError):
            return
    if kind in "fiub":
        agree(
            lambda x, y: np.asarray(expression(x, y)) if np.isscalar(expression(x, y)) else expression(x, y),
            x,
            y,
            ulps=64,
            atol=1e-5,
        )
