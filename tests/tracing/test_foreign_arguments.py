"""Arrays of other libraries as arguments: without a copy, or refused by name where something would be lost."""

from __future__ import annotations

import array
import tracemalloc
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.tracing import TracingError
from hlojit.tracing.calls.arguments import as_arrays

from tests.elsewhere import processors_only

X = np.arange(6.0)


class Exported:
    """An array by DLPack alone."""

    def __init__(self, elements: Any):
        self.elements = elements

    def __dlpack__(self, **options: Any) -> Any:
        return self.elements.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.elements.__dlpack_device__()


class Interface:
    """An array by its description alone."""

    def __init__(self, elements: Any):
        self.elements = elements
        self.__array_interface__ = elements.__array_interface__


class Column:
    """A column as dataframes have it: an array by NumPy's protocol, some of whose values may be missing."""

    def __init__(self, elements: Any, missing: int = 0):
        self.elements, self.null_count = elements, missing

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.elements if dtype is None else self.elements.astype(dtype)


class CountedColumn(Column):
    """One whose count of missing values is a method."""

    def __init__(self, elements: Any, missing: int = 0):
        super().__init__(elements)
        self.null_count = lambda: missing  # type: ignore[assignment]


class Series(Column):
    """With a dtype of its own, and ``isna``."""

    def __init__(self, elements: Any, missing: int = 0):
        self.elements, self.dtypes = elements, "Int64"
        self.missing = np.arange(len(elements)) < missing

    def isna(self) -> Any:
        return self.missing


def address(value: Any) -> int:
    """Of the array that is given to the program."""
    return int(as_arrays([value], lambda: ["x"])[0].ctypes.data)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [np.asarray, Exported, Interface, Column, CountedColumn, Series, memoryview])
def test_arguments_are_not_copied(kind: Any) -> None:
    value = kind(X)
    assert address(value) == X.ctypes.data
    np.testing.assert_array_equal(hlojit.jit(lambda x: x * 2)(value), X * 2)
    np.testing.assert_array_equal(hlojit.grad(lambda x: (x * x).sum())(value), X * 2)
    np.testing.assert_array_equal(hlojit.jit(lambda d: d["a"][0] + 1)({"a": [value]}), X + 1)


@processors_only
@pytest.mark.parametrize("kind", [np.asarray, Exported, Column])
def test_calls_allocate_nothing_of_the_size_of_their_arguments(kind: Any) -> None:
    big = np.ones(1 << 18)
    f, value = hlojit.jit(lambda x: x.sum()), kind(big)
    for _ in range(3):
        assert f(value) == big.size
    tracemalloc.start()
    try:
        f(value)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < big.nbytes // 4


def test_results_go_on_without_a_copy() -> None:
    made = hlojit.jit(lambda x: x * 2)(X)
    assert made.flags.owndata or made.base is not None
    assert np.from_dlpack(made).ctypes.data == made.ctypes.data
    assert np.asarray(memoryview(made)).ctypes.data == made.ctypes.data


@processors_only
def test_a_donated_argument_is_the_result() -> None:
    x = np.ones(1000)
    where = x.ctypes.data
    assert hlojit.jit(lambda x: x + 1, donate_argnums=0)(x).ctypes.data == where


def test_jax_arrays() -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.arange(6.0, dtype="float32")
    assert address(x) == x.unsafe_buffer_pointer()
    made = hlojit.jit(lambda x: x * 2)(x)
    assert type(made) is np.ndarray and made.dtype == np.float32
    np.testing.assert_array_equal(jax.dlpack.from_dlpack(made), made)


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(6.0)
    assert address(x) == x.data_ptr()
    made = hlojit.jit(lambda x: x * 2)(x)
    assert torch.from_dlpack(made).data_ptr() == made.ctypes.data


def test_pandas_columns() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": X, "b": X + 1})
    assert address(frame["a"]) == frame["a"].to_numpy().ctypes.data
    total = hlojit.jit(lambda columns: columns["a"] + columns["b"])(dict(frame))
    np.testing.assert_array_equal(total, 2 * X + 1)
    np.testing.assert_array_equal(hlojit.jit(lambda x: x + 1)(pandas.Series([1, 2], dtype="Int64")), [2, 3])
    for column, says in (
        (pandas.Series([1, None], dtype="Int64"), "1 of its values are missing"),
        (pandas.Series(pandas.date_range("2020", periods=2)), r"datetime64.*\.astype\(np\.int64\)"),
        (pandas.Series(["a", "b"]), "Python objects"),
    ):
        with pytest.raises(hlojit.ArgumentError, match=f"argument x: .*{says}"):
            hlojit.jit(lambda x: x)(column)


def test_arrow_columns() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    column = pyarrow.array(X)
    assert address(column) == column.buffers()[1].address
    with pytest.raises(
        hlojit.ArgumentError, match=r"argument x: the Int64Array: 1 of its values are missing.*\.fill_null"
    ):
        hlojit.jit(lambda x: x)(pyarrow.array([1, None]))


# ---------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("kind", [Column, CountedColumn, Series])
def test_missing_values_are_refused(kind: Any) -> None:
    column = kind(X, 2)
    says = f"the {kind.__name__}: 2 of its values are missing"
    with pytest.raises(hlojit.ArgumentError, match=f"argument x: {says}"):
        hlojit.jit(lambda x: x * 2)(column)
    with pytest.raises(TracingError, match=f"column of type {kind.__name__}: 2 of its values are missing"):
        hlojit.jit(lambda x: x * column)(X)
    with pytest.raises(TracingError, match=r"result\[1\]: .*2 of its values are missing"):
        hlojit.jit(lambda x: (x, column))(X)
    with pytest.raises(hlojit.ArgumentError, match="argument 0: 2 of its values are missing"):
        hlojit.compile(hlojit.jit(lambda x: x * 2).lower(X))(column)


OUTSIDE: list[tuple[Any, str]] = [
    (np.ma.masked_less(X, 2), r"MaskedArray.*filled"),
    (np.array(["2020-01-01"], "M8[D]"), r"datetime64\[D\].*\.astype\(np\.int64\)"),
    (np.array([1], "m8[s]"), r"timedelta64\[s\].*\.astype\(np\.int64\)"),
    (np.array([1, None], object), r"object.*\.astype\(float\)"),
    (np.array(["a"]), r"<U1.*texts stay outside"),
    (np.zeros(2, "i4,f8"), "fields as arrays of their own"),
]


@pytest.mark.parametrize(("value", "says"), OUTSIDE, ids=[each[1][:8] for each in OUTSIDE])
def test_arrays_that_are_no_numbers_are_refused_by_name(value: Any, says: str) -> None:
    with pytest.raises(hlojit.ArgumentError, match=f"argument x: .*{says}"):
        hlojit.jit(lambda x: x)(value)
    for transform in (hlojit.grad, hlojit.vmap):
        with pytest.raises(hlojit.ArgumentError, match=f"argument x: .*{says}"):
            transform(lambda x: x.sum())(value)
    with pytest.raises((TracingError, TypeError), match=says):
        hlojit.jit(lambda x: np.concatenate([x, value]))(X)
    with pytest.raises(TracingError, match=f"value of type .*{says}"):
        hlojit.jit(lambda x: hlojit.cond(x[0] > 0, lambda: x, lambda: value))(X)
    with pytest.raises(TracingError, match=rf"result\['k'\]: value of type .*{says}"):
        hlojit.jit(lambda x: {"k": value})(X)


def test_what_numpy_views_is_taken() -> None:
    np.testing.assert_array_equal(hlojit.jit(lambda x: x + 1)(array.array("d", X)), X + 1)
    np.testing.assert_array_equal(hlojit.jit(lambda x: x + 1)(X.astype(">f8")), X + 1)
    np.testing.assert_array_equal(hlojit.jit(lambda x: x + 1)(Exported(X[::2])), X[::2] + 1)
    captured = Exported(X)
    np.testing.assert_array_equal(hlojit.jit(lambda x: x + captured)(X), 2 * X)
