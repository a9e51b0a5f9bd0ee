"""What stands for an instruction: the expansion of its record, or what plugins registered for its call target.

    %1 = stablehlo.custom_call @acme.softplus(%0) : (tensor<8xf32>) -> tensor<8xf32>

is replaced by what the ``CustomCall`` of ``acme.softplus`` builds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlojit.extensions.calls.custom_calls import CustomCall, listed_devices
from hlojit.extensions.calls.elementwise_calls import ElementwiseCall
from hlojit.extensions.registration.registry import registry
from hlojit.ir.errors import PluginError, UnsupportedError
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops import BUILT_IN
from hlojit.ir.ops.custom_calls import described, is_custom_call
from hlojit.ir.ops.exported_calls import CALL_EXPANSIONS
from hlojit.ir.ops.rules import compatible_lists
from hlojit.ir.passes.op_expander import ExpansionRule, expansion_of
from hlojit.ir.types import Type
from hlojit.ir.vendor_places import place_of, told


def expansion_or_binding(instruction: Instruction) -> ExpansionRule | None:
    """How an instruction is replaced: by its record's expansion, or by what is registered for its call target.

    What a plugin's function can get wrong becomes an error that names its op or target.
    """
    if is_custom_call(instruction):
        target = instruction.attributes["call_target_name"]
        call = registry().custom_call(target)
        if call is None:
            return CALL_EXPANSIONS.get(target)
        return (
            _checked(f"custom call target {target!r}", _bound(call), call) if is_foreign(instruction) else call.replace
        )
    rule = expansion_of(instruction)
    return _checked(f"op {instruction.op.name!r}", rule, rule) if rule is not None and is_foreign(instruction) else rule


def _bound(call: CustomCall) -> ExpansionRule:
    """What stands for a call, whose result types are what the call's rule says."""

    def replace(builder: Any, instruction: Instruction) -> Sequence[Value]:
        wanted = call.types_of(instruction)
        if wanted is not None and not compatible_lists(tuple(wanted), instruction.result_types):
            raise PluginError(
                f"{call.user}: for operands ({', '.join(map(str, instruction.operand_types))}) it gives {_listed(wanted)}, and "
                f"the program says {_listed(instruction.result_types)}{place(instruction)}"
            )
        return call.replace(builder, instruction)

    return replace


def reason_against_devices(instruction: Instruction, backends: Sequence[str]) -> str:
    """Why a custom call is for none of some back ends, or an empty text."""
    if not is_custom_call(instruction):
        return ""
    call = registry().custom_call(instruction.attributes["call_target_name"])
    if call is None or not call.devices or any(name in call.devices for name in backends):
        return ""
    return f"the custom call target {call.target!r} is for {listed_devices(call)}"


def elementwise_binding(instruction: Instruction) -> ExpansionRule | None:
    """The binding of a call that becomes a pointwise op."""
    if not is_custom_call(instruction):
        return None
    call = registry().custom_call(instruction.attributes["call_target_name"])
    return expansion_or_binding(instruction) if isinstance(call, ElementwiseCall) else None


def refined_call(instruction: Instruction) -> Sequence[Type] | None:
    """What the plugin of a custom call says of its results' types (``CustomCall.refine``)."""
    target = instruction.attributes["call_target_name"]
    call = registry().custom_call(target)
    if call is None:
        return None
    try:
        types: Any = fork_gate.outside(call.refine, instruction)
    except UnsupportedError as error:
        raise error.about(described(instruction), location=instruction.location) from error
    except Exception as error:
        raise PluginError(
            f"custom call target {target!r}: its refine failed: {told(error, call.refine)}{place(instruction)}"
        ) from error
    if types is None or (
        isinstance(types, Sequence)
        and len(types) == len(instruction.results)
        and all(isinstance(type, Type) for type in types)
    ):
        return types
    raise PluginError(
        f"custom call target {target!r}: its refine returned {types!r}; expected a type for each result, or None"
        f"{place(instruction)}"
    )


def is_foreign(instruction: Instruction) -> bool:
    """Whether somebody else's plugin says what the instruction expands into."""
    if is_custom_call(instruction):
        call = registry().custom_call(instruction.attributes["call_target_name"])
        return call is not None and not registry().is_built_in(call)
    return BUILT_IN.get(instruction.op.name) is not instruction.op


_EXPECTED = "the expansion returned"


def place(instruction: Instruction) -> str:
    """Where in the program an instruction is, as the last line of a message."""
    return f"\n  at {instruction.location}"


def _listed(types: Sequence[Any]) -> str:
    return f"[{', '.join(map(str, types))}]"


def _checked(what: str, rule: ExpansionRule, vendors: CustomCall | ExpansionRule) -> ExpansionRule:
    function = getattr(vendors, "expand", None) or (vendors.replace if isinstance(vendors, CustomCall) else vendors)

    def replace(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
        def where() -> str:
            return f"{place_of(function)}{place(instruction)}"

        try:
            returned = fork_gate.outside(rule, builder, instruction)
            if returned is None and not is_custom_call(instruction):
                return None
            if isinstance(returned, Value):
                raise PluginError(f"{what}: {_EXPECTED} a Value, not a list of one: return [value]{where()}")
            values = list(returned or ())
        except UnsupportedError as error:
            raise error.about(described(instruction), location=instruction.location) from error
        except Exception as error:
            if isinstance(error, PluginError) and str(error).startswith(what):
                raise
            found = f"{told(error, function)}"
            raise PluginError(f"{what}: the expansion failed: {found}{place(instruction)}") from error
        if not all(isinstance(value, Value) for value in values):
            raise PluginError(
                f"{what}: {_EXPECTED} {returned!r}, not a list of the values that stand for its results{where()}"
            )
        if any(value is own for value in values for own in instruction.results):
            raise PluginError(
                f"{what}: {_EXPECTED} the results of the instruction that it stands for; build others{where()}"
            )
        types = tuple(value.type for value in values)
        if not compatible_lists(types, instruction.result_types):
            raise PluginError(
                f"{what}: {_EXPECTED} {_listed(types) if values else repr(returned)}; expected one value for each result, "
                f"{_listed(instruction.result_types)}{where()}"
            )
        return values

    return replace
