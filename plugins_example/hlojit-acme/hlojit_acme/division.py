"""A pass that writes divisions as the vector unit likes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hlojit.extensions import Builder, Instruction, Module, Pass, Value


@dataclass(frozen=True)
class DivisionByConstant(Pass):
    """Turns a division by a power of two into a multiplication, which Acme's vector unit does at full speed.

    Exact: the reciprocal of a power of two is one too, as long as neither it nor the divisor is a denormal number.
    """

    name: ClassVar[str] = "acme-division-by-constant"
    phase: ClassVar[str] = "before-fusion"
    numeric_effect: ClassVar[str] = "exact"

    def run(self, module: Module) -> bool:
        """Rewrite every division by a suitable constant."""
        changed = False
        for instruction in list(module.walk()):
            if instruction.name == "stablehlo.divide":
                changed |= _rewrite(instruction)
        return changed


def _rewrite(division: Instruction) -> bool:
    divisor = _splat(division.operands[1])
    if divisor is None or not math.isfinite(divisor) or abs(math.frexp(divisor)[0]) != 0.5:
        return False
    if not 2.0**-120 <= abs(divisor) <= 2.0**120:
        return False
    builder = Builder.in_front_of(division)
    reciprocal = builder.constant(1.0 / divisor, division.result.tensor_type)
    division.replace_with([builder.multiply(division.operands[0], reciprocal)])
    return True


def _splat(value: Value) -> float | None:
    """The one number that all elements of a float constant are, seen through a broadcast."""
    producer = value.producer
    if producer is not None and producer.name == "stablehlo.broadcast_in_dim":
        producer = producer.operands[0].producer
    if producer is None or producer.name != "stablehlo.constant":
        return None
    dense = producer.attributes["value"]
    element = dense.type.element_type
    if element.name not in ("f32", "f64") or not dense.is_splat:
        return None
    return float(dense.splat_value)
