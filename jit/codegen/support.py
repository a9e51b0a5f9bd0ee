"""What can be compiled by the common plans: element types, shapes, and the ops that a machine has kernels for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from hlojit.extensions.backend import DECOMPOSE, YES, Capability, no
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.formats import BooleanType, ComplexType, FloatFormat, IntegerType
from hlojit.ir.graph import Instruction, Module, Value
from hlojit.ir.ops.custom_calls import is_custom_call
from hlojit.ir.ops.definition import Expand, Kernel, OpDefinition, Structural, Trait
from hlojit.ir.passes.graph_facts import is_constant
from hlojit.ir.types import TensorType
from hlojit.lowering.structure import captured

MAXIMUM_BYTES: Final = 1 << 46
"""A tensor that takes more is refused when it is compiled: no machine has that much."""


def takes_pairs(instruction: Instruction) -> bool:
    """Whether an instruction knows complex numbers in memory; to all others they are two numbers each.

    What stands in memory already may be taken for an array of another shape.
    """
    record = instruction.op
    lowering = record.lowering
    if Trait.BITCAST in record.traits:
        source = instruction.operands[0]
        while (producer := source.producer) is not None and Trait.BITCAST in producer.op.traits:
            source = producer.operands[0]
        return source.is_argument_of_function if producer is None else takes_pairs(producer)
    if isinstance(lowering, Structural):
        return lowering.role in ("constant", "collective") or lowering.ends == "function"
    if isinstance(lowering, Kernel):
        takes = lowering.takes_pairs
        return Trait.FUSION in record.traits or (takes if isinstance(takes, bool) else takes(instruction))
    return Trait.PARTS in record.traits


@final
@dataclass(frozen=True, slots=True)
class Support:
    """What one back end can compile.

    ``machine`` is what messages call its machines (``CPU``).  ``lowering_reason`` says why there is no code for ops of a
    record, whatever their types, or gives an empty string.
    """

    backend: str
    machine: str
    lowering_reason: Callable[[OpDefinition], str]

    def capability(self, instruction: Instruction) -> Capability:
        """The answer for an instruction, by the op's lowering and its element types."""
        if isinstance(instruction.op.lowering, Expand) or is_custom_call(instruction):
            return DECOMPOSE
        reason = self.reason_against(instruction)
        return no(reason) if reason else YES

    def reason_against(self, instruction: Instruction) -> str:
        """Why an instruction cannot be compiled, or an empty string."""
        reason = self.lowering_reason(instruction.op)
        if reason:
            return reason
        lowering = instruction.op.lowering
        if isinstance(lowering, Kernel) and lowering.declines is not None:
            reason = lowering.declines(instruction)
            if reason:
                return reason
        with_pairs = takes_pairs(instruction)
        for value in (*instruction.operands, *instruction.results):
            reason = self._type_reason(value, with_pairs=with_pairs)
            if reason:
                return reason
        if instruction.regions and not isinstance(instruction.op.lowering, Structural):
            for value in captured(instruction):
                if not is_constant(value.producer):
                    return f"its region uses a value of type {value.type} from outside that is not a constant"
        return ""

    def check_signature(self, module: Module) -> None:
        """Arguments and results of the entry function must be tensors that can be laid out in memory."""
        main = module.main
        for kind, values in (("argument", main.body.arguments), ("result", main.body.returned)):
            for number, value in enumerate(values):
                reason = self._type_reason(value, with_pairs=True)
                if not reason and not isinstance(value.type, TensorType):
                    reason = "tuples are not passed in and out; give the tensors as arguments or results of their own"
                if reason:
                    raise UnsupportedError(f"{kind} {number} of @{main.name}", self.backend, reason, main.location)

    def _type_reason(self, value: Value, *, with_pairs: bool) -> str:
        kind = value.type
        if not isinstance(kind, TensorType):
            is_tuple = str(kind).startswith("tuple")
            return "" if is_tuple else f"values of type {kind} have no {self.machine} representation yet"
        if not kind.is_static:
            return f"{kind} has dimensions that are not known; give the shapes"
        known = (BooleanType, IntegerType, FloatFormat)
        if not isinstance(kind.element_type, (*known, ComplexType) if with_pairs else known):
            return f"element type {kind.element_type} has no {self.machine} code yet"
        if kind.nbytes > MAXIMUM_BYTES:
            return f"{kind} takes {kind.nbytes} bytes, more than any machine has"
        return ""
