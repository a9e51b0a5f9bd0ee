"""Ctrl-C, and signal handlers that compile, at any moment of a compilation: nothing is left behind, and nothing waits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

OWNERSHIP = """
import signal
import hlojit, llvmlite.binding as llvm
from hlojit.machine_code import loading

loading.LIBRARIES_PER_JIT = 1
signal.signal(signal.SIGINT, signal.default_int_handler)


def compiled(size):
    return hlojit.compile(
        f"func.func @main(%x: tensor<{size}xf32>) -> tensor<{size}xf32> {{\\n"
        f"  %0 = stablehlo.add %x, %x : tensor<{size}xf32>\\n  return %0 : tensor<{size}xf32>\\n}}"
    )


def interrupted(owner, name, size):
    original, pending = getattr(owner, name), [True]
    def disturbed(*arguments):
        try:
            return original(*arguments)
        finally:
            if pending:
                pending.clear()
                signal.raise_signal(signal.SIGINT)
    setattr(owner, name, disturbed)
    try:
        compiled(size)
    except KeyboardInterrupt:
        print(name)
    finally:
        setattr(owner, name, original)


compiled(2)
for number, (owner, name) in enumerate([
    (llvm.ModuleRef, "__init__"), (llvm.ModuleRef, "_dispose"), (llvm.newpassmanagers.PassBuilder, "__init__"),
    (llvm.newpassmanagers.PassBuilder, "_dispose"), (llvm.context.ContextRef, "_dispose"), (llvm.LLJIT, "__init__"),
    (llvm.ResourceTracker, "__init__"),
]):
    interrupted(owner, name, number + 3)
compiled(1)
print("alive")
"""

AT_RANDOM = """
import os, random, signal, threading, time
import hlojit

signal.signal(signal.SIGINT, signal.default_int_handler)


def compiled(size):
    hlojit.compile(
        f"func.func @main(%x: tensor<{size}xf32>) -> tensor<{size}xf32> {{\\n"
        f"  %0 = stablehlo.add %x, %x : tensor<{size}xf32>\\n  return %0 : tensor<{size}xf32>\\n}}"
    )


def press():
    for _ in range(80):
        time.sleep(random.uniform(0.002, 0.03))
        os.kill(os.getpid(), signal.SIGINT)


compiled(2)
keys = threading.Thread(target=press)
keys.start()
size = 3
while keys.is_alive():
    try:
        while keys.is_alive():
            size += 1
            compiled(size)
    except KeyboardInterrupt:
        pass
signal.signal(signal.SIGINT, signal.SIG_IGN)
compiled(1)
print("alive")
"""

EXIT = """
import hlojit, signal
from hlojit.cpu.processor import host_target
from hlojit.machine_code import object_code

signal.signal(signal.SIGALRM, signal.default_int_handler)
adds = "".join(f"  %v{n + 1} = call i64 @llvm.bitreverse.i64(i64 %v{n})\\n  %w{n + 1} = mul i64 %v{n + 1}, %v{n}\\n" for n in range(8000))
# What is imported and set up on first use is there: of an interruption in the middle of exec() CPython remembers that there was one.
object_code.compile_to_object("define void @g() {\\n  ret void\\n}", host_target(), pipeline="plain")
try:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    object_code.compile_to_object(
        "declare i64 @llvm.bitreverse.i64(i64)\\n" f"define i64 @f(i64 %v0) {{\\n{adds}  ret i64 %w8000\\n}}", host_target(), pipeline="plain"
    )
except KeyboardInterrupt:
    print("interrupted")
"""

SCRIPT = Path(__file__).with_name("interrupted_process.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["interrupt", "handler"])
def test_a_compilation_may_be_disturbed_at_any_moment(kind: str) -> None:
    environment = {**os.environ, "HLOJIT_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), kind], env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout[-2000:] + done.stderr[-4000:]


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "HLOJIT_CACHE": "off", "HLOJIT_COMPILE_WORKERS": "0"},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_ctrl_c_while_an_object_of_llvm_is_made_or_given_back() -> None:
    """What LLVM owns is given back once, and before what it lies in: the process died."""
    done = _run(OWNERSHIP)
    assert done.returncode == 0 and done.stdout.endswith("alive\n"), done.stdout + done.stderr
    assert {"__init__", "_dispose"} <= set(done.stdout.split()), "it was heard"


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_ctrl_c_again_and_again_while_programs_are_compiled() -> None:
    done = _run(AT_RANDOM)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-4000:]


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_process_ends_after_ctrl_c_in_the_middle_of_a_compilation() -> None:
    """What LLVM is at goes on meanwhile, and is waited for."""
    done = _run(EXIT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
