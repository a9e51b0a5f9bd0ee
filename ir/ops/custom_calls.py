"""custom_call: an op that the specification leaves to whoever knows its target."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.errors import ExecutionError
from hlojit.ir.ops.attribute_kinds import BOOL, GENERIC, I32, STRING, SYMBOL, ArrayOfKind
from hlojit.ir.ops.definition import AttributeSpec, Kernel, OpDefinition, Operand, ReferenceCall, define

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction

CUSTOM_CALL_REFERENCES: Final[dict[str, Callable[..., Any]]] = {
    # Annotations of the SPMD partitioner: identities on one device.
    "Sharding": lambda call, value: value,
    "SPMDFullToShardShape": lambda call, value: value,
    "SPMDShardToFullShape": lambda call, value: value,
    "annotate_device_placement": lambda call, value: value,
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


def described(instruction: Instruction) -> str:
    """An instruction in a message: the op's name, of a custom call with its target."""
    name = instruction.op.name
    return f"{name} @{instruction.attributes.get('call_target_name')}" if is_custom_call(instruction) else name


def has_side_effect(instruction: Instruction) -> bool:
    """Whether the instruction says that it has a side effect."""
    return bool(instruction.attributes.get("has_side_effect", False))


CUSTOM_CALL = define(
    OpDefinition(
        "stablehlo.custom_call",
        operands=(Operand("inputs", variadic=True),),
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
        reference=_reference,
        syntax="custom_call",
        effect=has_side_effect,
        callees=("called_computations",),
        lowering=Kernel("custom_call"),
        summary="an op whose target is known to a back end or a plugin",
    )
)
