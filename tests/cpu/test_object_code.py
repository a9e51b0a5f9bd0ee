"""LLVM's passes and the threads that run them."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading
from hlojit.cpu.processor import host_target
from hlojit.machine_code.object_code import compile_to_object

def work(number):
    ir = f"define i32 @f{number}(i32 %x) noinline optnone {{ ret i32 %x }}"
    assert compile_to_object(ir, host_target(), pipeline=pipeline)

def meet_and_work(number):
    barrier.wait()
    work(number)
    barrier.wait()

# What a run leaves behind is asked about functions that are not to be optimized.
for pipeline in ("lean", "inline", "vectorize", "plain"):
    barrier = threading.Barrier(16)
    threads = [threading.Thread(target=meet_and_work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(16, 20):
        work(number)
print("done")
"""


def test_threads_that_have_ended_leave_nothing_behind() -> None:
    """There are more threads at once than those whose stacks the C library keeps."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
