"""Transfers that Ctrl-C interrupts: memory that they read or write is nobody else's before they are over."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import registry
from hlojit.gpu.device import GpuDevice
from hlojit.gpu.simulated_driver import SimulatedDriver

pytestmark = pytest.mark.simulator_only("its streams are held up by the test")
Array = np.ndarray[Any, Any]


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[GpuDevice]]:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator devices=2")
    found = registry().load().backend("cuda").devices()
    yield [each for each in found if isinstance(each, GpuDevice)]


def interrupted(monkeypatch: pytest.MonkeyPatch, function: str, call: Callable[[], object]) -> None:
    """Ctrl-C when ``call`` gets to a function of the driver; afterwards the function is as before."""

    def raising(*arguments: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(SimulatedDriver, function, raising)
    with pytest.raises(KeyboardInterrupt):
        call()


def others(devices: list[GpuDevice]) -> list[hlojit.Array]:
    """Arrays that are given what is free."""
    gc.collect()
    return [hlojit.put(np.full(1000, 5, "f4"), each) for each in devices]


def test_what_a_download_reads_stays_until_it_is_over(
    devices: list[GpuDevice], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = hlojit.put(np.ones(1000, "f4"), devices[0])
    x.wait()
    gate = threading.Event()
    devices[0]._opened().downloads.put_always(gate.wait)
    with monkeypatch.context() as patch:
        interrupted(patch, "synchronize", partial(hlojit.get, x))
    del x
    kept = others(devices[:1])
    gate.set()
    for each in kept:
        np.testing.assert_array_equal(hlojit.get(each), np.full(1000, 5, "f4"))


def test_what_a_copy_between_devices_reads_and_writes_stays_until_it_is_over(
    devices: list[GpuDevice], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = hlojit.put(np.ones(1000, "f4"), devices[0])
    x.wait()
    gate = threading.Event()
    devices[1]._opened().site.uploads.put_always(gate.wait)
    uploads = devices[1]._opened().site.uploads
    record = SimulatedDriver.record

    def recording(driver: SimulatedDriver, stream: Any) -> Any:
        if stream is uploads:
            monkeypatch.setattr(SimulatedDriver, "record", record)
            raise KeyboardInterrupt
        return record(driver, stream)

    monkeypatch.setattr(SimulatedDriver, "record", recording)
    with pytest.raises(KeyboardInterrupt):
        hlojit.put(x, devices[1])
    del x
    kept = others(devices)
    # What is given back at once is free by now; what waits for the copy is not.
    reached = threading.Event()
    devices[0]._opened().site.stream.put_always(reached.set)
    assert not reached.wait(0.2)
    gate.set()
    for each in kept:
        np.testing.assert_array_equal(hlojit.get(each), np.full(1000, 5, "f4"))
