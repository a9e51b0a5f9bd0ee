"""Many programs, several threads, children of fork, and the memory that is given back."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir import evaluate

from ..random_programs import RandomProgram, random_arguments


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A device of this test alone, or the GPU."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.config.getoption("--gpu"):
            patch.setenv("HLOJIT_CUDA", "simulator memory=640m")
        yield hlojit.devices("cuda")[0]


@pytest.fixture
def held(device: Any) -> Callable[[], int]:
    """Bytes of the device that are held: all of them, or, of a GPU, what this process has taken since the test began."""
    if "simulated" in device.kind:
        return lambda: device.driver.memory()[1] - device.driver.memory()[0]
    gc.collect()
    pool = device._opened().site.pool
    before = pool.held_bytes
    return lambda: pool.held_bytes - before


def assert_nothing_is_held(held: Callable[[], int]) -> None:
    """Memory is freed in the order of streams, so a moment later."""
    gc.collect()
    deadline = time.monotonic() + 20
    while held() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert held() == 0


def run(seed: int, statements: int = 4) -> None:
    """One random program, against the interpreter, with arrays on the host and on the device."""
    text, kinds = RandomProgram(random.Random(seed), statements=statements).build()
    arguments = random_arguments(kinds, seed)
    with np.errstate(all="ignore"):
        expected = evaluate(hlojit.parse(text), *arguments)
    executable = hlojit.compile(text, backend="cuda")
    for given in (arguments, [hlojit.put(each, "cuda") for each in arguments]):
        found = executable(*given)
        for ours, theirs in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_two_hundred_programs_in_a_row_hold_nothing_afterwards(held: Callable[[], int]) -> None:
    for seed in range(200):
        run(seed, statements=1 + seed % 4)
    assert_nothing_is_held(held)


def test_threads_compile_and_run_different_programs(held: Callable[[], int]) -> None:
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for seed in range(first, first + 12):
                run(seed)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(1000 * number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures, failures[0]
    del threads
    assert_nothing_is_held(held)


def test_arrays_outlive_the_program_that_made_them(held: Callable[[], int]) -> None:
    x = hlojit.put(np.arange(1000, dtype="f4"), "cuda")
    y = hlojit.jit(lambda v: v * 2 + 1, backend="cuda")(x)
    del x
    gc.collect()
    np.testing.assert_array_equal(y, np.arange(1000, dtype="f4") * 2 + 1)
    del y
    assert_nothing_is_held(held)


@pytest.mark.simulator_only("a GPU has the memory that is to be missing")
def test_a_program_that_fails_holds_nothing(held: Callable[[], int]) -> None:
    """The simulator's own faults are tested elsewhere; this one has no memory for its result."""
    text = "func.func @main(%x: tensor<f32>) -> tensor<200000000xf32> {{\n%r = {} : (tensor<f32>) -> {}\nreturn %r : {}\n}}"
    kind = "tensor<200000000xf32>"
    executable = hlojit.compile(text.format("stablehlo.broadcast_in_dim %x, dims = []", kind, kind), backend="cuda")
    with pytest.raises(hlojit.HlojitError, match="out of memory on cuda:0"):
        executable(hlojit.put(np.float32(1), "cuda"))
    run(3)
    del executable
    assert_nothing_is_held(held)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.simulator_only("CUDA cannot be used in a child of fork")
def test_children_of_fork_compile_and_run_programs() -> None:
    script = """
import os, numpy as np, hlojit
f = hlojit.jit(lambda v: np.sort(v)[::-1] + v.sum(), backend="cuda")
x = np.arange(100, dtype="f4")
f(x)
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        g = hlojit.jit(lambda v: np.cumsum(v) * number, backend="cuda")
        good = np.array_equal(g(x), np.cumsum(x) * number) and np.array_equal(f(x), x[::-1] + x.sum())
        os._exit(0 if good else 1)
    children.append(child)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
assert np.array_equal(f(x), x[::-1] + x.sum())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
