"""What hlojit loads: the hooks, and the tables that they return."""

from __future__ import annotations

from collections.abc import Sequence

from hlojit.extensions import CustomCall, Kernel, hookimpl

from hlojit_kernels.attention import ATTENTION
from hlojit_kernels.calls import CALLS
from hlojit_kernels.foreign import SMOOTH
from hlojit_kernels.gpu import GPU_CALLS, GPU_KERNELS
from hlojit_kernels.hamming import HAMMING
from hlojit_kernels.native import NATIVE_CALLS
from hlojit_kernels.softmax import SOFTMAX
from hlojit_kernels.sqlite import SQLITE_CALLS

hlojit_api = (1, 2)
"""The version of hlojit's hooks that this package is written for."""

hlojit_cases = "hlojit_kernels.cases"
"""What the conformance kit is told of them."""


@hookimpl
def hlojit_kernels() -> Sequence[Kernel]:
    """What takes over parts of programs."""
    return [ATTENTION, SOFTMAX, HAMMING, *GPU_KERNELS]


@hookimpl
def hlojit_custom_calls() -> Sequence[CustomCall]:
    """What programs call by name."""
    return [*CALLS, *NATIVE_CALLS, *SQLITE_CALLS, SMOOTH, *GPU_CALLS]
