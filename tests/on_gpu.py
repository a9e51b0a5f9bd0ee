"""The suites on the machine's GPU: ``pytest --gpu`` (``make test-gpu``), alone or with ``--backend cuda``.

Without the option, tests of the back end ``cuda`` set ``HLOJIT_CUDA=simulator`` (the fixtures ``simulator``); with it they leave the
switch as it is, so that programs run on the GPU.  What only the simulator can do - memory of a chosen size, faults that a
process survives, children of fork - is marked ``simulator_only`` and skipped with its reason; what only a GPU can do is marked
``gpu_only``.  Where there is no GPU, nothing runs and the reason is told.

Independent oracles stay on the host: JAX computes on the CPU.  Tests may be spread over processes that share the GPU (``-n 8``);
one whose device was stopped by a fault ends behind the test that met it, and one that hangs in a test ends after a while;
another takes its place.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hlojit.extensions import registry

BACKEND = "cuda"
SWITCH = "HLOJIT_CUDA"
HANG_SECONDS = 200.0
"""After which a test of a process among several hangs."""
MARKERS = (
    "simulator_only(reason): what a GPU cannot do, or not in this way; skipped with --gpu",
    "gpu_only: runs with --gpu, on a true GPU",
)


def is_simulated() -> bool:
    """Whether the simulator stands in for the GPU: to try these options without one."""
    return bool(os.environ.get(SWITCH))


class OnGpu:
    """The hooks of pytest that ``--gpu`` adds."""

    def __init__(self) -> None:
        reason = registry().load().backend(BACKEND).unavailable()
        if reason is not None:
            raise pytest.UsageError(f"--gpu: there is no GPU to test on: {reason}")
        # Before JAX is first imported: its memory pool would take most of the GPU, and its products of f32 round to tf32.
        os.environ["JAX_PLATFORMS"] = "cpu"

    def pytest_report_header(self) -> str:
        """Where the programs run."""
        (first, *more) = registry().backend(BACKEND).devices()
        return f"programs run on {first}: {first.description}" + (f", and {len(more)} more" if more else "")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Skip what is not for a GPU, with its reason."""
        for item in items:
            mark = item.get_closest_marker("simulator_only")
            if mark is not None:
                item.add_marker(pytest.mark.skip(reason=f"simulator only: {mark.args[0]}"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        """A process whose GPU has been stopped by a fault, or does not come back, can test nothing any more."""
        is_one_of_several = hasattr(item.config, "workerinput")
        watch = threading.Timer(HANG_SECONDS, os._exit, (4,))
        watch.daemon = True
        if is_one_of_several:
            watch.start()
        result: Any = yield
        watch.cancel()
        lost = next((each.lost for each in registry().backend(BACKEND).devices() if getattr(each, "lost", "")), "")
        if lost:
            if not is_one_of_several:
                pytest.exit(f"the GPU was stopped by a fault in {item.nodeid}: {lost}", returncode=3)
            time.sleep(1)  # the report is on its way to the process that collects them
            os._exit(3)
        return result


def skip_gpu_only(items: list[Any], *, on_gpu: bool) -> None:
    """Leave out what needs a true GPU where there is none."""
    if on_gpu and not is_simulated():
        return
    for item in items:
        if item.get_closest_marker("gpu_only"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU (make test-gpu)"))
