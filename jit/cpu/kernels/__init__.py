"""The CPU's own kernels, in the table of kernels like those of plugins: routines for the ops whose lowering is ``Kernel(name)``.

Each is an emitter, ``emit(instruction, target, symbol) -> KernelCode``, imported when first needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from hlojit.extensions.kernels.kernel import Kernel, KernelGroup, LoweringPattern
from hlojit.extensions.kernels.table import kernels_for
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction

KernelEmitter = Callable[["Instruction", Target, str], KernelCode]

BACKEND_NAME: Final = "cpu"

_EMITTERS: Final = {
    "fusion": "hlojit.cpu.kernels.sort:emit_fused",
    "plugin_kernel": "hlojit.cpu.kernels.plugin_kernels:emit_plugin_kernel",
    "anchored": "hlojit.cpu.kernels.anchored:emit_anchored",
    "dot_general": "hlojit.cpu.kernels.dot_forms:emit_dot_general",
    "convolution": "hlojit.cpu.kernels.convolution_forms:emit_convolution",
    "dynamic_update_slice": "hlojit.cpu.kernels.update:emit_dynamic_update_slice",
    "scatter": "hlojit.cpu.kernels.scatter:emit_scatter",
    "sort": "hlojit.cpu.kernels.sort:emit_sort",
    "cholesky": "hlojit.cpu.kernels.factorizations:emit_cholesky",
    "triangular_solve": "hlojit.cpu.kernels.factorizations:emit_triangular_solve",
    "butterflies": "hlojit.cpu.kernels.fourier:emit_butterflies",
    "array_function": "hlojit.cpu.kernels.array_function:emit_array_call",
    "foreign_call": "hlojit.cpu.kernels.foreign_call:emit_foreign_call",
    "lapack": "hlojit.cpu.kernels.lapack:emit_lapack",
    "reduce_window": "hlojit.llvm.reduce_window:emit_reduce_window",
}


@dataclass(frozen=True, slots=True)
class Emitter:
    """A built-in kernel's answer for every group: the function of hlojit's own that emits it, by module and name."""

    path: str

    def __call__(self, group: KernelGroup) -> Emitter:
        return self


def own_kernels() -> list[Kernel]:
    """The registrations."""
    return [
        Kernel(f"{BACKEND_NAME}.{name}", backend=BACKEND_NAME, pattern=LoweringPattern(name), build=Emitter(path))
        for name, path in _EMITTERS.items()
    ]


def has_kernel(name: str) -> bool:
    """Whether there is a kernel called ``name`` in the environment."""
    return name in kernels_for(BACKEND_NAME).routines


def kernel_emitter(name: str) -> KernelEmitter:
    """The emitter of the kernel called ``name`` in the environment."""
    build = kernels_for(BACKEND_NAME).routines[name].build
    assert isinstance(build, Emitter)
    return _imported(build.path)


@cache
def _imported(path: str) -> KernelEmitter:
    module, _, function = path.partition(":")
    emitter: KernelEmitter = getattr(importlib.import_module(module), function)
    return emitter
