"""A child made while another thread compiles can compile."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hlojit.ir.fork_gate import ForkGate

SCRIPT = Path(__file__).with_name("forking_process.py")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@needs_fork
@pytest.mark.parametrize("kind", ["plain", "numba"])
def test_children_compile(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "8", kind],
        env={**os.environ, "HLOJIT_CACHE": "off"}, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@needs_fork
def test_children_of_a_process_whose_threads_call_lapack() -> None:
    """The library is forked between its calls: it waited for ever for its own threads."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT.with_name("forking_beside_lapack.py"))],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_fork_waits_for_others_but_not_for_those_who_wait_to_fork() -> None:
    gate = ForkGate()
    entered, leave, order = threading.Event(), threading.Event(), []

    def other() -> None:
        with gate.inside:
            entered.set()
            leave.wait()
            order.append("left")

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
    with gate.inside, gate.inside:  # inside ourselves: that does not count
        threading.Timer(0.05, leave.set).start()
        gate.before_fork()
        order.append("fork")
        gate.after_fork_in_parent()
    thread.join()
    assert order == ["left", "fork"]

    forked = threading.Barrier(2)

    def fork_inside() -> None:
        with gate.inside:
            forked.wait()
            gate.before_fork()
            gate.after_fork_in_parent()

    threads = [threading.Thread(target=fork_inside) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
        assert not each.is_alive()
    with gate.inside:
        pass


@needs_fork
@pytest.mark.parametrize("where", ["traced function", "factory", "expansion", "pass", "hook"])
def test_code_of_users_may_wait_for_a_thread_that_forks(where: str) -> None:
    environment = {**os.environ, "HLOJIT_CACHE": "off"}
    script = SCRIPT.with_name("waiting_for_forks.py")
    done = subprocess.run(
        [sys.executable, str(script), where], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_who_is_inside_may_wait_for_a_thread_that_comes_inside_while_another_one_waits_to_fork() -> None:
    gate = ForkGate(courtesy=0.2)
    entered, order = threading.Event(), []

    def fork() -> None:
        entered.wait(30)
        gate.before_fork()
        order.append("fork")
        gate.after_fork_in_parent()

    def come_inside() -> None:
        with gate.inside:
            order.append("inside")

    forking = threading.Thread(target=fork, daemon=True)
    forking.start()
    with gate.inside:
        entered.set()
        forking.join(0.2)
        other = threading.Thread(target=come_inside, daemon=True)
        other.start()
        other.join(30)
        assert order == ["inside"]
    forking.join(30)
    assert order == ["inside", "fork"]


def test_fork_while_there_is_always_somebody_inside() -> None:
    """Who comes inside lets others fork first."""
    gate = ForkGate()
    inside, forked = [threading.Event(), threading.Event()], threading.Event()

    def relay(me: int) -> None:
        while not forked.is_set():
            with gate.inside:
                inside[me].set()
                # Not left before the other one has come, unless that does not come for a while.
                inside[1 - me].wait(0.3)
                inside[1 - me].clear()

    def fork() -> None:
        gate.before_fork()
        gate.after_fork_in_parent()
        forked.set()

    relays = [threading.Thread(target=relay, args=(me,), daemon=True) for me in range(2)]
    for each in relays:
        each.start()
    assert inside[0].wait(30)
    forking = threading.Thread(target=fork, daemon=True)
    forking.start()
    in_time = forked.wait(10)
    forked.set()
    for each in (*relays, forking):
        each.join(30)
        assert not each.is_alive()
    assert in_time


def test_who_is_inside_may_wait_at_once_for_a_thread_that_works_for_it() -> None:
    gate = ForkGate(courtesy=1e6)
    done = threading.Event()

    def fork() -> None:
        gate.before_fork()
        gate.after_fork_in_parent()

    def help_out() -> None:
        with gate.inside_for_another:
            done.set()

    forking = threading.Thread(target=fork, daemon=True)
    with gate.inside:
        forking.start()
        forking.join(0.1)
        threading.Thread(target=help_out, daemon=True).start()
        assert done.wait(30)
    forking.join(30)
    assert not forking.is_alive()


def test_outside_is_outside_of_everything_and_ends_inside() -> None:
    gate = ForkGate()
    with gate.inside, gate.inside:
        assert not gate.outside(gate.is_inside)
        assert gate.is_inside()
        with pytest.raises(ZeroDivisionError):
            gate.outside(divmod, 1, 0)
        assert gate.is_inside()
    assert not gate.is_inside()


@needs_fork
def test_a_child_collects_garbage_although_another_thread_held_that_off() -> None:
    script = (
        "import gc, os, threading\n"
        "from hlojit.ir.collection import collection_paused\n"
        "held, done = threading.Event(), threading.Event()\n"
        "def hold():\n"
        "    with collection_paused():\n"
        "        held.set(); done.wait()\n"
        "thread = threading.Thread(target=hold); thread.start(); held.wait()\n"
        "assert not gc.isenabled()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    inside = gc.isenabled()\n"
        "    with collection_paused(): inside &= not gc.isenabled()\n"
        "    os._exit(not (inside and gc.isenabled()))\n"
        "status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "done.set(); thread.join()\n"
        "assert status == 0 and gc.isenabled()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize("cache", ["off", "on"])
def test_nothing_is_imported_outside_of_the_gate(cache: str, tmp_path: Path) -> None:
    """What a thread is importing while another one forks can never be imported in the child."""
    environment = {**os.environ, "HLOJIT_CACHE": "off" if cache == "off" else str(tmp_path / "cache")}
    script = SCRIPT.with_name("ungated_imports.py")
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stdout + done.stderr
