"""Threads of BLAS libraries, shared by machines that compute with NumPy at the same time.

A product in NumPy takes all processors.  Two machines that do so at once have twice as many threads as there are
processors, which spin while they wait for each other: up to thirty times slower, measured.  While several programs of
machines run, each gets its share.  What knows the libraries is ``threadpoolctl`` (``pip install hlojit[blas]``); without it
nothing is limited, and one warning says what helps.  Functions that compute tasks of a kernel are shared out by hlojit, too: of
those that call BLAS a warning says so when they are compiled.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, final

from hlojit.ir.current_process import in_children
from hlojit.ir.errors import HlojitWarning, PluginWarning
from hlojit.ir.time_limit import uninterrupted
from hlojit.ir.warn import warn

_VARIABLES: Final = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "OMP_NUM_THREADS",
)
_SHARED: Final = (
    "several programs of devices in Python compute at the same time, and in each NumPy's BLAS takes all processors, which may "
    "take many times as long: `pip install hlojit[blas]` gives each its share, or set OPENBLAS_NUM_THREADS=1 (or the variable of "
    "your BLAS) before NumPy is imported"
)
_IN_TASKS: Final = (
    "{} calls BLAS from several tasks, which hlojit shares out among all processors, and each call takes all processors again: "
    "set OPENBLAS_NUM_THREADS=1 (or the variable of your BLAS) before NumPy is imported, or tasks=1"
)


def warn_of_tasks(what: str) -> None:
    """Say once what several tasks that call BLAS cost, unless somebody has seen to its threads."""
    if not _is_told():
        warn(_IN_TASKS.format(what), PluginWarning)


def _is_told() -> bool:
    """Whether there is nothing to share, or the user has said how many threads BLAS takes."""
    return (os.cpu_count() or 1) == 1 or any(os.environ.get(name) for name in _VARIABLES)


@final
class BlasShare:
    """Who computes at the same time, and what the libraries were told."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Nobody computes."""
        self._lock = threading.Lock()
        self._active = 0
        self._controller: Any = None
        self._limit: Any = None
        """The first limit of a time in which several compute: it knows what was before."""
        self._unsaid = False
        """Whether several computed without limits, and nobody was told."""

    @contextmanager
    def taken(self) -> Iterator[None]:
        """A program of a machine runs in the block."""
        self._change(1)
        try:
            self._say()
            yield
        finally:
            self._change(-1)

    def _change(self, by: int) -> None:
        with uninterrupted(), self._lock:
            self._active += by
            if self._active <= 1:
                if self._limit is not None:
                    self._limit.restore_original_limits()
                    self._limit = None
                return
            controller = self._known()
            if controller is None:
                return
            share = max(1, (os.cpu_count() or 1) // self._active)
            limit = controller.limit(limits=share, user_api="blas")
            self._limit = self._limit or limit

    def _say(self) -> None:
        with uninterrupted(), self._lock:
            unsaid, self._unsaid = self._unsaid, False
        if unsaid:
            warn(_SHARED, HlojitWarning)

    def _known(self) -> Any:
        """The libraries that are loaded, looked for once, when several programs first meet; False where nobody knows them."""
        if self._controller is None:
            try:
                self._controller = importlib.import_module("threadpoolctl").ThreadpoolController()
            except ImportError:
                self._controller, self._unsaid = False, not _is_told()
        return self._controller or None


BLAS: Final = BlasShare()
"""Of the process: the libraries' settings are the process's."""


@in_children
def _after_fork() -> None:
    # Programs of the parent do not run here, and the lock may be held by a thread that does not exist.
    BLAS.reset()
