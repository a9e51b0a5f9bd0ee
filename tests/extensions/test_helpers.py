"""Helpers, defaults and closures of plugins' scalar functions: as Python has them, and checked like the functions."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numba
import numpy as np
import pytest

from .processes import run as run_python

Array = np.ndarray[Any, Any]
BACKENDS = ("cpu", "reference")
TABLE = np.arange(16.0)
X = np.linspace(-3, 3, 40)


def plugin(function: Callable[..., Any], target: str = "test.f") -> Any:
    calls = [ext.ElementwiseCall(target, function=function)]
    return SimpleNamespace(__name__="test", hlojit_custom_calls=ext.hookimpl(lambda: calls))


def text(operands: int = 1, kind: str = "f64") -> str:
    one = f"tensor<40x{kind}>"
    names = [f"%x{number}" for number in range(operands)]
    return (
        f"func.func @main({', '.join(f'{name}: {one}' for name in names)}) -> {one} {{\n%0 = stablehlo.custom_call "
        f"@test.f({', '.join(names)}) : ({', '.join([one] * operands)}) -> {one}\nreturn %0 : {one}\n}}"
    )


def run(function: Callable[..., Any], *arrays: Array, backend: str = "cpu") -> Array:
    with ext.using(plugin(function)):
        kind = {"f": "f64", "i": "i64"}[arrays[0].dtype.kind]
        result: Array = hlojit.compile(text(len(arrays), kind), backend=backend)(*arrays)
    return result


def square(x: float) -> float:
    return x * x


def cube(x: float) -> float:
    return square(x) * x


def look_up(x: float) -> float:
    return TABLE[int(x)]


def with_defaults(x: float, scale: float = 2.0, offset: int = 3) -> float:
    return x * scale + offset


def keyword_only(x: float, y: float = 1.0, *, scale: float = 2.0) -> float:
    return x * scale + y


def make(scale: float) -> Callable[[float], float]:
    def inner(x: float) -> float:
        return x * scale

    def outer(x: float) -> float:
        return inner(x) + square(x)

    return outer


def real(x: float) -> float:
    return x.real * 2


helpers = ModuleType("acme_helpers")
exec("def double(x): return 2 * x\ndef twice(x): return double(double(x))\nclass inner: pass", vars(helpers))

PROGRAMS: dict[str, Callable[..., Any]] = {
    "helper": lambda x: square(x) + 1,
    "helper of a helper": lambda x: cube(x) - square(x),
    "jitted helper": lambda x: numba_square(x) + square(x),
    "closure": make(3.0),
    "helper of a module": lambda x: helpers.twice(x) + helpers.double(x),
    "helper with defaults": lambda x: with_defaults(x) + with_defaults(x, 3.0) + with_defaults(x, offset=1),
    "helper with keyword-only arguments": lambda x: keyword_only(x) + keyword_only(x, scale=4.0) + keyword_only(x, 2.0),
    "helper in a function inside": lambda x: (lambda y: square(y) + 1)(x),  # noqa: PLC3002
    "defaults": with_defaults,
    "keyword-only": keyword_only,
    "attribute with the function's name": real,
    "standard library": lambda x: math.exp(square(x) * -1),
}
numba_square = numba.njit(square)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_are_what_python_makes_of_them(name: str, backend: str) -> None:
    function = PROGRAMS[name]
    expected = [function(x) for x in X.tolist()]
    np.testing.assert_allclose(run(function, X, backend=backend), expected, rtol=1e-14)


@pytest.mark.parametrize("backend", BACKENDS)
def test_operands_take_the_place_of_defaults(backend: str) -> None:
    for count in (1, 2, 3):
        arrays = [X, X + 1, X + 2][:count]
        expected = [with_defaults(*values) for values in zip(*(each.tolist() for each in arrays))]
        np.testing.assert_allclose(run(with_defaults, *arrays, backend=backend), expected, rtol=1e-14)
    np.testing.assert_allclose(run(keyword_only, X, X + 1, backend=backend), X * 2 + X + 1, rtol=1e-14)


def needs_two(x: float, y: float, z: float = 1.0) -> float:
    return x + y + z


def needs_keyword(x: float, *, scale: float) -> float:
    return x * scale


@pytest.mark.parametrize(
    ("function", "count", "message"),
    [
        (needs_two, 1, r"needs_two .* takes 2 or 3 arguments, not 1"),
        (needs_two, 4, r"needs_two .* takes 2 or 3 arguments, not 4"),
        (keyword_only, 3, r"keyword_only .* takes 1 or 2 arguments, not 3"),
        (needs_keyword, 1, r"needs_keyword .* has the keyword-only parameter scale, which has no default"),
    ],
)
def test_wrong_numbers_of_operands_are_refused_by_name(function: Any, count: int, message: str) -> None:
    with pytest.raises(hlojit.PluginError, match=message):
        run(function, *[X] * count)


def test_helpers_are_checked_like_functions() -> None:
    for function in (look_up, lambda x: look_up(x), lambda x: numba_look_up(x) + helpers_of_a_module.look_up(x)):
        assert run(function, np.full(40, 15.0)).max() >= 15
        with pytest.raises(hlojit.ExecutionError, match="'test.f': an index is out of range"):
            run(function, np.full(40, 1e9))


numba_look_up = numba.njit(look_up)
helpers_of_a_module = ModuleType("acme_look_up")
helpers_of_a_module.look_up = numba_look_up  # type: ignore[attr-defined]


def test_a_loop_in_a_helper_can_be_interrupted(tmp_path: Any) -> None:
    code = """
        import hlojit, numpy as np, os, signal, threading
        from hlojit.extensions import ElementwiseCall, hookimpl, register
        def helper(x):
            while x != 0.5: x = -x
            return x
        class Plugin:
            @hookimpl
            def hlojit_custom_calls(self): return [ElementwiseCall("test.f", function=lambda x: helper(x) + 1)]
        register(Plugin())
        text = '''func.func @main(%x: tensor<8xf64>) -> tensor<8xf64> {
          %0 = stablehlo.custom_call @test.f(%x) : (tensor<8xf64>) -> tensor<8xf64>
          return %0 : tensor<8xf64> }'''
        executable = hlojit.compile(text)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try: executable(np.ones(8))
        except KeyboardInterrupt: print("interrupted")
    """
    assert run_python(code, tmp_path).split() == ["interrupted"]


def factorial(x: int) -> int:
    return 1 if x <= 1 else x * factorial(x - 1)


def even(x: int) -> bool:
    return x == 0 or odd(x - 1)


def odd(x: int) -> bool:
    return x != 0 and even(x - 1)


def raising(x: float) -> float:
    if x < 0:
        raise ValueError("negative")
    return x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (factorial, "factorial .*calls itself: factorial -> factorial"),
        (lambda x: factorial(x) + 1, "calls itself: .*factorial -> factorial"),
        (even, "even .*calls itself: even -> odd -> even"),
        (lambda x: raising(x), "can raise ValueError"),
    ],
)
def test_what_helpers_may_not_do_is_refused_by_name(function: Any, message: str) -> None:
    with pytest.raises(hlojit.PluginError, match=message):
        run(function, np.arange(40))


def changing(factor: float) -> Callable[[float], float]:
    scope: dict[str, Any] = {}
    exec(f"def helper(x): return x * {factor}\ndef outer(x): return helper(x) + 1", scope)
    outer: Callable[[float], float] = scope["outer"]
    return outer


def test_a_helper_that_changed_takes_effect() -> None:
    for factor in (2.0, 3.0, 2.0):
        np.testing.assert_allclose(run(changing(factor), X), X * factor + 1, rtol=1e-14)


def test_threads_compile_functions_with_helpers() -> None:
    results: dict[int, Array] = {}

    def work(number: int) -> None:
        results[number] = run(changing(float(number)), X)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, result in results.items():
        np.testing.assert_allclose(result, X * number + 1, rtol=1e-14)
    assert len(results) == 4


def test_codecs_may_have_helpers() -> None:
    def clamp(value: float, low: float = 0.0, high: float = 15.0) -> float:
        return min(max(value, low), high)

    row = ext.FloatFormat(
        "test4",
        bits=4,
        decode=lambda code: float(code),
        encode=lambda value: int(clamp(value)),
        nan=ext.NanEncoding.NONE,
    )
    formats = SimpleNamespace(__name__="test", hlojit_formats=ext.hookimpl(lambda: [row]))
    program = """func.func @main(%x: tensor<40xf32>) -> tensor<40xf32> {
      %0 = stablehlo.convert %x : (tensor<40xf32>) -> tensor<40xtest4>
      %1 = stablehlo.convert %0 : (tensor<40xtest4>) -> tensor<40xf32>
      return %1 : tensor<40xf32> }"""
    x = np.linspace(-5, 25, 40, dtype="f4")
    for backend in BACKENDS:
        with ext.using(formats):
            np.testing.assert_array_equal(hlojit.compile(program, backend=backend)(x), np.trunc(np.clip(x, 0, 15)))
