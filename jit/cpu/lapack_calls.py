"""LAPACK as JAX's programs for CPUs call it: ``stablehlo.custom_call @lapack_dgesdd_ffi`` and its kin.

    %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%a) {mhlo.backend_config = {uplo = 76 : ui8},
             operand_layouts = [dense<[0, 1]> : tensor<2xindex>], ...} : (tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<i32>)

become an instruction of the op ``hlojit.lapack`` between transposes.
"""

from __future__ import annotations

from typing import Any, Final

from hlojit.extensions.calls.custom_calls import ExpansionCall
from hlojit.ir.attributes import BoolAttr, DictAttr, IntegerAttr, StringAttr
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.lapack import LAPACK
from hlojit.ir.ops.lapack_calls import SignatureError, is_matrix, options_attribute, paired, routine_of, signature
from hlojit.ir.ops.layouts import LayoutError, column_major, from_physical, orders, physical, to_physical

_PREFIX: Final = "lapack_"
_SUFFIX: Final = "_ffi"


def lapack_calls() -> ExpansionCall:
    """The custom calls of all routines; a plugin that binds one of the targets by its name comes first."""
    return ExpansionCall(f"{_PREFIX}*{_SUFFIX}", expand=_expand)


def _expand(builder: Any, instruction: Instruction) -> list[Value]:
    """The routine between transposes; raises ``UnsupportedError`` where the call does not fit its signature."""
    target: str = instruction.attributes["call_target_name"]
    try:
        return _expanded(builder, instruction, target.removeprefix(_PREFIX).removesuffix(_SUFFIX))
    except (SignatureError, LayoutError) as error:
        raise UnsupportedError(f"custom_call @{target}", "", str(error), instruction.location) from None


def _expanded(builder: Any, instruction: Instruction, name: str) -> list[Value]:
    options = _options(instruction, name)
    operands = _without_factor(builder, instruction, name)
    count = len(operands)
    kinds = [*(operand.type for operand in operands), *instruction.result_types]
    pairs = paired(name, kinds)
    signature(name, options, kinds[:count], kinds[count:])
    expected = [column_major(kind.rank) if is_matrix(spec) else tuple(range(kind.rank)) for kind, spec in pairs]
    given = (
        *orders(instruction.attributes, "operand_layouts", instruction.operand_types)[:count],
        *orders(instruction.attributes, "result_layouts", kinds[count:]),
    )
    for wanted, order in zip(expected, given):
        if order != wanted:
            raise LayoutError(f"the dimensions of a layout are, from the slowest to the fastest, {order}, not {wanted}")
    made = Instruction(
        LAPACK,
        [to_physical(builder, value, order) for value, order in zip(operands, expected)],
        [physical(kind, order) for (kind, _), order in zip(pairs[count:], expected[count:])],
        {"routine": name, "options": options_attribute(options)},
        location=instruction.location,
    )
    results = builder.insert(made).results
    return [from_physical(builder, value, order) for value, order in zip(results, expected[count:])]


def _without_factor(builder: Any, instruction: Instruction, name: str) -> list[Value]:
    """The operands; programs from before JAX 0.6 give ``trsm`` the scalar factor of its right sides as a third one."""
    operands = list(instruction.operands)
    if name[1:] != "trsm" or len(operands) != 3:
        return operands
    matrix, sides, factor = operands
    if factor.type != sides.tensor_type.with_shape(()):
        raise SignatureError(f"{name}: the factor is {factor.type}")
    return [matrix, builder.multiply(builder.broadcast_in_dim(factor, sides.tensor_type, ()), sides)]


def _options(instruction: Instruction, name: str) -> dict[str, str | int | bool]:
    """The attributes of a call in plain form: what LAPACK has letters for are letters, which JAX writes as numbers."""
    _, _, routine = routine_of(name)
    config = instruction.discardable.get("mhlo.backend_config", instruction.attributes.get("backend_config"))
    items = config.items if isinstance(config, DictAttr) else ()
    options: dict[str, str | int | bool] = {}
    for key, attribute in items:
        if not isinstance(attribute, (StringAttr, IntegerAttr, BoolAttr)):
            raise SignatureError(f"{name}: the attribute {key} is {attribute}")
        value: str | int | bool = attribute.value
        if isinstance(routine.options.get(key), str) and type(value) is int and 0 <= value < 128:
            value = chr(value)
        options[key] = value
    return options
