"""Functions of arrays as custom calls: compiled by numba, and native."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import ArrayCall, using
from hlojit.ir.errors import ExecutionError, HlojitError, PluginError

from .array_programs import cumulative, program, registered

MEMCPY = ctypes.CDLL(None).memcpy


X = np.arange(20, dtype="f4").reshape(4, 5) / 4


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_numba_function_fills_its_results(backend: str) -> None:
    with registered(ArrayCall("t.f", function=cumulative)):
        run = hlojit.compile(program("4x5xf32", "4x5xf32"), backend=backend)
    np.testing.assert_array_equal(run(X), np.cumsum(X, 0))


@pytest.mark.parametrize("dtype", ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16"])
def test_a_numba_function_takes_elements_of_numpys_types(dtype: str) -> None:
    def reverse(x: Any, first: Any, result: Any) -> None:
        for i in range(x.size):
            result[x.size - 1 - i] = x[i]
        result[0] = first[()]

    names = {"?": "i1", "c8": "complex<f32>", "c16": "complex<f64>"}
    name = names.get(dtype) or f"{'ui' if dtype[0] == 'u' else dtype[0]}{8 * int(dtype[1:])}"
    x = np.arange(-3, 4).astype(dtype)
    with registered(ArrayCall("t.f", function=reverse)):
        run = hlojit.compile(program(f"7x{name} {name}", f"7x{name}"))
    expected = x[::-1].copy()
    expected[0] = x[1]
    np.testing.assert_array_equal(run(x, x[1]), expected)


@pytest.mark.slow
def test_a_numba_function_may_allocate_and_call_blas_and_helpers() -> None:
    def scores(q: Any, k: Any) -> Any:
        s = q @ k.T
        return s - s.max()

    def attention(q: Any, k: Any, v: Any, result: Any, *, scale: float = 1.0) -> None:
        p = np.exp(scale * scores(q, k))
        for i in range(p.shape[0]):
            p[i] /= p[i].sum()
        result[:] = np.dot(p, v)

    rng = np.random.default_rng(1)
    q, k, v = rng.standard_normal((3, 6, 4))
    with registered(ArrayCall("t.f", function=attention)):
        run = hlojit.compile(program("6x4xf64 6x4xf64 6x4xf64", "6x4xf64", "scale = 0.5 : f64"))
    p = np.exp(0.5 * (q @ k.T))
    np.testing.assert_allclose(run(q, k, v), p / p.sum(1, keepdims=True) @ v, rtol=1e-12)


def test_numba_compiles_a_function_once_for_all_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    import hlojit.extensions.functions.numba_arrays as module

    def negate(x: Any, result: Any) -> None:
        for i in range(x.size):
            result[i] = -x[i]

    made = []
    compiled = module._compiled
    monkeypatch.setattr(module, "_compiled", lambda *arguments: made.append(arguments) or compiled(*arguments))
    with registered(ArrayCall("t.f", function=negate)):
        for count in (3, 5, 1000):
            x = np.arange(count, dtype="f4")
            np.testing.assert_array_equal(hlojit.compile(program(f"{count}xf32", f"{count}xf32"))(x), -x)
        hlojit.compile(program("3xf64", "3xf64"))
    assert len(made) == 2


def out_of_range(x: Any, result: Any, *, place: int = 0) -> None:
    for i in range(x.size):
        result[i] = x[i + place]


def raising(x: Any, result: Any, *, place: int = 0) -> None:
    if x[place] > 0:
        raise ValueError("not today")
    result[:] = x


@pytest.mark.parametrize(
    ("function", "said"),
    [(out_of_range, "an index is out of range in out_of_range"), (raising, "ValueError.'not today'")],
)
def test_what_a_numba_function_raises_ends_the_call(function: Callable[..., None], said: str) -> None:
    with registered(ArrayCall("t.f", function=function)):
        wrong = hlojit.compile(program("8xf32", "8xf32", "place = 7 : i64"))
        with pytest.raises(ExecutionError, match=f"target 't.f': .*{said}"):
            wrong(np.ones(8, "f4"))
        right = hlojit.compile(program("8xf32", "8xf32", "place = 0 : i64"))
    np.testing.assert_array_equal(right(np.zeros(8, "f4")), np.zeros(8))


def address(x: Any, result: Any) -> None:
    result[0] = x.ctypes.data


def text_given(x: Any, result: Any, alpha: Any = "q") -> None:
    result[0] = np.float32(alpha)


def keyword_only_in_name(result: Any, alpha: float = 1.0) -> None:
    result[0] = np.float32(alpha)


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "writes an operand": (lambda x, r: x.fill(0), r"numba cannot compile"),
    "returns": (lambda x, r: x + 1, r"returns array.*it is given the arrays of its results"),
    "prints": (lambda x, r: print(x[0]), r"calls Python \(it prints, "),
    "signature": (text_given, r"alpha='q'\): No implementation .* found for signature: .*str.*q.* \(line \d+\)$"),
    "swallowed": (
        keyword_only_in_name,
        r"it takes 0 operands and 1 result \(alpha by keyword\), and the call has 1 operand$",
    ),
    "unknown": (lambda x, r: x.frobnicate(), r"numba cannot compile .*frobnicate"),
    "too many": (lambda x, y, r: None, r"takes 3 arguments, not 2"),
    "addresses": (address, r"uses .ctypes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_numba_cannot_do_is_said_in_one_line(name: str) -> None:
    function, said = REFUSED[name]
    with registered(ArrayCall("t.f", function=function)), pytest.raises(PluginError, match=said) as caught:
        hlojit.compile(program("8xf32", "8xf32"))
    assert "\n" not in str(caught.value)
    assert "t.f" in str(caught.value)


def test_elements_that_numba_does_not_know_are_codes_or_refused() -> None:
    def invert(x: Any, result: Any) -> None:
        for i in range(x.size):
            result[i] = x[i] ^ 0x8000

    text = program("4xbf16", "4xbf16")
    with (
        registered(ArrayCall("t.f", function=invert)),
        pytest.raises(PluginError, match="no type for elements of bf16"),
    ):
        hlojit.compile(text)
    with registered(ArrayCall("t.f", function=invert, codes=True)):
        x = np.float32([1, -2, 3, 4]).astype(hlojit.ir.element_type("bf16").dtype)
        np.testing.assert_array_equal(hlojit.compile(text)(x).astype("f4"), -x.astype("f4"))


# -------------------------------------------------------------------------------------------------- programs that are kept


PLUGIN = """
import sys, numpy as np, hlojit
from hlojit.extensions import ArrayCall, hookimpl, register

class Kept:
    @hookimpl
    def hlojit_custom_calls(self):
        def numba_form(x, result):
            temporary = np.empty(x.size, np.float32)
            for i in range(x.size):
                temporary[i] = 2 * x[i]
            for i in range(x.size):
                result[i] = temporary[i]
        return [ArrayCall("k.numba", function=numba_form), ArrayCall("k.python", function=lambda x: x + 1, trust="python")]

if __name__ == "__main__":
    register(Kept())
    print(hlojit.load(sys.argv[1])(np.arange(3, dtype="f4")).tolist())
"""


def test_programs_with_functions_of_arrays_are_saved_and_loaded(tmp_path: Path) -> None:
    text = """func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @k.numba(%a) : (tensor<3xf32>) -> tensor<3xf32>
  %1 = stablehlo.custom_call @k.python(%0) : (tensor<3xf32>) -> tensor<3xf32>
  return %1 : tensor<3xf32>
}"""
    script, path = tmp_path / "plugin.py", tmp_path / "program.hlojit"
    script.write_text(PLUGIN)
    plugin: dict[str, Any] = {"__name__": "plugin"}
    exec(compile(PLUGIN, str(script), "exec"), plugin)
    with using(plugin["Kept"]()):
        hlojit.compile(text).save(path)
    command = [sys.executable, str(script), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert not done.returncode, done.stderr
    assert done.stdout.strip() == "[1.0, 3.0, 5.0]"
    with pytest.raises(HlojitError, match="'k.python', and no plugin in scope has one"):
        hlojit.load(path)


AT_THE_END = """
import numba, numpy as np, hlojit
from hlojit.extensions import ArrayCall, hookimpl, register
def f(x, r):
    for i in range(x.size):
        r[i] = x[i]
class Calls:
    @hookimpl
    def hlojit_custom_calls(self):
        return [ArrayCall("s.p", function=lambda x: x, trust="python", result_types=lambda call: call.operands[0])]
register(Calls())
def made():
    return hlojit.compile("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { %0 = stablehlo.custom_call @s.p(%x) : (tensor<4xf32>) -> tensor<4xf32>\\n return %0 : tensor<4xf32> }")
y = np.ones(4, "f4")
jitted = numba.njit(f)
jitted(y, y.copy())
runs = {"numba": lambda: jitted(y, y.copy())}
runs |= {"python": lambda run=made(): run(y)}
for run in runs.values():
    run()
"""


def test_an_interpreter_ends_quietly_that_has_programs_which_call_its_functions() -> None:
    done = subprocess.run([sys.executable, "-c", AT_THE_END], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


# -------------------------------------------------------------------------------------------------------- other machines


def test_functions_of_arrays_run_on_the_host_for_the_simulated_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    text = """func.func @main(%a: tensor<3xf32>) -> (tensor<3xf32>, tensor<2xbf16>) {
  %0 = stablehlo.custom_call @t.numba(%a) {mhlo.backend_config = {by = 2.0 : f64}} : (tensor<3xf32>) -> tensor<3xf32>
  %1 = stablehlo.add %0, %a : tensor<3xf32>
  %2 = stablehlo.custom_call @t.python(%1) : (tensor<3xf32>) -> tensor<2xbf16>
  return %1, %2 : tensor<3xf32>, tensor<2xbf16>
}"""

    def scaled(x: Any, result: Any, *, by: float) -> None:
        for i in range(x.size):
            result[i] = by * x[i]

    bf16 = hlojit.ir.element_type("bf16").dtype
    calls = [
        ArrayCall("t.numba", function=scaled),
        ArrayCall("t.python", function=lambda x: x[:2].astype(bf16), trust="python"),
        ArrayCall("t.native", function=MEMCPY, trust="native", signature="result0, operand0, operand0.size"),
    ]
    x = np.float32([1, 2, 3])
    with registered(*calls):
        first, second = hlojit.compile(text, backend="cuda")(x)
        np.testing.assert_array_equal(first, 3 * x)
        np.testing.assert_array_equal(second, (3 * x[:2]).astype(bf16))
        with pytest.raises(HlojitError, match=r"'t\.native' is a native function, and has no substitute="):
            hlojit.compile(text.replace("t.numba", "t.native"), backend="cuda")


def test_calls_of_open_sizes_are_compiled_for_each_size_and_say_when_they_cannot() -> None:
    twice = ArrayCall("t.f", function=lambda x: x + x, trust="python", result_types=lambda call: call.operands[0])
    options = hlojit.CompileOptions(dynamic_shapes="symbolic")
    with registered(twice):
        run = hlojit.compile(program("?xf32", "?xf32"), options=options)
        np.testing.assert_array_equal(run(np.ones(3, "f4")), [2, 2, 2])
        assert run.dynamic_shapes == "specialize"
        assert "tensors of known shapes" in run.why
    with registered(ArrayCall("t.f", function=lambda x: x, trust="python")):
        run = hlojit.compile(program("?xf32", "?xf32"))
        with pytest.raises(HlojitError, match=r"its target has no rule for it \(result_types=\)"):
            run(np.ones(3, "f4"))


def test_calls_in_the_region_of_a_reduction_are_made_for_each_pair() -> None:
    text = """func.func @main(%a: tensor<3x4xf32>) -> tensor<3xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce"(%a, %c) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.custom_call @t.f(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {dimensions = array<i64: 1>} : (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}"""
    x = np.arange(12, dtype="f4").reshape(3, 4)
    with registered(ArrayCall("t.f", function=lambda x, y: x + y, trust="python")):
        for backend in ("cpu", "reference"):
            np.testing.assert_array_equal(hlojit.compile(text, backend=backend)(x), x.sum(1))
