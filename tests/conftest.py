"""Options of the whole test suite."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from hlojit.ir.fork_gate import fork_gate
from hypothesis import settings

from .elsewhere import Elsewhere
from .on_gpu import MARKERS, OnGpu, skip_gpu_only

settings.register_profile("fixed", derandomize=True, database=None)
settings.register_profile("random", print_blob=True)
settings.load_profile("fixed")
"""A test says the same of the same code twice: its random programs are the same ones. ``make fuzz`` looks for others."""


def pytest_addoption(parser: Any) -> None:
    """Add ``--update-golden``, which rewrites golden files instead of comparing with them, and ``--soak``.

    ``--backend`` and ``--every`` run a sample of the cases on another back end (``elsewhere.py``), ``--gpu`` those of the
    back end ``cuda`` on the machine's GPU (``on_gpu.py``).
    """
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files with what comes out now")
    parser.addoption("--soak", action="store_true", help="also run the tests that take minutes each (make soak)")
    parser.addoption("--backend", help="run the cases' programs on this back end instead of the CPU")
    parser.addoption("--every", type=int, default=1, help="with --backend: one case of so many of each stratum")
    parser.addoption("--gpu", action="store_true", help="run what is for the back end cuda on the GPU of this machine")


def pytest_configure(config: Any) -> None:
    """Add the hooks of ``--backend`` and ``--gpu``."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As shells leave it to what they start in the background: tests of Ctrl-C would wait for ever.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if config.getoption("--gpu"):
        config.pluginmanager.register(OnGpu())
    if config.getoption("--backend"):
        config.pluginmanager.register(Elsewhere(config.getoption("--backend"), config.getoption("--every")))


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leave out what only ``make soak`` runs, and what needs a GPU."""
    skip_gpu_only(items, on_gpu=config.getoption("--gpu"))
    if not config.getoption("--soak"):
        left_out = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


@pytest.fixture(scope="session", autouse=True)
def own_cache() -> Iterator[None]:
    """The suite neither reads nor fills the user's cache; processes that tests start share the session's."""
    folder = tempfile.mkdtemp(prefix="hlojit-test-cache-")
    before = os.environ.get("HLOJIT_CACHE")
    os.environ["HLOJIT_CACHE"] = folder
    yield
    if before is None:
        del os.environ["HLOJIT_CACHE"]
    else:
        os.environ["HLOJIT_CACHE"] = before
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def foreign_locks() -> Iterator[None]:
    """No test leaves the lock of a library to this thread: all other threads would wait for ever, in another test."""
    yield
    kept = [lock for lock in fork_gate.foreign_locks() if lock._is_owned()]
    for lock in kept:
        while lock._is_owned():
            lock.release()
    assert not kept, f"the test has not given back {kept}"
