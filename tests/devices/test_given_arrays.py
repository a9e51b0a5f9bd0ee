"""Arrays that are deleted, dropped or donated, and programs that write into the memory of their arguments."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit import ArgumentError, ExecutionError
from hlojit.extensions import (
    YES,
    Backend,
    DeviceProgram,
    registry,
)

from .test_arrays import ADD_ONE, BACKENDS, TWO, NDArray, X
from .vendor import Plugin, TestBackend


@BACKENDS
def test_a_deleted_array_is_refused(name: str, backend: TestBackend) -> None:
    executable = hlojit.compile(ADD_ONE, backend=name)
    array = hlojit.put(X, name)
    array.delete()
    array.delete()
    for use in (lambda: executable(array), lambda: executable.execute(array), lambda: np.asarray(array), array.item):
        with pytest.raises(ExecutionError, match=f"the buffer of tensor<4x6xf32> on {name}:0 was deleted"):
            use()
    with pytest.raises(ExecutionError, match="was deleted"):
        hlojit.put(array, name)
    assert "deleted" in repr(array)


def test_a_deleted_array_lives_until_what_runs_with_it_has_ended(backend: TestBackend) -> None:
    executable = hlojit.compile(ADD_ONE, backend="test")
    device = backend.devices()[0]
    array = hlojit.put(X, "test")
    device.gate.clear()
    result = executable.execute(array)
    array.delete()
    assert len(device.memory) == 1
    device.gate.set()
    np.testing.assert_array_equal(result, X + 1)
    assert len(device.memory) == 1, "the result; the argument is gone"


def test_a_donated_array_is_invalid_and_names_the_program(backend: TestBackend) -> None:
    backend.donated = (0,)
    two = hlojit.compile(TWO, backend="test")
    x, y = hlojit.put(X, "test"), hlojit.put(X, "test")
    with pytest.raises(ArgumentError, match="two, argument 0 is donated and given as another argument, too"):
        two(x, x)
    np.testing.assert_array_equal(two(x, y)[0], X + X)
    for use in (lambda: two(x, y), lambda: np.asarray(x), lambda: two.execute(y, x)):
        with pytest.raises(ExecutionError, match="the buffer of tensor<4x6xf32> on test:0 was donated to two"):
            use()
    np.testing.assert_array_equal(y, X)


def test_dropped_arrays_are_freed_on_the_device(backend: TestBackend) -> None:
    device = backend.devices()[0]
    arrays = [hlojit.put(X, device) for _ in range(5)]
    gone = weakref.ref(arrays[0])
    assert len(device.memory) == 5
    arrays.clear()
    gc.collect()
    assert gone() is None and device.memory == {}


class TakingBackend(Backend):
    """Host devices; the program writes its result into the memory of its first argument, when it is told to."""

    name = "taking"

    def __init__(self) -> None:
        self.gate = threading.Event()

    def capability(self, instruction: Any) -> Any:
        return YES

    def compile(self, module: Any, options: Any) -> DeviceProgram:
        def run(x: NDArray, *others: NDArray) -> NDArray:
            assert self.gate.wait(30)
            if not others:
                return x + 1
            x += others[0]
            return x

        return DeviceProgram.of(module, run)


DONATING = (
    TWO.replace("%x: tensor<4x6xf32>", "%x: tensor<4x6xf32> {tf.aliasing_output = 0 : i32}")
    .replace("(tensor<4x6xf32>, tensor<4x6xf32>) {", "tensor<4x6xf32> {")
    .replace("return %0, %1 : tensor<4x6xf32>, tensor<4x6xf32>", "return %0 : tensor<4x6xf32>")
)


def test_a_program_that_takes_memory_leaves_views_and_earlier_programs_alone() -> None:
    backend = TakingBackend()
    with registry().load().using(Plugin(backend)):
        reading, taking = (hlojit.compile(text, backend="taking") for text in (ADD_ONE, DONATING))
        device = hlojit.devices("taking")[0]
        seen, free = hlojit.put(X, device), hlojit.put(X, device)
        view, address = np.asarray(seen), free.buffer.memory().handle.array.ctypes.data  # type: ignore[union-attr]
        before = reading.execute(free)
        results = [taking.execute(seen, X), taking.execute(free, X)]
        backend.gate.set()
        for result in results:
            np.testing.assert_array_equal(result, 2 * X)
        np.testing.assert_array_equal(view, X)
        np.testing.assert_array_equal(before, X + 1)
        assert not np.shares_memory(view, np.asarray(results[0]))
        assert np.asarray(results[1]).ctypes.data == address, "the memory was taken, not copied"
        for array in (seen, free):
            with pytest.raises(ExecutionError, match="was donated to two"):
                np.asarray(array)


def test_a_synchronous_call_that_takes_memory_waits_for_earlier_programs() -> None:
    backend = TakingBackend()
    with registry().load().using(Plugin(backend)):
        reading, taking = (hlojit.compile(text, backend="taking") for text in (ADD_ONE, DONATING))
        for _ in range(20):
            backend.gate.clear()
            array = hlojit.put(X, "taking")
            before = reading.execute(array)
            timer = threading.Timer(0.001, backend.gate.set)
            timer.start()
            result = taking(array, X)
            np.testing.assert_array_equal(result, 2 * X)
            np.testing.assert_array_equal(before, X + 1)
            timer.join()


def adam(state: Any, gradient: Any) -> Any:
    weight, mean, square = state
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.99 * square + 0.01 * gradient * gradient
    return (weight - 0.5 * mean / (np.sqrt(square) + 1e-3), mean, square)


@pytest.mark.parametrize("name", ["cpu", "test"])
def test_donated_state_stays_on_the_device(name: str, backend: TestBackend) -> None:
    step = hlojit.jit(donate_argnums=0, backend=name)(adam)
    gradient = np.linspace(-1, 1, 24, dtype="f4").reshape(4, 6)
    expected: Any = (X, np.zeros_like(X), np.ones_like(X))
    state: Any = tuple(hlojit.put(array, name) for array in expected)
    for _ in range(4):
        old = state
        state = step(state, gradient)
        expected = adam(expected, gradient)
        for array in old:
            with pytest.raises(ExecutionError, match=f"the buffer of tensor<4x6xf32> on {name}:0 was donated to main"):
                np.asarray(array)
    for array, wanted in zip(state, expected):
        assert array.device is hlojit.devices(name)[0]
        np.testing.assert_allclose(array, wanted, rtol=1e-5)


def test_a_donated_array_on_the_cpu_gives_its_memory_to_the_result() -> None:
    add = hlojit.compile(TWO.replace("%x: tensor<4x6xf32>", "%x: tensor<4x6xf32> {tf.aliasing_output = 0 : i32}"))
    array, seen = hlojit.put(X), hlojit.put(X)
    assert array.buffer is not None
    address = array.buffer.memory().handle.array.ctypes.data
    view = np.asarray(seen)
    total, product = add.execute(array, X)
    assert np.asarray(total).ctypes.data == address
    np.testing.assert_array_equal(total, 2 * X)
    np.testing.assert_array_equal(product, X * X)
    np.testing.assert_array_equal(add(seen, X)[0], 2 * X)
    np.testing.assert_array_equal(view, X, err_msg="what NumPy looks at does not change")
    # Host arrays are copied by execute, and the copy is what the program takes.
    source = X.copy()
    np.testing.assert_array_equal(add.execute(source, X)[0], 2 * X)
    assert source.flags.writeable
    np.testing.assert_array_equal(source, X)
