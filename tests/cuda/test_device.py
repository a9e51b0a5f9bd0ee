"""Arrays on simulated GPUs: transfers, calls that do not wait, donation, memory that runs out, faults."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import registry
from hlojit.gpu.device import GpuDevice

pytestmark = pytest.mark.usefixtures("simulator")

DOUBLE = """
func.func @double(%x: tensor<6xf32>) -> tensor<6xf32> {
  %0 = stablehlo.add %x, %x : tensor<6xf32>
  return %0 : tensor<6xf32>
}
"""


def device() -> GpuDevice:
    found = registry().load().backend("cuda").devices()[0]
    assert isinstance(found, GpuDevice)
    return found


def compiled(text: str = DOUBLE, **options: Any) -> Any:
    return hlojit.compile(text, backend="cuda", **options)


@pytest.mark.simulator_only("it describes itself")
def test_devices_say_what_they_are() -> None:
    (found,) = hlojit.devices("cuda")
    assert str(found) == "cuda:0" and found.kind == "simulated H200"
    assert "simulator on the host's processor: correct, slow, no measure of speed" in found.description
    assert found is hlojit.devices("cuda")[0]


@pytest.mark.parametrize("dtype", ["f4", "i8", "?", "u1"])
def test_arrays_travel_there_and_back(dtype: str) -> None:
    x = np.arange(10).astype(dtype).reshape(2, 5)
    put = hlojit.put(x, "cuda")
    x[...] = 0
    np.testing.assert_array_equal(hlojit.get(put), np.arange(10).astype(dtype).reshape(2, 5))
    assert hlojit.get(hlojit.put(np.zeros((0, 3), dtype), "cuda")).shape == (0, 3)


def test_results_stay_on_the_device_and_calls_do_not_wait() -> None:
    double = compiled()
    y = double.execute(hlojit.put(np.arange(6, dtype="f4"), "cuda"))
    for _ in range(3):
        y = double.execute(y)
    assert str(y.device) == "cuda:0"
    y.wait()
    assert y.is_ready and hlojit.get(y).tolist() == (np.arange(6) * 16).tolist()


def test_a_donated_argument_is_gone_and_its_memory_is_the_results() -> None:
    double = compiled(donate=[0])
    x = hlojit.put(np.arange(6, dtype="f4"), "cuda")
    handle = x.buffer.memory().handle
    y = double(x)
    assert y.buffer.memory().handle is handle
    assert hlojit.get(y).tolist() == [0, 2, 4, 6, 8, 10]
    with pytest.raises(hlojit.ExecutionError, match="donated to double"):
        double(x)
    for _ in range(3):
        y = double.execute(y)
    assert hlojit.get(y).tolist() == (np.arange(6) * 16).tolist()


@pytest.mark.simulator_only("a GPU gives memory in pages")
def test_memory_is_given_back() -> None:
    double = compiled()
    double(np.zeros(6, "f4"))
    driver: Any = device().driver
    driver.trim()
    before = driver.memory()[0]
    arrays = [hlojit.put(np.zeros(1000, "f4"), "cuda") for _ in range(4)]
    assert driver.memory()[0] == before - 4 * 4000
    arrays[0].delete()
    del arrays
    deadline = time.monotonic() + 20
    while driver.memory()[0] != before:
        # What reads an array lets it go when it has read, on a thread of its own.
        assert time.monotonic() < deadline, driver.memory()
        driver.trim()


@pytest.mark.simulator_only("memory of a chosen size")
def test_out_of_memory_says_what_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator memory=10k")
    double = compiled()
    kept = [hlojit.put(np.zeros(500, "f4"), "cuda") for _ in range(4)]
    with pytest.raises(hlojit.ExecutionError) as caught:
        hlojit.put(np.zeros(1000, "f4"), "cuda")
    assert str(caught.value) == (
        "out of memory on cuda:0: 4,000 bytes for arrays of tensor<1000xf32>, 2,240 of 10,240 are free; "
        "held are 8,000 by arrays of tensor<500xf32> (4 of them)"
    )
    del kept[1:]
    assert double(np.ones(6, "f4")).tolist() == [2] * 6
    hlojit.put(np.zeros(1000, "f4"), "cuda").wait()


@pytest.mark.simulator_only("memory of a chosen size")
def test_what_the_collector_can_give_back_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator memory=12k")
    for _ in range(5):
        ring: list[Any] = [hlojit.put(np.zeros(2000, "f4"), "cuda")]
        ring.append(ring)
        del ring


def fault_in_the_next_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next kernel gets an address that is no memory of the device."""
    driver: Any = device().driver
    launch = type(driver).launch

    def broken(self: Any, function: Any, grid: Any, addresses: Any, stream: Any, what: str) -> None:
        monkeypatch.setattr(type(driver), "launch", launch)
        launch(self, function, grid, [addresses[0], 256, *addresses[2:]], stream, what)

    monkeypatch.setattr(type(driver), "launch", broken)


@pytest.mark.simulator_only("a GPU's context is lost with a fault")
def test_a_fault_surfaces_where_the_result_is_read_and_names_kernel_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    double = compiled()
    x = hlojit.put(np.arange(6, dtype="f4"), "cuda")
    double(x)
    fault_in_the_next_launch(monkeypatch)
    y = double.execute(x)
    z = double.execute(y)
    with pytest.raises(hlojit.ExecutionError, match=r"double on cuda:0: kernel hlojit_\w+ \(.*:3:3\)") as caught:
        hlojit.get(y)
    with pytest.raises(hlojit.ExecutionError, match="double on cuda:0"):
        z.wait()
    assert "no memory of the device" in str(caught.value)
    assert hlojit.get(double(x)).tolist() == [0, 2, 4, 6, 8, 10], "the device goes on"


@pytest.mark.simulator_only("as many devices as one asks for")
def test_several_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator devices=3")
    assert [str(each) for each in hlojit.devices("cuda")] == ["cuda:0", "cuda:1", "cuda:2"]
    double = compiled()
    x = hlojit.put(np.arange(6, dtype="f4"), "cuda:2")
    y = double(x)
    assert str(y.device) == "cuda:2"
    with pytest.raises(hlojit.ArgumentError, match="cuda:2"):
        double.execute(x, device="cuda:1")


LOOP = """
func.func @main(%x: tensor<6xf32>) -> tensor<6xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c5 = stablehlo.constant dense<5> : tensor<i32>
  %0:2 = stablehlo.while(%i = %c0, %a = %x) : tensor<i32>, tensor<6xf32>
   cond { %p = stablehlo.compare LT, %i, %c5 : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1> }
   do { %j = stablehlo.add %i, %c1 : tensor<i32>
        %b = stablehlo.add %a, %a : tensor<6xf32>
        stablehlo.return %j, %b : tensor<i32>, tensor<6xf32> }
  return %0#1 : tensor<6xf32>
}
"""


@pytest.mark.parametrize(("text", "factor"), [(DOUBLE, 2), (LOOP, 32)], ids=["fixed", "loop"])
def test_arrays_go_from_device_to_device(monkeypatch: pytest.MonkeyPatch, text: str, factor: int) -> None:
    """Not through the host, in the order of both devices, and without waiting for a program that is on its stream."""
    monkeypatch.setenv("HLOJIT_CUDA", "simulator devices=2")
    first, second = hlojit.devices("cuda")
    run = compiled(text)
    pending = run.execute(np.arange(6, dtype="f4"), device=first)
    with monkeypatch.context() as patch:
        patch.setattr(type(device().driver), "copy_out", _refuse) if text is DOUBLE else None
        y = hlojit.put(pending, second)
        assert y.device is second and pending.device is first
        z = run.execute(y)
    pending.delete()
    assert hlojit.get(z).tolist() == [factor * factor * value for value in range(6)]
    back = hlojit.put(z, first)
    assert hlojit.get(back).tolist() == hlojit.get(z).tolist()
    assert hlojit.put(hlojit.put(np.zeros((0, 3), "f4"), first), second).shape == (0, 3)


def _refuse(*_: Any) -> None:
    raise AssertionError("a copy to the host")


def test_a_copy_of_what_failed_fails_and_both_devices_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator devices=2")
    first, second = hlojit.devices("cuda")
    double, x = compiled(), np.arange(6, dtype="f4")
    with monkeypatch.context() as patch:
        patch.setattr(type(device().driver), "_run", lambda *_: 1 // 0)
        failed = double.execute(x, device=first)
        with pytest.raises(hlojit.ExecutionError, match="by zero"):
            hlojit.put(failed, second).wait()
    for each in (first, second):
        for _ in range(3):
            # What failed may still be on its way to where it is recovered from.
            try:
                found = hlojit.get(double.execute(x, device=each)).tolist()
            except hlojit.ExecutionError:
                continue
            break
        assert found == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize(
    ("switch", "message"),
    [
        ("simulated", "names nothing"),
        ("simulator memory=lots", "memory='lots' is not a number of bytes"),
        ("simulator devices=0", "devices='0' is not a number from 1 to 64"),
        ("simulator speed=9", "unknown option 'speed=9'; known: devices, memory"),
    ],
)
def test_a_switch_that_is_misspelt_is_an_error(monkeypatch: pytest.MonkeyPatch, switch: str, message: str) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", switch)
    with pytest.raises(hlojit.HlojitError, match=message):
        compiled()


def test_without_a_gpu_the_message_names_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLOJIT_CUDA")
    if registry().load().backend("cuda").unavailable() is None:
        pytest.skip("there is a GPU")
    with pytest.raises(hlojit.HlojitError, match="HLOJIT_CUDA=simulator runs programs on the host's processor instead"):
        compiled()


@pytest.mark.slow
@pytest.mark.simulator_only("it lists the simulated GPU")
def test_the_command_lists_devices_and_why_some_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def listed() -> str:
        command = [sys.executable, "-m", "hlojit", "devices"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "cuda:0" in listed() and "simulated H200" in listed()
    monkeypatch.delenv("HLOJIT_CUDA")
    assert "cpu:0" in listed() and ("cuda: " in listed() or "cuda:0" in listed())


@pytest.mark.simulator_only("it breaks the simulator's driver")
def test_a_transfer_that_fails_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    x = hlojit.put(np.arange(6, dtype="f4"), "cuda")
    x.wait()
    driver: Any = device().driver
    move = type(driver)._move

    def broken(self: Any, *arguments: Any) -> None:
        monkeypatch.setattr(type(driver), "_move", move)
        raise OSError("the bus is on fire")

    monkeypatch.setattr(type(driver), "_move", broken)
    with pytest.raises(hlojit.ExecutionError, match="the bus is on fire"):
        hlojit.get(x)
    assert hlojit.get(x).tolist() == [0, 1, 2, 3, 4, 5]
    monkeypatch.setattr(type(driver), "_move", broken)
    y = hlojit.put(np.arange(6, dtype="f4"), "cuda")
    with pytest.raises(hlojit.ExecutionError, match="the bus is on fire"):
        y.wait()
    y = hlojit.put(np.arange(6, dtype="f4"), "cuda")
    assert hlojit.get(y).tolist() == [0, 1, 2, 3, 4, 5]
    assert hlojit.get(compiled()(y)).tolist() == [0, 2, 4, 6, 8, 10], "nor of what had nothing to do with it"


@pytest.mark.simulator_only("it puts a Python function on the stream")
def test_constants_are_there_although_a_fault_came_before_them() -> None:
    """What is put on a stream that met a fault is skipped; a program's constants are put on one only once."""
    add = compiled("""
    func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %c = stablehlo.constant dense<[10.0, 20.0, 30.0]> : tensor<3xf32>
      %0 = stablehlo.add %x, %c : tensor<3xf32>
      return %0 : tensor<3xf32>
    }""")
    x = hlojit.put(np.arange(3, dtype="f4"), "cuda")
    x.wait()
    stream: Any = device()._opened().site.stream
    stream.put(lambda: 1 // 0)
    with pytest.raises(hlojit.ExecutionError, match="by zero"):
        add.execute(x).wait()
    assert hlojit.get(add(x)).tolist() == [10, 21, 32]
