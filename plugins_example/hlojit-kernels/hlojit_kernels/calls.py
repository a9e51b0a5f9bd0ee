"""Custom calls in Python: of scalars, of arrays by numba, of arrays by Python, and one that builds other ops."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.extensions import (
    ArrayCall,
    Builder,
    CallSite,
    CallTypes,
    ElementwiseCall,
    ExpansionCall,
    Instruction,
    Value,
    call_config,
)
from hlojit.ir import tensor


def quantize(x: float, *, step: float = 1.0, levels: int = 256) -> tuple[float, float]:
    """Two results of two types: the code of a number, which becomes an integer, and how far it is from what the code means."""
    code = min(max(np.rint(x / step), 0.0), levels - 1.0) if x == x else 0.0
    return code, x - code * step


def polynomial(site: CallSite) -> Any:
    """A factory: the coefficients of the configuration become constants of the function, from the highest power down."""
    coefficients = tuple(site.config["coefficients"])
    if len(coefficients) == 0:
        raise ValueError("a polynomial has one coefficient at least")
    table = np.array(coefficients, "f8")

    def value(x: float) -> float:
        total = 0.0
        for k in range(len(table)):
            total = total * x + table[k]
        return total

    return value


def histogram(x: Any, counts: Any, *, bins: int, low: float, high: float) -> None:
    """Of arrays, by numba: how many numbers lie in each of the bins, the upper edge in the last one."""
    counts[:] = 0
    for value in x.ravel():
        if low <= value <= high:
            counts[min(int((value - low) / (high - low) * bins), bins - 1)] += 1


def checksums(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of arrays, by Python, which has the library: the CRC-32 of each row of bytes."""
    return np.array([zlib.crc32(row.tobytes()) for row in rows], np.uint32)


def root_mean_square_norm(builder: Builder, instruction: Instruction) -> Sequence[Value]:
    """x / sqrt(mean(x**2) + epsilon) * weight out of other ops, which are fused and differ in nothing from a program's own."""
    x, weight = instruction.operands
    type = x.tensor_type
    if type.rank == 0 or weight.tensor_type.shape != type.shape[-1:]:
        raise ValueError("the weight has the size of the last dimension")
    outer = tuple(range(type.rank - 1))
    rows = tensor(type.shape[:-1], type.element_type)
    epsilon = (call_config(instruction) or {}).get("epsilon", 1e-6)
    zero = builder.constant(0.0, type.element_type)
    add = builder.combiner("stablehlo.add", type.element_type)
    squares = builder.reduce([builder.multiply(x, x)], [zero], dimensions=[type.rank - 1], body=add)
    mean = builder.divide(squares, builder.constant(float(type.shape[-1]), rows))
    factor = builder.rsqrt(builder.add(mean, builder.constant(epsilon, rows)))
    scaled = builder.multiply(x, builder.broadcast_in_dim(factor, type, outer))
    return [builder.multiply(scaled, builder.broadcast_in_dim(weight, type, (type.rank - 1,)))]


def counts_type(call: CallTypes) -> Any:
    """As many counts as the configuration says."""
    return tensor((int(call.config["bins"]),), "i64")


def row_type(call: CallTypes) -> Any:
    """A number for each row."""
    return tensor(call.operands[0].shape[:1], "ui32")


CALLS = [
    ElementwiseCall("kernels.quantize", function=quantize),
    ElementwiseCall("kernels.polynomial", factory=polynomial),
    ArrayCall("kernels.histogram", function=histogram, result_types=counts_type),
    ArrayCall("kernels.crc32", function=checksums, trust="python", result_types=row_type),
    ExpansionCall("kernels.rms_norm", expand=root_mean_square_norm, result_types=lambda call: call.operands[0]),
]
