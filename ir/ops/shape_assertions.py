"""Shape assertions: what exporters state of sizes, as custom calls.

stablehlo.custom_call @shape_assertion(%holds, %n) {error_message = "size {0} is not even"} : (tensor<i1>, tensor<i32>) -> ()
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.attributes import StringAttr
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.ir.formats import BooleanType, IntegerType
from hlojit.ir.ops.definition import ReferenceCall
from hlojit.ir.ops.rules import constant_operand
from hlojit.ir.types import TensorType

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction

SHAPE_ASSERTION: Final = "shape_assertion"
_MOST_INPUTS: Final = 32
_SPECIFIER: Final = re.compile(r"\{(\d+)[^{}]*\}")


def assertion_complaint(instruction: Instruction) -> str | None:
    """Say what is wrong with a shape assertion, or None."""
    if instruction.results:
        return "has results, expected none"
    if not 1 <= len(instruction.operands) <= 1 + _MOST_INPUTS:
        return f"has {len(instruction.operands)} operands, expected 1 to {1 + _MOST_INPUTS}"
    condition, *inputs = instruction.operand_types
    if not _is_scalar(condition, BooleanType):
        return f"operand 0, the condition, must be tensor<i1>, found {condition}"
    for number, type in enumerate(inputs, 1):
        if not _is_scalar(type, IntegerType):
            return f"operand {number}, an input of the message, must be tensor<i32> or tensor<i64>, found {type}"
    message = instruction.discardable.get("error_message")
    if not isinstance(message, StringAttr):
        return "has no attribute error_message"
    unknown = [word for word in _SPECIFIER.findall(message.value) if int(word) >= len(inputs)]
    return f"error_message names input {unknown[0]} of {len(inputs)}" if unknown else None


def _is_scalar(type: object, kind: type) -> bool:
    return isinstance(type, TensorType) and type.rank == 0 and isinstance(type.element_type, kind)


def check_assertion(instruction: Instruction) -> bool:
    """Whether a shape assertion is known to hold; raises ``ArgumentError`` with its message where it does not."""
    complaint = assertion_complaint(instruction)
    if complaint is not None:
        raise HlojitError(f"custom_call @{SHAPE_ASSERTION} {complaint}\n  at {instruction.location}")
    condition = constant_operand(instruction, 0)
    if condition is None:
        return False
    if condition.any():
        return True
    raise ArgumentError(assertion_message(instruction))


def assertion_message(instruction: Instruction) -> str:
    """The message with the sizes that are known; others stay as they are written."""
    found = [constant_operand(instruction, number) for number in range(1, len(instruction.operands))]
    return _message(instruction, [None if each is None else int(each.reshape(())) for each in found])


def _message(instruction: Instruction, inputs: Sequence[int | None]) -> str:
    message = instruction.discardable["error_message"]
    assert isinstance(message, StringAttr)

    def size(match: re.Match[str]) -> str:
        number = inputs[int(match[1])]
        return match[0] if number is None else str(number)

    return _SPECIFIER.sub(size, message.value)


def assertion_template(instruction: Instruction) -> str:
    """The message for ``str.format`` of the inputs; raises ``HlojitError`` where the assertion is none."""
    complaint = assertion_complaint(instruction)
    if complaint is not None:
        raise HlojitError(f"custom_call @{SHAPE_ASSERTION} {complaint}\n  at {instruction.location}")
    message = instruction.discardable["error_message"]
    assert isinstance(message, StringAttr)
    parts = _SPECIFIER.split(message.value)
    # Every other part is the number of an input.
    escaped = [part.replace("{", "{{").replace("}", "}}") for part in parts]
    return "".join(f"{{{part}}}" if number % 2 else part for number, part in enumerate(escaped))


def assertion_reference(call: ReferenceCall, condition: Any, *inputs: Any) -> tuple[()]:
    """Raise ``ArgumentError`` with the message of an assertion that does not hold."""
    complaint = assertion_complaint(call.instruction)
    if complaint is not None:
        raise HlojitError(f"custom_call @{SHAPE_ASSERTION} {complaint}\n  at {call.instruction.location}")
    if not condition.any():
        raise ArgumentError(_message(call.instruction, [int(each) for each in inputs]))
    return ()
