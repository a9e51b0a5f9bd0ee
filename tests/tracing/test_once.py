"""What would happen once, while a function is traced, or could not be caught when it runs, is refused with its line."""

from __future__ import annotations

import datetime
import random
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest

X = np.arange(4.0)
state = 0.0
kept: list[Any] = []


class Model:
    last: Any = None
    name = "model"

    def keeps(self, x: Any) -> Any:
        self.last = x
        return x


model = Model()


def clock(x: Any) -> Any:
    return x + time.time()


def counter(x: Any) -> Any:
    start = time.perf_counter()
    return x * 2, time.perf_counter() - start


def today(x: Any) -> Any:
    return x + datetime.datetime.now().year


def opens(x: Any) -> Any:
    with open("/dev/null") as file:
        return x + len(file.read())


def loads(name: Any) -> Any:
    return np.loadtxt(name)


def saves(x: Any) -> Any:
    np.save("/dev/null", np.ones(3))
    return x


def writes(x: Any) -> Any:
    sys.stdout.write("text")
    return x


def draws(x: Any) -> Any:
    return x + np.random.rand()


def draws_of_python(x: Any) -> Any:
    return x + random.uniform(0, 1)


def names(x: Any) -> Any:
    return x + uuid.uuid4().int % 2


def handles_errors(x: Any) -> Any:
    with np.errstate(divide="raise"):
        return 1 / x


def sets_errors(x: Any) -> Any:
    np.seterr("raise")
    return 1 / x


def keeps_globally(x: Any) -> Any:
    global state
    state = state + x[0]
    return x


def keeps_in_a_list(x: Any) -> Any:
    kept.append(x)
    return x


def keeps_in_an_object(x: Any) -> Any:
    model.last = x[0]
    return x


def keeps_in_a_closure() -> Callable[[Any], Any]:
    total = 0.0

    def adds(x: Any) -> Any:
        nonlocal total
        total = total + x[0]
        return x

    return adds


REFUSED: list[tuple[Callable[..., Any], str]] = [
    (clock, r"return x \+ time.time\(\) : time.time is called once"),
    (counter, r"start = time.perf_counter\(\) : time.perf_counter is called once"),
    (today, "datetime.now is called once"),
    (opens, "open is called once"),
    (loads, "np.loadtxt is called once"),
    (saves, "np.save would write once"),
    (writes, "use print"),
    (draws, r"return x \+ np.random.rand\(\) : np.random.rand draws numbers"),
    (draws_of_python, "random.uniform draws numbers"),
    (names, "uuid.uuid4 draws numbers"),
    (handles_errors, r"np.errstate\(divide='raise'\): a compiled function does not notice"),
    (sets_errors, r"np.seterr\(all='raise'\): a compiled function does not notice"),
    (keeps_globally, "leaves a traced value in 'state'"),
    (keeps_in_a_list, "leaves a traced value in 'kept'"),
    (keeps_in_an_object, "leaves a traced value in 'model'"),
    (keeps_in_a_closure(), "leaves a traced value in 'total'"),
    (model.keeps, "leaves a traced value in 'self.last'"),
]


@pytest.mark.parametrize(("function", "said"), REFUSED, ids=[each[0].__name__ for each in REFUSED])
def test_what_would_happen_once_is_refused(function: Any, said: str) -> None:
    try:
        with pytest.raises(hlojit.HlojitError, match=rf"^test_once\.py:\d+: .*{said}"):
            hlojit.jit(function)("/dev/null" if function is loads else X)
    finally:
        globals()["state"] = 0.0
        kept.clear()
        model.last = None


def test_errors_that_are_handled_around_the_call_are_refused() -> None:
    function = hlojit.jit(lambda x: 1 / x)
    with np.errstate(over="raise"), pytest.raises(hlojit.HlojitError, match="does not notice floating-point errors"):
        function(X)
    with np.errstate(all="ignore"):
        assert np.isinf(function(X)[0])


@hlojit.as_is
def once() -> float:
    return time.time()


def test_functions_that_are_left_alone_may() -> None:
    function = hlojit.jit(lambda x: x + once())
    assert function(0.0) == function(0.0) > 0


# ----------------------------------------------------------------------------------------------------------------- try


def divides(a: Any, b: Any) -> Any:
    try:
        return a // b
    except ZeroDivisionError:
        return -1


def looks_up(x: Any, i: Any) -> Any:
    try:
        value = x[i]
    except (KeyError, LookupError):
        value = -1.0
    finally:
        x = x + 1
    return value


def hides(x: Any, i: Any) -> Any:
    try:
        value = x[i]
    except:  # noqa: E722
        value = -1.0
    return value


def inner(x: Any, i: Any) -> Any:
    if x[i] > 1:
        raise OverflowError(f"{x[i]}")
    return x[i]


def of_a_callee(x: Any, i: Any) -> Any:
    try:
        return inner(x, i)
    except ArithmeticError:
        return -1.0


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        (
            divides,
            (3, 0),
            r"return a // b : ZeroDivisionError may be raised here .* the `try` in line \d+ cannot catch it",
        ),
        (looks_up, (X, 7), r"value = x\[i\] : IndexError may be raised here"),
        (hides, (X, 7), r"value = x\[i\] : IndexError may be raised here"),
        (of_a_callee, (X, 3), r"raise OverflowError\(f\"\{x\[i\]\}\"\) : OverflowError may be raised here"),
    ],
)
def test_what_try_would_catch_is_refused(function: Any, arguments: Any, said: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=said):
        hlojit.jit(function)(*arguments)


def other_error(x: Any, i: Any) -> Any:
    try:
        return x[i]
    except ValueError:
        return -1.0
    finally:
        x = x + 1


def of_python(x: Any, key: str) -> Any:
    try:
        scale = {"one": 1.0}[key]
    except KeyError:
        scale = 2.0
    return x * scale


def test_try_around_what_it_does_not_catch_is_followed() -> None:
    assert hlojit.jit(other_error)(X, 3) == 3
    with pytest.raises(IndexError):
        hlojit.jit(other_error)(X, 4)
    for key in ("one", "two"):
        np.testing.assert_array_equal(hlojit.jit(of_python)(X, key), of_python(X, key))


def test_types_are_those_of_numpy() -> None:
    """``type(x) is np.ndarray`` took the other branch."""

    def function(x: Any, n: Any) -> Any:
        kinds = type(x) is np.ndarray, type(x[0]) == np.float64, type(n) is float, type(x[0].item()) is float  # noqa: E721
        return x * sum(kinds)

    np.testing.assert_array_equal(hlojit.jit(function)(X, 2.0), 4 * X)
