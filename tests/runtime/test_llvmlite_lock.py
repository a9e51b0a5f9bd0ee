"""llvmlite's lock, where there is no stack left for numba's callbacks."""

import subprocess
import sys

SCRIPT = """
import sys
import numpy as np
import numba
import hlojit
import llvmlite.binding as llvm
from llvmlite.binding import ffi

np.testing.assert_array_equal(hlojit.jit(lambda x: x + 1)(np.ones(2)), [2, 2])

calls, failed = 0, 0

def descend():
    # At each depth: somewhere near the end the lock can still be taken, and the callback cannot be called any more.
    global calls, failed
    try:
        llvm.get_process_triple()
        calls += 1
    except RecursionError:
        failed += 1
    descend()

try:
    descend()
except RecursionError:
    pass
print(calls > 100, failed > 0, ffi.lib._lock._lock._is_owned())
"""


def test_a_finalizer_at_the_end_of_the_stack_leaves_it_free() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "True True False\n", done.stderr
