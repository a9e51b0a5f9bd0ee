"""NumPy's functions (as opposed to ufuncs) on tracers: ``FUNCTIONS`` maps each to the rule that builds it.

Most are written with other NumPy functions and operators on tracers; only the last step builds graph ops.
"""

from __future__ import annotations

import numpy as np
from hlojit.tracing import (
    choosing,
    complex_numbers,
    factorizations,
    fourier,
    linear_systems,
    matrices,
    norms,
    products,
    reductions,
    shapes,
)
from hlojit.tracing.rules import Rules

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
}
