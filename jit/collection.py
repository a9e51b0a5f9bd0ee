"""Python's cyclic garbage collector, held off while a large graph is built.

The collector's full passes visit every live object; while 100,000 instructions are being made it runs again and again and
finds nothing, which would make compilation superlinear.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_holders = 0
_was_enabled = False


@contextmanager
def collection_paused() -> Iterator[None]:
    """Keep the cyclic collector from running; nested and concurrent uses count."""
    global _holders, _was_enabled
    with _lock:
        if _holders == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0 and _was_enabled:
                gc.enable()
