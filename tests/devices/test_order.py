"""Programs that read a buffer and programs that are given it, from several threads: the order of the calls holds."""

from __future__ import annotations

import os
import threading
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit import Array, ExecutionError
from hlojit.device_call import DeviceCall
from hlojit.extensions import DeviceProgram
from hlojit.extensions.devices.host_device import HostDevice
from hlojit.ir.formats import element_type
from hlojit.ir.types import tensor

TYPE = tensor((6,), element_type("f32"))
ONES = np.ones(6, np.float32)


def overwrite(x: Any, *others: Any) -> Any:
    """A program that is given its first argument and makes the result in its memory."""
    x[:] = -1
    return x


def call(name: str, code: Any, arguments: int = 1, *, gives: bool = False) -> DeviceCall:
    """A program for the CPU's devices that is a Python function."""
    return DeviceCall(DeviceProgram(name, (TYPE,) * arguments, (TYPE,), code, (0,) if gives else ()), None)


class Reader:
    """A synchronous call on a thread of its own, which reads its argument when it is told to."""

    def __init__(self, array: Array):
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.results: list[Any] = []
        program = call("read", self._read)
        self._thread = threading.Thread(target=lambda: self.results.append(program(array)))
        self._thread.start()
        assert self.begun.wait(30)

    def _read(self, x: Any) -> Any:
        self.begun.set()
        assert self.goes_on.wait(30)
        return x.copy()

    def finish(self) -> np.ndarray[Any, Any]:
        self.goes_on.set()
        self._thread.join(30)
        return np.asarray(self.results[0])


def test_a_program_is_given_a_buffer_when_a_synchronous_call_has_read_it() -> None:
    array = hlojit.put(ONES)
    readers = [Reader(array) for _ in range(2)]
    given = call("give", overwrite, gives=True).execute(array)
    assert not given.wait(0.1)
    np.testing.assert_array_equal(readers[0].finish(), ONES)
    assert not given.wait(0.1)
    np.testing.assert_array_equal(readers[1].finish(), ONES)
    np.testing.assert_array_equal(given, -ONES)


def test_a_failed_synchronous_call_holds_nothing() -> None:
    array = hlojit.put(ONES)
    with pytest.raises(ExecutionError, match="division by zero"):
        call("fail", lambda x: 1 / 0)(array)
    np.testing.assert_array_equal(call("give", overwrite, gives=True)(array), -ONES)


def test_a_buffer_is_not_given_between_the_look_at_it_and_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    array, given = hlojit.put(ONES), []
    give = call("give", overwrite, gives=True)
    other = threading.Thread(target=lambda: given.append(give.execute(array)))
    execute = HostDevice.execute

    def interrupted(self: HostDevice, program: DeviceProgram, *arguments: Any) -> Any:
        if program.name == "read":
            other.start()
            other.join(0.3)
        return execute(self, program, *arguments)

    monkeypatch.setattr(HostDevice, "execute", interrupted)
    result = call("read", np.copy).execute(array)
    other.join(30)
    np.testing.assert_array_equal(result, ONES)
    np.testing.assert_array_equal(given[0], -ONES)


def exchange(arrays: list[Array]) -> list[Any]:
    """What two threads get, each of which is given an array and reads the other one."""
    program = call("exchange", overwrite, 2, gives=True)
    outcomes: list[Any] = []
    together = threading.Barrier(2)

    def work(first: Array, second: Array) -> None:
        together.wait(30)
        try:
            outcomes.append(np.asarray(program.execute(first, second)).tolist())
        except ExecutionError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in (arrays, arrays[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return outcomes


def test_two_threads_that_give_what_the_other_one_reads() -> None:
    for _ in range(50):
        outcomes = exchange([hlojit.put(ONES), hlojit.put(ONES)])
        assert len(outcomes) == 2 and [-1.0] * 6 in outcomes
        assert any("was donated to exchange" in str(outcome) for outcome in outcomes)


def test_nothing_is_taken_when_another_argument_is_refused() -> None:
    first, second = hlojit.put(ONES), hlojit.put(ONES)
    second.delete()
    with pytest.raises(ExecutionError, match="was deleted"):
        call("exchange", overwrite, 2, gives=True).execute(first, second)
    np.testing.assert_array_equal(first, ONES)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_reader_of_the_parent_process_does_not_hold_the_child() -> None:
    array = hlojit.put(ONES)
    give = call("give", overwrite, gives=True)
    reader = Reader(array)
    child = os.fork()
    if child == 0:
        is_right = False
        try:
            is_right = bool((np.asarray(give(array)) == -1).all())
        finally:
            os._exit(0 if is_right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(reader.finish(), ONES)
