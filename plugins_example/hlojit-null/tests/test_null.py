"""The null device's own tests, run as a vendor would run them: against an installed hlojit and this installed package."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import ElementwiseCall, hookimpl, registry, using
from hlojit_null import plugin

X = np.arange(12, dtype="f4").reshape(3, 4) - 4

SEVERAL_STEPS = """
func.func @steps(%x: tensor<3x4xf32>, %y: tensor<3x4xf32>) -> (tensor<3x4xf32>, tensor<3xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.multiply %x, %y : tensor<3x4xf32>
  %1 = stablehlo.tanh %0 : tensor<3x4xf32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>
  return %1, %2 : tensor<3x4xf32>, tensor<3xf32>
}
"""
ADD = """
func.func @add(%x: tensor<3x4xf32>, %y: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %0 = stablehlo.add %x, %y : tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}
"""
LOOP = """
func.func @power(%x: tensor<f32>, %n: tensor<i32>) -> tensor<f32> {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %start = stablehlo.constant dense<1.0> : tensor<f32>
  %0:2 = stablehlo.while(%i = %n, %p = %start) : tensor<i32>, tensor<f32>
  cond {
    %1 = stablehlo.compare GE, %i, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.subtract %i, %one : tensor<i32>
    %2 = stablehlo.multiply %p, %x : tensor<f32>
    stablehlo.return %1, %2 : tensor<i32>, tensor<f32>
  }
  return %0#1 : tensor<f32>
}
"""


@pytest.fixture
def device() -> Iterator[Any]:
    """The first device, with nothing on it and nothing to do."""
    first = hlojit.devices("null")[0]
    first.counters.clear()
    assert first.memory == {}
    yield first
    first.latency = 0.0
    first.faults.clear()


def test_the_plugin_is_found_with_its_devices() -> None:
    record = registry().load().records["null"]
    assert record.package == "hlojit-null" and not record.error
    assert [(str(each), each.kind, each.memory_spaces[0].kind) for each in hlojit.devices("null")] == [
        ("null:0", "null-1", "sram"),
        ("null:1", "null-1", "sram"),
    ]


def test_a_program_of_several_steps(device: Any) -> None:
    product, total = hlojit.compile(SEVERAL_STEPS, backend="null")(X, X)
    assert type(product) is np.ndarray
    np.testing.assert_allclose(product, np.tanh(X * X), rtol=1e-6)
    np.testing.assert_allclose(total, np.tanh(X * X).sum(1), rtol=1e-6)
    assert device.counters == {"in": 2, "steps": 4, "out": 2}
    assert device.memory == {}, "arguments, intermediate values and results have been given back"


def test_regions_that_read_values_from_outside() -> None:
    assert hlojit.compile(LOOP, backend="null")(np.float32(3), np.int32(4)) == 81


def test_programs_are_chained_without_a_copy_back(device: Any) -> None:
    add, steps = (hlojit.compile(text, backend="null") for text in (ADD, SEVERAL_STEPS))
    x = hlojit.put(X, device)
    for _ in range(5):
        x = add.execute(x, x)
    result, _ = steps.execute(x, x)
    result.wait()
    assert device.counters["in"] == 1 and device.counters["out"] == 0
    np.testing.assert_allclose(np.asarray(result), np.tanh((32 * X) ** 2), rtol=1e-6)
    assert device.counters["out"] == 1


def test_the_host_goes_on_while_the_device_works(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    add = hlojit.compile(ADD, backend="null")
    gate = threading.Event()
    monkeypatch.setattr(plugin.time, "sleep", lambda _: gate.wait(30))
    source = X.copy()
    first = add.execute(source, source)
    source[:] = 0  # it has been read
    second = add.execute(first, X)
    assert not first.is_ready and not second.is_ready
    gate.set()
    np.testing.assert_array_equal(hlojit.get(second), 3 * X)


def test_two_devices_work_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    add = hlojit.compile(ADD, backend="null")
    both = threading.Barrier(2)
    monkeypatch.setattr(plugin.time, "sleep", lambda _: both.wait(30))
    for result in [add.execute(X, X, device=device) for device in hlojit.devices("null")]:
        np.testing.assert_array_equal(hlojit.get(result), 2 * X)


def test_an_error_surfaces_at_the_buffer(device: Any) -> None:
    add = hlojit.compile(ADD, backend="null")
    device.faults.append(OSError("the cable is out"))
    broken = add.execute(X, X)
    dependant = add.execute(broken, X)
    for array in (broken, dependant):
        with pytest.raises(
            hlojit.ExecutionError, match=r"add on null:0: the back end 'null' .*raised .*the cable is out"
        ):
            np.asarray(array)
    assert device.counters["steps"] == 1, "what depends on it was not run"
    np.testing.assert_array_equal(add(X, X), 2 * X)


def test_an_argument_on_the_wrong_device_is_named() -> None:
    add = hlojit.compile(ADD, backend="null")
    first, second = (hlojit.put(X, device) for device in hlojit.devices("null"))
    with pytest.raises(hlojit.ArgumentError, match="add: argument 0 is on null:0, argument 1 on null:1"):
        add(first, second)
    with pytest.raises(
        hlojit.ArgumentError, match="add: argument 1 is on cpu:0, the program is compiled for null:0, null:1"
    ):
        add(X, hlojit.put(X, "cpu"))
    np.testing.assert_array_equal(add(first, hlojit.put(second, first.device)), 2 * X)


def test_a_deleted_array_is_refused_and_freed(device: Any) -> None:
    add = hlojit.compile(ADD, backend="null")
    array = hlojit.put(X, device)
    device.latency = 0.02
    result = add.execute(array, X)
    array.delete()
    with pytest.raises(hlojit.ExecutionError, match="the buffer of tensor<3x4xf32> on null:0 was deleted"):
        add(array, X)
    np.testing.assert_array_equal(result, 2 * X)
    del result
    assert device.memory == {}


def test_a_donated_array_names_the_program(device: Any) -> None:
    donating = hlojit.compile(
        ADD.replace("%x: tensor<3x4xf32>", "%x: tensor<3x4xf32> {jax.buffer_donor = true}"), backend="null"
    )
    x = hlojit.put(X, device)
    y = donating(x, X)
    with pytest.raises(hlojit.ExecutionError, match="the buffer of tensor<3x4xf32> on null:0 was donated to add"):
        donating(x, X)
    np.testing.assert_array_equal(y, 2 * X)


def test_a_jitted_function_runs_on_the_device(device: Any) -> None:
    @hlojit.jit(backend="null")
    def norm(x: Any) -> Any:
        return np.sqrt((x * x).sum(axis=1))

    result = norm(hlojit.put(X, device))
    assert isinstance(result, hlojit.Array) and result.device is device and device.counters["out"] == 0
    np.testing.assert_allclose(np.asarray(result), np.linalg.norm(X, axis=1), rtol=1e-6)


def test_several_threads_share_the_device(device: Any) -> None:
    add = hlojit.compile(ADD, backend="null")
    right = []

    def work(number: int) -> None:
        x = hlojit.put(np.full((3, 4), number, "f4"), device)
        for _ in range(10):
            x = add.execute(x, X)
        if np.array_equal(np.asarray(x), number + 10 * X):
            right.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(right) == [0, 1, 2, 3]


def test_custom_calls_come_as_what_their_plugins_make_of_them() -> None:
    class Vendor:
        @hookimpl
        def hlojit_custom_calls(self) -> list[Any]:
            return [ElementwiseCall("acme.twice", function=lambda x: x + x)]

    text = """
    func.func @main(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
      %0 = stablehlo.custom_call @acme.twice(%x) : (tensor<3x4xf32>) -> tensor<3x4xf32>
      return %0 : tensor<3x4xf32>
    }
    """
    with using(Vendor()):
        np.testing.assert_array_equal(hlojit.compile(text, backend="null")(X), X + X)
    with pytest.raises(hlojit.UnsupportedError, match=r"unknown custom call target 'acme\.twice'"):
        hlojit.compile(text, backend="null")


def test_what_it_cannot_do_is_refused() -> None:
    text = """
    func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {
      %0 = "stablehlo.sort"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %1 = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      }) {dimension = 0 : i64} : (tensor<5xf32>) -> tensor<5xf32>
      return %0 : tensor<5xf32>
    }
    """
    with pytest.raises(hlojit.UnsupportedError, match="'null': the device has no sorter"):
        hlojit.compile(text, backend="null")
