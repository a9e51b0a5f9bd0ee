"""Every kind of container in every use: the same as plain Python, which takes it apart and makes it by its own words."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import hlojit
import numpy as np
import pytest


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass
class Data:
    a: Any
    b: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Slots:
    a: Any
    b: Any
    unit: str = dataclasses.field(default="m", metadata={"static": True})


class Plain:
    def __init__(self, a: Any, b: Any, name: Any = "n"):
        self.name, self.b, self.a = name, b, a


class Selected(Plain):
    pass


class Nested(Plain):
    pass


hlojit.register_pytree(Plain, lambda p: ((p.a, p.b), p.name), lambda name, c: Plain(*c, name))
hlojit.register_pytree(Nested, lambda p: ({"a": p.a, "b": (p.b,)}.values(), None), lambda _, c: Nested(c[0], c[1][0]))
hlojit.register_dataclass(Selected, data_fields=("a", "b"))


def with_more(a: Any, b: Any) -> Data:
    made = Data(a, None)
    made.more = b  # type: ignore[attr-defined]
    return made


def by_name(thing: Any) -> Any:
    return thing.a, thing.b


KINDS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "tuple": (lambda a, b: (a, b), lambda t: t),
    "list": (lambda a, b: [a, [b]], lambda t: (t[0], t[1][0])),
    "dict": (lambda a, b: {"y": a, "x": b}, lambda t: (t["y"], t["x"])),
    "dict of numbers": (lambda a, b: {1: a, 0: b}, lambda t: (t[1], t[0])),
    "OrderedDict": (lambda a, b: OrderedDict(y=a, x=b), lambda t: (t["y"], t["x"])),
    "defaultdict": (lambda a, b: defaultdict(list, y=a, x=b), lambda t: (t["y"], t["x"])),
    "named tuple": (Pair, by_name),
    "dataclass": (Data, by_name),
    "dataclass with more": (with_more, lambda t: (t.a, t.more)),
    "slots": (Slots, by_name),
    "registered": (Plain, by_name),
    "registered with containers": (Nested, by_name),
    "chosen attributes": (Selected, by_name),
    "all of them": (
        lambda a, b: {"p": Plain(Slots(a, None), [Selected(b, 1.0)])},
        lambda t: (t["p"].a.a, t["p"].b[0].a),
    ),
}


def once(x: Any) -> Any:
    return x * 2 + 1


def thrice(x: Any) -> Any:
    return once(once(once(x)))


USES: dict[str, tuple[Callable[[Any], Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "call": (lambda step: hlojit.jit(step), once),
    "compiled": (lambda step: lambda t: hlojit.jit(step).lower(t).compile()(t), once),
    "fori_loop": (lambda step: hlojit.jit(lambda t: hlojit.fori_loop(0, 3, lambda _, each: step(each), t)), thrice),
    "cond": (
        lambda step: lambda t: hlojit.jit(lambda t, c: hlojit.cond(c > 0, step, lambda each: each, t))(t, 1),
        once,
    ),
    "scan": (lambda step: hlojit.jit(lambda t: hlojit.scan(lambda s, each: (s, step(each)), 0.0, t)[1]), once),
    "vmap": (lambda step: hlojit.vmap(step), once),
    "jvp": (lambda step: lambda t: hlojit.jvp(step, (t,), (t,))[1], lambda x: 2 * x),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", KINDS)
def test_containers_in_uses(kind: str, use: str) -> None:
    make, parts = KINDS[kind]
    a, b = np.arange(3.0), np.arange(6.0).reshape(3, 2)

    def step(t: Any) -> Any:
        first, second = parts(t)
        return make(once(first), once(second))

    made, expected = USES[use]
    function = made(hlojit.as_is(step))
    if kind == "all of them" and use in ("scan", "vmap"):
        pytest.skip("has a number without dimensions")
    for _ in range(2 if use == "call" else 1):
        result = function(make(a, b))
        assert type(result) is type(make(a, b))
        for found, given in zip(parts(result), (a, b), strict=True):
            np.testing.assert_allclose(found, expected(given))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_and_writes_of_containers(kind: str) -> None:
    make, parts = KINDS[kind]

    def loss(t: Any) -> Any:
        first, second = parts(t)
        return (first**2).sum() + (second**3).sum()

    def write(t: Any) -> None:
        for each in parts(t):
            np.add(each, 1, out=each)

    def chosen(t: Any, c: float) -> Any:
        if c > 0:
            t = make(*(once(each) for each in parts(t)))
        return t

    a, b = np.arange(3.0), np.arange(6.0).reshape(3, 2)
    slope = hlojit.grad(loss)(make(a, b))
    np.testing.assert_allclose(parts(slope)[0], 2 * a)
    np.testing.assert_allclose(parts(slope)[1], 3 * b**2)
    branch = hlojit.jit(chosen)
    for c, expected in ((1.0, once(a)), (-1.0, a)):
        np.testing.assert_allclose(parts(branch(make(a, b), c))[0], expected)
    written = make(a.copy(), b.copy())
    hlojit.jit(write)(written)
    np.testing.assert_array_equal(parts(written)[0], a + 1)
    np.testing.assert_array_equal(parts(written)[1], b + 1)
