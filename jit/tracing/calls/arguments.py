"""What can be an argument of a jitted function, and what of it a compiled form depends on."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import numpy as np
from hlojit.arrays import Array, NDArray, row_of_now
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.ir.formats import element_type_of
from hlojit.ir.types import TensorType, tensor
from hlojit.plain_arrays import on_the_host
from hlojit.tracing.arrays.layouts import strides_of


def signature_of_array(leaf: Any, array: NDArray | Array) -> Hashable:
    """What of an argument a compiled form depends on."""
    if type(leaf) is np.ndarray:
        return leaf.shape, leaf.dtype, None if leaf.flags.c_contiguous else strides_of(leaf)
    # The Python type, too: a Python number takes part in arithmetic in another way than an array.
    kind = array.element_type if isinstance(array, Array) else array.dtype
    return type(leaf), array.shape, kind


def without_layout(signature: Any) -> Any:
    return (*signature[:2], "any layout") if not isinstance(signature[0], type) else signature


def as_array(leaf: Any) -> NDArray | Array:
    if isinstance(leaf, np.ndarray):
        return _of_no_subclass(leaf)
    if isinstance(leaf, Array):
        return leaf
    if isinstance(leaf, str) or callable(leaf):
        raise ArgumentError(
            f"{leaf!r} of type {type(leaf).__name__} is not an array; name the argument in static_argnames"
        )
    array = on_the_host(leaf, "an argument of a jitted function")
    if array.dtype == object:
        raise ArgumentError(
            f"{leaf!r} of type {type(leaf).__name__} is not an array; name the argument in static_argnames"
        )
    return array


def _of_no_subclass(leaf: NDArray) -> NDArray:
    """An array in memory or in a file; subclasses mean something else by their operators."""
    if type(leaf) in (np.ndarray, np.memmap):
        return leaf
    raise ArgumentError(
        f"an argument is of type {type(leaf).__name__}, a subclass of NumPy's arrays with a meaning of its own, which would be "
        "lost: pass np.asarray(x)" + (", or x.filled(...)" if hasattr(leaf, "filled") else "")
    )


_ADVICE: Final = {
    "O": ": its elements are Python objects; convert it to numbers: .astype(float)",
    "U": ": texts stay outside; pass numbers (names == 'a' are booleans, np.unique(names, return_inverse=True)[1] codes)",
    "S": ": texts stay outside; pass numbers (names == b'a' are booleans, np.unique(names, return_inverse=True)[1] codes)",
    "M": ": pass the dates as integers: .astype(np.int64)",
    "m": ": pass the durations as integers: .astype(np.int64)",
    "V": ": pass the fields as arrays of their own",
}
"""What to write instead, by the kind of the dtype."""


def type_of(array: NDArray | Array) -> TensorType:
    if isinstance(array, Array):
        return array.type.with_element_type(row_of_now(array.element_type))
    try:
        return tensor(array.shape, element_type_of(array.dtype))
    except HlojitError as error:
        raise ArgumentError(f"{error}{_ADVICE.get(array.dtype.kind, '')}") from None
