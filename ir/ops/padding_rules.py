"""How ops work on padded values: what the pass ``dynamic-padder`` finds in records as ``padded``.

Rules have the names of their ops; each gets a ``PaddedBuilder`` and returns the results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlojit.ir.graph import Value
from hlojit.ir.ops.combiners import combiner_of
from hlojit.ir.ops.padded_values import Padded, PaddedBuilder
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
from hlojit.ir.types import DYNAMIC, tensor


def pointwise(b: PaddedBuilder) -> Sequence[Padded]:
    """Element by element, over the smallest of the operands' bounds: their sizes are equal."""
    rank = b.instruction.results[0].tensor_type.rank
    shaped = [operand for operand in b.operands if operand.type.rank == rank]
    shape = tuple(min(extents) for extents in zip(*(operand.shape for operand in shaped)))
    cut = [b.cut(operand, shape) if operand.type.rank == rank else operand for operand in b.operands]
    sizes = _common_sizes(b, shaped)
    types = [b.result_type(number, shape) for number in range(len(b.instruction.results))]
    return [Padded(value, sizes) for value in b.again([operand.value for operand in cut], types)]


def _common_sizes(b: PaddedBuilder, operands: Sequence[Padded], *, but: Sequence[int] = ()) -> dict[int, Value]:
    """Of operands of one shape, but for some dimensions, the sizes that are known only at run time."""
    found = {d: b.agreed([(each, d) for each in operands]) for d in range(operands[0].type.rank) if d not in but}
    return {d: size for d, size in found.items() if size is not None}


def as_pointwise(b: PaddedBuilder) -> Sequence[Padded]:
    """Ops that keep shapes, one result for each operand."""
    values = b.again([each.value for each in b.operands], [each.type for each in b.operands])
    return [Padded(value, each.sizes) for value, each in zip(values, b.operands)]


def set_dimension_size(b: PaddedBuilder) -> Sequence[Padded]:
    """The same elements, of which only a beginning counts."""
    operand, size = b.operands
    dimension, new = DimensionView.of(b.instruction).dimension, b.as_size(size.value)
    old = operand.sizes.get(dimension)
    if old is not None:
        # What lies behind the old size are no elements.
        b.need(new, "LE", old, "the size {0} must be at most the one before")
    return [Padded(operand.value, {**operand.sizes, dimension: new})]


def get_dimension_size(b: PaddedBuilder) -> Sequence[Padded]:
    """The size."""
    return [Padded(b.size(b.operands[0], DimensionView.of(b.instruction).dimension))]


def broadcast_in_dim(b: PaddedBuilder) -> Sequence[Padded]:
    """Sizes are the operand's, or those that are given."""
    operand, targets = b.operands[0], BroadcastView.of(b.instruction).dimensions
    result = b.instruction.results[0].tensor_type
    sources = {target: d for d, target in enumerate(targets) if operand.shape[d] != 1 or d in operand.sizes}
    shape, sizes = [], {}
    for d, extent in enumerate(result.shape):
        source = sources.get(d)
        given = b.element(b.operands[1].value, d) if len(b.operands) > 1 else None
        if source is not None:
            shape.append(operand.shape[source])
            if source in operand.sizes:
                sizes[d] = operand.sizes[source]
            if given is not None:
                own = b.size(operand, source)
                b.need(given, "EQ", own, f"the size {{0}} of dimension {d} must be that of its operand")
            continue
        if given is not None and extent != DYNAMIC:
            b.need(given, "EQ", extent, f"the size {{0}} of dimension {d} must be {extent}")
        if extent == DYNAMIC:
            if given is None:
                raise b.refuse(f"nothing says how large dimension {d} of its result is")
            sizes[d] = given
        shape.append(b.bound(0, d))
    if DYNAMIC in shape:
        raise b.refuse(f"the size of its result {result} is known only when the program runs, and has no bound")
    value = b.builder.broadcast_in_dim(operand.value, b.result_type(0, shape), targets)
    return [Padded(value, sizes)]


def dynamic_iota(b: PaddedBuilder) -> Sequence[Padded]:
    """As large as the bounds, with the sizes that are given."""
    result = b.instruction.results[0].tensor_type
    shape = [b.bound(0, d) for d in range(result.rank)]
    if DYNAMIC in shape:
        raise b.refuse(f"the size of its result {result} is known only when the program runs, and has no bound")
    given = {d: b.element(b.operands[0].value, d) for d in range(result.rank)}
    sizes = _of_given(b, given)
    return [Padded(b.builder.iota(b.result_type(0, shape), b.instruction.attributes["iota_dimension"]), sizes)]


def _of_given(b: PaddedBuilder, given: Mapping[int, Value]) -> dict[int, Value]:
    """Of the sizes that a result is given those that are open; the others are what its type says."""
    shape, sizes = b.instruction.results[0].tensor_type.shape, {}
    for d, size in given.items():
        if shape[d] == DYNAMIC:
            sizes[d] = size
        else:
            b.need(size, "EQ", shape[d], f"the size {{0}} of dimension {d} must be {shape[d]}")
    return sizes


def transpose(b: PaddedBuilder) -> Sequence[Padded]:
    """Sizes change places with their dimensions."""
    (operand,), permutation = b.operands, TransposeView.of(b.instruction).permutation
    shape = [operand.shape[d] for d in permutation]
    sizes = {position: operand.sizes[d] for position, d in enumerate(permutation) if d in operand.sizes}
    (value,) = b.again([operand.value], [b.result_type(0, shape)])
    return [Padded(value, sizes)]


def reshape(b: PaddedBuilder) -> Sequence[Padded]:
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
    if len(b.operands) > 1:
        made = Padded(value, sizes)
        for d in range(result.rank):
            given = b.element(b.operands[1].value, d)
            b.need(given, "EQ", b.size(made, d), f"the size {{0}} of dimension {d} does not fit the operand's elements")
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
    if unknown == [source] and not open_ and last > target:
        # A size that the type states: the memory is divided as if it were open, ``PaddedBuilder.written`` looks at it.
        open_ = [target]
    if (
        unknown not in ([], [source])
        or open_ not in ([], [target])
        or bool(unknown) != bool(open_)
        or (open_ and (not inner or elements % inner))
    ):
        raise b.refuse(
            f"a size that is known only when the program runs must be the outermost of the dimensions that become others: "
            f"{operand.type} to {result}"
        )
    if open_:
        total = b.arithmetic("multiply", operand.sizes[source], _product(operand.shape[source + 1 : rank]))
        rest = b.arithmetic("remainder", total, inner)
        b.need(rest, "EQ", 0, f"{{0}} elements are left of what is divided into parts of {inner}")
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


def slice_(b: PaddedBuilder) -> Sequence[Padded]:
    """Parts with known bounds lie within the sizes."""
    (operand,), view = b.operands, SliceView.of(b.instruction)
    for d, size in operand.sizes.items():
        b.need(size, "GE", view.ranges[d][1], f"the size {{0}} of dimension {d} must be at least {view.ranges[d][1]}")
    shape = [max(0, -(-(limit - start) // stride)) for start, limit, stride in view.ranges]
    return [Padded(b.again([operand.value], [b.result_type(0, shape)])[0])]


def concatenate(b: PaddedBuilder) -> Sequence[Padded]:
    """One operand behind the other: each is written where the sizes before it end."""
    dimension, first = DimensionView.of(b.instruction).dimension, b.operands[0]
    others = [min(operand.shape[d] for operand in b.operands) for d in range(first.type.rank)]
    cut = [b.cut(each, [*others[:dimension], each.shape[dimension], *others[dimension + 1 :]]) for each in b.operands]
    total = sum(each.shape[dimension] for each in cut)
    shape = [total if d == dimension else extent for d, extent in enumerate(others)]
    sizes = _common_sizes(b, cut, but=(dimension,))
    if not any(dimension in each.sizes for each in cut):
        (value,) = b.again([each.value for each in cut], [b.result_type(0, shape)])
        return [Padded(value, sizes)]
    value, end = b.grown(cut[0], shape).value, b.size(cut[0], dimension)
    for each in cut[1:]:
        starts = [end if d == dimension else b.number(0) for d in range(len(shape))]
        value = b.builder.create("dynamic_update_slice", [value, each.value, *starts]).result
        end = b.arithmetic("add", end, b.size(each, dimension))
    return [Padded(value, {**sizes, dimension: end})]


def pad(b: PaddedBuilder) -> Sequence[Padded]:
    """High padding begins where the size ends: what lies behind it becomes padding first."""
    operand, fill = b.operands
    view, sizes, shape = PadView.of(b.instruction), {}, []
    for d, (low, high, interior) in enumerate(view.ranges):
        extent = operand.shape[d]
        shape.append(max(0, extent + low + max(extent - 1, 0) * interior + high))
        if d in operand.sizes:
            gaps = b.arithmetic("maximum", b.arithmetic("subtract", operand.sizes[d], 1), 0)
            spread = b.arithmetic("add", operand.sizes[d], b.arithmetic("multiply", gaps, interior))
            sizes[d] = b.arithmetic("add", spread, low + high)
    masked = b.masked(operand, tuple(operand.sizes), fill.value)
    return [Padded(b.again([masked, fill.value], [b.result_type(0, shape)])[0], sizes)]


def reverse(b: PaddedBuilder) -> Sequence[Padded]:
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


def reduce(b: PaddedBuilder) -> Sequence[Padded]:
    """Elements beyond a size become the neutral element, or an init value, of which the specification allows any number."""
    count, dimensions = len(b.operands) // 2, DimensionsView.of(b.instruction).dimensions
    inputs, inits = b.operands[:count], b.operands[count:]
    shape = tuple(min(extents) for extents in zip(*(each.shape for each in inputs)))
    inputs = [b.cut(each, shape) for each in inputs]
    common = _common_sizes(b, inputs)
    fills = _neutral(b, inits)
    masked = [b.masked(Padded(each.value, common), dimensions, fill) for each, fill in zip(inputs, fills)]
    kept = [d for d in range(len(shape)) if d not in dimensions]
    sizes = {number: common[d] for number, d in enumerate(kept) if d in common}
    types = [b.result_type(number, [shape[d] for d in kept]) for number in range(count)]
    return [Padded(value, sizes) for value in b.again([*masked, *(each.value for each in inits)], types)]


def _neutral(b: PaddedBuilder, inits: Sequence[Padded]) -> list[Value]:
    combiner = combiner_of(b.instruction.regions[0]) if len(inits) == 1 else None
    if combiner is None or combiner.step is None or combiner.step.op.identity is None:
        return [each.value for each in inits]
    type = inits[0].type
    return [b.builder.constant(combiner.identity(type.element_type), type)]


def reduce_window(b: PaddedBuilder) -> Sequence[Padded]:
    """Elements beyond a size become init values; how many windows there are follows from it."""
    count, view = len(b.operands) // 2, WindowView.of(b.instruction)
    inputs, inits = b.operands[:count], b.operands[count:]
    extents = tuple(min(extents) for extents in zip(*(each.shape for each in inputs)))
    common = _common_sizes(b, inputs)
    inputs = [Padded(b.cut(each, extents).value, common) for each in inputs]
    masked = [b.masked(each, tuple(common), init.value) for each, init in zip(inputs, inits)]
    sizes = {}
    for d, size in common.items():
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


def dot_general(b: PaddedBuilder) -> Sequence[Padded]:
    """Products beyond a size are zeros times zeros."""
    lhs, rhs = b.operands
    numbers = DotView.of(b.instruction).numbers
    batch = list(zip(numbers.lhs_batching, numbers.rhs_batching))
    summed = list(zip(numbers.lhs_contracting, numbers.rhs_contracting))
    shapes = list(lhs.shape), list(rhs.shape)
    for left, right in (*batch, *summed):
        shapes[0][left] = shapes[1][right] = min(lhs.shape[left], rhs.shape[right])
    lhs, rhs = b.cut(lhs, shapes[0]), b.cut(rhs, shapes[1])
    sizes = dict(lhs.sizes), dict(rhs.sizes)
    for left, right in (*batch, *summed):
        common = b.agreed([(lhs, left), (rhs, right)])
        for of_side, d in zip(sizes, (left, right)):
            of_side.pop(d, None)
            if common is not None:
                of_side[d] = common
    lhs, rhs = Padded(lhs.value, sizes[0]), Padded(rhs.value, sizes[1])
    masked_lhs = b.masked(lhs, numbers.lhs_contracting, b.zero(lhs.type))
    masked_rhs = b.masked(rhs, numbers.rhs_contracting, b.zero(rhs.type))
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


def sort(b: PaddedBuilder) -> Sequence[Padded]:
    """Elements beyond the size come last: whether they are there is the first thing that is compared."""
    shape = tuple(min(extents) for extents in zip(*(each.shape for each in b.operands)))
    common = _common_sizes(b, b.operands)
    operands = [Padded(b.cut(each, shape).value, common) for each in b.operands]
    first, dimension = operands[0], SortView.of(b.instruction).position(len(shape))
    types = [b.result_type(number, first.shape) for number in range(len(operands))]
    inside = b.within(first, (dimension,))
    if inside is None:
        return [Padded(value, first.sizes) for value in b.again([each.value for each in operands], types)]
    comparator = b.instruction.regions[0].clone()
    scalar = tensor((), "i1")
    returned = comparator.terminator
    one, other = comparator.add_argument(scalar), comparator.add_argument(scalar)
    inner = type(b.builder).in_front_of(returned)
    differ = inner.compare(one, other, "NE")
    returned.operands = [inner.create("select", [differ, one, returned.operands[0]]).result]
    made = b.builder.create(
        b.instruction.op.name,
        [*(each.value for each in operands), inside],
        attributes=b.instruction.attributes,
        regions=[comparator],
        result_types=[*types, inside.tensor_type],
    )
    return [Padded(value, first.sizes) for value in made.results[:-1]]


def real_dynamic_slice(b: PaddedBuilder) -> Sequence[Padded]:
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
        limit = b.element(limits.value, d)
        b.need(begins[d], "GE", 0, f"the start {{0}} of dimension {d} must not be negative")
        b.need(limit, "GE", begins[d], f"the limit {{0}} of dimension {d} must not lie in front of the start")
        b.need(limit, "LE", b.size(operand, d), f"the limit {{0}} of dimension {d} must lie within the operand")
        extent = b.arithmetic("subtract", limit, begins[d])
        size = b.arithmetic("divide", b.arithmetic("add", extent, step - 1), step)
        if result.shape[d] != DYNAMIC:
            shape[d] = result.shape[d]
            b.need(size, "EQ", shape[d], f"the size {{0}} of dimension {d} must be {shape[d]}")
            continue
        sizes[d] = size
    attributes = {
        "start_indices": (0,) * rank,
        "limit_indices": tuple(
            extent if d in sizes else (shape[d] - 1) * steps[d] + 1 if shape[d] else 0
            for d, extent in enumerate(operand.shape)
        ),
        "strides": tuple(steps),
    }
    return [Padded(b.builder.create("slice", [part], attributes=attributes).result, sizes)]
