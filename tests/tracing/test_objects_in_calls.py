"""Objects that native code takes apart and makes: methods, named tuples, dataclasses, registered classes, other mappings."""

from __future__ import annotations

import dataclasses
import functools
import gc
import sys
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import hlojit
import numpy as np
import pytest
from hlojit.runtime.dispatcher import is_possible

from tests.elsewhere import processors_only
from tests.tracing.test_dispatch import native_calls

needs_native = pytest.mark.skipif(not is_possible(), reason="this Python's objects look different")

X = np.arange(3.0)


class Pair(NamedTuple):
    a: Any
    b: Any


class Refusing(Pair):
    """What is made without its own way of being made."""

    def __new__(cls, *arguments: Any) -> Any:
        raise AssertionError("made by tuple.__new__")


@dataclasses.dataclass
class State:
    x: Any
    step: Any = 1
    kind: str = dataclasses.field(default="plain", metadata={"static": True})


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any

    def __post_init__(self) -> None:
        raise AssertionError("does not run again")


@dataclasses.dataclass(slots=True)
class Slotted:
    x: Any
    y: Any


@hlojit.register_dataclass(data_fields=("w",))
class Layer:
    def __init__(self, w: Any, factor: float = 2.0):
        self.w, self.factor = w, factor

    @hlojit.jit
    def forward(self, x: Any) -> Any:
        """Forward."""
        return self.w * self.factor + x

    @hlojit.jit
    def moved(self, by: Any) -> Any:
        return Layer(self.w + by, self.factor)


class Deep(Layer):
    @hlojit.jit(static_argnames="self")
    def forward(self, x: Any) -> Any:
        return -x

    def above(self, x: Any) -> Any:
        return super().forward


opened = 0


@hlojit.register_pytree
class Tree:
    def __init__(self, *children: Any, name: Any = "tree"):
        self.children, self.name = children, name

    def tree_flatten(self) -> Any:
        global opened
        opened += 1
        return self.children, self.name

    @classmethod
    def tree_unflatten(cls, name: Any, children: Any) -> Tree:
        return cls(*children, name=name)

    @hlojit.jit
    def total(self, x: Any) -> Any:
        return sum(self.children) + x


def made_of(x: Any, form: str) -> Any:
    match form:
        case "named tuple":
            return Pair(x + 1, 2.5)
        case "refusing":
            return tuple.__new__(Refusing, (x, x * 2))
        case "dataclass":
            return State(x + 1, x.sum(), "other")
        case "frozen":
            made = object.__new__(Frozen)
            object.__setattr__(made, "x", x * 3)
            return made
        case "slots":
            return Slotted(x, [x + 1, None])
        case "registered":
            return Layer(x - 1, 7.0)
        case "pytree":
            return Tree(x, (x + 1, x + 2), name=("a", 1))
        case "ordered":
            return OrderedDict([("b", x), ("a", x + 1), ((1, 2), x)])
        case "default":
            return defaultdict(list, {"b": x, 1: x + 1})
        case _:
            return {"k": Pair([State(x)], OrderedDict(a=Layer(x))), "e": Tree(), "n": defaultdict(None)}


KINDS = ["named tuple", "refusing", "dataclass", "frozen", "slots", "registered", "pytree", "ordered", "default", "all"]


def described(value: Any) -> Any:
    """What tells values apart: classes, attributes, order of keys, arrays."""
    if isinstance(value, dict):
        return type(value), getattr(value, "default_factory", None), [(k, described(v)) for k, v in value.items()]
    if isinstance(value, (tuple, list)):
        return type(value), list(map(described, value)), getattr(value, "__dict__", None)
    if isinstance(value, (State, Frozen, Layer, Tree)):
        return type(value), described(vars(value))
    if isinstance(value, Slotted):
        return Slotted, described([value.x, value.y])
    if value is None or isinstance(value, str):
        return value
    return type(value), getattr(value, "dtype", None), np.asarray(value).tolist()


@needs_native
@pytest.mark.parametrize("form", KINDS)
def test_results_are_what_python_makes(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_DISPATCH", "python")
    expected = described(hlojit.jit(functools.partial(made_of, form=form))(X))
    monkeypatch.setenv("HLOJIT_DISPATCH", "native")
    function = hlojit.jit(functools.partial(made_of, form=form))
    assert described(function(X)) == expected
    kept: list[Any] = []

    def again() -> None:
        for _ in range(3):
            kept.append(function(X))
            assert described(kept[-1]) == expected

    assert native_calls(again) == 3
    assert kept[0] is not kept[1]


@processors_only
@needs_native
@pytest.mark.parametrize("form", KINDS)
def test_results_are_owned_by_who_has_them(form: str) -> None:
    function = hlojit.jit(functools.partial(made_of, form=form))
    function(X)
    gc.collect()
    shared = (None, "other", 2.5, 7.0, Pair, State, Layer, Tree, OrderedDict, list, X)
    for _ in range(20):
        function(X)
    gc.collect()
    before, objects = [sys.getrefcount(each) for each in shared], len(gc.get_objects())
    for _ in range(400):
        function(X)
    gc.collect()
    after = [sys.getrefcount(each) for each in shared]
    assert all(abs(a - b) < 100 for a, b in zip(after, before)), form
    assert len(gc.get_objects()) - objects < 100


@needs_native
def test_methods_of_registered_classes() -> None:
    layer, tree = Layer(np.ones(3)), Tree(np.ones(3), np.ones(3))
    for _ in range(3):
        np.testing.assert_array_equal(layer.forward(X), X + 2)
        np.testing.assert_array_equal(tree.total(X), X + 2)
        assert described(layer.moved(1.0)) == described(Layer(np.full(3, 2.0)))
    assert native_calls(lambda: (layer.forward(X), tree.total(X), layer.moved(1.0))) == 3
    layer.w = np.full(3, 5.0)
    layer.factor = 10.0
    np.testing.assert_array_equal(layer.forward(X), X + 50)
    np.testing.assert_array_equal(Tree(np.ones(3), name="other").total(X), X + 1)


@needs_native
def test_methods_are_found_as_pythons_are(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, deep = Layer(np.ones(3)), Deep(np.ones(3))
    for _ in range(40):
        np.testing.assert_array_equal(layer.forward(X), X + 2)
        np.testing.assert_array_equal(deep.forward(X), -X)
    assert deep.above(X).__func__ is Layer.forward and Layer.forward.__doc__ == "Forward."
    np.testing.assert_array_equal(Layer.forward(layer, X), X + 2)
    np.testing.assert_array_equal(getattr(layer, "for" + "ward")(X), X + 2)
    bound = layer.forward
    np.testing.assert_array_equal(bound(x=X), X + 2)

    def forward_of(of: Any) -> Any:
        return of.forward(X)

    for _ in range(40):
        forward_of(layer)
    shadowed = Layer(np.ones(3))
    shadowed.__dict__["forward"] = lambda x: "own"
    assert forward_of(shadowed) == "own"
    monkeypatch.setattr(Layer, "forward", lambda self, x: "replaced")
    assert forward_of(layer) == "replaced" and forward_of(deep).tolist() == (-X).tolist()


class Other:
    """Objects whose children are what a test says."""

    def __init__(self, give: Callable[[], Any]):
        self.give = give


hlojit.register_pytree(Other, lambda other: other.give(), lambda static, children: ("made", static, *children))


@needs_native
def test_what_flatten_gives_may_be_anything() -> None:
    f = hlojit.jit(lambda o: o[2] * 2)

    def generated() -> Iterator[Any]:
        yield X

    one = Other(lambda: ((X,), None))
    for _ in range(3):
        np.testing.assert_array_equal(f(one), X * 2)
    for give in (lambda: ([X], None), lambda: (generated(), None), lambda: ((X.copy(),), None)):
        for _ in range(2):
            np.testing.assert_array_equal(f(Other(give)), X * 2)
    for wrong, message in (
        (lambda: None, "flatten of Other gave None"),
        (lambda: (X,), "a pair is expected"),
        (lambda: ((X,), [1]), "must be hashable"),
        (lambda: 1 / 0, "division by zero"),
    ):
        with pytest.raises((hlojit.HlojitError, ZeroDivisionError), match=message):
            f(Other(wrong))
    assert f(Other(lambda: ((X, X), None))).tolist() == (X * 2).tolist()
    assert native_calls(lambda: f(one)) == 1


@needs_native
def test_an_interrupt_in_flatten_is_not_lost() -> None:
    f = hlojit.jit(lambda o, x: x * 2)
    raised: list[type[BaseException]] = []

    def give() -> Any:
        if raised:
            raise raised.pop()
        return (X,), None

    other = Other(give)
    for _ in range(3):
        f(other, X)
    for kind in (KeyboardInterrupt, SystemExit, GeneratorExit):
        raised.append(kind)
        with pytest.raises(kind):
            f(other, X)
    raised.append(ValueError)
    np.testing.assert_array_equal(f(other, X), X * 2)


@needs_native
def test_flatten_may_call_the_function_and_change_what_it_was_called_with() -> None:
    f = hlojit.jit(lambda o, d: d["x"] * 2)
    depth = 0
    d: dict[str, Any] = {"x": X}

    def give() -> Any:
        nonlocal depth
        if depth < 1:
            depth += 1
            np.testing.assert_array_equal(f(other, {"x": X + depth}), (X + depth) * 2)
            f.clear_cache()
            gc.collect()
            depth -= 1
        return (X,), None

    other = Other(give)
    for _ in range(4):
        np.testing.assert_array_equal(f(other, d), X * 2)


@needs_native
def test_what_unflatten_raises_is_raised() -> None:
    class Failing:
        fails = False

    def build(static: Any, children: Any) -> Any:
        if Failing.fails:
            raise LookupError("not now")
        return Failing()

    hlojit.register_pytree(Failing, lambda each: ((X,), None), build)
    f = hlojit.jit(lambda x: (x, Failing(), {"k": Failing()}))
    for _ in range(3):
        assert type(f(X)[1]) is Failing
    Failing.fails = True
    for _ in range(3):
        with pytest.raises(LookupError, match="not now"):
            f(X)
    Failing.fails = False
    assert type(f(X)[2]["k"]) is Failing


@processors_only
@needs_native
def test_threads_make_objects() -> None:
    functions = [hlojit.jit(functools.partial(made_of, form=form)) for form in KINDS]
    expected = [described(function(X)) for function in functions]
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(200):
            for function, value in zip(functions, expected):
                found = described(function(X))
                if found != value:
                    wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
