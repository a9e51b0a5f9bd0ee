"""Rules on ops that take or put together parts: slices, concatenation, padding, gather, updates."""

from __future__ import annotations

import math

from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.slicing import MOST_INPUTS
from hlojit.ir.ops.views import (
    BroadcastView,
    DimensionView,
    DynamicSliceView,
    GatherView,
    PadView,
    ScatterView,
    SliceView,
)
from hlojit.ir.passes.graph_facts import constant_of, int_constant_of, splat_dense, splat_of
from hlojit.ir.passes.rewriting import Effect, Rewriter, RuleSet
from hlojit.ir.passes.rules.matching import has_one_use, made_by, static_shape
from hlojit.ir.types import tensor

RULES = RuleSet("slicing")
Bounds = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@RULES.rule("slice dynamic_slice", Effect.EXACT)
def slice_of_splat(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """A part of a splat constant is a splat constant."""
    element = splat_of(instruction.operands[0])
    type = instruction.result.tensor_type
    if element is None or not type.is_static:
        return None
    return rewriter.constant(splat_dense(type, element))


@RULES.rule("slice", Effect.EXACT)
def slice_of_all(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """A slice of everything is the operand."""
    (operand,) = instruction.operands
    whole = operand.type is instruction.result.type and operand.tensor_type.is_static
    return operand if whole else None


@RULES.rule("slice", Effect.EXACT)
def slice_of_slice(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """A slice of a slice is one slice."""
    inner = made_by(instruction.operands[0], "slice")
    if inner is None:
        return None
    starts, limits, strides = [], [], []
    for (start, limit, stride), (base, _, step) in zip(zip(*_bounds(instruction)), zip(*_bounds(inner))):
        count = max(0, -(-(limit - start) // stride))
        first = base + start * step
        starts.append(first)
        limits.append(first + (count - 1) * stride * step + 1 if count else first)
        strides.append(stride * step)
    return _slice(rewriter, inner.operands[0], instruction, (tuple(starts), tuple(limits), tuple(strides)))


@RULES.rule("slice", Effect.EXACT)
def slice_of_concatenate(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """A slice of a concatenation that lies within one operand is a slice of that operand."""
    inner = made_by(instruction.operands[0], "concatenate")
    if inner is None or static_shape(inner.result) is None or 0 in instruction.result.tensor_type.shape:
        return None
    dimension = DimensionView.of(inner).dimension
    starts, limits, strides = _bounds(instruction)
    begin = 0
    for operand in inner.operands:
        end = begin + operand.tensor_type.shape[dimension]
        if begin <= starts[dimension] and limits[dimension] <= end:
            shifted = (
                _with(starts, dimension, starts[dimension] - begin),
                _with(limits, dimension, limits[dimension] - begin),
                strides,
            )
            return _slice(rewriter, operand, instruction, shifted)
        begin = end
    return None


@RULES.rule("slice", Effect.EXACT)
def slice_of_broadcast(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """A slice of a broadcast is a broadcast of a slice."""
    inner = made_by(instruction.operands[0], "broadcast_in_dim")
    if inner is None:
        return None
    (operand,) = inner.operands
    shape, target = static_shape(operand), static_shape(instruction.result)
    if shape is None or target is None or 0 in target:
        return None
    dimensions = BroadcastView.of(inner).dimensions
    bounds = _bounds(instruction)
    starts, limits, strides = (
        tuple(neutral if extent == 1 else bound[position] for extent, position in zip(shape, dimensions))
        for bound, neutral in zip(bounds, (0, 1, 1))
    )
    extents = tuple(1 if extent == 1 else target[position] for extent, position in zip(shape, dimensions))
    if extents != shape:
        operand = rewriter.create(
            "slice",
            [operand],
            operand.tensor_type.with_shape(extents),
            {"start_indices": starts, "limit_indices": limits, "strides": strides},
        )
    broadcast: Value = rewriter.create(
        "broadcast_in_dim", [operand], instruction.result.type, {"broadcast_dimensions": dimensions}
    )
    return broadcast


@RULES.rule("concatenate", Effect.EXACT)
def concatenate_of_one(rewriter: Rewriter, concatenate: Instruction) -> Value | None:
    """A concatenation of one operand is that operand."""
    operands = concatenate.operands
    return operands[0] if len(operands) == 1 and operands[0].type is concatenate.result.type else None


@RULES.rule("concatenate", Effect.EXACT)
def concatenate_without_empties(rewriter: Rewriter, concatenate: Instruction) -> Value | None:
    """Operands without elements contribute nothing."""
    dimension = DimensionView.of(concatenate).dimension
    full = [operand for operand in concatenate.operands if operand.tensor_type.shape[dimension] != 0]
    if len(full) == len(concatenate.operands) or not full:
        return None
    return rewriter.create_like(concatenate, full)


@RULES.rule("concatenate", Effect.EXACT)
def concatenate_of_concatenate(rewriter: Rewriter, concatenate: Instruction) -> Value | None:
    """A concatenation along the same dimension, read only here, dissolves."""
    dimension = DimensionView.of(concatenate).dimension
    operands: list[Value] = []
    for operand in concatenate.operands:
        inner = made_by(operand, "concatenate")
        if inner is not None and DimensionView.of(inner).dimension == dimension and has_one_use(operand):
            operands.extend(inner.operands)
        else:
            operands.append(operand)
    if len(operands) == len(concatenate.operands) or len(operands) > MOST_INPUTS:
        return None
    return rewriter.create_like(concatenate, operands)


@RULES.rule("concatenate", Effect.EXACT)
def concatenate_of_neighbours(rewriter: Rewriter, concatenate: Instruction) -> Value | None:
    """Slices that lie side by side in one operand, put together again, are one slice."""
    dimension = DimensionView.of(concatenate).dimension
    runs: list[tuple[Value, Value | None, Bounds | None]] = []
    for operand in concatenate.operands:
        inner = made_by(operand, "slice")
        bounds = None if inner is None else _bounds(inner)
        source = None if inner is None else inner.operands[0]
        if runs and source is not None and bounds is not None and runs[-1][1] is source:
            joined = _join(runs[-1][2], bounds, dimension)
            if joined is not None:
                runs[-1] = (runs[-1][0], source, joined)
                continue
        runs.append((operand, source, bounds))
    if len(runs) == len(concatenate.operands):
        return None
    operands: list[Value] = []
    for operand, source, bounds in runs:
        inner = made_by(operand, "slice")
        if source is None or bounds is None or inner is None or _bounds(inner) == bounds:
            operands.append(operand)
        else:
            extent = bounds[1][dimension] - bounds[0][dimension]
            type = operand.tensor_type.with_shape(_with(operand.tensor_type.shape, dimension, extent))
            attributes = {"start_indices": bounds[0], "limit_indices": bounds[1], "strides": bounds[2]}
            operands.append(rewriter.create("slice", [source], type, attributes))
    return operands[0] if len(operands) == 1 else rewriter.create_like(concatenate, operands)


@RULES.rule("pad", Effect.EXACT)
def pad_of_nothing(rewriter: Rewriter, pad: Instruction) -> Value | None:
    """Padding by nothing is the operand."""
    return None if any(any(amounts) for amounts in PadView.of(pad).ranges) else pad.operands[0]


@RULES.rule("pad", Effect.EXACT)
def pad_as_slice(rewriter: Rewriter, pad: Instruction) -> Value | None:
    """Padding by negative amounts only is a slice."""
    view = PadView.of(pad)
    low, high = view.low, view.high
    shape = static_shape(pad.operands[0])
    if shape is None or any(view.interior) or max((*low, *high), default=0) > 0:
        return None
    starts = tuple(-amount for amount in low)
    limits = tuple(extent + amount for extent, amount in zip(shape, high))
    if any(start > limit for start, limit in zip(starts, limits)):
        return None
    return _slice(rewriter, pad.operands[0], pad, (starts, limits, (1,) * len(shape)))


@RULES.rule("pad", Effect.EXACT)
def pad_of_splat(rewriter: Rewriter, pad: Instruction) -> Value | None:
    """A splat constant padded with its own value is a larger one."""
    inside, outside = splat_of(pad.operands[0]), splat_of(pad.operands[1])
    type = pad.result.tensor_type
    if inside is None or outside is None or not type.is_static or inside.tobytes() != outside.tobytes():
        return None
    return rewriter.constant(splat_dense(type, inside))


@RULES.rule("dynamic_slice", Effect.EXACT)
def dynamic_slice_of_all(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """A dynamic slice as large as the operand can only start at 0."""
    operand = instruction.operands[0]
    return operand if operand.type is instruction.result.type and operand.tensor_type.is_static else None


@RULES.rule("dynamic_slice", Effect.EXACT)
def dynamic_slice_as_slice(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """A dynamic slice with constant starts (clamped) is a slice."""
    operand, *starts = instruction.operands
    shape = static_shape(operand)
    sizes = DynamicSliceView.of(instruction).sizes
    if shape is None:
        return None
    begins = []
    for start, extent, size in zip(starts, shape, sizes):
        constant = 0 if extent == size else int_constant_of(start)
        if constant is None:
            return None
        begins.append(min(max(constant, 0), extent - size))
    limits = tuple(begin + size for begin, size in zip(begins, sizes))
    return _slice(rewriter, operand, instruction, (tuple(begins), limits, (1,) * len(shape)))


@RULES.rule("dynamic_update_slice", Effect.EXACT)
def dynamic_update_of_all(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """An update as large as the operand replaces it."""
    operand, update = instruction.operands[:2]
    return update if operand.type is update.type and operand.tensor_type.is_static else None


@RULES.rule("scatter", Effect.EXACT)
def scatter_as_update(rewriter: Rewriter, scatter: Instruction) -> Value | None:
    """Overwriting one window at a constant place within bounds is a dynamic_update_slice."""
    if len(scatter.operands) != 3:
        return None
    operand, indices, updates = scatter.operands
    numbers = ScatterView.of(scatter).numbers
    shape, places = static_shape(operand), constant_of(indices)
    combiner = scatter.regions[0]
    overwrites = combiner.returned == (combiner.arguments[1],)
    components = len(numbers.scatter_dims_to_operand_dims)
    if shape is None or places is None or not overwrites or numbers.input_batching_dims:
        return None
    window = [updates.tensor_type.shape[dimension] for dimension in numbers.update_window_dims]
    if places.array.size != components or math.prod(window) != updates.tensor_type.size:
        return None
    extents = []
    for dimension in range(len(shape)):
        extents.append(1 if dimension in numbers.inserted_window_dims else window.pop(0))
    begins = [0] * len(shape)
    for dimension, place in zip(numbers.scatter_dims_to_operand_dims, places.array.ravel().tolist()):
        begins[dimension] = place
    if any(begin < 0 or begin + size > extent for begin, size, extent in zip(begins, extents, shape)):
        return None
    scalar = tensor((), "i32")
    starts = [rewriter.splat(scalar, begin) for begin in begins]
    update = rewriter.reshape(updates, extents)
    written: Value = rewriter.create("dynamic_update_slice", [operand, update, *starts], scatter.result.type)
    return written


@RULES.rule("gather", Effect.EXACT)
def gather_of_one_slice(rewriter: Rewriter, gather: Instruction) -> Value | None:
    """A gather of a single slice is a dynamic slice: both clamp their start."""
    operand, indices = gather.operands
    numbers = GatherView.of(gather).numbers
    shape, index_shape, target = static_shape(operand), static_shape(indices), static_shape(gather.result)
    if shape is None or index_shape is None or target is None or numbers.operand_batching_dims:
        return None
    components = len(numbers.start_index_map)
    sizes = GatherView.of(gather).sizes
    slices = math.prod(extent for d, extent in enumerate(index_shape) if d != numbers.index_vector_dim)
    if slices != 1 or len(shape) == 0 or math.prod(sizes) != math.prod(target):
        return None
    element = indices.tensor_type.element_type
    scalar = tensor((), element)
    flat = rewriter.reshape(indices, (components,))
    starts: dict[int, Value] = {}
    for position, dimension in enumerate(numbers.start_index_map):
        attributes = {"start_indices": (position,), "limit_indices": (position + 1,), "strides": (1,)}
        piece = flat if components == 1 else rewriter.create("slice", [flat], tensor((1,), element), attributes)
        starts[dimension] = rewriter.reshape(piece, ())
    zero = rewriter.splat(scalar, 0) if len(starts) < len(shape) else None
    begins = [starts.get(dimension, zero) for dimension in range(len(shape))]
    part = rewriter.create(
        "dynamic_slice",
        [operand, *(begin for begin in begins if begin is not None)],
        operand.tensor_type.with_shape(sizes),
        {"slice_sizes": sizes},
    )
    # The batch dimensions have extent 1 and the window's stand in their order: what is left is a reshape.
    return rewriter.reshape(part, target)


def _bounds(instruction: Instruction) -> Bounds:
    view = SliceView.of(instruction)
    return view.starts, view.limits, view.strides


def _slice(rewriter: Rewriter, operand: Value, like: Instruction, bounds: Bounds) -> Value:
    attributes = {"start_indices": bounds[0], "limit_indices": bounds[1], "strides": bounds[2]}
    part: Value = rewriter.create("slice", [operand], like.result.type, attributes)
    return part


def _join(first: Bounds | None, second: Bounds, dimension: int) -> Bounds | None:
    """The bounds of two slices side by side in ``dimension``, or None if they are not."""
    if (
        first is None
        or first[2] != second[2]
        or first[2][dimension] != 1
        or first[1][dimension] != second[0][dimension]
    ):
        return None
    for one, other in zip(first[:2], second[:2]):
        if _with(one, dimension, 0) != _with(other, dimension, 0):
            return None
    return first[0], second[1], first[2]


def _with(values: tuple[int, ...], position: int, value: int) -> tuple[int, ...]:
    return (*values[:position], value, *values[position + 1 :])
