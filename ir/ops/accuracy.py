"""``result_accuracy``: whether the code of an op keeps the tolerance that a program asks for.

A record states the largest error of its own rules (``OpDefinition.units``).  A tolerance allows ``atol``, ``rtol`` times the
exact value and ``ulps`` units in its last place, one on top of the other; without one (``DEFAULT``) and for ``HIGHEST`` there is
the one rule that there is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hlojit.ir.attributes import ResultAccuracy
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.formats import ComplexType, ElementType, FloatFormat, element_type
from hlojit.ir.ops.parts import Parts, PartsRule
from hlojit.ir.types import TensorType

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction

NARROW = 1.0
"""The error in formats narrower than f32: a value that is right in f32 is rounded once more."""


def unmet_accuracy(instruction: Instruction) -> str:
    """Why the op's own rules do not keep the tolerance that an instruction asks for, or an empty string."""
    wanted: ResultAccuracy | None = instruction.attributes.get("result_accuracy")
    if wanted is None or wanted.mode != "TOLERANCE":
        return ""
    result = instruction.result_types[0]
    if not isinstance(result, TensorType):
        return ""
    element = result.element_type
    part = element_type(element.component) if isinstance(element, ComplexType) else element
    if not isinstance(part, FloatFormat):
        return ""
    units = _units(instruction, element)
    spacing = 2.0**-part.mantissa_bits
    # a unit is at most the spacing times the value
    allowed = wanted.ulps + wanted.rtol / spacing
    if part is element and instruction.op.largest < math.inf:
        allowed += wanted.atol / (spacing * instruction.op.largest)
    if units <= allowed:
        return ""
    known = f"it is up to {units:g} units in the last place" if units < math.inf else "no bound of it is known"
    return f"its error in {element} may exceed the tolerance of result_accuracy: {known}"


def _units(instruction: Instruction, element: ElementType) -> float:
    stated = instruction.op.units
    if element.name not in stated and isinstance(element, FloatFormat) and not element.is_native:
        return NARROW if stated else math.inf
    return stated.get(element.name, math.inf)


def with_accuracy(rule: PartsRule) -> PartsRule:
    """A rule for parts that raises ``UnsupportedError`` where it would not keep an instruction's tolerance."""

    def checked(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts] | None:
        reason = unmet_accuracy(instruction)
        if reason:
            raise UnsupportedError(instruction.op.name, "", reason, instruction.location)
        return rule(builder, instruction, operands)

    return checked
