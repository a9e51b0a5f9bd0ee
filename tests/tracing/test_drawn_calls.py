"""What drawn calls of NumPy's functions have found: dtypes, infinities and options that were different without an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore")
INFINITE = [complex(np.inf, 0), complex(-np.inf, 0), complex(1, np.inf), complex(np.inf, -0.0), 0j, 1 + 2j]


def _assert_same(function: Callable[..., Any], *arguments: np.ndarray) -> None:
    theirs = function(*(each.copy() for each in arguments))
    ours = hlojit.jit(function)(*(each.copy() for each in arguments))
    assert (type(ours), ours.dtype, ours.shape) == (type(theirs), theirs.dtype, theirs.shape)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.parametrize("ufunc", [np.log2, np.log10, np.exp2])
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_logarithms_of_complex_infinities_and_zero(ufunc: np.ufunc, dtype: str) -> None:
    """A product with a complex constant had NaN in the other part."""
    _assert_same(lambda z: ufunc(z), np.array(INFINITE, dtype))


def test_differences_of_unsigned_integers_are_close() -> None:
    """They wrapped."""
    _assert_same(lambda a, b: np.isclose(a, b, atol=2), np.uint8([1, 7]), np.uint8([2, 200]))
    assert hlojit.jit(lambda a: np.allclose(a, a))(np.array([True, False])) is True


@pytest.mark.parametrize("dtype", ["?", "i4", "f8", "c16"])
def test_the_method_conj_keeps_truth_values_and_gives_real_arrays_themselves(dtype: str) -> None:
    def written(a: Any) -> Any:
        conjugate = a.conj()
        conjugate[0] = 1
        return conjugate + a

    _assert_same(written, np.array([0, 1, 1], dtype))


@pytest.mark.parametrize("dtype", ["i4", "f4", "?"])
def test_place_casts_arrays_safely(dtype: str) -> None:
    def placed(a: Any, values: Any) -> Any:
        np.place(a, a == a, values)
        return a

    with pytest.raises(TypeError, match="according to the rule 'safe'"):
        hlojit.jit(placed)(np.ones(3, dtype), np.array([1.0, 2.0]))


def test_roots_of_single_precision_complex_polynomials() -> None:
    _assert_same(lambda p: np.roots(p), np.array([1, 3, 2], "c8"))


@pytest.mark.parametrize("function", [np.any, np.sum, np.mean])
def test_masks_may_be_lists(function: Callable[..., Any]) -> None:
    _assert_same(lambda x: function(x, axis=1, where=[True, False, True]), np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("ufunc", [np.frexp, np.modf])
def test_casting_is_asked_of_operands(ufunc: np.ufunc) -> None:
    """It was dropped for ufuncs of several results."""
    with pytest.raises(TypeError):
        hlojit.jit(lambda x: ufunc(x, casting="no"))(np.array([1, 2], "i1"))


def test_casting_is_asked_of_operands_with_out() -> None:
    with pytest.raises(TypeError):
        hlojit.jit(lambda x, out: np.sin(x, out=out, casting="no"))(np.array([1, 2]), np.zeros(2))
    with pytest.raises(TypeError):
        hlojit.jit(lambda x, y: np.divmod(x, y, casting="no"))(np.array([1, 2]), np.array([1.0, 2.0]))


@pytest.mark.parametrize("function", [np.argsort, np.cumsum, np.cumprod, np.nancumsum, np.nancumprod])
def test_an_axis_of_a_number_is_an_integer(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="interpreted as an integer"):
        hlojit.jit(lambda x: function(x + x, axis=()))(np.array(1, "u1"))


def test_no_element_is_raised_to_a_negative_power() -> None:
    _assert_same(lambda x: np.power(x, -1), np.zeros(0, "i1"))


def test_transposing_by_no_axes() -> None:
    """An empty tuple reversed the axes, as no argument does."""
    with pytest.raises(ValueError, match="axes don't match array"):
        hlojit.jit(lambda x: x.transpose(()))(np.zeros((2, 3)))
    for transposed in (lambda x: x.transpose(), lambda x: x.transpose(None), lambda x: x.transpose(1, 0)):
        _assert_same(transposed, np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("value", "error"), [(np.nan, ValueError), (2j, TypeError), (300, OverflowError), ([1, -1], OverflowError)]
)
@pytest.mark.parametrize(
    "write",
    [
        lambda a, v: np.put(a, [0], v),
        lambda a, v: np.place(a, [True, False], v),
        lambda a, v: a.flat.__setitem__(slice(2), v),
    ],
)
def test_numbers_that_the_array_does_not_hold_are_not_put(write: Any, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        hlojit.jit(lambda a: write(a, value))(np.zeros(2, "u1"))


def test_choose_takes_no_unsigned_integers_of_64_bits() -> None:
    with pytest.raises(TypeError, match="according to the rule 'safe'"):
        hlojit.jit(lambda a: np.choose(a, [a, a]))(np.zeros(2, "u8"))


@pytest.mark.parametrize("value", [7, 2.5, [1, 2], [3.5, 4.5], True])
def test_numbers_are_written_through_flat(value: Any) -> None:
    def written(a: Any) -> Any:
        a.flat[:2] = value
        return a

    _assert_same(written, np.zeros((2, 2), "i4"))
