"""The CPU's library kernels: routines for the ops whose lowering is ``Kernel(name)``.

Each is a function ``emit(instruction, target, symbol) -> KernelCode``, imported when first needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache

from hlojit.ir.graph import Instruction
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target

KernelEmitter = Callable[[Instruction, Target, str], KernelCode]

_EMITTERS = {
    "fusion": "hlojit.cpu.kernels.sort:emit_fused",
    "dot_general": "hlojit.cpu.kernels.dot_forms:emit_dot_general",
    "convolution": "hlojit.cpu.kernels.convolution_forms:emit_convolution",
    "dynamic_update_slice": "hlojit.cpu.kernels.update:emit_dynamic_update_slice",
    "scatter": "hlojit.cpu.kernels.scatter:emit_scatter",
    "sort": "hlojit.cpu.kernels.sort:emit_sort",
    "cholesky": "hlojit.cpu.kernels.factorizations:emit_cholesky",
    "triangular_solve": "hlojit.cpu.kernels.factorizations:emit_triangular_solve",
    "butterflies": "hlojit.cpu.kernels.fourier:emit_butterflies",
    "foreign_call": "hlojit.cpu.kernels.foreign_call:emit_foreign_call",
    "lapack": "hlojit.cpu.kernels.lapack:emit_lapack",
    "reduce_window": "hlojit.llvm.reduce_window:emit_reduce_window",
}


def has_kernel(name: str) -> bool:
    """Whether there is a kernel called ``name``."""
    return name in _EMITTERS


@cache
def kernel_emitter(name: str) -> KernelEmitter:
    """The emitter of the kernel called ``name``."""
    module, _, function = _EMITTERS[name].partition(":")
    emitter: KernelEmitter = getattr(importlib.import_module(module), function)
    return emitter
