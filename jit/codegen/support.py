"""What can be compiled by the common plans: element types, shapes, and the ops that a machine has kernels for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from hlojit.extensions.backends.backend import DECOMPOSE, YES, Capability, no
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.formats import BooleanType, ComplexType, ElementType, FloatFormat, IntegerType, QuantizedType
from hlojit.ir.graph import Instruction, Module, Value
from hlojit.ir.ops.accuracy import unmet_accuracy
from hlojit.ir.ops.custom_calls import is_custom_call
from hlojit.ir.ops.definition import Expand, Kernel, OpDefinition, Structural, Trait
from hlojit.ir.ops.region_expressions import reason_against_region
from hlojit.ir.types import TensorType

MAXIMUM_BYTES: Final = 1 << 46
"""A tensor that takes more is refused when it is compiled: no machine has that much."""


_NUMBERS: Final = (BooleanType, IntegerType, FloatFormat)
_IN_MEMORY: Final = (*_NUMBERS, ComplexType, QuantizedType)


def known_elements(instruction: Instruction) -> tuple[type[ElementType], ...]:
    """The classes of element types that an instruction's code knows, as elements in memory.

    To most ops complex numbers are two numbers each, and quantized ones their stored integers.  What stands in memory already
    may be taken for an array of another shape.
    """
    record = instruction.op
    lowering = record.lowering
    if Trait.PARTS in record.traits or Trait.FUSION in record.traits:
        return _IN_MEMORY
    if Trait.BITCAST in record.traits:
        source = instruction.operands[0]
        while (producer := source.producer) is not None and Trait.BITCAST in producer.op.traits:
            source = producer.operands[0]
        if producer is None:
            return _IN_MEMORY if source.is_argument_of_function else _NUMBERS
        return known_elements(producer)
    if isinstance(lowering, Structural):
        as_a_whole = lowering.role in ("constant", "collective", "tuple") or lowering.ends == "function"
        return _IN_MEMORY if as_a_whole else _NUMBERS
    if isinstance(lowering, Kernel):
        takes = lowering.takes_pairs
        return (*_NUMBERS, ComplexType) if (takes if isinstance(takes, bool) else takes(instruction)) else _NUMBERS
    return _NUMBERS


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
    limit_reason: Callable[[Instruction], str] = lambda _: ""
    """Why the code that there is for ops of a record is not for an instruction."""

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
        reason = unmet_accuracy(instruction)
        if reason:
            return reason
        lowering = instruction.op.lowering
        if isinstance(lowering, Kernel) and lowering.declines is not None:
            reason = lowering.declines(instruction)
            if reason:
                return reason
        if reason := self.limit_reason(instruction):
            return reason
        known = known_elements(instruction)
        for value in (*instruction.operands, *instruction.results):
            reason = self._type_reason(value, known)
            if reason:
                return reason
        if instruction.regions and not isinstance(instruction.op.lowering, Structural):
            return "" if Trait.FUSION in instruction.op.traits else reason_against_region(instruction)
        return ""

    def check_signature(self, module: Module) -> None:
        """Arguments and results of the entry function must be tensors that can be laid out in memory."""
        main = module.main
        for kind, values in (("argument", main.body.arguments), ("result", main.body.returned)):
            for number, value in enumerate(values):
                reason = self._type_reason(value, _IN_MEMORY)
                if not reason and not isinstance(value.type, TensorType):
                    reason = "tuples are not passed in and out of code; the pass tuple-legalizer makes tensors of them"
                if reason:
                    raise UnsupportedError(f"{kind} {number} of @{main.name}", self.backend, reason, main.location)

    def _type_reason(self, value: Value, known: tuple[type[ElementType], ...]) -> str:
        kind = value.type
        if not isinstance(kind, TensorType):
            is_tuple = str(kind).startswith("tuple")
            return "" if is_tuple else f"values of type {kind} have no {self.machine} representation yet"
        if not kind.is_static:
            return f"{kind} has dimensions that are not known; give the shapes"
        if not isinstance(kind.element_type, known):
            return f"element type {kind.element_type} has no {self.machine} code yet"
        if kind.nbytes > MAXIMUM_BYTES:
            return f"{kind} takes {kind.nbytes} bytes, more than any machine has"
        return ""
