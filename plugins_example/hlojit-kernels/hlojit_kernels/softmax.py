"""A softmax along the last dimension, for programs that say ``stablehlo.composite "kernels.softmax"``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hlojit.extensions import CompositePattern, Declined, Kernel, KernelGroup, TaskFunction


def softmax_rows(x: Any, result: Any, begin: int, end: int) -> None:
    """Rows ``begin`` to ``end``, in three walks over a row that is in the first cache from the second on."""
    columns = x.shape[-1]
    rows, results = x.reshape((x.size // columns, columns)), result.reshape((x.size // columns, columns))
    for row in range(begin, end):
        line, written = rows[row], results[row]
        greatest = line.max()
        total = np.float32(0.0)
        for k in range(columns):
            written[k] = math.exp(line[k] - greatest)
            total += written[k]
        for k in range(columns):
            written[k] /= total


def build_softmax(group: KernelGroup) -> TaskFunction | Declined:
    """The kernel for rows of f32; other composites are decomposed and computed by hlojit."""
    if len(group.operand_types) != 1 or group.operand_types != group.result_types:
        return Declined("one operand is wanted, and a result like it")
    (x,) = group.operand_types
    if x.rank == 0 or x.size == 0 or x.element_type.name != "f32":
        return Declined(f"rows of f32 are wanted, not {x}")
    return TaskFunction(softmax_rows, tasks=x.size // x.shape[-1], cost=5.0 * x.shape[-1])


SOFTMAX = Kernel("kernels.softmax", backend="cpu", pattern=CompositePattern("kernels.softmax"), build=build_softmax)
