"""The simulator's driver: order of streams, red zones and poison, faults and what follows them."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest
from hlojit.gpu.driver import DeviceFault, OutOfDeviceMemory
from hlojit.gpu.simulated_driver import RED_ZONE, SimulatedDriver, SimulatedStream


@pytest.fixture
def driver() -> SimulatedDriver:
    made = SimulatedDriver("test", 1 << 20)
    made.open()
    return made


@pytest.fixture
def stream(driver: SimulatedDriver) -> SimulatedStream:
    return driver.stream("one")


def test_memory_is_aligned_and_poisoned(driver: SimulatedDriver, stream: SimulatedStream) -> None:
    for nbytes in (1, 255, 256, 4097):
        address = driver.allocate(nbytes, stream)
        assert address % 256 == 0
        back = np.zeros(nbytes, "u1")
        driver.copy_out(back, address, stream)
        assert (back == 0xFF).all(), "NaN in float formats, -1 in integers"
        driver.free(address, stream)


@pytest.mark.parametrize("offset", [-1, -RED_ZONE, 100, 100 + 50])
def test_a_write_beside_a_buffer_is_found_when_it_is_freed(
    driver: SimulatedDriver, stream: SimulatedStream, offset: int
) -> None:
    address = driver.allocate(100, stream)
    ctypes.memset(address + offset, 7, 1)
    driver.free(address, stream)
    side = "before" if offset < 0 else "behind"
    with pytest.raises(DeviceFault, match=f"memory {side} a buffer of 100 bytes was written"):
        driver.synchronize(driver.record(stream))


def test_a_write_inside_is_none(driver: SimulatedDriver, stream: SimulatedStream) -> None:
    address = driver.allocate(100, stream)
    driver.copy_in(address, np.zeros(100, "u1"), stream)
    driver.free(address, stream)
    driver.synchronize(driver.record(stream))
    assert driver.memory()[0] == 1 << 20


def test_copies_outside_of_memory_are_faults(driver: SimulatedDriver, stream: SimulatedStream) -> None:
    address = driver.allocate(100, stream)
    with pytest.raises(DeviceFault, match="which is no memory of the device"):
        driver.copy_out(np.zeros(101, "u1"), address, stream)


def test_a_fault_skips_what_follows_and_is_told_by_every_mark(driver: SimulatedDriver, stream: SimulatedStream) -> None:
    done: list[int] = []
    stream.put(lambda: done.append(1))
    before = driver.record(stream)
    stream.put(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    stream.put(lambda: done.append(2))
    marks = driver.record(stream), driver.record(stream)
    driver.synchronize(before)
    for mark in marks:
        with pytest.raises(DeviceFault, match="by zero") as caught:
            driver.synchronize(mark)
    driver.recover(stream, caught.value)
    stream.put(lambda: done.append(3))
    driver.synchronize(driver.record(stream))
    assert done == [1, 3]
    with pytest.raises(DeviceFault):
        driver.synchronize(marks[0])


def test_streams_wait_for_marks_and_take_faults_over(driver: SimulatedDriver, stream: SimulatedStream) -> None:
    other, gate, done = driver.stream("two"), threading.Event(), list[str]()
    stream.put(lambda: (gate.wait(30), done.append("first"))[1])
    driver.wait_for(other, driver.record(stream))
    other.put(lambda: done.append("second"))
    mark = driver.record(other)
    assert not done
    gate.set()
    driver.synchronize(mark)
    assert done == ["first", "second"]
    stream.put(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    driver.wait_for(other, driver.record(stream))
    with pytest.raises(DeviceFault, match="by zero"):
        driver.synchronize(driver.record(other))


def test_arrays_may_change_when_copy_in_has_returned(driver: SimulatedDriver, stream: SimulatedStream) -> None:
    gate = threading.Event()
    stream.put(lambda: gate.wait(30) and None)
    address, array = driver.allocate(8, stream), np.arange(8, dtype="u1")
    driver.copy_in(address, array, stream)
    array[...] = 9
    gate.set()
    back = np.zeros(8, "u1")
    driver.copy_out(back, address, stream)
    assert back.tolist() == list(range(8))


def test_memory_that_is_freed_counts_until_the_stream_gets_there(
    driver: SimulatedDriver, stream: SimulatedStream
) -> None:
    gate = threading.Event()
    address = driver.allocate(1 << 19, stream)
    stream.put(lambda: gate.wait(30) and None)
    driver.free(address, stream)
    with pytest.raises(OutOfDeviceMemory):
        driver.allocate((1 << 19) + 1, stream)
    gate.set()
    driver.trim()
    driver.free(driver.allocate(1 << 20, stream), stream)


def test_graphs_do_again_what_was_captured(driver: SimulatedDriver, stream: SimulatedStream) -> None:
    x, y = driver.allocate(4, stream), driver.allocate(4, stream)
    graph = driver.capture(lambda captured: driver.copy(y, x, 4, captured))
    back = np.zeros(4, "u1")
    for value in (3, 4):
        driver.copy_in(x, np.full(4, value, "u1"), stream)
        driver.launch_graph(graph, stream)
        driver.copy_out(back, y, stream)
        assert back.tolist() == [value] * 4


def test_recovering_from_one_fault_forgets_no_other(driver: SimulatedDriver, stream: SimulatedStream) -> None:
    """Several programs fail of one fault, and each of them recovers: one more fault may have come in between."""
    stream.put(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(DeviceFault) as first:
        driver.synchronize(driver.record(stream))
    driver.recover(stream, first.value)
    stream.put(lambda: list[None]()[1])
    driver.recover(stream, first.value)
    with pytest.raises(DeviceFault, match="index out of range") as second:
        driver.synchronize(driver.record(stream))
    driver.recover(stream, second.value)
    driver.synchronize(driver.record(stream))


def test_what_began_before_a_fault_was_recovered_from_has_failed(
    driver: SimulatedDriver, stream: SimulatedStream
) -> None:
    """A part of it was skipped."""
    since = driver.record(stream)
    stream.put(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(DeviceFault) as caught:
        driver.synchronize(driver.record(stream))
    driver.recover(stream, caught.value)
    recovered, mark = driver.record(stream), driver.record(stream)
    driver.synchronize(mark)
    driver.synchronize(mark, recovered)
    with pytest.raises(DeviceFault, match="by zero"):
        driver.synchronize(mark, since)


def test_a_stream_waits_for_another_one_although_it_met_a_fault(
    driver: SimulatedDriver, stream: SimulatedStream
) -> None:
    other, gate = driver.stream("two"), threading.Event()
    stream.put(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(DeviceFault) as caught:
        driver.synchronize(driver.record(stream))
    other.put(lambda: gate.wait(30) and None)
    driver.wait_for(stream, driver.record(other))
    driver.recover(stream, caught.value)
    mark = driver.record(stream)
    assert not mark.passed.wait(0.05)
    gate.set()
    driver.synchronize(mark)


def test_the_time_between_two_marks_is_that_of_what_lies_between(
    driver: SimulatedDriver, stream: SimulatedStream
) -> None:
    before, gate = driver.record_time(stream), threading.Event()
    stream.put(lambda: gate.wait(0.02) and None)
    after = driver.record_time(stream)
    assert driver.elapsed(before, after) >= 2e7
    assert driver.elapsed(before, before) == 0
    stream.put(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(DeviceFault, match="by zero"):
        driver.elapsed(after, driver.record_time(stream))
