"""Broadcasting of arrays whose lengths are known when the function runs.

Dimensions of one extent fit together as they are.  Of two extents NumPy demands that they are equal, or that one is 1: then the
elements are brought in front, and the call raises where they are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from hlojit.tracing.operations import Operations
from hlojit.tracing.selection.extents import Extent, unchecked
from hlojit.tracing.selection.selected import Extents, Selected
from hlojit.tracing.tracer import Tracer

Misfit = tuple[type[Exception], str]
"""What is raised where lengths differ."""
_OPERANDS: Final[Misfit] = (ValueError, "operands could not be broadcast together: arrays of different lengths")
INDICES: Final[Misfit] = (
    IndexError, "shape mismatch: indexing arrays could not be broadcast together: arrays of different lengths"
)  # fmt: skip


def repacked(operand: Selected, dimension: int) -> Selected:
    """The same array, whose elements that count are the first of a dimension."""
    extent = operand.extents[dimension]
    if extent is None or extent.is_packed:
        return operand
    elements = taken(operand.elements, extent.positions, dimension)
    return Selected(elements, replaced(operand.extents, dimension, extent.packed()))


def replaced(extents: Extents, dimension: int, *others: Extent | None) -> Extents:
    """Extents with others in the place of one."""
    return (*extents[:dimension], *others, *extents[dimension + 1 :])


def taken(elements: Tracer, positions: Any, dimension: int) -> Tracer:
    """Elements at positions that are known to be in bounds."""
    if not elements.shape[dimension]:
        shape = (*elements.shape[:dimension], *positions.shape, *elements.shape[dimension + 1 :])
        return elements.context.wrap(elements.context.full(0, elements.kind, shape))
    with unchecked(elements.context):
        found = elements[(*[slice(None)] * dimension, positions)]
    return found


def masked(operand: Selected, fill: Any, dimensions: Sequence[int] | None = None) -> Tracer:
    """The elements with one number where they do not count, along some dimensions."""
    mask = mask_of(operand, range(operand.ndim) if dimensions is None else dimensions)
    if mask is None:
        return operand.elements
    ops = operand.context
    number = ops.scalar(ops.value(fill, operand.kind))
    return np.where(mask, operand.elements, number)  # type: ignore[return-value]


def mask_of(operand: Selected, dimensions: Any) -> Any:
    """Which elements count along some dimensions, in a shape that broadcasts to the elements; None if all do."""
    found: Any = None
    for dimension in dimensions:
        extent = operand.extents[dimension]
        if extent is not None:
            own = extent.mask.reshape((extent.capacity,) + (1,) * (operand.ndim - dimension - 1))
            found = own if found is None else np.logical_and(found, own)
    return found


def elementwise(ops: Operations, function: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """What a function makes of the elements, element by element."""
    own, extents = aligned(ops, operands)
    made = function(*own)
    if isinstance(made, (tuple, list)):
        return type(made)(wrapped(each, extents) for each in made)
    return wrapped(made, extents)


def wrapped(made: Any, extents: Extents) -> Any:
    """An array of these extents, or an array of which everything counts."""
    return Selected(made, extents) if any(each is not None for each in extents) else made


def aligned(ops: Operations, operands: Sequence[Any], misfit: Misfit = _OPERANDS) -> tuple[list[Any], Extents]:
    """Arrays that broadcast as they are, and the extents of what comes of them."""
    rank = max(np.ndim(each) if not isinstance(each, Selected) else each.ndim for each in operands)
    given = [each if isinstance(each, Selected) or _rank(each) == 0 else _plain(ops, each) for each in operands]
    extents: list[Extent | None] = []
    for back in range(rank, 0, -1):
        given, extent = _aligned_dimension(ops, given, back, misfit)
        extents.append(extent)
    return [each.elements if isinstance(each, Selected) else each for each in given], tuple(extents)


def _rank(operand: Any) -> int:
    return operand.ndim if isinstance(operand, (Selected, Tracer)) else np.ndim(operand)


def _plain(ops: Operations, operand: Any) -> Selected:
    own = ops.tracer(operand)
    return Selected(own, (None,) * own.ndim)


def _aligned_dimension(ops: Operations, given: list[Any], back: int, misfit: Misfit) -> tuple[list[Any], Extent | None]:
    """Fit the dimension that is ``back`` from the end."""
    own = [each for each in given if _reaches(each, back)]
    found = list(dict.fromkeys(e for each in own if (e := each.extents[each.ndim - back]) is not None))
    sizes = {each.elements.shape[-back] for each in own if each.extents[each.ndim - back] is None} - {1}
    if not found or (len(found) == 1 and not sizes):
        return given, found[0] if found else None
    if sizes:
        (size, *others) = sizes
        if others:
            raise misfit[0](misfit[1])
        return [_of_size(ops, each, back, size, misfit) if _reaches(each, back) else each for each in given], None
    count = _common_count(ops, [each.count for each in found], misfit)
    capacity = max(each.capacity for each in found)
    extent = Extent.of_count(ops, count, capacity)
    return [_spread(each, back, extent) if _reaches(each, back) else each for each in given], extent


def _reaches(operand: Any, back: int) -> bool:
    return isinstance(operand, Selected) and operand.ndim >= back


def _common_count(ops: Operations, counts: Sequence[Tracer], misfit: Misfit) -> Tracer:
    """The one length that is not 1."""
    found: Any = counts[0]
    for each in counts[1:]:
        differs = np.logical_and(
            np.not_equal(found, each), np.logical_and(np.not_equal(found, 1), np.not_equal(each, 1))
        )
        ops.check(differs.value, *misfit)
        found = np.where(np.equal(found, 1), each, found)[()]
    return ops.tracer(found)


def _of_size(ops: Operations, operand: Selected, back: int, size: int, misfit: Misfit) -> Selected:
    """An array whose length must be one that is known, or 1."""
    dimension = operand.ndim - back
    extent = operand.extents[dimension]
    if extent is None:
        return operand
    bad: Any = np.logical_and(np.not_equal(extent.count, size), np.not_equal(extent.count, 1))
    ops.check(bad.value, *misfit)
    return _at_ranks(operand, dimension, np.arange(size), None)


def _spread(operand: Selected, back: int, extent: Extent) -> Selected:
    dimension = operand.ndim - back
    if operand.extents[dimension] in (None, extent):
        return operand
    return _at_ranks(operand, dimension, extent.numbers, extent)


def _at_ranks(operand: Selected, dimension: int, ranks: Any, extent: Extent | None) -> Selected:
    """The elements by number; the only one for all numbers if it is only one."""
    own = operand.extents[dimension]
    assert own is not None
    ranks = np.where(np.equal(own.count, 1), 0, np.minimum(ranks, max(own.capacity - 1, 0)))
    positions = ranks if own.is_packed else taken(own.positions, ranks, 0)
    return Selected(taken(operand.elements, positions, dimension), replaced(operand.extents, dimension, extent))


def fitted(ops: Operations, value: Any, shape: Sequence[int], extents: Extents, misfit: str) -> Any:
    """What an assignment to an array at capacity ``shape`` writes where the elements of these extents count.

    Raises NumPy's ``ValueError`` that begins with ``misfit``, when the function runs or now, where lengths differ.
    """
    if _rank(value) == 0:
        return value
    given = value if isinstance(value, Selected) else _plain(ops, value)
    while given.ndim > len(shape) and given.extents[0] is None and given.elements.shape[0] == 1:
        given = Selected(given.elements[0], given.extents[1:])
    if given.ndim > len(shape):
        raise ValueError(f"{misfit}: an array of {given.ndim} dimensions into one of {len(shape)}")
    for back in range(1, given.ndim + 1):
        given = _fitted_dimension(ops, given, back, shape[-back], extents[len(extents) - back], misfit)
    return given.elements


def _fitted_dimension(
    ops: Operations, given: Selected, back: int, size: int, wanted: Extent | None, misfit: str
) -> Selected:
    dimension = given.ndim - back
    own, here = given.extents[dimension], given.elements.shape[dimension]
    if own is wanted or (own is None and here == 1):
        if own is None and here not in (1, size):
            raise ValueError(f"{misfit}: {here} into {size}")
        return given
    if wanted is None:
        return _of_size(ops, given, back, size, (ValueError, misfit))
    count = here if own is None else own.count
    differs: Any = np.not_equal(wanted.count, count)
    if own is not None:
        differs = np.logical_and(differs, np.not_equal(count, 1))
    ops.check(ops.tracer(differs).value, ValueError, misfit)
    ranks: Any = wanted.ranks if own is None else np.where(np.equal(count, 1), 0, wanted.ranks)
    last = max(here - 1, 0)
    ranks = np.minimum(np.maximum(ranks, 0), last)
    positions = ranks if own is None or own.is_packed else taken(own.positions, ranks, 0)
    return Selected(taken(given.elements, positions, dimension), replaced(given.extents, dimension, wanted))
