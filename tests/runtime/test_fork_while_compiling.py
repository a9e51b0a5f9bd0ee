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


def test_fork_waits_for_others_but_not_for_those_who_wait_to_fork() -> None:
    gate = ForkGate()
    entered, leave, order = threading.Event(), threading.Event(), []

    def other() -> None:
        with gate:
            entered.set()
            leave.wait()
            order.append("left")

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
    with gate, gate:  # inside ourselves: that does not count
        threading.Timer(0.05, leave.set).start()
        gate.before_fork()
        order.append("fork")
        gate.after_fork_in_parent()
    thread.join()
    assert order == ["left", "fork"]

    forked = threading.Barrier(2)

    def fork_inside() -> None:
        with gate:
            forked.wait()
            gate.before_fork()
            gate.after_fork_in_parent()

    threads = [threading.Thread(target=fork_inside) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
        assert not each.is_alive()
    with gate:
        pass


@needs_fork
def test_a_child_collects_garbage_although_another_thread_held_that_off() -> None:
    script = (
        "import gc, os, threading\n"
        "from hlojit.collection import collection_paused\n"
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
