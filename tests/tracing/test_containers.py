"""Containers of arrays: registered classes, dataclasses of all kinds, subclasses of Python's own, methods of classes."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from typing import Any, NamedTuple

import hlojit
import numpy as np
import pytest
from hlojit.tracing import TracingError

X = np.arange(4.0)


class Point:
    """A plain class; the name is static."""

    def __init__(self, x: Any, y: Any, name: str = "p"):
        assert name is not None
        self.x, self.y, self.name = x, y, name

    def moved(self, by: Any) -> Point:
        return Point(self.x + by, self.y - by, self.name)


hlojit.register_pytree(Point, lambda p: ((p.x, p.y), p.name), lambda name, xy: Point(*xy, name))


@hlojit.register_pytree
class Ring:
    """By JAX's protocol, without a dictionary of attributes."""

    __slots__ = ("inner", "outer")

    def __init__(self, inner: Any, outer: Any):
        self.inner, self.outer = inner, outer

    def tree_flatten(self) -> Any:
        return (self.inner, {"outer": self.outer}), None

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> Ring:
        return cls(children[0], children[1]["outer"])


@hlojit.register_dataclass(data_fields=("weights", "bias"))
class Layer:
    """A plain class with methods; whatever else it has is static."""

    def __init__(self, weights: Any, bias: Any, activation: Any = np.tanh):
        self.weights, self.bias, self.activation = weights, bias, activation

    @hlojit.jit
    def __call__(self, x: Any) -> Any:
        return self.activation(x @ self.weights + self.bias)

    @hlojit.jit
    def step(self, rate: float) -> None:
        self.weights -= rate * self.weights

    @hlojit.jit
    def rebinds(self, x: Any) -> Any:
        self.bias = x
        return x

    @hlojit.jit
    def extends(self, x: Any) -> Any:
        self.extra = x
        return x


def test_registered_classes_are_arguments_and_results() -> None:
    f = hlojit.jit(lambda p: p.moved(1.0))
    made = f(Point(X, 2 * X, "a"))
    assert type(made) is Point and made.name == "a"
    np.testing.assert_array_equal(made.x, X + 1)
    np.testing.assert_array_equal(made.y, 2 * X - 1)
    assert f(Point(X, 2 * X, "b")).name == "b"
    ring = hlojit.jit(lambda r: Ring(r.outer, r.inner))(Ring(1, X))
    assert type(ring) is Ring and ring.outer == 1
    np.testing.assert_array_equal(ring.inner, X)


def test_what_is_static_counts_as_static_arguments_do() -> None:
    f = hlojit.jit(lambda p: p.x * (1 if str(p.name) == "0.0" else -1))
    by_name = lambda name: f(_named(name))[1]  # noqa: E731
    assert [by_name(0.0), by_name(-0.0), by_name(0.0)] == [1, -1, 1]


def _named(name: Any) -> Point:
    made = Point(X, X)
    made.name = name
    return made


def test_registered_classes_everywhere() -> None:
    p = Point(X, X + 1, "a")
    shift = lambda q: q.moved(1.0)  # noqa: E731
    loop = hlojit.jit(lambda p: hlojit.fori_loop(0, 3, lambda i, q: shift(q), p))(p)
    np.testing.assert_array_equal(loop.x, X + 3)
    branch = hlojit.jit(lambda p, c: hlojit.cond(c > 0, shift, lambda q: q, p))(p, 1)
    np.testing.assert_array_equal(branch.y, X)
    last, rows = hlojit.jit(
        lambda p: hlojit.scan(lambda c, q: (c.moved(q.x.sum()), q), p, Point(np.ones((2, 4)), X[:2]))
    )(p)
    np.testing.assert_array_equal(last.x, X + 8)
    assert type(rows) is Point and rows.x.shape == (2, 4)
    batch = hlojit.vmap(lambda q: q.moved(q.x.sum()))(Point(np.ones((2, 3)), np.ones((2, 3))))
    np.testing.assert_array_equal(batch.x, np.full((2, 3), 4.0))
    axes = hlojit.vmap(lambda q: q.x + q.y, in_axes=(Point(0, None),))(Point(np.ones((2, 3)), np.ones(3)))
    np.testing.assert_array_equal(axes, np.full((2, 3), 2.0))
    slope = hlojit.grad(lambda q: (q.x * q.y).sum())(p)
    assert type(slope) is Point and slope.name == "a"
    np.testing.assert_array_equal(slope.x, X + 1)
    captured = hlojit.jit(lambda x: x + p.x)(X)
    np.testing.assert_array_equal(captured, 2 * X)


def test_registered_classes_behind_pythons_branches_and_loops() -> None:
    @hlojit.jit
    def f(p: Point, n: int) -> Point:
        while p.x[0] < n:
            p = p.moved(1.0)
        if n > 3:
            p = Point(p.y, p.x, p.name)
        return p

    for n in (2, 5):
        made, expected = f(Point(X, X), n), f.function(Point(X, X), n)
        np.testing.assert_array_equal(made.x, expected.x)
        np.testing.assert_array_equal(made.y, expected.y)


def test_methods_of_registered_classes() -> None:
    layer = Layer(np.eye(4), np.zeros(4))
    np.testing.assert_allclose(layer(X), np.tanh(X))
    layer.activation = np.sin
    np.testing.assert_allclose(layer(X), np.sin(X))
    layer.weights[:] = 2 * np.eye(4)
    np.testing.assert_allclose(layer(X), np.sin(2 * X))
    layer.step(0.5)
    np.testing.assert_array_equal(layer.weights, np.eye(4))


def test_attributes_of_an_argument_are_not_set_unseen() -> None:
    layer = Layer(np.eye(4), np.zeros(4))
    with pytest.raises(TracingError, match=r"rebinds changes .* argument \(self\.bias\)"):
        layer.rebinds(X)
    with pytest.raises(TracingError, match=r"extends changes .* argument \(self\.extra\)"):
        layer.extends(X)

    def slot(r: Ring) -> Any:
        r.inner = r.outer

    def element(d: Any) -> Any:
        d["a"].insert(0, 1.0)

    with pytest.raises(TracingError, match=r"\(r\.inner\)"):
        hlojit.jit(slot)(Ring(X, X))
    with pytest.raises(TracingError, match=r"\(d\['a'\]\[0\]\)"):
        hlojit.jit(element)({"a": [X]})


def test_children_that_flatten_computes() -> None:
    class Doubled:
        def __init__(self, half: Any):
            self.half = half

    hlojit.register_pytree(Doubled, lambda d: ((2 * d.half,), None), lambda _, c: Doubled(c[0] / 2))
    np.testing.assert_array_equal(hlojit.jit(lambda d: d)(Doubled(X)).half, X)


def test_plain_classes_name_self_and_what_to_write() -> None:
    class Model:
        def __init__(self) -> None:
            self.w, self.k = np.ones(4), 2.0

        @hlojit.jit
        def go(self, x: Any) -> Any:
            return self.w * x * self.k

        @hlojit.jit(static_argnames="self")
        def static(self, x: Any) -> Any:
            return self.w * x * self.k

    model = Model()
    with pytest.raises(
        hlojit.ArgumentError, match=r"argument self: .*register_dataclass\(Model, data_fields=\('w',\)\).*'self'"
    ):
        model.go(X)
    np.testing.assert_array_equal(model.static(X), 2 * X)
    model.k = 3.0
    np.testing.assert_array_equal(model.static(X), 3 * X)
    hlojit.register_dataclass(Model, data_fields=("w",), meta_fields=("k",))
    np.testing.assert_array_equal(model.go(X), 3 * X)
    model.other = 1  # type: ignore[attr-defined]
    with pytest.raises(hlojit.ArgumentError, match=r"go, argument self: .* has the attribute 'other'"):
        model.go(X)


def test_static_attributes_are_looked_at_in_every_call() -> None:
    class Options:
        def __init__(self) -> None:
            self.scale = 2.0
            self.table = [1.0]

    @hlojit.register_dataclass(data_fields=("x",))
    class Scaled:
        def __init__(self, x: Any, options: Any):
            self.options, self.x = options, x

        @hlojit.jit
        def total(self) -> Any:
            return (self.x * self.options.scale).sum() + self.options.table[0]

    options = Options()
    scaled = Scaled(X, options)
    for _ in range(3):
        assert scaled.total() == 13
    for scale, term in ((3.0, 1.0), (3.0, 5.0), (2.0, 1.0)):
        options.scale, options.table[0] = scale, term
        for _ in range(3):
            assert scaled.total() == 6 * scale + term
    for x, expected in ((X + 1, 21), (X[:2], 3)):
        scaled.x = x
        for _ in range(3):
            assert scaled.total() == expected


def test_slots_that_are_not_set() -> None:
    @dataclasses.dataclass(slots=True)
    class Sparse:
        a: Any
        b: Any = dataclasses.field(init=False)

    f = hlojit.jit(lambda s: s.a + (s.b if hasattr(s, "b") else 0.0))
    less, more = Sparse(X), Sparse(X)
    more.b = 2.0
    for _ in range(3):
        np.testing.assert_array_equal(f(less), X)
        np.testing.assert_array_equal(f(more), X + 2)


def test_attributes_of_a_static_object_that_can_be_called() -> None:
    class Scale:
        def __init__(self, factor: float):
            self.factor = factor

        @hlojit.jit(static_argnames="self")
        def __call__(self, x: Any) -> Any:
            return x * self.factor

    scale = Scale(2.0)
    for factor in (2.0, 2.0, 5.0, 5.0):
        scale.factor = factor
        assert scale(3.0) == 3 * factor


# --------------------------------------------------------------------------------------------------------------- dataclasses


@dataclasses.dataclass
class Computed:
    """``__init__`` would compute again."""

    a: Any
    total: Any = dataclasses.field(init=False)
    unit: str = dataclasses.field(default="m", metadata={"static": True})

    def __post_init__(self) -> None:
        self.a = self.a * 2
        self.total = self.a.sum()
        self.extra = self.a + 1

    @functools.cached_property
    def mean(self) -> Any:
        return self.a.mean()


@dataclasses.dataclass(frozen=True, slots=True)
class Base:
    a: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Derived(Base):
    b: Any = 1.0


def test_dataclasses_are_made_without_init() -> None:
    made = hlojit.jit(lambda d: d)(Computed(X))
    np.testing.assert_array_equal(made.a, 2 * X)
    assert made.total == 12 and made.unit == "m"
    np.testing.assert_array_equal(made.extra, 2 * X + 1)
    inside = hlojit.jit(lambda x: Computed(x))(X)
    np.testing.assert_array_equal(inside.extra, 2 * X + 1)
    cached = Computed(X)
    assert hlojit.jit(lambda d: d.mean)(cached) == 3 and "mean" not in vars(cached)
    derived = hlojit.jit(lambda d: Derived(d.b + 1, d.a))(Derived(X, 2.0))
    assert type(derived) is Derived and derived.a == 3.0
    np.testing.assert_array_equal(derived.b, X)


def test_attributes_beside_the_fields_belong_to_the_call() -> None:
    @dataclasses.dataclass
    class State:
        w: Any

    f = hlojit.jit(lambda s: s.w * getattr(s, "scale", 1.0))
    plain, scaled = State(X), State(X)
    scaled.scale = 3.0  # type: ignore[attr-defined]
    for _ in range(3):
        np.testing.assert_array_equal(f(plain), X)
        np.testing.assert_array_equal(f(scaled), 3 * X)


# ------------------------------------------------------------------------------------------------- subclasses of Python's own


class Pair(NamedTuple):
    a: Any
    b: Any


class Strict(namedtuple("Strict", "a b")):
    __slots__ = ()

    def __new__(cls, a: Any) -> Any:
        return super().__new__(cls, a, 2 * a)


class Rows(list[Any]):
    pass


class Table(dict[str, Any]):
    pass


def test_pythons_containers_keep_their_type() -> None:
    ordered = hlojit.jit(lambda d: d)(OrderedDict(b=X, a=1))
    assert type(ordered) is OrderedDict and list(ordered) == ["b", "a"]
    lists = hlojit.jit(lambda d: d)(defaultdict(list, b=[X]))
    assert type(lists) is defaultdict and lists["new"] == []
    assert type(hlojit.jit(lambda t: t)(Pair(X, 1))) is Pair
    strict = hlojit.jit(lambda t: t)(Strict(X))
    assert type(strict) is Strict
    np.testing.assert_array_equal(strict.b, 2 * X)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (Rows([X]), r"of type Rows is a subclass of list.*pass list\(v\)"),
        (Table(a=X), r"of type Table is a subclass of dict.*pass dict\(v\)"),
        (Counter("ab"), r"of type Counter is a subclass of dict"),
        (deque([1, 2]), r"of type deque is no array and no container"),
        ({1, 2}, r"of type set is no array and no container"),
        (object(), r"of type object is no array and no container"),
        (np.ma.array(X, mask=[0, 1, 0, 0]), r"of type MaskedArray.*v\.filled"),
        (np.array(["2020-01-01"], "M8[D]"), r"datetime64.*\.astype\(np\.int64\)"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_what_would_lose_its_type_is_refused_by_name(value: Any, says: str) -> None:
    with pytest.raises(hlojit.ArgumentError, match=f"argument v: .*{says}"):
        hlojit.jit(lambda v: v)(value)
    with pytest.raises(hlojit.ArgumentError, match=r"argument v\['k'\]\[0\]: "):
        hlojit.jit(lambda v: v)({"k": [value]})


def test_results_keep_their_type_or_are_refused() -> None:
    for made in (Rows, lambda xs: Table(a=xs[0]), lambda xs: deque(xs), lambda xs: {1, 2}):
        with pytest.raises(TracingError, match=r"result is .*(subclass of|no container)"):
            hlojit.jit(lambda x: made([x]))(X)  # noqa: B023


# ------------------------------------------------------------------------------------------------------------------ refusals


class Unknown:
    def __init__(self, a: Any):
        self.a = a


@dataclasses.dataclass
class Named:
    a: Any
    name: str = "n"


AS_CONTAINER = r"make Unknown a dataclass, or register it: hlojit\.register_dataclass\(Unknown, data_fields=\('a',\)\)"


def in_a_branch(x: Any, n: int) -> Any:
    u = Unknown(x)
    if n > 3:
        u = Unknown(x + 1)
    return u.a


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: hlojit.jit(in_a_branch)(X, 5), rf"the variable 'u' is .*{AS_CONTAINER}"),
        (
            lambda: hlojit.jit(lambda x: hlojit.fori_loop(0, 3, lambda i, u: Unknown(u.a), Unknown(x)).a)(X),
            AS_CONTAINER,
        ),
        (
            lambda: hlojit.jit(lambda x: hlojit.scan(lambda c, u: (c, c), x, [Unknown(x)]))(X),
            rf"xs\[0\] is .*{AS_CONTAINER}",
        ),
        (lambda: hlojit.jit(Unknown)(X), rf"result is .*{AS_CONTAINER}"),
        (lambda: hlojit.grad(lambda u: u.a.sum())(Unknown(X)), rf"argument u: .*{AS_CONTAINER}"),
        (lambda: hlojit.vmap(lambda u: u.a.sum())(Unknown(X)), rf"argument u: .*{AS_CONTAINER}"),
        (lambda: hlojit.jvp(lambda u: u.a, (Unknown(X),), (1.0,)), rf"argument primals\[0\]: .*{AS_CONTAINER}"),
        (lambda: hlojit.jit(lambda *rest, **more: 1.0)(q=Unknown(X)), rf"argument q: .*{AS_CONTAINER}"),
        (
            lambda: hlojit.jit(lambda n: n.a)(Named(X)),
            r"argument n\.name: 'n' of type str .*say that the field is static, name: \.\.\.",
        ),
        (
            lambda: hlojit.jit(lambda n: n[0])((X, "a")),
            r"argument n\[1\]: 'a' .*give it as an argument of its own.*beside n",
        ),
        (lambda: hlojit.jit(lambda n: n["a"])({"a": X, "k": np.sin}), r"argument n\['k'\]: <ufunc 'sin'>.*beside n"),
    ],
)
def test_objects_in_the_way_are_named_with_what_to_write(call: Any, says: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=says):
        call()


def test_a_class_is_registered_once() -> None:
    with pytest.raises(hlojit.ArgumentError, match="class Point is registered already"):
        hlojit.register_pytree(Point, lambda p: ((), None), lambda _, c: None)
    with pytest.raises(hlojit.ArgumentError, match="class Point is registered already"):
        hlojit.register_dataclass(Point, data_fields=("x", "y"))

    class Near(Point):
        pass

    with pytest.raises(hlojit.ArgumentError, match="class Point is registered and Near, which derives from it, is not"):
        hlojit.jit(lambda p: p.x)(Near(X, X))


@pytest.mark.parametrize(
    ("register", "says"),
    [
        (lambda: hlojit.register_pytree(3), "takes a class, not 3 of type int"),
        (lambda: hlojit.register_pytree(dict, lambda d: d, lambda d: d), "class dict are is settled"),
        (lambda: hlojit.register_pytree(type("A", (), {})), "class A needs two functions, flatten"),
        (lambda: hlojit.register_dataclass(type("A", (), {})), "name the attributes of class A"),
        (lambda: hlojit.register_dataclass(type("A", (), {}), data_fields="w"), r"data_fields=\('w',\)"),
        (lambda: hlojit.register_dataclass(type("A", (list,), {}), data_fields=("w",)), "a subclass of list"),
        (lambda: hlojit.register_dataclass(type("A", (), {}), ("w",), ("w",)), "w is named twice"),
        (
            lambda: hlojit.register_dataclass(dataclasses.make_dataclass("A", ["x", "y"]), ("x",), ("z",)),
            "has the fields x, y, not z; y must be in",
        ),
    ],
)
def test_what_cannot_be_registered(register: Any, says: str) -> None:
    with pytest.raises(hlojit.ArgumentError, match=says):
        register()


def test_what_flatten_gives_is_checked() -> None:
    class Odd:
        static: Any = None
        children: Any = ()

    hlojit.register_pytree(Odd, lambda o: (o.children, o.static) if o.static != "none" else None, lambda _, c: Odd())
    odd = Odd()
    odd.static = [1]
    with pytest.raises(
        hlojit.ArgumentError, match=r"argument o: what flatten of Odd gives .* must be hashable, and is \[1\]"
    ):
        hlojit.jit(lambda o: 1.0)(odd)
    odd.static = "none"
    with pytest.raises(hlojit.ArgumentError, match="flatten of Odd gave None: a pair is expected"):
        hlojit.jit(lambda o: 1.0)(odd)
