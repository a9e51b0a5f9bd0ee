"""Jitted functions where Python passes functions about: pickles, copies, other processes; parameters that are given by number."""

from __future__ import annotations

import concurrent.futures
import copy
import functools
import inspect
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.tracing import Tracer

from tests.elsewhere import processors_only
from tests.tracing import functions_in_modules as made

X = np.array([1.0, 2.0, 3.0])

# ----------------------------------------------------------------------------------------------------------- by number


def added(x: Any, n: Any, *rest: Any, axis: Any = 0, **named: Any) -> Any:
    return x + n + len(rest) + axis


def grown(seen: list[Any], **options: Any) -> Any:
    @hlojit.jit(**options)
    def f(x: Any, n: Any = 2, m: Any = 3) -> Any:
        seen.append((not isinstance(n, Tracer), not isinstance(m, Tracer)))
        return x * n + m

    return f


@pytest.mark.parametrize(
    ("options", "is_n", "is_m"),
    [
        ({"static_argnums": 1}, True, False),
        ({"static_argnums": -2}, True, False),
        ({"static_argnums": np.int64(1)}, True, False),
        ({"static_argnums": [1, -1]}, True, True),
        ({"static_argnums": (1, -2, 1)}, True, False),
        ({"static_argnums": -1, "static_argnames": "n"}, True, True),
        ({"static_argnums": (), "static_argnames": ["m"]}, False, True),
    ],
    ids=str,
)
def test_numbers_and_names_make_parameters_static(options: dict[str, Any], is_n: bool, is_m: bool) -> None:
    seen: list[Any] = []
    f = grown(seen, **options)
    for _ in range(2):
        for arguments, named in (((5,), {}), ((), {"n": 5}), ((5, 7), {}), ((5,), {"m": 7}), ((), {"m": 7, "n": 5})):
            n, m = (*arguments, *(2, 3)[len(arguments) :])
            n, m = named.get("n", n), named.get("m", m)
            np.testing.assert_array_equal(f(X, *arguments, **named), X * n + m)
    assert set(seen) == {(is_n, is_m)}


def test_static_numbers_of_methods_count_self() -> None:
    class Model:
        def __init__(self, weight: float):
            self.weight = weight

        @hlojit.jit(static_argnums=(0, 2))
        def applied(self, x: Any, times: int) -> Any:
            return x * self.weight if times == 1 else self.applied(x * self.weight, times - 1)

    model = Model(2.0)
    np.testing.assert_array_equal(model.applied(X, 3), X * 8)
    np.testing.assert_array_equal(model.applied(times=2, x=X), X * 4)
    model.weight = 3.0
    np.testing.assert_array_equal(model.applied(X, 2), X * 9)
    np.testing.assert_array_equal(hlojit.jit(model.applied, static_argnums=1)(X, 2), X * 9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"static_argnums": "1"},
            "static_argnums='1': numbers of parameters are expected, .*names go into static_argnames",
        ),
        ({"static_argnums": True}, "static_argnums=True: numbers"),
        ({"static_argnums": 1.0}, "static_argnums=1.0: numbers"),
        ({"static_argnums": None}, "static_argnums=None: numbers"),
        (
            {"static_argnames": 1},
            "static_argnames=1: names of parameters are expected, .*numbers go into static_argnums",
        ),
        ({"static_argnames": ("n", 1)}, "static_argnames=.'n', 1.: names"),
        ({"static_argnums": 2}, r"static_argnums holds 2, which is one of \*rest of added: .*static_argnames='rest'"),
        (
            {"static_argnums": -1},
            r"static_argnums holds -1, but added takes \*rest, whose end each call sets: count from",
        ),
        ({"donate_argnums": -1}, r"donate_argnums holds -1, but added takes \*rest"),
        ({"static_argnames": "k"}, "static_argnames names k, but added has the parameters x, n, rest, axis, named"),
        ({"static_argnums": 0, "donate_argnums": 0}, "x of added: static arguments cannot be donated"),
    ],
    ids=str,
)
def test_numbers_that_no_parameter_has_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HlojitError, match=message):
        hlojit.jit(**options)(added)


@pytest.mark.parametrize("option", ["static_argnums", "donate_argnums"])
def test_keywords_have_no_number(option: str) -> None:
    def f(x: Any, y: Any, *, axis: int = 0) -> Any:
        return x

    for number in (2, -3):
        with pytest.raises(
            HlojitError, match=rf"{option} holds {number}, but f has the parameters x, y \(-2 to 1\); axis: by name"
        ):
            hlojit.jit(**{option: number})(f)  # type: ignore[call-overload]
    with pytest.raises(HlojitError, match="holds 0, but .lambda. takes no positional arguments"):
        hlojit.jit(**{option: 0})(lambda: 1)  # type: ignore[call-overload]


def test_static_arguments_that_have_no_hash_are_named() -> None:
    f = hlojit.jit(lambda x, n, m: x, static_argnums=(1, 2))
    for value in ([1], {}, (1, [2]), np.ones(2), {1}):
        with pytest.raises(ArgumentError, match=r"static arguments must be hashable, got m=.*; give tuples") as caught:
            f(X, 1, value)
        assert "n=" not in str(caught.value)

    class Failing:
        def __hash__(self) -> int:
            raise TypeError("not today")

    with pytest.raises(TypeError, match="not today"):
        f(X, 1, Failing())


def test_the_rest_may_be_static_by_name() -> None:
    seen: list[Any] = []

    @hlojit.jit(static_argnames="rest")
    def f(x: Any, *rest: Any) -> Any:
        seen.append(rest)
        return x + len(rest)

    np.testing.assert_array_equal(f(X, 1, "a"), X + 2)
    np.testing.assert_array_equal(f(X), X)
    assert seen == [(1, "a"), ()]


# ----------------------------------------------------------------------------------------------------- pickles and copies


@pytest.mark.parametrize("name", made.MADE)
@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
def test_functions_come_back_from_a_pickle(name: str, protocol: int) -> None:
    function = made.MADE[name]
    read = pickle.loads(pickle.dumps(function, protocol))
    expected, got = made.value(name), made.called(read, name)
    np.testing.assert_array_equal(got, expected)


def test_functions_that_a_module_has_are_pickled_by_name() -> None:
    for function in (made.doubled, made.powered, made.Scale.scaled, made.Scale.Inner.plus, made.cubed, made.slope):
        data = pickle.dumps(function)
        assert pickle.loads(data) is function
        assert len(data) < 120


def test_settings_go_along() -> None:
    read = pickle.loads(pickle.dumps(made.jitted_plain))
    assert read is not made.jitted_plain and read.function is made.plain
    assert read.static_argnames == {"n"} and not read.settings.check_indices
    assert (read.__name__, read.__module__) == ("plain", made.__name__)


@pytest.mark.parametrize("name", made.MADE)
def test_copies(name: str) -> None:
    function: Any = made.MADE[name]
    for copied in (copy.copy(function), copy.deepcopy(function)):
        if isinstance(function, functools.partial):
            assert copied.func is function.func
        else:
            assert copied is function
        np.testing.assert_array_equal(made.called(copied, name), made.value(name))
    assert copy.deepcopy({"f": made.doubled})["f"] is made.doubled


def _local() -> Any:
    @hlojit.jit
    def local(x: Any) -> Any:
        return x

    return local


@pytest.mark.parametrize(
    ("make", "plain"),
    [
        (lambda: hlojit.jit(lambda x: x), lambda: lambda x: x),
        (_local, lambda: _local().function),
        (lambda: hlojit.grad(_local()), lambda: _local().function),
        (lambda: functools.partial(hlojit.vmap(_local())), lambda: _local().function),
    ],
    ids=["lambda", "local", "grad", "partial"],
)
def test_what_has_no_name_cannot_be_pickled(make: Callable[[], Any], plain: Callable[[], Any]) -> None:
    with pytest.raises((pickle.PicklingError, AttributeError)) as expected:
        pickle.dumps(plain())
    said = str(expected.value)
    with pytest.raises(type(expected.value)) as caught:
        pickle.dumps(make())
    if "lambda" not in said:
        assert said == str(caught.value)


def test_a_name_that_means_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    function = made.doubled
    monkeypatch.setattr(made, "doubled", None)
    with pytest.raises(pickle.PicklingError, match="not the same object as .*doubled"):
        pickle.dumps(function)


def test_bound_methods() -> None:
    scale = made.Scale(3.0)
    bound: Any = scale.scaled
    assert bound.__self__ is scale and bound.__func__ is made.Scale.scaled and bound.__name__ == "scaled"
    assert bound == scale.scaled and hash(bound) == hash(scale.scaled) and bound != made.Scale(3.0).scaled
    assert bound != made.Scale.scaled
    assert str(inspect.signature(bound)) == "(x: 'Any') -> 'Any'"
    assert bound.eval_shape(X).shape == (3,) and "@main" in bound.lower(X).as_text()
    read = pickle.loads(pickle.dumps(bound))
    assert read.__func__ is made.Scale.scaled and read.__self__.factor == 3.0
    np.testing.assert_array_equal(bound.execute(X), X * 3)
    np.testing.assert_array_equal(functools.partial(bound, X)(), X * 3)
    np.testing.assert_array_equal(made.Scale.of_class(X), X + 1)


# ------------------------------------------------------------------------------------------------------- other processes


@processors_only
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_pools_of_processes(method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {method}")
    context = multiprocessing.get_context(method)
    rows = [X + k for k in range(4)]
    names = ["decorated", "method", "jitted apart", "decorated with grad", "vmap of grad"]
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        for name in names:
            for row, got in zip(rows, pool.map(made.MADE[name], rows)):
                np.testing.assert_array_equal(got, made.MADE[name](row))
        assert pool.submit(made.doubled, np.float32(2)).result() == 4
