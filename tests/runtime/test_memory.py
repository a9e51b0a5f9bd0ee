"""The memory pool: pages are used again, outputs own their memory, limits hold."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from hlojit import runtime
from hlojit.ir.errors import ExecutionError
from hlojit.ir.types import tensor
from hlojit.runtime.native import native

from .programs import Build, add_one_program


def allocate(size: int) -> int | None:
    address: int | None = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(native().addresses["hlojit_allocate"])(size)
    return address


def release(address: int) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(native().addresses["hlojit_release"])(address)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000, 4096, 100_000, 1 << 20, (1 << 20) + 1, 5_000_000])
def test_blocks_are_aligned_distinct_and_large_enough(size: int) -> None:
    blocks = [allocate(size) for _ in range(5)]
    assert all(block is not None and block % 64 == 0 for block in blocks)
    addresses = sorted(block for block in blocks if block is not None)
    assert all(after - before >= size for before, after in itertools.pairwise(addresses))
    for number, address in enumerate(addresses):
        ctypes.memset(address, number, size)
    for number, address in enumerate(addresses):
        assert ctypes.string_at(address, size) == bytes([number]) * size
        release(address)


@pytest.mark.parametrize("size", [100, 50_000, 3_000_000])
def test_a_released_block_is_the_next_one(size: int) -> None:
    first = allocate(size)
    assert first is not None
    release(first)
    before = runtime.statistics()
    second = allocate(size)
    assert second == first
    assert (runtime.statistics() - before).reuses == 1
    assert second is not None
    release(second)


def test_random_sizes_from_several_threads_never_overlap() -> None:
    failures: list[str] = []

    def work(seed: int) -> None:
        generator = np.random.default_rng(seed)
        held: list[tuple[int, int]] = []
        for step in range(600):
            if held and generator.random() < 0.5:
                address, size = held.pop(int(generator.integers(len(held))))
                if ctypes.string_at(address, size) != bytes([seed]) * size:
                    failures.append(f"thread {seed}, step {step}")
                release(address)
            else:
                size = int(2 ** generator.uniform(0, 18))
                address_or_none = allocate(size)
                assert address_or_none is not None
                ctypes.memset(address_or_none, seed, size)
                held.append((address_or_none, size))
        for address, _ in held:
            release(address)

    before = runtime.statistics()
    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
    assert (runtime.statistics() - before).bytes_in_use == 0


def test_the_second_call_has_no_page_fault(build: Build) -> None:
    size = 1 << 22
    vector = tensor((size,), "f32")
    executable = build(add_one_program(size, 1 << 16), [vector], [vector], arena_bytes=1 << 22)
    x = np.zeros(size, np.float32)
    for _ in range(3):
        executable(x)
    gc.disable()
    try:
        before = runtime.statistics()
        for _ in range(10):
            executable(x)
        spent = runtime.statistics() - before
    finally:
        gc.enable()
    assert (spent.calls, spent.allocations, spent.reuses, spent.mappings) == (10, 20, 20, 0)
    assert spent.page_faults < 50  # 16 MB anew would be 4,096 a call, or 8 with huge pages


def test_an_output_keeps_its_memory_as_long_as_a_view_lives(build: Build) -> None:
    vector = tensor((1000,), "f32")
    executable = build(add_one_program(1000, 1000), [vector], [vector])
    before = runtime.statistics()
    result = executable(np.zeros(1000, np.float32))
    assert (runtime.statistics() - before).bytes_in_use > 0
    view = result[10:20]
    del result
    others = [executable(np.full(1000, number, np.float32)) for number in range(5)]
    np.testing.assert_array_equal(view, np.ones(10))
    assert view.flags.writeable
    del view, others
    assert (runtime.statistics() - before).bytes_in_use == 0


def test_a_slot_beyond_the_memory_of_the_machine_is_an_error(build: Build) -> None:
    huge = tensor((1 << 44,), "f32")
    executable = build("define i32 @main(ptr %c, ptr %s) {\n ret i32 0\n}", [], [huge], name="huge")
    before = runtime.statistics()
    with pytest.raises(ExecutionError, match="huge: no memory for 70,368,744,177,664 bytes"):
        executable()
    small = tensor((4,), "f32")
    arena = build(add_one_program(4, 4), [small], [small], arena_bytes=1 << 62, name="arena")
    with pytest.raises(ExecutionError, match="arena: no memory for"):
        arena(np.zeros(4, np.float32))
    second = build("define i32 @main(ptr %c, ptr %s) {\n ret i32 0\n}", [], [small, huge], name="second")
    with pytest.raises(ExecutionError, match="second: no memory for"):
        second()
    assert (runtime.statistics() - before).bytes_in_use == 0


def test_limit_and_cap_are_kept() -> None:
    script = textwrap.dedent(
        """
        import ctypes
        from hlojit import runtime
        from hlojit.runtime.native import native
        allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(native().addresses["hlojit_allocate"])
        release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(native().addresses["hlojit_release"])
        mega = 1 << 20
        a, b = allocate(20 * mega), allocate(20 * mega)
        assert a and b and not allocate(30 * mega), "limit"
        release(a)
        release(b)
        cached = runtime.statistics().bytes_cached
        assert 20 * mega <= cached <= 30 * mega, cached
        c = allocate(45 * mega)
        assert c, "cached blocks give way"
        release(c)
        runtime.trim()
        assert runtime.statistics().bytes_cached == runtime.statistics().bytes_mapped == 0
        print("good")
        """
    )
    finished = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "HLOJIT_MEMORY_LIMIT": "64m", "HLOJIT_MEMORY_CACHE": "30m"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.stdout.strip() == "good", finished.stderr


SLOW_SYSTEM = """
import ctypes, threading
from hlojit.runtime import native as module

names = {"mmap": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_int32] * 3, ctypes.c_int64),
         "munmap": (ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)}
library, slow, inside, done = ctypes.CDLL(None), threading.local(), threading.Event(), threading.Event()
kept = {}

def wrapped(name):
    kind = ctypes.CFUNCTYPE(*names[name])
    real = kind((name, library))
    def call(*arguments):
        if getattr(slow, "name", "") == name:
            slow.name = ""
            inside.set()
            waited.append(done.wait(5))
        return real(*arguments)
    kept[name] = kind(call)
    return ctypes.cast(kept[name], ctypes.c_void_p).value

waited = []
imports = module.core_imports()
module.core_imports = lambda: imports | {name: wrapped(name) for name in names}
addresses = module.native().addresses
allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(addresses["hlojit_allocate"])
release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(addresses["hlojit_release"])
trim = ctypes.CFUNCTYPE(None)(addresses["hlojit_memory_trim"])
mega = 1 << 20

def map_large(): release(allocate(33 * mega))
def unmap_over_the_cap(): release(big)
def trim_lists(): trim()

for name, work in (("mmap", map_large), ("munmap", unmap_over_the_cap), ("munmap", trim_lists)):
    big = allocate(50 * mega)
    release(allocate(3 * mega))
    inside.clear(), done.clear()
    def run():
        slow.name = name
        work()
    thread = threading.Thread(target=run)
    thread.start()
    assert inside.wait(20), "the system was not asked"
    release(allocate(1000)), release(allocate(5 * mega))  # while the other thread is in the system's hands
    done.set()
    thread.join()
print(waited)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere pages come from malloc")
def test_no_system_call_is_made_under_the_lock() -> None:
    """Others allocate and release while one thread maps or unmaps."""
    environment = {**os.environ, "HLOJIT_MEMORY_CACHE": "30m", "HLOJIT_MEMORY_LIMIT": "1g"}
    command = [sys.executable, "-c", SLOW_SYSTEM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "[True, True, True]\n", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("limit", ["200m", "1g"])
def test_large_arrays_of_many_threads_under_pressure(limit: str) -> None:
    """Programs in six threads, memory that is short, arrays donated, forks while others map and unmap."""
    environment = {**os.environ, "HLOJIT_MEMORY_CACHE": "8m", "HLOJIT_MEMORY_LIMIT": limit}
    command = [sys.executable, str(Path(__file__).with_name("memory_under_pressure.py")), "60", "6"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr
