"""What ``jit`` is put on, and which calls of it are the same: wrappers, attributes, objects, values that Python calls equal."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import hlojit
import numpy as np
import pytest
from hlojit.ir.errors import HlojitError

X = np.ones(3, np.float32)


def plus_one(x: Any) -> Any:
    """Adds one."""
    return x + 1


def test_a_wrapper_of_a_jitted_function_is_a_function_of_its_own() -> None:
    inner = hlojit.jit(plus_one)

    @hlojit.jit
    @functools.wraps(inner)
    def outer(x: Any) -> Any:
        return inner(x) * 10

    np.testing.assert_array_equal(outer(X), X * 20)
    np.testing.assert_array_equal(inner(X), X * 2)
    assert (outer.__name__, outer.__doc__, inner.__wrapped__) == ("plus_one", "Adds one.", plus_one)
    np.testing.assert_array_equal(hlojit.jit(inner)(X), X * 2)


@pytest.mark.parametrize("name", ["plugins", "_compiled", "backend", "options", "function", "signature", "_made"])
def test_attributes_of_a_function_are_its_own(name: str) -> None:
    def f(x: Any) -> Any:
        return x + 1

    setattr(f, name, ["mine"])
    np.testing.assert_array_equal(hlojit.jit(f)(X), X * 2)


class Scale:
    def __init__(self, factor: float):
        self.factor = factor

    def __call__(self, x: Any) -> Any:
        return x * self.factor

    def scaled(self, x: Any) -> Any:
        return x * self.factor


def test_partials_objects_and_methods_are_jitted() -> None:
    scale = Scale(3.0)
    partial = functools.partial(functools.partial(lambda a, b, x: x * a * b, 1.0), 3.0)
    for function in (partial, scale, scale.scaled):
        jitted = hlojit.jit(function)
        np.testing.assert_array_equal(jitted(X), X * 3)
        assert "signatures compiled" in repr(jitted)
        assert "@main" in str(jitted.lower(X))
    with pytest.raises(HlojitError, match="Scale recurses without an end"):
        again: Any = hlojit.jit(type("Scale", (), {"__call__": lambda self, x: again(x)})())
        again(X)
    with pytest.raises(HlojitError, match="static_argnames names q, but Scale has the parameters x"):
        hlojit.jit(static_argnames="q")(scale)


class Asynchronous:
    async def __call__(self, x: Any) -> Any:
        return x


class Generating:
    def __call__(self, x: Any) -> Any:
        yield x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (3, "hlojit.jit takes a function, not 3 of type int"),
        (Asynchronous(), "Asynchronous is a generator or coroutine"),
        (functools.partial(Generating().__call__), "__call__ is a generator or coroutine"),
        (Generating(), "Generating is a generator or coroutine"),
        (min, "the parameters of min are not known .*jit a function that calls it"),
    ],
)
def test_what_cannot_be_jitted_is_refused_by_name(function: Any, message: str) -> None:
    with pytest.raises(HlojitError, match=message):
        hlojit.jit(function)(X)


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Settings:
    factor: Any


@pytest.mark.parametrize(
    "values",
    [
        (0.0, -0.0, 0, False, np.float64(0.0), np.float64(-0.0), np.float32(-0.0)),
        ((2,), (2.0,), (True + 1 + 0j,), ((2,),), ((2.0,),)),
        (Point(1, 0), Point(True, 0), Point(1, -0.0), Point(1, 0.0), (1, 0)),
        (Settings(1), Settings(1.0), Settings((1, -0.0)), Settings((1, 0.0))),
        (frozenset([1]), frozenset([1.0]), frozenset([True])),
        (range(0, 3, 2), range(0, 4, 2)),
        (complex(0.0, 0.0), complex(0.0, -0.0), complex(-0.0, 0.0)),
    ],
    ids=repr,
)
def test_static_values_that_differ_are_compiled_apart(values: tuple[Any, ...]) -> None:
    seen: list[Any] = []

    @hlojit.jit(static_argnames="value")
    def f(x: Any, value: Any) -> Any:
        seen.append(value)
        return x

    for _ in range(2):
        for value in values:
            f(X, value)
    assert list(map(repr, seen)) == list(map(repr, values))


def test_not_a_number_is_the_same_value_every_time() -> None:
    seen: list[Any] = []

    @hlojit.jit(static_argnames="value")
    def f(x: Any, value: Any) -> Any:
        seen.append(value)
        return x

    for value in (math.nan, float("nan"), (float("nan"),), (float("nan"),)):
        f(X, value)
    assert len(seen) == 2


def test_unknown_objects_count_by_type_and_equality() -> None:
    class Always:
        def __init__(self, number: int):
            self.number = number

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Always)

        def __hash__(self) -> int:
            return 1

    class Never(Always):
        pass

    seen: list[Any] = []

    @hlojit.jit(static_argnames="value")
    def f(x: Any, value: Any) -> Any:
        seen.append(value.number)
        return x

    for value in (Always(1), Always(2), Never(3)):
        f(X, value)
    assert seen == [1, 3]
    with pytest.raises(HlojitError, match="static arguments must be hashable, got value="):
        f(X, [1])


def test_dictionaries_keep_the_keys_that_they_have() -> None:
    @hlojit.jit
    def f(d: Any) -> Any:
        return {key: value + 1 for key, value in d.items()}

    for keys in ([1], [True], [1.0], ["1"], [0.0], [-0.0], [(1, "a")], [(True, "a")]):
        result = f(dict.fromkeys(keys, X))
        assert repr(list(result)) == repr(keys)
