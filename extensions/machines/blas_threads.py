"""Threads of BLAS libraries, shared by machines that compute with NumPy at the same time.

A product in NumPy takes all processors.  Two machines that do so at once have twice as many threads as there are
processors, which spin while they wait for each other: up to thirty times slower, measured.  While several programs of
machines run, each gets its share.  What knows the libraries is ``threadpoolctl`` (``pip install hlojit[blas]``); without it
nothing is limited.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, final

from hlojit.ir.current_process import in_children


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

    @contextmanager
    def taken(self) -> Iterator[None]:
        """A program of a machine runs in the block."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    def _change(self, by: int) -> None:
        with self._lock:
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

    def _known(self) -> Any:
        """The libraries that are loaded, looked for once, when several programs first meet; False where nobody knows them."""
        if self._controller is None:
            try:
                self._controller = importlib.import_module("threadpoolctl").ThreadpoolController()
            except ImportError:
                self._controller = False
        return self._controller or None


BLAS: Final = BlasShare()
"""Of the process: the libraries' settings are the process's."""


@in_children
def _after_fork() -> None:
    # Programs of the parent do not run here, and the lock may be held by a thread that does not exist.
    BLAS.reset()
