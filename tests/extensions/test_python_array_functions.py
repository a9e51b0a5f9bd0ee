"""Functions of arrays in plain Python: what they are given, what they may do, and how they end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import ArrayCall, FloatFormat, hookimpl, using
from hlojit.ir.errors import ExecutionError, HlojitError

from .array_programs import program, registered

X = np.arange(20, dtype="f4").reshape(4, 5) / 4


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_python_function_returns_its_results(backend: str) -> None:
    def both(x: Any, y: Any, *, scale: float = 1.0) -> Any:
        assert not x.flags.writeable
        return np.linalg.inv(x) * np.float32(scale), sorted(y)

    x = np.float32([[2, 0], [0, 4]])
    y = np.array([3, 1, 2], "i4")
    with registered(ArrayCall("t.f", function=lambda *a, **k: both(*a, **k)[0], trust="python")):
        run = hlojit.compile(program("2x2xf32 3xi32", "2x2xf32", "scale = 2.0 : f64"), backend=backend)
    np.testing.assert_array_equal(run(x, y), np.linalg.inv(x) * 2)


@pytest.mark.parametrize("element", ["i1", "i4", "ui2", "f16", "bf16", "f8E4M3FN", "complex<f32>", "i64", "t7"])
def test_a_python_function_sees_arrays_as_a_caller_does(element: str) -> None:
    seen = []

    def same(x: Any) -> Any:
        seen.append(x)
        return x[::-1]

    class Formats:
        @hookimpl
        def hlojit_formats(self) -> list[FloatFormat]:
            return [FloatFormat("t7", exponent_bits=3, mantissa_bits=3, bias=3)]

    with using(Formats()), registered(ArrayCall("t.f", function=same, trust="python", codes=True)):
        kind = hlojit.ir.element_type(element)
        x = np.array([0, 1, 1, 0, 1]).astype(kind.dtype or kind.storage)
        run = hlojit.compile(program(f"5x{element}", f"5x{element}"))
        result = run(x if kind.dtype else hlojit.Array(x, kind))
        assert seen[0].dtype == x.dtype
        np.testing.assert_array_equal(result.storage if isinstance(result, hlojit.Array) else result, x[::-1])


class NarrowFormats:
    """Two formats without a NumPy dtype."""

    @hookimpl
    def hlojit_formats(self) -> list[FloatFormat]:
        return [
            FloatFormat("t5", exponent_bits=2, mantissa_bits=2, bias=1),
            FloatFormat("t24", exponent_bits=8, mantissa_bits=15, bias=127),
        ]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("element", ["t5", "t24"])
def test_codes_come_back_as_codes(element: str, backend: str) -> None:
    call = ArrayCall("t.f", function=lambda x: x[::-1], trust="python", codes=True)
    with using(NarrowFormats()), registered(call):
        x = hlojit.Array.from_values(np.array([0.5, 1.0, -1.5, 3.0]), element)
        run = hlojit.compile(program(f"4x{element}", f"4x{element}"), backend=backend)
        np.testing.assert_array_equal(run(x).storage, x.storage[::-1])


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_elements_without_a_dtype_are_refused_everywhere(backend: str) -> None:
    with using(NarrowFormats()), registered(ArrayCall("t.f", function=lambda x: x, trust="python")):
        x = hlojit.Array.from_values(np.array([0.5, 1.0]), "t5")
        with pytest.raises(HlojitError, match="'t.f'.*NumPy has no dtype for elements of t5"):
            hlojit.compile(program("2xt5", "2xt5"), backend=backend)(x)


@pytest.mark.parametrize("element", ["i2", "i4", "ui2", "ui4"])
def test_a_scalar_of_few_bits_on_the_reference(element: str) -> None:
    with registered(ArrayCall("t.f", function=lambda x: x, trust="python")):
        x = np.array(1, hlojit.ir.element_type(element).dtype)
        assert hlojit.compile(program(element, element), backend="reference")(x) == x


WRONG: dict[str, tuple[Callable[..., Any], str]] = {
    "raises": (lambda x: {}["key"], r"its function raised KeyError\('key'\)"),
    "exits": (lambda x: sys.exit(3), r"its function raised SystemExit\(3\)"),
    "shape": (lambda x: x[:1], r"result 0 of its function is float32\[1\], not float32\[3\]"),
    "dtype": (lambda x: x.astype("f8"), r"result 0 of its function is float64\[3\], not float32\[3\]"),
    "none": (lambda x: None, r"returned None, not 1 result"),
    "list": (lambda x: [x], r"result 0 of its function is float32\[1, 3\], not float32\[3\]"),
    "many": (lambda x: (x, x), r"returned 2 results, not 1 result"),
    "writes": (lambda x: x.fill(0), r"raised ValueError\('assignment destination is read-only'\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_python_function_does_wrong_names_target_and_place(name: str) -> None:
    function, said = WRONG[name]
    with registered(ArrayCall("t.f", function=function, trust="python")):
        run = hlojit.compile(program("3xf32", "3xf32"))
    with pytest.raises(ExecutionError, match=rf"(?s)^main: custom call target 't.f': .*{said}.*at .*:2:") as caught:
        run(np.ones(3, "f4"))
    assert caught.value.__cause__ is not None


def test_what_a_python_function_keeps_of_its_operands_stays_as_it_is() -> None:
    kept = []

    def keep(x: Any) -> Any:
        kept.append(x)
        return x * 0

    with registered(ArrayCall("t.f", function=keep, trust="python")):
        run = hlojit.compile(
            "func.func @main(%a: tensor<4096xf32>) -> tensor<4096xf32> {\n  %0 = stablehlo.add %a, %a : tensor<4096xf32>\n"
            "  %1 = stablehlo.custom_call @t.f(%0) : (tensor<4096xf32>) -> tensor<4096xf32>\n  return %1 : tensor<4096xf32>\n}"
        )
    for number in range(4):
        run(np.full(4096, number, "f4"))
    assert [each[7] for each in kept] == [0, 2, 4, 6]


def test_a_python_function_may_use_hlojit_threads_and_locks() -> None:
    inner = hlojit.compile(
        "func.func @main(%a: tensor<512x512xf32>) -> tensor<512x512xf32> {\n  %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : "
        "(tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>\n  return %0 : tensor<512x512xf32>\n}"
    )
    lock = threading.Lock()

    def function(x: Any) -> Any:
        with lock, ThreadPoolExecutor(2) as threads:
            found = list(threads.map(inner, [x, x]))
            return found[0] + inner(x) - found[1]

    x = np.eye(512, dtype="f4") * 2
    with registered(ArrayCall("t.f", function=function, trust="python")):
        run = hlojit.compile(program("512x512xf32", "512x512xf32"))
        results = []
        threads = [threading.Thread(target=lambda: results.append(run(x))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(results) == 3
    for result in results:
        np.testing.assert_array_equal(result, x * 2)


def test_a_python_function_runs_on_the_callers_thread_also_within_loops() -> None:
    where = []

    def function(x: Any) -> Any:
        where.append(threading.get_ident())
        return x + 1

    with registered(ArrayCall("t.f", function=function, trust="python")):
        run = hlojit.compile("""
func.func @main(%a: tensor<100000xf32>, %p: tensor<i1>) -> tensor<100000xf32> {
  %n = stablehlo.constant dense<5> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %z = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %z, %x = %a) : tensor<i32>, tensor<100000xf32> cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %y = "stablehlo.if"(%p) ({
      %u = stablehlo.custom_call @t.f(%x) : (tensor<100000xf32>) -> tensor<100000xf32>
      stablehlo.return %u : tensor<100000xf32>
    }, {
      stablehlo.return %x : tensor<100000xf32>
    }) : (tensor<i1>) -> tensor<100000xf32>
    %v = stablehlo.add %y, %y : tensor<100000xf32>
    stablehlo.return %j, %v : tensor<i32>, tensor<100000xf32>
  }
  return %0#1 : tensor<100000xf32>
}""")
        x = np.zeros(100000, "f4")
        assert run(x, np.array(True))[7] == 62
        assert run(x, np.array(False))[7] == 0
    assert where == [threading.get_ident()] * 5


def test_a_python_function_may_fork() -> None:
    def function(x: Any) -> Any:
        child = os.fork()
        if not child:
            os._exit(int(inner(x)[0]))
        return x * os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    inner = hlojit.compile(
        "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n  %0 = stablehlo.add %a, %a : tensor<2xf32>\n  return %0 : tensor<2xf32>\n}"
    )
    with registered(ArrayCall("t.f", function=function, trust="python")):
        run = hlojit.compile(program("2xf32", "2xf32"))
        np.testing.assert_array_equal(run(np.float32([3, 1])), [18, 6])


def interrupted_after(seconds: float, run: Callable[[], Any]) -> float:
    """Seconds that a call took which Ctrl-C ended."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    started = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run()
    timer.join()
    return time.monotonic() - started


def test_ctrl_c_ends_a_python_function() -> None:
    def function(x: Any) -> Any:
        time.sleep(60)
        return x

    with registered(ArrayCall("t.f", function=function, trust="python")):
        run = hlojit.compile(program("2xf32", "2xf32"))
    assert interrupted_after(0.1, lambda: run(np.ones(2, "f4"))) < 30


def test_ctrl_c_ends_the_loops_of_a_numba_function() -> None:
    def function(x: Any, result: Any) -> None:
        total = np.zeros(3, np.float32)
        while total[0] >= 0:
            total += x[0] * x[0]
            if total[0] > 10:
                total[0] = 0
        result[:] = total[0]

    with registered(ArrayCall("t.f", function=function)):
        run = hlojit.compile(program("2xf32", "2xf32"))
    assert interrupted_after(0.1, lambda: run(np.ones(2, "f4"))) < 30


def test_calls_with_effects_and_calls_without_operands_are_made_when_the_program_runs() -> None:
    """Nothing that is traced tells that they belong into it: they were made once, when it was traced, or refused."""
    seen: list[float] = []

    def log(x):
        seen.append(float(x[0]))
        return x

    def tick():
        return np.float32(len(seen))

    logs = ArrayCall("t.log", function=log, trust="python", effects=True, result_types=lambda call: call.operands[0])
    ticks = ArrayCall("t.tick", function=tick, trust="python", effects=True)
    with registered(logs, ticks):

        @hlojit.jit
        def function(x):
            hlojit.custom_call("t.log", np.ones(1, "f4"))
            return x + hlojit.custom_call("t.tick", result=((), "f4"))

        assert [float(function(np.float32(0.5))) for _ in range(3)] == [1.5, 2.5, 3.5]
        assert seen == [1, 1, 1]
        hlojit.custom_call("t.log", np.zeros(1, "f4"))
        assert seen == [1, 1, 1, 0]
        with pytest.raises(TypeError, match="outside of a jitted function a call has operands"):
            hlojit.custom_call("t.tick", result=((), "f4"))
