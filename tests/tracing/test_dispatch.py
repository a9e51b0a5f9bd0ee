"""Calls that native code answers: as Python answers them, with arguments of all kinds, from several threads, after changes outside."""

from __future__ import annotations

import dataclasses
import functools
import gc
import os
import subprocess
import sys
import threading
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.environment import tables
from hlojit.runtime.dispatcher import answered, is_possible

from tests.elsewhere import processors_only

needs_native = pytest.mark.skipif(not is_possible(), reason="this Python's objects look different")

Pair = namedtuple("Pair", "a b")
scale = 2.0


@dataclasses.dataclass
class State:
    x: Any
    step: Any = 1


class Lying:
    """What says that it is an array, of another shape each time."""

    def __init__(self) -> None:
        self.calls = 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self.calls += 1
        return np.arange(float(self.calls))


class Subclass(np.ndarray):
    pass


def native_calls(function: Callable[[], object]) -> int:
    before = answered()
    function()
    return answered() - before


def twice(x: Any) -> Any:
    return x + x


def _misaligned() -> Any:
    return np.zeros(65, np.uint8)[1:].view(np.float64)


def _read_only() -> Any:
    x = np.arange(8.0)
    x.flags.writeable = False
    return x


ODD = {
    "plain": lambda: np.arange(8.0),
    "strided": lambda: np.arange(16.0)[::2],
    "reversed": lambda: np.arange(8.0)[::-1],
    "fortran": lambda: np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "broadcast": lambda: np.broadcast_to(np.float64(3.0), (8,)),
    "misaligned": _misaligned,
    "read-only": _read_only,
    "byte-swapped": lambda: np.arange(8.0).astype(">f8"),
    "0-d": lambda: np.array(2.5),
    "empty": lambda: np.zeros((0, 3)),
    "scalar": lambda: np.float32(1.5),
    "bool scalar": lambda: np.bool_(True),
    "half scalar": lambda: np.float16(0.5),
    "float": lambda: 1.25,
    "nan": lambda: float("nan"),
    "minus zero": lambda: -0.0,
    "int": lambda: 7,
    "large int": lambda: 1 << 63,
    "huge int": lambda: 1 << 64,
    "bool": lambda: True,
    "complex": lambda: 1 - 2j,
    "subclass": lambda: np.arange(8.0).view(Subclass),
    "masked": lambda: np.ma.masked_array([1.0, 2.0], [True, False]),
    "matrix": lambda: np.asmatrix(np.eye(2)),
    "objects": lambda: np.array([1, None], object),
    "text": lambda: "text",
    "dates": lambda: np.array(["2020-01-01"], "M8[D]"),
    "records": lambda: np.zeros(2, [("a", "f8")]),
    "None": lambda: None,
    "lying": Lying,
    "range": lambda: range(3),
    "memory": lambda: memoryview(np.arange(4.0)),
    "dtype of its own": lambda: np.arange(4.0).astype(np.dtype("f8", metadata={"a": 1})),
    "large": lambda: np.ones((1, 2, 1, 2, 1, 2, 1, 2)),
}


def outcome(function: Callable[..., Any], make: Callable[[], Any]) -> Any:
    try:
        result = function(make())
    except Exception as error:
        return type(error).__name__, str(error).replace("python", "").split("0x")[0]
    if isinstance(result, hlojit.Array):
        result = np.asarray(result)
    strides = result.strides if isinstance(result, np.ndarray) else None
    return type(result), getattr(result, "dtype", None), np.shape(result), strides, np.asarray(result).tobytes()


@pytest.mark.parametrize("kind", ODD)
def test_odd_arguments_mean_the_same_on_both_paths(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_DISPATCH", "python")
    in_python = hlojit.jit(twice)
    expected = [outcome(in_python, ODD[kind]) for _ in range(3)]
    monkeypatch.setenv("HLOJIT_DISPATCH", "native")
    function = hlojit.jit(twice)
    function(np.arange(8.0))
    assert [outcome(function, ODD[kind]) for _ in range(3)] == expected


@needs_native
def test_a_switch_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(8.0)
    function = hlojit.jit(lambda x: x - 1)
    function(x)
    assert native_calls(lambda: function(x)) == 1
    monkeypatch.setenv("HLOJIT_DISPATCH", "python")
    function = hlojit.jit(lambda x: x - 1)
    function(x)
    assert native_calls(lambda: function(x)) == 0


def test_a_wrong_switch_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_DISPATCH", "fast")
    with pytest.raises(hlojit.HlojitError, match="HLOJIT_DISPATCH"):
        hlojit.jit(lambda x: x)(np.zeros(2))


FORMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "keywords": (lambda x, y: x - y, (), {"y": np.ones(3), "x": np.arange(3.0)}),
    "one keyword": (lambda x, y: x - y, (np.arange(3.0),), {"y": 2.0}),
    "default": (lambda x, y=3.0: x * y, (np.arange(3.0),), {}),
    "rest": (lambda *x, **n: x[0] + x[1] + n["a"], (np.ones(3), 2), {"a": np.ones(3)}),
    "dictionary": (lambda d: {"s": d["a"] + d["b"], "t": [d["b"], None]}, ({"a": np.ones(3), "b": 2.5},), {}),
    "nested": (lambda t: (t[0][0], {"k": t[1]}), (([np.ones(2)], (np.zeros(2),)),), {}),
    "named tuple": (lambda p: Pair(p.b, p.a), (Pair(np.ones(2), 2.0),), {}),
    "dataclass": (lambda s: State(s.x + s.step, s.step + 1), (State(np.ones(3)),), {}),
    "scalars": (lambda x, n: (x.sum(), n + 1, x.shape[0], n / 2, n > 3), (np.arange(4.0), 3), {}),
    "transposed": (lambda x: x + 1, (np.asfortranarray(np.arange(6.0).reshape(2, 3)),), {}),
    "none": (lambda x, y: x + 1, (np.ones(2), None), {}),
    "nothing": (lambda: np.ones(3), (), {}),
    "one in a tuple": (lambda x: (x + 1,), (np.ones(3),), {}),
    "empty tuple": (lambda x: (), (np.ones(3),), {}),
}


def described(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: described(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value), [described(each) for each in value]
    if dataclasses.is_dataclass(value):
        return type(value), described(vars(value))
    strides = value.strides if isinstance(value, np.ndarray) else None
    return type(value), getattr(value, "dtype", None), strides, np.asarray(value).tolist()


@needs_native
@pytest.mark.parametrize("form", FORMS)
def test_forms_of_calls_and_results(form: str) -> None:
    function, arguments, named = FORMS[form]
    jitted = hlojit.jit(function)
    first = described(jitted(*arguments, **named))

    def again() -> None:
        for _ in range(3):
            assert described(jitted(*arguments, **named)) == first

    assert native_calls(again) == 3


@needs_native
def test_static_arguments_are_told_apart() -> None:
    @functools.partial(hlojit.jit, static_argnames=("n", "how"))
    def power(x: Any, n: Any = 2, *, how: Any = ("a", 1)) -> Any:
        return x * n if how[0] == "a" else x - n

    x = np.arange(4)
    for n in (2, 2.0, True, 0.0, -0.0, float("nan"), 1 << 70, "no", 2):
        for how in (("a", 1), ("a", 1.0), ("b", True)):
            if isinstance(n, str):
                continue
            expected = np.array(power.function(x, n, how=how)) if not (isinstance(n, int) and n > 1 << 63) else None
            for _ in range(2):
                if expected is not None:
                    got = power(x, n, how=how)
                    assert got.dtype == expected.dtype and got.tobytes() == expected.tobytes(), (n, how)
    assert native_calls(lambda: power(x, 2)) == 0
    assert native_calls(lambda: power(x, int("1000") - 998)) == 1


@needs_native
def test_attributes_of_a_static_object() -> None:
    class Model:
        def __init__(self) -> None:
            self.rate = 2.0

        @functools.partial(hlojit.jit, static_argnames="self")
        def run(self, x: Any) -> Any:
            return x * self.rate

    x, model = np.arange(3.0), Model()
    for rate in (2.0, 5.0, 2.0):
        model.rate = rate
        for _ in range(2):
            np.testing.assert_array_equal(model.run(x), x * rate)
    assert native_calls(lambda: model.run(x)) == 1
    model.__dict__ = {"rate": 7.0}
    np.testing.assert_array_equal(model.run(x), x * 7)


@needs_native
def test_bound_methods_class_methods_and_partials() -> None:
    class Model:
        rate = 3.0

        def __init__(self) -> None:
            self.offset = 1.0

        def run(self, x: Any) -> Any:
            return x * self.rate + self.offset

        @classmethod
        def of_class(cls, x: Any) -> Any:
            return x * cls.rate

    model, x = Model(), np.arange(3.0)
    for function in (hlojit.jit(model.run), hlojit.jit(Model.of_class), hlojit.jit(functools.partial(model.run))):
        function(x)
        assert native_calls(functools.partial(function, x)) == 1
    run = hlojit.jit(model.run)
    run(x)
    model.offset = 10.0
    np.testing.assert_array_equal(run(x), x * 3 + 10)
    of_class = hlojit.jit(Model.of_class)
    of_class(x)
    Model.rate = 4.0
    np.testing.assert_array_equal(of_class(x), x * 4)


@needs_native
def test_names_that_mean_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    offset = 1.0

    @hlojit.jit
    def function(x: Any) -> Any:
        return x * scale + offset

    x = np.arange(3.0)
    for _ in range(3):
        np.testing.assert_array_equal(function(x), x * 2 + 1)
    monkeypatch.setitem(globals(), "scale", 5.0)
    np.testing.assert_array_equal(function(x), x * 5 + 1)
    offset = 3.0
    np.testing.assert_array_equal(function(x), x * 5 + 3)
    assert native_calls(lambda: function(x)) == 1


@needs_native
def test_plugins_and_back_ends_of_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    function, x = hlojit.jit(lambda x: x + 1), np.arange(3.0)
    function(x)
    with tables().activate():
        assert native_calls(lambda: function(x)) == 0
        assert native_calls(lambda: function(x)) == 1
    monkeypatch.setenv("HLOJIT_BACKEND", "reference")
    assert native_calls(lambda: function(x)) == 0
    monkeypatch.setenv("HLOJIT_BACKEND", "no-such")
    with pytest.raises(hlojit.HlojitError, match="no-such"):
        function(x)
    monkeypatch.delenv("HLOJIT_BACKEND")
    np.testing.assert_array_equal(function(x), x + 1)


@needs_native
def test_written_arguments() -> None:
    def step(x: Any, y: Any) -> None:
        x += y
        y[0] = 7

    function = hlojit.jit(step)
    x, y = np.arange(4.0), np.ones(4)
    copy_x, copy_y = x.copy(), y.copy()

    def run() -> None:
        for _ in range(3):
            function(x, y)
            step(copy_x, copy_y)
            np.testing.assert_array_equal((x, y), (copy_x, copy_y))

    assert native_calls(run) == 2
    both = np.arange(8.0)
    with pytest.raises(hlojit.ArgumentError, match="share a part"):
        function(both[:4], both[2:6])
    same, expected = np.arange(4.0), np.arange(4.0)
    function(same, same)
    step(expected, expected)
    np.testing.assert_array_equal(same, expected)
    y.flags.writeable = False
    before = x.copy()
    with pytest.raises(ValueError, match="read-only"):
        function(x, y)
    np.testing.assert_array_equal(x, before)


@processors_only
@needs_native
def test_donated_arguments() -> None:
    function = hlojit.jit(lambda x, y: x + y, donate_argnums=0)
    y = np.ones(1000)
    for _ in range(3):
        x = np.arange(1000.0)
        np.testing.assert_array_equal(function(x, y), np.arange(1000.0) + 1)
        assert not x.flags.writeable
    np.testing.assert_array_equal(function(y, y), np.full(1000, 2.0))


@needs_native
def test_checks_that_fail() -> None:
    @hlojit.jit
    def pick(x: Any, i: Any) -> Any:
        x[0] = 9
        return x[i]

    x = np.arange(4.0)
    for _ in range(2):
        assert pick(x, np.array(1)) == 1
    x[0] = 0
    with pytest.raises(IndexError, match=r"test_dispatch\.py:\d+"):
        pick(x, np.array(5))
    assert x[0] == 0
    assert pick(x, np.array(2)) == 2


@processors_only
@needs_native
def test_references() -> None:
    function = hlojit.jit(lambda d, n, *, k: {"a": d["x"][0] + n, "b": (d["x"][1], k)})
    x, y, k = np.arange(3.0), np.ones(3), np.zeros(2)
    d = {"x": [x, y]}
    scalar = np.float64(2.0)

    def call() -> None:
        function(d, scalar, k=k)
        with pytest.raises(TypeError):
            function(d, scalar, j=k)

    call()
    watched = (function, x, y, k, d, d["x"], scalar, x.dtype, None)
    gc.collect()
    before = [sys.getrefcount(each) for each in watched]
    for _ in range(50):
        function(d, scalar, k=k)
    after = [sys.getrefcount(each) for each in watched]
    assert after[:-2] == before[:-2]
    assert all(abs(a - b) < 20 for a, b in zip(after[-2:], before[-2:]))
    result = function(d, scalar, k=k)
    array = result["a"]
    counts = [sys.getrefcount(array), sys.getrefcount(result)]
    assert counts == [3, 2]


def test_a_dropped_function_is_freed() -> None:
    import weakref

    function = hlojit.jit(lambda x: x + 1)
    for _ in range(3):
        function(np.zeros(3))
    watch = weakref.ref(function)
    del function
    gc.collect()
    assert watch() is None


def test_more_kinds_of_calls_than_entries() -> None:
    function = hlojit.jit(twice)
    for _ in range(3):
        for size in range(1, 13):
            assert function(np.ones(size)).shape == (size,)


def test_many_arguments() -> None:
    function = hlojit.jit(lambda *x: x[0] + x[-1])
    arguments = [np.ones(2)] * 1500
    for _ in range(2):
        np.testing.assert_array_equal(function(*arguments), 2 * np.ones(2))


def test_wrong_calls() -> None:
    function = hlojit.jit(lambda x, y=1: x + y)
    function(np.ones(2))
    for arguments, named in (((), {}), ((1, 2, 3), {}), ((1,), {"z": 2}), ((1,), {"x": 2})):
        for _ in range(2):
            with pytest.raises(TypeError):
                function(*arguments, **named)
    for arguments in ((), (3, np.ones(2))):
        with pytest.raises(TypeError):
            type(function).__call__(*arguments)


@needs_native
def test_no_self() -> None:
    """CPython 3.11 specializes warm calls of most C methods as if there was a ``self``."""
    function = hlojit.jit(twice)
    function(np.ones(8))
    for _ in range(200):
        with pytest.raises(TypeError, match="needs an argument"):
            type(function).__call__()
        assert type(function).__call__(function, np.ones(8))[0] == 2


def test_threads_that_change_what_is_called_with() -> None:
    function = hlojit.jit(lambda items, d: items[0] + items[1] + d["a"])
    items, d = [np.ones(64), np.ones(64)], {"a": np.ones(64)}
    expected, stop, wrong = np.full(64, 3.0), threading.Event(), []

    def change() -> None:
        while not stop.is_set():
            items[0], items[1] = np.ones(64), np.ones(64)
            d["a"] = np.ones(64)

    def call() -> None:
        for _ in range(3000):
            if not np.array_equal(function(items, d), expected):
                wrong.append(1)

    changing = threading.Thread(target=change)
    changing.start()
    calling = [threading.Thread(target=call) for _ in range(3)]
    for each in calling:
        each.start()
    for each in calling:
        each.join()
    stop.set()
    changing.join()
    assert not wrong


def test_tracers_are_traced() -> None:
    inner = hlojit.jit(twice)
    inner(np.ones(3))
    inner(np.ones(3))
    text = str(hlojit.jit(lambda x: inner(x) * 3).lower(np.ones(3)))
    assert "multiply" in text and "add" in text


def test_errors_of_the_program_hide_our_frames() -> None:
    function = hlojit.jit(lambda x, i: x[i])
    function(np.ones(3), 1)
    function(np.ones(3), 1)
    with pytest.raises(IndexError) as caught:
        function(np.ones(3), 3)
    files = {os.path.basename(entry.path) for entry in caught.traceback}
    assert files <= {"test_dispatch.py"}


@pytest.mark.slow
def test_a_python_whose_objects_look_different() -> None:
    script = """
import hlojit.runtime.objects as objects
objects.measure = lambda: None
import numpy as np, hlojit
f = hlojit.jit(lambda x: x + x)
print([f(np.ones(2)).tolist() for _ in range(3)], type(hlojit.tracing.jitted_functions.JittedFunction.__call__).__name__)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "[[2.0, 2.0], [2.0, 2.0], [2.0, 2.0]] function", done.stderr
