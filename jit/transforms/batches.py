"""``vmap``: a function of elements as one of batches, with the signature and meaning of JAX's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hlojit.ir.graph import Value
from hlojit.ir.ops.batching.kinds import Lane
from hlojit.ir.transforms.vectorization import Vectorizing, vectorize_block
from hlojit.tracing.calls.containers import flatten, level, paths, unflatten
from hlojit.tracing.operations import Operations
from hlojit.transforms.calls import TransformedFunction
from hlojit.transforms.regions import argument_error, argument_value, called, fresh, result, transforming


def vmap(
    fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, axis_size: int | None = None
) -> TransformedFunction:
    """``fun`` for each element of a batch, all at once.

    ``in_axes`` says which dimension of each argument is the batch's, None that an argument is the same for all: one for all of
    them, or a tuple with one for each; for parts of a container, a container of them.  ``out_axes`` says where the batch is in
    the results.  Named arguments have it in dimension 0.  ``axis_size`` is needed where no argument has a batch.
    """

    def body(operations: Operations, /, *arguments: Any, **named: Any) -> Any:
        axes = [*_prefix("in_axes", _of_arguments(in_axes, arguments), tuple(arguments)), *_prefix("in_axes", 0, named)]
        leaves, structure = flatten((tuple(arguments), named))
        names = [path for path, _ in (*paths(tuple(arguments)), *paths(named))]
        values = {
            k: argument_value("vmap", operations, names[k], leaf)
            for k, (leaf, axis) in enumerate(zip(leaves, axes))
            if axis is not None
        }
        size = _size(values, axes, names, axis_size)
        moved = {k: _in_front(operations, value, axes[k], names[k]) for k, value in values.items()}

        def run(tracers: Sequence[Any]) -> Any:
            given = [fresh(operations, leaf) for leaf in leaves]
            for k, tracer in zip(moved, tracers):
                given[k] = tracer
            own, keywords = unflatten(structure, given)
            return called(fun, *own, **keywords)

        with transforming(operations) as place:
            types = [value.tensor_type.with_shape(value.tensor_type.shape[1:]) for value in moved.values()]
            region = place.trace(run, [leaves[k] for k in moved], types)
            lanes = vectorize_block(operations.builder, region.block, [Lane(v, True) for v in moved.values()], size)
            results = region.without_check(operations, [lane.value for lane in lanes])
            axes_of_results = _prefix("out_axes", out_axes, unflatten(region.structure, results))
            made = [_at(operations, lane, axis, size) for lane, axis in zip(lanes, axes_of_results)]
            found = place.done(made)
        return unflatten(region.structure, [result(operations, value) for value in found])

    return TransformedFunction(body, fun, (vmap, in_axes, out_axes, axis_size))


def _of_arguments(in_axes: Any, arguments: Sequence[Any]) -> Any:
    if not isinstance(in_axes, (tuple, list)):
        return in_axes
    if len(in_axes) != len(arguments):
        raise argument_error("vmap", f"in_axes has {len(in_axes)} entries, and there are {len(arguments)} arguments")
    return tuple(in_axes)


def _prefix(name: str, axes: Any, tree: Any) -> list[int | None]:
    """For each leaf of ``tree`` what ``axes``, the same container up to some depth, says."""
    if axes is None or type(axes) is int:
        return [axes] * len(flatten(tree)[0])
    if isinstance(axes, dict) and isinstance(tree, dict) and axes.keys() == tree.keys():
        return [each for key, child in tree.items() for each in _prefix(name, axes[key], child)]
    own, parts = level(axes), level(tree)
    if own is not None and parts is not None:
        are_rows = own[0][0] in (tuple, list) and parts[0][0] in (tuple, list) and len(own[1]) == len(parts[1])
        if are_rows or own[0] == parts[0]:
            return [each for part, child in zip(own[1], parts[1]) for each in _prefix(name, part, child)]
    raise argument_error(
        "vmap", f"{name}={axes!r} does not fit {type(tree).__name__} values: a number, None, or the same container"
    )


def _size(values: dict[int, Value], axes: Sequence[int | None], names: Sequence[str], given: int | None) -> int:
    found: dict[int, str] = {}
    for k, value in values.items():
        axis, shape = axes[k], value.tensor_type.shape
        if axis is None or not -len(shape) <= axis < len(shape):
            raise argument_error("vmap", f"argument{names[k]} of shape {shape} has no dimension {axis}")
        found.setdefault(shape[axis], names[k])
    if given is not None:
        found.setdefault(given, "axis_size")
    if len(found) == 1:
        return next(iter(found))
    if not found:
        raise argument_error("vmap", "no argument has a batch: in_axes must not be None for all of them")
    sizes = ", ".join(f"{size} ({name})" for size, name in found.items())
    raise argument_error("vmap", f"batches have different sizes: {sizes}")


def _in_front(operations: Operations, value: Value, axis: int | None, name: str) -> Value:
    rank = value.tensor_type.rank
    assert axis is not None, name
    place = axis % rank
    order = [place, *(d for d in range(rank) if d != place)]
    return Vectorizing(operations.builder, 0).transposed(value, order)


def _at(operations: Operations, lane: Lane, axis: int | None, size: int) -> Value:
    if axis is None:
        if lane.batched:
            raise argument_error("vmap", "out_axes is None for a result that is not the same for all of the batch")
        return lane.value
    work = Vectorizing(operations.builder, size)
    value = work.spread(lane)
    rank = value.tensor_type.rank
    if not -rank <= axis < rank:
        raise argument_error("vmap", f"out_axes={axis}, and the result with its batch has {rank} dimensions")
    order = [*range(1, rank)]
    order.insert(axis % rank, 0)
    return work.transposed(value, order)
