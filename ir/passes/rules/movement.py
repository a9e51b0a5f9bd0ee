"""Rules on ops that move elements as a whole: broadcast, reshape, transpose, reverse, iota.

The canonical form has no dimensions of extent 1 below a broadcast, and reshapes rather than broadcasts or transposes
where only such dimensions come, go or move: a reshape between two kernels is an alias and costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlojit.ir.attributes import Dense
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.views import BroadcastView, DimensionsView, IotaView, TransposeView
from hlojit.ir.passes.graph_facts import constant_of, splat_dense, splat_of
from hlojit.ir.passes.rewriting import POINTWISE, Effect, Rewriter, RuleSet
from hlojit.ir.passes.rules.matching import made_by, static_shape

RULES = RuleSet("movement")


@RULES.rule("broadcast_in_dim reshape transpose reverse", Effect.EXACT)
def movement_of_splat(rewriter: Rewriter, movement: Instruction) -> Value | None:
    """Moving a splat constant gives a splat constant."""
    element = splat_of(movement.operands[0])
    if element is None or not movement.result.tensor_type.is_static:
        return None
    return rewriter.constant(splat_dense(movement.result.tensor_type, element))


@RULES.rule("broadcast_in_dim", Effect.EXACT)
def broadcast_to_same(rewriter: Rewriter, broadcast: Instruction) -> Value | None:
    """A broadcast to the same type, dimensions in order, changes nothing."""
    (operand,) = broadcast.operands
    dimensions = BroadcastView.of(broadcast).dimensions
    same = operand.type is broadcast.result.type and dimensions == tuple(range(len(dimensions)))
    return operand if same and operand.tensor_type.is_static else None


@RULES.rule("broadcast_in_dim", Effect.EXACT)
def broadcast_of_broadcast(rewriter: Rewriter, broadcast: Instruction) -> Value | None:
    """A broadcast of a broadcast is one broadcast."""
    inner = made_by(broadcast.operands[0], "broadcast_in_dim")
    if inner is None or static_shape(inner.result) is None:
        return None
    outer_dimensions = BroadcastView.of(broadcast).dimensions
    dimensions = tuple(outer_dimensions[position] for position in BroadcastView.of(inner).dimensions)
    return _broadcast(rewriter, inner.operands[0], broadcast, dimensions)


@RULES.rule("broadcast_in_dim", Effect.EXACT)
def broadcast_as_reshape(rewriter: Rewriter, broadcast: Instruction) -> Value | None:
    """A broadcast that only adds dimensions of extent 1 is a reshape."""
    (operand,) = broadcast.operands
    shape, target = static_shape(operand), static_shape(broadcast.result)
    if shape is None or target is None or operand.tensor_type.size != broadcast.result.tensor_type.size:
        return None
    dimensions = BroadcastView.of(broadcast).dimensions
    moved = [position for extent, position in zip(shape, dimensions) if extent != 1]
    return rewriter.reshape(operand, target) if moved == sorted(moved) else None


@RULES.rule("broadcast_in_dim", Effect.EXACT)
def broadcast_of_ones(rewriter: Rewriter, broadcast: Instruction) -> Value | None:
    """Dimensions of extent 1 are dropped before a broadcast: it brings them back by itself."""
    (operand,) = broadcast.operands
    shape = static_shape(operand)
    if shape is None or 1 not in shape or static_shape(broadcast.result) is None:
        return None
    dimensions = BroadcastView.of(broadcast).dimensions
    kept = [i for i, extent in enumerate(shape) if extent != 1]
    smaller = rewriter.reshape(operand, [shape[i] for i in kept])
    return _broadcast(rewriter, smaller, broadcast, tuple(dimensions[i] for i in kept))


@RULES.rule("reshape", Effect.EXACT)
def reshape_to_same(rewriter: Rewriter, reshape: Instruction) -> Value | None:
    """A reshape to the same shape changes nothing."""
    (operand,) = reshape.operands
    return operand if operand.type is reshape.result.type else None


@RULES.rule("reshape", Effect.EXACT)
def reshape_of_reshape(rewriter: Rewriter, reshape: Instruction) -> Value | None:
    """A reshape of a reshape starts from the original."""
    inner = made_by(reshape.operands[0], "reshape")
    if inner is None:
        return None
    (original,) = inner.operands
    return original if original.type is reshape.result.type else rewriter.create_like(reshape, [original])


@RULES.rule("reshape", Effect.EXACT)
def reshape_of_constant(rewriter: Rewriter, reshape: Instruction) -> Value | None:
    """A reshaped constant is a constant over the same memory."""
    dense = constant_of(reshape.operands[0])
    type = reshape.result.tensor_type
    if dense is None or not type.is_static or not dense.array.flags.c_contiguous:
        return None
    array = dense.array.reshape(type.shape)
    array.flags.writeable = False
    return rewriter.constant(Dense(type, array))


@RULES.rule("reshape", Effect.EXACT)
def reshape_of_broadcast(rewriter: Rewriter, reshape: Instruction) -> Value | None:
    """A reshape of a broadcast is a broadcast (of a reshape), where broadcast dimensions and others are not mixed."""
    inner = made_by(reshape.operands[0], "broadcast_in_dim")
    if inner is None:
        return None
    (operand,) = inner.operands
    shape, middle, target = static_shape(operand), static_shape(inner.result), static_shape(reshape.result)
    if shape is None or middle is None or target is None:
        return None
    dimensions = BroadcastView.of(inner).dimensions
    if any(middle[position] != extent for extent, position in zip(shape, dimensions)):
        return None
    if list(dimensions) != sorted(dimensions):
        return None
    groups = group_dimensions(middle, target)
    if groups is None:
        return None
    of_operand = frozenset(dimensions)
    positions: list[int] = []
    for sources, results in groups:
        present = sum(1 for source in sources if source in of_operand)
        if present == len(sources):
            positions.extend(results)
        elif present:
            return None
    operand = rewriter.reshape(operand, [target[position] for position in positions])
    return _broadcast(rewriter, operand, reshape, tuple(positions))


@RULES.rule("reshape", Effect.EXACT)
def reshape_of_iota(rewriter: Rewriter, reshape: Instruction) -> Value | None:
    """A reshape of an iota that leaves the counted dimension whole is an iota."""
    iota = made_by(reshape.operands[0], "iota")
    if iota is None:
        return None
    shape, target = static_shape(iota.result), static_shape(reshape.result)
    groups = None if shape is None or target is None else group_dimensions(shape, target)
    for sources, results in groups or ():
        if sources == [IotaView.of(iota).dimension] and len(results) == 1:
            counted: Value = rewriter.create("iota", (), reshape.result.type, {"iota_dimension": results[0]})
            return counted
    return None


@RULES.rule("iota", Effect.EXACT)
def iota_of_one(rewriter: Rewriter, iota: Instruction) -> Value | None:
    """Counting a dimension of extent 1 gives zeros."""
    shape = static_shape(iota.result)
    if shape is None or shape[IotaView.of(iota).dimension] != 1:
        return None
    return rewriter.splat(iota.result.tensor_type, 0)


@RULES.rule(POINTWISE, Effect.EXACT)
def pointwise_of_reshaped(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """f(reshape(x), c) is reshape(f(x, c)) where only extents of 1 come or go: reshapes sink and meet."""
    target = static_shape(instruction.result) if len(instruction.results) == 1 else None
    if target is None:
        return None
    shape: tuple[int, ...] | None = None
    for operand in instruction.operands:
        reshape = made_by(operand, "reshape")
        if reshape is not None:
            found = static_shape(reshape.operands[0])
            if found is None or (shape is not None and found != shape):
                return None
            shape = found
        elif splat_of(operand) is None and (static_shape(operand) != () or target == ()):
            return None
    if shape is None or shape == target or _without_ones(shape) != _without_ones(target):
        return None
    operands = []
    for operand in instruction.operands:
        reshape = made_by(operand, "reshape")
        if reshape is not None:
            operands.append(reshape.operands[0])
        elif static_shape(operand) == target:
            operands.append(rewriter.splat(operand.tensor_type.with_shape(shape), splat_of(operand)))
        else:
            operands.append(operand)
    moved = rewriter.create_like(instruction, operands, instruction.result.tensor_type.with_shape(shape))
    return rewriter.reshape(moved, target)


@RULES.rule("transpose", Effect.EXACT)
def transpose_to_same(rewriter: Rewriter, transpose: Instruction) -> Value | None:
    """A transpose that keeps the order of the dimensions changes nothing."""
    permutation = TransposeView.of(transpose).permutation
    return transpose.operands[0] if permutation == tuple(range(len(permutation))) else None


@RULES.rule("transpose", Effect.EXACT)
def transpose_of_transpose(rewriter: Rewriter, transpose: Instruction) -> Value | None:
    """Two transposes are one."""
    inner = made_by(transpose.operands[0], "transpose")
    if inner is None:
        return None
    first = TransposeView.of(inner).permutation
    permutation = tuple(first[position] for position in TransposeView.of(transpose).permutation)
    return _transpose(rewriter, inner.operands[0], transpose, permutation)


@RULES.rule("transpose", Effect.EXACT)
def transpose_as_reshape(rewriter: Rewriter, transpose: Instruction) -> Value | None:
    """A transpose that moves only dimensions of extent 1 is a reshape."""
    (operand,) = transpose.operands
    shape = static_shape(operand)
    if shape is None:
        return None
    moved = [position for position in TransposeView.of(transpose).permutation if shape[position] != 1]
    return rewriter.reshape(operand, transpose.result.tensor_type.shape) if moved == sorted(moved) else None


@RULES.rule("transpose", Effect.EXACT)
def transpose_of_broadcast(rewriter: Rewriter, transpose: Instruction) -> Value | None:
    """A transposed broadcast is a broadcast to other dimensions."""
    inner = made_by(transpose.operands[0], "broadcast_in_dim")
    if inner is None:
        return None
    permutation = TransposeView.of(transpose).permutation
    place_of = {source: place for place, source in enumerate(permutation)}
    dimensions = tuple(place_of[position] for position in BroadcastView.of(inner).dimensions)
    return _broadcast(rewriter, inner.operands[0], transpose, dimensions)


@RULES.rule("transpose", Effect.EXACT)
def transpose_of_iota(rewriter: Rewriter, transpose: Instruction) -> Value | None:
    """A transposed iota counts another dimension."""
    iota = made_by(transpose.operands[0], "iota")
    if iota is None:
        return None
    dimension = TransposeView.of(transpose).permutation.index(IotaView.of(iota).dimension)
    counted: Value = rewriter.create("iota", (), transpose.result.type, {"iota_dimension": dimension})
    return counted


@RULES.rule("reverse", Effect.EXACT)
def reverse_of_ones(rewriter: Rewriter, reverse: Instruction) -> Value | None:
    """Reversing dimensions of extent 1, or none, changes nothing."""
    (operand,) = reverse.operands
    shape = operand.tensor_type.shape
    return operand if all(shape[dimension] == 1 for dimension in DimensionsView.of(reverse).dimensions) else None


@RULES.rule("reverse", Effect.EXACT)
def reverse_of_reverse(rewriter: Rewriter, reverse: Instruction) -> Value | None:
    """What is reversed twice is not reversed."""
    inner = made_by(reverse.operands[0], "reverse")
    if inner is None:
        return None
    left = tuple(sorted(set(DimensionsView.of(inner).dimensions) ^ set(DimensionsView.of(reverse).dimensions)))
    if not left:
        return inner.operands[0]
    once: Value = rewriter.create("reverse", inner.operands, reverse.result.type, {"dimensions": left})
    return once


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(extent for extent in shape if extent != 1)


def group_dimensions(shape: Sequence[int], target: Sequence[int]) -> list[tuple[list[int], list[int]]] | None:
    """The smallest groups of neighbouring dimensions with equal numbers of elements on both sides of a reshape.

    Dimensions of extent 1 are in no group.  None for empty shapes.

    >>> group_dimensions((2, 3, 4, 1), (6, 1, 2, 2))
    [([0, 1], [0]), ([2], [2, 3])]
    """
    if 0 in shape or 0 in target:
        return None
    left = [i for i, extent in enumerate(shape) if extent != 1]
    right = [i for i, extent in enumerate(target) if extent != 1]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(left):
        sources, results = [left[i]], [right[j]]
        first, second = shape[left[i]], target[right[j]]
        i, j = i + 1, j + 1
        while first != second:
            if first < second:
                first *= shape[left[i]]
                sources.append(left[i])
                i += 1
            else:
                second *= target[right[j]]
                results.append(right[j])
                j += 1
        groups.append((sources, results))
    return groups


def _broadcast(rewriter: Rewriter, operand: Value, like: Instruction, dimensions: tuple[int, ...]) -> Value:
    value: Value = rewriter.create(
        "broadcast_in_dim", [operand], like.result.type, {"broadcast_dimensions": dimensions}
    )
    return value


def _transpose(rewriter: Rewriter, operand: Value, like: Instruction, permutation: tuple[int, ...]) -> Value:
    value: Value = rewriter.create("transpose", [operand], like.result.type, {"permutation": permutation})
    return value
