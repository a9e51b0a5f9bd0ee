"""Programs that run while the caller goes on: order, errors, threads, fork, the end of the process."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import tracemalloc
import weakref

import hlojit
import numpy as np
import pytest
from hlojit import Array, ExecutionError
from hlojit.extensions import registry
from hlojit.extensions.devices.device import MAXIMUM_IN_FLIGHT

from .vendor import TestBackend

X = np.arange(6, dtype=np.float32)
BACKENDS = pytest.mark.parametrize("name", ["cpu", "reference", "test"])


def program(name: str, size: int = 6, op: str = "add") -> str:
    kind = f"tensor<{size}xf32>"
    return f"""
    func.func @{name}(%x: {kind}, %y: {kind}) -> {kind} {{
      %0 = stablehlo.{op} %x, %y : {kind}
      return %0 : {kind}
    }}
    """


def failing() -> None:
    raise RuntimeError("the power is off")


@BACKENDS
def test_a_chain_runs_in_order(name: str, backend: TestBackend) -> None:
    add = hlojit.compile(program("add"), backend=name)
    x = add.execute(X, X)
    for _ in range(200):
        x = add.execute(x, np.ones(6, "f4"))
    assert isinstance(x, Array) and x.device is hlojit.devices(name)[0]
    np.testing.assert_array_equal(x, 2 * X + 200)


@BACKENDS
def test_host_arrays_are_read_before_execute_returns(name: str, backend: TestBackend) -> None:
    add = hlojit.compile(program("add", 100_000), backend=name)
    source = np.ones(100_000, "f4")
    results = []
    for number in range(20):
        source[:] = number
        results.append(add.execute(source, source))
        source[:] = -1
    for number, result in enumerate(results):
        np.testing.assert_array_equal(result, np.full(100_000, 2 * number))


def test_execute_returns_before_the_program_has_run(backend: TestBackend) -> None:
    device = backend.devices()[0]
    add = hlojit.compile(program("add"), backend="test")
    device.gate.clear()
    first = add.execute(X, X)
    second = add.execute(first, X)
    assert not first.is_ready and not second.is_ready and not second.wait(0.001)
    assert "pending" in repr(second) and device.executions == 0
    device.gate.set()
    assert second.wait(30) and first.is_ready
    assert device.transfers_out == 0
    np.testing.assert_array_equal(second, 3 * X)


def test_devices_run_at_the_same_time(backend: TestBackend) -> None:
    """Each device's program waits for the other one to have begun."""
    meeting = threading.Barrier(2)
    for device in backend.devices():
        device.fault = lambda: meeting.wait(30) and None
    add = hlojit.compile(program("add"), backend="test")
    results = [add.execute(X, X, device=device) for device in backend.devices()]
    for result in results:
        np.testing.assert_array_equal(result, 2 * X)


# ----------------------------------------------------------------------------------------------------------- errors


def test_an_error_surfaces_at_the_buffer_and_in_what_depends_on_it(backend: TestBackend) -> None:
    device = backend.devices()[0]
    first, second = (hlojit.compile(program(name), backend="test") for name in ("first", "second"))
    good = first.execute(X, X)
    good.wait()
    device.fault = failing
    broken = first.execute(X, X)
    dependant = second.execute(broken, good)
    message = r"first on test:0: the back end 'test' .*raised RuntimeError\('the power is off'\)"
    for use in (broken.wait, lambda: np.asarray(broken), lambda: hlojit.get(dependant), dependant.wait, dependant.item):
        with pytest.raises(ExecutionError, match=message):
            use()
    device.fault = lambda: None
    with pytest.raises(ExecutionError, match=message):
        second(broken, good)
    with pytest.raises(ExecutionError, match=message):
        hlojit.put(dependant, "cpu")
    np.testing.assert_array_equal(second(good, good), 4 * X)
    assert device.executions == 2, "what depends on a failed buffer is not run"


@BACKENDS
def test_a_synchronous_call_raises_at_once(name: str, backend: TestBackend) -> None:
    for device in backend.devices():
        device.fault = failing
    add = hlojit.compile(program("add"), backend=name)
    if name == "test":
        for call in (lambda: add(X, X), lambda: add(hlojit.put(X, name), X)):
            with pytest.raises(ExecutionError, match="add on test:0: the back end 'test' .*raised"):
                call()
    else:
        np.testing.assert_array_equal(add(X, X), 2 * X)


def test_a_call_without_results_waits_and_raises_too(backend: TestBackend) -> None:
    device = backend.devices()[0]
    nothing = hlojit.compile("func.func @nothing(%x: tensor<6xf32>) {\nreturn\n}", backend="test")
    assert nothing(X) == () and device.executions == 1
    device.fault = failing
    with pytest.raises(ExecutionError, match="nothing on test:0: .*the power is off"):
        nothing(X)


OUT_OF_MEMORY = """
func.func @large(%x: tensor<6xf32>) -> tensor<6000000000000xf32> {
  %0 = stablehlo.iota dim = 0 : tensor<6000000000000xf32>
  return %0 : tensor<6000000000000xf32>
}
"""


def test_an_error_of_native_code_names_program_and_device() -> None:
    large = hlojit.compile(OUT_OF_MEMORY)
    with pytest.raises(ExecutionError, match="large on cpu:0: no memory for 24,000,000,000,000 bytes"):
        large.execute(X).wait()
    with pytest.raises(ExecutionError, match="large: no memory for"):
        large(X)


# ---------------------------------------------------------------------------------------------- lifetimes and limits


def test_dropped_results_neither_leak_nor_block(backend: TestBackend) -> None:
    device = backend.devices()[0]
    add = hlojit.compile(program("add"), backend="test")
    device.gate.clear()
    for _ in range(10):
        add.execute(X, X)
    device.gate.set()
    last = add.execute(X, X)
    last.wait()
    del last
    gc.collect()
    # The last jobs' own references go when the queue's thread goes on.
    device._queue.submit(lambda: None).wait()
    assert len(device.memory) <= 1 and device.executions == 11


@BACKENDS
def test_results_are_freed_when_they_are_dropped(name: str, backend: TestBackend) -> None:
    add = hlojit.compile(program("add"), backend=name)
    result = add.execute(X, X)
    middle = add.execute(result, X)
    gone = [weakref.ref(array.buffer) for array in (result, middle)]
    last = add.execute(middle, X)
    del result, middle
    last.wait()
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    np.testing.assert_array_equal(last, 4 * X)


def test_a_fast_producer_waits_for_the_device(backend: TestBackend) -> None:
    device = backend.devices()[0]
    add = hlojit.compile(program("add"), backend="test")
    device.gate.clear()
    for _ in range(MAXIMUM_IN_FLIGHT):
        add.execute(X, X)
    more: list[Array] = []
    producer = threading.Thread(target=lambda: more.append(add.execute(X, X)))
    producer.start()
    producer.join(0.05)
    assert producer.is_alive() and not more
    device.gate.set()
    producer.join(30)
    np.testing.assert_array_equal(more[0], 2 * X)


def test_a_callback_may_start_more_work_however_much_is_pending(backend: TestBackend) -> None:
    device = backend.devices()[0]
    add = hlojit.compile(program("add"), backend="test")
    device.gate.clear()
    started: list[Array] = []
    first = add.execute(X, X)
    assert first.buffer is not None
    first.buffer.ready.then(lambda _: started.extend(add.execute(first, X) for _ in range(3)))
    for _ in range(MAXIMUM_IN_FLIGHT - 1):
        last = add.execute(X, X)
    device.gate.set()
    assert last.wait(30)
    for result in started:
        np.testing.assert_array_equal(result, 3 * X)
    assert len(started) == 3


@BACKENDS
def test_several_threads_use_one_device(name: str, backend: TestBackend) -> None:
    add = hlojit.compile(program("add"), backend=name)
    shared = hlojit.put(X, name)
    right: list[int] = []

    def work(thread: int) -> None:
        # The device itself: a thread does not see the scope in which the back end is registered.
        x = hlojit.put(np.full(6, thread, "f4"), shared.device)
        for _ in range(20):
            x = add.execute(x, shared)
            y = add(x, shared)
        if np.array_equal(hlojit.get(y), thread + 21 * X):
            right.append(thread)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(right) == list(range(6))


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_ctrl_c_while_waiting_leaves_the_device_usable(backend: TestBackend) -> None:
    device = backend.devices()[0]
    add = hlojit.compile(program("add"), backend="test")
    device.gate.clear()
    pending = add.execute(X, X)
    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            np.asarray(pending)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, previous)
    device.gate.set()
    np.testing.assert_array_equal(pending, 2 * X)
    np.testing.assert_array_equal(add(pending, X), 3 * X)


SET_UP = """
import os, numpy as np, hlojit
text = '''
func.func @count(%n: tensor<i64>) -> tensor<i64> {
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %one = stablehlo.constant dense<1> : tensor<i64>
  %0 = stablehlo.while(%i = %zero) : tensor<i64>
  cond {
    %1 = stablehlo.compare LT, %i, %n : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.add %i, %one : tensor<i64>
    stablehlo.return %1 : tensor<i64>
  }
  return %0 : tensor<i64>
}
'''
count = hlojit.compile(text)
"""
FORK = (
    SET_UP
    + """
kept = count.execute(10)
kept.wait()
pending = count.execute(1 << 40)
child = os.fork()
if child == 0:
    try:
        pending.wait()
    except hlojit.ExecutionError as error:
        assert "forked" in str(error), error
    else:
        os._exit(3)
    assert int(kept) == 10
    good = int(count.execute(kept)) == 10 and count(7) == 7
    os._exit(0 if good else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("good", flush=True)
"""
)
EXIT = (
    SET_UP
    + """
count.execute(1 << 62)
for _ in range(20):
    last = count.execute(1 << 62)
print("good", flush=True)
"""
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("script", [FORK, EXIT], ids=["fork", "exit"])
def test_processes_with_endless_work_pending(script: str) -> None:
    # Newer Pythons warn of fork where there are threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "good\n", "")


def test_virtual_cpu_devices() -> None:
    script = """
import hlojit, numpy as np
devices = hlojit.devices()
assert list(map(str, devices)) == ["cpu:0", "cpu:1", "cpu:2"], devices
add = hlojit.compile("func.func @add(%x: tensor<f32>) -> tensor<f32> {\\n%0 = stablehlo.add %x, %x : tensor<f32>\\nreturn %0 : tensor<f32>\\n}")
results = [add(hlojit.put(np.float32(number), device)) for number, device in enumerate(devices)]
assert [result.device for result in results] == list(devices) and list(map(float, results)) == [0, 2, 4]
"""
    environment = dict(os.environ, HLOJIT_CPU_DEVICES="3")
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    bad = dict(os.environ, HLOJIT_CPU_DEVICES="many")
    done = subprocess.run([sys.executable, "-c", script], env=bad, capture_output=True, text=True, check=False)
    assert "HLOJIT_CPU_DEVICES='many' is not a number from 1 to 1024" in done.stderr


def test_a_scope_around_the_call_is_in_scope_on_the_devices_thread(backend: TestBackend) -> None:
    """Plugins are in scopes of contexts; the reference back end looks formats up while it runs."""
    seen: list[bool] = []
    device = backend.devices()[0]
    device.fault = lambda: seen.append("test" in registry().backends)
    hlojit.compile(program("add"), backend="test").execute(X, X).wait()
    assert seen == [True]


COLD = """
import threading
start, wrong, right = threading.Barrier(8), [], []
def work(number):
    start.wait()
    import numpy as np, hlojit
    op = ("add", "multiply")[number % 2]
    text = f"func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> {{ %0 = stablehlo.{op} %x, %x : tensor<3xf32> return %0 : tensor<3xf32> }}"
    name = ("cpu", "reference")[number // 2 % 2]
    x = np.arange(3, dtype="f4") + number
    result = hlojit.compile(text, backend=name).execute(hlojit.put(x, name))
    (right if (np.asarray(result) == (x + x if op == "add" else x * x)).all() else wrong).append(number)
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
import hlojit
assert len(right) == 8, (right, wrong)
assert len(set(map(id, [hlojit.devices()[0], hlojit.devices("cpu")[0]]))) == 1
print("good")
"""


def test_several_threads_begin_in_a_cold_process() -> None:
    done = subprocess.run([sys.executable, "-c", COLD], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr


@BACKENDS
def test_executions_leave_no_memory_behind(name: str, backend: TestBackend) -> None:
    add = hlojit.compile(program("add", 25_000), backend=name)
    source = np.ones(25_000, "f4")

    def run(count: int) -> None:
        x = hlojit.put(source, name)
        for _ in range(count):
            x = add.execute(x, source)
        x.wait()

    run(20)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        run(300)
        gc.collect()
        left = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # One array that stayed behind in each execution would be 30 MB.
    assert left < 1_000_000
