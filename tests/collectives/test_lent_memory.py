"""Memory that others copy from when a run fails: whoever has handed out an address keeps what is there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.cpu import collectives
from hlojit.extensions.devices.rendezvous import Meeting, current_participant
from hlojit.gpu.exchanges import Exchanger
from hlojit.gpu.operations import Exchange, Place
from hlojit.gpu.simulated_driver import SimulatedDriver
from hlojit.ir.errors import ExecutionError
from hlojit.lowering.program import CollectiveKind

from .conftest import make_devices

NBYTES = 1 << 20
SWAPPED = """
func.func @main(%x: tensor<262144xf32>) -> tensor<262144xf32> {
  %0 = stablehlo.negate %x : tensor<262144xf32>
  %1 = "stablehlo.collective_permute"(%0) {source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}
    : (tensor<262144xf32>) -> tensor<262144xf32>
  return %1 : tensor<262144xf32>
}
"""


def test_a_process_of_the_cpu_does_not_end_while_another_copies_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    make_devices("cpu", monkeypatch, 2)
    fetch, has_ended, ended_early = collectives._fetch, threading.Event(), list[bool]()

    def held(moves: Any, sources: Any, target: int) -> None:
        participant = current_participant()
        assert participant is not None
        if participant.process == 1:
            participant._meeting.fail(ExecutionError("interrupted"))
            # As long as process 0 would take to end if it waited for nobody.
            ended_early.append(has_ended.wait(0.2))
            assert not ended_early[-1], "its memory is gone"
        fetch(moves, sources, target)

    monkeypatch.setattr(collectives, "_fetch", held)
    results = hlojit.compile(SWAPPED, num_replicas=2).execute([[np.ones(1 << 18, "f4")]] * 2)
    first: Any = hlojit.devices("cpu")[0]
    end = first._queue.submit(has_ended.set)
    for each in results:
        with pytest.raises(hlojit.ExecutionError, match="interrupted"):
            hlojit.get(each[0])
    assert end.wait(30) and ended_early == [False]


class Failing:
    """A driver whose run fails as soon as it has put its copy on the stream, which gets there when the gate is opened."""

    def __init__(self, driver: SimulatedDriver, fail: Callable[[], None], gate: threading.Event):
        self._driver = driver
        self._fail = fail
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def copy_from(self, peer: Any, target: int, source: int, nbytes: int, stream: Any) -> None:
        stream.put_always(partial(_pass, self._gate))
        self._driver.copy_from(peer, target, source, nbytes, stream)
        self._fail()


@pytest.mark.parametrize("raises", [False, True], ids=["another", "itself"])
def test_a_gpu_frees_nothing_that_another_one_reads_after_a_failure(raises: bool) -> None:
    meeting = Meeting("main", ["process 0", "process 1"], 30)

    def fail() -> None:
        if raises:
            raise ExecutionError("lost")
        meeting.fail(ExecutionError("lost"))

    drivers = [SimulatedDriver(f"gpu {number}") for number in range(2)]
    gate = threading.Event()
    peers: list[Any] = [drivers[0], Failing(drivers[1], fail, gate)]
    streams = [each.stream("programs") for each in drivers]
    sources = [each.allocate(NBYTES, stream) for each, stream in zip(drivers, streams)]
    targets = [each.allocate(2 * NBYTES, stream) for each, stream in zip(drivers, streams)]
    data = np.arange(NBYTES, dtype="u1")
    for driver, stream, source in zip(drivers, streams, sources):
        driver.copy_in(source, data, stream)
    operation = Exchange(CollectiveKind.ALL_GATHER, ((0, 1),), Place(0), NBYTES, Place(1), 2 * NBYTES, "here")
    errors: list[str] = []

    def run(number: int) -> None:
        participant = meeting.participant(number)
        exchanger = Exchanger(
            operation, sources[number], targets[number], 0, peers[number], streams[number], participant
        )
        try:
            exchanger.run()
        except ExecutionError as error:
            errors.append(str(error))
        drivers[number].free(sources[number], streams[number])

    threads = [threading.Thread(target=partial(run, number)) for number in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    # As long as the stream would take to get to the end if it waited for nothing.
    drivers[0].record(streams[0]).passed.wait(0.1)
    gate.set()
    assert errors == ["lost", "lost"]
    found = np.empty(NBYTES, "u1")
    drivers[1].copy_out(found, targets[1], streams[1])
    assert streams[1].fault is None
    np.testing.assert_array_equal(found, data)


def test_streams_recover_from_a_fault_of_what_a_failed_program_has_put_there(monkeypatch: pytest.MonkeyPatch) -> None:
    make_devices("cuda", monkeypatch, 2)
    executable = hlojit.compile(SWAPPED, backend="cuda", num_replicas=2)
    rows = [[np.full(1 << 18, number, "f4")] for number in range(2)]
    executable(rows)
    devices: Any = hlojit.devices("cuda")[:2]
    copy_from = SimulatedDriver.copy_from

    def failing(self: SimulatedDriver, peer: Any, target: int, source: int, nbytes: int, stream: Any) -> None:
        if self is not devices[1].driver:
            return copy_from(self, peer, target, source, nbytes, stream)
        copy_from(self, peer, 0, source, nbytes, stream)
        raise ExecutionError("lost")

    monkeypatch.setattr(SimulatedDriver, "copy_from", failing)
    with pytest.raises(hlojit.ExecutionError, match="lost"):
        executable(rows)
    monkeypatch.setattr(SimulatedDriver, "copy_from", copy_from)
    for device in devices:
        device._lanes.issuing.submit(lambda: None).wait(30)
        device._lanes.completions.submit(lambda: None).wait(30)
    for (found,), row in zip(executable(rows), reversed(rows)):
        np.testing.assert_array_equal(found, -row[0])


def _pass(gate: threading.Event) -> None:
    assert gate.wait(30)
