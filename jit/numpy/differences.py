"""Functions whose meaning the standard gives otherwise than NumPy: written with NumPy's, and traced like them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


def sort(x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    """NumPy sorts upwards only."""
    made = np.sort(x, axis=axis, stable=stable)
    return np.flip(made, axis=axis) if descending else made


def argsort(x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    """Downwards, equal elements keep their order too: so it is the reversed one that is sorted, and then reversed."""
    if not descending:
        return np.argsort(x, axis=axis, stable=stable)
    backward = np.flip(np.argsort(np.flip(x, axis=axis), axis=axis, stable=stable), axis=axis)
    return x.shape[axis] - 1 - backward


def diff(x: Any, *, axis: int, n: int, prepend: Any, append: Any) -> Any:
    """None stands for nothing, which is another object in NumPy."""
    given = {name: each for name, each in (("prepend", prepend), ("append", append)) if each is not None}
    return np.diff(x, n=n, axis=axis, **given)


def searchsorted(x1: Any, x2: Any, *, side: Any, sorter: Any) -> Any:
    """With the array that is sorted already where there is a sorter."""
    return np.searchsorted(x1 if sorter is None else np.take(x1, sorter), x2, side=side)


class Unique(NamedTuple):
    """What ``unique_all`` gives."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """What ``unique_counts`` gives."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """What ``unique_inverse`` gives."""

    values: Any
    inverse_indices: Any


def unique_all(x: Any) -> Any:
    """NumPy's functions of these names have no rule, ``np.unique`` has."""
    return Unique(*np.unique(x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False))


def unique_counts(x: Any) -> Any:
    """The same with fewer results."""
    return UniqueCounts(*np.unique(x, return_counts=True, equal_nan=False))


def unique_inverse(x: Any) -> Any:
    """The same with fewer results."""
    return UniqueInverse(*np.unique(x, return_inverse=True, equal_nan=False))


def unique_values(x: Any) -> Any:
    """Sorted, as the standard permits and NumPy need not."""
    return np.unique(x, equal_nan=False)
