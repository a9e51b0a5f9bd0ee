"""``numpy.fft`` in traced functions, against NumPy on arrays: values, dtypes, shapes and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.tracing.numpy_functions.functions import FUNCTIONS

Array = np.ndarray[Any, Any]
GENERATOR = np.random.default_rng(5)
REAL = GENERATOR.standard_normal((3, 4, 10))
COMPLEX = REAL + 1j * GENERATOR.standard_normal((3, 4, 10))

ALL = [getattr(np.fft, name) for name in np.fft.__all__ if name not in ("fftfreq", "rfftfreq")]
NORMS: tuple[str | None, ...] = (None, "backward", "ortho", "forward")


def agree(function: Callable[..., Any], *arguments: Any) -> None:
    """The compiled function returns NumPy's array: errors are those of a transform, relative to its largest number."""
    expected = function(*arguments)
    found = hlojit.jit(function)(*arguments)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    bound = 16 * np.finfo(expected.dtype).eps * np.abs(expected).max(initial=1e-30)
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound)


def takes(function: Any, array: Array) -> bool:
    return array.dtype.kind != "c" or function.__name__ not in ("rfft", "rfft2", "rfftn", "ihfft")


@pytest.mark.parametrize("array", [REAL, COMPLEX, REAL.astype("f4"), COMPLEX.astype("c8"), (REAL * 9).astype("i2"), REAL.astype("f2"), REAL > 0],
                         ids=["f8", "c16", "f4", "c8", "i2", "f2", "?"])  # fmt: skip
def test_every_function_has_numpys_results_and_dtypes(array: Array) -> None:
    functions = [function for function in ALL if takes(function, array)]
    expected = [function(array) for function in functions]
    found = hlojit.jit(lambda x: [function(x) for function in functions])(array)
    for function, ours, theirs in zip(functions, found, expected):
        assert ours.dtype == theirs.dtype, function.__name__
        assert ours.shape == theirs.shape, function.__name__
        # NumPy rounds the factor 1 / n to f2 for these.
        kind = np.float16 if array.dtype == np.float16 else theirs.dtype
        bound = 16 * (np.finfo(kind).eps if theirs.dtype.kind in "fc" else 0) * np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound, err_msg=function.__name__)


def test_every_function_has_a_rule() -> None:
    """The frequencies depend on numbers of Python alone and need none."""
    assert {function.__name__ for function in ALL if function not in FUNCTIONS} == set()
    agree(lambda x: np.fft.fftfreq(10, 0.5) + np.fft.rfftfreq(18) * x, REAL)


@pytest.mark.parametrize("n", [1, 7, 10, 13])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_lengths_axes_and_norms_along_one_axis(name: str, n: int) -> None:
    function = getattr(np.fft, name)
    array = REAL if name in ("rfft", "ihfft") else COMPLEX

    def several(x: Any) -> list[Any]:
        return [function(x, n, axis, norm) for axis, norm in zip((-1, 0, 1, 2), NORMS)]

    for ours, theirs in zip(hlojit.jit(several)(array), several(array)):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-14 * np.abs(theirs).max())


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"])
def test_sizes_axes_and_norms_along_several(name: str) -> None:
    function = getattr(np.fft, name)
    array = REAL if name.startswith("rfft") else COMPLEX

    def several(x: Any) -> list[Any]:
        return [
            function(x, axes=(0, 2), norm="ortho"),
            function(x, (5, 3), (2, 0), "forward"),
            function(x, s=(-1, 6), axes=(1, 2)),
            function(x, s=(4, 8), axes=(-3, -2), norm="backward"),
            function(x, axes=(1,)),
            function(x, axes=(1, 2, 1)),
        ]

    for ours, theirs in zip(hlojit.jit(several)(array), several(array)):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-14 * np.abs(theirs).max())


def test_four_axes_are_transformed_one_after_the_other() -> None:
    array = COMPLEX.reshape(3, 2, 2, 10)
    for function in (np.fft.fftn, np.fft.ifftn, np.fft.irfftn, lambda x: np.fft.rfftn(x.real)):
        agree(function, array)


def test_no_axes_leave_the_array() -> None:
    agree(lambda x: np.fft.fftn(x, axes=()), REAL.astype("f4"))


@pytest.mark.parametrize("axes", [None, 1, (0, 2), -1, (1, 1)])
def test_shifts_undo_each_other(axes: Any) -> None:
    array = np.arange(60).reshape(3, 4, 5)
    agree_exactly = hlojit.jit(lambda x: (np.fft.fftshift(x, axes), np.fft.ifftshift(x, axes=axes)))
    forwards, backwards = agree_exactly(array)
    np.testing.assert_array_equal(forwards, np.fft.fftshift(array, axes), strict=True)
    np.testing.assert_array_equal(backwards, np.fft.ifftshift(array, axes), strict=True)


@pytest.mark.parametrize("shape", [(0, 4), (2, 1), (1,)])
def test_arrays_with_few_elements(shape: tuple[int, ...]) -> None:
    array = np.ones(shape)
    for function in (np.fft.fft, np.fft.ifft, np.fft.rfft):
        agree(function, array)
    agree(lambda x: np.fft.irfft(x, 3), array)


@pytest.mark.parametrize("length", [1009, 2 * 503, 4096, 6000])
def test_long_transforms(length: int) -> None:
    array = GENERATOR.standard_normal(length)
    agree(np.fft.fft, array)
    agree(np.fft.rfft, array.astype("f4"))
    agree(lambda x: np.fft.irfft(x, length), array)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: np.fft.fft(x, 0),
        lambda x: np.fft.fft(x, axis=3),
        lambda x: np.fft.fft(x, norm="orto"),
        lambda x: np.fft.rfft(x * 1j),
        lambda x: np.fft.irfft(x[..., :1]),
        lambda x: np.fft.fftn(x, (1, 2), (0,)),
        lambda x: np.fft.fft2(x[0, 0]),
        lambda x: np.fft.fft(x[:, :0], axis=1),
        lambda x: np.fft.hfft(x, norm="up"),
        lambda x: np.fft.fft(x, 2.5),
    ],
)
def test_errors_are_of_numpys_classes(wrong: Callable[[Any], Any]) -> None:
    with pytest.raises((ValueError, TypeError, IndexError)) as expected:
        wrong(REAL)
    with pytest.raises(expected.type):
        hlojit.jit(wrong)(REAL)
