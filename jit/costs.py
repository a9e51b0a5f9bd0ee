"""What programs cost, as far as their text tells: arithmetic, bytes that are moved, bytes that a call takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from hlojit.ir.graph import Module, Value
from hlojit.ir.ops.definition import Structural, Trait
from hlojit.ir.types import TensorType
from hlojit.lowering.arithmetic_count import operations


def cost_of(module: Module) -> dict[str, float]:
    """Arithmetic operations and bytes that instructions read and write; what is in a loop or branch counts once."""
    flops = moved = 0
    blocks = [function.body for function in module.functions.values()]
    while blocks:
        for instruction in blocks.pop():
            if Trait.FUSION not in instruction.op.traits and isinstance(instruction.op.lowering, Structural):
                blocks += instruction.regions
            flops += operations(instruction)
            # Constants are part of the program, and what is returned is made by others.
            if instruction.operands and instruction.results:
                moved += sum(map(_bytes_of, (*instruction.operands, *instruction.results)))
    return {"flops": float(flops), "bytes accessed": float(moved)}


def _bytes_of(value: Value) -> int:
    return value.type.nbytes if isinstance(value.type, TensorType) and value.type.is_static else 0


@final
@dataclass(frozen=True)
class MemoryAnalysis:
    """Bytes that a call of a compiled program takes, named as JAX names them."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int
    alias_size_in_bytes: int
    """Of donated arguments, in whose memory results are made."""


def memory_of(executable: Any) -> MemoryAnalysis | None:
    """What a call of an executable takes; None of programs whose back end does not say."""
    spec = getattr(executable, "spec", None)
    if spec is None or not spec.entry:
        return None
    donated = sum(spec.inputs[number].nbytes for number, output in spec.donated if output >= 0)
    inputs, outputs = (sum(each.nbytes for each in types) for types in (spec.inputs, spec.outputs))
    return MemoryAnalysis(inputs, outputs, spec.arena_bytes, donated)
