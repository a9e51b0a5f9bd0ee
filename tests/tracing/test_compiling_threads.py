"""Jitted functions while they are traced: other threads, the function itself, exceptions, signals and forks."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.in_flight import InFlight
from hlojit.tracing import jitted_functions
from hlojit.tracing.errors import TracingError

from ..test_in_flight import LONG, joined, started

X = np.float32([1, 2, 3])


def waiting(count: int) -> None:
    """Until ``count`` threads wait for a function that another one compiles."""
    end = time.monotonic() + LONG
    while sum(len(work.gates) for work in jitted_functions._compilations._works.values()) < count:
        assert time.monotonic() < end
        time.sleep(0.001)


def in_thread(function: Callable[[], Any]) -> Any:
    """What a function returns in another thread, which this one waits for."""
    found: list[Any] = []
    joined(started(lambda: found.append(function())))
    return found[0]


def test_a_traced_function_waits_for_a_thread_that_calls_others() -> None:
    other = hlojit.jit(lambda x: x + 1)

    @hlojit.jit
    def f(x: Any) -> Any:
        factor = in_thread(lambda: float(other(X).sum()))
        if x.shape == (3,):
            # Another signature of the same function.
            factor += float(in_thread(lambda: f(X[:2])).sum())
        return x * factor

    np.testing.assert_array_equal(f(X), X * (9 + (1 + 2) * 9))


def test_a_traced_function_waits_for_a_thread_that_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jitted_functions, "_compilations", InFlight(patience=0.1))
    seen: list[Any] = []

    @hlojit.jit
    def f(x: Any) -> Any:
        if not seen:
            seen.append(None)
            seen.append(in_thread(lambda: f(X)))
        return x * 2

    np.testing.assert_array_equal(f(X), X * 2)
    np.testing.assert_array_equal(seen[1], X * 2)


def test_two_functions_that_call_each_other_with_arrays_in_two_threads() -> None:
    meet = threading.Barrier(2)
    functions: list[Any] = []
    traced: set[str] = set()

    def calling(name: str, other: int) -> Any:
        def f(x: Any) -> Any:
            if name in traced:
                return x + 1
            traced.add(name)
            meet.wait(LONG)
            return x + functions[other](X)[0]

        return hlojit.jit(f)

    functions += [calling("a", 1), calling("b", 0)]
    results: list[Any] = []
    joined(*[started(lambda f=f: results.append(f(X))) for f in functions])  # type: ignore[misc]
    for result in results:
        assert result[1] - result[0] == 1 and result[0] in (2, 3, 4)
    assert len(results) == 2


def test_a_function_that_calls_itself_with_an_array_while_it_is_traced() -> None:
    depth: list[int] = []

    @hlojit.jit
    def f(x: Any) -> Any:
        depth.append(1)
        return x + (float(f(X)[0]) if len(depth) < 3 else 10)

    assert f(X)[0] in (11, 12, 13), "as many calls as the function makes, whichever of them is kept"


def test_a_function_that_calls_itself_without_end_is_named() -> None:
    @hlojit.jit
    def endless(x: Any) -> Any:
        return x + endless(X)

    with pytest.raises(TracingError, match="endless recurses without an end"):
        endless(X)
    assert not jitted_functions._compilations._works


def test_waiters_try_themselves_after_an_exception() -> None:
    begun, calls = threading.Event(), list[int]()

    @hlojit.jit
    def f(x: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            begun.set()
            waiting(3)
            raise ZeroDivisionError("the first time")
        return x * 2

    outcomes: list[Any] = []

    def call() -> None:
        try:
            outcomes.append(f(X).tolist())
        except ZeroDivisionError:
            outcomes.append("failed")

    first = started(call)
    assert begun.wait(LONG)
    joined(first, *[started(call) for _ in range(3)])
    assert sorted(map(str, outcomes)) == ["[2.0, 4.0, 6.0]"] * 3 + ["failed"] and len(calls) == 2


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to threads here")
def test_a_waiter_is_interrupted() -> None:
    begun, go_on, main = threading.Event(), threading.Event(), threading.get_ident()

    @hlojit.jit
    def f(x: Any) -> Any:
        begun.set()
        assert go_on.wait(LONG)
        return x * 2

    compiling = started(lambda: f(X))
    assert begun.wait(LONG)

    def interrupt() -> None:
        waiting(1)
        signal.pthread_kill(main, signal.SIGINT)

    interrupting = started(interrupt)
    with pytest.raises(KeyboardInterrupt):
        f(X)
    go_on.set()
    joined(compiling, interrupting)
    np.testing.assert_array_equal(f(X), X * 2)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to threads here")
def test_a_signal_handler_calls_the_function_that_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[Any] = []
    main = threading.get_ident()

    @hlojit.jit
    def f(x: Any) -> Any:
        if not handled:
            handled.append(None)
            signal.pthread_kill(main, signal.SIGUSR1)
            time.sleep(0.01)
        return x * 2

    before = signal.signal(signal.SIGUSR1, lambda number, frame: handled.append(f(X).tolist()))
    try:
        np.testing.assert_array_equal(f(X), X * 2)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handled == [None, [2, 4, 6]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.simulator_only("CUDA cannot be used in a child of fork")
def test_a_function_forks_while_it_is_traced_and_another_thread_waits_for_it() -> None:
    begun, children = threading.Event(), list[int]()
    other = hlojit.jit(lambda x: x + 1)

    @hlojit.jit
    def f(x: Any) -> Any:
        if not begun.is_set():
            begun.set()
            waiting(1)
            children.append(os.fork())
        return x * 2

    def call() -> None:
        right = f(X).tolist() == [2, 4, 6]
        if children == [0]:
            os._exit(0 if right and other(X).tolist() == [2, 3, 4] else 1)
        results.append(right)

    results: list[bool] = []
    first = started(call)
    assert begun.wait(LONG)
    joined(first, started(call))
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
    assert results == [True, True]
