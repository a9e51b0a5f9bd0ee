"""Every ufunc of the table against NumPy, over dtypes: values, and NumPy 2's promotion."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.ufuncs import UFUNCS

from .conftest import agree

DTYPES = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u1", "?")
UNARY = sorted(name for name in UFUNCS if getattr(np, name).nin == 1)
BINARY = sorted(name for name in UFUNCS if getattr(np, name).nin == 2)
LOOSE = {"exp2": 40, "log2": 8, "log10": 8, "logaddexp": 16, "tan": 8, "hypot": 8}
NUMBERS = {
    "f": [0.0, -0.0, 0.25, 0.5, -0.75, 1.0, -1.0, 1.5, 2.5, -2.5, 3.0, 7.25, -8.0, np.inf, -np.inf, np.nan, 20.0],
    "i": [0, 1, -1, 2, -2, 3, -3, 5, 7, -7, 8, 13, 31, -31, 100, 127, -128],
    "u": [0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 31, 63, 100, 127, 128, 200, 255],
    "b": [True, False, True, True, False, False, True, False, True, True, False, False, True, False, True, True, False],
}


def numbers(dtype: str) -> np.ndarray[Any, Any]:
    return np.array(NUMBERS[np.dtype(dtype).kind], dtype)


def resolves(ufunc: np.ufunc, *arguments: Any) -> bool:
    """Whether NumPy has a loop for these arguments, and its result is a number that we have."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return ufunc(*arguments).dtype.kind in "fiub"
        except (TypeError, ValueError):
            return False


@pytest.mark.parametrize("name", UNARY)
def test_unary_ufunc_over_dtypes(name: str) -> None:
    ufunc = getattr(np, name)
    arrays = [numbers(dtype) for dtype in DTYPES if resolves(ufunc, numbers(dtype))]
    if name == "reciprocal":
        # 1 divided by the integer 0 is what the platform makes of it.
        arrays = [array[array != 0] if array.dtype.kind in "iub" else array for array in arrays]
    assert arrays
    agree(lambda *xs: [ufunc(x) for x in xs], *arrays, ulps=LOOSE.get(name, 4))


@pytest.mark.parametrize("name", BINARY)
def test_binary_ufunc_over_dtypes(name: str) -> None:
    ufunc = getattr(np, name)
    pairs = []
    for left, right in [*zip(DTYPES, DTYPES), ("i4", "f4"), ("i1", "u1"), ("i8", "u8"), ("?", "i2"), ("f2", "i1"),
                        ("f4", "f8"), ("u1", "f2"), ("u4", "i1")]:  # fmt: skip
        x, y = np.meshgrid(numbers(left), numbers(right))
        if name in ("left_shift", "right_shift"):
            # Shifts by negative numbers are undefined in NumPy.
            x, y = np.meshgrid(numbers(left), np.abs(numbers(right)[:9]).astype(right))
        if name in ("power", "float_power") and np.dtype(right).kind == "i" and np.dtype(left).kind != "f":
            y = np.abs(np.maximum(y, 0))
        if resolves(ufunc, x, y):
            pairs.append((x, y))
    assert pairs
    count = len(pairs)
    agree(
        lambda *xs: [ufunc(x, y) for x, y in zip(xs[:count], xs[count:])],
        *[x for x, _ in pairs],
        *[y for _, y in pairs],
        ulps=LOOSE.get(name, 4),
    )


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("number", [2, 2.0, True, -1])
def test_python_numbers_are_weak(name: str, number: Any) -> None:
    ufunc = getattr(np, name)
    arrays = [
        numbers(dtype)[1:9]
        for dtype in ("f4", "f2", "i4", "i1", "?", "f8")
        if resolves(ufunc, numbers(dtype)[1:9], number)
    ]
    if name in ("left_shift", "right_shift", "power", "float_power") and number == -1:
        arrays = [array for array in arrays if array.dtype.kind == "f"]
    if arrays:
        agree(lambda *xs: [ufunc(x, number) for x in xs], *arrays, ulps=LOOSE.get(name, 4))
    reverse = [array for array in arrays if resolves(ufunc, number, array)]
    if name in ("left_shift", "right_shift", "power", "float_power"):
        reverse = [np.abs(array) if array.dtype.kind == "i" else array for array in reverse]
    if reverse:
        agree(lambda *xs: [ufunc(number, x) for x in xs], *reverse, ulps=LOOSE.get(name, 4))


def test_python_number_out_of_range_is_refused_as_numpy_does() -> None:
    import hlojit

    with pytest.raises(OverflowError):
        hlojit.jit(lambda x: x + 300)(np.zeros(3, "i1"))


@pytest.mark.parametrize("number", [3, 2.5, True])
def test_python_number_arguments_are_weak(number: Any) -> None:
    for dtype in ("f4", "i2", "f8", "u1"):
        agree(lambda x, n: (x * n, n + x, n * 2, n), np.ones(3, dtype), number)


def test_operators_of_python() -> None:
    x, y = numbers("i4")[:8], np.array([1, 2, 3, -4, 5, 6, -7, 8], "i4")
    agree(
        lambda x, y: [
            x + y,
            x - y,
            x * y,
            x / y,
            x // y,
            x % y,
            -x,
            +x,
            abs(x),
            ~x,
            x & y,
            x | y,
            x ^ y,
            x << 2,
            x >> 1,
            x == y,
            x != y,
            x < y,
            x <= y,
            x > y,
            x >= y,
            2 - x,
            7 // y,
            7 % y,
            1 << abs(y),
            *divmod(x, y),
        ],
        x,
        y,
    )
    agree(lambda x, y: [x**2, x**0.5, 2.0**y, y**-1.0, x @ y, 1.0 / y], x.astype("f4"), y.astype("f4"))


def test_ufunc_methods() -> None:
    x, y = np.arange(12.0).reshape(3, 4), np.arange(5.0)
    agree(
        lambda x, y: [
            np.add.reduce(x),
            np.multiply.reduce(x, axis=1),
            np.maximum.reduce(x, axis=None),
            np.add.accumulate(x),
            np.maximum.accumulate(x, axis=1),
            np.multiply.outer(x, y),
            np.subtract.outer(y, x),
            np.logical_or.reduce(x, axis=0),
        ],
        x,
        y,
    )


def test_ufunc_with_dtype_and_out() -> None:
    def inside(x: Any, y: Any) -> Any:
        z = x.copy()
        np.add(x, y, out=z)
        z += 1
        z *= y
        return z, np.add(x, y, dtype="f8"), x

    agree(inside, np.arange(4, dtype="f4"), np.arange(4, dtype="f4") + 1)


def test_unknown_ufunc_and_where_are_refused() -> None:
    import hlojit

    with pytest.raises(TracingError, match="'isnat' cannot be compiled"):
        hlojit.jit(lambda x: np.isnat(x))(np.ones(3))
    with pytest.raises(TracingError, match="use np.where"):
        hlojit.jit(lambda x: np.add(x, x, where=x > 0))(np.ones(3))
