"""Python's cyclic garbage collector, held off while a large graph is built.

The collector's full passes visit every live object; while 100,000 instructions are being made it runs again and again and
finds nothing, which would make compilation superlinear.
"""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_holders: Counter[int] = Counter()
"""How often each thread holds the collector off."""
_was_enabled = False


@contextmanager
def collection_paused() -> Iterator[None]:
    """Keep the cyclic collector from running; nested and concurrent uses count."""
    global _was_enabled
    thread = threading.get_ident()
    with _lock:
        if not _holders:
            _was_enabled = gc.isenabled()
            gc.disable()
        _holders[thread] += 1
    try:
        yield
    finally:
        with _lock:
            _holders[thread] -= 1
            if not _holders[thread]:
                del _holders[thread]
            if not _holders and _was_enabled:
                gc.enable()


def _after_fork() -> None:
    """The other threads are not here, and will not let go."""
    global _lock
    _lock = threading.Lock()
    others = [thread for thread in _holders if thread != threading.get_ident()]
    for thread in others:
        del _holders[thread]
    if others and not _holders and _was_enabled:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
