"""What ops that talk to the host, or to another process, become.

    %x, %t1 = infeed(%t0)           =>  %x = custom_call @hlojit.host_transfer() {channel = "infeed", direction = "to program"}
    %t2 = send(%y, %t1), host       =>       custom_call @hlojit.host_transfer(%y) {channel = "7", direction = "to host"}
    send and recv of one channel    =>  collective_permute along their pairs, where it is received

The host's side of a channel is ``hlojit.extensions.devices.channels``.  Tokens say an order that the program's instructions
have anyway: what has effects is never moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.attributes import DictAttr, StringAttr
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.ops.definition import Trait

if TYPE_CHECKING:
    from hlojit.ir.builder import Builder
    from hlojit.ir.graph import Instruction, Value
    from hlojit.ir.types import Type

TRANSFER: Final = "hlojit.host_transfer"
"""The call target that moves tensors through a channel."""
TO_HOST: Final = "to host"
TO_PROGRAM: Final = "to program"
INFEED: Final = "infeed"
OUTFEED: Final = "outfeed"
_HANDLER: Final = "_xla_host_transfer_handler_name"
"""The frontend attribute in which XLA's programs name a channel of the host."""


def expand_infeed(builder: Builder, instruction: Instruction) -> Sequence[Value]:
    """What the host has put there."""
    return _received(builder, instruction, INFEED)


def expand_outfeed(builder: Builder, instruction: Instruction) -> Sequence[Value]:
    """For the host to get."""
    return _sent(builder, instruction, OUTFEED)


def expand_send(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """To the host.  What goes to another process moves where it is received (``expand_recv``)."""
    if not instruction.attributes.get("is_host_transfer"):
        following = instruction.next
        while following is not None:
            if Trait.RECEIVES in following.op.traits and _sender(following) is instruction:
                return None
            following = following.next
        raise _alone(instruction, "recv", "behind")
    return _sent(builder, instruction, channel_name(instruction))


def expand_recv(builder: Builder, instruction: Instruction) -> Sequence[Value] | None:
    """From the host, or from where the program sends through the same channel before: the same program runs there, too."""
    if instruction.attributes.get("is_host_transfer"):
        return _received(builder, instruction, channel_name(instruction))
    sent = _sender(instruction)
    if sent is None:
        raise _alone(instruction, "send", "before")
    *payload, token = sent.operands
    attributes = {name: instruction.attributes[name] for name in ("source_target_pairs", "channel_handle")}
    moved = builder.create("stablehlo.collective_permute", payload, attributes=attributes)
    sent.replace_with([token])
    return [*moved.results, instruction.operands[-1]]


def channel_name(instruction: Instruction) -> str:
    """What the host calls a channel: by the program's name for it, or by its number."""
    given = instruction.discardable.get("mhlo.frontend_attributes")
    named = given.as_dict().get(_HANDLER) if isinstance(given, DictAttr) else None
    if isinstance(named, StringAttr) and named.value:
        return named.value
    return str(instruction.attributes["channel_handle"].handle)


def _alone(instruction: Instruction, other: str, where: str) -> UnsupportedError:
    channel = instruction.attributes["channel_handle"].handle
    reason = (
        f"no {other} through channel {channel} of the same types and source_target_pairs stands {where} it in its block: all "
        "processes run the same program, which has both"
    )
    return UnsupportedError(instruction.name, "", reason, instruction.location)


def _sender(instruction: Instruction) -> Instruction | None:
    """The send before a recv in its block that has its channel, its pairs and its types."""
    wanted = [each.type for each in instruction.results[:-1]]
    before = instruction.previous
    while before is not None:
        if (
            Trait.SENDS in before.op.traits
            and instruction.attributes.get("source_target_pairs")
            and before.attributes["channel_handle"].handle == instruction.attributes["channel_handle"].handle
            and before.attributes.get("source_target_pairs") == instruction.attributes.get("source_target_pairs")
            and [each.type for each in before.operands[:-1]] == wanted
        ):
            return before
        before = before.previous
    return None


def _received(builder: Any, instruction: Instruction, channel: str) -> Sequence[Value]:
    types = [result.type for result in instruction.results[:-1]]
    return [*received(builder, channel, types), instruction.operands[-1]]


def _sent(builder: Any, instruction: Instruction, channel: str) -> Sequence[Value]:
    _transfer(builder, instruction.operands[:-1], (), channel, TO_HOST)
    return [instruction.operands[-1]]


def received(builder: Any, channel: str, types: Sequence[Type]) -> Sequence[Value]:
    """What comes through a channel of the host."""
    return _transfer(builder, (), types, channel, TO_PROGRAM)


def _transfer(
    builder: Any, operands: Sequence[Value], types: Sequence[Type], channel: str, way: str
) -> Sequence[Value]:
    config = DictAttr((("channel", StringAttr(channel)), ("direction", StringAttr(way))))
    made = builder.create(
        "stablehlo.custom_call",
        operands,
        attributes={"call_target_name": TRANSFER, "has_side_effect": True, "api_version": 4, "backend_config": config},
        result_types=types,
    )
    results: Sequence[Value] = made.results
    return results
