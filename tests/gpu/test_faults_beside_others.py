"""What goes wrong, or is stopped, on one simulated GPU while another one runs, and in threads that are not the main one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir.ops.definition import Indexed, OpDefinition, Operand

BEYOND = OpDefinition(
    "test.beyond",
    operands=(Operand("operand"),),
    reference=lambda call, x: np.roll(x, -100),
    # Nobody may read there.
    lowering=Indexed(lambda emitter, instruction, index: emitter.operand(0, [index[0] + 100])),
)
WRONG = """
func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = "test.beyond"(%x) : (tensor<64xf32>) -> tensor<64xf32>
  return %0 : tensor<64xf32>
}"""
LONG = """
func.func @main(%x: tensor<64xf32>, %n: tensor<i32>) -> tensor<64xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %y = stablehlo.constant dense<1.0> : tensor<64xf32>
  %0:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<64xf32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %b = stablehlo.add %a, %y : tensor<64xf32>
    stablehlo.return %j, %b : tensor<i32>, tensor<64xf32>
  }
  return %0#1 : tensor<64xf32>
}"""
ENDLESS = """
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.custom_call @test.endless(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}"""
X = np.zeros(64, "f4")


def endless(x: float) -> float:
    while x > 0.5:
        x = x * 1.0001 if x < 2.0 else x - 1.0
    return x


@pytest.fixture(autouse=True)
def simulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two devices, an op that reads what it may not, a function that does not end for 1."""
    monkeypatch.setenv("HLOJIT_CUDA", "simulator devices=2")
    call = ext.ElementwiseCall("test.endless", function=endless)
    hooks = {"hlojit_ops": lambda: [BEYOND], "hlojit_custom_calls": lambda: [call]}
    made = {name: ext.hookimpl(hook) for name, hook in hooks.items()}
    with ext.using(SimpleNamespace(__name__="test", **made)):
        yield


def test_a_fault_of_one_device_is_not_the_others() -> None:
    long, wrong = hlojit.compile(LONG, backend="cuda"), hlojit.compile(WRONG, backend="cuda")
    n = np.int32(400)
    x0, x1, n0, n1 = (hlojit.put(each, f"cuda:{device}") for each in (X, n) for device in (0, 1))
    here = long.execute(x0, n0)
    broken = wrong.execute(x1)
    after = long.execute(broken, n1)
    for pending in (broken, after):
        with pytest.raises(hlojit.ExecutionError, match=r"cuda:1.*test\.beyond at <string>:3:3.* outside of it"):
            np.asarray(pending)
    np.testing.assert_array_equal(np.asarray(here), X + 400)
    np.testing.assert_array_equal(np.asarray(long(x1, n1)), X + 400, "the device goes on")


def test_faults_of_two_devices_in_two_threads() -> None:
    wrong = hlojit.compile(WRONG, backend="cuda")
    told: dict[int, str] = {}

    def run(device: int) -> None:
        x = hlojit.put(X, f"cuda:{device}")
        for _ in range(5):
            with pytest.raises(hlojit.ExecutionError) as error:
                np.asarray(wrong(x))
            told[device] = str(error.value)

    threads = [threading.Thread(target=run, args=(device,)) for device in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(f"cuda:{device}" in text for device, text in told.items()) and sorted(told) == [0, 1]


def test_what_runs_for_ever_in_another_thread_is_stopped_from_here() -> None:
    f = hlojit.compile(ENDLESS, backend="cuda")
    pending = f.execute(hlojit.put(np.ones(8, "f4"), "cuda:0"))
    failed: list[Any] = []

    def wait() -> None:
        try:
            np.asarray(pending)
        except hlojit.ExecutionError as error:
            failed.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    beside = hlojit.put(np.zeros(8, "f4"), "cuda:1")
    assert np.asarray(f(beside)).tolist() == [0] * 8, "the other device is free"
    assert thread.is_alive()
    pending.buffer.ready.stop()
    thread.join(30)
    assert not thread.is_alive() and "was stopped" in failed[0]
