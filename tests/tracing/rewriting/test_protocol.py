"""What a runtime is asked and told, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hlojit.tracing.rewriting import (
    RETURN_VALUE,
    UNDEFINED,
    Kind,
    RewritingError,
    Site,
    rewritten,
    running,
    substitute,
)

sys.path.append(str(Path(__file__).parent))
from symbolic_runtime import Symbol, SymbolicRuntime


class Recording(SymbolicRuntime):
    def __init__(self) -> None:
        super().__init__()
        self.sites: list[Site] = []
        self.thrown: list[BaseException] = []

    def takes(self, site: Site, value: Any) -> bool:
        self.sites.append(site)
        return super().takes(site, value)

    def site(self, kind: Kind) -> Site:
        return next(each for each in self.sites if each.kind is kind)

    def if_(self, site: Site, condition: Any, before: Any) -> Any:
        try:
            return (yield from super().if_(site, condition, before))
        except BaseException as error:
            self.thrown.append(error)
            raise


def number(value: int) -> Symbol:
    return Symbol(lambda evaluate: value)


def run(function: Any, *arguments: Any) -> tuple[Any, Recording]:
    runtime = Recording()
    with running(runtime):
        value = substitute(function)(*arguments)
    return runtime.result(value), runtime


def escape(x: Any, limit: int) -> Any:
    steps = 0
    while True:
        scratch = x * x
        if scratch > limit:
            break
        x = scratch + 1
        steps += 1
    return steps, x


def test_a_loop_names_its_state() -> None:
    assert rewritten(escape).reason == ""
    found, runtime = run(escape, number(1), 100)
    assert found == escape(1, 100)
    site = runtime.site(Kind.WHILE)
    assert {"scratch", "steps", "x"} < set(site.names)
    assert site.carried == {"steps", "x", site.exit_flag}
    assert site.live_after >= {"steps", "x"}
    assert "scratch" not in site.live_after
    assert str(site).endswith(": while True :")
    assert (site.line, site.function) == (escape.__code__.co_firstlineno + 2, "escape")


def returns_early(x: Any) -> Any:
    for i in range(x):
        if i * i > 10:
            return i
    return -1


def test_the_value_of_an_early_return_has_a_label() -> None:
    for value in (2, 9):
        found, runtime = run(returns_early, number(value))
        assert found == returns_early(value)
    site = runtime.site(Kind.FOR)
    assert site.label(RETURN_VALUE) == "the returned value"
    assert site.label("i") == "the variable 'i'"


def in_a_try(x: Any) -> Any:
    try:
        if x > 0:
            return 1
    except Exception:
        return 2
    return 3


def in_a_generator(x: Any) -> Any:
    return next(1 if x else 2 for _ in range(2))


def in_a_comprehension(x: Any) -> Any:
    return [i for i in range(3) if i < x]


def with_walrus(x: Any) -> Any:
    return x > 0 and (y := 3) and y


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (in_a_try, r"if x > 0 : this depends on a traced value inside of a try statement \(line \d+\)"),
        (in_a_generator, "inside of a generator expression"),
        (in_a_comprehension, "inside of the condition of a comprehension"),
        (with_walrus, "return x > 0 and .* inside of what stays Python"),
    ],
)
def test_traced_conditions_in_what_stays_python(function: Any, message: str) -> None:
    with pytest.raises(RewritingError, match=message):
        run(function, number(1))
    assert function(1) == rewritten(function).function(1)


def leaves(x: Any) -> Any:
    for i in range(x):
        try:
            break
        finally:
            x = i
    return x


def test_jumps_out_of_what_was_taken_over() -> None:
    with pytest.raises(RewritingError, match="leaves this for, which depends on a traced value"):
        run(leaves, number(3))


def fails(x: Any) -> Any:
    if x > 0:
        x = {}["missing"]
    return x


def test_exceptions_are_thrown_into_the_generator_and_go_on() -> None:
    runtime = Recording()
    with running(runtime), pytest.raises(KeyError) as caught:
        substitute(fails)(number(1))
    assert runtime.thrown == [caught.value]
    assert [each.name for each in caught.traceback][1:] == ["fails"]


def one_branch(x: Any) -> Any:
    if x > 0:
        y = 1
    return y


def test_what_one_branch_binds_is_the_runtimes_choice() -> None:
    assert run(one_branch, number(1))[0] == 1
    with pytest.raises(UnboundLocalError):
        run(one_branch, number(-1))


def outer(x: Any) -> Any:
    count = 0

    def add() -> None:
        nonlocal count
        count += 1

    if x > 0:
        add()
    functions = [lambda v: 1 < v < 3, one_branch]
    return count, one(lambda v: v or 5, x - 1), abs(0), [function(x) for function in functions]


def one(function: Any, x: Any) -> Any:
    return function(x) if x < 100 else None


def test_cells_of_inner_functions_and_lambdas() -> None:
    for value in (1, 2):
        found, runtime = run(outer, number(value))
        assert found == outer(value)
    assert {Kind.IF, Kind.OR, Kind.COMPARE, Kind.TERNARY} <= runtime.taken


def test_undefined_raises_when_used() -> None:
    with pytest.raises(UnboundLocalError):
        bool(UNDEFINED)
    with pytest.raises(UnboundLocalError):
        len(UNDEFINED.shape)
