"""Kernels for tests: LLVM IR of loops, and plugins of one kernel or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hlojit.extensions import Declined, Kernel, KernelGroup, LlvmKernel, OpPattern, hookimpl

NEGATED = "  %value = fneg float %element"
NEGATE = OpPattern("stablehlo.negate")
X = np.linspace(-2, 2, 1000, dtype="f4")


def program(kind: str = "f32", shape: str = "1000") -> str:
    """Negates a vector."""
    return f"""func.func @main(%x: tensor<{shape}x{kind}>) -> tensor<{shape}x{kind}> {{
      %0 = stablehlo.negate %x : tensor<{shape}x{kind}>
      return %0 : tensor<{shape}x{kind}>
    }}"""


def loop(body: str = NEGATED, *, symbol: str = "kernel", kind: str = "float", operands: int = 1, more: str = "") -> str:
    """A kernel with a task an element: ``body`` computes ``%value`` from ``%element``, that of operand 0."""
    return f"""
{more}
define void @{symbol}(ptr %context, ptr %buffers, i64 %begin, i64 %end) {{
entry:
  %source = load ptr, ptr %buffers
  %place = getelementptr ptr, ptr %buffers, i64 {operands}
  %target = load ptr, ptr %place
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %from = getelementptr {kind}, ptr %source, i64 %i
  %element = load {kind}, ptr %from
{body}
  %to = getelementptr {kind}, ptr %target, i64 %i
  store {kind} %value, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


def times(factor: float) -> str:
    """A loop that multiplies by a number."""
    return loop(f"  %value = fmul float %element, {factor:.6e}")


def llvm(ir: str, **given: Any) -> Callable[[KernelGroup], LlvmKernel]:
    """Builds the same code for every group, a task an element."""
    return lambda group: LlvmKernel(ir, tasks=group.result_types[0].size, **{"cost": 1.0, **given})


def declining(reason: str) -> Callable[[KernelGroup], Declined]:
    """Declines every group."""
    return lambda group: Declined(reason)


class Kernels:
    """A plugin of kernels."""

    def __init__(self, *kernels: Kernel):
        self.kernels = kernels

    @hookimpl
    def hlojit_kernels(self) -> Sequence[Kernel]:
        return self.kernels


def kernel(pattern: Any, build: Callable[[KernelGroup], Any], name: str = "nova.kernel", **given: Any) -> Kernel:
    """A kernel for the CPU."""
    return Kernel(name, **{"backend": "cpu", "pattern": pattern, "build": build, **given})


def launched(executable: Any) -> list[str]:
    """What the launches of a program are called."""
    return [launch.instruction_name for launch in executable.spec.program.launches()]
