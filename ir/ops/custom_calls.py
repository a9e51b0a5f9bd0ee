"""custom_call: an op that the specification leaves to whoever knows its target."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.environment import CUSTOM_CALLS, tables
from hlojit.ir.errors import ExecutionError
from hlojit.ir.ops.attribute_kinds import BOOL, GENERIC, I32, STRING, SYMBOL, ArrayOfKind
from hlojit.ir.ops.custom_call_rules import CUSTOM_CALL_RULES
from hlojit.ir.ops.definition import AttributeSpec, Kernel, OpDefinition, Operand, ReferenceCall, Trait, define
from hlojit.ir.ops.dynamic_types import custom_call
from hlojit.ir.ops.shape_assertions import SHAPE_ASSERTION, assertion_reference
from hlojit.ir.types import TensorType

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

OPERAND_WRAPPER: Final = "stablehlo.shape_refinement_operand_wrapper"
"""Its first operand, of a more general type; the second one is the shape."""

CUSTOM_CALL_REFERENCES: Final[dict[str, Callable[..., Any]]] = {
    # Annotations of the SPMD partitioner: identities on one device.
    "Sharding": lambda call, value: value,
    "SPMDFullToShardShape": lambda call, value: value,
    "SPMDShardToFullShape": lambda call, value: value,
    "annotate_device_placement": lambda call, value: value,
    # What exporters say of shapes.
    SHAPE_ASSERTION: assertion_reference,
    OPERAND_WRAPPER: lambda call, value, *shape: value,
}
"""NumPy semantics of custom calls by target: ``reference(call, *arrays)``, as in an op record."""


PARTITIONER: Final = (
    "it is for a partitioner, which hlojit has not; programs for several devices are the StableHLO of one process, with its "
    "collectives written out (docs/devices.md)"
)
"""Why what Shardy and GSPMD write, as for JAX's ``shard_map`` and ``pmap``, is refused."""
PARTITIONER_TARGETS: Final = frozenset({"SPMDFullToShardShape", "SPMDShardToFullShape"})


def _reference(call: ReferenceCall, *values: Any) -> Any:
    target = call.attributes["call_target_name"]
    found = CUSTOM_CALL_REFERENCES.get(target)
    if found is None:
        raise ExecutionError(
            f"custom_call @{target} at {call.instruction.location} has no reference semantics; register them with the "
            "custom call"
        )
    return found(call, *values)


def is_custom_call(instruction: Instruction) -> bool:
    """Whether the instruction is a custom call that nothing has been bound to."""
    return instruction.op == CUSTOM_CALL


def is_shape_assertion(instruction: Instruction) -> bool:
    """Whether the instruction states what must hold of sizes."""
    return is_custom_call(instruction) and instruction.attributes["call_target_name"] == SHAPE_ASSERTION


def wrapped_operand(instruction: Instruction) -> Value | None:
    """What a call stands for that only wraps an operand, or None."""
    if not is_custom_call(instruction) or instruction.attributes["call_target_name"] != OPERAND_WRAPPER:
        return None
    if not instruction.operands or len(instruction.results) != 1:
        return None
    operand, result = instruction.operands[0], instruction.result_types[0]
    tensors = isinstance(operand.type, TensorType) and isinstance(result, TensorType)
    return operand if tensors and operand.tensor_type.rank == instruction.result.tensor_type.rank else None


def described(instruction: Instruction) -> str:
    """An instruction in a message: the op's name, of a custom call with its target."""
    name = instruction.op.name
    return f"{name} @{instruction.attributes.get('call_target_name')}" if is_custom_call(instruction) else name


def has_side_effect(instruction: Instruction) -> bool:
    """Whether the instruction says that it has a side effect, or the plugin that registered its target."""
    if instruction.attributes.get("has_side_effect", False):
        return True
    call = tables().table(CUSTOM_CALLS).get(instruction.attributes.get("call_target_name", ""))
    return bool(getattr(call, "effects", False))


CUSTOM_CALL = define(
    OpDefinition(
        "stablehlo.custom_call",
        operands=(Operand("inputs", variadic=True),),
        refine=custom_call,
        attributes=(
            AttributeSpec("call_target_name", STRING),
            AttributeSpec("has_side_effect", BOOL, optional=True, default=False),
            AttributeSpec("backend_config", GENERIC, optional=True),
            AttributeSpec("api_version", I32, optional=True, default=1),
            AttributeSpec("called_computations", ArrayOfKind(SYMBOL), optional=True, default=()),
            AttributeSpec("operand_layouts", GENERIC, optional=True),
            AttributeSpec("result_layouts", GENERIC, optional=True),
            AttributeSpec("output_operand_aliases", GENERIC, optional=True),
            AttributeSpec("result_tilings", GENERIC, optional=True),
        ),
        constraints=CUSTOM_CALL_RULES,
        reference=_reference,
        syntax="custom_call",
        traits=frozenset({Trait.PER_AXIS, Trait.UNRANKED}),
        effect=has_side_effect,
        callees=("called_computations",),
        lowering=Kernel("custom_call"),
        summary="an op whose target is known to a back end or a plugin",
    )
)
