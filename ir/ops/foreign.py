"""Calls of native functions through XLA's foreign function interface: what custom calls of registered handlers become.

    %0 = stablehlo.custom_call @acme.scale(%x) {mhlo.backend_config = {factor = 2.0 : f32}, api_version = 4 : i32, ...}

becomes an instruction of the op ``hlojit.foreign.acme.scale`` that has operands and results as they lie in memory
(``layouts``), typed attributes in the order of their names, and the place of the call for messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hlojit.ir.attributes import (
    ArrayAttr,
    Attribute,
    BoolAttr,
    Dense,
    DenseArrayAttr,
    DictAttr,
    FloatAttr,
    IntegerAttr,
    OutputOperandAlias,
    StringAttr,
)
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.attribute_kinds import BOOL, F32, GENERIC, I64_MATRIX, STRING
from hlojit.ir.ops.definition import AttributeSpec, Kernel, OpDefinition, Operand, op
from hlojit.ir.ops.layouts import Order, from_physical, orders, physical, to_physical
from hlojit.ir.types import TensorType, Type

ARRAY_TYPES: Final[Mapping[str, str]] = {
    "i1": "u1",
    **{
        f"{prefix}i{8 * size}": f"{letter}{size}"
        for prefix, letter in (("", "i"), ("s", "i"), ("u", "u"))
        for size in (1, 2, 4, 8)
    },
    "f32": "f4",
    "f64": "f8",
}
"""NumPy's types of attributes' numbers, by the types that programs give them."""


class ForeignCallError(ValueError):
    """A custom call that cannot be a call of a handler."""


@dataclass(frozen=True, slots=True)
class ForeignCallView:
    """What a back end needs to know of a call."""

    target: str
    attributes: tuple[tuple[str, Attribute], ...]
    """In the order of their names."""
    operand_orders: tuple[Order, ...]
    result_orders: tuple[Order, ...]
    aliases: tuple[tuple[int, int], ...]
    """Pairs of an operand and the result that lies in its memory."""
    place: str

    @classmethod
    def of(cls, instruction: Instruction) -> ForeignCallView:
        """Of an instruction whose record ``foreign_record`` has made."""
        given = instruction.attributes
        return cls(
            given["target"],
            given["arguments"].items,
            orders(given, "operand_layouts", instruction.operand_types),
            orders(given, "result_layouts", instruction.result_types),
            tuple((operand, result) for operand, result in given["aliases"]),
            given["place"],
        )


def record_name(target: str) -> str:
    """The name of the op that calls of a target become."""
    return f"hlojit.foreign.{target}"


def foreign_call(
    builder: Any,
    instruction: Instruction,
    *,
    aliases: Sequence[tuple[int, int]] = (),
    effects: bool = False,
    cost: float | None = None,
) -> list[Value]:
    """Build the call that stands for a custom call; raises ``ForeignCallError``, or ``LayoutError``.

    ``aliases`` and ``effects`` are those that the target has besides what the call says; ``cost`` is in nanoseconds.
    """
    given = instruction.attributes
    kinds = [*instruction.operand_types, *instruction.result_types]
    for kind in kinds:
        if not isinstance(kind, TensorType) or not kind.is_static:
            raise ForeignCallError(f"a handler takes and gives tensors of known shapes, not {kind}")
    if given.get("called_computations"):
        raise ForeignCallError("a handler cannot run called_computations")
    count = len(instruction.operands)
    before = orders(given, "operand_layouts", kinds[:count])
    behind = orders(given, "result_layouts", kinds[count:])
    attributes: dict[str, Any] = {
        "target": given["call_target_name"],
        "arguments": DictAttr(tuple(sorted(checked_attributes(config_of(instruction)).items()))),
        "aliases": merged_aliases(instruction, aliases),
        "place": str(instruction.location),
        "has_side_effect": effects or bool(given.get("has_side_effect")),
    }
    if cost is not None:
        attributes["cost"] = cost
    attributes |= {name: given[name] for name in ("operand_layouts", "result_layouts") if given.get(name) is not None}
    made = Instruction(
        op(record_name(given["call_target_name"])),
        [to_physical(builder, value, order) for value, order in zip(instruction.operands, before)],
        [_physical(kind, order) for kind, order in zip(kinds[count:], behind)],
        attributes,
        location=instruction.location,
    )
    results = builder.insert(made).results
    return [from_physical(builder, value, order) for value, order in zip(results, behind)]


def _physical(kind: Type, order: Order) -> Type:
    assert isinstance(kind, TensorType)
    return physical(kind, order)


def config_of(instruction: Instruction) -> Mapping[str, Attribute]:
    """The dictionary of a custom call's configuration; raises ``ForeignCallError`` where it is something else."""
    for attribute in (instruction.discardable.get("mhlo.backend_config"), instruction.attributes.get("backend_config")):
        if isinstance(attribute, DictAttr):
            return attribute.as_dict()
        if attribute is not None and attribute != StringAttr(""):
            raise ForeignCallError(f"the configuration is {attribute}, not a dictionary of typed attributes")
    return {}


def checked_attributes(given: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """The attributes, if all have a form in XLA's FFI: numbers, arrays of numbers, texts, and dictionaries of these."""
    for name, attribute in given.items():
        complaint = _complaint(attribute)
        if complaint:
            raise ForeignCallError(f"the attribute {name} is {complaint}")
    return dict(given)


def _complaint(attribute: Attribute) -> str:
    match attribute:
        case DictAttr(items):
            return next(filter(None, (_complaint(each) for _, each in items)), "")
        case StringAttr() | BoolAttr():
            return ""
        case IntegerAttr() | FloatAttr():
            return "" if attribute.type in ARRAY_TYPES else f"a number of type {attribute.type}"
        case DenseArrayAttr():
            return "" if attribute.element_type in ARRAY_TYPES else f"an array of {attribute.element_type}"
        case Dense():
            name = attribute.type.element_type.name
            return "" if name in ARRAY_TYPES else f"an array of {name}"
    return f"{attribute}, which XLA's FFI has no form for"


def aliases_of(attributes: Mapping[str, Any], operands: int, results: int) -> list[tuple[int, int]]:
    """Pairs of operand and result that ``output_operand_aliases`` wants in one memory."""
    given = attributes.get("output_operand_aliases")
    pairs = []
    for each in given.elements if isinstance(given, ArrayAttr) else ():
        if not isinstance(each, OutputOperandAlias) or each.operand_tuple_indices or len(each.output_tuple_indices) > 1:
            raise ForeignCallError(f"output_operand_aliases holds {each}")
        pair = each.operand_index, (each.output_tuple_indices or (0,))[0]
        if not (0 <= pair[0] < operands and 0 <= pair[1] < results):
            raise ForeignCallError(f"output_operand_aliases pairs operand {pair[0]} with result {pair[1]}")
        pairs.append(pair)
    if len({operand for operand, _ in pairs}) < len(pairs) or len({result for _, result in pairs}) < len(pairs):
        raise ForeignCallError("output_operand_aliases names one operand or result twice")
    return pairs


def merged_aliases(instruction: Instruction, more: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The aliases that a custom call names, and ``more``; raises ``ForeignCallError`` for what cannot be one memory."""
    operands, results = instruction.operand_types, instruction.result_types
    pairs = tuple(dict.fromkeys((*more, *aliases_of(instruction.attributes, len(operands), len(results)))))
    for operand, result in pairs:
        if operand >= len(operands) or result >= len(results) or operands[operand] is not results[result]:
            raise ForeignCallError(f"operand {operand} and result {result} cannot be one memory")
    for side in (0, 1):
        if len({pair[side] for pair in pairs}) < len(pairs):
            raise ForeignCallError(f"aliases name one operand or result twice: {pairs}")
    return pairs


def plain(attribute: Attribute) -> Any:
    """An attribute as Python and NumPy have it: arrays and numbers of its type, texts, dictionaries."""
    match attribute:
        case DictAttr(items):
            return {name: plain(each) for name, each in items}
        case IntegerAttr() | FloatAttr():
            return np.dtype(ARRAY_TYPES[attribute.type]).type(attribute.value)
        case DenseArrayAttr():
            return np.array(attribute.values, ARRAY_TYPES[attribute.element_type])
        case Dense():
            return np.array(attribute.array)
        case StringAttr() | BoolAttr():
            return attribute.value
    raise ForeignCallError(f"{attribute} has no form")


def _has_side_effect(instruction: Instruction) -> bool:
    return bool(instruction.attributes.get("has_side_effect"))


def foreign_record(target: str, reference: Callable[..., Any] | None) -> OpDefinition:
    """The record of the op that calls of a target become; ``reference`` is as in other records."""
    return OpDefinition(
        record_name(target),
        operands=(Operand("operands", variadic=True),),
        attributes=(
            AttributeSpec("target", STRING),
            AttributeSpec("arguments", GENERIC),
            AttributeSpec("operand_layouts", GENERIC, optional=True),
            AttributeSpec("result_layouts", GENERIC, optional=True),
            AttributeSpec("aliases", I64_MATRIX),
            AttributeSpec("place", STRING),
            AttributeSpec("cost", F32, optional=True),
            AttributeSpec("has_side_effect", BOOL, optional=True, default=False),
        ),
        reference=reference,
        effect=_has_side_effect,
        lowering=Kernel("foreign_call", without="handlers of XLA's FFI run on the host", takes_pairs=True),
        summary="a native function, called through XLA's foreign function interface",
    )
