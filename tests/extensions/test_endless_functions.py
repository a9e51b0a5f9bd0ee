"""Scalar functions that never return: Ctrl-C ends the call, and other threads go on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os
import signal
import threading
import time
from types import SimpleNamespace

import hlojit
import hlojit.extensions as ext
import numpy as np

# A test run in the background inherits an ignored SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)


def endless(x):
    while x > 0.5:
        x = x * 1.0001 if x < 2.0 else x - 1.0
    return x


def decode(code):
    value = 1.0
    while code > 3:
        value = value + 1.0 if value < 5.0 else 1.0
    return value


call = ext.ElementwiseCall("test.f", function=endless)
row = ext.FloatFormat("test8", bits=8, decode=decode, encode=lambda value: int(value), nan=ext.NanEncoding.NONE)
plugin = SimpleNamespace(
    __name__="test", hlojit_custom_calls=ext.hookimpl(lambda: [call]), hlojit_formats=ext.hookimpl(lambda: [row])
)
ext.register(plugin)
SCALAR = '''func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.custom_call @test.f(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32> }'''
MANY = SCALAR.replace("tensor<f32>", "tensor<100000xf32>")
SORT = '''func.func @main(%x: tensor<50xtest8>) -> tensor<50xtest8> {
  %0 = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<test8>, %b: tensor<test8>):
    %s = stablehlo.compare LT, %a, %b : (tensor<test8>, tensor<test8>) -> tensor<i1>
    stablehlo.return %s : tensor<i1>
  }) {dimension = 0 : i64} : (tensor<50xtest8>) -> tensor<50xtest8>
  return %0 : tensor<50xtest8> }'''
DOT = '''func.func @main(%x: tensor<40x40xtest8>) -> tensor<40x40xtest8> {
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<40x40xtest8>, tensor<40x40xtest8>) -> tensor<40x40xtest8>
  return %0 : tensor<40x40xtest8> }'''
ticks = 0


def count():
    global ticks
    while True:
        time.sleep(0.005)
        ticks += 1


threading.Thread(target=count, daemon=True).start()


def run(name, text, argument):
    executable = hlojit.compile(text)
    before = ticks
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        executable(argument)
        print(name, "returned")
    except KeyboardInterrupt:
        print(name, "stopped" if ticks > before + 2 else "stopped, other threads had no turn")


run("one element:", SCALAR, np.float32(1))
run("many elements:", MANY, np.ones(100000, "f4"))
run("one of many:", MANY, np.r_[np.zeros(99999), 1].astype("f4"))
run("comparator:", SORT, hlojit.Array(np.full(50, 7, "u1"), "test8"))
run("product:", DOT, hlojit.Array(np.full((40, 40), 7, "u1"), "test8"))
"""

CASES = ("one element", "many elements", "one of many", "comparator", "product")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_function_that_does_not_end_is_stopped_by_control_c() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert result.stdout.splitlines() == [f"{name}: stopped" for name in CASES], result.stdout + result.stderr
