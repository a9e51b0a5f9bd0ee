"""The decorator: signatures, containers, static arguments, what is refused and how it says so."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import random
import threading
import weakref
from collections import namedtuple
from pathlib import Path
from typing import Any

import hlojit
import hlojit.compiler
import numpy as np
import pytest
from hlojit.tracing.errors import TracingError
from hlojit.tracing.rewriting import as_is

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class State:
    """Some weights."""

    weights: Any
    bias: Any = 0.0


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the modules that are compiled from now on."""
    seen: list[str] = []
    compile_module = hlojit.compiler.compile

    def counted(module: Any, **options: Any) -> Any:
        seen.append(str(module.name))
        return compile_module(module, **options)

    monkeypatch.setattr(hlojit.compiler, "compile", counted)
    return seen


def test_compiled_once_a_signature(compilations: list[str]) -> None:
    @hlojit.jit
    def double(x: Any) -> Any:
        return x * 2

    for _ in range(3):
        double(np.ones(3))
    assert len(compilations) == 1
    double(np.zeros((3,)))
    double(np.ones(6)[::2])
    assert len(compilations) == 1
    double(np.ones(4))
    double(np.ones(3, "f4"))
    double(3)
    double(4)
    double(4.0)
    assert len(compilations) == 5
    assert "5 signatures" in repr(double)


def test_a_signature_is_compiled_once_by_many_threads(compilations: list[str]) -> None:
    double = hlojit.jit(lambda x: x * 2)
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(double(np.ones(5)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compilations) == 1 and len(results) == 8
    for result in results:
        np.testing.assert_array_equal(result, 2)


def test_containers_go_in_and_out() -> None:
    @hlojit.jit
    def inside(tree: Any, pair: Pair, state: State, nothing: None, *rest: Any, **named: Any) -> Any:
        assert nothing is None
        return {
            "pair": Pair(pair.first + 1, [pair.second]),
            "state": State(state.weights * 2, None),
            "none": None,
            "rest": rest,
            "named": {key: value + 1 for key, value in named.items()},
            "tree": (tree["a"][0], tree["b"], (), {}, 5, np.arange(2)),
        }

    one = np.ones(2)
    result = inside({"b": one, "a": [one * 3]}, Pair(one, one), State(one, one), None, one, one * 7, x=one, y=one * 4)
    assert isinstance(result["pair"], Pair) and isinstance(result["pair"].second, list)
    assert isinstance(result["state"], State) and result["state"].bias is None and result["none"] is None
    np.testing.assert_array_equal(result["pair"].first, [2, 2])
    np.testing.assert_array_equal(result["state"].weights, [2, 2])
    np.testing.assert_array_equal(result["rest"][1], [7, 7])
    np.testing.assert_array_equal(result["named"]["y"], [5, 5])
    np.testing.assert_array_equal(result["tree"][0], [3, 3])
    assert result["tree"][2] == () and result["tree"][3] == {} and result["tree"][4] == 5
    np.testing.assert_array_equal(result["tree"][5], [0, 1])


def test_keyword_and_default_arguments() -> None:
    @hlojit.jit
    def inside(x: Any, y: Any = 2.0, *, scale: Any = 3) -> Any:
        return x * y * scale

    one = np.ones(2, "f4")
    for result, number in ((inside(one), 6), (inside(y=4.0, x=one), 12), (inside(one, scale=one), 2)):
        np.testing.assert_array_equal(result, number)
        assert result.dtype == np.float32
    with pytest.raises(TypeError):
        inside()
    with pytest.raises(TypeError):
        inside(one, wrong=1)


def test_static_arguments(compilations: list[str]) -> None:
    @hlojit.jit(static_argnames=("kind", "count"))
    def inside(x: Any, kind: str, count: int = 2) -> Any:
        if kind == "double":
            return x * 2
        return np.concatenate([x] * count)

    one = np.ones(2)
    assert inside(one, "double")[0] == 2
    assert inside(one, kind="repeat").shape == (4,)
    assert inside(one, "repeat", count=3).shape == (6,)
    assert inside(one, "repeat", 3).shape == (6,)
    assert len(compilations) == 3
    with pytest.raises(hlojit.ArgumentError, match=r"static arguments must be hashable.*kind=\[1\]"):
        inside(one, [1])
    with pytest.raises(hlojit.HlojitError, match="static_argnames names wrong"):
        hlojit.jit(static_argnames="wrong")(lambda x: x)


def test_static_arguments_of_equal_value_and_other_type_are_different() -> None:
    @hlojit.jit(static_argnames="n")
    def inside(x: Any, n: Any) -> Any:
        return x * n

    x = np.ones(1, "i4")
    assert inside(x, 2).dtype == np.int32
    assert inside(x, 2.0).dtype == np.float64
    assert inside(x, True).dtype == np.int32


def test_static_argument_with_positional_rest() -> None:
    @hlojit.jit(static_argnames="n")
    def inside(n: int, *arrays: Any, **named: Any) -> Any:
        return sum(arrays) * n + named["z"]

    np.testing.assert_array_equal(inside(3, np.ones(2), np.ones(2), z=np.ones(2)), 7)


def test_methods_closures_and_nested_functions(compilations: list[str]) -> None:
    class Model:
        def __init__(self, factor: float):
            self.factor = factor

        @hlojit.jit
        def forward(self, x: Any) -> Any:
            return x * 2

    captured = np.arange(3.0)

    @hlojit.jit
    def inner(x: Any) -> Any:
        return x + captured

    @hlojit.jit
    def outer(x: Any) -> Any:
        return inner(x) * inner(x=x)

    np.testing.assert_array_equal(outer(np.ones(3)), [1, 4, 9])
    assert len(compilations) == 1
    with pytest.raises(hlojit.ArgumentError, match="static_argnames"):
        Model(2.0).forward(np.ones(2))


def test_method_with_static_self() -> None:
    class Model:
        factor = 3

        def forward(self, x: Any) -> Any:
            return x * self.factor

        fast = hlojit.jit(static_argnames="self")(forward)

    np.testing.assert_array_equal(Model().fast(np.ones(2)), 3)


def test_results_of_every_kind() -> None:
    x = np.arange(3.0)
    assert hlojit.jit(lambda x: None)(x) is None
    assert hlojit.jit(lambda x: ())(x) == ()
    result = hlojit.jit(lambda x: x)(x)
    np.testing.assert_array_equal(result, x)
    assert not np.shares_memory(result, x), "a result never shares an argument's memory"
    first, second = hlojit.jit(lambda x: (x + 1,) * 2)(x)
    assert not np.shares_memory(first, second)
    assert hlojit.jit(lambda: np.ones(2))().tolist() == [1, 1]
    assert hlojit.jit(lambda x: 3)(x) == 3
    constant = hlojit.jit(lambda: (np.ones(2),) * 2)
    constant()[0][:] = 5
    np.testing.assert_array_equal(constant()[0], 1)


OBJECT = object()
REFUSED = [
    (as_is(lambda x: 1 if x.sum() > 0 else 2), r"np\.where"),
    (as_is(lambda x: x[0] and x[1]), r"np\.where"),
    (as_is(lambda x: float(x[0])), r"\.astype"),
    (as_is(lambda x: int(x[0])), r"\.astype"),
    (lambda x: range(x[0]), r"cannot be interpreted as an integer"),
    (lambda x: np.zeros(x.sum().astype(int)), r"static"),
    (as_is(lambda x: np.array(x)), r"static"),
    (lambda x: {x[0]: 1}, r"static"),
    (lambda x: f"{x[0]:.3f}", r"format them outside"),
    (as_is(lambda x: 1.0 in x), r"np\.any"),
    (lambda x: np.resize(x, 300).tolist(), r"return the array"),
    (lambda x: x + "text", r"'add' did not contain a loop"),
    (lambda x: object(), r"result is <object .* of type object, no array and no container; return arrays"),
    (lambda x: x + OBJECT, r"object objects cannot be used in a compiled function: OBJECT of type object is neither"),
    (lambda x: np.array(["a"]), r"result: .* has elements of dtype <U1: texts stay outside"),
    (lambda x: x + np.datetime64("2020-01-01"), r"elements of dtype datetime64\[D\]: pass the dates as integers"),
]


@pytest.mark.parametrize(("function", "hint"), REFUSED)
def test_what_cannot_be_compiled_is_refused_with_advice(function: Any, hint: str) -> None:
    with pytest.raises((hlojit.HlojitError, TypeError), match=hint):
        hlojit.jit(function)(np.ones(3))


def test_generators_and_coroutines_are_refused() -> None:
    def generator(x: Any) -> Any:
        yield x

    async def coroutine(x: Any) -> Any:
        return x

    for function in (generator, coroutine):
        with pytest.raises(TracingError, match="generator or coroutine"):
            hlojit.jit(function)


@pytest.mark.parametrize(
    "argument", [["text"], object(), [lambda: 0], np.array(["a"]), np.array([None]), np.array([1], "M8[s]")]
)
def test_arguments_that_are_no_arrays_are_refused(argument: Any) -> None:
    with pytest.raises(hlojit.ArgumentError):
        hlojit.jit(lambda x: 1)(argument)


def test_arrays_of_every_layout() -> None:
    function = hlojit.jit(lambda x: x + 1)
    base = np.arange(24, dtype="f4").reshape(4, 6)
    read_only = base.copy()
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"x" + base.tobytes(), "u1")[1:].view("f4").reshape(4, 6)
    for array in (
        base.T,
        base[::2, ::-3],
        np.asfortranarray(base),
        read_only,
        unaligned,
        base.astype(">f4"),
        base[1:1],
        np.broadcast_to(base[0], (4, 6)),
        base[0, 0],
    ):
        np.testing.assert_array_equal(function(array), np.asarray(array) + 1)


def test_subclasses_of_arrays_are_refused(tmp_path: Path) -> None:
    double = hlojit.jit(lambda x: x * 2)
    for array, advice in ((np.matrix([[1, 2]]), r"np\.asarray\(x\)$"), (np.ma.masked_less(np.arange(3), 1), "filled")):
        with pytest.raises(hlojit.ArgumentError, match=f"is of type .*, a subclass of NumPy's arrays.*{advice}"):
            double(array)
    mapped = np.memmap(tmp_path / "array", "f8", "w+", shape=(3,))
    hlojit.jit(lambda x: x.__setitem__(1, 5.0))(mapped)
    assert double(mapped).tolist() == [0, 10, 0]


class Sampler:
    """Draws from its own generator."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(1)

    def draw(self, x: Any) -> Any:
        return x + self.generator.normal()


def test_random_numbers_of_the_time_of_tracing_are_refused() -> None:
    generator, other = np.random.default_rng(0), np.random.RandomState(3)
    for function in (
        lambda x: x + np.random.normal(size=3),
        lambda x: x * random.random(),
        lambda x: x + generator.normal(size=3),
        lambda x: x + other.normal(size=3),
        lambda x, g=generator: x + g.integers(5),
        Sampler().draw,
    ):
        with pytest.raises(
            TracingError, match=r"(were drawn from .*|draws numbers) while the function (was|is) traced"
        ):
            hlojit.jit(static_argnames="g")(function)(np.ones(3)) if "g" in str(
                inspect.signature(function)
            ) else hlojit.jit(function)(np.ones(3))
    x = np.ones(3)
    inside = hlojit.jit(lambda x: x + np.random.default_rng(7).normal(size=3))
    np.testing.assert_array_equal(inside(x), x + np.random.default_rng(7).normal(size=3))


FACTOR = 2.0


def scaled(x: Any) -> Any:
    return x * FACTOR


def test_names_that_are_bound_again_are_read_again(monkeypatch: pytest.MonkeyPatch, compilations: list[str]) -> None:
    offset = 1.0

    @hlojit.jit
    def inside(x: Any) -> Any:
        return scaled(x) + offset

    x = np.ones(2)
    assert inside(x)[0] == 3 and inside(x)[0] == 3
    assert len(compilations) == 1
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    assert inside(x)[0] == 6
    offset = 2.0
    assert inside(x)[0] == 7
    monkeypatch.setitem(globals(), "scaled", lambda x: x - 1)
    assert inside(x)[0] == 2
    assert len(compilations) == 4
    monkeypatch.delitem(globals(), "scaled")
    with pytest.raises(NameError, match="scaled"):
        inside(x)


class Scale:
    """A factor that may change."""

    def __init__(self, factor: Any):
        self.factor = factor

    def apply(self, x: Any) -> Any:
        return x * self.factor

    static = hlojit.jit(static_argnames="self")(apply)


def test_attributes_of_the_object_of_a_method_are_read_again(compilations: list[str]) -> None:
    scale, x = Scale(2.0), np.ones(2)
    bound = hlojit.jit(scale.apply)
    for function in (bound, scale.static):
        scale.factor = 2.0
        assert function(x)[0] == 2 and function(x)[0] == 2
        scale.factor = np.array([3.0, 4.0])
        assert function(x).tolist() == [3, 4]
    assert len(compilations) == 4


def test_errors_show_the_users_line() -> None:
    def wrong(x: Any) -> Any:
        return np.datetime_as_string(x)

    with pytest.raises(TracingError, match="datetime_as_string cannot be compiled"):
        hlojit.jit(wrong)(np.eye(2))
    module = hlojit.jit(lambda x: np.tanh(x) + 1).lower(np.ones(2))
    assert all("test_decorator.py" in str(each.location) for each in module.walk())


def test_a_failed_trace_leaves_nothing_behind() -> None:
    broken = [True]

    @hlojit.jit
    def sometimes(x: Any) -> Any:
        if broken:
            raise KeyError("mine")
        return x + 1

    with pytest.raises(KeyError, match="mine"):
        sometimes(np.ones(2))
    broken.clear()
    np.testing.assert_array_equal(sometimes(np.ones(2)), 2)


def test_a_tracer_that_escapes_is_refused() -> None:
    kept: list[Any] = []
    with pytest.raises(TracingError, match="leaves a traced value in 'kept'"):
        hlojit.jit(lambda x: kept.append(x) or x)(np.ones(2))
    with pytest.raises((hlojit.HlojitError, TypeError)):
        hlojit.jit(lambda y: y + kept[0])(np.ones(2))
    with pytest.raises((hlojit.HlojitError, TypeError)):
        np.asarray(kept[0])


def test_functions_and_what_they_captured_can_be_freed() -> None:
    class Big:
        pass

    big = Big()
    watch = weakref.ref(big)

    def make(big: Any) -> Any:
        return hlojit.jit(lambda x: x + (0 if big is None else 1))

    function = make(big)
    function(np.ones(2))
    del function, big
    gc.collect()
    assert watch() is None


def test_options_and_backend() -> None:
    x = np.linspace(-1, 1, 7)
    for backend in ("cpu", "reference"):
        np.testing.assert_allclose(hlojit.jit(backend=backend)(lambda x: np.tanh(x))(x), np.tanh(x), rtol=1e-15)
    with pytest.raises(hlojit.HlojitError, match="did you mean 'cpu'"):
        hlojit.jit(backend="cpus")(lambda x: x)(x)


def nested(depth: int) -> Any:
    value: Any = np.ones(3)
    for _ in range(depth):
        value = [value]
    return value


def circle() -> Any:
    value: list[Any] = []
    value.append({"a": value})
    return value


@pytest.mark.parametrize("value", [circle(), nested(5000)], ids=["circle", "deep"])
def test_containers_without_an_end_are_named(value: Any) -> None:
    with pytest.raises(hlojit.ArgumentError, match=r"take, argument second: containers nest deeper than 100 levels"):
        hlojit.jit(take)(1.0, value)
    with pytest.raises(hlojit.ArgumentError, match=r"take, argument second: containers nest"):
        hlojit.jit(take)(1.0, second=value)
    with pytest.raises(hlojit.ArgumentError, match=r"give, result: containers nest deeper"):

        @hlojit.jit
        def give(x: Any) -> Any:
            return value

        give(1.0)


def take(first: Any, second: Any) -> Any:
    return first


def test_deep_containers_work_to_the_limit() -> None:
    assert hlojit.jit(take)(2.0, nested(97)) == 2.0


def test_recursion_without_an_end() -> None:
    @hlojit.jit
    def again(x: Any) -> Any:
        return again.function(x + 1)

    with pytest.raises(TracingError, match="again recurses without an end"):
        again(1.0)


def test_a_leaked_traced_array_is_refused() -> None:
    kept: list[Any] = []
    with pytest.raises(TracingError, match="leaves a traced value in 'kept'"):
        hlojit.jit(lambda x: kept.append(x) or x)(np.ones(3))
    [leaked] = kept
    for use in (
        lambda: leaked + 1,
        lambda: np.ones(3) * leaked,
        lambda: leaked[0],
        lambda: leaked.sum(),
        lambda: hlojit.jit(lambda x: x + leaked)(np.ones(3)),
        lambda: hlojit.jit(lambda x: np.where(x > 0, x, leaked))(np.ones(3)),
        lambda: hlojit.jit(lambda x: leaked)(np.ones(3)),
    ):
        with pytest.raises(TracingError, match="a traced array of another trace"):
            use()


@pytest.mark.parametrize(
    "name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4", "uint4", "int8", "bool"]
)
def test_arrays_of_other_libraries_are_taken_whatever_their_type(name: str) -> None:
    jax_numpy = pytest.importorskip("jax.numpy")
    x = jax_numpy.asarray([1, 0, 1], name)
    result = hlojit.jit(lambda x: x[::-1])(x[:2])
    expected = np.asarray(x[:2])[::-1]
    assert result.dtype == expected.dtype and result.tolist() == expected.tolist()
    assert hlojit.get(hlojit.put(x)).tolist() == np.asarray(x).tolist()


def test_a_call_of_another_kind_changes_nothing() -> None:
    function = hlojit.jit(lambda a: a * 2)
    for _ in range(2):
        assert function("text") == "texttext"
        np.testing.assert_array_equal(function(np.ones(2)), [2, 2])


@pytest.mark.parametrize(
    "captured", [np.matrix([[1.0, 2.0], [3.0, 4.0]]), np.ma.masked_array(np.ones((2, 2)), [[0, 1], [0, 0]])]
)
def test_captured_subclasses_are_refused(captured: Any) -> None:
    for function in (
        lambda x: x * captured,
        lambda x: np.add(x, captured).sum(),
        lambda x: captured,
        lambda x: np.where(x > 0, captured, x),
    ):
        with pytest.raises(hlojit.HlojitError, match=type(captured).__name__):
            hlojit.jit(function)(np.ones((2, 2)))


def test_a_new_attribute_of_a_dataclass_is_refused() -> None:
    @dataclasses.dataclass
    class State:
        w: Any

        @hlojit.jit
        def step(self, x: Any) -> Any:
            self.before = x + 1
            return x + self.w

    with pytest.raises(hlojit.HlojitError, match="changes a list, dictionary or object"):
        State(np.ones(2)).step(np.ones(2))
