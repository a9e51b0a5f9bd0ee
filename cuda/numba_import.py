"""numba-cuda as a module that compiles, whatever NumPy's version is.

    cuda = numba_cuda()
    cuda.compile(...)

numba-cuda 0.30 asks NumPy for ``row_stack`` when it first compiles; NumPy 2.5 has it no more.  It is there for the time of that
import, by its other name.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

_NAME = "row_stack"


@cache
def numba_cuda() -> Any:
    """``numba.cuda``; raises what its import raises."""
    is_missing = not hasattr(np, _NAME)
    if is_missing:
        setattr(np, _NAME, np.vstack)
    try:
        import_module("numba.cuda.np.arrayobj")
    finally:
        if is_missing:
            delattr(np, _NAME)
    return import_module("numba.cuda")
