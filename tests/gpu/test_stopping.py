"""Programs that do not end by themselves, and nobody waits for: they end, whenever that is asked for, and nothing else does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.extensions import Event, Queue, registry
from hlojit.gpu.device import GpuDevice

TABLE = np.arange(4, dtype="f4")
FUNCTION = """
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.custom_call @test.endless(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}"""


def endless(x: float) -> float:
    while x > 0.5:
        x = x * 1.0001 if x < 2.0 else x - 1.0
    return x


def following(x: float) -> float:
    return TABLE[int(x)] + 1


LOOP = """
func.func @main(%x: tensor<8xf32>, %n: tensor<i32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<8xf32>
   cond {
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %w = stablehlo.custom_call @test.NAME(%v) : (tensor<8xf32>) -> tensor<8xf32>
    stablehlo.return %j, %w : tensor<i32>, tensor<8xf32>
  }
  return %r#1 : tensor<8xf32>
}"""


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuDevice]:
    """A simulated GPU, and a plugin's functions: one that does not end for 1, one that fails behind a table's end."""
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    calls = [ext.ElementwiseCall(f"test.{each.__name__}", function=each) for each in (endless, following)]
    with ext.using(SimpleNamespace(__name__="test", hlojit_custom_calls=ext.hookimpl(lambda: calls))):
        found = registry().load().backend("cuda").devices()[0]
        assert isinstance(found, GpuDevice)
        yield found


def test_a_stop_that_comes_before_the_program_begins_is_not_forgotten(device: GpuDevice) -> None:
    f = hlojit.compile(FUNCTION, backend="cuda")
    x, zeros = hlojit.put(np.ones(8, "f4"), "cuda"), hlojit.put(np.zeros(8, "f4"), "cuda")
    assert hlojit.get(f(zeros)).tolist() == [0] * 8
    gate = threading.Event()
    stream: Any = device._opened().site.stream
    stream.put(gate.wait)
    done = f.execute(x).buffer.ready
    done.stop()
    gate.set()
    with pytest.raises(hlojit.ExecutionError, match="was stopped"):
        assert done.wait(20), "it runs for ever"
    assert hlojit.get(f(zeros)).tolist() == [0] * 8, "the next run is another one"


@pytest.mark.parametrize("decides", ["device", "host"])
def test_a_function_that_does_not_end_in_a_loop(
    device: GpuDevice, decides: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HLOJIT_GPU_LOOPS", decides)
    f = hlojit.compile(LOOP.replace("NAME", "endless"), backend="cuda")
    three = hlojit.put(np.int32(3), "cuda")
    x, zeros = hlojit.put(np.ones(8, "f4"), "cuda"), hlojit.put(np.zeros(8, "f4"), "cuda")
    assert hlojit.get(f(zeros, three)).tolist() == [0] * 8
    done = f.execute(x, three).buffer.ready
    assert not done.wait(0.2)
    done.stop()
    with pytest.raises(hlojit.ExecutionError, match="was stopped"):
        assert done.wait(20), "it runs for ever"
    assert hlojit.get(f(zeros, three)).tolist() == [0] * 8


@pytest.mark.parametrize("decides", ["device", "host"])
def test_a_function_that_fails_in_a_loop(device: GpuDevice, decides: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_GPU_LOOPS", decides)
    f = hlojit.compile(LOOP.replace("NAME", "following"), backend="cuda")
    zeros = np.zeros(8, "f4")
    assert f(zeros, np.int32(4)).tolist() == [4] * 8
    for _ in range(2):
        with pytest.raises(hlojit.ExecutionError, match="an index is out of range in following"):
            f(zeros, np.int32(5))
        assert f(zeros, np.int32(3)).tolist() == [3] * 8, "the next run knows nothing of it"


@pytest.mark.parametrize(
    "moment", ["before the thread is told", "after it is told", "on leaving", "when it has started"]
)
@pytest.mark.parametrize("text", ["function", "loop"])
def test_ctrl_c_while_it_is_started(device: GpuDevice, text: str, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_GPU_LOOPS", "host")
    f = hlojit.compile(FUNCTION if text == "function" else LOOP.replace("NAME", "endless"), backend="cuda")
    more = () if text == "function" else (hlojit.put(np.int32(3), "cuda"),)
    x, zeros = hlojit.put(np.ones(8, "f4"), "cuda"), hlojit.put(np.zeros(8, "f4"), "cuda")
    assert hlojit.get(f(zeros, *more)).tolist() == [0] * 8
    lanes = device._opened()
    real = Queue.submit
    submitted: list[Queue] = []

    def submit(queue: Queue, *arguments: Any) -> Any:
        # The simulated streams are queues, too; and the device's threads know no Ctrl-C.
        is_here = threading.current_thread() is threading.main_thread()
        if not is_here or queue not in (lanes.issuing, lanes.completions):
            return real(queue, *arguments)
        submitted.append(queue)
        if moment == "before the thread is told":
            raise KeyboardInterrupt
        returned = real(queue, *arguments)
        if moment == "after it is told":
            raise KeyboardInterrupt
        return returned

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Queue, "submit", submit)
        if moment == "on leaving":
            patched.setattr(device.driver.__class__, "current", Leaving())
        if moment == "when it has started":
            patched.setattr(Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            f(x, *more)
    assert submitted == [lanes.completions if text == "function" else lanes.issuing]
    assert not lanes.waiting or moment != "before the thread is told"
    after = f.execute(zeros, *more)
    assert after.wait(20), "what nobody waits for runs for ever"
    assert hlojit.get(after).tolist() == [0] * 8
    assert not lanes.waiting


class Leaving:
    """A context that is left by Ctrl-C."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        raise KeyboardInterrupt
