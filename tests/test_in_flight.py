"""Work in flight: who does it, who waits, and that no wait goes on for ever."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hlojit.ir.in_flight import InFlight, Role

LONG = 30.0
"""Seconds that no test takes: what would wait for ever fails."""


def started(function: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def joined(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive(), "it waits for ever"


def waiting(works: InFlight, count: int) -> None:
    """Until ``count`` threads wait for what is being done."""
    end = time.monotonic() + LONG
    while sum(len(work.gates) for work in works._works.values()) < count:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_one_thread_works_and_the_others_look_again() -> None:
    works, made, begun, go_on = InFlight(), dict[str, int](), threading.Event(), threading.Event()
    roles: list[Role] = []

    def want() -> None:
        while "key" not in made:
            with works.turn("key") as role:
                roles.append(role)
                if role is Role.FIRST:
                    begun.set()
                    assert go_on.wait(LONG)
                    made["key"] = 1

    threads = [started(want) for _ in range(5)]
    assert begun.wait(LONG)
    waiting(works, 4)
    go_on.set()
    joined(*threads)
    assert sorted(role.name for role in roles) == ["AFTER"] * 4 + ["FIRST"]
    assert not works._works


def test_keys_do_not_wait_for_each_other() -> None:
    works = InFlight()
    with works.turn("one") as first:
        roles = []

        def other() -> None:
            with works.turn("two") as role:
                roles.append(role)

        joined(started(other))
    assert first is Role.FIRST and roles == [Role.FIRST]


def test_a_thread_that_comes_again_is_inside() -> None:
    works = InFlight()
    with works.turn("key") as outer:
        with works.turn("key") as inner:
            pass
        with works.turn("key") as again:
            pass
    assert (outer, inner, again) == (Role.FIRST, Role.INSIDE, Role.INSIDE)
    with works.turn("key") as later:
        assert later is Role.FIRST


def test_an_exception_frees_the_waiters_and_one_of_them_works() -> None:
    works, begun, roles = InFlight(), threading.Event(), []

    def fail() -> None:
        with pytest.raises(ZeroDivisionError), works.turn("key"):
            begun.set()
            waiting(works, 2)
            raise ZeroDivisionError

    done: list[int] = []

    def want() -> None:
        while not done:
            with works.turn("key") as role:
                roles.append(role)
                if role is Role.FIRST:
                    done.append(1)

    failing = started(fail)
    assert begun.wait(LONG)
    joined(failing, started(want), started(want))
    assert done == [1] and Role.FIRST in roles


def test_threads_that_would_wait_for_each_other_do_not() -> None:
    works, meet = InFlight(patience=LONG * 10), threading.Barrier(3)
    roles: dict[str, Role] = {}
    rest = {"a": "b", "b": "c", "c": "a"}

    def work(mine: str) -> None:
        with works.turn(mine):
            meet.wait(LONG)
            with works.turn(rest[mine], take_over=False) as role:
                roles[mine] = role

    joined(*[started(lambda name=name: work(name)) for name in rest])  # type: ignore[misc]
    assert Role.BESIDE in roles.values()
    assert set(roles.values()) <= {Role.BESIDE, Role.AFTER}


def test_a_wait_that_nobody_can_see_ends() -> None:
    works, roles = InFlight(patience=0.05), list[Role]()

    def want() -> None:
        for _ in range(2):
            with works.turn("key", take_over=False) as role:
                roles.append(role)

    with works.turn("key"):
        joined(started(want))
    assert roles == [Role.BESIDE] * 2


def test_what_takes_too_long_is_taken_over_once() -> None:
    works, roles = InFlight(patience=0.05), list[Role]()
    made: list[int] = []

    def want() -> None:
        while not made:
            with works.turn("key") as role:
                roles.append(role)
                if role is Role.FIRST:
                    made.append(1)

    with works.turn("key"):
        joined(*[started(want) for _ in range(4)])
        assert roles.count(Role.FIRST) == 1
    assert not works._works


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to threads here")
def test_a_wait_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    works, begun, go_on = InFlight(), threading.Event(), threading.Event()

    def work() -> None:
        with works.turn("key"):
            begun.set()
            go_on.wait(LONG)

    working, main = started(work), threading.get_ident()
    assert begun.wait(LONG)

    def interrupt() -> None:
        waiting(works, 1)
        signal.pthread_kill(main, signal.SIGINT)

    interrupting = started(interrupt)
    with pytest.raises(KeyboardInterrupt), works.turn("key"):
        pass
    go_on.set()
    joined(interrupting, working)
    with works.turn("key") as role:
        assert role is Role.FIRST


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_does_not_wait_for_threads_that_it_lacks() -> None:
    works, begun, go_on = InFlight(patience=LONG * 10), threading.Event(), threading.Event()

    def work() -> None:
        with works.turn("theirs"):
            begun.set()
            go_on.wait(LONG)

    working = started(work)
    assert begun.wait(LONG)
    with works.turn("mine"):
        child = os.fork()
        if child == 0:
            with works.turn("theirs") as theirs, works.turn("mine") as mine:
                os._exit(0 if (theirs, mine) == (Role.FIRST, Role.INSIDE) else 1)
    go_on.set()
    joined(working)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
