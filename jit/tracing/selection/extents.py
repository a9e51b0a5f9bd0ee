"""``Extent``: how many elements a dimension has when the function runs, and which of those that are computed they are.

An array of such a dimension is computed at its capacity, the most that there can be; an extent says which positions count:
those where ``mask`` is true, in their order.  An extent is *packed* if these are the first ``count``.

    x[x > 0]        elements x, mask x > 0          nothing is moved: sums and maps go over x
    np.sort(that)   elements sorted, packed         the first count count
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
from hlojit.tracing.operations import Operations
from hlojit.tracing.selection.same_values import are_same
from hlojit.tracing.tracer import Tracer


@final
class Extent:
    """Made by ``of_mask`` and ``of_count``, which give one object for what is one length."""

    __slots__ = ("_kept", "capacity", "is_packed", "ops", "said")

    def __init__(self, ops: Operations, said: Tracer, capacity: int, *, is_packed: bool):
        self.ops = ops
        self.said = said
        """The mask, or of a packed extent the number of elements."""
        self.capacity = capacity
        self.is_packed = is_packed
        self._kept: dict[str, Tracer] = {}

    @classmethod
    def of_mask(cls, ops: Operations, mask: Tracer) -> Extent:
        """Where ``mask``, of one dimension, is true now."""
        return _interned(cls(ops, ops.wrap(mask.value), mask.shape[0], is_packed=False))

    @classmethod
    def of_count(cls, ops: Operations, count: Tracer, capacity: int) -> Extent:
        """The first ``count`` of at most ``capacity``."""
        return _interned(cls(ops, ops.scalar(ops.value(count, np.dtype(np.int64))), capacity, is_packed=True))

    # What is computed once is used again where it can be seen: not outside of the branch or loop that it was made in.
    def _once(self, name: str, make: Callable[[], Any]) -> Tracer:
        found = self._kept.get(name)
        if found is None or not is_visible(self.ops, found):
            found = self._kept[name] = self.ops.tracer(make())
        return found

    @property
    def mask(self) -> Tracer:
        """Which positions count."""
        if not self.is_packed:
            return self.said
        return self._once("mask", lambda: np.less(self.numbers, self.said))

    @property
    def numbers(self) -> Tracer:
        """0, 1, 2, ... up to the capacity."""
        return self._once("numbers", lambda: _numbers(self.ops, self.capacity))

    @property
    def count(self) -> Tracer:
        """How many they are, as an ``int64`` number."""
        return self.said if self.is_packed else self._once("count", lambda: np.count_nonzero(self.said))

    @property
    def length(self) -> Tracer:
        """How many they are, as Python's number."""
        return self.ops.python_number(self.count)

    @property
    def ranks(self) -> Tracer:
        """Of each position that counts, the how many-th it is."""
        if self.is_packed:
            return self.numbers
        return self._once("ranks", lambda: np.cumsum(self.said.astype(np.int64)) - 1)

    @property
    def positions(self) -> Tracer:
        """The positions that count, first of all; then zeros."""
        if self.is_packed:
            return self.numbers
        return self._once("positions", self._positions)

    def _positions(self) -> Tracer:
        found = self.ops.wrap(self.ops.full(0, np.dtype(np.int64), (self.capacity,)))
        with unchecked(self.ops):
            # What is out of bounds is left out.
            found[np.where(self.said, self.ranks, self.capacity)] = self.numbers
        return found

    def packed(self) -> Extent:
        """The extent of as many elements, all of them in front."""
        return self if self.is_packed else Extent.of_count(self.ops, self.count, self.capacity)


@final
class unchecked:
    """Indices are known to be in bounds, or meant to be left out."""

    def __init__(self, ops: Operations):
        self.ops = ops

    def __enter__(self) -> None:
        self.before, self.ops.checks_indices = self.ops.checks_indices, False

    def __exit__(self, *exception: Any) -> None:
        self.ops.checks_indices = self.before


def is_visible(ops: Operations, made: Tracer) -> bool:
    """Whether something was made where it can be used."""
    frame = made.window.storage.frame
    return frame is None or frame in ops.frames


def _numbers(ops: Operations, capacity: int) -> Tracer:
    # Not ``np.arange``, a constant: a mask may have a billion elements.
    kind = ops.full(0, np.dtype(np.int64)).tensor_type.with_shape((capacity,))
    return ops.wrap(ops.builder.iota(kind, 0))


def _interned(extent: Extent) -> Extent:
    for other in extent.ops.extents:
        if (
            other.is_packed == extent.is_packed
            and other.capacity == extent.capacity
            and is_visible(extent.ops, other.said)
            and are_same(other.said.value, extent.said.value)
        ):
            return other
    extent.ops.extents.append(extent)
    return extent
