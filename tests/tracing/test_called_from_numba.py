"""Jitted functions that code compiled by numba calls; NumPy is the oracle."""

from __future__ import annotations

import threading
from typing import Any

import hlojit
import numpy as np
import pytest

from tests.elsewhere import processors_only

numba: Any = pytest.importorskip("numba")
pytestmark = processors_only


@hlojit.jit
def model(x: Any, w: Any) -> Any:
    return np.tanh(x @ w) + 0.5


def test_a_loop_of_numba_calls_it() -> None:
    @numba.njit
    def simulate(x: Any, w: Any, steps: Any) -> Any:
        for _ in range(steps):
            x = model(x, w)
        return x

    for rows, size in ((3, 5), (2, 7), (0, 4)):
        x = expected = np.random.default_rng(1).normal(size=(rows, size))
        w = np.random.default_rng(2).normal(size=(size, size))
        for _ in range(6):
            expected = np.tanh(expected @ w) + 0.5
        np.testing.assert_allclose(simulate(x, w, 6), expected, rtol=1e-12)
        np.testing.assert_allclose(simulate(x, w.T.copy().T, 6), expected, rtol=1e-12)


def test_as_an_argument_and_of_a_closure() -> None:
    @hlojit.jit
    def double(x: Any) -> Any:
        return x * 2

    @numba.njit
    def apply(f: Any, x: Any) -> Any:
        return f(x) + double(x=x)

    np.testing.assert_array_equal(apply(double, np.arange(6.0)[::-2]), np.arange(6.0)[::-2] * 4)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u1", "?", "c16"])
def test_element_types_are_numpys(dtype: str) -> None:
    function = hlojit.jit(lambda x, s: (x + s, x[0], x.sum()))

    @numba.njit
    def caller(x: Any, s: Any) -> Any:
        return function(x, s)

    x = np.array([1, 0, 3], dtype)
    found, first, total = caller(x, 2)
    assert found.dtype == (x + 2).dtype
    np.testing.assert_array_equal(found, x + 2)
    assert (first, total) == (x[0], x.sum())


def test_numbers_of_64_bits_are_pythons_and_others_numpys() -> None:
    function = hlojit.jit(lambda x, s: x * s)

    @numba.njit
    def caller(x: Any, s: Any) -> Any:
        return function(x, s)

    x = np.ones(3, "f4")
    assert caller(x, 2.0).dtype == "f4"
    assert caller(np.ones(3, "i1"), np.float32(2)).dtype == (np.ones(3, "i1") * np.float32(2)).dtype


def test_tuples_of_arrays_and_nothing_returned() -> None:
    @hlojit.jit
    def step(pair: Any) -> Any:
        return pair[0] + pair[1], pair[1].max()

    @hlojit.jit
    def write(x: Any, value: Any) -> None:
        x[0] = value

    @numba.njit
    def caller(x: Any, y: Any) -> Any:
        write(x, 5.0)
        return step((x, y))

    x, y = np.zeros(3), np.arange(3.0)
    found, most = caller(x, y)
    np.testing.assert_array_equal(x, [5, 0, 0])
    np.testing.assert_array_equal(found, [5, 1, 2])
    assert most == 2
    x.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        caller(x, y)


def test_what_is_outside_is_what_it_is_now() -> None:
    scale = np.array([2.0])

    @hlojit.jit
    def scaled(x: Any) -> Any:
        return x * scale[0]

    @numba.njit
    def caller(x: Any) -> Any:
        return scaled(x)

    assert caller(np.ones(2))[0] == 2
    scale[0] = 3
    assert caller(np.ones(2))[0] == 3


def test_exceptions_are_those_of_the_call() -> None:
    @hlojit.jit
    def pick(x: Any, i: Any) -> Any:
        if x[0] < 0:
            raise ValueError("negative")
        return x[i]

    @numba.njit
    def caller(x: Any, i: Any) -> Any:
        return pick(x, i)

    assert caller(np.arange(3.0), 2) == 2
    with pytest.raises(ValueError, match="negative"):
        caller(np.array([-1.0, 0.0]), 0)
    with pytest.raises(IndexError):
        caller(np.arange(3.0), 7)
    assert caller(np.arange(3.0), 1) == 1
    with pytest.raises(ValueError):
        numba.njit(lambda x, w: model(x, w))(np.ones((2, 3)), np.ones((2, 3)))


def test_a_result_whose_rank_depends_on_sizes_is_an_error() -> None:
    @hlojit.jit
    def shrink(x: Any) -> Any:
        return x if x.shape[0] > 2 else x.sum()

    @numba.njit
    def caller(x: Any) -> Any:
        return shrink(x)

    np.testing.assert_array_equal(caller(np.ones(3)), np.ones(3))
    with pytest.raises(hlojit.HlojitError, match="may not depend on sizes"):
        caller(np.ones(2))


def test_what_numba_has_no_types_for_is_refused() -> None:
    named = hlojit.jit(lambda x: {"a": x})
    masked = hlojit.jit(lambda x: x[x > 0])
    static = hlojit.jit(lambda x, n: x * n, static_argnames="n")
    for function, arguments, said in (
        (named, (np.ones(2),), "returns dict"),
        (masked, (np.ones(2),), "length depends on values"),
        (static, (np.ones(2), 2), "static arguments"),
    ):
        if len(arguments) == 1:
            compiled = numba.njit(lambda x: function(x))  # noqa: B023
        else:
            compiled = numba.njit(lambda x, n: function(x, n))  # noqa: B023
        with pytest.raises(numba.core.errors.NumbaError, match=said):
            compiled(*arguments)


def test_threads_call_it() -> None:
    @numba.njit(nogil=True)
    def caller(x: Any, w: Any, steps: Any) -> Any:
        for _ in range(steps):
            x = model(x, w)
        return x

    @numba.njit(parallel=True)
    def rows(x: Any, w: Any) -> Any:
        made = np.empty_like(x)
        for i in numba.prange(x.shape[0]):
            made[i] = model(x[i : i + 1], w)[0]
        return made

    x, w = np.random.default_rng(3).normal(size=(8, 4)), np.eye(4)
    expected = x
    for _ in range(50):
        expected = np.tanh(expected @ w) + 0.5
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        found[number] = caller(x, w, 50)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 4
    for result in found.values():
        np.testing.assert_allclose(result, expected, rtol=1e-12)
    np.testing.assert_allclose(rows(x, w), np.tanh(x @ w) + 0.5, rtol=1e-12)


def test_numba_keeps_nothing_of_it_in_a_cache(tmp_path: Any) -> None:
    source = tmp_path / "cached_caller.py"
    source.write_text(
        "import hlojit, numba\n\nf = hlojit.jit(lambda x: x * 2)\n\n\n@numba.njit(cache=True)\ndef caller(x):\n    return f(x)\n"
    )
    scope: dict[str, Any] = {}
    exec(compile(source.read_text(), str(source), "exec"), scope)
    with pytest.warns(numba.core.errors.NumbaWarning, match="Cannot cache compiled function"):
        found = scope["caller"](np.ones(2))
    np.testing.assert_array_equal(found, [2, 2])


def test_results_are_no_views_and_lie_by_rows() -> None:
    @hlojit.jit
    def same(x: Any) -> Any:
        return x.T

    @numba.njit
    def caller(x: Any) -> Any:
        found = same(x)
        found[0, 0] = 7
        return found

    x = np.arange(6.0).reshape(2, 3)
    found = caller(x)
    assert x[0, 0] == 0 and found.flags.c_contiguous
    np.testing.assert_array_equal(found[1:], x.T[1:])
