"""How ops work on padded values: rules of the pass ``dynamic-padder``, by op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hlojit.ir.graph import Value
from hlojit.ir.ops.combiners import combiner_of
from hlojit.ir.ops.definition import Pointwise
from hlojit.ir.ops.views import (
    BroadcastView,
    DimensionsView,
    DimensionView,
    DotView,
    PadView,
    SliceView,
    SortView,
    TransposeView,
    WindowView,
)
from hlojit.ir.passes.padded_values import Padded, PaddedBuilder, PaddingRule
from hlojit.ir.types import DYNAMIC, tensor


def pointwise(b: PaddedBuilder) -> Sequence[Padded]:
    """Element by element, over the smallest of the operands' bounds: their sizes are equal."""
    rank = b.instruction.results[0].tensor_type.rank
    shaped = [operand for operand in b.operands if operand.type.rank == rank]
    shape = tuple(min(extents) for extents in zip(*(operand.shape for operand in shaped)))
    cut = [b.cut(operand, shape) if operand.type.rank == rank else operand for operand in b.operands]
    # A size that one of the operands' types states is the size of all.
    sizes = {d: shaped[0].sizes[d] for d in range(rank) if all(d in operand.sizes for operand in shaped)}
    types = [b.result_type(number, shape) for number in range(len(b.instruction.results))]
    return [Padded(value, sizes) for value in b.again([operand.value for operand in cut], types)]


def as_pointwise(b: PaddedBuilder) -> Sequence[Padded]:
    """Ops that keep shapes, one result for each operand."""
    values = b.again([each.value for each in b.operands], [each.type for each in b.operands])
    return [Padded(value, each.sizes) for value, each in zip(values, b.operands)]


def _set_dimension_size(b: PaddedBuilder) -> Sequence[Padded]:
    operand, size = b.operands
    dimension = DimensionView.of(b.instruction).dimension
    return [Padded(operand.value, {**operand.sizes, dimension: b.as_size(size.value)})]


def _get_dimension_size(b: PaddedBuilder) -> Sequence[Padded]:
    return [Padded(b.size(b.operands[0], DimensionView.of(b.instruction).dimension))]


def _broadcast_in_dim(b: PaddedBuilder) -> Sequence[Padded]:
    operand, targets = b.operands[0], BroadcastView.of(b.instruction).dimensions
    result = b.instruction.results[0].tensor_type
    sources = {target: d for d, target in enumerate(targets) if operand.shape[d] != 1 or d in operand.sizes}
    shape, sizes = [], {}
    for d, extent in enumerate(result.shape):
        source = sources.get(d)
        if source is not None:
            shape.append(operand.shape[source])
            if source in operand.sizes:
                sizes[d] = operand.sizes[source]
            continue
        if extent == DYNAMIC:
            if len(b.operands) < 2:
                raise b.refuse(f"nothing says how large dimension {d} of its result is")
            sizes[d] = b.element(b.operands[1].value, d)
        shape.append(b.bound(0, d))
    if DYNAMIC in shape:
        raise b.refuse(f"the size of its result {result} is known only when the program runs, and has no bound")
    value = b.builder.broadcast_in_dim(operand.value, b.result_type(0, shape), targets)
    return [Padded(value, sizes)]


def _dynamic_iota(b: PaddedBuilder) -> Sequence[Padded]:
    result = b.instruction.results[0].tensor_type
    shape = [b.bound(0, d) for d in range(result.rank)]
    if DYNAMIC in shape:
        raise b.refuse(f"the size of its result {result} is known only when the program runs, and has no bound")
    sizes = {d: b.element(b.operands[0].value, d) for d, extent in enumerate(result.shape) if extent == DYNAMIC}
    return [Padded(b.builder.iota(b.result_type(0, shape), b.instruction.attributes["iota_dimension"]), sizes)]


def _transpose(b: PaddedBuilder) -> Sequence[Padded]:
    (operand,), permutation = b.operands, TransposeView.of(b.instruction).permutation
    shape = [operand.shape[d] for d in permutation]
    sizes = {position: operand.sizes[d] for position, d in enumerate(permutation) if d in operand.sizes}
    (value,) = b.again([operand.value], [b.result_type(0, shape)])
    return [Padded(value, sizes)]


def _reshape(b: PaddedBuilder) -> Sequence[Padded]:
    """Dimensions in groups of equal products: of those that hold an unknown size, it is the outermost on both sides."""
    operand, result = b.operands[0], b.instruction.results[0].tensor_type
    shape: list[int] = []
    sizes: dict[int, Value] = {}
    source = target = 0
    while target < result.rank or source < operand.type.rank:
        known = source < operand.type.rank and source not in operand.sizes
        if target < result.rank and known and result.shape[target] == operand.shape[source]:
            shape.append(result.shape[target])
            source, target = source + 1, target + 1
            continue
        # A group: from here on to the next pair of equal known dimensions with nothing unknown behind.
        taken = _open_group(b, operand, source, target, shape, sizes)
        source, target = taken
    (value,) = b.builder.create("reshape", [operand.value], result_types=[b.result_type(0, shape)]).results
    return [Padded(value, sizes)]


def _open_group(
    b: PaddedBuilder, operand: Padded, source: int, target: int, shape: list[int], sizes: dict[int, Value]
) -> tuple[int, int]:
    """Reshape the dimensions from here to the end of the group as one, whose outermost size may be unknown."""
    result = b.instruction.results[0].tensor_type
    rank, last = operand.type.rank, result.rank
    # Trailing dimensions that are equal on both sides are a group each.
    while (
        rank > source
        and last > target
        and rank - 1 not in operand.sizes
        and operand.shape[rank - 1] == result.shape[last - 1]
    ):
        rank, last = rank - 1, last - 1
    unknown = [d for d in range(source, rank) if d in operand.sizes]
    open_ = [d for d in range(target, last) if result.shape[d] == DYNAMIC]
    elements = _product(operand.shape[source:rank])
    inner = _product(result.shape[target + 1 : last]) if last > target else 1
    if (
        unknown not in ([], [source])
        or open_ not in ([], [target])
        or bool(unknown) != bool(open_)
        or (open_ and elements % inner)
    ):
        raise b.refuse(
            f"a size that is known only when the program runs must be the outermost of the dimensions that become others: "
            f"{operand.type} to {result}"
        )
    if open_:
        total = b.arithmetic("multiply", operand.sizes[source], _product(operand.shape[source + 1 : rank]))
        sizes[target] = b.arithmetic("divide", total, inner)
        shape.append(elements // inner)
        shape.extend(result.shape[target + 1 : last])
    else:
        shape.extend(result.shape[target:last])
    return rank, last


def _product(extents: Sequence[int]) -> int:
    product = 1
    for extent in extents:
        product *= extent
    return product


def _slice(b: PaddedBuilder) -> Sequence[Padded]:
    """Parts with known bounds lie within the sizes."""
    (operand,), view = b.operands, SliceView.of(b.instruction)
    shape = [max(0, -(-(limit - start) // stride)) for start, limit, stride in view.ranges]
    return [Padded(b.again([operand.value], [b.result_type(0, shape)])[0])]


def _concatenate(b: PaddedBuilder) -> Sequence[Padded]:
    """One operand behind the other: each is written where the sizes before it end."""
    dimension, first = DimensionView.of(b.instruction).dimension, b.operands[0]
    others = [min(operand.shape[d] for operand in b.operands) for d in range(first.type.rank)]
    cut = [b.cut(each, [*others[:dimension], each.shape[dimension], *others[dimension + 1 :]]) for each in b.operands]
    total = sum(each.shape[dimension] for each in cut)
    shape = [total if d == dimension else extent for d, extent in enumerate(others)]
    sizes = {d: first.sizes[d] for d in first.sizes if d != dimension and all(d in each.sizes for each in cut)}
    if not any(dimension in each.sizes for each in cut):
        (value,) = b.again([each.value for each in cut], [b.result_type(0, shape)])
        return [Padded(value, sizes)]
    value, end = b.grown(cut[0], shape).value, b.size(cut[0], dimension)
    for each in cut[1:]:
        starts = [end if d == dimension else b.number(0) for d in range(len(shape))]
        value = b.builder.create("dynamic_update_slice", [value, each.value, *starts]).result
        end = b.arithmetic("add", end, b.size(each, dimension))
    return [Padded(value, {**sizes, dimension: end})]


def _pad(b: PaddedBuilder) -> Sequence[Padded]:
    """High padding begins where the size ends: what lies behind it becomes padding first."""
    operand, fill = b.operands
    view, sizes, shape = PadView.of(b.instruction), {}, []
    for d, (low, high, interior) in enumerate(view.ranges):
        extent = operand.shape[d]
        shape.append(max(0, extent + low + max(extent - 1, 0) * interior + high))
        if d in operand.sizes:
            gaps = b.arithmetic("maximum", b.arithmetic("subtract", operand.sizes[d], 1), 0)
            spread = b.arithmetic("add", operand.sizes[d], b.arithmetic("multiply", gaps, interior))
            sizes[d] = b.arithmetic("maximum", b.arithmetic("add", spread, low + high), 0)
    masked = b.masked(operand, tuple(operand.sizes), fill.value)
    return [Padded(b.again([masked, fill.value], [b.result_type(0, shape)])[0], sizes)]


def _reverse(b: PaddedBuilder) -> Sequence[Padded]:
    """Reversed, the elements that count come last: they are taken from there."""
    (operand,), dimensions = b.operands, DimensionsView.of(b.instruction).dimensions
    (value,) = b.again([operand.value], [operand.type])
    turned = [d for d in dimensions if d in operand.sizes]
    if not turned:
        return [Padded(value, operand.sizes)]
    rank = operand.type.rank
    room = b.grown(Padded(value), [2 * e if d in turned else e for d, e in enumerate(operand.shape)])
    starts = [
        b.arithmetic("subtract", b.number(operand.shape[d]), operand.sizes[d]) if d in turned else b.number(0)
        for d in range(rank)
    ]
    part = b.builder.create("dynamic_slice", [room.value, *starts], attributes={"slice_sizes": operand.shape}).result
    return [Padded(part, operand.sizes)]


def _reduce(b: PaddedBuilder) -> Sequence[Padded]:
    """Elements beyond a size become the neutral element, or an init value, of which the specification allows any number."""
    count, dimensions = len(b.operands) // 2, DimensionsView.of(b.instruction).dimensions
    inputs, inits = b.operands[:count], b.operands[count:]
    shape = tuple(min(extents) for extents in zip(*(each.shape for each in inputs)))
    inputs = [b.cut(each, shape) for each in inputs]
    fills = _neutral(b, inits)
    masked = [b.masked(each, dimensions, fill) for each, fill in zip(inputs, fills)]
    kept = [d for d in range(len(shape)) if d not in dimensions]
    sizes = {number: inputs[0].sizes[d] for number, d in enumerate(kept) if d in inputs[0].sizes}
    types = [b.result_type(number, [shape[d] for d in kept]) for number in range(count)]
    return [Padded(value, sizes) for value in b.again([*masked, *(each.value for each in inits)], types)]


def _neutral(b: PaddedBuilder, inits: Sequence[Padded]) -> list[Value]:
    combiner = combiner_of(b.instruction.regions[0]) if len(inits) == 1 else None
    if combiner is None or combiner.step is None or combiner.step.op.identity is None:
        return [each.value for each in inits]
    type = inits[0].type
    return [b.builder.constant(combiner.identity(type.element_type), type)]


def _reduce_window(b: PaddedBuilder) -> Sequence[Padded]:
    count, view = len(b.operands) // 2, WindowView.of(b.instruction)
    inputs, inits = b.operands[:count], b.operands[count:]
    masked = [b.masked(each, tuple(each.sizes), init.value) for each, init in zip(inputs, inits)]
    sizes = {}
    for d, size in inputs[0].sizes.items():
        # size + gaps + low + high - ((window - 1) * dilation + 1), divided by the stride, plus 1
        gaps = b.arithmetic("maximum", b.arithmetic("subtract", size, 1), 0)
        spread = b.arithmetic("add", size, b.arithmetic("multiply", gaps, view.base_dilations[d] - 1))
        room = b.arithmetic("add", spread, sum(view.padding[d]) - (view.sizes[d] - 1) * view.dilations[d] - 1)
        windows = b.arithmetic("divide", b.arithmetic("add", room, view.strides[d]), view.strides[d])
        sizes[d] = b.arithmetic("maximum", windows, 0)
    made = b.builder.create(
        b.instruction.op.name,
        [*masked, *(each.value for each in inits)],
        attributes=b.instruction.attributes,
        regions=[region.clone() for region in b.instruction.regions],
    )
    return [Padded(value, sizes) for value in made.results]


def _dot_general(b: PaddedBuilder) -> Sequence[Padded]:
    """Products beyond a size are zeros times zeros."""
    lhs, rhs = b.operands
    numbers = DotView.of(b.instruction).numbers
    batch = list(zip(numbers.lhs_batching, numbers.rhs_batching))
    summed = list(zip(numbers.lhs_contracting, numbers.rhs_contracting))
    shapes = list(lhs.shape), list(rhs.shape)
    for left, right in (*batch, *summed):
        shapes[0][left] = shapes[1][right] = min(lhs.shape[left], rhs.shape[right])
    lhs, rhs = b.cut(lhs, shapes[0]), b.cut(rhs, shapes[1])
    # What is unknown on one side only is unknown on both.
    sizes = [
        {**side.sizes, **{own: other.sizes[far] for own, far in pairs if far in other.sizes}}
        for side, other, pairs in (
            (lhs, rhs, [*batch, *summed]),
            (rhs, lhs, [(right, left) for left, right in (*batch, *summed)]),
        )
    ]
    masked_lhs = b.masked(Padded(lhs.value, sizes[0]), numbers.lhs_contracting, b.zero(lhs.type))
    masked_rhs = b.masked(Padded(rhs.value, sizes[1]), numbers.rhs_contracting, b.zero(rhs.type))
    free = [
        [(side, d) for d in range(side.type.rank) if d not in (*batched, *contracted)]
        for side, batched, contracted in (
            (lhs, numbers.lhs_batching, numbers.lhs_contracting),
            (rhs, numbers.rhs_batching, numbers.rhs_contracting),
        )
    ]
    order = [*((lhs, left) for left, _ in batch), *free[0], *free[1]]
    shape = [side.shape[d] for side, d in order]
    found = {number: side.sizes[d] for number, (side, d) in enumerate(order) if d in side.sizes}
    return [Padded(b.again([masked_lhs, masked_rhs], [b.result_type(0, shape)])[0], found)]


def _sort(b: PaddedBuilder) -> Sequence[Padded]:
    """Elements beyond the size come last: whether they are there is the first thing that is compared."""
    first, dimension = b.operands[0], SortView.of(b.instruction).position(b.operands[0].type.rank)
    types = [b.result_type(number, first.shape) for number in range(len(b.operands))]
    inside = b.within(first, (dimension,))
    if inside is None:
        return [Padded(value, first.sizes) for value in b.again([each.value for each in b.operands], types)]
    comparator = b.instruction.regions[0].clone()
    scalar = tensor((), "i1")
    returned = comparator.terminator
    one, other = comparator.add_argument(scalar), comparator.add_argument(scalar)
    inner = type(b.builder).in_front_of(returned)
    differ = inner.compare(one, other, "NE")
    returned.operands = [inner.create("select", [differ, one, returned.operands[0]]).result]
    made = b.builder.create(
        b.instruction.op.name,
        [*(each.value for each in b.operands), inside],
        attributes=b.instruction.attributes,
        regions=[comparator],
        result_types=[*types, inside.tensor_type],
    )
    return [Padded(value, first.sizes) for value in made.results[:-1]]


def _real_dynamic_slice(b: PaddedBuilder) -> Sequence[Padded]:
    """The part from the starts on, of the bound's size; its sizes follow from the limits."""
    operand, starts, limits, strides = b.operands
    rank, result = operand.type.rank, b.instruction.results[0].tensor_type
    room = b.grown(operand, [2 * extent for extent in operand.shape])
    begins = [b.element(starts.value, d) for d in range(rank)]
    part = b.builder.create("dynamic_slice", [room.value, *begins], attributes={"slice_sizes": operand.shape}).result
    if strides.value.producer is None or "value" not in strides.value.producer.attributes:
        raise b.refuse("its strides are known only when the program runs")
    steps = [int(step) for step in strides.value.producer.attributes["value"].array]
    if min(steps, default=1) < 1:
        raise b.refuse(f"its strides {tuple(steps)} must be positive")
    shape = [-(-extent // step) for extent, step in zip(operand.shape, steps)]
    sizes = {}
    for d, step in enumerate(steps):
        if result.shape[d] != DYNAMIC:
            shape[d] = result.shape[d]
            continue
        extent = b.arithmetic("subtract", b.element(limits.value, d), begins[d])
        sizes[d] = b.arithmetic("divide", b.arithmetic("add", extent, step - 1), step)
    attributes = {
        "start_indices": (0,) * rank,
        "limit_indices": tuple(
            extent if d in sizes else (shape[d] - 1) * steps[d] + 1 if shape[d] else 0
            for d, extent in enumerate(operand.shape)
        ),
        "strides": tuple(steps),
    }
    return [Padded(b.builder.create("slice", [part], attributes=attributes).result, sizes)]


RULES: Final[Mapping[str, PaddingRule]] = {
    "stablehlo.set_dimension_size": _set_dimension_size,
    "stablehlo.get_dimension_size": _get_dimension_size,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.dynamic_broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.dynamic_iota": _dynamic_iota,
    "stablehlo.transpose": _transpose,
    "stablehlo.reshape": _reshape,
    "stablehlo.dynamic_reshape": _reshape,
    "stablehlo.slice": _slice,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.pad": _pad,
    "stablehlo.reverse": _reverse,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.sort": _sort,
    "stablehlo.real_dynamic_slice": _real_dynamic_slice,
    "stablehlo.optimization_barrier": as_pointwise,
}


def rule_for(b: PaddedBuilder) -> PaddingRule | None:
    """How an instruction works on padded values, or None."""
    record = b.instruction.op
    found = record.padded or RULES.get(record.name)
    return pointwise if found is None and isinstance(record.lowering, Pointwise) else found
