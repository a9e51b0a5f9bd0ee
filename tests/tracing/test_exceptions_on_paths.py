"""What Python raises on a path that may not be taken: the compiled function raises it where the path is taken."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.tracing import dispatch

EMPTY: list[float] = []
ONE = [1.0]


class Mine(Exception):
    def __init__(self, code: int, *, hint: str):
        super().__init__(code)
        self.hint = hint


def an_index(x: Any) -> Any:
    names = [1, 2]
    if x > 0:
        y = names[5]
    else:
        y = 1
    return y


def an_index_of_an_array(x: Any) -> Any:
    total = 0.0
    for i in range(1000):
        if x > i * 100 + 50:
            total += np.zeros(3)[4]
        total += 1
    return total


def a_variable(x: Any) -> Any:
    if x > 0:
        z = 3
    else:
        x = z + 1
    return x


def of_none(x: Any) -> Any:
    n = None
    if x > 0:
        n = 1
    else:
        return n + 1  # type: ignore[operator]
    return n


def an_attribute_of_none(x: Any) -> Any:
    node = None
    if x < 0:
        return node.value  # type: ignore[attr-defined]
    return x


def a_shape(x: Any) -> Any:
    if x > 1:
        return np.ones(3) + np.ones(4) * x
    return np.ones(3) * x


def a_key(x: Any) -> Any:
    table = {"a": 1.0}
    while x < 10:
        if x > 5:
            x = x + table["b"]
        x = x + table["a"]
    return x


def a_text(x: Any) -> Any:
    if x > 1:
        x = x + int("one")
    return x


def in_a_function(x: Any) -> Any:
    def first(values: Any) -> Any:
        if not values:
            raise Mine(3, hint="give some")
        return values[0]

    if x > 0:
        return first([])
    return first([x])


def in_a_try(x: Any) -> Any:
    if x > 0:
        try:
            raise KeyError(3)
        except ValueError:
            x = x + 1
    return x


def caught_in_the_branch(x: Any) -> Any:
    y = 0.0
    if x > 0:
        try:
            y = ONE[4]
        except IndexError:
            y = x * 2
    return y


def behind_a_break(x: Any) -> Any:
    total = 0.0
    for _ in range(1000):
        total += x
        if total > 5:
            break
        if x > 100:
            total += EMPTY[0]
    return total


def nested(x: Any) -> Any:
    table: dict[str, float] = {}
    if x > 0:
        if x > 1:
            x = x + table["deep"]
        else:
            x = x * 2
    return x


def on_every_path(x: Any) -> Any:
    if x > 0:
        return EMPTY[1]
    raise ValueError("negative")


def things_are_as_before(x: Any) -> Any:
    state = {"n": 1.0}
    if x > 0:
        state["n"] = 7.0
        state["n"] += ONE[3]
    return state["n"]


def the_first_of_two(x: Any) -> Any:
    total = 0.0
    for i in range(50):
        if i > x:
            total += np.ones(2)[2]
        if i > 40:
            total += {}["late"]
    return total


def in_a_while(x: Any) -> Any:
    while x > 0:
        x = x - ONE[1]
    return x


FUNCTIONS = [
    value
    for name, value in list(globals().items())
    if callable(value) and list(getattr(value, "__annotations__", {})) == ["x", "return"]
]


def outcome(function: Callable[..., Any], x: Any) -> Any:
    try:
        return function(x)
    except hlojit.HlojitError:
        raise
    except Exception as error:
        return type(error), error.args, getattr(error, "hint", None)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_as_python(function: Callable[..., Any]) -> None:
    compiled = hlojit.jit(function)
    for x in (-1.0, 0.5, 2.0, 60.0, 7.0):
        expected = outcome(function, x)
        for _ in range(2):
            found = outcome(compiled, x)
            if isinstance(expected, tuple):
                assert found[0] is expected[0]
                assert found[2] == expected[2]
                if expected[0] not in (ValueError,):
                    assert found[1] == expected[1]
            else:
                np.testing.assert_array_equal(found, expected)


def test_the_line_is_in_the_traceback() -> None:
    compiled = hlojit.jit(an_index)
    with pytest.raises(IndexError) as raised:
        compiled(1.0)
    last = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert last.name == "an_index"
    assert last.line == "y = names[5]"


def test_what_comes_of_traced_values_is_an_error_while_it_is_traced() -> None:
    @hlojit.jit
    def unknown(x: Any) -> Any:
        table = {0: 1.0}
        if x > 0:
            return table[np.int64(x)]
        return x

    with pytest.raises(hlojit.HlojitError, match="key of a dictionary"):
        unknown(np.float64(-1.0))


def test_an_expression_that_may_not_be_reached_is_an_error_while_it_is_traced() -> None:
    @hlojit.jit
    def chosen(x: Any) -> Any:
        while x < 3:
            x = x + ({}["a"] if x > 100 else 1.0)
        return x

    with pytest.raises(KeyError) as raised:
        chosen(0.5)
    assert any("known only when the function runs" in note for note in raised.value.__notes__)


def test_a_mistake_of_ours_is_no_exception_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, *arguments: Any) -> Any:
        return {}["internal"]

    broken.__code__ = broken.__code__.replace(co_filename=dispatch.__file__)

    @hlojit.jit
    def function(x: Any) -> Any:
        if x.sum() > 1e9:
            return x[0]
        return x.sum()

    monkeypatch.setattr(dispatch.Dispatch, "get_item", broken)
    with pytest.raises(KeyError, match="internal"):
        function(np.ones(1))


def test_a_loop_variable_that_may_not_be_bound_passes_through_other_loops() -> None:
    def counted(a: int, n: Any) -> Any:
        total = 0
        for _ in range(a):
            for last in range(n[2]):
                total += last
        return (total, last) if n[2] > 0 else (total, -1)

    compiled = hlojit.jit(counted)
    for counts in ([0, 0, 0], [0, 0, 3]):
        assert compiled(3, np.array(counts)) == counted(3, np.array(counts))


def deleted(j: int, x: Any) -> Any:
    if j > 5:
        r = x
    del r
    return j


def used_when_deleted(j: int, x: Any) -> Any:
    y = x * 2
    while j < 5:
        j += 1
        if j < -3:
            return j, y
    del y
    return j, y  # noqa: F821


def of_a_function_that_always_raises(j: int, x: Any) -> Any:
    def failing() -> Any:
        if j > 3:
            raise ValueError("large")
        raise KeyError("small")

    if j > 1:
        return failing() + 1
    return j


def returned_when_deleted(j: int, x: Any) -> Any:
    i = 1
    if j > 1:
        if x[0] > 3:
            return j, i
        if j > 5:
            del i
    return j, i


@pytest.mark.parametrize(
    "function", [returned_when_deleted, deleted, used_when_deleted, of_a_function_that_always_raises]
)
def test_unbound_variables(function: Callable[..., Any]) -> None:
    compiled = hlojit.jit(function)
    for j in (0, 2, 7):
        expected, found = (outcome(lambda x: each(j, x), np.ones(2)) for each in (function, compiled))  # noqa: B023
        assert (found[0] if isinstance(found, tuple) else found) == (
            expected[0] if isinstance(expected, tuple) else expected
        )
