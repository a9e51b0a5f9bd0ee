"""The NVIDIA back end's answers to the compiler.

What it can do so far: say honestly what it cannot, and assemble fused elementwise kernels (``hlojit.cuda.kernels``).  It
does not run programs yet.
"""

from __future__ import annotations

from typing import Any

from hlojit.extensions import YES, Backend, Capability, CompileOptions, no
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.formats import BooleanType, FloatFormat, IntegerType
from hlojit.ir.graph import Instruction, Module
from hlojit.ir.ops.definition import Pointwise, Trait
from hlojit.ir.types import TensorType


class CudaBackend(Backend):
    """One NVIDIA GPU."""

    name = "cuda"
    fuses = True

    def unavailable(self) -> str | None:
        """The back end compiles kernels but does not launch them yet."""
        return "it does not run programs yet; it only assembles fused elementwise kernels (hlojit.cuda.kernels)"

    def capability(self, instruction: Instruction) -> Capability:
        """Pointwise ops on static tensors of ordinary element types; everything else not yet."""
        op = instruction.op
        if Trait.CONSTANT in op.traits or Trait.TERMINATOR in op.traits:
            return YES
        if not isinstance(op.lowering, Pointwise):
            return no("not yet: only pointwise ops have GPU code")
        for value in (*instruction.operands, *instruction.results):
            kind = value.type
            if not isinstance(kind, TensorType) or not kind.is_static:
                return no(f"not yet: values of type {kind}")
            if not isinstance(kind.element_type, (BooleanType, IntegerType, FloatFormat)):
                return no(f"not yet: element type {kind.element_type}")
        return YES

    def compile(self, module: Module, options: CompileOptions) -> Any:
        """Refuse: launching kernels comes later."""
        raise UnsupportedError("the program", self.name, self.unavailable() or "")
