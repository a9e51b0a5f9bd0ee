"""Arrays whose length is known when the function runs: masks, ``np.nonzero``, ``np.unique``; NumPy is the oracle."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest

from tests.tracing.conftest import same

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(2, 41))
A = RNG.normal(size=(12, 3))
I = RNG.integers(-4, 5, 41)
WITH_NAN = np.where(X > 1, np.nan, X)

ALL, NONE, SOME = -10.0, 10.0, 0.2
"""Bounds that everything, nothing and a part is above."""


def leaves(result: Any) -> list[Any]:
    return [leaf for each in result for leaf in leaves(each)] if isinstance(result, (tuple, list)) else [result]


def compare(function: Callable[..., Any], *calls: tuple[Any, ...]) -> None:
    """One compiled function does in all these calls what it does with NumPy, errors included."""
    compiled = hlojit.jit(function)
    for arguments in calls:
        theirs, ours = (
            [np.copy(each, "K") if isinstance(each, np.ndarray) else each for each in arguments] for _ in "ab"
        )
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                expected = function(*theirs)
            except Exception as error:
                with pytest.raises(type(error)):
                    compiled(*ours)
                continue
            found = compiled(*ours)
        assert len(leaves(found)) == len(leaves(expected))
        for one, other in zip([*leaves(found), *ours], [*leaves(expected), *theirs]):
            same(one, other, ulps=64, atol=1e-14)


def reductions(x: Any, bound: Any) -> Any:
    v = x[x > bound]
    return v.sum(), v.prod(), v.any(), v.all(), len(v), v.size, v.mean(), v.var(), v.std(ddof=1), np.median(v), v.ndim


def extremes(x: Any, bound: Any) -> Any:
    v = x[x > bound]
    return (
        v.max(),
        v.min(),
        v.argmax(),
        v.argmin(),
        np.ptp(v),
        np.percentile(v, 30),
        v[0],
        v[-1],
        np.quantile(v, [0.2, 0.7]),
    )


def sorted_and_summed(x: Any, bound: Any) -> Any:
    v = x[x > bound]
    return np.sort(v), np.argsort(v), np.cumsum(v), v[::2], v[1:3], v[:-1] - v[1:], v[::-1], np.diff(v), v[v < 1], v


def elementwise(x: Any, y: Any, bound: Any) -> Any:
    m = x > bound
    return (
        x[m] * y[m] + 2,
        x[m] - y[x > bound],
        -x[m],
        x[m] > y[m],
        np.where(x[m] > 1, x[m], 0),
        np.clip(y[m], -1, 1),
        m.sum(),
    )


def products(x: Any, y: Any, a: Any, bound: Any) -> Any:
    m, rows = x > bound, a[a[:, 0] > bound]
    return (
        x[m] @ y[m],
        np.dot(x[m], y[m]),
        np.linalg.norm(x[m]),
        rows.T @ rows,
        rows @ a[0],
        np.linalg.norm(rows, axis=1),
    )


def rows_and_columns(a: Any, bound: Any) -> Any:
    m = a[:, 0] > bound
    return (
        a[m],
        a[m].mean(axis=0),
        a[m].sum(axis=1),
        a[m, 1],
        a[m][:, 1],
        a[:, 0][m],
        a[a > bound],
        a[m].T,
        a[:, a[0] > bound],
    )


def joined(x: Any, bound: Any) -> Any:
    m = x > bound
    both = np.concatenate([x[m], x[~m]])
    return both, both.sum(), np.concatenate([x[m], x]), np.hstack([x[m], x[m]]), np.stack([x[m], x[m] * 2])


def where_they_are(x: Any, a: Any, bound: Any) -> Any:
    (found,) = np.nonzero(x > bound)
    inner = (
        np.flatnonzero(x > bound),
        np.argwhere(a > bound),
        np.nonzero(a > bound),
        np.where(x > bound),
        (x > bound).nonzero(),
    )
    return found, x[found].sum(), a[np.nonzero(a > bound)], inner, np.compress(x > bound, x), np.extract(a > bound, a)


def sets(i: Any, j: Any, bound: Any) -> Any:
    v = i[i > bound]
    return (
        np.unique(v), np.unique(i, return_index=True, return_inverse=True, return_counts=True), np.isin(i, j), np.intersect1d(v, j),
        np.setdiff1d(i, j), np.union1d(v, j), np.setxor1d(v, j), np.unique(v, return_counts=True), len(np.unique(i)),
    )  # fmt: skip


def groups(keys: Any, values: Any) -> Any:
    found, index, counts = np.unique(keys, return_inverse=True, return_counts=True)
    sums = np.bincount(index, weights=values)
    return found, sums, sums / counts, np.bincount(index), sums[counts > 3]


def searches(x: Any, bound: Any) -> Any:
    ordered = np.sort(x[x > bound])
    return np.searchsorted(ordered, 0.7), np.searchsorted(ordered, x, side="right"), np.searchsorted(ordered, x[x < 1])


def writes(x: Any, y: Any, bound: Any) -> Any:
    m = y > bound
    x[m] += 1
    x[~m] = y[~m]
    x[x > 1.5] = 0
    x[y > 1] *= x[y > 1]
    x[np.nonzero(m)[0]] -= 0.5
    return x.sum()


def writes_of_rows(a: Any, bound: Any) -> None:
    a[a[:, 0] > bound, 1] = 0
    a[a > 1] = 1
    a[a[:, 2] > bound] = a[a[:, 2] > bound] * 2
    a[a[:, 1] > bound] += a[0]
    a[:, [True, False, True]] *= 2


def own_memory(x: Any, a: Any, bound: Any) -> Any:
    v = x[x > bound]
    v += 1
    v[v > 2] = 0
    v[1:3] = 7
    v.sort()
    rows = a[a[:, 0] > bound]
    for row in rows:
        row /= row.sum()  # noqa: PLW2901
    column = rows[:, 1]
    column[:] = column + 3
    rows.T[0] *= 2
    return v, x, rows


def loops(x: Any, bound: Any) -> Any:
    total, weighted = np.float64(0.0), np.float64(0.0)
    for v in x[x > bound]:
        total = total * 0.5 + v
    for k, (v, w) in enumerate(zip(x[x > bound], x[x > bound] * 2)):
        weighted = weighted + k * v * w
    left = x[x > -20]
    while left.max() > 0.5:
        left = left[left < left.max()]
    return total, weighted, left, left.sum()


def branches(x: Any, bound: Any) -> Any:
    m = x > bound
    if m.any():
        r, v = x[m].mean(), x[m]
    else:
        r, v = np.float64(-1.0), x[~m]
    kind = 1 if type(v) is np.ndarray and isinstance(v, np.ndarray) else 2
    return r, v, kind, x[m].size == 0, 0.5 in v


def broadcast(x: Any, bound: Any) -> Any:
    v = x[x > bound]
    return (
        v[:, None],
        v[None] + x[:3, None],
        v.reshape(-1, 1),
        v[:, None] - v[None],
        np.outer(v, x),
        v.reshape(1, -1),
        v.ravel(),
    )


FUNCTIONS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (reductions, (X,)), (reductions, (WITH_NAN,)), (reductions, (I,)), (reductions, (X.astype("f4"),)), (extremes, (X,)),
    (extremes, (I,)), (extremes, (WITH_NAN,)), (sorted_and_summed, (X,)), (elementwise, (X, Y)), (products, (X, Y, A)),
    (rows_and_columns, (A,)), (rows_and_columns, (np.asfortranarray(A),)), (where_they_are, (X, A)), (sets, (I, I[:7] + 2)),
    (sets, (X, X[:5])), (searches, (X,)), (writes, (X, Y)), (writes_of_rows, (A,)), (own_memory, (X, A)), (loops, (X,)),
    (branches, (X,)), (broadcast, (X,)), (joined, (X,)),
]  # fmt: skip


@pytest.mark.parametrize(("function", "arguments"), FUNCTIONS, ids=lambda each: getattr(each, "__name__", ""))
def test_masks_of_all_none_and_some_elements(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    compare(function, *((*arguments, bound) for bound in (SOME, ALL, NONE)))


def test_groups_by_unique_numbers() -> None:
    compare(groups, (I, X), (np.zeros(41, int), X))


def test_no_elements_at_all() -> None:
    compare(lambda x: (x[x > 0], x[x > 0].sum(), np.unique(x), np.nonzero(x), np.median(x[x > 0])), (X[:0],))
    compare(lambda x: x[x > 0].max(), (X[:0],))


def test_different_masks_must_name_as_many_elements() -> None:
    def added(x: Any, y: Any) -> Any:
        return x[x > 0] + y[y > 0]

    compare(added, (X, Y), (X, np.roll(X, 3)), (X, np.where(np.arange(41) == 5, 1.0, -1.0)))


def test_as_many_values_as_the_mask_names() -> None:
    def assigned(x: Any, v: Any) -> None:
        x[x > 0] = v

    count = int((X > 0).sum())
    compare(assigned, (X, Y[:count]))
    compare(assigned, (X, Y[: count - 1]))
    compare(assigned, (X, Y))
    compare(assigned, (X, Y[:1]))


def test_masks_that_do_not_fit() -> None:
    compare(lambda x, a: x[a[:, 0] > 0], (X, A))
    compare(lambda x, a: a[x > 0], (X, A))
    compare(lambda x: x[x > 100][0], (X,))
    compare(lambda x: x[x > 0][x > 0], (X,))
    compare(lambda a, m: a[m, [0, 1, 2]], (A, A[:, 0] > 0), (A, np.arange(12) < 3), (A, np.arange(12) < 1))


def test_what_is_not_selected_raises_nothing() -> None:
    compare(lambda a, b: a[b >= 0] ** b[b >= 0], (I, I - 2))
    compare(lambda x, i: x[i[i < 5]], (X, np.where(I > 2, 99, I)))


def test_known_masks_are_positions() -> None:
    compare(lambda x: (x[np.arange(41) % 3 == 0], x[[True] * 20 + [False] * 21].sum()), (X,))


def test_numbers_of_other_dtypes() -> None:
    small = np.abs(I).astype(np.uint8)
    compare(lambda i: (i[i > 2].sum(), i[i > 2].max(), np.bincount(i), np.bincount(i[i > 2]), np.unique(i)), (small,))
    compare(lambda b, x: (b[b], x[b].sum(), b[x > 0.5].all(), np.unique(b)), (X > 0, X))
    compare(lambda z: (z[z.real > 0], z[z.real > 0].sum(), z[z.real > 0].mean()), (X + 1j * Y,))
    compare(lambda x: (np.percentile(x[x > 0], [25, 75]), np.quantile(x[x > 0], np.float64(0.3))), (X.astype("f4"),))


def test_nan_and_zeros() -> None:
    x = np.array([1.0, np.nan, 3.0, -0.0, 0.0, np.nan, np.inf])
    compare(
        lambda x: (np.unique(x, return_counts=True), x[~np.isnan(x)].sum(), x[x != 0].max(), np.nansum(x[x != 1])), (x,)
    )


def test_slices_that_numpy_would_have_as_views_are_not_written() -> None:
    def by_the_array(a: Any) -> Any:
        v = a[a[:, 0] > 0]
        w, row = v[1:], v[0]
        row[:] = 0
        return w

    def by_the_slice(a: Any) -> Any:
        v = a[a[:, 0] > 0]
        v[1:][:] = 0
        return v

    def behind_a_branch(a: Any, c: Any) -> Any:
        v = a[a[:, 0] > 0]
        w = v[1:]
        row = w[0]
        if c > 0:
            row = row * 2
        del w
        v[:] = 0
        return row

    for function, arguments in ((by_the_array, (A,)), (by_the_slice, (A,)), (behind_a_branch, (A, 1.0))):
        with pytest.raises(hlojit.HlojitError, match="here such slices are copies; slice a copy"):
            hlojit.jit(function)(*arguments)
    compare(lambda x: (x[x > 0][1:].copy(), x[x > 0][1:] * 2), (X,))


REFUSED: list[tuple[Callable[..., Any], str]] = [
    (lambda x: x[x > 0].reshape(2, -1), r"only to \(-1,\)"),
    (lambda x: np.histogram(x[x > 0]), r"keep the length: np.where\(mask, x, 0\)"),
    (lambda x: list(x[x > 0]), "write a `for` statement"),
    (lambda x: np.zeros(len(x[x > 0])), "a number of elements"),
    (lambda x: x[x > 0].tolist(), "its elements are asked for"),
    (lambda x: 1 if x[x > 0] else 2, r"use .any\(\), .all\(\) or .size"),
    (lambda x: np.bincount(x.astype(int)), "how many these are at most"),
    (lambda x: hlojit.map(lambda row: row[row > 0], x.reshape(1, -1)), "is stacked or batched"),
    (lambda x: np.array([x[x > 0], x[x > 0]]), "its elements are asked for"),
    (lambda x: print(x[x > 0]), "its elements are asked for"),
]


@pytest.mark.parametrize(("function", "says"), REFUSED)
def test_what_needs_a_length_is_refused_with_what_to_write(function: Callable[..., Any], says: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=says):
        hlojit.jit(function)(X)


def test_derivatives_and_batches() -> None:
    gradient = hlojit.jit(hlojit.grad(lambda x: (x[x > 0] ** 2).sum() / x[x > 0].size))(X)
    np.testing.assert_allclose(gradient, np.where(X > 0, 2 * X, 0) / (X > 0).sum())
    np.testing.assert_allclose(hlojit.vmap(lambda row: row[row > 0].sum())(A), np.where(A > 0, A, 0).sum(axis=1))
    with pytest.raises(hlojit.HlojitError, match="is stacked or batched"):
        hlojit.vmap(lambda row: row[row > 0])(A)


def test_jitted_functions_take_and_give_them() -> None:
    inner = hlojit.jit(lambda v: v * 2 + v.mean())
    found = hlojit.jit(lambda x: {"v": inner(x[x > 0]), "n": [x[x > 0].size]})(X)
    np.testing.assert_allclose(found["v"], inner.function(X[X > 0]))
    assert found["n"] == [int((X > 0).sum())]


def test_nothing_is_moved_where_elements_are_reduced_or_written() -> None:
    def moved(x: Any, y: Any) -> Any:
        m = x > 0
        y[m] += x[m]
        return (x[m] * y[m]).mean()

    text = str(hlojit.jit(moved).lower(X, Y))
    assert not any(op in text for op in ("scatter", "gather", "sort", "while"))


def test_masks_of_several_dimensions_beside_slices_without_elements() -> None:
    def picked(a: Any, m: Any) -> Any:
        a[m, 2:2] += 1
        return a[m, 3:], a[..., 3:][m], a.T[3:, m.T], a[m][:, None]

    compare(picked, (RNG.normal(size=(2, 3, 3)), np.array([[True, False, True], [False, False, True]])))
