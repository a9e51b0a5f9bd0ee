"""Numbers in traced functions: NumPy's scalars and Python's numbers behave as they do without jit."""

from __future__ import annotations

import copy
import enum
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.tracing.errors import TracingError
from hlojit.tracing.rewriting import as_is

from .conftest import agree, same

X = np.arange(6.0, dtype="f4").reshape(2, 3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum(), lambda x: x[0, 1], lambda x: x.max() - x.min(), lambda x: np.sqrt(x[0, 2]), lambda x: np.dot(x[0], x[0]),
        lambda x: (x[0, 0] + 1, x.mean() * 2.0, -x[1, 1], abs(x[0, 0]), x[0, 0] > 1), lambda x: np.where(x[0, 0] > 1, 2, 3),
        lambda x: x[0, 0].reshape(()), lambda x: x.sum().astype("i4"), lambda x: x.reshape(-1)[:1].reshape(()), lambda x: np.copy(x[0, 0]),
        lambda x: x[0, 0, ...], lambda x: x[0, 0][()], lambda x: x[0, 0][None], lambda x: np.argmax(x), lambda x: np.all(x > 0), lambda x: np.linalg.norm(x),
        lambda x: [np.zeros_like(x[0, 0])], lambda x: x[0].item(1) * 2, lambda x: (x.item(4), x.size, x.shape[0], 2.5, np.float32(3)),
        lambda x: np.allclose(x, x), lambda x: x.T[2, 1].real, lambda x: np.clip(x[1, 2], 0, 3),
    ],
)  # fmt: skip
def test_scalars_come_out_where_numpy_gives_scalars(function: Callable[..., Any]) -> None:
    agree(function, X)


def test_a_scalar_never_changes() -> None:
    def inside(x: Any) -> Any:
        s = x.sum()
        t = s
        s += 1
        u = x[0, 0]
        x[0, 0] = 9
        return s, t, u, x

    agree(inside, X)
    with pytest.raises(TypeError, match="'float32' object does not support item assignment"):
        hlojit.jit(lambda x: x.sum().__setitem__((), 1))(X)


def test_isinstance_takes_the_branch_that_it_takes_with_numpy() -> None:
    def kinds(x: Any, s: Any, n: Any, flag: Any) -> Any:
        return [
            isinstance(x, np.ndarray), isinstance(x[0, 0], np.ndarray), isinstance(x[0, 0], np.floating), isinstance(x.sum(), np.float32),
            isinstance(s, float), isinstance(s, (int, np.integer)), isinstance(n, int), isinstance(flag, bool), np.isscalar(s), np.isscalar(x),
            np.isscalar(x[0, 0]), isinstance(s * 2, float), isinstance(n / 2, float), isinstance(n > 1, bool), isinstance(np.sqrt(s), np.float64),
            isinstance(x > 1, np.ndarray), isinstance(x[0, 0] > 1, np.bool_), isinstance(s, complex), isinstance(x[0, 0] * 1.5, float),
        ]  # fmt: skip

    assert hlojit.jit(kinds)(X, 2.5, 3, True) == kinds(X, 2.5, 3, True)


NUMBERS: list[Callable[[Any, Any], Any]] = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.lt, operator.le, operator.eq,
    operator.ne, operator.gt, operator.ge, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, operator.pow, divmod,
    lambda a, b: -a, lambda a, b: +a, lambda a, b: abs(a), lambda a, b: ~a, lambda a, b: a**2, lambda a, b: a**-1, lambda a, b: 2 * a - b / 3,
    lambda a, b: a**0, lambda a, b: 3 - a, lambda a, b: 7 // b, lambda a, b: 2.0**b, lambda a, b: a**5,
]  # fmt: skip
PAIRS: list[tuple[Any, Any]] = [
    (7, 3), (-7, 3), (7, -3), (2.5, -0.75), (3, 0.5), (True, 2), (True, False), (0, 0), (1.5, 0.0), (2, 63), (2**61, 2), (-(2**61), -1),
    (-8.0, 0.5), (0.0, -1.0), (1 + 2j, 2.0), (3, 2 - 1j), (2**40, 5), (5, -2), (0, -1),
]  # fmt: skip


def _fits(pair: tuple[Any, Any], operation: Callable[[Any, Any], Any]) -> bool:
    """Whether Python gives a result which 64 bits hold, and of the kind that does not depend on the numbers."""
    try:
        result = operation(*pair)
    except (ArithmeticError, TypeError, ValueError):
        return False
    parts = result if isinstance(result, tuple) else (result,)
    if any(type(each) is int and not -(2**63) <= each < 2**63 for each in parts):
        return False
    is_power_of_traced = operation is operator.pow and type(result) not in map(type, pair)
    return not is_power_of_traced


@pytest.mark.parametrize("pair", PAIRS, ids=repr)
def test_arithmetic_of_python_numbers_is_pythons(pair: tuple[Any, Any]) -> None:
    operations = [each for each in NUMBERS if _fits(pair, each)]
    results = hlojit.jit(backend="reference")(lambda a, b: [each(a, b) for each in operations])(*pair)
    for operation, ours in zip(operations, results, strict=True):
        theirs = operation(*pair)
        for mine, other in zip(
            *((each if isinstance(each, tuple) else (each,)) for each in (ours, theirs)), strict=True
        ):
            same(mine, other)


@pytest.mark.parametrize(
    ("operation", "pair", "error"),
    [
        (operator.truediv, (1, 0), ZeroDivisionError), (operator.floordiv, (1.5, 0.0), ZeroDivisionError), (operator.mod, (True, 0), ZeroDivisionError),
        (divmod, (3, 0), ZeroDivisionError), (operator.pow, (0.0, -1.0), ZeroDivisionError), (operator.lshift, (5, -2), ValueError),
        (operator.and_, (1.5, 2), TypeError), (operator.floordiv, (1j, 2.0), TypeError), (operator.lt, (1j, 2), TypeError), (lambda a, b: ~a, (0.5, 1), TypeError),
        # What Python can and 64 bits cannot.
        (operator.mul, (2**40, 2**30), OverflowError), (operator.add, (2**62, 2**62), OverflowError), (operator.lshift, (2, 63), OverflowError),
        (operator.sub, (-(2**63), 1), OverflowError), (operator.floordiv, (-(2**63), -1), OverflowError),
        (divmod, (-(2**63), -1), OverflowError), (lambda a, b: -a, (-(2**63), 1), OverflowError), (lambda a, b: a**7, (2**10, 0), OverflowError),
        (operator.pow, (-8.0, 0.5), TracingError), (operator.pow, (2, -1), TracingError),
    ],
)  # fmt: skip
def test_what_python_refuses_and_what_does_not_fit_raises(
    operation: Callable[..., Any], pair: tuple[Any, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        hlojit.jit(backend="reference")(operation)(*pair)


@pytest.mark.parametrize("dtype", ["f4", "f2", "i1", "u1", "i4", "c8"])
def test_a_python_number_takes_the_dtype_of_what_it_meets_after_arithmetic(dtype: str) -> None:
    def inside(x: Any, s: Any, n: Any) -> Any:
        return x * (n * 2), x + (-n) + 3, (n**2) * x, x[0] * n, x * (2 * s) if x.dtype.kind in "fc" else x

    agree(inside, np.array([1, 2, 3], dtype), 0.5, 2) if dtype != "u1" else agree(
        lambda x, n: (x * n, x + n**2), np.array([1, 2], dtype), 3
    )


def test_python_integers_must_fit() -> None:
    u1 = np.array([1, 2], "u1")
    for function in (
        lambda x, n: x * n,
        lambda x, n: x + 2 * n,
        lambda x, n: np.maximum(x, n),
    ):
        for each in (function, hlojit.jit(function)):
            with pytest.raises(OverflowError, match="out of bounds for uint8"):
                each(u1, 300)
    agree(lambda x, n: (x > n, x <= n, n == x, x < -1, x >= 300, x != 256, x > 2**70), u1, 300)
    agree(lambda x, n: (x > n, x == n), np.array([0, 2**64 - 1], "u8"), -1)
    with pytest.raises(OverflowError):
        hlojit.jit(lambda x: x + 300)(u1)


def test_integers_to_negative_powers_raise() -> None:
    i = np.array([1, 2, 3])
    for function, other in (
        (lambda x, y: x**-1, 0),
        (lambda x, y: x**y, -1),
        (lambda x, y: x**y, np.array([1, 0, -2])),
    ):
        for each in (function, hlojit.jit(function)):
            with pytest.raises(ValueError, match="Integers to negative integer powers are not allowed"):
                each(i, other)
    agree(lambda x, y: (x**y, x**2.0, x.astype("u4") ** y.astype("u4")), i, np.array([0, 3, 2]))


def test_nothing_is_written_where_a_check_failed() -> None:
    @hlojit.jit
    def inside(x: Any, n: Any, i: Any) -> Any:
        x += 1 / n
        return x[i]

    x = np.zeros(3)
    with pytest.raises(ZeroDivisionError, match=r"^test_numbers\.py:\d+: .* : .*division by zero$"):
        inside(x, 0, 0)
    with pytest.raises(IndexError, match="out of bounds"):
        inside(x, 2, 3)
    assert not x.any()
    assert inside(x, 2, 1) == 0.5 and x.tolist() == [0.5] * 3


def test_python_protocols() -> None:
    agree(lambda x: (copy.copy(x) * 1, copy.deepcopy([x])[0] + 0), X)
    for function, error in (
        (lambda x: pickle.dumps(x), "pickle"),
        (lambda x: {x}, "unhashable"),
        (as_is(lambda x: math.sin(x[0, 0])), r"float\(\)"),
        (as_is(lambda x: range(x.sum())), "static"),
        (as_is(lambda x: complex(x[0, 0])), r"complex\(\)"),
    ):
        with pytest.raises(TypeError, match=error):
            hlojit.jit(function)(X)


def test_start_without_waiting() -> None:
    @hlojit.jit
    def write(x: Any) -> None:
        x[0] = 1

    with pytest.raises(hlojit.ArgumentError, match="writes its argument x"):
        write.execute(np.zeros(2))
    checked = hlojit.jit(lambda x, i: x[i])
    assert np.asarray(checked.execute(np.arange(3.0), 2)) == 2
    with pytest.raises(IndexError):
        checked.execute(np.arange(3.0), 3)


class Meters(float):
    def __add__(self, other: Any) -> Any:
        return Meters(float(self) + float(other) * 100)


class Count(int):
    pass


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@pytest.mark.parametrize("value", [Meters(1), Count(2)])
def test_subclasses_of_numbers_are_refused(value: Any) -> None:
    kind = type(value).__mro__[1].__name__
    with pytest.raises(
        hlojit.ArgumentError, match=rf"argument v: .* subclass of {kind} with a meaning .*: pass {kind}\(v\)"
    ):
        hlojit.jit(lambda v: v + 1)(value)


def test_enumerations_of_integers_are_static() -> None:
    function = hlojit.jit(lambda x, level: x * 2 if level is Level.HIGH else x + level)
    same(function(X, Level.HIGH), X * 2)
    same(function(X, Level.LOW), X + Level.LOW)
    assert hlojit.jit(lambda level: level + 1)(Level.HIGH) == 3


@pytest.mark.parametrize("value", [True, 3, 2.5, -0.0, 1 - 2j])
@pytest.mark.parametrize("name", ["real", "imag", "conjugate", "sum", "max", "round", "dot", "take", "mean"])
def test_python_numbers_have_pythons_attributes(value: Any, name: str) -> None:
    def function(v: Any) -> Any:
        found = getattr(v, name)
        return found() if callable(found) else found

    def direct(v: Any) -> Any:
        return v.real, v.imag, v.conjugate()

    agree(direct, value)
    if hasattr(value, name):
        agree(function, value)
    else:
        with pytest.raises(AttributeError, match=f"object has no attribute '{name}'"):
            hlojit.jit(function)(value)


@pytest.mark.parametrize("value", [2.0, 2.5, float("inf"), np.float64(3.0), np.float32(0.5)])
def test_whole_numbers(value: Any) -> None:
    agree(lambda v: v.is_integer(), value)


@pytest.mark.parametrize("value", [2.0, 3, True, np.float32(2), np.zeros(3), np.zeros(())])
def test_hasattr_and_getattr_ask_the_number_or_array(value: Any) -> None:
    names = "shape dtype __len__ __iter__ __getitem__ sum T real item is_integer nonsense ndim".split()
    agree(lambda v: [hasattr(v, name) for name in names], value)
    agree(lambda v: [getattr(v, name, None) is None for name in ("nonsense", "shape", "ndim")], value)


def test_texts_that_depend_on_no_value_are_results() -> None:
    agree(lambda x: (x.dtype.name, x.dtype.kind, x + 1, b"ab"), X)
    assert hlojit.jit(lambda x: {"kind": x.dtype.kind})(X) == {"kind": "f"}
    with pytest.raises(TracingError, match="format them outside"):
        hlojit.jit(lambda x: f"{x.sum()}")(X)


@pytest.mark.parametrize(
    "x", [np.array([3.0, -0.0, 1.0, 0.0, 2.0]), np.array([3, 1, 2], "i2"), np.array([True, False]), np.array([])]
)
@pytest.mark.parametrize("reverse", [False, True])
def test_sorted(x: Any, reverse: bool) -> None:
    agree(lambda x: sorted(x, reverse=reverse), x)
    agree(lambda x: sorted(x.tolist(), reverse=reverse)[:2], x)


def test_what_sorted_refuses() -> None:
    with pytest.raises(ValueError, match="NaN"):
        hlojit.jit(lambda x: sorted(x))(np.array([1.0, np.nan]))
    for function in (lambda x: sorted([*x, 1]), lambda x: sorted(x[None])):
        with pytest.raises(TracingError, match=r"np\.sort"):
            hlojit.jit(function)(np.ones(3))
    with pytest.raises(TypeError, match="complex"):
        hlojit.jit(lambda x: sorted(x))(np.ones(2) * 1j)


def test_lists_of_traced_numbers_are_indices() -> None:
    def swapped(a: Any) -> Any:
        i = np.argmax(a[:, 0])
        a[[0, i]] = a[[i, 0]]
        return a[[i, 1]], a[[0, 1], [i - 1, i - 2]], a[:, [i % 2, 0]]

    agree(swapped, np.array([[1.0, 2], [3, 4], [9, 5]]))


def test_tuples_inside_of_indices_are_arrays() -> None:
    def function(a: Any) -> Any:
        i = np.argmax(a[0])
        return a[(0, 1), (1, 0)], a[:, (0, i)], a[((0, 1), (i, i))]

    agree(function, X)


def test_truth_values_in_products_and_roundings() -> None:
    truth = np.array([True, False])
    agree(lambda b: (np.vdot(b, b), np.dot(b, b), np.inner(b, b)), truth)
    for places in (1, -1):
        with pytest.raises(TypeError, match="Cannot cast ufunc"):
            hlojit.jit(lambda b, places: np.round(b, places), static_argnames="places")(truth, places)
