"""Functions that compute nothing, where the standard wants another result than NumPy gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np


@final
@dataclass(frozen=True, slots=True)
class FloatInfo:
    """What ``finfo`` gives: Python numbers, where NumPy has its scalars."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype[Any]


@final
@dataclass(frozen=True, slots=True)
class IntegerInfo:
    """What ``iinfo`` gives."""

    bits: int
    max: int
    min: int
    dtype: np.dtype[Any]


def finfo(type: Any, /) -> FloatInfo:
    """The limits of a dtype of floats or complex numbers, or of an array's."""
    found = np.finfo(type.dtype if _is_array(type) else type)
    eps, most, least, normal = map(float, (found.eps, found.max, found.min, found.smallest_normal))
    return FloatInfo(int(found.bits), eps, most, least, normal, np.dtype(found.dtype))


def iinfo(type: Any, /) -> IntegerInfo:
    """The limits of a dtype of integers, or of an array's."""
    found = np.iinfo(type.dtype if _is_array(type) else type)
    return IntegerInfo(int(found.bits), int(found.max), int(found.min), np.dtype(found.dtype))


def _is_array(given: Any) -> bool:
    """Whether it is an array and no type: classes of numbers have an attribute ``dtype``, too."""
    return not isinstance(given, (str, np.dtype)) and not callable(given) and hasattr(given, "dtype")


def broadcast_arrays(*arrays: Any) -> list[Any]:
    """A list, where NumPy has a tuple."""
    return list(np.broadcast_arrays(*arrays))


def meshgrid(*arrays: Any, indexing: Any = "xy") -> list[Any]:
    """A list, where NumPy has a tuple."""
    return list(np.meshgrid(*arrays, indexing=indexing))
