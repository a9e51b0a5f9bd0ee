"""NumPy's functions whose own Python source is traced: equal to NumPy's results, in values, dtypes and Python types."""

from __future__ import annotations

import copy
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
    "real_if_close": (lambda a: np.real_if_close(a), (A,)),
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
