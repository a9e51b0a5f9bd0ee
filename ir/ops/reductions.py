"""Ops that apply a region to scalars: reduce, map, sort; and how the reference evaluates such regions quickly."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.errors import ExecutionError
from hlojit.ir.formats import ElementType, FloatFormat, QuantizedType
from hlojit.ir.ops import padding_rules, shape_rules
from hlojit.ir.ops.attribute_kinds import BOOL, I64, I64_ARRAY
from hlojit.ir.ops.batching import reductions as batching
from hlojit.ir.ops.block_arithmetic import decode_op_encode
from hlojit.ir.ops.combiners import combiner_of
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Expand,
    InferenceRequest,
    Kernel,
    OpDefinition,
    Operand,
    Pointwise,
    Reduction,
    ReferenceCall,
    Trait,
    define,
)
from hlojit.ir.ops.derivatives import reductions as derivatives
from hlojit.ir.ops.ordered_loops import expand_sort
from hlojit.ir.ops.parts import SEPARATELY, Separately, in_pairs
from hlojit.ir.ops.quantized_reductions import reduced_parts, reduces_quantized
from hlojit.ir.ops.region_loops import expand_map, expand_reduce
from hlojit.ir.ops.rules import (
    OpCall,
    bounded,
    checked,
    combined_elements,
    combiner_is,
    compatible_extents,
    compatible_lists,
    in_range,
    inferred,
    most,
    operand_tensors,
    region_inputs,
    region_is,
    region_outputs,
    same_shapes,
    scalar_type,
    show,
    spell,
    unique,
    without,
)
from hlojit.ir.ops.views import SortView
from hlojit.ir.types import TensorType, Type, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Block, Instruction

# how references run a region of scalars


def is_elementwise(region: Block) -> bool:
    """Whether every instruction is pointwise or a constant, so that the region can run on whole arrays at once."""
    return all(
        isinstance(instruction.op.lowering, Pointwise)
        or Trait.CONSTANT in instruction.op.traits
        or instruction.op.is_terminator
        for instruction in region
    )


def run_on_arrays(call: ReferenceCall, region: int, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Apply a region of scalars to the elements of equally shaped arrays."""
    block = call.instruction.regions[region]
    shape = arrays[0].shape
    if is_elementwise(block):
        return tuple(np.broadcast_to(result, shape) for result in call.run(region, *arrays))
    rows = [call.run(region, *(np.asarray(array[index]) for array in arrays)) for index in np.ndindex(shape)]
    if not rows:
        return tuple(np.empty(shape, value.tensor_type.element_type.storage) for value in block.returned)
    dtypes = [np.asarray(value).dtype for value in rows[0]]
    return tuple(
        np.array([np.asarray(row[position]) for row in rows], dtype=dtype).reshape(shape)
        for position, dtype in enumerate(dtypes)
    )


def reduce_last_axis(call: ReferenceCall, region: int, arrays: Sequence[Array]) -> list[Array]:
    """Combine the elements of the last axis (not empty) pairwise, in order: a balanced tree.

    The specification allows any binary tree whose leaves stand in order; this one takes log2(n) calls of the region.
    """
    values = list(arrays)
    while values[0].shape[-1] > 1:
        even = values[0].shape[-1] // 2 * 2
        left = [value[..., 0:even:2] for value in values]
        right = [value[..., 1:even:2] for value in values]
        combined = _combined(call, region, [*left, *right])
        values = [
            np.concatenate([new, old[..., even:].astype(new.dtype)], axis=-1) for new, old in zip(combined, values)
        ]
    return [value[..., 0] for value in values]


# reduce


def halves(call: OpCall) -> tuple[list[TensorType], list[TensorType]]:
    """Types of the inputs and of the init values."""
    types = operand_tensors(call)
    return types[: len(types) // 2], types[len(types) // 2 :]


def as_many_inits(call: OpCall) -> str | None:
    """Inputs and init values are as many, and there is one at least."""
    count = len(call.operand_types)
    if count and count % 2 == 0:
        return None
    return f"{count} operands are not as many inputs as init values" if count else "there must be at least one input"


def inits_match(kept: Callable[[OpCall], Sequence[int]]) -> Callable[[OpCall], str | None]:
    """Init values have the inputs' element types, and are scalars, or have some of the sizes that are ``kept``.

    Beyond the specification, whose init values are scalars: StableHLO's own verifier and tests have such programs.  They
    have no meaning, and no back end computes them.
    """

    def check(call: OpCall) -> str | None:
        sizes = None
        for position, (value, init) in enumerate(zip(*halves(call))):
            is_same = value.element_type == init.element_type
            if init.shape and sizes is None:
                sizes = kept(call)
            if not is_same or (init.shape and not _is_part_of(init.shape, sizes or ())):
                return f"init value {position} has type {init}, expected {scalar_type(value.element_type)}"
        return None

    return check


def _is_part_of(shape: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether sizes appear, in their order, among others."""
    rest = iter(sizes)
    return all(any(compatible_extents(extent, size) for size in rest) for extent in shape)


def body_combines(call: OpCall) -> str | None:
    """The body combines values of the inputs' element types and of the init values' shapes."""
    inputs, inits = halves(call)
    return combiner_is("body", call.regions[0], [type.element_type for type in inputs], [type.shape for type in inits])


def check_scalars(instruction: Instruction) -> None:
    """Raise ``ExecutionError`` where a region takes no scalars, which has no meaning."""
    for argument in instruction.regions[0].arguments:
        if argument.tensor_type.shape:
            message = f"its region takes values of type {argument.type}; what that means is not specified"
            raise ExecutionError(f"{instruction.name} at {instruction.location}: {message}")


def _dimensions(call: OpCall) -> tuple[int, ...]:
    return tuple(call.attributes["dimensions"])


REDUCE_RULES = (
    Constraint("C3", as_many_inits),
    Constraint("C1", lambda call: same_shapes("inputs", halves(call)[0])),
    Constraint("C2", inits_match(lambda c: without(halves(c)[0][0].shape, _dimensions(c)))),
    Constraint("C4", lambda call: in_range("dimensions", _dimensions(call), halves(call)[0][0].rank)),
    Constraint("C5", lambda call: unique("dimensions", _dimensions(call))),
    Constraint("C6", body_combines),
)


def _infer_reduce(request: InferenceRequest) -> Sequence[Type]:
    first, dimensions = halves(request)[0][0], _dimensions(request)
    shape, largest = without(first.shape, dimensions), without(most(first), dimensions)
    return [bounded(shape, element, largest) for element in combined_elements(request.regions[0])]


def _reduce_shape(instruction: Any) -> str | None:
    expected = without(halves(instruction)[0][0].shape, _dimensions(instruction))
    found = instruction.result_types
    if compatible_lists(found, [tensor(expected, type.element_type) for type in found]):
        return None
    return f"result types are {spell(found)}, expected shape {show(expected)}"


def _reduce_reference(call: ReferenceCall, *operands: Array) -> tuple[Array, ...]:
    check_scalars(call.instruction)
    dimensions = call.attributes["dimensions"]
    inputs, inits = operands[: len(operands) // 2], operands[len(operands) // 2 :]
    rank = inputs[0].ndim
    kept = [dimension for dimension in range(rank) if dimension not in dimensions]
    order = [*kept, *sorted(dimensions)]
    shape = tuple(inputs[0].shape[dimension] for dimension in kept)
    rows = [np.transpose(value, order).reshape((*shape, _extent(value, dimensions))) for value in inputs]
    starts = [np.broadcast_to(init, shape) for init in inits]
    if rows[0].shape[-1] == 0:
        # To the destination type: no element passes through the body.
        return tuple(starts)
    return with_starts(call, 0, starts, reduce_last_axis(call, 0, rows))


def with_starts(
    call: ReferenceCall, region: int, starts: Sequence[Array], values: Sequence[Array]
) -> tuple[Array, ...]:
    """Init values with what the elements make together."""
    return _combined(call, region, [*starts, *values])


def _combined(call: ReferenceCall, region: int, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """A region's results; of one plain op on a narrow float not rounded: a reduction is rounded once, at its end."""
    found = combiner_of(call.instruction.regions[region])
    if found is None or found.step is None or found.step.op.reference is None:
        return run_on_arrays(call, region, arrays)
    element = found.step.result.tensor_type.element_type
    if not isinstance(element, FloatFormat) or element.is_native:
        return run_on_arrays(call, region, arrays)
    single = SimpleNamespace(instruction=found.step, attributes=found.step.attributes)
    with np.errstate(all="ignore"):
        return (np.asarray(found.step.op.reference(cast(ReferenceCall, single), *arrays)),)


def _extent(value: Array, dimensions: Sequence[int]) -> int:
    return int(np.prod([value.shape[dimension] for dimension in dimensions], dtype=np.int64))


REDUCE = define(
    OpDefinition(
        "stablehlo.reduce",
        operands=(Operand("inputs", variadic=True), Operand("init_values", variadic=True)),
        attributes=(AttributeSpec("dimensions", I64_ARRAY),),
        regions=("body",),
        infer=checked(REDUCE_RULES, _infer_reduce),
        constraints=(*REDUCE_RULES, Constraint("C7", _reduce_shape), inferred("C8")),
        reference=reduces_quantized(_reduce_reference),
        syntax="reduce",
        lowering=Reduction(expand_reduce),
        parts={BlockFormat: decode_op_encode, ElementType: SEPARATELY, QuantizedType: reduced_parts},
        symbolic=shape_rules.reduce,
        padded=padding_rules.reduce,
        derivative=derivatives.REDUCE,
        batching=batching.reduce,
        summary="combines the elements along dimensions",
    )
)


# map


def _map_dimensions(call: OpCall) -> str | None:
    rank = operand_tensors(call)[0].rank
    if _dimensions(call) == tuple(range(rank)):
        return None
    return f"dimensions {show(_dimensions(call))} must be {show(range(rank))}"


def _map_computation(call: OpCall) -> str | None:
    inputs = [scalar_type(type.element_type) for type in operand_tensors(call)]
    block = call.regions[0]
    outputs = region_outputs(block)
    if (
        len(outputs) == 1
        and isinstance(outputs[0], TensorType)
        and not outputs[0].shape
        and compatible_lists(region_inputs(block), inputs)
    ):
        return None
    return (
        f"computation takes {spell(region_inputs(block))} and returns {spell(outputs)}, expected {spell(inputs)} "
        "and one scalar"
    )


MAP_RULES = (
    Constraint("C2", lambda call: None if call.operand_types else "there must be at least one input"),
    Constraint("C1", lambda call: same_shapes("inputs", operand_tensors(call))),
    Constraint("C3", _map_dimensions),
    Constraint("C4", _map_computation),
)


def _infer_map(request: InferenceRequest) -> Sequence[Type]:
    return [tensor(operand_tensors(request)[0].shape, combined_elements(request.regions[0])[0])]


MAP = define(
    OpDefinition(
        "stablehlo.map",
        operands=(Operand("inputs", variadic=True),),
        attributes=(AttributeSpec("dimensions", I64_ARRAY),),
        regions=("computation",),
        infer=checked(MAP_RULES, _infer_map),
        constraints=(*MAP_RULES, inferred("C1")),
        reference=lambda call, *values: run_on_arrays(call, 0, values),
        syntax="generic",
        lowering=Expand(expand_map),
        summary="applies a function of scalars to every element",
    )
)


# sort


def sort_dimension(call: OpCall) -> int:
    """The dimension that is sorted, counted from the front."""
    return SortView.of(call).position(operand_tensors(call)[0].rank)


def _sort_range(call: OpCall) -> str | None:
    rank = operand_tensors(call)[0].rank
    dimension = SortView.of(call).dimension
    return None if -rank <= dimension < rank else f"dimension {dimension} must lie in [{-rank}, {rank})"


def _comparator(call: OpCall) -> str | None:
    scalars = [scalar_type(type.element_type) for type in operand_tensors(call) for _ in range(2)]
    return region_is("comparator", call.regions[0], scalars, (tensor((), "i1"),))


SORT_RULES = (
    Constraint("C1", lambda call: None if call.operand_types else "there must be at least one input"),
    Constraint("C3", lambda call: same_shapes("inputs", operand_tensors(call))),
    Constraint("C4", _sort_range),
    Constraint("C5", _comparator),
)


def _sort_reference(call: ReferenceCall, *inputs: Array) -> tuple[Array, ...]:
    axis = sort_dimension(call.instruction)
    rows = [np.moveaxis(value, axis, -1) for value in inputs]
    shape = rows[0].shape
    flat = [row.reshape(-1, shape[-1]) for row in rows] if rows[0].size else rows
    if not rows[0].size or shape[-1] < 2:
        return inputs
    order = _merge_order(call, flat)
    sorted_rows = [np.take_along_axis(row, order, axis=-1).reshape(shape) for row in flat]
    return tuple(np.moveaxis(row, -1, axis) for row in sorted_rows)


def _merge_order(call: ReferenceCall, rows: Sequence[Array]) -> Array:
    """The stable order of every row: a bottom-up merge sort that compares all rows at once where the region allows.

    Odd-even transposition would need n rounds; here each row is merged on its own with Python's sort.
    """
    count, length = rows[0].shape
    all_at_once = length <= 512 and is_elementwise(call.instruction.regions[0])
    first, second = np.divmod(np.arange(length * length if all_at_once else 0), length)
    order = np.empty((count, length), np.int64)
    for number in range(count):
        if all_at_once:
            # All pairs in one call of the region.
            pairs = [part for row in rows for part in (row[number][first], row[number][second])]
            # What compares nothing (a constant) gives one answer for all.
            less = np.broadcast_to(call.run(0, *pairs)[0], (length * length,)).reshape(length, length)
            key = functools.cmp_to_key(functools.partial(_order_of, less))
        else:
            key = functools.cmp_to_key(functools.partial(_compare, call, [row[number] for row in rows]))
        order[number] = sorted(range(length), key=key)
    return order


def _order_of(less: Array, i: int, j: int) -> int:
    return int(less[j, i]) - int(less[i, j])


def _compare(call: ReferenceCall, row: Sequence[Array], i: int, j: int) -> int:
    def less(a: int, b: int) -> bool:
        return bool(call.run(0, *(np.asarray(value[index]) for value in row for index in (a, b)))[0])

    return -1 if less(i, j) else int(less(j, i))


def _comparisons(instruction: Instruction) -> int:
    """Of a merge sort."""
    first = instruction.operands[0].tensor_type
    return first.size * max(1, max(first.shape, default=1) - 1).bit_length()


SORT = define(
    OpDefinition(
        "stablehlo.sort",
        operands=(Operand("inputs", variadic=True),),
        attributes=(
            AttributeSpec("dimension", I64, optional=True, default=-1),
            AttributeSpec("is_stable", BOOL, optional=True, default=False),
        ),
        regions=("comparator",),
        infer=checked(SORT_RULES, lambda request: request.operand_types),
        constraints=(*SORT_RULES, inferred("C2")),
        reference=_sort_reference,
        syntax="generic",
        traits=frozenset({Trait.SORTS}),
        lowering=Kernel("sort", runs=_comparisons, expansion=expand_sort),
        symbolic=shape_rules.sort,
        parts={ElementType: Separately(in_pairs)},
        padded=padding_rules.sort,
        derivative=derivatives.SORT,
        batching=batching.sort,
        summary="sorts along a dimension by a comparator",
    )
)
