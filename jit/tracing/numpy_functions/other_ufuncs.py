"""Ufuncs that compute otherwise than element by element on the loop's dtypes, or are not NumPy's own: found by the object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hlojit.tracing.numpy_functions import matrices, parts_of_numbers
from hlojit.tracing.scipy_functions import special_ufuncs

UfuncRule = Callable[..., Any]
"""``rule(operations, ufunc, operands, options)``."""


def rule_of(ufunc: np.ufunc) -> UfuncRule | None:
    """The rule of such a ufunc, or None."""
    return matrices.UFUNCS.get(ufunc) or parts_of_numbers.UFUNCS.get(ufunc) or special_ufuncs.special_rule(ufunc)
