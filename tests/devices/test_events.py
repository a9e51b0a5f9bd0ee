"""Events and queues."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest
from hlojit.extensions import READY, Event, Queue
from hlojit.ir.errors import ArgumentError, ExecutionError, HlojitError


def test_an_event_is_waited_for_from_several_threads() -> None:
    event = Event()
    woken: list[bool] = []
    threads = [threading.Thread(target=lambda: woken.append(event.wait(30))) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert not event.ready and not event.wait(0.001)
    event.complete()
    for thread in threads:
        thread.join()
    assert woken == [True] * 4 and event.ready and event.error is None


def test_callbacks_run_once_and_at_once_when_it_is_late() -> None:
    event, seen = Event(), []
    event.then(seen.append)
    assert seen == []
    event.complete()
    event.then(seen.append)
    assert seen == [event, event]
    with pytest.raises(HlojitError, match="completes once"):
        event.complete()


def test_what_a_callback_raises_goes_to_the_hook_and_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    caught: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda report: caught.append(str(report.exc_value)))
    event, seen = Event(), []
    event.then(lambda _: 1 / 0)
    event.then(seen.append)
    event.complete()
    assert caught == ["division by zero"] and seen == [event]


def test_a_failed_event_raises_a_new_exception_each_time() -> None:
    event = Event.completed(ValueError("no power"))
    raised = []
    for _ in range(2):
        with pytest.raises(ExecutionError, match="no power") as info:
            event.wait()
        raised.append(info.value)
    assert raised[0] is not raised[1] and raised[0].__cause__ is raised[1].__cause__ is event.error


def test_all_waits_for_everyone_and_has_the_first_error() -> None:
    events = [Event() for _ in range(3)]
    together = Event.all(events)
    events[2].complete(ValueError("third"))
    events[1].complete(ValueError("second"))
    assert not together.ready
    events[0].complete()
    assert together.ready and str(together.error) == "second"
    assert Event.all([]) is READY and Event.all([READY, Event.completed()]) is READY
    assert Event.all([READY, events[1]]) is events[1]


def test_a_wait_that_gave_up_leaves_nothing_behind() -> None:
    event = Event()
    for _ in range(10):
        assert not event.wait(0)
    assert event._callbacks == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_ctrl_c_ends_the_waiting() -> None:
    event = Event()
    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            event.wait(30)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, previous)
    event.complete()
    assert event.wait()


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs signal masks")
def test_a_signal_that_another_thread_was_given_ends_the_waiting() -> None:
    event, late = Event(), []
    sending, sent = threading.Event(), threading.Event()

    def send() -> None:
        sending.wait(30)
        os.kill(os.getpid(), signal.SIGINT)
        if not sent.wait(5):
            late.append(True)
            event.complete()

    # Before the mask, which threads take over: it is the only one that the signal can be given to.
    thread = threading.Thread(target=send)
    thread.start()
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        timer = threading.Timer(0.05, sending.set)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            event.wait()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, previous)
        sending.set()
        sent.set()
        timer.join()
        thread.join()
    assert not late


def test_a_queue_keeps_the_order_of_each_thread() -> None:
    queue, order = Queue("test"), []
    start = threading.Barrier(4)

    def submit(thread: int) -> None:
        start.wait()
        for number in range(50):
            queue.submit(lambda number=number: order.append((thread, number)))  # type: ignore[misc]

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    queue.submit(lambda: None).wait()
    assert len(order) == 200
    for number in range(4):
        assert [n for thread, n in order if thread == number] == list(range(50))


def test_work_after_a_failed_event_is_not_done() -> None:
    queue, done = Queue("test"), []
    first = queue.submit(lambda: 1 / 0)
    second = queue.submit(lambda: done.append(1), after=first)
    third = queue.submit(lambda: done.append(2))
    third.wait()
    assert done == [2]
    assert second.error is first.error and isinstance(first.error, ZeroDivisionError)


def test_a_failed_work_does_not_keep_what_it_used() -> None:
    class Thing:
        pass

    queue, thing = Queue("test"), Thing()
    gone = weakref.ref(thing)

    def work(thing: Thing = thing) -> None:
        other = thing  # noqa: F841
        raise ValueError("no")

    event = queue.submit(work)
    with pytest.raises(ExecutionError):
        event.wait()
    queue.submit(lambda: None).wait()
    del work, thing
    gc.collect()
    assert gone() is None and event.error is not None


def test_a_dropped_queue_ends_its_thread_after_its_work() -> None:
    queue = Queue("dropped")
    gate = threading.Event()
    queue.submit(lambda: gate.wait(30))
    last = queue.submit(lambda: None)
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "hlojit dropped"]
    del queue
    gate.set()
    assert last.wait(30)
    thread.join(30)
    assert not thread.is_alive()


FORK = """
import os, threading
from hlojit.extensions import Queue
from hlojit.ir.errors import ExecutionError
queue, gate = Queue("test"), threading.Event()
queue.submit(lambda: None).wait()
pending = queue.submit(lambda: gate.wait(30))
later = queue.submit(lambda: None)
child = os.fork()
if child == 0:
    try:
        pending.wait()
    except ExecutionError as error:
        assert "forked" in str(error)
        ran = []
        queue.submit(lambda: ran.append(os.getpid())).wait()
        os._exit(0 if ran == [os.getpid()] else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
gate.set()
later.wait()
print("good")
"""

EXIT = """
import time
from hlojit.extensions import Queue
queue, later = Queue("test"), []
queue.submit(lambda: time.sleep({running}))
for _ in range(1000):
    last = queue.submit(lambda: time.sleep(10))
last.then(lambda event: print(event.error))
print("end")
"""


def run(script: str) -> tuple[str, str, float]:
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr, time.monotonic() - start


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_fork_has_a_fresh_queue_and_is_told_what_it_will_not_get() -> None:
    output, _, _ = run(FORK)
    assert output == "good\n"


@pytest.mark.parametrize("running", [0.05, 30])
def test_the_interpreter_ends_with_work_pending(running: float) -> None:
    output, errors, seconds = run(EXIT.format(running=running))
    assert output.startswith("end\n") and not errors
    assert seconds < 30, "neither a thousand waits of ten seconds nor the one of thirty"
    if running < 1:
        assert "the interpreter ends" in output


def test_causes_in_a_circle_do_not_stop_a_queue() -> None:
    def work() -> None:
        first, second = ValueError("first"), ValueError("second")
        first.__cause__, second.__cause__ = second, first
        raise first

    work_queue = Queue("circle")
    broken = work_queue.submit(work)
    with pytest.raises(ExecutionError, match="first"):
        assert broken.wait(10), "the queue's thread is busy with the causes"
    assert work_queue.submit(lambda: None).wait(10)


def test_an_error_keeps_nothing_of_what_its_causes_used() -> None:
    """Neither cause nor context (where there are both), nor the parts of a group."""

    class Input:
        pass

    inputs = [Input() for _ in range(4)]
    kept = [weakref.ref(each) for each in inputs]

    def fail(number: int) -> ValueError:
        used = inputs[number]
        try:
            raise ValueError(f"with {type(used).__name__} {number}")
        except ValueError as error:
            return error

    def work() -> None:
        used = inputs.pop()
        try:
            raise fail(0)
        except ValueError:
            cause, parts = fail(1), [fail(2)]
            del inputs[:]
            raise ExceptionGroup(f"with {type(used).__name__} 3", parts) from cause

    broken = Queue("causes").submit(work)
    with pytest.raises(ExecutionError, match="with Input 3"):
        broken.wait(10)
    gc.collect()
    error = broken.error
    assert isinstance(error, ExceptionGroup) and error.__cause__ is not None and error.__context__ is not None
    assert [each() for each in kept] == [None] * 4
    assert "with Input 0" not in str(error) and "in fail" in error.__notes__[0]


@pytest.mark.parametrize("timeout", [float("nan"), "x", [], 1j])
def test_what_is_no_timeout_is_said(timeout: Any) -> None:
    with pytest.raises(ArgumentError, match="a timeout is a number of seconds or None, not "):
        Event().wait(timeout)
    assert not Event().wait(np.float32(0.0)) and not Event().wait(-1)
