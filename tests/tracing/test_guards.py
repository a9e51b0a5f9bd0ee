"""What a jitted function reads of outside of itself: whatever changes there, the next call does what Python does."""

from __future__ import annotations

import argparse
import collections
import functools
import sys
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.runtime.dispatcher import answered, is_possible
from hlojit.tracing.calls.contents import Numbers, is_same
from hlojit.tracing.calls.guards import Guards

X = np.arange(3.0)

needs_native = pytest.mark.skipif(not is_possible(), reason="this Python's objects look different")


class Rates:
    base = 2.0

    def __init__(self) -> None:
        self.k = 5.0
        self.w = np.ones(3)
        self.inner = types.SimpleNamespace(rate=3.0)
        self.steps = [1.0, 2.0]

    @property
    def doubled(self) -> float:
        return self.k * 2

    @classmethod
    def of_class(cls) -> float:
        return cls.base

    def __call__(self, x: Any) -> Any:
        return x * self.steps[0]


class Slotted:
    __slots__ = ("k",)

    def __init__(self) -> None:
        self.k = 5.0


class Outside:
    """A set of things, made anew for each test."""

    def __init__(self) -> None:
        self.numbers = [2.0, 3.0]
        self.table: dict[Any, Any] = {"a": 2.0, 3: [1.0]}
        self.weights = np.ones(3)
        self.by_columns = np.ones((2, 3), order="F")
        self.columns = np.ones((3, 3))[:, 1]
        self.rates = Rates()
        self.slotted = Slotted()
        self.names = {"a"}
        self.queue = collections.deque([1.0])
        self.pair = ([1.0], 2.0)
        self.options = argparse.Namespace(rate=2.0)
        self.module = types.ModuleType("made_here")
        self.module.scale = 2.0  # type: ignore[attr-defined]


def cases() -> dict[str, Callable[[Outside], tuple[Callable[[Any], Any], Callable[[], object]]]]:
    """By name: what makes, of things outside, a function that reads them, and what changes them."""

    def default(o: Outside) -> Any:
        def f(x: Any, rates: list[float] = [2.0]) -> Any:  # noqa: B006 - what is tested
            return x * rates[0]

        return f, lambda: f.__defaults__[0].append(0) or f.__defaults__[0].__setitem__(0, 7.0)  # type: ignore[index]

    def other_default(o: Outside) -> Any:
        def f(x: Any, *, rate: float = 2.0) -> Any:
            return x * rate

        return f, lambda: setattr(f, "__kwdefaults__", {"rate": 7.0})

    def other_code(o: Outside) -> Any:
        def inner(x: Any) -> Any:
            return x * 2

        def later(x: Any) -> Any:
            return x * 3

        return (lambda x: inner(x)), lambda: setattr(inner, "__code__", later.__code__)

    def helper(o: Outside) -> Any:
        def inner(x: Any) -> Any:
            return x * o.rates.k

        return (lambda x: inner(x) + 1), lambda: setattr(o.rates, "k", 7.0)

    def class_attribute(o: Outside) -> Any:
        kind = type("Own", (Rates,), {"base": 3.0})
        return (lambda x: x * kind.base), lambda: setattr(kind, "base", 7.0)

    def hidden_class_attribute(o: Outside) -> Any:
        return (lambda x: x * o.rates.base), lambda: setattr(o.rates, "base", 7.0)

    def method(o: Outside) -> Any:
        kind = type("Own", (Rates,), {"value": lambda self: self.k})
        rates = kind()
        return (lambda x: x * rates.value()), lambda: setattr(kind, "value", lambda self: self.k + 1)

    return {
        "elements of a list": lambda o: ((lambda x: x * o.numbers[0]), lambda: o.numbers.__setitem__(0, 7.0)),
        "length of a list": lambda o: ((lambda x: x * len(o.numbers)), lambda: o.numbers.append(1.0)),
        "type in a list": lambda o: ((lambda x: x * len(str(o.numbers))), lambda: o.numbers.__setitem__(0, 2)),
        "value of a dictionary": lambda o: ((lambda x: x * o.table["a"]), lambda: o.table.update(a=7.0)),
        "keys of a dictionary": lambda o: ((lambda x: x * len(o.table)), lambda: o.table.pop("a")),
        "a list in a dictionary": lambda o: ((lambda x: x * o.table[3][0]), lambda: o.table[3].insert(0, 7.0)),
        "elements of an array": lambda o: ((lambda x: x * o.weights), lambda: o.weights.fill(7)),
        "an array, by NumPy": lambda o: ((lambda x: x * np.sum(o.weights)), lambda: o.weights.fill(7)),
        "an array with steps": lambda o: ((lambda x: x * o.columns), lambda: o.columns.fill(7)),
        "an array by columns": lambda o: ((lambda x: x * o.by_columns[1]), lambda: o.by_columns.fill(7)),
        "shape of an array": lambda o: ((lambda x: x * len(o.weights)), lambda: setattr(o.weights, "shape", (1, 3))),
        "an attribute": lambda o: ((lambda x: x * o.rates.k), lambda: setattr(o.rates, "k", 7.0)),
        "by getattr": lambda o: ((lambda x: x * getattr(o.rates, "k")), lambda: setattr(o.rates, "k", 7.0)),  # noqa: B009
        "a property": lambda o: ((lambda x: x * o.rates.doubled), lambda: setattr(o.rates, "k", 7.0)),
        "an array of an object": lambda o: ((lambda x: x * o.rates.w), lambda: o.rates.w.fill(7)),
        "an object of an object": lambda o: (
            (lambda x: x * o.rates.inner.rate),
            lambda: setattr(o.rates.inner, "rate", 7),
        ),
        "a called object": lambda o: ((lambda x: o.rates(x)), lambda: o.rates.steps.insert(0, 7.0)),
        "a bound method": lambda o: (o.rates.__call__, lambda: o.rates.steps.insert(0, 7.0)),
        "a slot": lambda o: ((lambda x: x * o.slotted.k), lambda: setattr(o.slotted, "k", 7.0)),
        "a set": lambda o: ((lambda x: x * 2 if "b" in o.names else x), lambda: o.names.add("b")),
        "a deque": lambda o: ((lambda x: x * o.queue[0]), lambda: o.queue.appendleft(7.0)),
        "a list in a tuple": lambda o: ((lambda x: x * o.pair[0][0]), lambda: o.pair[0].insert(0, 7.0)),
        "options": lambda o: ((lambda x: x * o.options.rate), lambda: setattr(o.options, "rate", 7.0)),
        "a module": lambda o: ((lambda x: x * o.module.scale), lambda: setattr(o.module, "scale", 7.0)),
        "a default's elements": default,
        "another default": other_default,
        "the code of a function": other_code,
        "an attribute, in a helper": helper,
        "a class's attribute": class_attribute,
        "an attribute in front of a class's": hidden_class_attribute,
        "a method of a class": method,
    }


CASES = cases()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("calls", [1, 3])
def test_what_changes_is_seen_by_the_next_call(name: str, calls: int) -> None:
    function, change = CASES[name](Outside())
    compiled = hlojit.jit(function)
    for _ in range(calls):
        np.testing.assert_array_equal(compiled(X), function(X))
    before = function(X)
    change()
    assert not np.array_equal(function(X), before), "the change is one"
    for _ in range(calls):
        np.testing.assert_array_equal(compiled(X), function(X))


class Layer:
    def __init__(self) -> None:
        self.w = np.ones(3)
        self.steps = [2.0]
        self.inner = types.SimpleNamespace(rate=3.0)

    @functools.partial(hlojit.jit, static_argnames="self")
    def forward(self, x: Any) -> Any:
        return x * self.w * self.steps[0] * self.inner.rate

    def plain(self, x: Any) -> Any:
        return x * self.w * self.steps[0] * self.inner.rate


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.w.fill(5),
        lambda layer: layer.steps.insert(0, 7.0),
        lambda layer: setattr(layer.inner, "rate", 4.0),
        lambda layer: setattr(layer, "w", layer.w + 1),
    ],
)
def test_what_static_arguments_hold_is_seen(change: Callable[[Layer], object]) -> None:
    layer = Layer()
    before = answered()
    for _ in range(3):
        np.testing.assert_array_equal(layer.forward(X), layer.plain(X))
    assert not is_possible() or answered() - before == 2
    change(layer)
    for _ in range(3):
        np.testing.assert_array_equal(layer.forward(X), layer.plain(X))


@needs_native
@pytest.mark.parametrize("name", [name for name in CASES if "steps" not in name and "deque" not in name])
def test_native_code_answers_as_long_as_nothing_changes(name: str) -> None:
    function, _ = CASES[name](Outside())
    compiled = hlojit.jit(function)
    compiled(X)
    before = answered()
    for _ in range(5):
        compiled(X)
    assert answered() - before == 5


def test_states_that_return_are_not_traced_again() -> None:
    traced: list[int] = []
    mode = types.SimpleNamespace(training=True)

    @hlojit.jit
    def f(x: Any) -> Any:
        traced.append(1)
        return x * 2 if mode.training else x

    for training in (True, False) * 5:
        mode.training = training
        np.testing.assert_array_equal(f(X), X * 2 if training else X)
    assert len(traced) == 2


def test_equal_numbers_are_the_same() -> None:
    traced, state = [], {"rate": 1000.5}

    @hlojit.jit
    def f(x: Any) -> Any:
        traced.append(1)
        return x * state["rate"]

    for _ in range(5):
        state["rate"] = float("1000.5")
        f(X)
    assert len(traced) == 1


def test_what_changes_at_every_call_is_said() -> None:
    weights = np.ones(3)
    f = hlojit.jit(lambda x: x * weights)
    with pytest.warns(hlojit.RetracingWarning, match=r"traced again 16 times.*as weights did now.*as an argument"):
        for _ in range(17):
            weights += 1
            np.testing.assert_array_equal(f(X), X * weights)


def test_what_a_function_does_to_lists_while_it_is_traced_is_done_once() -> None:
    seen: list[int] = []
    memory: dict[str, float] = {}

    @hlojit.jit
    def f(x: Any) -> Any:
        seen.append(len(seen))
        return x * memory.setdefault("k", 2.0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(20):
            np.testing.assert_array_equal(f(X), X * 2)
    assert seen == [0]
    memory["k"] = 3.0
    np.testing.assert_array_equal(f(X), X * 3)


def _arrays(guards: Guards) -> list[Any]:
    return [held for held in guards.held if isinstance(held.content, Numbers)]


def test_arrays_that_nobody_can_write_are_not_looked_at() -> None:
    fixed = np.ones(3)
    fixed.flags.writeable = False
    seen_through = np.ones(3)
    view = seen_through[:]
    view.flags.writeable = False
    text = np.frombuffer(b"12345678" * 3)
    assert not _arrays(Guards(lambda x: x + fixed + text))
    assert len(_arrays(Guards(lambda x: x + view))) == 1
    f = hlojit.jit(lambda x: x + view)
    f(X)
    seen_through += 1
    np.testing.assert_array_equal(f(X), X + 2)


def test_what_libraries_hold_is_not_looked_at() -> None:
    import json

    decoder = json.JSONDecoder()
    found = Guards(lambda x: x * len(json.dumps(decoder.strict)))
    assert [held.content.of.__name__ for held in found.held] == ["<lambda>"]
    assert "json" in sys.modules and not any(each.mapping is vars(json) for each in found.names)


def test_a_change_while_a_function_is_traced_is_seen() -> None:
    state = types.SimpleNamespace(k=2.0)

    @hlojit.jit
    def f(x: Any) -> Any:
        now = state.k
        thread = threading.Thread(target=setattr, args=(state, "k", 3.0))
        thread.start()
        thread.join()
        return x * now

    f(X)
    np.testing.assert_array_equal(f(X), X * 3)
    state.k = 2.0
    np.testing.assert_array_equal(f(X), X * 2)


def test_things_that_hold_each_other_are_looked_at_once() -> None:
    loop: list[Any] = [1.0]
    loop.append(loop)
    f = hlojit.jit(lambda x: x * loop[1][0])
    np.testing.assert_array_equal(f(X), X)
    loop[0] = 2.0
    np.testing.assert_array_equal(f(X), X * 2)


@pytest.mark.parametrize(
    "one, other, same",
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        (0.0, -0.0, False),
        (float("nan"), float("nan"), True),
        ((1, (2.0,)), (1, (2.0,)), True),
        ((1,), (1.0,), False),
        (np.float32(1), np.float32(1), True),
        (np.float32(1), np.float64(1), False),
        (1j, complex(0, 1), True),
        ("a" * 300, "a" * 300, True),
        ([1], [1], False),
    ],
)
def test_which_values_are_the_same(one: Any, other: Any, same: bool) -> None:
    assert is_same(one, other) == same


def test_a_list_that_several_functions_write_while_they_are_traced_is_no_state_of_theirs() -> None:
    log: list[str] = []

    @hlojit.jit
    def f(x: Any) -> Any:
        log.append("f")
        return x + 1

    @hlojit.jit
    def g(x: Any) -> Any:
        log.append("g")
        return x * 2

    for _ in range(3):
        f(X)
        g(X)
    assert log == ["f", "g"]
