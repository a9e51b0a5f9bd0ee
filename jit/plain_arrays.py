"""Whatever holds an array, as a NumPy array: what programs take besides ``Array``.

as_ndarray(torch.arange(3), "an array", "argument 0")      # a view where the library's protocol allows
"""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np
from hlojit.ir.errors import ArgumentError
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.types import TensorType

NDArray = np.ndarray[Any, Any]

_SEQUENCES: Final = (list, tuple, set, dict, str)


def described_array(source: NDArray) -> str:
    """An array in errors."""
    shape = ", ".join(map(str, source.shape)) + ("," if source.ndim == 1 else "")
    return f"an array of dtype {source.dtype} and shape ({shape})"


def with_shape(source: NDArray, type_: TensorType, where: str) -> NDArray:
    """The array, if it has a type's shape; else an ``ArgumentError`` that begins with ``where``."""
    if source.shape != type_.shape:
        raise ArgumentError(f"{where}: expected {type_}, got {described_array(source)}")
    return source


def plain(source: NDArray, storage: np.dtype[Any], where: str) -> NDArray:
    """C-contiguous, aligned, of a storage dtype and of no subclass; the array itself where it is so."""
    try:
        if source.dtype != storage:
            source = source.astype(storage)
        result = np.require(np.asarray(source), requirements=("C", "A"))
    except MemoryError:
        needed = source.size * storage.itemsize
        raise ArgumentError(f"{where}: no memory for a copy of {described_array(source)} ({needed:,} bytes)") from None
    # Two dtype objects can be equal; the call path compares addresses.
    return result if result.dtype is storage and type(result) is np.ndarray else result.view(np.ndarray).view(storage)


def as_ndarray(value: object, type_: TensorType | str, where: str) -> NDArray:
    """View a foreign array as a NumPy array, without a copy where its protocol allows."""
    # Not numpy.ma: reading it imports the module, which nobody has need of who has no masked array.
    masked = getattr(sys.modules.get("numpy.ma.core"), "MaskedArray", ())
    if isinstance(value, masked):
        raise ArgumentError(f"{where}: a masked array; its mask would be lost: pass .filled(...) or .data")
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    if value is None or isinstance(value, _SEQUENCES):
        raise ArgumentError(
            f"{where}: expected {type_}, got a Python {type(value).__name__}; pass an array "
            "(numpy.asarray(...) makes one)"
        )
    require_complete(value, where)
    if hasattr(value, "__dlpack__"):
        with fork_gate.inside:
            from hlojit.runtime.dlpack import from_dlpack

        return from_dlpack(value, where)
    try:
        if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
            return np.asarray(value)
        return np.asarray(memoryview(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError) as error:
        raise ArgumentError(
            f"{where}: expected {type_}, got an object of type {type(value).__name__}, which is not an array "
            f"(no DLPack, no buffer protocol, no array interface): {error}"
        ) from error


def on_the_host(value: object, where: str) -> NDArray:
    """A foreign array, number or sequence as NumPy takes it, through DLPack where that does; what is on a device is copied."""
    require_complete(value, where)
    if not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    try:
        return as_ndarray(value, "an array", where)
    except ArgumentError:
        if not hasattr(value, "__array__"):
            raise
        return np.asarray(value)


def require_complete(value: object, where: str) -> None:
    """Raise ``ArgumentError`` for columns with missing values: NumPy's protocol makes NaN of them, and floats of integers."""
    if isinstance(value, (np.ndarray, np.generic, bool, int, float, complex)) or not hasattr(value, "__array__"):
        return
    missing = _missing(value)
    if missing:
        raise ArgumentError(
            f"{where}: {missing} of its values are missing (null, NA), and would become NaN; fill them (.fill_null(0), "
            ".fillna(0)) or leave them out (.drop_null(), .dropna())"
        )


def _missing(value: Any) -> int:
    """How many values are missing: Arrow's nulls (PyArrow, Polars), NA of pandas' own types; NaN is a number."""
    if hasattr(value, "null_count"):
        count = value.null_count() if callable(value.null_count) else value.null_count
        return int(np.sum(np.asarray(count)))
    if hasattr(value, "isna"):
        dtypes: Any = getattr(value, "dtypes", None)
        kinds = list(dtypes) if hasattr(dtypes, "__iter__") else [dtypes]
        return 0 if all(isinstance(kind, np.dtype) for kind in kinds) else int(np.sum(np.asarray(value.isna())))
    return sum(map(_missing, value.columns)) if hasattr(value, "__arrow_c_stream__") else 0
