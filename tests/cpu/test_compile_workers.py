"""Worker processes that compile kernels: the same bytes, nothing that depends on them, and none that is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hlojit
import numpy as np
import pytest
from hlojit.cpu import compile_workers
from hlojit.cpu.compile_workers import Batch, CompileWorkers, Request, worker_limit
from hlojit.cpu.processor import host_target
from hlojit.ir.errors import HlojitError
from hlojit.machine_code import compile_worker
from hlojit.machine_code.object_code import compile_to_object
from hlojit.machine_code.worker_process import spawn_worker

pytestmark = pytest.mark.skipif(os.name != "posix", reason="workers are processes of POSIX systems")

SECONDS = 60.0


def request(number: int, pipeline: str = "lean") -> Request:
    return Request(f"define i64 @f{number}(i64 %a) {{ %b = add i64 %a, {number} ret i64 %b }}\n", pipeline)


REQUESTS = [
    *(request(number, pipeline) for number, pipeline in enumerate(("plain", "lean", "inline", "vectorize"))),
    Request(
        "declare i64 @g(i64)\ndefine i64 @f(i64 %a) { %b = call i64 @g(i64 %a) ret i64 %b }\n",
        "inline",
        ("define i64 @g(i64 %a) alwaysinline { %b = mul i64 %a, 3 ret i64 %b }\n",),
    ),
]


def in_parent(what: Request) -> bytes:
    return compile_to_object(what.ir, host_target(), pipeline=what.pipeline, linked=what.linked)


def eventually(condition: Callable[[], object]) -> bool:
    """Whether something comes true within a time that only a failure takes."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return False


def gone(pid: int) -> bool:
    """Whether a process has ended, if perhaps nobody has asked for its status."""
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat")
        return status.exists() and status.read_text().rpartition(")")[2].split()[0] in "ZX"
    except (ProcessLookupError, FileNotFoundError):
        return True  # at the latest between two of these looks


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers pay for any program, and cores are idle."""
    monkeypatch.setattr(compile_workers, "START_SECONDS", 1e-9)
    monkeypatch.setattr(compile_workers, "SHARE_SECONDS", 0.0)
    monkeypatch.setattr(compile_workers, "idle_cores", lambda: 8)


@pytest.fixture
def pool(eager: None) -> Iterator[CompileWorkers]:
    workers = CompileWorkers(1)
    yield workers
    workers.close()


def worker_pid(pool: CompileWorkers) -> int:
    """Start a worker, and wait until it is ready."""
    with Batch(host_target(), pool) as batch:
        batch.add("first", request(100))
        assert eventually(lambda: pool.workers and pool.workers[0].ready)
        batch.finish()
    process = pool.workers[0].process
    assert process is not None
    return process.pid


def test_workers_make_the_same_bytes(pool: CompileWorkers) -> None:
    with Batch(host_target(), pool) as batch:
        for number, each in enumerate(REQUESTS):
            batch.add(str(number), each)
        # Nobody but the worker does anything until all are done.
        assert eventually(lambda: all(task.image is not None for task in batch.tasks()))
        images = batch.finish()
    assert images == {str(number): in_parent(each) for number, each in enumerate(REQUESTS)}


def test_a_program_compiled_with_workers(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_COMPILE_WORKERS", "2")
    monkeypatch.setenv("HLOJIT_CACHE", "off")
    kind = "tensor<37x11xf32>"
    text = f"""func.func @main(%a: {kind}) -> tensor<11x11xf32> {{
      %0 = stablehlo.dot_general %a, %a, contracting_dims = [0] x [0] : ({kind}, {kind}) -> tensor<11x11xf32>
      %1 = stablehlo.tanh %0 : tensor<11x11xf32>
      return %1 : tensor<11x11xf32> }}"""
    a = np.random.default_rng(0).standard_normal((37, 11)).astype("f4")
    np.testing.assert_allclose(hlojit.compile(text)(a), np.tanh(a.T @ a), rtol=1e-5, atol=1e-5)


def test_a_worker_that_dies_is_not_missed(pool: CompileWorkers) -> None:
    os.kill(worker_pid(pool), signal.SIGKILL)
    with Batch(host_target(), pool) as batch:
        batch.add("a", request(1))
        assert eventually(lambda: not pool.workers)
        assert batch.finish() == {"a": in_parent(request(1))}


def test_a_worker_that_hangs_is_given_up(pool: CompileWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = worker_pid(pool)
    monkeypatch.setattr(compile_workers, "PATIENCE", 0.05)
    os.kill(pid, signal.SIGSTOP)
    with Batch(host_target(), pool) as batch:
        batch.add("a", request(1))
        (task,) = batch.tasks()
        assert eventually(lambda: task.worker is not None)
        assert batch.finish() == {"a": in_parent(request(1))}
    assert eventually(lambda: gone(pid))


def test_errors_are_those_of_the_parent(pool: CompileWorkers) -> None:
    worker_pid(pool)
    with pytest.raises(HlojitError, match="LLVM refuses"), Batch(host_target(), pool) as batch:
        batch.add("a", Request("define nonsense", "lean"))
        batch.finish()
    with Batch(host_target(), pool) as batch:
        batch.add("a", request(3))
        assert batch.finish() == {"a": in_parent(request(3))}


def test_workers_that_do_not_start_are_not_tried_for_ever(
    pool: CompileWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    for number in range(5):
        with Batch(host_target(), pool) as batch:
            batch.add("a", request(number))
            assert batch.finish() == {"a": in_parent(request(number))}
            assert eventually(lambda: not pool.workers)
    assert pool.failures == compile_workers.MAXIMUM_FAILURES


def test_threads_share_the_workers(pool: CompileWorkers) -> None:
    found: dict[int, dict[str, bytes]] = {}

    def compile_some(thread: int) -> None:
        with Batch(host_target(), pool) as batch:
            for number in range(12):
                batch.add(str(number), request(1000 * thread + number))
            found[thread] = dict(batch.finish())

    threads = [threading.Thread(target=compile_some, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for thread in range(4):
        assert found[thread] == {str(number): in_parent(request(1000 * thread + number)) for number in range(12)}


def test_a_worker_without_work_ends(eager: None) -> None:
    pool = CompileWorkers(1, idle_seconds=0.2)
    pid = worker_pid(pool)
    assert eventually(lambda: gone(pid) and not pool.workers)


def test_small_programs_and_busy_machines_start_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = CompileWorkers(1)
    monkeypatch.setattr(compile_workers, "idle_cores", lambda: 8)
    with Batch(host_target(), pool) as batch:
        batch.add("a", request(1))
        assert batch.finish() and not pool.workers
    monkeypatch.setattr(compile_workers, "START_SECONDS", 1e-9)
    monkeypatch.setattr(compile_workers, "idle_cores", lambda: 0)
    with Batch(host_target(), pool) as batch:
        batch.add("a", request(1))
        assert batch.finish() and not pool.workers


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_COMPILE_WORKERS", "3")
    assert worker_limit() == 3
    monkeypatch.setenv("HLOJIT_COMPILE_WORKERS", "0")
    assert worker_limit() == 0
    monkeypatch.setenv("HLOJIT_COMPILE_WORKERS", "many")
    with pytest.raises(HlojitError, match="HLOJIT_COMPILE_WORKERS='many' is not a number from 0 to 64"):
        hlojit.compile("func.func @main(%a: tensor<91xf32>) -> tensor<91xf32> { return %a : tensor<91xf32> }")


@pytest.mark.parametrize(("threads", "quota", "workers"), [(1, None, 0), (2, None, 1), (8, 1.5, 0), (8, 3.5, 2)])
def test_workers_take_only_cores_that_are_there(
    threads: int, quota: float | None, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HLOJIT_COMPILE_WORKERS", raising=False)
    monkeypatch.setattr(compile_workers, "default_threads", lambda: threads)
    monkeypatch.setattr(compile_workers, "cpu_quota", lambda: quota)
    compile_workers._default_limit.cache_clear()
    try:
        assert worker_limit() == workers
    finally:
        compile_workers._default_limit.cache_clear()


# --------------------------------------------------------------------------------------------------- processes


def test_a_worker_ends_with_its_input(eager: None) -> None:
    process = spawn_worker()
    assert process.stdin is not None and process.stdout is not None
    with process, process.stdout:
        assert compile_worker.receive(process.stdout.fileno()) == compile_worker.greeting()
        process.stdin.close()
        assert process.wait(SECONDS) == 0


def test_a_worker_loads_llvmlite_and_little_else() -> None:
    script = (
        "import sys; from hlojit.machine_code import compile_worker, object_code; compile_worker.greeting(); "
        "print({name.partition('.')[0] for name in sys.modules} & {'numpy', 'numba', 'scipy', 'ml_dtypes', 'llvmlite'})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'llvmlite'}"


PARENT = """
import faulthandler, os, signal, sys, time
from hlojit.cpu import compile_workers as c
from hlojit.cpu.processor import host_target
c.START_SECONDS, c.SHARE_SECONDS = 1e-9, 0.0
faulthandler.dump_traceback_later(60, exit=True)
c.idle_cores = lambda: 8
pool = c._workers(1)
def request(number):
    return c.Request(f"define i64 @f(i64 %a) {{ ret i64 {number} }}", "lean")
def wait(condition):
    while not condition(): time.sleep(0.005)
with c.Batch(host_target(), pool) as batch:
    batch.add("a", request(0))
    wait(lambda: pool.workers and pool.workers[0].ready)
    batch.finish()
pid = pool.workers[0].process.pid
print(pid, flush=True)
"""


def parent_process(ending: str) -> subprocess.Popen[str]:
    script = PARENT + textwrap.dedent(ending)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "os._exit(0)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        # With another process that holds the ends of the pipes for longer.
        "child = os.fork()\nif not child: time.sleep(600)\nprint(child, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)",
        # In the midst of a kernel.
        """
        os.kill(pid, signal.SIGSTOP)
        batch = c.Batch(host_target(), pool); batch.add("b", request(1))
        wait(lambda: batch.tasks()[0].worker is not None)
        os.kill(pid, signal.SIGCONT); os.kill(os.getpid(), signal.SIGKILL)
        """,
    ],
    ids=["exit", "_exit", "killed", "killed-beside-child", "killed-at-work"],
)
def test_no_worker_outlives_its_parent(ending: str) -> None:
    with parent_process(ending) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        child = int(parent.stdout.readline()) if "fork" in ending else None
        parent.wait(SECONDS)
        try:
            assert eventually(lambda: gone(worker))
        finally:
            if child is not None:
                os.kill(child, signal.SIGKILL)


def test_children_of_fork_have_workers_of_their_own() -> None:
    ending = """
    child = os.fork()
    if not child:
        assert c._pool is None and pool.workers == []
        with c.Batch(host_target(), c._workers(1)) as batch:
            batch.add("a", request(7))
            wait(lambda: batch.tasks()[0].image)
            assert c._pool.workers[0].process.pid != pid
            assert batch.finish()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with c.Batch(host_target(), pool) as batch:
        batch.add("a", request(8))
        wait(lambda: batch.tasks()[0].image)
    assert pool.workers[0].process.pid == pid
    """
    with parent_process(ending) as parent:
        _, errors = parent.communicate(timeout=SECONDS)
        assert parent.returncode == 0, errors


def test_ctrl_c_ends_the_wait_for_a_worker() -> None:
    ending = """
    c.PATIENCE = 600.0
    os.kill(pid, signal.SIGSTOP)
    with c.Batch(host_target(), pool) as batch:
        batch.add("b", request(1))
        wait(lambda: batch.tasks()[0].worker is not None)
        print("waiting", flush=True)
        batch.finish()
    """
    with parent_process(ending) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.stdout.readline()
        parent.send_signal(signal.SIGINT)
        _, errors = parent.communicate(timeout=SECONDS)
    assert "KeyboardInterrupt" in errors
    assert eventually(lambda: gone(worker))
