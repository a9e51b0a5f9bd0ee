"""NumPy's functions whose own Python source is traced: equal to NumPy's results, in values, dtypes and Python types."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import hlojit
import numpy as np
import pytest

R = np.random.default_rng(0)
A, B, V, I = R.normal(size=(4, 5)), R.normal(size=(4, 5)), R.normal(size=12), R.integers(-5, 9, size=12)
S = np.sort(V)
N = A.copy()
N[1, 2] = N[3, 0] = np.nan

Case = tuple[Callable[..., Any], tuple[Any, ...]]
CASES: dict[str, Case] = {
    "append": (lambda a, b: np.append(a, b), (V, A)),
    "append ax": (lambda a, b: np.append(a, b, axis=0), (A, B)),
    "apply_over_axes": (lambda a: np.apply_over_axes(np.sum, a, [0, 1]), (A,)),
    "array_equal": (lambda a, b: (np.array_equal(a, b), np.array_equal(a, a), np.array_equal(a, b[0])), (A, B)),
    "array_equiv": (lambda a, b: np.array_equiv(a, b), (A, B)),
    "atleast": (lambda a, b: (np.atleast_1d(a[0, 0]), np.atleast_2d(b), np.atleast_3d(a)), (A, V)),
    "column_stack": (lambda a, b: np.column_stack([a, b]), (V, I)),
    "diag": (lambda a: (np.diag(a), np.diag(a[0]), np.diag(a, 1)), (A,)),
    "fill_diagonal": (lambda a: (np.fill_diagonal(a, 7), np.fill_diagonal(a.T, 3), a)[2], (A,)),
    "average": (
        lambda a, w: (np.average(a), np.average(a, axis=1, weights=w, returned=True), np.average(a, axis=0)),
        (A, np.arange(5.0)),
    ),
    "flat": (lambda a: (a.flat[3], a.flat[1:7:2], a.T.flat[[0, 2]], list(a.flat), len(a.flat)), (A,)),
    "dstack": (lambda a, b: np.dstack([a, b]), (A, B)),
    "corrcoef": (lambda a: np.corrcoef(a), (A,)),
    "cov": (lambda a: (np.cov(a), np.cov(a, rowvar=False, ddof=0)), (A,)),
    "cumulative_sum": (lambda a: np.cumulative_sum(a, axis=0), (A,)),
    "cumulative_prod": (lambda a: np.cumulative_prod(a, include_initial=True), (V,)),
    "diff": (lambda a: (np.diff(a), np.diff(a, 2, axis=0), np.diff(a, prepend=0)), (A,)),
    "dsplit": (lambda a: (np.hsplit(a, [2]), np.vsplit(a, 2)), (A,)),
    "fix": (lambda a: np.fix(a * 3), (A,)),
    "flips": (lambda a: (np.fliplr(a), np.flipud(a), np.rot90(a), np.rot90(a, 2)), (A,)),
    "gradient": (lambda a: (np.gradient(a), np.gradient(a[0], 0.5), np.gradient(a, axis=1, edge_order=2)), (A,)),
    "isneginf": (lambda a: (np.isneginf(a), np.isposinf(a)), (A,)),
    "ix_": (lambda a, i: a[np.ix_([0, 2], i)], (A, np.array([1, 3]))),
    "meshgrid ij": (lambda a, b: np.meshgrid(a, b, indexing="ij", sparse=True), (V, np.arange(3.0))),
    "polyval": (lambda p, x: np.polyval(p, x), (np.arange(4.0), V)),
    "polyfit": (lambda x, y: np.polyfit(x, y, 2), (S, V)),
    "put_along": (lambda a, i: (np.put_along_axis(a, i, 0.0, 1), a)[1], (A, np.array([[0], [1], [2], [3]]))),
    "resize": (lambda a: np.resize(a, (3, 3)), (V,)),
    "sinc": (lambda a: np.sinc(a), (V,)),
    "trapezoid": (lambda y, x: (np.trapezoid(y), np.trapezoid(y, x)), (V, S)),
    "diag_from": (lambda a: a[np.diag_indices_from(a)], (A[:, :4].copy(),)),
    "unstack": (lambda a: np.unstack(a), (A,)),
    "vander": (lambda a: (np.vander(a), np.vander(a, 3, increasing=True)), (V,)),
    "indices": (lambda a: np.indices(a.shape)[0] * a, (A,)),
    "mgrid": (lambda a: np.mgrid[0:4, 0:5][1] * a, (A,)),
    "fftfreq": (lambda a: np.fft.fftfreq(a.size) * a, (V,)),
    "divmod": (lambda a, b: np.divmod(a, b), (A, B)),
    "einsum_path": (lambda a, b: np.einsum("ij,kj->ik", a, b, optimize=True), (A, B)),
    "sort_complex": (lambda a: np.sort_complex(a + 1j), (V,)),
    "add.reduce": (
        lambda a: (
            np.add.reduce(a, 1),
            np.multiply.accumulate(a),
            np.maximum.reduce(a),
            np.subtract.outer(a, a),
            np.logical_and.reduce(a > 0),
        ),
        (A,),
    ),
    "copyto": (
        lambda a, b, c: (np.copyto(a, b, where=a > 0), np.copyto(a.T[1:], a.T[:-1]), np.copyto(c.real, 7), a, c)[3:],
        (A, B, V * 1j),
    ),
    "putmask": (lambda a, i: (np.putmask(a, a > 0, -1), np.putmask(i, i > 1, np.array([7, 8, 9])), a, i)[2:], (A, I)),
    "choose": (
        lambda i, a: (np.choose(i, [a, 2 * a, 3.0]), np.choose(i - 1, [1, 2], mode="wrap"), i.choose([a, a, a])),
        (np.array([0, 1, 2], "i1"), np.arange(3, dtype="f4")),
    ),
    "partition": (
        lambda a: (np.sort(np.partition(a, 3)[:3]), np.sort(a[np.argpartition(a, 3)[:3]]), a.partition(2), a[2])[:2],
        (V,),
    ),
    "searchsorted": (
        lambda a, v, n: (np.searchsorted(a, v), a.searchsorted(n.ravel(), "right"), np.searchsorted(a, 0.5)),
        (S, V, N),
    ),
    "median": (lambda a, n: (np.median(a), np.median(a, axis=0), np.median(n, axis=1, keepdims=True)), (A, N)),
    "nan_to_num": (lambda a: (np.nan_to_num(a), np.nan_to_num(a, nan=5), np.nan_to_num(a + 1j)), (N,)),
    "nanarg": (lambda a: (np.nanargmax(a, axis=0), np.nanargmin(a)), (N,)),
    "nancum": (lambda a: (np.nancumsum(a, axis=0), np.nancumprod(a)), (N,)),
    "nansum": (lambda a: (np.nansum(a), np.nanprod(a, axis=1)), (N,)),
    "nanmax": (lambda a: (np.nanmax(a, axis=0), np.nanmin(a), np.fmin.reduce(a, axis=1, keepdims=True)), (N,)),
    "i0": (lambda a: np.i0(a), (V,)),
    "unwrap": (lambda a: np.unwrap(a * 3), (V,)),
    "piecewise": (lambda a: np.piecewise(a, [a < 0, a >= 0], [lambda x: -x, 2.0]), (V,)),
    "poly": (
        lambda p, q: (np.polyadd(p, q), np.polysub(p, q), np.polyder(p, 2), np.polyint(p)),
        (np.arange(1.0, 4.0), V[:4].copy()),
    ),
    "histogram": (lambda a: np.histogram(a, bins=[-1, 0, 0.5, 2]), (V,)),
    "tri_from": (lambda a: a[np.tril_indices_from(a)] + a[np.triu_indices_from(a[:4, :4])].sum(), (A,)),
    "row_stack": (lambda a: np.broadcast_shapes(a.shape, (3, 1, 5)), (A,)),
}


def leaves(result: Any) -> Iterator[Any]:
    if isinstance(result, (tuple, list)):
        for each in result:
            yield from leaves(each)
    else:
        yield result


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_equal_to_numpy(case: Case) -> None:
    function, arguments = case
    own, theirs = copy.deepcopy(arguments), copy.deepcopy(arguments)
    expected, found = list(leaves(function(*own))), list(leaves(hlojit.jit(function)(*theirs)))
    assert [type(each) for each in found] == [type(each) for each in expected]
    for a, b in zip(found, expected):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    for a, b in zip(theirs, own):
        np.testing.assert_allclose(a, b, rtol=1e-12)


REFUSED: dict[str, Case] = {
    "copyto kinds": (lambda i, a: np.copyto(i, a), (np.arange(3), np.arange(3.0))),
    "copyto number": (lambda i: np.copyto(i, 1.5), (np.arange(3),)),
    "copyto range": (lambda i: np.copyto(i, 300), (np.arange(3, dtype=np.int8),)),
    "copyto shape": (lambda a, i: np.copyto(a, i[:2], where=a > 1), (np.arange(3.0), np.arange(3))),
    "copyto mask": (lambda a: np.copyto(a, 1, where=np.ones(2, bool)), (np.arange(3.0),)),
    "putmask kinds": (lambda i, a: np.putmask(i, i > 1, a), (np.arange(3), np.arange(3.0))),
    "putmask size": (lambda a: np.putmask(a, a[:2] > 1, a), (np.arange(3.0),)),
    "partition": (lambda a: np.partition(a, 3), (np.arange(3.0),)),
    "choose": (lambda i: np.choose(i, [i, i]), (np.arange(3),)),
    "searchsorted": (lambda a: np.searchsorted(a, 1, side="x"), (np.arange(3.0),)),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_the_errors_of_numpy(case: Case) -> None:
    function, arguments = case
    with pytest.raises((TypeError, ValueError, OverflowError)) as expected:
        function(*copy.deepcopy(arguments))
    with pytest.raises(expected.type, match=re.escape(str(expected.value))):
        hlojit.jit(function)(*copy.deepcopy(arguments))
