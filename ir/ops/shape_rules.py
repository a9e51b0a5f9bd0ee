"""Shapes as expressions, and where elements come from: what the symbolic compilation finds in records as ``symbolic``.

Rules have the names of their ops; each gets what is known so far and an instruction.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlojit.ir.graph import Instruction
from hlojit.ir.ops.elementwise import ADD
from hlojit.ir.ops.symbolic_values import (
    Access,
    Convolving,
    Coordinate,
    Folding,
    Join,
    Numbers,
    Pick,
    Product,
    Relabel,
    Scattering,
    Shape,
    Sorting,
    Step,
    Surround,
    SymbolicShapes,
    Updating,
    Windows,
    place,
    refused,
)
from hlojit.ir.ops.views import (
    BroadcastView,
    ConvolutionView,
    DimensionsView,
    DimensionView,
    DotView,
    DynamicSliceView,
    GatherView,
    IotaView,
    PadView,
    ScatterView,
    SliceView,
    SortView,
    TransposeView,
    WindowView,
)
from hlojit.ir.sizes import Size, add, apply, divide_up, multiply
from hlojit.ir.types import DYNAMIC


def _operand(shapes: SymbolicShapes, instruction: Instruction, position: int = 0) -> Shape:
    return shapes.dims[instruction.operands[position]]


def broadcast(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """A dimension of the operand is one of the result, or is repeated."""
    operand, targets = _operand(shapes, instruction), BroadcastView.of(instruction).dimensions
    result: list[Size] = list(instruction.results[0].tensor_type.shape)
    if len(instruction.operands) > 1:
        result = list(shapes.known(instruction, 1))
    elif DYNAMIC in result:
        raise refused(instruction, "nothing says how large its result is")
    coordinates = []
    for size, target in zip(operand, targets):
        if size == 1:
            coordinates.append(Coordinate(None))
            continue
        # Of a size that might be 1 nobody knows whether it is to be repeated: it is taken to be the result's.
        shapes.assume(
            instruction, apply("equal", size, result[target]), "size {0} is not the result's {1}", size, result[target]
        )
        coordinates.append(Coordinate(target))
    return tuple(result), Pick(tuple(coordinates))


def transpose(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """Dimensions in another order."""
    operand, permutation = _operand(shapes, instruction), TransposeView.of(instruction).permutation
    places = [permutation.index(d) for d in range(len(operand))]
    return tuple(operand[d] for d in permutation), Pick(tuple(map(Coordinate, places)))


def reverse(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """From the last element on."""
    operand, turned = _operand(shapes, instruction), DimensionsView.of(instruction).dimensions
    return operand, Pick(
        tuple(Coordinate(d, -1, add(size, -1)) if d in turned else Coordinate(d) for d, size in enumerate(operand))
    )


def reshape(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """The same elements; one size that is open follows from their number."""
    operand = _operand(shapes, instruction)
    if len(instruction.operands) > 1:
        result = shapes.known(instruction, 1)
    else:
        written = instruction.results[0].tensor_type.shape
        if written.count(DYNAMIC) > 1:
            raise refused(instruction, "several sizes of its result are open")
        known = multiply(*(extent for extent in written if extent != DYNAMIC)) if written else 1
        rest = apply("divide", multiply(*operand) if operand else 1, known)
        result = tuple(rest if extent == DYNAMIC else extent for extent in written)
    totals = [multiply(*shape) if shape else 1 for shape in (operand, result)]
    shapes.same(instruction, totals[0], totals[1])
    return result, Relabel()


def slice_(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """A part whose limits the program knows."""
    view, operand = SliceView.of(instruction), _operand(shapes, instruction)
    return _part(shapes, instruction, operand, view.starts, view.limits, view.strides)


def real_dynamic_slice(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """A part whose limits are sizes, or lie behind starts that data tell."""
    strides = shapes.known(instruction, 3)
    steps = [step for step in strides if isinstance(step, int) and step > 0]
    if len(steps) < len(strides):
        raise refused(instruction, "its strides must be numbers above 0")
    distances = _distances(shapes, instruction)
    if instruction.operands[1] not in shapes.elements and distances is not None:
        return _part_from(shapes, instruction, distances, steps)
    starts, limits = (shapes.known(instruction, position) for position in (1, 2))
    return _part(shapes, instruction, _operand(shapes, instruction), starts, limits, steps)


def _part(
    shapes: SymbolicShapes,
    instruction: Instruction,
    operand: Shape,
    starts: Sequence[Size],
    limits: Sequence[Size],
    strides: Sequence[int],
) -> tuple[Shape, Access]:
    where = place(instruction)
    for size, start, limit in zip(operand, starts, limits):
        for low, high in ((0, start), (start, limit), (limit, size)):
            outside = apply("less", high, low)
            message = f"0 <= start {{0}} <= limit {{1}} <= size {{2}} must hold {where}"
            shapes.require(apply("equal", outside, 0), message, (start, limit, size))
    result = [divide_up(apply("subtract", limit, start), step) for start, limit, step in zip(starts, limits, strides)]
    coordinates = [Coordinate(d, step, start) for d, (start, step) in enumerate(zip(starts, strides))]
    return tuple(result), Pick(tuple(coordinates))


def _distances(shapes: SymbolicShapes, instruction: Instruction) -> Sequence[Size] | None:
    """What is added to starts for the limits, if they are made that way."""
    start, limit = instruction.operands[1:3]
    addition = limit.producer
    if addition is None or addition.op != ADD or start not in addition.operands:
        return None
    return shapes.elements.get(addition.operands[1 - addition.operands.index(start)])


def _part_from(
    shapes: SymbolicShapes, instruction: Instruction, distances: Sequence[Size], strides: Sequence[int]
) -> tuple[Shape, Access]:
    """A part of known size from where data say, moved to lie within the operand."""
    result, coordinates, where = [], [], place(instruction)
    for d, (size, distance, step) in enumerate(zip(_operand(shapes, instruction), distances, strides)):
        extent = apply("maximum", divide_up(distance, step), 0)
        span = apply("maximum", add(multiply(add(extent, -1), step), 1), 0)
        limit = apply("subtract", size, span)
        shapes.require(
            apply("equal", apply("less", limit, 0), 0), f"size {{0}} must be at most {{1}} {where}", (span, size)
        )
        result.append(extent)
        coordinates.append(Coordinate(d, step, 0, instruction.operands[1], limit, (Coordinate(None, start=d),)))
    return tuple(result), Pick(tuple(coordinates))


def dynamic_slice(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """A part from where data say, moved to lie within the operand."""
    sizes = DynamicSliceView.of(instruction).sizes
    return tuple(sizes), Pick(_moved_inside(shapes, instruction, sizes, 1))


def dynamic_update_slice(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """The operand, with a part overwritten that is moved to lie within it."""
    starts = _moved_inside(shapes, instruction, _operand(shapes, instruction, 1), 2)
    return _operand(shapes, instruction), Updating(starts)


def _moved_inside(
    shapes: SymbolicShapes, instruction: Instruction, sizes: Sequence[Size], first: int
) -> tuple[Coordinate, ...]:
    """Where a part of the first operand lies that begins where the operands from number ``first`` on say."""
    coordinates = []
    for d, (extent, size) in enumerate(zip(_operand(shapes, instruction), sizes, strict=True)):
        limit = apply("subtract", extent, size)
        message = f"size {{0}} must be at most {{1}} {place(instruction)}"
        shapes.require(apply("equal", apply("less", limit, 0), 0), message, (size, extent))
        coordinates.append(Coordinate(d, 1, 0, instruction.operands[first + d], limit))
    return tuple(coordinates)


def gather(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """Parts from where indices say."""
    operand, indices = _operand(shapes, instruction), _operand(shapes, instruction, 1)
    view = GatherView.of(instruction)
    dims = view.numbers
    sizes: Sequence[Size] = view.sizes if len(instruction.operands) < 3 else shapes.known(instruction, 2)
    single = (*dims.collapsed_slice_dims, *dims.operand_batching_dims)
    for d in single:
        # A slice of nothing is allowed here, too, and has no code: an element is taken from it nevertheless.
        shapes.assume(
            instruction, apply("equal", sizes[d], 1), "slice size {0} of a dropped dimension is not 1", sizes[d]
        )
    batch = [d for d in range(len(indices)) if d != dims.index_vector_dim]
    if dims.index_vector_dim < len(indices):
        shapes.same(instruction, len(dims.start_index_map), indices[dims.index_vector_dim])
    for d, source in zip(dims.operand_batching_dims, dims.start_indices_batching_dims):
        shapes.same(instruction, operand[d], indices[source])
    offset = iter([size for d, size in enumerate(sizes) if d not in single])
    rank = len(batch) + len(dims.offset_dims)
    places = [d for d in range(rank) if d not in dims.offset_dims]
    shape = tuple(next(offset) if d in dims.offset_dims else indices[batch[places.index(d)]] for d in range(rank))
    windows = iter(dims.offset_dims)
    coordinates = []
    for d, (extent, size) in enumerate(zip(operand, sizes)):
        limit = apply("subtract", extent, size)
        message = f"slice size {{0}} must be at most {{1}} {place(instruction)}"
        shapes.require(apply("equal", apply("less", limit, 0), 0), message, (size, extent))
        if d in dims.operand_batching_dims:
            source = dims.start_indices_batching_dims[dims.operand_batching_dims.index(d)]
            coordinates.append(Coordinate(places[batch.index(source)]))
            continue
        own = next(windows) if d not in single else None
        if d not in dims.start_index_map:
            coordinates.append(Coordinate(own))
            continue
        number = Coordinate(None, start=dims.start_index_map.index(d))
        at = [Coordinate(places[batch.index(b)]) if b in batch else number for b in range(len(indices))]
        coordinates.append(Coordinate(own, 1, 0, instruction.operands[1], limit, tuple(at)))
    return shape, Pick(tuple(coordinates))


def concatenate(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """Operands behind each other."""
    dimension = DimensionView.of(instruction).dimension
    result = list(_operand(shapes, instruction))
    for position in range(1, len(instruction.operands)):
        for d, size in enumerate(_operand(shapes, instruction, position)):
            result[d] = add(result[d], size) if d == dimension else shapes.same(instruction, result[d], size)
    return tuple(result), Join(dimension)


def pad(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """The operand, surrounded."""
    view = PadView.of(instruction)
    return _padded(shapes, instruction, view.low, view.high, view.interior)


def dynamic_pad(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """The operand, surrounded by as many elements as sizes say."""
    low, high, interior = (shapes.known(instruction, position) for position in (2, 3, 4))
    gaps = [gap for gap in interior if isinstance(gap, int) and gap >= 0]
    if len(gaps) < len(interior):
        raise refused(instruction, "its interior padding must be numbers")
    return _padded(shapes, instruction, low, high, gaps)


def _padded(
    shapes: SymbolicShapes, instruction: Instruction, low: Sequence[Size], high: Sequence[Size], interior: Sequence[int]
) -> tuple[Shape, Access]:
    result = []
    for size, before, behind, gap in zip(_operand(shapes, instruction), low, high, interior):
        spread = add(size, multiply(apply("maximum", add(size, -1), 0), gap))
        total = add(before, spread, behind)
        shapes.require(
            apply("equal", apply("less", total, 0), 0),
            f"size {{0}} must not be negative {place(instruction)}",
            (total,),
        )
        result.append(total)
    return tuple(result), Surround(tuple(low), tuple(interior))


def iota(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """Numbers along a dimension."""
    result: Shape = instruction.results[0].tensor_type.shape
    if instruction.operands:
        result = shapes.known(instruction, 0)
    for size in result:
        shapes.require(
            apply("equal", apply("less", size, 0), 0),
            f"size {{0}} must not be negative {place(instruction)}",
            (size,),
        )
    return result, Numbers(IotaView.of(instruction).dimension)


def reduce(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """Dimensions are folded."""
    dimensions = DimensionsView.of(instruction).dimensions
    count = len(instruction.operands) // 2
    operand = list(_operand(shapes, instruction))
    for position in range(1, count):
        operand = [shapes.same(instruction, a, b) for a, b in zip(operand, _operand(shapes, instruction, position))]
    kept = tuple(size for d, size in enumerate(operand) if d not in dimensions)
    return kept, Folding(tuple(sorted(dimensions)))


def scatter(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """The inputs' shape; windows fit into it, and there is one for each index."""
    count, numbers = len(instruction.results), ScatterView.of(instruction).numbers
    result = list(_operand(shapes, instruction))
    for position in range(1, count):
        result = [shapes.same(instruction, a, b) for a, b in zip(result, _operand(shapes, instruction, position))]
    indices, update = _operand(shapes, instruction, count), list(_operand(shapes, instruction, count + 1))
    for position in range(count + 2, 2 * count + 1):
        update = [shapes.same(instruction, a, b) for a, b in zip(update, _operand(shapes, instruction, position))]
    vector = numbers.index_vector_dim
    if vector < len(indices):
        shapes.same(instruction, len(numbers.scatter_dims_to_operand_dims), indices[vector])
    windows = tuple(d for d in range(len(update)) if d not in numbers.update_window_dims)
    for d, size in zip(windows, (size for d, size in enumerate(indices) if d != vector), strict=True):
        shapes.same(instruction, update[d], size)
    absent = (*numbers.inserted_window_dims, *numbers.input_batching_dims)
    targets = tuple(d for d in range(len(result)) if d not in absent)
    for d, target in zip(numbers.update_window_dims, targets, strict=True):
        message = f"the window's size {{0}} must be at most {{1}} {place(instruction)}"
        fits = apply("equal", apply("less", result[target], update[d]), 0)
        shapes.require(fits, message, (update[d], result[target]))
    batching = tuple(zip(numbers.input_batching_dims, numbers.scatter_indices_batching_dims))
    for d, source in batching:
        shapes.same(instruction, result[d], indices[source])
    return tuple(result), Scattering(
        numbers.update_window_dims,
        windows,
        targets,
        numbers.scatter_dims_to_operand_dims,
        vector,
        tuple((d, source - (source > vector)) for d, source in batching),
    )


def sort(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """Operands of one shape."""
    shape = list(_operand(shapes, instruction))
    for position in range(1, len(instruction.operands)):
        shape = [shapes.same(instruction, a, b) for a, b in zip(shape, _operand(shapes, instruction, position))]
    return tuple(shape), Sorting(SortView.of(instruction).position(len(shape)))


def dot_general(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """Batch dimensions, then free ones."""
    lhs, rhs = (list(_operand(shapes, instruction, position)) for position in (0, 1))
    view = DotView.of(instruction)
    if view.algorithm is not None:
        raise refused(instruction, "products with a stated algorithm have no code for sizes that are given at run time")
    numbers = view.numbers
    batching = tuple(zip(numbers.lhs_batching, numbers.rhs_batching))
    contracting = tuple(zip(numbers.lhs_contracting, numbers.rhs_contracting))
    for left, right in (*batching, *contracting):
        lhs[left] = rhs[right] = shapes.same(instruction, lhs[left], rhs[right])
    free = [size for d, size in enumerate(lhs) if d not in (*numbers.lhs_batching, *numbers.lhs_contracting)]
    free += [size for d, size in enumerate(rhs) if d not in (*numbers.rhs_batching, *numbers.rhs_contracting)]
    return (*(lhs[left] for left, _ in batching), *free), Product(batching, contracting)


def _windows(size: Size, window: Size, step: Step) -> Size:
    """How many windows there are along a dimension."""
    spread = add(size, multiply(apply("maximum", add(size, -1), 0), step.base - 1))
    reach = add(multiply(add(window, -1), step.dilation), 1)
    left = apply("subtract", add(spread, step.low + step.high + step.stride), reach)
    return apply("divide", apply("maximum", left, 0), step.stride)


def reduce_window(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """As many as there are windows."""
    view, count = WindowView.of(instruction), len(instruction.operands) // 2
    operand = list(_operand(shapes, instruction))
    for position in range(1, count):
        operand = [shapes.same(instruction, a, b) for a, b in zip(operand, _operand(shapes, instruction, position))]
    steps = tuple(
        Step(stride, dilation, base, low, high)
        for stride, dilation, base, (low, high) in zip(
            view.strides, view.dilations, view.base_dilations, view.padding, strict=True
        )
    )
    found = [_windows(size, window, step) for size, window, step in zip(operand, view.sizes, steps)]
    return tuple(found), Windows(view.sizes, steps)


def convolution(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    """As many as there are windows, of as many features as the kernel gives."""
    lhs, rhs = (_operand(shapes, instruction, position) for position in (0, 1))
    view = ConvolutionView.of(instruction)
    numbers, groups = view.numbers, view.batch_groups
    features = multiply(rhs[numbers.kernel_input_feature], view.feature_groups)
    shapes.same(instruction, lhs[numbers.input_feature], features)
    batch = apply("divide", lhs[numbers.input_batch], groups)
    shapes.same(instruction, lhs[numbers.input_batch], multiply(batch, groups))
    outputs = rhs[numbers.kernel_output_feature]
    for count in (groups, view.feature_groups):
        message = f"the output features {{0}} of the kernel must be a multiple of {count} {place(instruction)}"
        shapes.require(apply("equal", multiply(apply("divide", outputs, count), count), outputs), message, (outputs,))
    for d in numbers.kernel_spatial:
        message = f"the window's size {{0}} must be positive {place(instruction)}"
        shapes.require(apply("less", 0, rhs[d]), message, (rhs[d],))
    steps = tuple(
        Step(stride, dilation, base, low, high)
        for stride, dilation, base, (low, high) in zip(
            view.strides, view.rhs_dilation, view.lhs_dilation, view.padding, strict=True
        )
    )
    result: list[Size] = [0] * len(lhs)
    result[numbers.output_batch] = batch
    result[numbers.output_feature] = outputs
    spatial = zip(numbers.input_spatial, numbers.kernel_spatial, numbers.output_spatial, steps, strict=True)
    for source, window, target, step in spatial:
        result[target] = _windows(lhs[source], rhs[window], step)
    return tuple(result), Convolving(view, steps)
