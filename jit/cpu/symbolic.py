"""Programs that are compiled once for all sizes, on the CPU.

code = compile_symbolic(module, size_arguments, target)
spec = code.bind(types, values)         # an ``ExecutableSpec`` for arguments of these shapes: the same machine code
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hlojit.codegen.programs import sized_program
from hlojit.compiled import CompiledProgram
from hlojit.cpu.imports import imported_symbols
from hlojit.executable import ExecutableSpec
from hlojit.extensions.backends.backend import DECOMPOSE, YES, Capability, no
from hlojit.ir.errors import ArgumentError
from hlojit.ir.graph import Instruction, Module
from hlojit.ir.ops.accuracy import unmet_accuracy
from hlojit.ir.ops.custom_calls import is_custom_call
from hlojit.ir.ops.definition import Expand, Kernel
from hlojit.ir.ops.region_expressions import reason_against_promotion
from hlojit.ir.ops.symbolic_values import SymbolicShapes
from hlojit.ir.passes.symbolic_shapes import has_rule, symbolic_shapes
from hlojit.ir.size_checks import SizeFacts, known_elements
from hlojit.ir.sizes import SizeExpression, evaluate
from hlojit.ir.types import TensorType
from hlojit.llvm.math_library import with_own_math
from hlojit.llvm.symbolic_elements import is_supported
from hlojit.llvm.symbolic_kernels import SymbolicProgramEmitter
from hlojit.lowering.abi import identity as runtime_identity
from hlojit.lowering.target import Target
from hlojit.machine_code.loading import load_objects
from hlojit.machine_code.object_code import compile_to_object
from hlojit.runtime.native import native
from hlojit.sized_program import NamedShape, SizedProgram

ENTRY = "hlojit_main"
_HALF = 1 << 63


@dataclass(frozen=True)
class SymbolicCode:
    """Machine code for arguments of all shapes, and the program as data."""

    compiled: CompiledProgram
    loaded: Any
    owners: tuple[object, ...] = ()
    """What must live as long as the code may be called."""

    @property
    def sized(self) -> SizedProgram:
        """What follows from sizes."""
        assert self.compiled.sized is not None
        return self.compiled.sized

    def of(self, stated: SizeFacts, source: str) -> SymbolicCode:
        """The same with what the program as it was written needs of sizes, and its text."""
        return replace(self, compiled=replace(self.compiled, sized=replace(self.sized, stated=stated, source=source)))

    def unfit(self, types: Sequence[TensorType], values: Mapping[int, Any]) -> str | None:
        """Why the code does not compute what the program does for arguments of these types; None where it does."""
        return self.sized.needs.unfit([type_.shape for type_ in types], values)

    def bind(self, types: Sequence[TensorType], values: Mapping[int, Any]) -> ExecutableSpec:
        """The code for arguments of these types, some with known elements; ``ArgumentError`` if they do not fit each other."""
        extents, sized = [type_.shape for type_ in types], self.sized
        complaint = sized.needs.complaint(extents, values) or sized.impossible(extents, values)
        if complaint is not None:
            raise ArgumentError(
                f"{self.compiled.name} cannot run with arguments of types ({', '.join(map(str, types))}): {complaint}"
            )
        elements = known_elements(values)
        sizes = [evaluate(size, extents, elements) for size in sized.table]
        # A number of a type without sign may have a bit where others have theirs.
        table = np.array([(size + _HALF) % (2 * _HALF) - _HALF for size in sizes] or [0], np.int64)
        outputs = [
            type_.with_shape([evaluate(size, extents, elements) for size in shape])
            for type_, shape in zip(self.compiled.outputs, sized.results, strict=True)
        ]
        launches = float("inf") if sized.launches is None else sized.launches
        return ExecutableSpec(
            name=self.compiled.name,
            entry=self.loaded.address(ENTRY),
            inputs=tuple(types),
            outputs=tuple(outputs),
            arena_bytes=evaluate(sized.arena_bytes, extents, elements),
            constants=tuple(array.ctypes.data for array in (*self.compiled.constants, table)),
            keepalive=(self.loaded, table, self),
            estimated_nanoseconds=float(sum(type_.size for type_ in (*types, *outputs)) * launches)
            if launches
            else 0.0,
        )


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
    lowering = instruction.op.lowering
    if not reason and isinstance(lowering, Kernel) and lowering.declines is not None:
        reason = lowering.declines(instruction)
    return no(reason) if reason else YES


def compile_symbolic(module: Module, size_arguments: Sequence[int], target: Target, backend: str) -> SymbolicCode:
    """Compile once for all sizes; raises ``UnsupportedError`` naming the op that has no code for that."""
    shapes = symbolic_shapes(module.main, size_arguments)
    program = SymbolicProgramEmitter(shapes, target).emit(ENTRY)
    pipeline = "inline" if program.linked else "lean"
    code = compile_to_object(
        program.text, target, pipeline=pipeline, linked=[with_own_math(text) for text in program.linked]
    )
    sized = SizedProgram(
        table=program.sizes,
        arena_bytes=program.arena_bytes,
        launches=program.launches,
        results=tuple(shapes.dims[value] for value in module.main.body.returned),
        values=tuple(_named_shapes(shapes)),
        needs=shapes.facts(),
        stated=SizeFacts(),
        size_arguments=tuple(size_arguments),
        source="",
    )
    compiled = sized_program(
        module,
        ((ENTRY, code),),
        program.constants,
        sized,
        backend=backend,
        target=target,
        runtime=runtime_identity(),
        entry=ENTRY,
        imports=program.imports,
    )
    if program.unkeyable:
        compiled = replace(compiled, unkeyable=(*compiled.unkeyable, program.unkeyable))
    return load_symbolic(compiled)


def load_symbolic(compiled: CompiledProgram) -> SymbolicCode:
    """The code of such a program in this process."""
    images = [image for _, image in compiled.objects]
    imported, owners = imported_symbols(compiled.imports)
    loaded = load_objects(images, [compiled.entry], native().symbols() | imported)
    return SymbolicCode(compiled, loaded, owners)


def _named_shapes(shapes: SymbolicShapes) -> Iterator[NamedShape]:
    seen = set()
    for value, shape in shapes.dims.items():
        itemsize = value.tensor_type.element_type.itemsize
        if (shape, itemsize) not in seen and any(isinstance(size, SizeExpression) for size in shape):
            seen.add((shape, itemsize))
            what = value.producer.op.name if value.producer is not None else f"argument {value.index}"
            yield NamedShape(what, itemsize, shape)
