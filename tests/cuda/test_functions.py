"""Functions of plugins in GPU kernels: the same numbers, errors and refusals as on the CPU."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.cuda.assemblers.choice import assembler
from hlojit.cuda.nvptx import SM_90, NvptxDialect
from hlojit.extensions import CompileOptions, registry
from hlojit.simt.kernels import emit_kernel

from .ptx_machine import PtxMachine

pytestmark = pytest.mark.usefixtures("simulator")

TABLE = np.arange(256, dtype="f4") * 0.5


def plugin(function: Callable[..., Any], **more: Callable[..., Any]) -> Any:
    calls = [ext.ElementwiseCall(f"test.{name}", function=each) for name, each in {"f": function, **more}.items()]
    return SimpleNamespace(__name__="test", hlojit_custom_calls=ext.hookimpl(lambda: calls))


def unary(kind: str, result: str, size: int = 1000) -> str:
    return f"""func.func @main(%x: tensor<{size}x{kind}>) -> tensor<{size}x{result}> {{
  %0 = stablehlo.custom_call @test.f(%x) : (tensor<{size}x{kind}>) -> tensor<{size}x{result}>
  return %0 : tensor<{size}x{result}>
}}"""


def both(function: Callable[..., Any], text: str) -> tuple[Any, Any]:
    with ext.using(plugin(function)):
        return hlojit.compile(text, backend="cuda"), hlojit.compile(text)


def look_up(x: int) -> float:
    return TABLE[x]


def collatz(x: int) -> int:
    steps = 0
    while x > 1:
        x = x // 2 if x % 2 == 0 else 3 * x + 1
        steps += 1
    return steps


def mandelbrot(x: float) -> int:
    z = complex(0.0, 0.0)
    for step in range(200):
        z = z * z + complex(x, 0.25)
        if abs(z) > 2.0:
            return step
    return 200


FUNCTIONS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "a polynomial": (lambda x: x * x - 2.0 * x + 1.0, "f32", "f32"),
    "math": (lambda x: math.log1p(math.exp(-abs(x))) + math.tanh(x), "f32", "f32"),
    "math in f64": (lambda x: math.sin(x) * math.atan2(x, 2.0) + math.erf(x), "f64", "f64"),
    "remainders": (lambda x: np.fmod(x, 0.7) + x % 0.3, "f64", "f64"),
    "rounding": (lambda x: math.floor(x) + math.ceil(x / 2) - round(x), "f32", "i32"),
    "a table": (look_up, "ui8", "f32"),
    "a loop": (collatz, "i32", "i32"),
    "a loop with floats": (mandelbrot, "f64", "i32"),
    "a narrow result": (lambda x: x * 3.7, "f32", "i8"),
    "an unsigned result": (lambda x: x - 5, "ui8", "ui8"),
    "a truth value": (lambda x: x > 0.5, "f32", "i1"),
    "half precision": (lambda x: x / 3.0, "f16", "bf16"),
}
DTYPES = {"f64": "f8", "f32": "f4", "f16": "f2", "i32": "i4", "ui8": "u1"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_gives_what_it_gives_on_the_cpu(name: str) -> None:
    function, kind, result = FUNCTIONS[name]
    random = np.random.default_rng(0)
    dtype = np.dtype(DTYPES[kind])
    x = (
        random.integers(1, 200, 1000).astype(dtype)
        if dtype.kind in "iu"
        else (random.random(1000) * 6 - 3).astype(dtype)
    )
    here, there = both(function, unary(kind, result))
    ours, theirs = here(x), there(x)
    assert ours.dtype == theirs.dtype and np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()


EDGES = [0.0, -0.0, 1.0, 1000.0, 1e-5, -2.5, 1e300, 1e-300, 5e-324, np.inf, -np.inf, np.nan, 1e22, 0.3]


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", ["hypot", "log10", "fmod"])
def test_the_c_library_s_functions_at_their_edges(name: str, kind: str) -> None:
    scalars = {
        "hypot": lambda x, y: math.hypot(x, y),
        "log10": lambda x, y: math.log10(x),
        "fmod": lambda x, y: np.fmod(x, y),
    }
    text = f"""func.func @main(%x: tensor<196x{kind}>, %y: tensor<196x{kind}>) -> tensor<196x{kind}> {{
  %0 = stablehlo.custom_call @test.f(%x, %y) : (tensor<196x{kind}>, tensor<196x{kind}>) -> tensor<196x{kind}>
  return %0 : tensor<196x{kind}>
}}"""
    with np.errstate(all="ignore"):
        edges = np.array(EDGES).astype(DTYPES[kind])
        x, y = (each.ravel() for each in np.meshgrid(edges, edges))
        expected = np.log10(x) if name == "log10" else getattr(np, name)(x, y)
    here, _ = both(scalars[name], text)
    found = here(x, y)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    real = ~np.isnan(expected)
    np.testing.assert_array_max_ulp(found[real], expected[real], 1)
    if name == "log10":
        powers = np.resize(10.0 ** np.arange(23), 196).astype(DTYPES[kind])
        np.testing.assert_array_equal(here(powers, powers)[:10], np.arange(10))


def test_a_failure_is_the_same_named_error() -> None:
    here, there = both(look_up, unary("i32", "f32"))
    x = np.zeros(1000, "i4")
    x[777] = 999
    for executable in (here, there):
        with pytest.raises(
            hlojit.ExecutionError,
            match=rf"custom call target 'test\.f': an index is out of range in look_up \({re.escape(__file__)}:\d+\)$",
        ):
            executable(x)
    assert here(x * 0).tolist() == [0.0] * 1000, "the next call begins anew"


def test_who_waits_for_a_failed_program_fails_too() -> None:
    here, _ = both(look_up, unary("i32", "f32"))
    double = hlojit.compile(
        "func.func @main(%x: tensor<1000xf32>) -> tensor<1000xf32> {\n%0 = stablehlo.add %x, %x : tensor<1000xf32>\n"
        "return %0 : tensor<1000xf32>\n}",
        backend="cuda",
    )
    bad = here.execute(np.full(1000, 999, "i4"))
    good = here.execute(np.full(1000, 3, "i4"))
    results = [double.execute(each) for each in (bad, good)]
    with pytest.raises(hlojit.ExecutionError, match="out of range in look_up"):
        np.asarray(results[0])
    np.testing.assert_array_equal(np.asarray(results[1]), np.full(1000, 3.0, "f4"))


def test_the_first_of_several_failures_is_reported() -> None:
    """Kernels in a loop and behind it: what failed first in the program's order."""
    text = """func.func @main(%x: tensor<100xi32>, %n: tensor<i32>) -> tensor<100xi32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<100xi32>
  cond {
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %w = stablehlo.custom_call @test.f(%v) : (tensor<100xi32>) -> tensor<100xi32>
    stablehlo.return %j, %w : tensor<i32>, tensor<100xi32>
  }
  %s = "stablehlo.sort"(%r#1) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) {dimension = 0 : i64} : (tensor<100xi32>) -> tensor<100xi32>
  %0 = stablehlo.custom_call @test.g(%s) : (tensor<100xi32>) -> tensor<100xi32>
  return %0 : tensor<100xi32>
}"""
    follow = np.minimum(np.arange(1, 101), 99).astype("i4")

    def step(x: int) -> int:
        return follow[x]

    def next_one(x: int) -> int:
        return follow[x + 1]

    with ext.using(plugin(step, g=next_one)):
        executable = hlojit.compile(text, backend="cuda")
    x = np.arange(100, dtype="i4")
    np.testing.assert_array_equal(executable(x // 2, np.int32(3)), follow[x // 2 + 4])
    with pytest.raises(hlojit.ExecutionError, match=r"'test\.g': an index is out of range in .*next_one"):
        executable(x, np.int32(200))
    with pytest.raises(hlojit.ExecutionError, match=r"'test\.f': an index is out of range in .*step"):
        executable(x + 1, np.int32(1))


def test_graphs_of_programs_with_failures() -> None:
    lines = ["%v0 = stablehlo.custom_call @test.f(%x) : (tensor<64xi32>) -> tensor<64xf32>"]
    for number in range(6):
        lines.append(f"%s{number} = stablehlo.constant dense<0.0> : tensor<f32>")
        lines.append(
            f"%t{number} = stablehlo.reduce(%v{number} init: %s{number}) applies stablehlo.add across dimensions = [0] : "
            "(tensor<64xf32>, tensor<f32>) -> tensor<f32>"
        )
        lines.append(f"%b{number} = stablehlo.broadcast_in_dim %t{number}, dims = [] : (tensor<f32>) -> tensor<64xf32>")
        lines.append(f"%v{number + 1} = stablehlo.subtract %v{number}, %b{number} : tensor<64xf32>")
    text = (
        "func.func @main(%x: tensor<64xi32>) -> tensor<64xf32> {\n"
        + "\n".join(lines)
        + "\nreturn %v6 : tensor<64xf32>\n}"
    )
    here, there = both(look_up, text)
    x = hlojit.put(np.full(64, 3, "i4"), "cuda:0")
    bad = hlojit.put(np.full(64, 300, "i4"), "cuda:0")
    for _ in range(4):
        np.testing.assert_array_equal(np.asarray(here(x)), there(np.full(64, 3, "i4")))
    for _ in range(3):
        with pytest.raises(hlojit.ExecutionError, match="out of range"):
            here(bad)
        np.testing.assert_array_equal(np.asarray(here(x)), there(np.full(64, 3, "i4")))


ENDLESS = """
import time
from types import SimpleNamespace
import numpy as np
import hlojit, hlojit.extensions as ext

def endless(x):
    while x > 0.5:
        x = x * 1.0001 if x < 2.0 else x - 1.0
    return x

calls = [ext.ElementwiseCall("test.f", function=endless)]
with ext.using(SimpleNamespace(__name__="test", hlojit_custom_calls=ext.hookimpl(lambda: calls))):
    executable = hlojit.compile(TEXT, backend="cuda")
pending = executable.execute(np.ones(8, "f4"))
time.sleep(0.2)
print("ends", flush=True)
"""


@pytest.mark.slow
def test_a_function_that_does_not_end_does_not_hold_up_the_end_of_the_process() -> None:
    program = ENDLESS.replace("TEXT", repr(unary("f32", "f32", 8)))
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "ends\n", "")


INTERRUPTED = (
    ENDLESS.partition("pending =")[0]
    + """
import os, signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
x = hlojit.put(np.ones(8, "f4"), "cuda")
good = hlojit.put(np.zeros(8, "f4"), "cuda")
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    executable(x)
except KeyboardInterrupt:
    print("interrupted", np.asarray(executable(good)).sum(), flush=True)
"""
)


@pytest.mark.slow
def test_control_c_ends_a_function_that_does_not_end() -> None:
    """The device is free for the next program."""
    program = INTERRUPTED.replace("TEXT", repr(unary("f32", "f32", 8)))
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "interrupted 0.0\n", "")


def ptx(function: Callable[..., Any], text: str) -> str:
    with ext.using(plugin(function)):
        main = lower(hlojit.parse(text), registry().backend("cuda"), CompileOptions()).main
        (instruction,) = [each for each in main.body if not each.op.is_terminator]
        code = emit_kernel(instruction, SM_90, NvptxDialect(), "kernel")
    return assembler("llvm").ptx(code, SM_90)


@pytest.mark.parametrize("name", ["math", "math in f64", "a table", "a loop with floats"])
def test_ptx_has_the_function_inlined(name: str) -> None:
    function, kind, result = FUNCTIONS[name]
    made = ptx(function, unary(kind, result))
    entry = made[made.index(".entry kernel(") :]
    assert not re.search(r"\bcall", made) and ".extern" not in made
    parameters: Sequence[str] = re.findall(r"\.param \.u64", entry[: entry.index(")")])
    assert len(parameters) == 2 + (name not in ("math", "math in f64"))


def test_ptx_notes_failures_in_the_status() -> None:
    """The text that a GPU would run, interpreted: results and status."""
    made = ptx(look_up, unary("i32", "f32"))
    for index, failed in ((200, 0), (-1, 0), (256, 1), (-257, 1)):
        x, result, status = np.zeros(1000, "i4"), np.zeros(1000, "f4"), np.zeros(2, "i4")
        x[777] = index
        PtxMachine(made).run("kernel", blocks=4, threads=256, buffers=[x, result, status], shared_bytes=0)
        assert status.tolist() == [0, failed]
        if not failed:
            np.testing.assert_array_equal(result, TABLE[x])
