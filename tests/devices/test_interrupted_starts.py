"""Ctrl-C between any two steps of a start, and errors that cannot be shown: nothing is lost by it, and nobody waits for ever."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import hlojit
import hlojit.extensions.devices.device as devices_module
import numpy as np
import pytest
from hlojit.extensions import Event
from hlojit.extensions.devices.buffers import Memory
from hlojit.extensions.devices.device import MAXIMUM_IN_FLIGHT, Device
from hlojit.extensions.devices.holds import Hold
from hlojit.extensions.devices.turns import Turn
from hlojit.gpu.memory import DeviceMemory

from .vendor import TestBackend

X = np.ones(6, "f4")
TEXT = """func.func @main(%x: tensor<6xf32>) -> tensor<6xf32> {
  %0 = stablehlo.add %x, %x : tensor<6xf32>
  return %0 : tensor<6xf32>
}"""


class UnspeakableError(Exception):
    """Of a plugin: it has no text."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def raises(error: BaseException) -> Callable[..., Any]:
    def function(*_: Any, **__: Any) -> Any:
        raise error

    return function


def test_an_error_without_a_text_ends_the_wait(backend: TestBackend) -> None:
    double = hlojit.compile(TEXT, backend="test")
    backend.devices()[0].fault = raises(UnspeakableError())
    result = double.execute(X)
    assert result.buffer is not None
    for _ in range(2):
        with pytest.raises(
            hlojit.ExecutionError, match="main on test:0: the back end 'test' .*raised <UnspeakableError"
        ):
            assert result.buffer.ready.wait(20), "it waits for ever"
    assert "UnspeakableError" in repr(result.buffer.ready)


def test_an_end_comes_even_if_the_message_cannot_be_made(backend: TestBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    double = hlojit.compile(TEXT, backend="test")
    backend.devices()[0].fault = raises(ZeroDivisionError())
    monkeypatch.setattr(devices_module, "failure", raises(MemoryError()))
    monkeypatch.setattr("threading.excepthook", lambda _: None)
    result = double.execute(X)
    assert result.buffer is not None
    with pytest.raises(hlojit.ExecutionError, match="ZeroDivisionError"):
        assert result.buffer.ready.wait(20), "it waits for ever"


@pytest.mark.parametrize(
    ("owner", "name"),
    [(devices_module, "_checked"), (Memory, "__init__"), (Event, "then"), (devices_module, "Buffer")],
)
def test_an_interrupted_start_asks_for_the_end_and_keeps_its_memory(
    backend: TestBackend, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = backend.devices()[0]
    double = hlojit.compile(TEXT, backend="test")
    x = hlojit.put(X, "test")
    np.testing.assert_array_equal(double(x), 2 * X)
    device.gate.clear()
    stopped: list[Event] = []
    monkeypatch.setattr(Event, "stop", lambda event: stopped.append(event))
    execute = device.execute

    def then_interrupted(*arguments: Any) -> Any:
        returned = execute(*arguments)
        real = getattr(owner, name)

        def once(*_: Any, **__: Any) -> None:
            monkeypatch.setattr(owner, name, real)
            raise KeyboardInterrupt

        monkeypatch.setattr(owner, name, once)
        return returned

    monkeypatch.setattr(device, "execute", then_interrupted)
    before = device.executions
    for number in range(MAXIMUM_IN_FLIGHT + 1):
        with pytest.raises(KeyboardInterrupt):
            double.execute(x)
        if number == 3:
            del x
            x = hlojit.put(X, "test")
            device.gate.set()
    monkeypatch.setattr(device, "execute", execute)
    assert len(stopped) == MAXIMUM_IN_FLIGHT + 1, "what nobody waits for was asked to end"
    result = double.execute(X)
    assert result.wait(20), "there is room"
    np.testing.assert_array_equal(result, 2 * X)
    assert device.executions == before + MAXIMUM_IN_FLIGHT + 2, "what was used was there until then"


def test_starts_that_fail_take_no_room(backend: TestBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    double = hlojit.compile(TEXT, backend="test")
    for owner, name in ((devices_module, "give"), (Event, "all"), (Device, "_end")):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, raises(KeyboardInterrupt()))
            for _ in range(MAXIMUM_IN_FLIGHT):
                with pytest.raises(KeyboardInterrupt):
                    double.execute(X)
    result = double.execute(X)
    assert result.wait(20)
    np.testing.assert_array_equal(result, 2 * X)


COUNT = """
func.func @main(%x: tensor<8xi64>, %n: tensor<i64>) -> tensor<8xi64> {
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %one = stablehlo.constant dense<1> : tensor<i64>
  %0:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i64>, tensor<8xi64>
  cond {
    %1 = stablehlo.compare LT, %i, %n : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.add %i, %one : tensor<i64>
    %2 = stablehlo.reverse %v, dims = [0] : tensor<8xi64>
    stablehlo.return %1, %2 : tensor<i64>, tensor<8xi64>
  }
  return %0#1 : tensor<8xi64>
}
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_ctrl_c_ends_a_call_that_was_given_its_argument() -> None:
    count = hlojit.compile(COUNT, backend="cpu", donate=(0,))
    x = np.arange(8)
    np.testing.assert_array_equal(count(hlojit.put(x, "cpu"), np.int64(3)), x[::-1])
    previous = signal.signal(signal.SIGALRM, raises(KeyboardInterrupt()))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            count(hlojit.put(x, "cpu"), np.int64(2**62))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    result = count.execute(hlojit.put(x, "cpu"), np.int64(2))
    assert result.wait(20), "it runs for ever"
    np.testing.assert_array_equal(result, x)


def test_ctrl_c_before_the_turn_of_a_call_that_was_given_its_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    count = hlojit.compile(COUNT, backend="cpu", donate=(0,))
    x = np.arange(8)
    with monkeypatch.context() as patched:
        patched.setattr(Turn, "run", raises(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            count(hlojit.put(x, "cpu"), np.int64(2**62))
    result = count.execute(hlojit.put(x, "cpu"), np.int64(2))
    assert result.wait(20), "the device waits for ever"
    np.testing.assert_array_equal(result, x)


def test_a_call_that_is_given_what_failed_fails() -> None:
    count = hlojit.compile(COUNT, backend="cpu", donate=(0,))
    x = hlojit.put(np.arange(8), "cpu")
    assert x.buffer is not None
    x.buffer.ready = Event.completed(ValueError("of a program before"))
    with pytest.raises(hlojit.ExecutionError, match="of a program before"):
        count(x, np.int64(2))


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", [Hold, DeviceMemory])
def test_what_was_interrupted_while_it_was_made_goes_without_a_word(kind: Any) -> None:
    made = kind.__new__(kind)
    del made
