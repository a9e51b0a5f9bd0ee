"""NumPy's functions and methods, traced, against NumPy on arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.functions import FUNCTIONS

from .conftest import agree

X = np.array([[3, -1, 2, 7], [0, 5, -6, 4], [1, 1, -2, 8]])
Y = np.array([[1, 2, 0, 3], [2, 2, 1, 1], [0, 3, 3, 2]])

CASES: dict[Callable[..., Any], list[Callable[..., Any]]] = {
    np.dot: [lambda x, y: np.dot(x, y.T), lambda x, y: x.dot(y[0]), lambda x, y: np.dot(x[0], y[0]), lambda x, y: np.dot(2, x)],
    np.tensordot: [lambda x, y: np.tensordot(x, y, axes=([0], [0])), lambda x, y: np.tensordot(x, y), lambda x, y: np.tensordot(x, y.T, 1)],
    np.einsum: [lambda x, y: np.einsum("ij,kj->ik", x, y), lambda x, y: np.einsum("ij,ij->", x, y), lambda x, y: np.einsum("ij->ji", x)],
    np.outer: [lambda x, y: np.outer(x[0], y[1])],
    np.inner: [lambda x, y: np.inner(x, y), lambda x, y: np.inner(x[0], y[0])],
    np.vdot: [lambda x, y: np.vdot(x, y)],
    np.sum: [lambda x, y: np.sum(x), lambda x, y: x.sum(axis=0), lambda x, y: np.sum(x, axis=(0, 1), keepdims=True), lambda x, y: x.sum(-1, keepdims=True),
             lambda x, y: np.sum(x, where=y > 1), lambda x, y: np.sum(x, initial=5), lambda x, y: np.sum(x, dtype="f4")],
    np.prod: [lambda x, y: np.prod(x, axis=1), lambda x, y: x.prod(), lambda x, y: np.prod(x, initial=2)],
    np.max: [lambda x, y: x.max(), lambda x, y: np.max(x, axis=-1), lambda x, y: np.max(x, 0, keepdims=True), lambda x, y: np.max(x, initial=6)],
    np.min: [lambda x, y: x.min(), lambda x, y: np.min(x, axis=(0, 1)), lambda x, y: np.min(x[:0], initial=3)],
    np.amax: [lambda x, y: np.amax(x, axis=1)],
    np.amin: [lambda x, y: np.amin(x, axis=1)],
    np.any: [lambda x, y: np.any(x > 6, axis=1), lambda x, y: x.any()],
    np.all: [lambda x, y: np.all(x > -3, axis=0), lambda x, y: x.all(), lambda x, y: np.all(y, axis=1, keepdims=True)],
    np.mean: [lambda x, y: np.mean(x), lambda x, y: x.mean(axis=0), lambda x, y: x.mean(1, keepdims=True), lambda x, y: np.mean(x, dtype="f4")],
    np.var: [lambda x, y: np.var(x), lambda x, y: x.var(axis=1, ddof=1)],
    np.std: [lambda x, y: np.std(x, axis=0), lambda x, y: x.std(keepdims=True)],
    np.ptp: [lambda x, y: np.ptp(x), lambda x, y: np.ptp(x, axis=1)],
    np.count_nonzero: [lambda x, y: np.count_nonzero(y, axis=1), lambda x, y: np.count_nonzero(y > 1, axis=0, keepdims=True)],
    np.argmax: [lambda x, y: np.argmax(x), lambda x, y: x.argmax(axis=1), lambda x, y: np.argmax(y, axis=0, keepdims=True)],
    np.argmin: [lambda x, y: np.argmin(x), lambda x, y: x.argmin(axis=0), lambda x, y: np.argmin(y, axis=-1)],
    np.cumsum: [lambda x, y: np.cumsum(x), lambda x, y: x.cumsum(axis=1), lambda x, y: np.cumsum(x, axis=0, dtype="f8")],
    np.cumprod: [lambda x, y: np.cumprod(x, axis=0), lambda x, y: x.cumprod()],
    np.shape: [lambda x, y: x + np.shape(x)[0]],
    np.ndim: [lambda x, y: x + np.ndim(y)],
    np.size: [lambda x, y: x * np.size(y, 1)],
    np.reshape: [lambda x, y: np.reshape(x, (2, -1)), lambda x, y: x.reshape(12), lambda x, y: x.reshape(2, 3, 2), lambda x, y: x.reshape((4, -1))],
    np.ravel: [lambda x, y: np.ravel(x), lambda x, y: x.ravel(), lambda x, y: x.flatten()],
    np.transpose: [lambda x, y: x.T, lambda x, y: np.transpose(x, (1, 0)), lambda x, y: x.transpose(), lambda x, y: x.transpose(1, 0), lambda x, y: x[None].transpose((2, 0, -2))],
    np.permute_dims: [lambda x, y: np.permute_dims(x, (1, 0))],
    np.matrix_transpose: [lambda x, y: np.matrix_transpose(x[None]), lambda x, y: x.mT],
    np.rollaxis: [lambda x, y: np.rollaxis(x[None], 2), lambda x, y: np.rollaxis(x[None], 0, 3)],
    np.swapaxes: [lambda x, y: np.swapaxes(x, 0, -1), lambda x, y: x.swapaxes(0, 1)],
    np.moveaxis: [lambda x, y: np.moveaxis(x[None], 0, -1), lambda x, y: np.moveaxis(x[..., None], [0, 2], [-1, 0])],
    np.broadcast_to: [lambda x, y: np.broadcast_to(x[0], (5, 4)), lambda x, y: np.broadcast_to(x[:, :1], (2, 3, 7))],
    np.expand_dims: [lambda x, y: np.expand_dims(x, 1), lambda x, y: np.expand_dims(x, (0, -1))],
    np.squeeze: [lambda x, y: np.squeeze(x[:1]), lambda x, y: x[None, :, :1].squeeze(axis=0), lambda x, y: x[:, None].squeeze(1)],
    np.concatenate: [lambda x, y: np.concatenate([x, y]), lambda x, y: np.concatenate([x, y, x], axis=-1), lambda x, y: np.concatenate([x, y], axis=None),
                     lambda x, y: np.concatenate([x, np.ones((3, 1), "f4")], 1)],
    np.stack: [lambda x, y: np.stack([x, y]), lambda x, y: np.stack([x, y], axis=-1), lambda x, y: np.stack([x, y], 1)],
    np.vstack: [lambda x, y: np.vstack([x, y[0]]), lambda x, y: np.vstack([x, y])],
    np.hstack: [lambda x, y: np.hstack([x, y]), lambda x, y: np.hstack([x[0], y[0]])],
    np.split: [lambda x, y: np.split(x, 2, axis=1), lambda x, y: np.split(x, [1, 3], axis=1)],
    np.array_split: [lambda x, y: np.array_split(x, 3, axis=1), lambda x, y: np.array_split(x, 2)],
    np.flip: [lambda x, y: np.flip(x), lambda x, y: np.flip(x, 1), lambda x, y: np.flip(x, (0, 1))],
    np.roll: [lambda x, y: np.roll(x, 1), lambda x, y: np.roll(x, -3, axis=1), lambda x, y: np.roll(x, (1, 2), axis=(0, 1)), lambda x, y: np.roll(x, 9, 0)],
    np.tile: [lambda x, y: np.tile(x, 2), lambda x, y: np.tile(x, (2, 1, 3)), lambda x, y: np.tile(x[0], (2, 2))],
    np.repeat: [lambda x, y: np.repeat(x, 3), lambda x, y: x.repeat(2, axis=1)],
    np.pad: [lambda x, y: np.pad(x, 1), lambda x, y: np.pad(x, ((1, 0), (2, 3)), constant_values=5), lambda x, y: np.pad(x, (1, 2))],
    np.where: [lambda x, y: np.where(x > 1, x, y), lambda x, y: np.where(x > 1, x, 0), lambda x, y: np.where(y, 1.5, x), lambda x, y: np.where(x[0] > 0, x, y[:, :1])],
    np.clip: [lambda x, y: np.clip(x, 0, 4), lambda x, y: x.clip(min=1), lambda x, y: x.clip(None, 3), lambda x, y: np.clip(x, y - 1, y)],
    np.around: [lambda x, y: np.around(x / 4, 1)],
    np.round: [lambda x, y: np.round(x / 4, 1), lambda x, y: np.round(x * 0.5), lambda x, y: np.round(x)],
    np.sort: [lambda x, y: np.sort(x), lambda x, y: np.sort(x, axis=0), lambda x, y: np.sort(x, axis=None)],
    np.argsort: [lambda x, y: np.argsort(x), lambda x, y: x.argsort(axis=0), lambda x, y: np.argsort(y, kind="stable")],
    np.take: [lambda x, y: np.take(x, [0, 2], axis=0), lambda x, y: x.take([1, -1], axis=1), lambda x, y: np.take(x, y), lambda x, y: np.take(x, 3)],
    np.searchsorted: [lambda x, y: np.searchsorted(np.sort(x[0]), y), lambda x, y: np.sort(x[0]).searchsorted(y[1], side="right")],
    np.partition: [lambda x, y: np.partition(x, 1)[:, 1], lambda x, y: np.sort(np.partition(x, 2, axis=None)[:2])],
    np.argpartition: [lambda x, y: np.take_along_axis(x, np.argpartition(x, 1), 1)[:, 1]],
    np.choose: [lambda x, y: np.choose(x > y, [x, y]), lambda x, y: (x > 1).choose((y, 3))],
    np.copyto: [lambda x, y: (np.copyto(x, y), x)[1], lambda x, y: (np.copyto(x, y, where=x > 1), x)[1]],
    np.putmask: [lambda x, y: (np.putmask(x, x > 1, y), x)[1], lambda x, y: (np.putmask(x, y > 0, y[0, :2]), x)[1]],
    np.take_along_axis: [lambda x, y: np.take_along_axis(x, np.argsort(x, axis=1), axis=1), lambda x, y: np.take_along_axis(x, y[:1] % 3, axis=0)],
    np.tril: [lambda x, y: np.tril(x), lambda x, y: np.tril(x, 1), lambda x, y: np.tril(x, -1)],
    np.triu: [lambda x, y: np.triu(x), lambda x, y: np.triu(x, 2)],
    np.diagonal: [lambda x, y: np.diagonal(x), lambda x, y: x.diagonal(1), lambda x, y: np.diagonal(x, -1)],
    np.trace: [lambda x, y: np.trace(x), lambda x, y: x.trace(1)],
    np.linalg.norm: [lambda x, y: np.linalg.norm(x), lambda x, y: np.linalg.norm(x, axis=1), lambda x, y: np.linalg.norm(x[0], 1), lambda x, y: np.linalg.norm(x, np.inf, axis=0),
                     lambda x, y: np.linalg.norm(x, 2, axis=1, keepdims=True)],
    np.zeros_like: [lambda x, y: np.zeros_like(x), lambda x, y: np.zeros_like(x, dtype="i2", shape=(2,))],
    np.empty_like: [lambda x, y: np.full_like(np.empty_like(x), 3)],
    np.ones_like: [lambda x, y: np.ones_like(x, dtype=bool), lambda x, y: np.ones_like(x)],
    np.full_like: [lambda x, y: np.full_like(x, 7), lambda x, y: np.full_like(x, 3, dtype="f2")],
    np.copy: [lambda x, y: np.copy(x), lambda x, y: x.copy()],
    np.astype: [lambda x, y: np.astype(x, np.dtype("f4")), lambda x, y: x.astype("i1"), lambda x, y: x.astype(bool)],
    np.result_type: [lambda x, y: x.astype(np.result_type(x, y, np.float32))],
    np.isclose: [lambda x, y: np.isclose(x, x + 1e-9), lambda x, y: np.isclose(x, y, atol=2)],
    np.allclose: [lambda x, y: np.allclose(x, x), lambda x, y: np.allclose(x, y)],
    np.real: [lambda x, y: np.real(x), lambda x, y: np.real(x + 2j * y)],
    np.imag: [lambda x, y: np.imag(x), lambda x, y: np.imag(x + 2j * y)],
    np.angle: [lambda x, y: np.angle(x - 2), lambda x, y: np.angle(x + 2j * y), lambda x, y: np.angle(x + 2j * y, deg=True)],
    np.isreal: [lambda x, y: np.isreal(x), lambda x, y: np.isreal(x + 2j * y)],
    np.iscomplex: [lambda x, y: np.iscomplex(x), lambda x, y: np.iscomplex(x + 2j * y)],
    np.histogram: [lambda x, y: np.histogram(x, 4, (-3, 6)), lambda x, y: np.histogram(x, [-7, 0, 2, 9]), lambda x, y: np.histogram(x.astype("f8"), 3, weights=y)],
    np.meshgrid: [lambda x, y: np.meshgrid(x[0], y[1, :2]), lambda x, y: np.meshgrid(x[0], y[0], indexing="ij", sparse=True)],
    np.unravel_index: [lambda x, y: np.unravel_index(np.abs(x).astype(int), (3, 3))],
    np.ravel_multi_index: [lambda x, y: np.ravel_multi_index((y.astype(int), x.astype(int)), (4, 9), mode="wrap")],
    np.lib.stride_tricks.sliding_window_view: [lambda x, y: np.lib.stride_tricks.sliding_window_view(x, 2, axis=1).sum(axis=-1)],
    np.put: [lambda x, y: (np.put(x, [1, -1, 1], y[0]), x)[1], lambda x, y: (np.put(x, [99], 1, mode="clip"), x)[1]],
    np.place: [lambda x, y: (np.place(x, x > 1, [7, 8]), x)[1]],
    np.lexsort: [lambda x, y: np.lexsort((x, y)), lambda x, y: np.lexsort((x, y), axis=0)],
    np.broadcast_arrays: [lambda x, y: np.broadcast_arrays(x, y[0])],
    np.min_scalar_type: [lambda x, y: y.astype(np.min_scalar_type(x))],
    np.can_cast: [lambda x, y: x + np.can_cast(x, "f8")],
    np.packbits: [lambda x, y: np.packbits(x > 0, axis=1), lambda x, y: np.packbits(y > 1, bitorder="little")],
    np.unpackbits: [lambda x, y: np.unpackbits(y.astype("u1"), axis=0, count=5)],
    np.nanmedian: [lambda x, y: np.nanmedian(x), lambda x, y: np.nanmedian(np.where(y > 2, np.nan, x), axis=1)],
    np.nanquantile: [lambda x, y: np.nanquantile(np.where(y > 2, np.nan, x), [0.1, 0.7], axis=0)],
    np.nanpercentile: [lambda x, y: np.nanpercentile(x, 40, axis=1, keepdims=True)],
    np.polymul: [lambda x, y: np.polymul(x[0], y[1])],
    np.roots: [lambda x, y: np.roots(x[2]) if x.dtype != "f4" else x],
    np.isrealobj: [lambda x, y: np.where(np.isrealobj(x), x, y)],
    np.iscomplexobj: [lambda x, y: np.where(np.iscomplexobj(x), x, y)],
}  # fmt: skip


def test_every_function_of_the_table_has_a_case() -> None:
    # ``numpy.linalg`` and ``numpy.fft`` have files of their own.
    own = {function for function in FUNCTIONS if function.__module__ in ("numpy.linalg", "numpy.fft")}
    assert not {function.__name__ for function in set(FUNCTIONS) - own - set(CASES)}


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i1"])
@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_function_like_numpy(function: Callable[..., Any], dtype: str) -> None:
    x, y = X.astype(dtype), Y.astype("i4" if function in (np.take, np.take_along_axis) else dtype)
    for case in CASES[function]:
        try:
            with np.errstate(all="ignore"):
                case(x, y)
        except np.exceptions.DTypePromotionError:
            continue
        agree(case, x, y, ulps=16, atol=1e-6 if dtype == "f4" else 1e-14)


@pytest.mark.parametrize(
    "function", [np.sum, np.mean, np.max, np.argmax, np.cumsum, np.var, np.sort, np.round, np.prod, np.argmin]
)
@pytest.mark.parametrize("dtype", ["f2", "?", "u1", "i2", "u4"])
def test_dtypes_of_results(function: Callable[..., Any], dtype: str) -> None:
    if dtype == "?" and function is np.round:
        pytest.skip("NumPy rounds booleans to half precision")
    array = np.array([[1, 0, 3], [2, 2, 0]]).astype(dtype)
    agree(lambda x: function(x, axis=0) if function is not np.round else function(x), array)


def test_not_a_number_in_extremes_and_sorts() -> None:
    x = np.array([1.0, np.nan, -2.0, np.nan, np.inf, -0.0])
    agree(
        lambda x: [
            np.max(x),
            np.min(x),
            np.argmax(x),
            np.argmin(x),
            np.sort(x),
            np.argsort(x, kind="stable"),
            x.mean(),
            np.maximum.accumulate(x),
            np.any(x),
            np.isclose(x, x, equal_nan=True),
        ],
        x,
    )


@pytest.mark.parametrize("case", [
    lambda x: x.sum(axis=1), lambda x: np.prod(x), lambda x: x.cumsum(axis=1), lambda x: np.any(x), lambda x: np.sort(x, axis=1),
    lambda x: x @ x.T, lambda x: x.T @ x, lambda x: np.concatenate([x, np.ones((2, 3))], 1), lambda x: x.reshape(0, 5), lambda x: x[:, :0], lambda x: np.pad(x, 1),
    lambda x: x.max(axis=0),
])  # fmt: skip
def test_arrays_without_elements(case: Callable[..., Any]) -> None:
    agree(case, np.zeros((2, 0)))


@pytest.mark.parametrize("case", [
    lambda x: x.max(), lambda x: np.argmax(x[:, :0], axis=1), lambda x: x.reshape(5), lambda x: np.concatenate([x, x[0]]), lambda x: x.sum(axis=3), lambda x: x @ x,
    lambda x: np.broadcast_to(x, (3, 4)), lambda x: x.transpose(0, 0), lambda x: np.squeeze(x, 0), lambda x: np.stack([x, x[0]]), lambda x: np.split(x, 5), lambda x: len(x.sum()),
    lambda x: x + np.ones(7), lambda x: x[5], lambda x: x[0, 0, 0], lambda x: x[..., ...],
])  # fmt: skip
def test_errors_where_numpy_has_errors(case: Callable[..., Any]) -> None:
    array = next(each for each in (np.zeros((2, 3)), np.zeros((2, 0))) if _fails(case, each))
    with pytest.raises((ValueError, TypeError, IndexError, hlojit.HlojitError)):
        hlojit.jit(case)(array)


def _fails(case: Callable[..., Any], array: np.ndarray[Any, Any]) -> bool:
    try:
        case(array)
    except (ValueError, TypeError, IndexError):
        return True
    return False


def test_unknown_function_is_named() -> None:
    with pytest.raises(TracingError, match=r"np\.busday_offset cannot be compiled yet"):
        hlojit.jit(lambda x: np.busday_offset(x, x))(np.ones(3))


@pytest.mark.parametrize("kind", [int, np.int64, np.int8, np.intp])
def test_shapes_and_axes_are_whole_numbers_of_python_or_numpy(kind: Any) -> None:
    x = np.arange(3, dtype="f4")
    agree(lambda x: np.zeros_like(x, shape=kind(3)) + x, x)
    agree(lambda x: np.ones_like(x, shape=(kind(2), kind(3))) + x, x)
    agree(lambda x: np.full_like(x, 7, shape=[kind(2), kind(1)]) + x, x)
    agree(lambda x: np.broadcast_to(x[:1], kind(4)) + 1, x)
    agree(lambda x: np.expand_dims(x, kind(1)) + 1, x)
    agree(lambda x: np.tile(x, kind(2)), x)
    agree(lambda x: np.tile(x, (kind(2), kind(2))), x)
    agree(lambda x: np.tensordot(x, x, kind(1)), x)
    agree(lambda x: np.tensordot(x, x, (kind(0), kind(0))), x)
