"""Custom calls in a program are bound to what plugins registered for their targets.

    %1 = stablehlo.custom_call @acme.softplus(%0) : (tensor<8xf32>) -> tensor<8xf32>

becomes one pointwise instruction, whose rule calls the plugin's function, and which fuses like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from hlojit.extensions.custom_calls import CustomCall, ElementwiseCall, ExpansionCall
from hlojit.extensions.numba_bridge import call_scalar
from hlojit.extensions.registry import registry
from hlojit.ir.builder import Builder
from hlojit.ir.errors import PluginError, UnsupportedError
from hlojit.ir.graph import Instruction, Module, Value
from hlojit.ir.ops.definition import OpDefinition, Operand, Pointwise, PointwiseCall, ReferenceCall
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.scalar.formats import compute_kind
from hlojit.ir.types import TensorType


@dataclass(frozen=True)
class CustomCallBinding(Pass):
    """Replaces custom calls by what is registered under their targets; an unknown target is an error."""

    name: ClassVar[str] = "custom-call-binding"
    phase: ClassVar[str] = "legalize"

    def run(self, module: Module) -> bool:
        """Bind every custom call of the module."""
        calls = [each for each in module.walk() if each.op.name == "stablehlo.custom_call"]
        for instruction in calls:
            _bind(instruction)
        return bool(calls)


def _bind(instruction: Instruction) -> None:
    target = instruction.attributes["call_target_name"]
    call = registry().custom_call(target)
    if call is None:
        raise UnsupportedError(instruction.op.name, "every", registry().unknown_target(target), instruction.location)
    builder = Builder.in_front_of(instruction)
    if isinstance(call, ExpansionCall):
        _expand(call, builder, instruction)
        return
    if not isinstance(call, ElementwiseCall):
        raise PluginError(f"custom call target {target!r}: {type(call).__name__} is not a form that hlojit knows")
    _check_elementwise(call, instruction)
    created = Instruction(
        scalar_call_op(call), instruction.operands, instruction.result_types, location=instruction.location
    )
    builder.insert(created)
    instruction.replace_with(created.results)


def _expand(call: ExpansionCall, builder: Builder, instruction: Instruction) -> None:
    try:
        values = list(call.expand(builder, instruction))
    except Exception as error:
        raise PluginError(f"custom call target {call.target!r}: the expansion failed: {error!r}") from error
    if not all(isinstance(value, Value) for value in values):
        raise PluginError(
            f"custom call target {call.target!r}: the expansion returned {values!r}, not values of the graph"
        )
    types = tuple(value.type for value in values)
    if types != instruction.result_types:
        raise PluginError(
            f"custom call target {call.target!r}: the expansion returned {types}, the call has {instruction.result_types}"
        )
    instruction.replace_with(values)


def _check_elementwise(call: CustomCall, instruction: Instruction) -> None:
    types = (*instruction.operand_types, *instruction.result_types)
    shapes = {kind.shape for kind in types if isinstance(kind, TensorType)}
    if len(instruction.results) != 1 or len(shapes) != 1 or not all(isinstance(kind, TensorType) for kind in types):
        raise PluginError(
            f"custom call target {call.target!r} is elementwise: operands and the one result must have one shape, "
            f"got {', '.join(map(str, types))} at {instruction.location}"
        )


def scalar_call_op(call: ElementwiseCall) -> OpDefinition:
    """The op record of an elementwise custom call: made for one target, never part of the table."""

    def rule(builder: Any, record: PointwiseCall, *scalars: Any) -> Any:
        return call_scalar(builder, call.function, scalars, compute_kind(record.result_type))

    def reference(record: ReferenceCall, *arrays: Any) -> Any:
        python: Callable[..., Any] = getattr(call.function, "py_func", call.function)
        results = np.frompyfunc(python, len(arrays), 1)(*arrays)
        return np.asarray(results).astype(arrays[0].dtype)

    return OpDefinition(
        f"hlojit.call.{call.target}",
        operands=(Operand("operands", variadic=True),),
        reference=reference,
        lowering=Pointwise(rule),
        summary="a plugin's scalar function",
    )
