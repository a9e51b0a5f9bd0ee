"""Compile one rule of ``hlojit.ir.scalar`` as a loop over arrays and call it, for accuracy and speed measurements.

    exp = VectorFunction("exp", "f32", lanes=16)
    y = exp(np.linspace(-1, 1, 1000, dtype=np.float32))

Tests and ``exhaustive_ulp.py`` use it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from hlojit.cpu.processor import host_target
from hlojit.ir.scalar import functions
from hlojit.llvm.builder import LlvmBuilder
from hlojit.lowering.target import Target
from hlojit.machine_code.loading import load_objects
from hlojit.machine_code.object_code import compile_to_assembly, compile_to_object

Array = np.ndarray[Any, Any]
DTYPES = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}


def loop_text(rule: Callable[..., Any], kind: str, lanes: int, operands: int) -> str:
    """LLVM IR of ``void f(ptr x..., ptr y, i64 n)``, n being a multiple of the lanes."""
    b = LlvmBuilder(lanes=lanes)
    parameters = [("ptr", f"x{number}") for number in range(operands)] + [("ptr", "y"), ("i64", "n")]
    with b.function("f", parameters) as (*sources, result, count):
        loop = b.begin_loop(b.constant("i64", 0), count, step=lanes)
        values = [b.load(kind, b.element_pointer(source, kind, loop.index), vector=lanes > 1) for source in sources]
        b.store(rule(b, *values), b.element_pointer(result, kind, loop.index))
        b.end_loop(loop)
    return b.module_text()


class VectorFunction:
    """A rule compiled for this processor, callable on contiguous arrays of its type."""

    def __init__(self, name: str, kind: str, lanes: int | None = None, operands: int = 1):
        self.kind, self.operands = kind, operands
        self.lanes = lanes or 4 * host_target().native_lanes(kind)
        self.text = loop_text(getattr(functions, name), kind, self.lanes, operands)
        self._code = load_objects([compile_to_object(self.text, host_target())], ["f"])
        self._call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (operands + 1), ctypes.c_int64)(
            self._code.address("f")
        )

    def assembly(self, target: Target | None = None) -> str:
        """The loop's machine code."""
        return compile_to_assembly(self.text, target or host_target())

    def run(self, *arrays: Array) -> None:
        """Inputs and the output, all of a length that the lanes divide."""
        self._call(*[array.ctypes.data for array in arrays], arrays[-1].size)

    def __call__(self, *inputs: Array) -> Array:
        size = inputs[0].size
        padded = -(-size // self.lanes) * self.lanes
        arrays = []
        for values in inputs:
            array = np.ones(padded, DTYPES[self.kind])
            array[:size] = values.ravel()
            arrays.append(array)
        result = np.empty(padded, DTYPES[self.kind])
        self.run(*arrays, result)
        return result[:size]


def ulp_error(result: Array, exact: Array) -> Array:
    """Distance in units in the last place of the result's type at the exact value (given in a wider type).

    Equal infinities and NaNs count as 0, other disagreements about them as infinity.
    """
    info = np.finfo(result.dtype)
    with np.errstate(all="ignore"):
        magnitude = np.maximum(np.abs(exact), float(info.smallest_normal))
        _, exponent = np.frexp(magnitude.astype(np.float64))
        unit = np.ldexp(1.0, np.maximum(exponent - 1, info.minexp) - info.nmant)
        rounded = exact.astype(result.dtype)
        error = np.abs(result.astype(exact.dtype) - exact) / unit
        same = (result == rounded) & ~np.isfinite(rounded)
        error = np.where(same | (np.isnan(result) & np.isnan(exact)), 0.0, error)
        return np.where(np.isnan(error), np.inf, error).astype(np.float64)
