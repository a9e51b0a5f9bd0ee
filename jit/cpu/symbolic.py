"""Programs that are compiled once for all sizes, on the CPU.

code = compile_symbolic(module, size_arguments, target)
spec = code.bind(types, values)         # an ``ExecutableSpec`` for arguments of these shapes: the same machine code
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hlojit.executable import ExecutableSpec
from hlojit.ir.errors import ArgumentError
from hlojit.ir.graph import Module
from hlojit.ir.passes.common_subexpression_elimination import CommonSubexpressionElimination
from hlojit.ir.passes.dead_code_elimination import DeadCodeElimination
from hlojit.ir.passes.symbolic_shapes import symbolic_shapes
from hlojit.ir.passes.symbolic_values import SymbolicShapes
from hlojit.ir.sizes import evaluate
from hlojit.ir.types import TensorType
from hlojit.llvm.math_library import with_own_math
from hlojit.llvm.symbolic_kernels import SymbolicProgram, SymbolicProgramEmitter
from hlojit.lowering.target import Target
from hlojit.machine_code.loading import load_objects
from hlojit.machine_code.object_code import compile_to_object
from hlojit.runtime.native import native

ENTRY = "hlojit_main"


@dataclass(frozen=True)
class SymbolicCode:
    """Machine code for arguments of all shapes, and what follows from them."""

    name: str
    shapes: SymbolicShapes
    program: SymbolicProgram
    loaded: Any

    def bind(self, types: Sequence[TensorType], values: Mapping[int, Any]) -> ExecutableSpec:
        """The code for arguments of these types, some with known elements; ``ArgumentError`` if they do not fit each other."""
        extents = [type_.shape for type_ in types]
        elements = {number: [int(each) for each in np.reshape(array, -1)] for number, array in values.items()}
        for check in self.shapes.checks:
            if not evaluate(check.condition, extents, elements):
                sizes = [evaluate(size, extents, elements) for size in check.sizes]
                raise ArgumentError(
                    f"{self.name} cannot run with arguments of types ({', '.join(map(str, types))}): "
                    f"{check.message.format(*sizes)}"
                )
        table = np.array([evaluate(size, extents, elements) for size in self.program.sizes] or [0], np.int64)
        outputs = []
        for value in self.shapes.function.body.returned:
            shape = [evaluate(size, extents, elements) for size in self.shapes.dims[value]]
            outputs.append(value.tensor_type.with_shape(shape))
        constants = [array.ctypes.data for array in (*self.program.constants, table)]
        work = sum(type_.size for type_ in (*types, *outputs)) * self.program.kernels
        return ExecutableSpec(
            name=self.name,
            entry=self.loaded.address(ENTRY),
            inputs=tuple(types),
            outputs=tuple(outputs),
            arena_bytes=evaluate(self.program.arena_bytes, extents, elements),
            constants=tuple(constants),
            keepalive=(self.loaded, table, self),
            estimated_nanoseconds=float(work),
        )


def compile_symbolic(module: Module, size_arguments: Sequence[int], target: Target) -> SymbolicCode:
    """Compile once for all sizes; raises ``UnsupportedError`` naming the op that has no code for that."""
    CommonSubexpressionElimination().run(module)
    DeadCodeElimination().run(module)
    shapes = symbolic_shapes(module.main, size_arguments)
    program = SymbolicProgramEmitter(shapes, target).emit(ENTRY)
    pipeline = "inline" if program.linked else "lean"
    code = compile_to_object(
        program.text, target, pipeline=pipeline, linked=[with_own_math(text) for text in program.linked]
    )
    loaded = load_objects([code], [ENTRY], native().symbols())
    return SymbolicCode(module.main.name, shapes, program, loaded)
