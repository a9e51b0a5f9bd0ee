"""Streams between host and device, point-to-point messages and asynchronous calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlojit.ir.attributes import ArrayAttr, ChannelHandle, IntegerAttr
from hlojit.ir.ops.asynchronous import expand_async_done, expand_async_start
from hlojit.ir.ops.attribute_kinds import BOOL, GENERIC, I64_MATRIX, STRING, RecordKind
from hlojit.ir.ops.channel_expansion import expand_infeed, expand_outfeed, expand_recv, expand_send
from hlojit.ir.ops.collectives import PAIR_RULES
from hlojit.ir.ops.control import unsupported_reference
from hlojit.ir.ops.definition import (
    AttributeSpec,
    Constraint,
    Expand,
    InferenceRequest,
    OpDefinition,
    Operand,
    Trait,
    define,
)
from hlojit.ir.ops.rules import OpCall, checked, compatible_lists, inferred, region_inputs, region_outputs, spell
from hlojit.ir.types import TOKEN, TensorType, TokenType, Type, future_type

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction

EFFECT = frozenset({Trait.EFFECT, Trait.PER_AXIS})
_NO_HOST = "the reference has no streams and no other process"


def _token_last(call: OpCall) -> str | None:
    if call.operand_types and isinstance(call.operand_types[-1], TokenType):
        return None
    return "the last operand must be a token"


# infeed and outfeed


def _some_results(instruction: Instruction) -> str | None:
    return None if instruction.results else "there must be at least one result, the token"


def _payload_is_tensors(instruction: Instruction) -> str | None:
    for type in instruction.result_types[:-1]:
        if not isinstance(type, TensorType):
            return f"results before the token must be tensors, found {type}"
    return None


def _result_token(instruction: Instruction) -> str | None:
    if instruction.results and isinstance(instruction.result_types[-1], TokenType):
        return None
    return f"the last result must be a token, found {spell(instruction.result_types)}"


def _layouts(instruction: Instruction) -> str | None:
    """A layout has a list of dimensions for each result before the token."""
    layout = instruction.attributes.get("layout")
    if layout is None:
        return None
    count = len(instruction.results) - 1
    if not isinstance(layout, ArrayAttr) or len(layout.elements) != count:
        return f"layout must be a list with an element for each of the {count} results before the token"
    for element in layout.elements:
        if not isinstance(element, ArrayAttr) or not all(isinstance(each, IntegerAttr) for each in element.elements):
            return "each element of layout must be a list of integers"
    return None


INFEED = define(
    OpDefinition(
        "stablehlo.infeed",
        operands=(Operand("token"),),
        attributes=(
            AttributeSpec("infeed_config", STRING, optional=True, default=""),
            AttributeSpec("layout", GENERIC, optional=True),
        ),
        constraints=(
            Constraint("I1", _token_last),
            Constraint("C1", _some_results),
            Constraint("C2", _payload_is_tensors),
            Constraint("C3", _result_token),
            Constraint("layout", _layouts),
        ),
        reference=unsupported_reference(_NO_HOST),
        traits=EFFECT,
        lowering=Expand(expand_infeed),
        summary="reads from the host's stream",
    )
)


def _inputs_are_tensors(call: OpCall) -> str | None:
    for type in call.operand_types[:-1]:
        if not isinstance(type, TensorType):
            return f"inputs before the token must be tensors, found {type}"
    return None


_SENT = (Constraint("I1", _inputs_are_tensors), Constraint("I2", _token_last))


def _token(request: InferenceRequest) -> Sequence[Type]:
    return (TOKEN,)


OUTFEED = define(
    OpDefinition(
        "stablehlo.outfeed",
        operands=(Operand("inputs", variadic=True), Operand("token")),
        attributes=(AttributeSpec("outfeed_config", STRING, optional=True, default=""),),
        infer=checked(_SENT, _token),
        constraints=(*_SENT, inferred("O1")),
        reference=unsupported_reference(_NO_HOST),
        traits=EFFECT,
        lowering=Expand(expand_outfeed),
        summary="writes to the host's stream",
    )
)

# send and recv


def _channel_type(*of_host_transfers: int) -> Constraint:
    """1 is DEVICE_TO_DEVICE, 2 DEVICE_TO_HOST, 3 HOST_TO_DEVICE (which programs use for recv, beside the spec's 2)."""

    def check(call: OpCall) -> str | None:
        host = bool(call.attributes.get("is_host_transfer"))
        expected = of_host_transfers if host else (1,)
        found = call.attributes["channel_handle"].type
        if found in expected:
            return None
        return f"channel type is {found}, expected {expected[-1]} where is_host_transfer is {str(host).lower()}"

    return Constraint("C5", check)


_CHANNEL = (
    AttributeSpec("channel_handle", RecordKind(ChannelHandle)),
    AttributeSpec("is_host_transfer", BOOL, optional=True, default=False),
    AttributeSpec("source_target_pairs", I64_MATRIX, optional=True),
)

_RECEIVED = (Constraint("results", _payload_is_tensors), Constraint("results", _result_token))

SEND_RULES = (*_SENT, *PAIR_RULES, _channel_type(2))

SEND = define(
    OpDefinition(
        "stablehlo.send",
        operands=(Operand("inputs", variadic=True), Operand("token")),
        attributes=_CHANNEL,
        infer=checked(SEND_RULES, _token),
        constraints=SEND_RULES,
        reference=unsupported_reference(_NO_HOST),
        traits=EFFECT | {Trait.SENDS},
        lowering=Expand(expand_send),
        summary="sends tensors through a channel",
    )
)

RECV = define(
    OpDefinition(
        "stablehlo.recv",
        operands=(Operand("token"),),
        attributes=_CHANNEL,
        constraints=(Constraint("I1", _token_last), *PAIR_RULES, _channel_type(2, 3), *_RECEIVED),
        reference=unsupported_reference(_NO_HOST),
        traits=EFFECT | {Trait.RECEIVES},
        lowering=Expand(expand_recv),
        summary="receives tensors through a channel",
    )
)

# asynchronous calls


def _one_op(call: OpCall) -> str | None:
    count = len(call.regions[0])
    return None if count == 2 else f"body must be one op and a return, found {count} instructions"


def _allowed_op(call: OpCall) -> str | None:
    first = call.regions[0].first
    if first is None or Trait.ASYNCHRONOUS in first.op.traits:
        return None
    return f"body must be a collective or a slice, found {first.name}"


def _same_operands(call: OpCall) -> str | None:
    found = region_inputs(call.regions[0])
    if not found or compatible_lists(found, call.operand_types):
        return None
    return f"body takes {spell(found)} but is given {spell(call.operand_types)}"


ASYNC_START_RULES = (Constraint("C1", _one_op), Constraint("C2", _allowed_op), Constraint("C3", _same_operands))

ASYNC_START = define(
    OpDefinition(
        "stablehlo.async_start",
        operands=(Operand("operands", variadic=True),),
        regions=("body",),
        infer=checked(ASYNC_START_RULES, lambda request: [future_type(region_outputs(request.regions[0]))]),
        constraints=(*ASYNC_START_RULES, inferred("C4")),
        reference=lambda call, *values: (call.run(0, *values[: len(call.instruction.regions[0].arguments)]),),
        lowering=Expand(expand_async_start),
        summary="begins a computation",
    )
)


def _future_result(instruction: Instruction) -> str | None:
    found = instruction.operand_types[0]
    if found is future_type(instruction.result_types):
        return None
    return f"operand has type {found} but the results are {spell(instruction.result_types)}"


ASYNC_DONE = define(
    OpDefinition(
        "stablehlo.async_done",
        operands=(Operand("operand"),),
        constraints=(Constraint("C1", _future_result),),
        reference=lambda call, value: value,
        lowering=Expand(expand_async_done),
        summary="waits for a computation that async_start began",
    )
)
