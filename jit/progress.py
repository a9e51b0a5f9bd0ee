"""Progress of a long compilation, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SHOW_AFTER_SECONDS = 1.0


@contextmanager
def stage_progress(show: bool | None = None) -> Iterator[Callable[[str], None]]:
    """Yield a function to be told the name of each stage.

    A status line appears on a terminal once the work has taken a second (``show=True``: at once; ``False``: never).
    """
    if show is False or (show is None and not sys.stderr.isatty()):
        yield lambda stage: None
        return
    start = time.monotonic()
    status: Any = None

    def report(stage: str) -> None:
        nonlocal status
        if status is None and (show or time.monotonic() - start > SHOW_AFTER_SECONDS):
            from rich.console import Console

            status = Console(stderr=True).status("")
            status.start()
        if status is not None:
            status.update(f"hlojit: {stage} ({time.monotonic() - start:.1f} s)")

    try:
        yield report
    finally:
        if status is not None:
            status.stop()
