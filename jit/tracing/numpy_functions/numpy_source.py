"""NumPy's functions that are written in Python: their own source is rewritten and traced, as a user's is.

So their results are those of the very code that NumPy runs; what it calls at the bottom are functions that have rules.
Only functions that are named here: each has cases in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import numpy as np
from hlojit.tracing.rewriting import rewritten

_NAMES: Final = """
append apply_along_axis apply_over_axes array_equal array_equiv atleast_1d atleast_2d atleast_3d average block
broadcast_arrays column_stack common_type convolve corrcoef correlate cov cross cumulative_prod cumulative_sum delete
diag diag_indices_from diagflat diff digitize dsplit dstack ediff1d einsum_path fill_diagonal fix fliplr flipud
gradient histogram histogram2d histogram_bin_edges histogramdd hsplit i0 insert interp isfortran isneginf isposinf ix_
kron linspace median nan_to_num nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod nanstd nansum
nanvar percentile piecewise poly polyadd polyder polyfit polyint polysub polyval put_along_axis quantile
resize rot90 select sinc sort_complex trapezoid tril_indices_from triu_indices_from unique_all unique_counts
unique_inverse unique_values unstack unwrap vander vsplit
""".split()
FUNCTIONS: Final = {getattr(np, name) for name in _NAMES}


def source_of(function: Any) -> Callable[..., Any] | None:
    """What runs in the place of one of NumPy's functions, or None of one that has no Python source or is not named."""
    return own_source(function) if function in FUNCTIONS else None


def own_source(function: Any) -> Callable[..., Any] | None:
    """The Python source of one of NumPy's functions, rewritten, or None where it has none."""
    inner = getattr(function, "_implementation", function)
    return rewritten(inner).function if isinstance(inner, FunctionType) else None


def is_numpys(function: Any) -> bool:
    """Whether a function is a part of NumPy that is written in Python."""
    return isinstance(function, FunctionType) and str(function.__globals__.get("__name__", "")).startswith("numpy.")


def is_numpys_file(name: str) -> bool:
    """Whether a file is a part of NumPy."""
    return name.startswith(_FOLDER)


_FOLDER: Final = str(Path(np.__file__).parent)
