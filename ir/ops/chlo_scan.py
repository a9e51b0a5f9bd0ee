"""``chlo.scan``: a loop over the slices of a dimension that carries values.

JAX writes cumulative sums for NVIDIA's GPUs with it, as associative.  Such a scan becomes a window over everything before an
element, which back ends compute in parallel (the order of the sums is *permitted* to change); others become loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from hlojit.ir.ops.attribute_kinds import BOOL, I64, IntegerArrayKind
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Expand,
    Indexed,
    InferenceRequest,
    OpDefinition,
    Operand,
    ReferenceCall,
    Trait,
    define,
)
from hlojit.ir.ops.rules import (
    OpCall,
    checked,
    compatible_extents,
    compatible_lists,
    in_range,
    inferred,
    operand_tensors,
    region_inputs,
    region_outputs,
    show,
    spell,
    without,
)
from hlojit.ir.types import DYNAMIC, TensorType, Type, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

INDEX = tensor((), "i32")


def scan_inputs(call: OpCall) -> int:
    """How many operands are inputs: those whose slices, not they themselves, the body takes."""
    sizes = call.attributes.get("operandSegmentSizes")
    if sizes:
        return int(sizes[0])
    arguments = region_inputs(call.regions[0])
    return sum(
        isinstance(operand, TensorType) and isinstance(argument, TensorType) and operand.rank == argument.rank + 1
        for operand, argument in zip(call.operand_types, arguments)
    )


def _segments(call: OpCall) -> str | None:
    sizes, count = call.attributes.get("operandSegmentSizes"), len(call.operand_types)
    if sizes and (len(sizes) != 2 or min(sizes) < 0 or sum(sizes) != count):
        return f"operandSegmentSizes {show(sizes)} must be the numbers of inputs and of inits, {count} together"
    if scan_inputs(call) or len(region_outputs(call.regions[0])) > count:
        return None
    return "there must be at least one input or output"


def _scan_dimension(call: OpCall) -> str | None:
    for type in operand_tensors(call)[: scan_inputs(call)]:
        complaint = in_range("dimension", (call.attributes["dimension"],), type.rank, f"rank of {type}")
        if complaint:
            return complaint
    return None


def _scan_size(call: OpCall) -> int:
    """How many slices there are, as far as it is known."""
    dimension = call.attributes["dimension"]
    sizes = [call.attributes.get("scan_dim_size", DYNAMIC)]
    sizes += [type.shape[dimension] for type in operand_tensors(call)[: scan_inputs(call)]]
    return next((size for size in sizes if size != DYNAMIC), DYNAMIC)


def _same_size(call: OpCall) -> str | None:
    dimension, expected = call.attributes["dimension"], _scan_size(call)
    for type in operand_tensors(call)[: scan_inputs(call)]:
        if not compatible_extents(type.shape[dimension], expected):
            return f"dimension {dimension} of {type} has not the size {expected} of the scan"
    return None


def _scan_body(call: OpCall) -> str | None:
    count, arguments, dimension = scan_inputs(call), region_inputs(call.regions[0]), call.attributes["dimension"]
    types = operand_tensors(call)
    slices = [type.with_shape(without(type.shape, (dimension,))) for type in types[:count]]
    expected = [*slices, *types[count:]]
    if not compatible_lists(arguments, expected):
        return f"body takes {spell(arguments)}, expected {spell(expected)}"
    carries = len(types) - count
    returned = region_outputs(call.regions[0])
    if len(returned) < carries or not compatible_lists(returned[len(returned) - carries :], types[count:]):
        return f"body returns {spell(returned)}, expected it to end in the {carries} values that are carried"
    return None


SCAN_RULES = (
    Constraint("segments", _segments),
    Constraint("dimension", _scan_dimension),
    Constraint("size", _same_size),
    Constraint("body", _scan_body),
)


def _infer_scan(request: InferenceRequest) -> Sequence[Type]:
    """What the body collects, with a dimension for the steps, and what it carries."""
    dimension, returned = request.attributes["dimension"], region_outputs(request.regions[0])
    carries = len(request.operand_types) - scan_inputs(request)
    found: list[Type] = []
    for type in returned[: len(returned) - carries]:
        assert isinstance(type, TensorType)
        shape = [*type.shape[:dimension], _scan_size(request), *type.shape[dimension:]]
        found.append(type.with_shape(shape))
    return [*found, *returned[len(returned) - carries :]]


def _scan_reference(call: ReferenceCall, *operands: Array) -> tuple[Array, ...]:
    count, dimension = scan_inputs(call.instruction), call.attributes["dimension"]
    rows = [np.moveaxis(value, dimension, 0) for value in operands[:count]]
    length = len(rows[0]) if rows else int(call.attributes["scan_dim_size"])
    carries: tuple[Any, ...] = operands[count:]
    steps = range(length - 1, -1, -1) if call.attributes.get("is_reverse") else range(length)
    collected: dict[int, tuple[Any, ...]] = {}
    for step in steps:
        returned = call.run(0, *(row[step] for row in rows), *carries)
        collected[step], carries = returned[: -len(carries) or None], returned[len(returned) - len(carries) :]
    types = [result.tensor_type for result in call.instruction.results[: len(call.instruction.results) - len(carries)]]
    outputs = [
        np.stack([collected[step][number] for step in range(length)], axis=dimension)
        if length
        else np.zeros(type.shape, type.element_type.storage)
        for number, type in enumerate(types)
    ]
    return (*outputs, *carries)


def _expand_scan(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    types = [value.tensor_type for value in (*instruction.operands, *instruction.results)]
    if not all(type.is_static for type in types):
        return None
    count, dimension = scan_inputs(instruction), instruction.attributes["dimension"]
    length = types[0].shape[dimension] if count else int(instruction.attributes["scan_dim_size"])
    if not length:
        return None
    return _as_window(builder, instruction) or _as_loop(builder, instruction, count, length)


def _as_window(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """An associative scan of one array whose body is one op that may take elements in any order; None of others."""
    region = instruction.regions[0]
    step = region.first
    if not instruction.attributes.get("is_associative") or len(region.arguments) != 2 or len(region) != 2:
        return None
    assert step is not None
    is_plain = region.returned == (*step.results, *step.results) and {*step.operands} == {*region.arguments}
    if not is_plain or not step.op.traits >= {Trait.COMMUTATIVE, Trait.ASSOCIATIVE} or step.op.identity is None:
        return None
    value, init = instruction.operands
    type, dimension = value.tensor_type, instruction.attributes["dimension"]
    others = [number for number in range(type.rank) if number != dimension]
    first, is_reverse = _splat(init), bool(instruction.attributes.get("is_reverse"))
    identity = step.op.identity(type.element_type)
    # An init that changes nothing may be the window's own: then nothing is combined with it afterwards.
    is_neutral = first is not None and bool(np.all(first == np.asarray(identity).astype(first.dtype)))
    scalar = builder.constant(first if is_neutral else identity, type.with_shape(()))
    length, rank = type.shape[dimension], type.rank
    before, behind = (0, length - 1) if is_reverse else (length - 1, 0)
    around = [(before, behind) if number == dimension else (0, 0) for number in range(rank)]
    sums = builder.create(
        "stablehlo.reduce_window",
        [value, scalar],
        attributes={
            "window_dimensions": tuple(length if number == dimension else 1 for number in range(rank)),
            "window_strides": (1,) * rank,
            "base_dilations": (1,) * rank,
            "window_dilations": (1,) * rank,
            "padding": tuple(around),
        },
        regions=[builder.combiner(step.op.name, type.element_type)],
    ).result
    if not is_neutral:
        sums = builder.create(step.op.name, [builder.broadcast_in_dim(init, type, others), sums]).result
    end = 0 if is_reverse else length - 1
    return [sums, _slice_at(builder, sums, dimension, builder.constant(end, INDEX))]


def _splat(value: Value) -> Any:
    """The element that a constant, or what repeats one, consists of; None of other values."""
    while (made := value.producer) is not None:
        if Trait.CONSTANT in made.op.traits:
            dense = made.attributes["value"]
            return dense.splat_element if dense.is_splat else None
        if not isinstance(made.op.lowering, Indexed) or made.op.lowering.broadcasts is None:
            return None
        value = made.operands[0]
    return None


def _as_loop(builder: Any, instruction: Instruction, count: int, length: int) -> Sequence[Value]:
    dimension, is_reverse = instruction.attributes["dimension"], bool(instruction.attributes.get("is_reverse"))
    inputs, inits = instruction.operands[:count], instruction.operands[count:]
    outputs = instruction.results[: len(instruction.results) - len(inits)]
    zeros = [builder.constant(0, result.tensor_type) for result in outputs]
    carried = 1 + len(inits)

    def body(inner: Any, step: Value, *values: Value) -> list[Value]:
        last = inner.constant(length - 1, INDEX)
        place = inner.create("stablehlo.subtract", [last, step]).result if is_reverse else step
        taken = [_slice_at(inner, each, dimension, place) for each in inputs]
        region = instruction.regions[0]
        returned = inner.inline(region, (*taken, *values[: carried - 1]))
        made = returned[: len(returned) - len(inits)]
        kept = [_with_slice(inner, whole, dimension, place, part) for whole, part in zip(values[carried - 1 :], made)]
        following = inner.create("stablehlo.add", [step, inner.constant(1, INDEX)]).result
        return [following, *returned[len(made) :], *kept]

    _, *found = builder.while_(
        [builder.constant(0, INDEX), *inits, *zeros],
        lambda inner, step, *_: inner.compare(step, inner.constant(length, INDEX), "LT"),
        body,
    )
    return [*found[carried - 1 :], *found[: carried - 1]]


def _starts(builder: Any, rank: int, dimension: int, place: Value) -> list[Value]:
    zero = builder.constant(0, INDEX)
    return [place if number == dimension else zero for number in range(rank)]


def _slice_at(builder: Any, value: Value, dimension: int, place: Value) -> Value:
    """The slice of a dimension at an index, without the dimension."""
    shape = value.tensor_type.shape
    sizes = tuple(1 if number == dimension else extent for number, extent in enumerate(shape))
    starts = _starts(builder, len(shape), dimension, place)
    part = builder.create("stablehlo.dynamic_slice", [value, *starts], attributes={"slice_sizes": sizes}).result
    return cast("Value", builder.reshape(part, (*shape[:dimension], *shape[dimension + 1 :])))


def _with_slice(builder: Any, whole: Value, dimension: int, place: Value, part: Value) -> Value:
    """An array with another slice of a dimension at an index."""
    shape = whole.tensor_type.shape
    wide = builder.reshape(part, (*shape[:dimension], 1, *shape[dimension + 1 :]))
    starts = _starts(builder, len(shape), dimension, place)
    return cast("Value", builder.create("stablehlo.dynamic_update_slice", [whole, wide, *starts]).result)


SCAN = define(
    OpDefinition(
        "chlo.scan",
        operands=(Operand("inputs", variadic=True), Operand("inits", variadic=True)),
        attributes=(
            AttributeSpec("operandSegmentSizes", IntegerArrayKind("i32"), optional=True),
            AttributeSpec("resultSegmentSizes", IntegerArrayKind("i32"), optional=True),
            AttributeSpec("dimension", I64),
            AttributeSpec("scan_dim_size", I64, optional=True),
            AttributeSpec("is_reverse", BOOL, optional=True, default=False),
            AttributeSpec("is_associative", BOOL, optional=True),
        ),
        regions=("body",),
        infer=checked(SCAN_RULES, _infer_scan),
        constraints=(*SCAN_RULES, inferred("result")),
        reference=_scan_reference,
        syntax="scan",
        lowering=Expand(_expand_scan),
        summary="a loop over the slices of a dimension that carries values",
    )
)
