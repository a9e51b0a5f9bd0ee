"""``hlojit.ShapeDtypeStruct``: shape and element type of an array without the array, for ``f.lower`` and ``f.eval_shape``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from hlojit.ir.errors import ArgumentError
from hlojit.tracing.arrays.kinds import as_kind
from hlojit.tracing.calls.arguments import is_array_like
from hlojit.tracing.tracer import Tracer


@final
class ShapeDtypeStruct:
    """What an array is, without its elements: ``ShapeDtypeStruct((128, 64), np.float32)``.

    ``dtype`` is what ``astype`` takes: whatever NumPy takes for one, an element type, or the name of one ("bf16").
    """

    __slots__ = ("dtype", "shape")

    shape: tuple[int, ...]
    dtype: Any

    def __init__(self, shape: Sequence[int], dtype: Any):
        try:
            object.__setattr__(self, "shape", tuple(map(operator.index, shape)))
            object.__setattr__(self, "dtype", as_kind(dtype))
        except TypeError as error:
            raise ArgumentError(
                f"ShapeDtypeStruct({shape!r}, {dtype!r}): {error}; for example ShapeDtypeStruct((4, 3), 'f8')"
            ) from None
        if any(size < 0 for size in self.shape):
            raise ArgumentError(f"ShapeDtypeStruct({shape!r}, {dtype!r}): sizes are not negative")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a ShapeDtypeStruct does not change; make another one instead of setting {name}")

    def __reduce__(self) -> Any:
        return ShapeDtypeStruct, (self.shape, self.dtype)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=object))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype})"


def described(leaf: Any) -> Any:
    """A description of what stands for an array; a number of the same kind for a traced one; anything else as it is."""
    if isinstance(leaf, Tracer):
        if leaf.weak is not None:
            return leaf.weak(0)
        return leaf.dtype.type(0) if leaf.is_scalar else ShapeDtypeStruct(leaf.shape, leaf.kind)
    if is_array_like(leaf) or not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        return leaf
    return ShapeDtypeStruct(leaf.shape, leaf.dtype)
