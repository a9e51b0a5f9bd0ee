"""GPU kernels with ``@numba.cuda.jit``: one that programs call, and one that takes over a composite."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hlojit.extensions import (
    CompositePattern,
    CudaKernel,
    Declined,
    Kernel,
    KernelCall,
    KernelGroup,
    KernelSite,
    Launch,
)
from numba import cuda

THREADS = 256


@cuda.jit
def rotate(x, result):  # type: ignore[no-untyped-def]
    """Each element moves one place on, the last one to the front."""
    i = cuda.grid(1)
    if i < x.size:
        result[(i + 1) % x.size] = x[i]


@cuda.jit
def softmax_row(x, result):  # type: ignore[no-untyped-def]
    """A thread for each row."""
    row = cuda.grid(1)
    if row < x.shape[0]:
        greatest = x[row, 0]
        for k in range(1, x.shape[1]):
            greatest = max(greatest, x[row, k])
        total = np.float32(0.0)
        for k in range(x.shape[1]):
            result[row, k] = math.exp(x[row, k] - greatest)
            total += result[row, k]
        for k in range(x.shape[1]):
            result[row, k] /= total


def every_element(site: KernelSite) -> Launch:
    """A thread for each element of the result."""
    return Launch(blocks=-(-site.results[0].size // THREADS), threads=THREADS)


def every_row(site: KernelSite) -> Launch:
    """A thread for each row of the result."""
    return Launch(blocks=-(-site.results[0].shape[0] // THREADS), threads=THREADS)


def build_softmax(group: KernelGroup) -> CudaKernel | Declined:
    """Without a substitute the simulator runs the composite's own graph."""
    (x,) = group.operand_types
    if x.rank != 2 or x.size == 0 or x.element_type.name != "f32":
        return Declined(f"rows of f32 are wanted, not {x}")
    return CudaKernel(softmax_row, every_row)


def rotated(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What ``rotate`` does, for back ends without the GPU."""
    return np.roll(x, 1)


GPU_CALLS = [
    KernelCall(
        "kernels.rotate",
        kernel=rotate,
        launch=every_element,
        substitute=rotated,
        result_types=lambda call: call.operands[0],
    )
]
GPU_KERNELS = [
    Kernel("kernels.cuda_softmax", backend="cuda", pattern=CompositePattern("kernels.softmax"), build=build_softmax)
]
