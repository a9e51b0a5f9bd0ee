"""Ctrl-C between any two steps of a start, and errors that cannot be shown: nothing is lost by it, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import Event
from hlojit.extensions import devices as devices_module
from hlojit.extensions.devices import MAXIMUM_IN_FLIGHT, Device, Memory

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
            hlojit.ExecutionError, match="main on test:0: the back end 'test' failed: <UnspeakableError"
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
