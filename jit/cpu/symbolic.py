"""Programs that are compiled once for all sizes, on the CPU.

code = compile_symbolic(module, size_arguments, target)
spec = code.bind(types, values)         # an ``ExecutableSpec`` for arguments of these shapes: the same machine code
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hlojit.executable import ExecutableSpec
from hlojit.extensions.backend import DECOMPOSE, YES, Capability, no
from hlojit.ir.errors import ArgumentError
from hlojit.ir.graph import Instruction, Module
from hlojit.ir.ops.accuracy import unmet_accuracy
from hlojit.ir.ops.custom_calls import is_custom_call
from hlojit.ir.ops.definition import Expand
from hlojit.ir.ops.region_expressions import reason_against_promotion
from hlojit.ir.ops.symbolic_values import SymbolicShapes
from hlojit.ir.passes.symbolic_shapes import has_rule, symbolic_shapes
from hlojit.ir.sizes import MOST_BYTES, SizeExpression, evaluate
from hlojit.ir.types import TensorType
from hlojit.llvm.math_library import with_own_math
from hlojit.llvm.symbolic_elements import is_supported
from hlojit.llvm.symbolic_kernels import SymbolicProgram, SymbolicProgramEmitter
from hlojit.lowering.target import Target
from hlojit.machine_code.loading import load_objects
from hlojit.machine_code.object_code import compile_to_object
from hlojit.runtime.native import native

ENTRY = "hlojit_main"
_HALF = 1 << 63


@dataclass(frozen=True)
class SymbolicCode:
    """Machine code for arguments of all shapes, and what follows from them."""

    name: str
    shapes: SymbolicShapes
    program: SymbolicProgram
    loaded: Any

    def unfit(self, types: Sequence[TensorType], values: Mapping[int, Any]) -> str | None:
        """Why the code does not compute what the program does for arguments of these types; None where it does."""
        return self.shapes.unfit([type_.shape for type_ in types], values)

    def bind(self, types: Sequence[TensorType], values: Mapping[int, Any]) -> ExecutableSpec:
        """The code for arguments of these types, some with known elements; ``ArgumentError`` if they do not fit each other."""
        extents = [type_.shape for type_ in types]
        elements = {number: [int(each) for each in np.reshape(array, -1)] for number, array in values.items()}
        complaint = self.shapes.complaint(extents, values) or self._impossible(extents, elements)
        if complaint is not None:
            raise ArgumentError(
                f"{self.name} cannot run with arguments of types ({', '.join(map(str, types))}): {complaint}"
            )
        sizes = [evaluate(size, extents, elements) for size in self.program.sizes]
        # A number of a type without sign may have a bit where others have theirs.
        table = np.array([(size + _HALF) % (2 * _HALF) - _HALF for size in sizes] or [0], np.int64)
        outputs = []
        for value in self.shapes.function.body.returned:
            shape = [evaluate(size, extents, elements) for size in self.shapes.dims[value]]
            outputs.append(value.tensor_type.with_shape(shape))
        constants = [array.ctypes.data for array in (*self.program.constants, table)]
        kernels = float("inf") if self.program.launches is None else self.program.launches
        work = sum(type_.size for type_ in (*types, *outputs)) * kernels if kernels else 0.0
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

    def _impossible(self, extents: Sequence[Sequence[int]], elements: Mapping[int, Sequence[int]]) -> str | None:
        """Which value cannot be made: of a negative size, or larger than any memory."""
        seen = set()
        for value, shape in self.shapes.dims.items():
            if shape in seen or not any(isinstance(size, SizeExpression) for size in shape):
                continue
            seen.add(shape)
            found = [evaluate(size, extents, elements) for size in shape]
            nbytes = math.prod(found) * value.tensor_type.element_type.itemsize
            if min(found) < 0 or max(*found, nbytes) >= MOST_BYTES:
                what = value.producer.op.name if value.producer is not None else f"argument {value.index}"
                return f"{what} would have the shape {tuple(found)}, {nbytes:,} bytes"
        return None


def symbolic_capability(instruction: Instruction) -> Capability:
    """Whether an instruction has code for sizes that are given at run time, by its op and element types."""
    if not has_rule(instruction):
        if isinstance(instruction.op.lowering, Expand) or is_custom_call(instruction):
            return DECOMPOSE
        return no("it has no code for sizes that are given at run time")
    for type in (*instruction.operand_types, *instruction.result_types):
        element = type.element_type if isinstance(type, TensorType) else None
        if element is None or not is_supported(element):
            return no(f"{element or type} has no code for sizes that are given at run time")
    reason = unmet_accuracy(instruction) or reason_against_promotion(instruction)
    return no(reason) if reason else YES


def compile_symbolic(module: Module, size_arguments: Sequence[int], target: Target) -> SymbolicCode:
    """Compile once for all sizes; raises ``UnsupportedError`` naming the op that has no code for that."""
    shapes = symbolic_shapes(module.main, size_arguments)
    program = SymbolicProgramEmitter(shapes, target).emit(ENTRY)
    pipeline = "inline" if program.linked else "lean"
    code = compile_to_object(
        program.text, target, pipeline=pipeline, linked=[with_own_math(text) for text in program.linked]
    )
    loaded = load_objects([code], [ENTRY], native().symbols())
    return SymbolicCode(module.main.name, shapes, program, loaded)
