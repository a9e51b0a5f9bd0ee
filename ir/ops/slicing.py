"""Ops that take tensors apart and put them together: slice, dynamic_slice, pad, concatenate.

Their lowering says from which index of which operand an element of the result comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.errors import ExecutionError
from hlojit.ir.formats import IntegerType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops import padding_rules, shape_rules
from hlojit.ir.ops.attribute_kinds import I64, I64_ARRAY
from hlojit.ir.ops.batching import movement as batching
from hlojit.ir.ops.block_movement import BLOCK_CONCATENATE, BLOCK_DYNAMIC_SLICE, BLOCK_SLICE
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Indexed,
    InferenceRequest,
    OpDefinition,
    Operand,
    Trait,
    define,
)
from hlojit.ir.ops.derivatives import movement as derivatives
from hlojit.ir.ops.pointwise import ANY, inferred_element, takes
from hlojit.ir.ops.ranges import same_range, union_of
from hlojit.ir.ops.rules import (
    OpCall,
    bounded,
    checked,
    compatible_extents,
    dimension_in_range,
    has_size,
    inferred,
    most,
    not_negative,
    operand_tensor,
    operand_tensors,
    positive,
    same_elements,
)
from hlojit.ir.ops.views import DimensionView, DynamicSliceView, PadView, SliceView
from hlojit.ir.scalar.builder import Scalar
from hlojit.ir.scalar.elements import ElementEmitter, IndexExpression
from hlojit.ir.types import DYNAMIC, Type, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction

# slice


def _slice_sizes_agree(call: OpCall) -> str | None:
    rank = operand_tensor(call, 0).rank
    names = ("start_indices", "limit_indices", "strides")
    return next(filter(None, (has_size(name, call.attributes[name], rank) for name in names)), None)


def _slice_bounds(call: OpCall) -> str | None:
    view = SliceView.of(call)
    bounds = zip(most(operand_tensor(call, 0)), view.starts, view.limits)
    for dimension, (extent, start, limit) in enumerate(bounds):
        if not 0 <= start <= limit or (extent != DYNAMIC and limit > extent):
            return f"0 <= start {start} <= limit {limit} <= size {extent} does not hold in dimension {dimension}"
    return None


def _sliced_type(request: InferenceRequest) -> tuple[Type, ...]:
    ranges = SliceView.of(request).ranges
    return (operand_tensor(request, 0).with_shape([-(-(limit - start) // stride) for start, limit, stride in ranges]),)


def _slice(emitter: ElementEmitter, instruction: Instruction, index: Sequence[IndexExpression]) -> Scalar:
    ranges = SliceView.of(instruction).ranges
    source = [position * stride + start for position, (start, _, stride) in zip(index, ranges)]
    return emitter.operand(0, source)


def _slice_array(call: Any, x: Array) -> Array:
    ranges = SliceView.of(call).ranges
    return np.asarray(x[tuple(slice(start, limit, stride) for start, limit, stride in ranges)])


_SLICE_RULES = (
    takes("I1", 0, "operand", ANY),
    Constraint("C2", _slice_sizes_agree),
    Constraint("C3", _slice_bounds),
    Constraint("C4", lambda call: positive("strides", call.attributes["strides"])),
)

SLICE = define(
    OpDefinition(
        "stablehlo.slice",
        operands=(Operand("operand"),),
        attributes=tuple(AttributeSpec(name, I64_ARRAY) for name in ("start_indices", "limit_indices", "strides")),
        infer=checked(_SLICE_RULES, _sliced_type),
        constraints=(*_SLICE_RULES, inferred_element("C1"), inferred("C5")),
        reference=_slice_array,
        syntax="slice",
        traits=frozenset({Trait.ASYNCHRONOUS, Trait.PART}),
        parts={BlockFormat: BLOCK_SLICE},
        lowering=Indexed(_slice, moves=True),
        value_range=same_range,
        symbolic=shape_rules.slice_,
        padded=padding_rules.slice_,
        derivative=derivatives.SLICE,
        batching=batching.slice,
        summary="Every stride-th element from start to limit.",
    )
)

# pad


def padded_extent(extent: int, low: int, high: int, interior: int) -> int:
    """The size of a dimension after padding."""
    return DYNAMIC if extent == DYNAMIC else extent + low + max(extent - 1, 0) * interior + high


PADDING = ("edge_padding_low", "edge_padding_high", "interior_padding")


def _pad_sizes_agree(call: OpCall) -> str | None:
    rank = operand_tensor(call, 0).rank
    return next(filter(None, (has_size(name, call.attributes[name], rank) for name in PADDING)), None)


def _pad_elements(call: OpCall) -> str | None:
    return same_elements("operand and padding_value", operand_tensors(call))


def _pad_fits(call: OpCall) -> str | None:
    for dimension, (extent, padding) in enumerate(zip(most(operand_tensor(call, 0)), PadView.of(call).ranges)):
        if extent != DYNAMIC and padded_extent(extent, *padding) < 0:
            return f"padding (low, high, interior) {padding} leaves less than nothing of dimension {dimension}"
    return None


def _padded_type(request: InferenceRequest) -> tuple[Type, ...]:
    operand, ranges = operand_tensor(request, 0), PadView.of(request).ranges
    shape, largest = (
        [padded_extent(extent, *padding) for extent, padding in zip(extents, ranges)]
        for extents in (operand.shape, most(operand))
    )
    return (bounded(shape, operand.element_type, largest),)


def _pad(emitter: ElementEmitter, instruction: Instruction, index: Sequence[IndexExpression]) -> Scalar:
    inside: Any = True
    source = []
    shape = instruction.operands[0].tensor_type.shape
    for position, extent, (low, _, interior) in zip(index, shape, PadView.of(instruction).ranges):
        step = interior + 1
        moved = position - low
        inside = _both(emitter, inside, emitter.in_range(moved, 0, max(extent - 1, 0) * step + min(extent, 1)))
        if interior:
            inside = _both(emitter, inside, emitter.in_range(moved % step, 0, 1))
            moved = moved // step
        source.append(moved)
    return emitter.guarded(inside, lambda: emitter.operand(0, source), lambda: emitter.operand(1, ()))


def _both(emitter: ElementEmitter, a: Any, b: Any) -> Any:
    """The conjunction of two conditions, either of which may be known."""
    if a is True or b is False:
        return b
    if b is True or a is False:
        return a
    return emitter.builder.and_(a, b)


def _pad_array(call: Any, x: Array, value: Array) -> Array:
    ranges = PadView.of(call).ranges
    padded = tuple(padded_extent(extent, *each) for extent, each in zip(x.shape, ranges))
    if min(padded, default=0) < 0:
        raise ExecutionError(f"{call.instruction.name}: padding leaves the shape {padded}, less than nothing")
    spread = np.full([padded_extent(n, 0, 0, interior) for n, (_, _, interior) in zip(x.shape, ranges)], value, x.dtype)
    spread[tuple(slice(None, None, interior + 1) for _, _, interior in ranges)] = x
    if not ranges:
        return spread
    # Add before removing: one side may take away more than there was, from what the other adds.
    wide = np.pad(spread, [(max(low, 0), max(high, 0)) for low, high, _ in ranges], constant_values=value)
    return wide[tuple(slice(max(-low, 0), n - max(-high, 0)) for n, (low, high, _) in zip(wide.shape, ranges))]


def _share(instruction: Instruction, number: int) -> float:
    """Every element of an operand is read once, by an element of the result."""
    return instruction.operands[number].tensor_type.size / max(1, instruction.results[0].tensor_type.size)


def _padded_reads(instruction: Instruction, number: int) -> float:
    return _share(instruction, number) if number == 0 else 1.0


_PAD_RULES = (
    takes("I1", 0, "operand", ANY),
    takes("I2", 1, "padding_value", ANY),
    Constraint("I2", lambda call: _must_be_scalar(call, 1, "padding_value")),
    Constraint("C1", _pad_elements),
    Constraint("C2", _pad_sizes_agree),
    Constraint("C3", lambda call: not_negative("interior_padding", call.attributes["interior_padding"])),
    Constraint("C4", _pad_fits),
)


def _must_be_scalar(call: OpCall, position: int, name: str) -> str | None:
    type = operand_tensor(call, position)
    return None if type.rank == 0 else f"{name} must be a scalar, found {type}"


PAD = define(
    OpDefinition(
        "stablehlo.pad",
        operands=(Operand("operand"), Operand("padding_value")),
        attributes=tuple(AttributeSpec(name, I64_ARRAY) for name in PADDING),
        infer=checked(_PAD_RULES, _padded_type),
        constraints=(*_PAD_RULES, inferred_element("C1"), inferred("C4")),
        reference=_pad_array,
        syntax="pad",
        lowering=Indexed(_pad, reads=_padded_reads, moves=True),
        symbolic=shape_rules.pad,
        padded=padding_rules.pad,
        derivative=derivatives.PAD,
        batching=batching.pad,
        summary="A value added around and between the elements; negative padding removes elements.",
    )
)

# concatenate


def _inputs_differ(call: OpCall) -> str | None:
    types, dimension = operand_tensors(call), DimensionView.of(call).dimension
    for type in types[1:]:
        agree = type.rank == types[0].rank and all(
            compatible_extents(a, b) for d, (a, b) in enumerate(zip(type.shape, types[0].shape)) if d != dimension
        )
        if not agree:
            return f"inputs differ in more than dimension {dimension}: {types[0]} and {type}"
    return None


def _some_input(call: OpCall) -> str | None:
    return None if call.operand_types else "takes at least one input"


def _concatenated_type(request: InferenceRequest) -> tuple[Type, ...]:
    types, dimension = operand_tensors(request), DimensionView.of(request).dimension
    shape = [next((n for n in extents if n != DYNAMIC), DYNAMIC) for extents in zip(*(type.shape for type in types))]
    extents = [type.shape[dimension] for type in types]
    shape[dimension] = DYNAMIC if DYNAMIC in extents else sum(extents)
    if DYNAMIC not in shape:
        return (tensor(shape, types[0].element_type),)
    largest = [min((n for n in each if n != DYNAMIC), default=DYNAMIC) for each in zip(*map(most, types))]
    sizes = [most(type)[dimension] for type in types]
    largest[dimension] = DYNAMIC if DYNAMIC in sizes else sum(sizes)
    return (bounded(shape, types[0].element_type, largest),)


def _concatenate(emitter: ElementEmitter, instruction: Instruction, index: Sequence[IndexExpression]) -> Scalar:
    dimension = DimensionView.of(instruction).dimension
    starts = [0]
    for operand in instruction.operands:
        starts.append(starts[-1] + operand.tensor_type.shape[dimension])

    def element(number: int) -> Scalar:
        source = list(index)
        source[dimension] = index[dimension] - starts[number]
        return emitter.operand(number, source)

    def choose(first: int, last: int) -> Scalar:
        """The element, known to come from one of the operands first ... last - 1; found by bisection."""
        if last - first == 1:
            return element(first)
        middle = (first + last) // 2
        below = emitter.in_range(index[dimension], starts[first], starts[middle])
        return emitter.guarded(below, lambda: choose(first, middle), lambda: choose(middle, last))

    return choose(0, len(instruction.operands))


MOST_INPUTS: Final = 256
"""Of a concatenation that is built here: a kernel of a machine with threads takes its arrays as parameters."""


def _concatenate_in_groups(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """Concatenations of at most ``MOST_INPUTS``, of groups of about one size; or None: there are no more."""
    inputs = list(instruction.operands)
    if len(inputs) <= MOST_INPUTS:
        return None
    while len(inputs) > 1:
        groups = -(-len(inputs) // MOST_INPUTS)
        bounds = [len(inputs) * number // groups for number in range(groups + 1)]
        inputs = [
            builder.create("stablehlo.concatenate", inputs[first:last], attributes=instruction.attributes).result
            for first, last in pairwise(bounds)
        ]
    return inputs


_CONCATENATE_RULES = (
    Constraint("C3", _some_input),
    Constraint("C1", lambda call: same_elements("inputs", operand_tensors(call))),
    Constraint("C4", lambda call: dimension_in_range(call) if call.operand_types else None),
    Constraint("C2", _inputs_differ),
)

CONCATENATE = define(
    OpDefinition(
        "stablehlo.concatenate",
        operands=(Operand("inputs", variadic=True),),
        attributes=(AttributeSpec("dimension", I64),),
        infer=checked(_CONCATENATE_RULES, _concatenated_type),
        constraints=(*_CONCATENATE_RULES, inferred_element("C5"), inferred("C6")),
        reference=lambda call, *inputs: np.concatenate(inputs, DimensionView.of(call).dimension),
        syntax="concatenate",
        parts={BlockFormat: BLOCK_CONCATENATE},
        lowering=Indexed(_concatenate, reads=_share, moves=True, expansion=_concatenate_in_groups),
        value_range=union_of(),
        symbolic=shape_rules.concatenate,
        padded=padding_rules.concatenate,
        derivative=derivatives.CONCATENATE,
        batching=batching.concatenate,
        summary="Tensors joined along one dimension.",
    )
)

# dynamic_slice


def _starts_agree(call: OpCall) -> str | None:
    rank, starts = operand_tensor(call, 0).rank, call.operand_types[1:]
    if len(starts) != rank:
        return f"takes {rank} start indices, the rank of the operand, found {len(starts)}"
    return has_size("slice_sizes", call.attributes["slice_sizes"], rank)


def _starts_are_scalars(call: OpCall) -> str | None:
    for type in operand_tensors(call, 1):
        if type.rank or not isinstance(type.element_type, IntegerType):
            return f"start_indices must be scalars of integer type, found {type}"
    return None


def _starts_same_type(call: OpCall) -> str | None:
    return same_elements("start_indices", operand_tensors(call, 1))


def _slice_sizes_fit(call: OpCall) -> str | None:
    for dimension, (size, extent) in enumerate(zip(DynamicSliceView.of(call).sizes, operand_tensor(call, 0).shape)):
        if size < 0 or (extent != DYNAMIC and size > extent):
            return f"0 <= slice size {size} <= size {extent} does not hold in dimension {dimension}"
    return None


def _dynamic_slice(emitter: ElementEmitter, instruction: Instruction, index: Sequence[IndexExpression]) -> Scalar:
    source = []
    shape, sizes = instruction.operands[0].tensor_type.shape, DynamicSliceView.of(instruction).sizes
    for dimension, (position, extent, size) in enumerate(zip(index, shape, sizes)):
        if extent == size:
            source.append(position)
            continue
        start = emitter.operand(dimension + 1, ())
        element = instruction.operands[dimension + 1].tensor_type.element_type
        source.append(position + emitter.run_time_index(start, element, 0, extent - size))
    return emitter.operand(0, source)


def _dynamic_slice_array(call: Any, x: Array, *starts: Array) -> Array:
    sizes = DynamicSliceView.of(call).sizes
    adjusted = [min(max(int(start), 0), extent - size) for start, extent, size in zip(starts, x.shape, sizes)]
    return np.asarray(x[tuple(slice(start, start + size) for start, size in zip(adjusted, sizes))])


_DYNAMIC_SLICE_RULES = (
    takes("I1", 0, "operand", ANY),
    Constraint("I2", _starts_are_scalars),
    Constraint("C2", _starts_agree),
    Constraint("C3", _starts_same_type),
    Constraint("C4", _slice_sizes_fit),
)

DYNAMIC_SLICE = define(
    OpDefinition(
        "stablehlo.dynamic_slice",
        operands=(Operand("operand"), Operand("start_indices", variadic=True)),
        attributes=(AttributeSpec("slice_sizes", I64_ARRAY),),
        infer=checked(
            _DYNAMIC_SLICE_RULES,
            lambda request: (operand_tensor(request, 0).with_shape(DynamicSliceView.of(request).sizes),),
        ),
        constraints=(*_DYNAMIC_SLICE_RULES, inferred_element("C1"), inferred("C5")),
        reference=_dynamic_slice_array,
        syntax="dynamic_slice",
        traits=frozenset({Trait.ASYNCHRONOUS, Trait.BEGINS}),
        parts={BlockFormat: BLOCK_DYNAMIC_SLICE},
        lowering=Indexed(_dynamic_slice, moves=True, looks_up=True),
        value_range=same_range,
        symbolic=shape_rules.dynamic_slice,
        derivative=derivatives.DYNAMIC_SLICE,
        batching=batching.dynamic_slice,
        summary="A slice whose place is known at run time, moved inside the operand where it would reach beyond.",
    )
)
