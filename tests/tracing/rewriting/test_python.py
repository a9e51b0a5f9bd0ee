"""Rewritten functions under Python's runtime: what Python says, exactly."""

from __future__ import annotations

import functools
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
from hlojit.tracing.rewriting import PythonRuntime, Site, rewritten, running, substitute, without_hooks

sys.path.append(str(Path(__file__).parent))
import user_functions as user


class Recursive(PythonRuntime):
    def __init__(self) -> None:
        self.called: list[Any] = []

    def callee(self, site: Site, function: Any) -> Any:
        self.called.append(function)
        return substitute(function)


def again(function: Any) -> Callable[..., Any]:
    done = rewritten(function)
    assert not done.reason, done.reason
    assert done.function is not function

    def call(*arguments: Any, **named: Any) -> Any:
        with running(Recursive()):
            return done.function(*arguments, **named)

    return call


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        found = traceback.extract_tb(without_hooks(error.__traceback__))
        lines = [(each.name, each.lineno) for each in found if each.filename == user.__file__]
        return type(error), str(error), lines


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        *[(user.loop_variable, n) for n in (0, 3, 9)],
        *[(user.unbound, c) for c in (0, 1)],
        *[(user.deleted, c) for c in (0, 1)],
        *[(user.first_of, c) for c in range(4)],
        *[(user.swallowing, c) for c in (0, 1)],
        *[(user.matched, value) for value in ([1, 2], [1], [-1], {"key": 3, "x": 4}, "s", 5)],
        *[(user.walrus, n) for n in (3, 40, 400)],
        *[(user.multiline, c) for c in (0, 1)],
        *[(user.factorial, n) for n in (1, 6)],
        (user.generated, 6),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_does_the_same(function: Any, arguments: Any) -> None:
    assert outcome(again(function), arguments) == outcome(function, arguments)


def test_late_binding() -> None:
    assert again(user.late)() == user.late() == [2, 2]


def test_evaluation_is_in_order_and_lazy() -> None:
    for bits in range(256):
        values = {name: bits >> position & 1 for position, name in enumerate("abcdefgh")}
        values |= {"i": 5, "j": 1, "k": 1, "key": 1, "value": 3, "pair": (1, 2)}
        expected: list[str] = []
        found: list[str] = []
        assert again(user.order)(found, values) == user.order(expected, values)
        assert found == expected


def test_what_belongs_to_the_function_object() -> None:
    made = rewritten(user.defaults).function
    for attribute in (
        "__name__",
        "__qualname__",
        "__doc__",
        "__module__",
        "__defaults__",
        "__kwdefaults__",
        "__annotations__",
    ):
        assert getattr(made, attribute) == getattr(user.defaults, attribute)
    assert inspect.signature(made) == inspect.signature(user.defaults)
    assert made.__globals__ is user.defaults.__globals__
    assert made.__code__.co_filename == user.__file__
    assert made.__code__.co_firstlineno == user.defaults.__code__.co_firstlineno
    for arguments in [(1,), (5, 2, 3)]:
        assert again(user.defaults)(*arguments, c=8, d=9) == user.defaults(*arguments, c=8, d=9)


def test_globals_are_those_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    call = again(user.scaled)
    monkeypatch.setattr(user, "FACTOR", 7)
    assert call(3) == 21
    assert again(user.global_assignment)(5) == 5
    assert user.FACTOR == 5


def test_cells_are_shared() -> None:
    up, count = user.counter()
    assert again(up)() == 1
    assert up() == 2
    assert again(count)() == count() == 2


def test_decorators_are_not_applied_twice() -> None:
    before = list(user.CALLS)
    assert again(user.decorated)(5) == user.decorated(5) == 11
    inner = inspect.unwrap(user.decorated)
    assert again(inner)(1) == 20
    assert before == user.CALLS


def test_methods() -> None:
    private = user.Private()
    assert again(user.Private.value)(private) == private.value() == 6
    with running(Recursive()):
        for function in (
            private.value,
            user.Private.made,
            user.Private.doubled,
            private,
            functools.partial(private, 1),
        ):
            made = substitute(function)
            assert made is not function
            arguments = [0] * len(inspect.signature(function).parameters)
            assert made(*arguments) == function(*arguments)
    assert isinstance(substitute(private.value), MethodType)


def test_lambdas_are_told_apart() -> None:
    for each in (*user.PAIR, *user.SAME, user.NESTED):
        made = rewritten(each)
        assert not made.reason
        assert [made.function(0), made.function(1)] == [each(0), each(1)]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (user.generator, "is a generator or coroutine"),
        (user.coroutine, "is a generator or coroutine"),
        (user.about_the_frame, "asks for all variables of the frame"),
        (eval("lambda x: x"), "is not there"),
    ],
)
def test_left_alone_with_a_reason(function: Any, reason: str) -> None:
    done = rewritten(function)
    assert done.function is function
    assert reason in done.reason


def test_libraries_are_left_alone() -> None:
    import textwrap

    from hypothesis import given

    for each in (textwrap.dedent, given, len, pytest.raises, str.upper, int):
        assert substitute(each) is each


def test_traceback_shows_the_users_lines() -> None:
    with pytest.raises(ValueError) as caught:
        again(user.multiline)(1)
    found = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (found.name, found.line) == ("multiline", "raise ValueError(")


def test_nested_too_deep_is_a_reason() -> None:
    import linecache

    lines = ["def deep(x):", *["    if x == 1: return 2"] * 3000]
    source = "\n".join(lines) + "\n"
    linecache.cache["<deep>"] = (len(source), None, source.splitlines(keepends=True), "<deep>")
    variables: dict[str, Any] = {"__name__": "deep"}
    exec(compile(source, "<deep>", "exec"), variables)
    assert "nested too deep" in rewritten(variables["deep"]).reason
