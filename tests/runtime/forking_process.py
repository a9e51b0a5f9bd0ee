"""Run in a fresh process by test_fork_while_compiling.py: children compile although the parent was compiling when it forked.

    python forking_process.py COUNT KIND

``plain`` programs, or ``numba``: programs whose compilation runs numba.  Children that do not end in time are killed and
counted; the exit status says whether there were any.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np

SECONDS = 40


def text(size: int, kind: str) -> str:
    tensor = f"tensor<{size}xf32>"
    body = {
        "plain": f"stablehlo.add %a, %a : {tensor}",
        "numba": f"stablehlo.custom_call @vendor.twice(%a) : ({tensor}) -> {tensor}",
        "other": f"stablehlo.custom_call @vendor.other(%a) : ({tensor}) -> {tensor}",
    }[kind]
    return f"func.func @main(%a: {tensor}) -> {tensor} {{\n  %0 = {body}\n  return %0 : {tensor}\n}}"


class Vendor:
    def __init__(self, ext: Any, name: str, factor: float):
        self.__name__ = name

        def hlojit_custom_calls() -> Any:
            return [ext.ElementwiseCall(f"vendor.{name}", function=lambda x: x * factor)]

        self.hlojit_custom_calls = ext.hookimpl(hlojit_custom_calls)


def in_child(size: int, kind: str) -> int:
    """Fork; the child compiles and runs a program.  Returns the child's status, or -1 if it hung."""
    child = os.fork()
    if child == 0:
        import hlojit

        try:
            a = np.ones(size, "f4")
            os._exit(0 if np.array_equal(hlojit.compile(text(size, kind))(a), a + a) else 3)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(4)
    limit = time.monotonic() + SECONDS
    while time.monotonic() < limit:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def main() -> int:
    count, kind = int(sys.argv[1]), sys.argv[2]
    import hlojit
    import hlojit.extensions as ext

    ext.registry().load()
    ext.register(Vendor(ext, "twice", 2.0))
    stop = threading.Event()

    def compile_on_and_on() -> None:
        size = 1000
        while not stop.is_set():
            size += 1
            if kind == "numba":
                # A new function every time, so that numba has something to do.
                ext.register(Vendor(ext, "other", float(size)))
            hlojit.compile(text(size, "other" if kind == "numba" else kind))

    # No time to get anywhere: the first child is made while modules are being imported and LLVM is set up.
    worker = threading.Thread(target=compile_on_and_on)
    worker.start()
    statuses = []
    for number in range(count):
        statuses.append(in_child(3 + number, kind))
        time.sleep(0.003 * (number % 7))
    stop.set()
    worker.join()
    print(statuses)
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main())
