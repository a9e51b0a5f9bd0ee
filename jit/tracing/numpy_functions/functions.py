"""NumPy's functions (as opposed to ufuncs) on tracers: ``FUNCTIONS`` maps each to the rule that builds it.

Most are written with other NumPy functions and operators on tracers; only the last step builds graph ops.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from hlojit.tracing.numpy_functions import (
    choosing,
    complex_numbers,
    factorizations,
    fourier,
    histograms,
    linear_systems,
    matrices,
    norms,
    padding,
    placing,
    positions,
    products,
    reductions,
    searching,
    shapes,
)
from hlojit.tracing.numpy_functions.rules import Rules

FUNCTIONS: Rules = {
    np.dot: products.dot,
    np.tensordot: products.tensordot,
    np.einsum: products.einsum,
    np.outer: products.outer,
    np.inner: products.inner,
    np.vdot: products.vdot,
    **reductions.RULES,
    **shapes.RULES,
    **choosing.RULES,
    **complex_numbers.RULES,
    **fourier.RULES,
    **matrices.RULES,
    **factorizations.RULES,
    **linear_systems.RULES,
    **norms.RULES,
    **searching.RULES,
    **padding.RULES,
    **placing.RULES,
    **positions.RULES,
    **histograms.RULES,
}

VIEWS: Final[frozenset[Any]] = frozenset(
    {
        np.reshape, np.ravel, np.transpose, np.permute_dims, np.matrix_transpose, np.swapaxes, np.moveaxis, np.rollaxis,
        np.squeeze, np.expand_dims, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.split, np.array_split, np.hsplit,
        np.vsplit, np.dsplit, np.unstack, np.flip, np.flipud, np.fliplr, np.rot90, np.real, np.imag, np.diagonal, np.diag,
        np.linalg.diagonal, np.linalg.matrix_transpose, np.broadcast_to, np.broadcast_arrays, np.nan_to_num, np.astype,
        np.real_if_close, np.einsum, np.lib.stride_tricks.sliding_window_view, np.lib.stride_tricks.as_strided,
    }
)  # fmt: skip
"""Functions that NumPy gives views by; the results of all others are new arrays."""

ARRAYS_WITHOUT_DIMENSIONS: Final[frozenset[Any]] = frozenset(
    {
        np.where, np.broadcast_to, np.broadcast_arrays, np.copy, np.zeros_like, np.ones_like, np.empty_like, np.full_like,
        np.select, np.pad, np.meshgrid, np.tensordot, np.linalg.tensordot, np.array_split, np.split, np.stack, np.concatenate,
    }
)  # fmt: skip
"""Functions whose results without dimensions are arrays; of all others they are scalars."""

LIKE_THEIR_OPERAND: Final[frozenset[Any]] = frozenset(
    {np.reshape, np.transpose, np.permute_dims, np.squeeze, np.real, np.imag, np.astype}
)
"""Those that give a scalar for a scalar, and for an array an array."""

PYTHON_BOOLEANS: Final[frozenset[Any]] = frozenset({np.allclose, np.array_equal, np.array_equiv})
"""Functions that give Python's ``bool``."""

OF_SEVERAL: Final[frozenset[Any]] = frozenset(
    {
        np.concatenate, np.concat, np.stack, np.vstack, np.hstack, np.dstack, np.column_stack, np.block, np.select, np.choose,
        np.broadcast_arrays, np.meshgrid, np.ix_, np.einsum, np.einsum_path, np.lexsort, np.ravel_multi_index, np.piecewise,
        np.histogramdd, np.histogram2d, np.linalg.multi_dot, np.pad, np.histogram,
    }
)  # fmt: skip
"""Functions to which a list of arrays is several arrays; to all others it is one."""

_VALUES = "the length of its result depends on values"
_MEMORY = "where arrays lie is known only when the function is called"
REASONS: Final[dict[Any, str]] = {
    np.trim_zeros: _VALUES,
    np.polydiv: _VALUES,
    np.real_if_close: "the dtype of its result depends on values; use .real",
    np.shares_memory: _MEMORY,
    np.may_share_memory: _MEMORY,
}
"""Why functions have no rule, and never will."""
