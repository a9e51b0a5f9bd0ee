"""Steps from an array to a view of it: what each reads, and what the array is after the view was written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from hlojit.ir.attributes import GatherDimensionNumbers
from hlojit.ir.formats import ElementType
from hlojit.ir.graph import Value
from hlojit.ir.types import tensor
from hlojit.tracing.errors import TracingError
from hlojit.tracing.tracer import kind_of_element

if TYPE_CHECKING:
    from hlojit.tracing.operations import Operations


@final
@dataclass(frozen=True)
class Part:
    """A basic index: bounds and steps of a slice, dimensions to reverse, and the shape after dimensions came and went."""

    starts: tuple[int, ...]
    limits: tuple[int, ...]
    steps: tuple[int, ...]
    reversed: tuple[int, ...]
    shape: tuple[int, ...]

    def read(self, operations: Operations, base: Value) -> Value:
        """As ``Step.read``."""
        b, value = operations.builder, base
        shape = base.tensor_type.shape
        if any(self.starts) or self.limits != shape or any(step != 1 for step in self.steps):
            attributes = {"start_indices": self.starts, "limit_indices": self.limits, "strides": self.steps}
            value = b.create("slice", [value], attributes=attributes).result
        if self.reversed:
            value = b.create("reverse", [value], attributes={"dimensions": self.reversed}).result
        return b.reshape(value, self.shape) if value.tensor_type.shape != self.shape else value

    def write(self, operations: Operations, base: Value, elements: Value) -> Value:
        """As ``Step.write``."""
        b = operations.builder
        counts = tuple(len(range(*bounds)) for bounds in zip(self.starts, self.limits, self.steps))
        updates = b.reshape(elements, counts) if counts != self.shape else elements
        if self.reversed:
            updates = b.create("reverse", [updates], attributes={"dimensions": self.reversed}).result
        if counts == base.tensor_type.shape:
            return updates
        if all(step == 1 for step in self.steps):
            starts = [b.constant(np.int32(start)) for start in self.starts]
            return b.create("dynamic_update_slice", [base, updates, *starts]).result
        return self._spread(operations, base, counts, updates)

    def _spread(self, operations: Operations, base: Value, counts: Sequence[int], updates: Value) -> Value:
        """Spread the updates over the array with interior padding, and choose by a mask of constants."""
        b, type = operations.builder, base.tensor_type
        mask = np.zeros(type.shape, bool)
        mask[tuple(slice(*bounds) for bounds in zip(self.starts, self.limits, self.steps))] = True
        high = [
            extent - start - ((count - 1) * step + 1 if count else 0)
            for extent, start, count, step in zip(type.shape, self.starts, counts, self.steps)
        ]
        attributes = {
            "edge_padding_low": self.starts,
            "edge_padding_high": tuple(high),
            "interior_padding": tuple(step - 1 for step in self.steps),
        }
        zero = operations.full(0, kind_of_element(type.element_type))
        spread = b.create("pad", [updates, zero], attributes=attributes).result
        return b.select(b.constant(mask), spread, base)


@final
@dataclass(frozen=True)
class Place:
    """Where numbers known at run time say: one position in each of some dimensions, which go."""

    dimensions: tuple[int, ...]
    positions: tuple[Value, ...]

    def _starts(self, operations: Operations, base: Value) -> list[Value]:
        starts = [operations.builder.constant(np.int64(0))] * base.tensor_type.rank
        for dimension, position in zip(self.dimensions, self.positions):
            starts[dimension] = position
        return starts

    def _one(self, base: Value) -> tuple[int, ...]:
        return tuple(1 if d in self.dimensions else n for d, n in enumerate(base.tensor_type.shape))

    def read(self, operations: Operations, base: Value) -> Value:
        """As ``Step.read``."""
        b, sizes = operations.builder, self._one(base)
        starts = self._starts(operations, base)
        found = b.create("dynamic_slice", [base, *starts], attributes={"slice_sizes": sizes}).result
        return b.reshape(found, [n for d, n in enumerate(sizes) if d not in self.dimensions])

    def write(self, operations: Operations, base: Value, elements: Value) -> Value:
        """As ``Step.write``."""
        b = operations.builder
        updates = b.reshape(elements, self._one(base))
        return b.create("dynamic_update_slice", [base, updates, *self._starts(operations, base)]).result


@final
@dataclass(frozen=True)
class Row:
    """One position of the first dimension, which goes."""

    number: int

    def read(self, operations: Operations, base: Value) -> Value:
        """As ``Step.read``."""
        return rows_of(operations, base, self.number, self.number + 1, base.tensor_type.shape[1:])

    def write(self, operations: Operations, base: Value, elements: Value) -> Value:
        """As ``Step.write``."""
        b, shape = operations.builder, base.tensor_type.shape
        starts = [b.constant(np.int32(each)) for each in (self.number, *([0] * (len(shape) - 1)))]
        return b.create("dynamic_update_slice", [base, b.reshape(elements, (1, *shape[1:])), *starts]).result


def rows_of(operations: Operations, base: Value, first: int, last: int, shape: Sequence[int] | None = None) -> Value:
    """Rows of an array, in this shape."""
    b, extents = operations.builder, base.tensor_type.shape
    if (first, last) != (0, extents[0]):
        attributes = {
            "start_indices": (first, *([0] * (len(extents) - 1))),
            "limit_indices": (last, *extents[1:]),
            "strides": (1,) * len(extents),
        }
        base = b.create("slice", [base], attributes=attributes).result
    return base if shape is None else b.reshape(base, tuple(shape))


@final
@dataclass(frozen=True)
class Reshape:
    """Another shape of elements in the same order: of rows, or of columns (``order="F"``)."""

    shape: tuple[int, ...]
    order: str = "C"

    def read(self, operations: Operations, base: Value) -> Value:
        """As ``Step.read``."""
        return _reshaped(operations, base, self.shape, self.order)

    def write(self, operations: Operations, base: Value, elements: Value) -> Value:
        """As ``Step.write``."""
        return _reshaped(operations, elements, base.tensor_type.shape, self.order)


def _reshaped(operations: Operations, value: Value, shape: Sequence[int], order: str) -> Value:
    b = operations.builder
    if value.tensor_type.shape == tuple(shape):
        return value
    if order == "C":
        return b.reshape(value, shape)
    turned = _transposed(operations, value, tuple(reversed(range(value.tensor_type.rank))))
    return _transposed(operations, b.reshape(turned, tuple(reversed(shape))), tuple(reversed(range(len(shape)))))


def _transposed(operations: Operations, value: Value, order: tuple[int, ...]) -> Value:
    if order == tuple(range(len(order))):
        return value
    return operations.builder.create("transpose", [value], attributes={"permutation": order}).result


@final
@dataclass(frozen=True)
class Reorder:
    """Dimensions in another order."""

    order: tuple[int, ...]

    def read(self, operations: Operations, base: Value) -> Value:
        """As ``Step.read``."""
        return _transposed(operations, base, self.order)

    def write(self, operations: Operations, base: Value, elements: Value) -> Value:
        """As ``Step.write``."""
        return _transposed(operations, elements, tuple(int(each) for each in np.argsort(self.order)))


@final
@dataclass(frozen=True)
class ComplexPart:
    """The real or the imaginary parts."""

    is_real: bool

    def read(self, operations: Operations, base: Value) -> Value:
        """As ``Step.read``."""
        b = operations.builder
        return b.real(base) if self.is_real else b.imag(base)

    def write(self, operations: Operations, base: Value, elements: Value) -> Value:
        """As ``Step.write``."""
        b = operations.builder
        return b.complex(elements, b.imag(base)) if self.is_real else b.complex(b.real(base), elements)


@final
@dataclass(frozen=True)
class Bits:
    """The same bits as elements of another type of the same width."""

    element: ElementType

    def read(self, operations: Operations, base: Value) -> Value:
        """As ``Step.read``."""
        return operations.builder.bitcast_convert(base, base.tensor_type.with_element_type(self.element))

    def write(self, operations: Operations, base: Value, elements: Value) -> Value:
        """As ``Step.write``."""
        return operations.builder.bitcast_convert(elements, base.tensor_type)


@final
@dataclass(frozen=True)
class Broadcast:
    """Each element seen several times."""

    shape: tuple[int, ...]

    def read(self, operations: Operations, base: Value) -> Value:
        """As ``Step.read``."""
        return operations.broadcast(base, self.shape)

    def write(self, operations: Operations, base: Value, elements: Value) -> Value:
        """As ``Step.write``."""
        raise TracingError("an array that was broadcast cannot be written; write into a copy")


@final
@dataclass(frozen=True)
class Gathered:
    """Elements by their numbers in the flat array: a view that only shows."""

    numbers: np.ndarray[tuple[int, ...], np.dtype[np.int64]]

    def read(self, operations: Operations, base: Value) -> Value:
        """As ``Step.read``."""
        b = operations.builder
        if not self.numbers.size:
            return operations.full(0, kind_of_element(base.tensor_type.element_type), self.numbers.shape)
        flat = operations.wrap(b.reshape(base, (base.tensor_type.size,)))
        return flat[self.numbers].value

    def write(self, operations: Operations, base: Value, elements: Value) -> Value:
        """As ``Step.write``."""
        raise TracingError("a view that only shows cannot be written; write into a copy")


@final
@dataclass(frozen=True)
class Windows:
    """Each window of some lengths along some axes, one after the other: a view that only shows."""

    axes: tuple[int, ...]
    lengths: tuple[int, ...]

    def read(self, operations: Operations, base: Value) -> Value:
        """As ``Step.read``."""
        for axis, length in zip(self.axes, self.lengths):
            base = _windows(operations, base, axis, length)
        return base

    def write(self, operations: Operations, base: Value, elements: Value) -> Value:
        """As ``Step.write``."""
        raise TracingError("windows of an array overlap and cannot be written; write into the array, or a copy")


def _windows(operations: Operations, base: Value, axis: int, length: int) -> Value:
    """Windows along one axis: where each begins stays in its place, what is in it comes last."""
    b, shape = operations.builder, base.tensor_type.shape
    count, rank = shape[axis] - length + 1, len(shape)
    grid = tensor((count, length, 1), "i64")
    starts, offsets = (b.iota(grid, dimension) for dimension in (0, 1))
    numbers = GatherDimensionNumbers(
        offset_dims=tuple(d for d in range(rank) if d != axis),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        index_vector_dim=2,
    )
    sizes = tuple(1 if d == axis else extent for d, extent in enumerate(shape))
    attributes = {"dimension_numbers": numbers, "slice_sizes": sizes, "indices_are_sorted": False}
    return b.create("gather", [base, b.add(starts, offsets)], attributes=attributes).result
