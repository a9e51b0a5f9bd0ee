"""The thread pool: every task once, whatever the number of threads, the nesting, the callers or a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hlojit import runtime
from hlojit.ir.errors import HlojitError
from hlojit.ir.types import tensor
from hlojit.runtime import quota

from .programs import Build, add_one_program

COUNT_KERNEL = """
define void @count(ptr %context, ptr %buffers, i64 %begin, i64 %end) {
entry:
  %y_at = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %y_at
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %i1, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %out
body:
  %at = getelementptr i64, ptr %y, i64 %i
  %before = atomicrmw add ptr %at, i64 1 monotonic
  %i1 = add i64 %i, 1
  br label %check
out:
  ret void
}
"""


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    """Leave the process with the number of threads that it had."""
    before = runtime.get_threads()
    yield
    runtime.set_threads(before)


def counting_program(tasks: int, grain: int, launches: int) -> str:
    """Counts the visits of each task over many launches, in memory that the program clears first."""
    return f"""{COUNT_KERNEL}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define i32 @main(ptr %context, ptr %slots) {{
entry:
  %y_at = getelementptr ptr, ptr %slots, i64 1
  %y = load ptr, ptr %y_at
  call void @llvm.memset.p0.i64(ptr %y, i8 0, i64 {8 * tasks}, i1 false)
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %loop ]
  call void @hlojit_parallel_for(ptr %context, ptr @count, ptr %slots, i64 {tasks}, i64 {grain})
  %n1 = add i64 %n, 1
  %more = icmp slt i64 %n1, {launches}
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}}
"""


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize(("tasks", "grain"), [(1, 1), (2, 1), (3, 2), (64, 1), (1000, 7), (50_000, 1)])
def test_every_task_runs_once_per_launch(build: Build, threads: int, tasks: int, grain: int) -> None:
    launches = 200 if tasks <= 1000 else 3
    counter = tensor((tasks,), "i64")
    executable = build(counting_program(tasks, grain, launches), [tensor((), "f32")], [counter])
    runtime.set_threads(threads)
    for _ in range(3):
        np.testing.assert_array_equal(executable(np.float32(0)), np.full(tasks, launches))


def test_threads_of_an_executable_can_be_limited(build: Build) -> None:
    runtime.set_threads(3)
    program = counting_program(64, 1, 20)
    executable = build(program, [tensor((), "f32")], [tensor((64,), "i64")], threads=1)
    before = runtime.statistics()
    np.testing.assert_array_equal(executable(np.float32(0)), np.full(64, 20))
    assert (runtime.statistics() - before).parallel_launches == 0
    limited = build(program, [tensor((), "f32")], [tensor((64,), "i64")], threads=2)
    np.testing.assert_array_equal(limited(np.float32(0)), np.full(64, 20))
    assert (runtime.statistics() - before).parallel_launches == 20


def test_a_nested_launch_runs_on_the_thread_that_makes_it(build: Build) -> None:
    outer = """
define void @outer(ptr %context, ptr %buffers, i64 %begin, i64 %end) {
entry:
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %i1, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %out
body:
  call void @hlojit_parallel_for(ptr %context, ptr @count, ptr %buffers, i64 100, i64 3)
  %i1 = add i64 %i, 1
  br label %check
out:
  ret void
}
"""
    inner, middle = "ptr @count, ptr %slots, i64 100, i64 3", "ptr @outer, ptr %slots, i64 40, i64 1"
    program = outer + counting_program(100, 3, 1).replace(inner, middle)
    executable = build(program, [tensor((), "f32")], [tensor((100,), "i64")])
    runtime.set_threads(3)
    np.testing.assert_array_equal(executable(np.float32(0)), np.full(100, 40))


def test_four_python_threads_call_at_once(build: Build) -> None:
    size = 30_000
    vector = tensor((size,), "f32")
    executable = build(add_one_program(size, 500), [vector], [vector])
    runtime.set_threads(3)
    failures: list[object] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal(size, dtype=np.float32)
        for _ in range(100):
            if not np.array_equal(executable(x), x + 1):
                failures.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def _count_of_tasks() -> int:
    """Threads of this process; 0 where the system does not list them."""
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
def test_a_child_after_fork_has_its_own_pool(build: Build) -> None:
    size = 100_000
    vector = tensor((size,), "f32")
    executable = build(add_one_program(size, 1000), [vector], [vector])
    runtime.set_threads(3)
    x = np.arange(size, dtype=np.float32)
    np.testing.assert_array_equal(executable(x), x + 1)
    child = os.fork()
    if child == 0:
        before = runtime.statistics()
        # Other libraries' fork handlers (OpenBLAS has one) may have started threads of theirs.
        others = _count_of_tasks()
        good = all(np.array_equal(executable(x), x + 1) for _ in range(20))
        shared = (runtime.statistics() - before).parallel_launches
        # Its own workers, not the memory of the parent's.
        os._exit(0 if good and shared == 20 and (not others or _count_of_tasks() == others + 2) else 1)
    np.testing.assert_array_equal(executable(x), x + 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
def test_fork_while_other_threads_are_running_programs(build: Build) -> None:
    size = 20_000
    vector = tensor((size,), "f32")
    executable = build(add_one_program(size, 100), [vector], [vector])
    runtime.set_threads(3)
    x = np.arange(size, dtype=np.float32)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            executable(x)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    codes = []
    for _ in range(10):
        child = os.fork()
        if child == 0:
            os._exit(0 if np.array_equal(executable(x), x + 1) else 1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    stop.set()
    for worker in workers:
        worker.join()
    assert codes == [0] * 10


def test_the_interpreter_exits_cleanly_with_sleeping_and_spinning_workers() -> None:
    script = textwrap.dedent(
        """
        import sys, threading
        sys.path.insert(0, {folder!r})
        import numpy as np
        from hlojit import runtime
        import programs
        from hlojit.ir.types import tensor
        build = programs.make_executable
        vector = tensor((10000,), "f32")
        executable = build(programs.add_one_program(10000, 100), [vector], [vector])
        runtime.set_threads(4)
        kept = [executable(np.zeros(10000, np.float32)) for _ in range(10)]
        def forever():
            while True:
                executable(kept[0])
        if {daemon}:
            threading.Thread(target=forever, daemon=True).start()
        print(kept[-1][0])
        """
    )
    folder = os.path.dirname(__file__)
    for daemon in (False, True):
        command = [sys.executable, "-c", script.format(folder=folder, daemon=daemon)]
        finished = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (finished.returncode, finished.stdout.strip()) == (0, "1.0"), finished.stderr


def test_kernels_see_the_default_float_environment(build: Build) -> None:
    # numpy cannot change it, so a program sets "flush to zero" in the caller as a library with fast-math would.
    if not hasattr(os, "fork") or sys.platform != "linux" or os.uname().machine != "x86_64":
        pytest.skip("changes MXCSR in a child process")
    from hlojit.cpu.processor import host_target
    from hlojit.machine_code import loading

    ir = """
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.x86.sse.stmxcsr(ptr)
define void @set(i32 %word) {
  %slot = alloca i32
  store i32 %word, ptr %slot
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)
  ret void
}
define i32 @get() {
  %slot = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %slot)
  %word = load i32, ptr %slot
  ret i32 %word
}
"""
    import ctypes

    image = loading.compile_to_object(ir, host_target())
    code = loading.load_objects([image], ["set", "get"])
    set_word = ctypes.CFUNCTYPE(None, ctypes.c_int32)(code.address("set"))
    get_word = ctypes.CFUNCTYPE(ctypes.c_int32)(code.address("get"))
    size = 40_000
    vector = tensor((size,), "f32")
    program = add_one_program(size, 100).replace("fadd float %value, 1.0", "fmul float %value, 0.5")
    executable = build(program, [vector], [vector])
    runtime.set_threads(3)
    x = np.full(size, 1e-40, np.float32)
    expected = x * np.float32(0.5)
    before = get_word()
    flushing = 0x9FC0  # flush to zero, denormals are zero
    try:
        set_word(flushing)
        result = executable(x)
        after = get_word()
    finally:
        set_word(before)
    assert after & 0xFFC0 == flushing
    np.testing.assert_array_equal(result, expected)
    assert expected[0] != 0


@pytest.mark.parametrize("count", [0, -1, 258, 2.0, "2"])
def test_set_threads_refuses(count: object) -> None:
    with pytest.raises(HlojitError, match="from 1 to 257"):
        runtime.set_threads(count)  # type: ignore[arg-type]


def test_default_threads_obeys_environment_and_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_NUM_THREADS", "5")
    assert quota.default_threads() == 5
    monkeypatch.setenv("HLOJIT_NUM_THREADS", "many")
    with pytest.raises(HlojitError, match="HLOJIT_NUM_THREADS='many'"):
        quota.default_threads()
    monkeypatch.delenv("HLOJIT_NUM_THREADS")
    monkeypatch.setattr(quota, "cpu_quota", lambda: 1.5)
    assert quota.default_threads() == min(2, len(os.sched_getaffinity(0)))
    monkeypatch.setattr(quota, "cpu_quota", lambda: 0.3)
    assert quota.default_threads() == 1


def test_cpu_quota_reads_both_versions_of_control_groups(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from pathlib import Path

    root = Path(str(tmp_path))
    inner = root / "a" / "b"
    inner.mkdir(parents=True)
    (root / "a" / "cpu.max").write_text("250000 100000\n")
    (inner / "cpu.max").write_text("max 100000\n")
    monkeypatch.setattr(quota, "_cgroup_folders", lambda controller: [inner, root / "a", root])
    assert quota.cpu_quota() == 2.5
    (root / "cpu.cfs_quota_us").write_text("150000\n")
    (root / "cpu.cfs_period_us").write_text("100000\n")
    assert quota.cpu_quota() == 1.5
