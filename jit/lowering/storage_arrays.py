"""Arrays as bytes in memory, laid out as a ``Storage`` says, and back: what layouts and packing mean, in NumPy.

>>> rows = np.arange(6, dtype="i1").reshape(2, 3)
>>> to_memory(rows, Storage.of(tensor((2, 3), "i8")).with_layout((0, 1))).tolist()
[0, 3, 1, 4, 2, 5]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.ir.formats import ElementType, IntegerType, element_type
from hlojit.ir.sizes import evaluate
from hlojit.lowering.storage import Storage

Array = np.ndarray[Any, Any]
Shapes = Sequence[Sequence[int]]


def element_of(storage: Storage) -> ElementType:
    """The element type, looked up by its name."""
    return element_type(storage.element)


def _positions(storage: Storage, shapes: Shapes) -> Array:
    """For every element, in row-major order, its number in memory."""
    shape = tuple(evaluate(size, shapes) for size in storage.shape)
    strides = [evaluate(stride, shapes) for stride in storage.strides]
    positions = np.zeros(shape, np.int64)
    for dimension, stride in enumerate(strides):
        along = [-1 if other == dimension else 1 for other in range(len(shape))]
        positions += (np.arange(shape[dimension]) * stride).reshape(along)
    return positions.reshape(-1)


def to_memory(array: Array, storage: Storage, shapes: Shapes = ()) -> Array:
    """The buffer's bytes; those that belong to no element are 0."""
    memory = np.zeros(evaluate(storage.nbytes, shapes), np.uint8)
    positions = _positions(storage, shapes)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(positions.size, storage.itemsize)
    whole = memory[storage.offset :]
    if storage.packing == 1:
        starts = positions * storage.itemsize
        for byte in range(storage.itemsize):
            whole[starts + byte] = flat[:, byte]
        return memory
    bits = _packed_bits(storage)
    shifts = (positions % storage.packing) * bits
    np.bitwise_or.at(whole, positions // storage.packing, (flat[:, 0] & ((1 << bits) - 1)) << shifts.astype(np.uint8))
    return memory


def from_memory(memory: Array, storage: Storage, shapes: Shapes = ()) -> Array:
    """A new array of the element type's storage dtype."""
    element = element_of(storage)
    shape = tuple(evaluate(size, shapes) for size in storage.shape)
    positions = _positions(storage, shapes)
    whole = memory[storage.offset :]
    if storage.packing == 1:
        columns = positions[:, None] * storage.itemsize + np.arange(storage.itemsize)
        return np.asarray(whole[columns].reshape(-1).view(element.storage).reshape(shape))
    bits = _packed_bits(storage)
    codes = whole[positions // storage.packing] >> ((positions % storage.packing) * bits).astype(np.uint8)
    codes = codes & ((1 << bits) - 1)
    if isinstance(element, IntegerType) and element.signed:
        codes = codes.astype(np.int8)
        codes = np.where(codes >= 1 << (bits - 1), codes - (1 << bits), codes)
    return np.asarray(codes.astype(element.storage).reshape(shape))


def _packed_bits(storage: Storage) -> int:
    assert storage.itemsize == 1, "elements are packed into bytes"
    return 8 // storage.packing
