"""Everything that Acme brings to hlojit; it uses the public interface only."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hlojit.extensions import (
    DECOMPOSE,
    YES,
    Backend,
    Capability,
    CompileOptions,
    CustomCall,
    ElementwiseCall,
    FloatFormat,
    NanEncoding,
    Overflow,
    Pass,
    can_decompose,
    hookimpl,
    no,
)
from hlojit.ir import Builder, Instruction, Module, TensorType, Value, evaluate

hlojit_api = (1, 1)
"""The version of hlojit's hooks that this package is written for."""

ACME8 = FloatFormat(
    "acme8",
    exponent_bits=4,
    mantissa_bits=3,
    bias=9,
    has_infinity=False,
    nan=NanEncoding.ALL_ONES,
    overflow=Overflow.SATURATE,
)


def softplus(x: float) -> float:
    """log(1 + exp(x)) without overflow; compiled by numba and inlined."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@dataclass(frozen=True)
class DivisionByConstant(Pass):
    """Turns a division by a power of two into a multiplication, which Acme's vector unit does at full speed.

    Exact: the reciprocal of a power of two is one too, as long as neither it nor the divisor is a denormal number.
    """

    name: ClassVar[str] = "acme-division-by-constant"
    phase: ClassVar[str] = "before-fusion"

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


class AcmeBackend(Backend):
    """Acme's device, simulated: evaluates a program op by op.  It has a unit for ``chlo.top_k``."""

    name = "acme"

    def capability(self, instruction: Instruction) -> Capability:
        """Everything but f64; what hlojit can take apart is wanted in parts, except for the largest k."""
        for value in (*instruction.operands, *instruction.results):
            if isinstance(value.type, TensorType) and value.type.element_type.name == "f64":
                return no("the device has no f64 unit")
        if instruction.name == "chlo.top_k" or not can_decompose(instruction):
            return YES
        return DECOMPOSE

    def compile(self, module: Module, options: CompileOptions) -> Callable[..., Sequence[Any]]:
        """Return the program as a function of arrays."""
        return lambda *arrays: evaluate(module, *arrays)


@hookimpl
def hlojit_formats() -> Sequence[FloatFormat]:
    """Acme's 8-bit float."""
    return [ACME8]


@hookimpl
def hlojit_passes() -> Sequence[Pass]:
    """Acme's pass."""
    return [DivisionByConstant()]


@hookimpl
def hlojit_custom_calls() -> Sequence[CustomCall]:
    """Acme's activation function."""
    return [ElementwiseCall("acme.softplus", function=softplus)]


@hookimpl
def hlojit_backends() -> Sequence[Backend]:
    """Acme's device."""
    return [AcmeBackend()]
