"""Ctrl-C and errors that stop a running program."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
import threading
import time

import numpy as np
import pytest
from hlojit import runtime
from hlojit.ir.errors import ExecutionError, HlojitError
from hlojit.ir.types import tensor

from .programs import ADD_ONE_KERNEL, Build, add_one_program

SCALAR = tensor((), "f32")

UPWARD = {"x86_64": 0x800, "aarch64": 0x400000}
"""The C library's name for rounding up."""

ENDLESS = """
define i32 @main(ptr %context, ptr %slots) {
entry:
  br label %loop
loop:
  %stop = call i32 @hlojit_poll(ptr %context)
  %more = icmp eq i32 %stop, 0
  br i1 %more, label %loop, label %out
out:
  ret i32 1
}
"""

SLOW_LAUNCH = """
@sink = internal global i64 0
define void @slow(ptr %context, ptr %buffers, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  store volatile i64 %i, ptr @sink
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, 1000000
  br i1 %more, label %loop, label %out
out:
  ret void
}
define i32 @main(ptr %context, ptr %slots) {
  call void @hlojit_parallel_for(ptr %context, ptr @slow, ptr %slots, i64 1000000, i64 1)
  ret i32 0
}
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize("estimated", [1.0, float("inf")], ids=["gil-kept", "gil-released"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("program", [ENDLESS, SLOW_LAUNCH], ids=["loop", "launch"])
def test_ctrl_c_stops_a_program(build: Build, program: str, threads: int, estimated: float) -> None:
    executable = build(program, [], [SCALAR], estimated_nanoseconds=estimated)
    before_threads = runtime.get_threads()
    runtime.set_threads(threads)
    before = runtime.statistics()
    sent = [0.0]

    def send() -> None:
        sent[0] = time.perf_counter()
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.1, send)
    # A test run in the background inherits an ignored SIGINT.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            executable()
    finally:
        timer.join()
        signal.signal(signal.SIGINT, previous)
        runtime.set_threads(before_threads)
    assert time.perf_counter() - sent[0] < 1.0
    assert (runtime.statistics() - before).bytes_in_use == 0
    # The next call is a fresh one.
    again = build(add_one_program(5, 2), [tensor((5,), "f32")], [tensor((5,), "f32")])
    np.testing.assert_array_equal(again(np.zeros(5, np.float32)), np.ones(5))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_a_signal_handler_that_returns_does_not_stop_the_program(build: Build) -> None:
    calls: list[int] = []

    def handle(number: int, frame: object) -> None:
        calls.append(number)
        if len(calls) == 3:
            raise ValueError("three signals are enough")

    previous = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.03, 0.03)
    try:
        with pytest.raises(ValueError, match="three signals"):
            build(ENDLESS, [], [SCALAR])()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert len(calls) >= 3  # one more may come before the timer is switched off


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
@pytest.mark.skipif(platform.machine() not in UPWARD, reason="the number of the rounding mode is not known")
def test_a_signal_handler_runs_with_the_callers_float_environment(build: Build) -> None:
    library = ctypes.CDLL(None)
    one, little = np.ones(8), np.full(8, 2.0**-60)
    sums: list[float] = []

    def handle(number: int, frame: object) -> None:
        sums.append(float((one + little)[0]))
        if len(sums) == 2:
            # What a handler sets is the caller's from now on.
            library.fesetround(0)
            raise ValueError("two signals are enough")

    executable = build(ENDLESS, [], [SCALAR])
    previous = signal.signal(signal.SIGALRM, handle)
    try:
        library.fesetround(UPWARD[platform.machine()])
        before = float((one + little)[0])
        signal.setitimer(signal.ITIMER_REAL, 0.03, 0.03)
        with pytest.raises(ValueError, match="two signals"):
            executable()
        after = float((one + little)[0])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        library.fesetround(0)
        signal.signal(signal.SIGALRM, previous)
    assert before > 1.0
    assert sums[:2] == [before] * 2 and after == 1.0


def test_other_python_threads_run_while_a_program_runs(build: Build) -> None:
    program = SLOW_LAUNCH.replace("i64 1000000, i64 1)", "i64 100, i64 1)")
    executable = build(program, [], [SCALAR])
    finished = threading.Event()
    counts = [0]

    def count() -> None:
        while not finished.is_set():
            counts[0] += 1
            time.sleep(0.001)

    other = threading.Thread(target=count)
    other.start()
    executable()
    seen = counts[0]
    finished.set()
    other.join()
    assert seen > 1


FAILING = f"""{ADD_ONE_KERNEL}
define void @failing(ptr %context, ptr %buffers, i64 %begin, i64 %end) {{
entry:
  %is_seven = icmp eq i64 %begin, 7
  br i1 %is_seven, label %fail, label %out
fail:
  call void @hlojit_fail(ptr %context, i32 3, i64 %begin, i64 42)
  br label %out
out:
  ret void
}}
define i32 @main(ptr %context, ptr %slots) {{
  call void @hlojit_parallel_for(ptr %context, ptr @failing, ptr %slots, i64 100, i64 1)
  %stop = call i32 @hlojit_poll(ptr %context)
  ret i32 %stop
}}
"""


def test_a_kernel_that_fails_ends_the_call_with_an_error(build: Build) -> None:
    plain = build(FAILING, [], [SCALAR], name="failing")
    with pytest.raises(ExecutionError, match=r"failing failed with status 3 \(7, 42\)"):
        plain()

    class OwnError(HlojitError):
        pass

    explained = build(FAILING, [], [SCALAR], explain=lambda status, a, b: OwnError(f"task {a}: {status} {b}"))
    before = runtime.statistics()
    with pytest.raises(OwnError, match="task 7: 3 42"):
        explained()
    assert (runtime.statistics() - before).bytes_in_use == 0


def test_a_status_without_details_is_an_error_too(build: Build) -> None:
    executable = build("define i32 @main(ptr %c, ptr %s) {\n ret i32 9\n}", [], [SCALAR], name="nine")
    with pytest.raises(ExecutionError, match="nine failed with status 9"):
        executable()
