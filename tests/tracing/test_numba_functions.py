"""Functions of ``numba.njit`` in jitted functions: numba itself, run eagerly, is the oracle."""

from __future__ import annotations

import pickle
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.tracing.errors import TracingError

from tests.elsewhere import processors_only

numba = pytest.importorskip("numba")
njit: Callable[[Callable[..., Any]], Any] = numba.njit

QUICK = "i4 f4 u8".split()
SLOW = "? i1 i2 i8 u1 u2 u4 f8 c8 c16".split()
DTYPES = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


@njit
def scaled(x, y):
    return x * y + 2


@njit
def halved(x, y):
    return x / y


@njit
def doubled(x, out):
    for i in range(x.shape[0]):
        out[i] = 2 * x[i]


@njit
def twice_and_sum(x):
    return x * 2, x.sum()


def same(function: Callable[..., Any], *arguments: Any) -> None:
    """The jitted function does what the plain one does: results, their types, and what is written."""
    theirs, ours = [[np.array(each) if isinstance(each, np.ndarray) else each for each in arguments] for _ in range(2)]
    expected, found = function(*theirs), hlojit.jit(function)(*ours)
    assert type(found) is type(expected)
    np.testing.assert_array_equal(found, expected, strict=isinstance(expected, np.ndarray))
    for one, other in zip(theirs, ours):
        np.testing.assert_array_equal(other, one)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_of_numbas_types(dtype: str) -> None:
    same(lambda x: scaled(x[1], 3) * x, np.arange(1, 4).astype(dtype))
    same(lambda x: scaled(x[0], x[1]), np.arange(1, 4).astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_that_are_written(dtype: str) -> None:
    def fill(x, out):
        doubled(x, out)

    same(fill, np.arange(3).astype(dtype), np.ones(3, dtype))


def test_a_function_of_numbers_is_inlined() -> None:
    text = hlojit.jit(lambda x: scaled(x[0], 2.0) + x).lower(np.ones(3)).as_text()
    assert "hlojit.call.numba.scaled." in text


def test_views() -> None:
    def through_views(x):
        made = np.zeros((2, 3))
        doubled(x[::-1], made[1])
        doubled(x, made[0, ::-1])
        doubled(made[:, 1], made.T[0].copy())
        return made

    same(through_views, np.arange(3.0))


@pytest.mark.slow
def test_layouts_of_arguments() -> None:
    total = njit(lambda x: (x * np.arange(x.size).reshape(x.shape)).sum())
    for x in (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(12.0)[::2]):
        assert hlojit.jit(lambda x: total(x))(x) == total(x)


def test_in_loops_and_branches() -> None:
    def walk(x):
        for i in range(x.shape[0]):
            if x[i] > 1:
                x[i] = scaled(x[i], 2)
                doubled(x[:1].copy(), x[1:2])
        return x

    same(walk, np.arange(40.0))


WRITES: dict[str, Callable[[Any], Any]] = {}


def written(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    WRITES[function.__name__] = function
    return function


@written
def in_place_operator(x):
    x += 1


@written
def slice_in_place(x):
    x[1:] *= 2


@written
def method_sort(x):
    x[::-1].sort()


@written
def through_a_row(x):
    for row in x.reshape(2, 2):
        row[0] = 7


@written
def through_reshape(x):
    x.reshape(2, 2)[0, 1] = 5


@written
def through_ravel(x):
    np.ravel(x)[0] = 5


@written
def through_asarray(x):
    np.asarray(x)[0] = 5


@written
def through_a_tuple(x):
    t = (x, 1)
    t[0][0] = 9


@written
def through_a_list(x):
    [x][0][0] = 9


@written
def through_view(x):
    x.view(np.int64)[0] = 9


@written
def through_flat(x):
    x.flat[2] = 9


@written
def by_fill(x):
    x.fill(3)


@written
def by_ufunc(x):
    np.add(x, 1, x)


@written
def by_copyto(x):
    np.copyto(x, x[::-1].copy())


@written
def by_helper(x):
    doubled(x, x)


@written
def by_inner(x):
    def inner(y):
        y[1] = 8

    inner(x)


@written
def by_expand_dims(x):
    np.expand_dims(x, 0)[0, 0] = 4


@written
def by_split(x):
    np.split(x, 2)[0][0] = 4


@written
def by_atleast(x):
    np.atleast_2d(x)[0, 0] = 4


@written
def by_array_copy_false(x):
    np.nan_to_num(x, copy=False)


@written
def by_carray(x):
    numba.carray(x.ctypes, x.shape)[0] = 4


@written
def by_put(x):
    np.put(x, 0, 4)


@written
def by_dot(x):
    np.dot(np.ones((2, 2)), x[:2], x[2:])


@written
def by_nditer(x):
    for v in np.nditer(x):
        v[()] = 1


QUICK_WRITES = ("in_place_operator", "by_helper", "by_array_copy_false", "by_nditer")


@pytest.mark.parametrize(
    "name", [each if each in QUICK_WRITES else pytest.param(each, marks=pytest.mark.slow) for each in WRITES]
)
def test_writes_reach_the_caller_or_are_refused(name: str) -> None:
    function, theirs = njit(WRITES[name]), np.array([3.0, np.nan, 1.0, 0.0])
    ours = theirs.copy()
    try:
        function(theirs)
    except numba.core.errors.NumbaError:
        pytest.skip("numba cannot compile it")

    def call(x):
        function(x)

    try:
        hlojit.jit(call)(ours)
    except (TracingError, hlojit.HlojitError) as error:
        assert "numba" in str(error)
        return
    np.testing.assert_array_equal(ours, theirs)


def test_what_is_written_is_one_arguments_memory() -> None:
    with pytest.raises(TracingError, match=r"doubled, .* writes argument 1, which is of the same memory as argument 0"):
        hlojit.jit(lambda x: doubled(x[1:], x[:-1]))(np.arange(3.0))
    outside = np.zeros(3)
    with pytest.raises(TracingError, match="writes argument 1, an array that is not made in the jitted function"):
        hlojit.jit(lambda x: doubled(x, outside))(np.arange(3.0))
    locked = np.zeros(3)
    locked.flags.writeable = False
    with pytest.raises((ValueError, TypeError), match="read-only"):
        hlojit.jit(lambda x, out: doubled(x, out))(np.arange(3.0), locked)


@processors_only
def test_results_of_declared_shapes() -> None:
    def call(x):
        return hlojit.numba_call(twice_and_sum, x, shape=(3,))

    for x in (np.arange(3.0), np.arange(3, dtype="f4")):
        (array, number), (their_array, their_number) = hlojit.jit(call)(x), call(x)
        np.testing.assert_array_equal(array, their_array, strict=True)
        assert number == their_number and type(number) is type(their_number)
    with pytest.raises(ValueError, match="another shape than shape= says"):
        hlojit.jit(call)(np.arange(4.0))
    with pytest.raises(
        TracingError, match=r"returns array\(float64, 1d, C\), whose shape nobody knows .*hlojit\.numba_call"
    ):
        hlojit.jit(lambda x: twice_and_sum(x))(np.arange(3.0))
    with pytest.raises(TracingError, match=r"shape= says \(3, 1\)"):
        hlojit.jit(lambda x: hlojit.numba_call(twice_and_sum, x, shape=(3, 1)))(np.arange(3.0))
    with pytest.raises(TracingError, match="takes a function of numba.njit"):
        hlojit.numba_call(len, np.arange(3.0), shape=())


@processors_only
def test_results_that_are_views_are_refused() -> None:
    behind, both = njit(lambda x: x[1:]), njit(lambda x: twins(x.copy()))
    calls = (
        lambda x: hlojit.numba_call(behind, x, shape=(2,)),
        lambda x: hlojit.numba_call(both, x, shape=[(3,), (3,)]),
    )
    for call in calls:
        with pytest.raises(ValueError, match="of the memory of another one: return a copy"):
            hlojit.jit(call)(np.arange(3.0))


@njit
def twins(x):
    return x, x[::-1]


@njit
def picky(x):
    if x[0] > 1:
        raise KeyError("too big")
    return x[int(x[0])]


@processors_only
def test_exceptions_are_those_of_the_function() -> None:
    division, pick = hlojit.jit(lambda x: halved(x[0], x[1])), hlojit.jit(lambda x: picky(x))
    assert division(np.array([1.0, 4.0])) == 0.25
    with pytest.raises(ZeroDivisionError, match="'numba.halved.*division by zero") as caught:
        division(np.zeros(2))
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value) and str(again) == str(caught.value)
    assert pick(np.zeros(2)) == 0
    for error in (KeyError, hlojit.ExecutionError):
        with pytest.raises(error, match="too big"):
            pick(np.full(2, 2.0))
    with pytest.raises(IndexError, match="an index is out of range"):
        pick(np.full(1, 1.0))


def test_division_follows_the_error_model() -> None:
    quiet = numba.njit(error_model="numpy")(lambda x, y: x / y)
    same(lambda x: quiet(x[0], x[1]), np.array([1.0, 0.0]))
    mixed = numba.njit(error_model="numpy")(lambda x, y: halved(x, y))
    with pytest.raises(TracingError, match="differ in error_model="):
        hlojit.jit(lambda x: mixed(x[0], x[1]))(np.zeros(2))


@njit
def drawn(x):
    return x[0] + np.random.rand()


@njit
def printing(x):
    print(x[0])
    return x[0]


@pytest.mark.parametrize("function, said", [(drawn, "random_state"), (printing, "calls Python")])
def test_what_cannot_run_without_python_is_refused(function: Any, said: str) -> None:
    with pytest.raises(hlojit.PluginError, match=said):
        hlojit.jit(lambda x: function(x))(np.zeros(3))


def test_other_arguments_are_refused() -> None:
    with pytest.raises(TracingError, match="argument 1 of scaled, a function of numba's, is str"):
        hlojit.jit(lambda x: scaled(x, "a"))(np.zeros(3))
    with pytest.raises(TracingError, match="numba cannot compile scaled for these arguments"):
        hlojit.jit(lambda x: scaled(x[0], 1))(np.zeros(3, "f2"))


def test_a_function_that_is_defined_again() -> None:
    holder = {"f": njit(lambda x: x + 1.0)}

    @hlojit.jit
    def call(x):
        return holder["f"](x[0])

    assert call(np.zeros(1)) == 1
    holder["f"] = njit(lambda x: x + 2.0)
    assert call(np.zeros(1)) == 2


def test_threads_from_a_cold_start() -> None:
    function = njit(lambda x, out: doubled(x, out))

    @hlojit.jit
    def call(x, out):
        function(x, out)

    outs = [np.zeros(5) for _ in range(4)]
    threads = [threading.Thread(target=call, args=(np.full(5, float(n)), out)) for n, out in enumerate(outs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, out in enumerate(outs):
        np.testing.assert_array_equal(out, np.full(5, 2.0 * n))


@processors_only
@pytest.mark.slow
def test_memory_of_results_is_given_back() -> None:
    from numba.core.runtime import _nrt_python, rtsys

    _nrt_python.memsys_enable_stats()
    call = hlojit.jit(lambda x: hlojit.numba_call(twice_and_sum, x, shape=(1000,)))
    x = np.ones(1000)
    call(x)
    before = rtsys.get_allocation_stats()
    tracemalloc.start()
    for _ in range(100_000):
        call(x)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    after = rtsys.get_allocation_stats()
    _nrt_python.memsys_disable_stats()
    assert after.alloc - after.free == before.alloc - before.free
    assert grown < 100_000
