"""Custom calls that JAX writes for ops of which it knows the sizes only later, and ``ApproxTopK``.

    %1:2 = stablehlo.custom_call @stablehlo.dynamic_top_k(%0, %k)              =>     %1:2 = chlo.top_k(%0, k = 3)
    %1 = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%0, %init,     =>     %1 = stablehlo.reduce_window(%0, %init)
           %dimensions, %strides, %bases, %dilations, %padding)
    %1:2 = stablehlo.custom_call @stablehlo.dynamic_rng_bit_generator(%0, %s)  =>     %1:2 = stablehlo.rng_bit_generator(%0)

They are replaced when the operands that say how are constants.  ``ApproxTopK`` is a sort by the function that it names: the
approximation is a permission, which nothing here takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.attributes import ArrayAttr, BoolAttr, DictAttr, IntegerAttr
from hlojit.ir.blocks import Block
from hlojit.ir.ops.chlo_structure import open_top_k
from hlojit.ir.ops.control import callee_named
from hlojit.ir.ops.dynamic_types import numbers, shape_positions
from hlojit.ir.ops.rules import constant_operand
from hlojit.ir.types import TensorType

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value


def _region_of(builder: Any, instruction: Instruction) -> Block | None:
    """The body of the function that the call names, as a region."""
    names: tuple[str, ...] = instruction.attributes.get("called_computations") or ()
    callee = callee_named(instruction, names[0]) if len(names) == 1 else None
    if callee is None or callee.is_declaration:
        return None
    region = callee.body.clone()
    last = region.terminator
    returned = last.operands
    last.erase()
    type(builder)(region, location=instruction.location).create("stablehlo.return", returned)
    return region


def _number(instruction: Instruction, position: int) -> int | None:
    found = constant_operand(instruction, position) if position < len(instruction.operands) else None
    return int(found.reshape(())) if found is not None and found.size == 1 else None


def _top_k(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    k, operand = _number(instruction, 1), instruction.operands[0]
    if k is not None:
        return list(builder.top_k(operand, k=k))
    type = operand.type
    if not isinstance(type, TensorType) or type.is_static or type.bounds or not type.rank:
        return None
    size = builder.reshape(builder.convert(instruction.operands[1], "i64"), (1,))
    return open_top_k(builder, operand, size, instruction.result_types)


def _reduce_window(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    count = (len(instruction.operands) - 5) // 2
    lists = [numbers(instruction, position) for position in range(2 * count, 2 * count + 4)]
    padding = constant_operand(instruction, 2 * count + 4) if count > 0 else None
    known = [each for each in lists if each is not None]
    region = _region_of(builder, instruction)
    if len(known) < 4 or padding is None or padding.ndim != 2 or region is None:
        return None
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    attributes: dict[str, Any] = dict(zip(names, known))
    attributes["padding"] = tuple(tuple(map(int, pair)) for pair in padding)
    made = builder.create(
        "stablehlo.reduce_window", instruction.operands[: 2 * count], attributes=attributes, regions=[region]
    )
    return list(made.results)


def _rng_bit_generator(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    shape, found = numbers(instruction, 1), instruction.result_types[-1]
    if shape is None or len(instruction.results) != 2 or not isinstance(found, TensorType) or len(shape) != found.rank:
        return None
    stated = str(instruction.discardable.get("rng_algorithm", ""))
    algorithm = next((word for word in ("THREE_FRY", "PHILOX") if word in stated), "DEFAULT")
    made = builder.create(
        "stablehlo.rng_bit_generator",
        instruction.operands[:1],
        attributes={"rng_algorithm": algorithm},
        result_types=[instruction.operand_types[0], found.refined(shape)],
    )
    return list(made.results)


def _settings(instruction: Instruction) -> Mapping[str, Any]:
    """Numbers and truth values of the call's configuration."""
    for found in (instruction.discardable.get("mhlo.backend_config"), instruction.attributes.get("backend_config")):
        if isinstance(found, DictAttr):
            items = found.as_dict().items()
            return {name: each.value for name, each in items if isinstance(each, (IntegerAttr, BoolAttr))}
    return {}


def _approx_top_k(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """All that are wanted of all inputs, in order: the first of a stable sort."""
    count, settings = len(instruction.results), _settings(instruction)
    k = settings.get("top_k", _number(instruction, 2 * count))
    dimension, region = settings.get("reduction_dim"), _region_of(builder, instruction)
    types = [type for type in instruction.operand_types[:count] if isinstance(type, TensorType) and type.is_static]
    if k is None or dimension is None or region is None or len(types) < count or not settings.get("aggregate_to_topk"):
        return None
    shape = types[0].shape
    if not (0 <= dimension < len(shape) and 0 <= k <= shape[dimension]):
        return None
    ordered = builder.create(
        "stablehlo.sort",
        instruction.operands[:count],
        attributes={"dimension": dimension, "is_stable": True},
        regions=[region],
    )
    limits = tuple(k if d == dimension else extent for d, extent in enumerate(shape))
    bounds = {"start_indices": (0,) * len(shape), "limit_indices": limits, "strides": (1,) * len(shape)}
    return [builder.create("stablehlo.slice", [value], attributes=bounds).result for value in ordered.results]


CALL_EXPANSIONS: Final[Mapping[str, Callable[[Any, Instruction], Sequence[Value] | None]]] = {
    "stablehlo.dynamic_top_k": _top_k,
    "stablehlo.dynamic_reduce_window": _reduce_window,
    "stablehlo.dynamic_rng_bit_generator": _rng_bit_generator,
    "stablehlo.dynamic_approx_top_k": _approx_top_k,
    "ApproxTopK": _approx_top_k,
}
"""By target."""


def without_shape_operands(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """The call without the operands that give its results' shapes, once these are known; None of others."""
    positions = shape_positions(instruction)
    known = all(isinstance(type, TensorType) and type.is_static for type in instruction.result_types)
    if positions is None or not known:
        return None
    kept = [number for number in range(len(instruction.operands)) if number not in positions]
    attributes = dict(instruction.attributes)
    layouts = attributes.get("operand_layouts")
    if isinstance(layouts, ArrayAttr) and len(layouts.elements) == len(instruction.operands):
        attributes["operand_layouts"] = ArrayAttr(tuple(layouts.elements[number] for number in kept))
    rest = {name: each for name, each in instruction.discardable.items() if name != "indices_of_shape_operands"}
    made = builder.create(
        instruction.op.name,
        [instruction.operands[number] for number in kept],
        attributes=attributes,
        result_types=instruction.result_types,
        discardable=rest,
    )
    return list(made.results)
