"""Run in a fresh process by test_interrupted_compilation.py: compiles, and is disturbed at one moment after another.

    python interrupted_process.py KIND

``interrupt``: Ctrl-C; ``handler``: a signal handler that compiles something itself.  A signal is handled where a function of
Python begins and where one of C has returned, which is what ``sys.setprofile`` tells, too.  After each of them this thread
and another one can compile, another one can fork, and the collector is on.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import hlojit
import numpy as np

HOLDING = ("fork_gate.py", "in_flight.py", "collection.py", "threading.py", "contextlib.py")
"""Where something is taken, and might be left behind."""
COMPILING = (
    *HOLDING, "once.py", "kernel_cache.py", "numba_bridge.py", "compiler.py", "decorator.py", "backend.py",
    "executable.py", "environment.py", "loading.py",
)  # fmt: skip
MOST = 60
X = np.ones(3, "f4")


class Disturbance:
    """Counts the moments at which a signal may be handled, and does something at one of them."""

    def __init__(self, at: int, then: Callable[[], Any], modules: tuple[str, ...]):
        self.at, self.then, self.modules = at, then, modules
        self.moments = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_return") and os.path.basename(frame.f_code.co_filename) in self.modules:
            self.moments += 1
            if self.moments == self.at:
                sys.setprofile(None)
                self.then()


def work() -> None:
    @hlojit.jit
    def f(x: Any) -> Any:
        return x + 1

    assert (f(X) == 2).all()


def interrupt() -> None:
    raise KeyboardInterrupt


def disturbed(at: int, then: Callable[[], Any], modules: tuple[str, ...]) -> int:
    """The number of moments until the end, or until the disturbance."""
    disturbance = Disturbance(at, then, modules)
    sys.setprofile(disturbance)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return disturbance.moments


def fork() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


def in_thread(function: Callable[[], Any], what: str) -> None:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), f"{what}: another thread waits for ever"


def main() -> None:
    faulthandler.dump_traceback_later(150, exit=True)
    then = interrupt if sys.argv[1] == "interrupt" else work
    for _ in range(3):
        work()
    for modules in (HOLDING, COMPILING):
        moments = disturbed(0, then, modules)
        assert moments > 10
        print(moments, file=sys.stderr)
        for at in range(1, moments + 1, -(-moments // MOST)):
            disturbed(at, then, modules)
            assert gc.isenabled(), f"moment {at} of {moments}: the collector is off"
            in_thread(work, f"moment {at} of {moments}")
            in_thread(fork, f"moment {at} of {moments}")
    work()
    print("done")


if __name__ == "__main__":
    main()
