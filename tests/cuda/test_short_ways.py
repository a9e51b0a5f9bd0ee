"""The short way of programs to their stream (``hlojit.gpu.starts``), over functions that keep the driver's rules."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.cuda.backend import CudaBackend
from hlojit.extensions.devices.events import Event
from hlojit.gpu.device import GpuDevice
from hlojit.gpu.memory import DeviceMemory
from hlojit.gpu.program_runner import Resident
from hlojit.gpu.starts import Passing

from ..loop_programs import PROGRAMS, array
from .fake_cuda import FakeCuda, real

ADD = """
func.func @add(%x: tensor<600xf32>, %y: tensor<600xf32>) -> tensor<600xf32> {
  %0 = stablehlo.add %x, %y : tensor<600xf32>
  return %0 : tensor<600xf32>
}
"""
CHAIN = """
func.func @chain(%x: tensor<32x32xf32>, %w: tensor<32x32xf32>) -> tensor<32x32xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
  %2 = stablehlo.dot_general %1, %w, contracting_dims = [1] x [0] : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
  %3 = stablehlo.dot_general %2, %w, contracting_dims = [1] x [0] : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
  return %3 : tensor<32x32xf32>
}
"""


def put(array: Any) -> Any:
    made = hlojit.put(array, "cuda")
    assert made.wait()
    return made


def device(backend: CudaBackend) -> GpuDevice:
    found = backend.devices()[0]
    assert isinstance(found, GpuDevice)
    return found


def test_a_call_asks_the_driver_for_a_launch_and_an_event(cuda: FakeCuda, backend: CudaBackend) -> None:
    add = hlojit.compile(ADD, backend="cuda")
    x, y = put(np.arange(600, dtype="f4")), put(np.ones(600, "f4"))
    for _ in range(2):
        add.execute(x, y).wait()
    cuda.calls.clear()
    started = add.execute(x, y)
    assert cuda.calls == ["cuCtxPushCurrent", "cuLaunchKernel", "cuEventRecord", "cuCtxPopCurrent"]
    assert started.wait()
    assert cuda.calls[4:] == ["cuCtxPushCurrent", "cuEventQuery", "cuCtxPopCurrent"]


def test_transfers_and_programs_follow_each_other_without_a_thread(cuda: FakeCuda, backend: CudaBackend) -> None:
    add = hlojit.compile(ADD, backend="cuda")
    add(np.zeros(600, "f4"), np.zeros(600, "f4"))
    before = threading.active_count()
    for number in range(5):
        x = hlojit.put(np.full(600, number, "f4"), "cuda")
        assert not x.buffer.ready.is_settled
        y = add.execute(x, x)
        assert type(y.buffer.ready.source) is Passing
        np.testing.assert_array_equal(hlojit.get(y), np.full(600, 2 * number))
    assert threading.active_count() == before


def test_what_is_dropped_is_used_again_by_what_comes_later(cuda: FakeCuda, backend: CudaBackend) -> None:
    """A result that nobody refers to any more is the memory of the next one; those that somebody has are not."""
    add = hlojit.compile(ADD, backend="cuda")
    x, y = put(np.arange(600, dtype="f4")), put(np.ones(600, "f4"))
    kept = [add.execute(x, y) for _ in range(3)]
    dropped = add.execute(x, y).buffer.memory().handle.address
    again = add.execute(x, kept[0])
    assert again.buffer.memory().handle.address == dropped
    addresses = {each.buffer.memory().handle.address for each in [*kept, again, x, y]}
    assert len(addresses) == 6
    for each in kept:
        np.testing.assert_array_equal(hlojit.get(each), np.arange(600) + 1)
    np.testing.assert_array_equal(hlojit.get(again), 2 * np.arange(600) + 1)


def test_shelves_are_emptied_before_memory_runs_out(cuda: FakeCuda, backend: CudaBackend) -> None:
    add = hlojit.compile(ADD, backend="cuda")
    x = put(np.ones(600, "f4"))
    results = [add.execute(x, x) for _ in range(10)]
    del results
    # What the fake's checks of types have raised keeps the frames that called them.
    gc.collect()
    pool = device(backend)._opened().site.pool
    assert pool.kept_bytes == 10 * 2560
    cuda.total = cuda.used + 1000
    big = put(np.zeros(4000, "f4"))
    assert pool.kept_bytes == 0
    cuda.total = cuda.used
    with pytest.raises(hlojit.ExecutionError, match="2,560 bytes for results of add .*held are 16,000 by arrays of"):
        add.execute(x, x)
    del big
    np.testing.assert_array_equal(hlojit.get(add.execute(x, x)), np.full(600, 2))


def test_shelves_hold_a_share_of_the_memory(backend: CudaBackend) -> None:
    pool = device(backend)._opened().site.pool
    pool._most_kept = 10_000
    for size in (3000, 4000, 5000, 6000):
        shelf = pool.shelf(size, "test")
        blocks = [shelf.take() for _ in range(3)]
        del blocks
        assert pool.kept_bytes <= 10_000 + 3 * 6144
    del shelf


def test_who_holds_memory_is_found_among_the_handles(backend: CudaBackend) -> None:
    pool = device(backend)._opened().site.pool
    before = pool.held_bytes
    handles = [pool.allocate(100, "one"), pool.shelf(1000, "other").take()]
    assert pool.held_bytes == before + 100 + 1024 and all(type(each) is DeviceMemory for each in handles)


@pytest.mark.parametrize("text", [ADD, CHAIN])
def test_threads_that_call_one_program(backend: CudaBackend, text: str) -> None:
    """From a cold start, with results dropped and kept; the fourth call is a graph's, which is told other addresses."""
    f = hlojit.compile(text, backend="cuda")
    shape = f.input_types[0].shape
    wrong: list[Any] = []
    start = threading.Barrier(4)

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        start.wait()
        kept = []
        for _ in range(12):
            x, y = (rng.integers(-2, 3, shape).astype("f4") for _ in range(2))
            expected = x + y if text is ADD else x @ y @ y @ y @ y
            found = f.execute(hlojit.put(x, "cuda"), put(y))
            if rng.integers(2):
                kept.append((found, expected))
            elif not np.array_equal(hlojit.get(found), expected):
                wrong.append(number)
        wrong.extend(number for found, expected in kept if not np.array_equal(hlojit.get(found), expected))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_a_donated_argument_is_the_result_and_its_readers_come_before(cuda: FakeCuda, backend: CudaBackend) -> None:
    add = hlojit.compile(ADD, backend="cuda", donate=[0])
    plain = hlojit.compile(ADD, backend="cuda")
    one = put(np.ones(600, "f4"))
    x = put(np.arange(600, dtype="f4"))
    for _ in range(4):
        read = plain.execute(x, one)
        address = x.buffer.memory().handle.address
        y = add.execute(x, one)
        assert y.buffer.memory().handle.address == address and type(y.buffer.ready.source) is Passing
        with pytest.raises(hlojit.ExecutionError, match="donated to add"):
            plain.execute(x, one)
        np.testing.assert_array_equal(hlojit.get(y), hlojit.get(read))
        x = y


def test_a_failed_argument_fails_what_depends_on_it(backend: CudaBackend) -> None:
    add = hlojit.compile(ADD, backend="cuda")
    x, y = put(np.ones(600, "f4")), put(np.ones(600, "f4"))
    add.execute(x, y).wait()
    x.buffer.ready = Event.completed(hlojit.ExecutionError("add on cuda:0: no power"))
    with pytest.raises(hlojit.ExecutionError, match="no power"):
        add.execute(x, y).wait()


def test_a_launch_that_the_driver_refuses_names_the_line(cuda: FakeCuda, backend: CudaBackend) -> None:
    f = hlojit.compile(CHAIN, backend="cuda")
    x = put(np.eye(32, dtype="f4"))
    cuda.fail["cuLaunchKernel"] = real.CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    with pytest.raises(hlojit.ExecutionError, match=r"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: as the driver.*:3:3"):
        f.execute(x, x)
    for _ in range(3):
        np.testing.assert_array_equal(hlojit.get(f.execute(x, x)), np.eye(32))
    # One node is told, the other ones are not: the graph is not launched any more.
    cuda.fail["cuGraphExecKernelNodeSetParams"] = real.CUresult.CUDA_ERROR_INVALID_VALUE
    for number in (2, 3):
        found = f.execute(put(number * np.eye(32, dtype="f4")), x)
        np.testing.assert_array_equal(hlojit.get(found), number * np.eye(32))


def refuse(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, function: str, status: str) -> None:
    """From now on."""

    def refused(*_: Any) -> None:
        from .fake_cuda import FakeError

        raise FakeError(getattr(real.CUresult, status))

    monkeypatch.setattr(cuda, f"do_{function}", refused)


@pytest.mark.parametrize("status", ["CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_OUT_OF_MEMORY"])
@pytest.mark.parametrize(
    ("is_native", "function"),
    [
        (True, "cuGraphCreate"),
        (True, "cuGraphAddKernelNode"),
        (True, "cuGraphInstantiate"),
        (True, "cuGraphExecKernelNodeSetParams"),
        (True, "cuGraphLaunch"),
        (False, "cuGraphInstantiate"),
        (False, "cuGraphLaunch"),
    ],
)
def test_what_cannot_be_a_graph_is_launched_kernel_by_kernel(
    cuda: FakeCuda, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch, is_native: bool, function: str, status: str
) -> None:
    if not is_native:
        monkeypatch.setattr(Resident, "is_native", lambda self, native: False)
    f = hlojit.compile(CHAIN, backend="cuda", donate=[0])
    x, weights = put(np.eye(32, dtype="f4")), [put(2 * np.eye(32, dtype="f4")) for _ in range(2)]
    refuse(cuda, monkeypatch, function, status)
    for number in range(6):
        x = f.execute(x, weights[number // 2 % 2])
    np.testing.assert_array_equal(hlojit.get(x), 2.0 ** (4 * 6) * np.eye(32))
    assert "cuGraphLaunch" not in cuda.calls[-20:]


def test_a_program_that_is_on_the_stream_is_not_run_again(cuda: FakeCuda, backend: CudaBackend) -> None:
    f = hlojit.compile(CHAIN, backend="cuda")
    x = put(np.eye(32, dtype="f4"))
    for _ in range(3):
        f.execute(x, x).wait()
    cuda.calls.clear()
    cuda.fail["cuEventRecord"] = real.CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(hlojit.ExecutionError, match="CUDA_ERROR_INVALID_VALUE"):
        f.execute(x, x)
    assert cuda.calls.count("cuGraphLaunch") == 1 and "cuLaunchKernel" not in cuda.calls


def test_without_memory_for_results_donated_arguments_stay(cuda: FakeCuda, backend: CudaBackend) -> None:
    text = ADD.replace("@add", "@both").replace("-> tensor<600xf32> {", "-> (tensor<600xf32>, tensor<600xf32>) {")
    text = text.replace("  return %0 : tensor<600xf32>", "  return %0, %0 : tensor<600xf32>, tensor<600xf32>")
    both = hlojit.compile(text, backend="cuda", donate=[0])
    x, y = put(np.arange(600, dtype="f4")), put(np.ones(600, "f4"))
    total, cuda.total = cuda.total, cuda.used
    with pytest.raises(hlojit.ExecutionError, match="out of memory on cuda:0: 2,560 bytes for results of both"):
        both.execute(x, y)
    cuda.total = total
    for each in both.execute(x, y):
        np.testing.assert_array_equal(hlojit.get(each), np.arange(600) + 1)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("cuModuleLoadData", r"the code of hlojit.fusion at .* \([\d,]+ bytes\) \(CUDA_ERROR_OUT_OF_MEMORY"),
        ("cuMemHostAlloc", r"a transfer of tensor<600xf32> to the device \(4,194,304 bytes of pinned host memory"),
    ],
)
def test_what_takes_memory_of_the_driver_is_tried_twice(
    cuda: FakeCuda, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch, function: str, message: str
) -> None:
    add = hlojit.compile(ADD, backend="cuda")
    ones = np.ones(600, "f4")
    with monkeypatch.context() as patch:
        refuse(cuda, patch, function, "CUDA_ERROR_OUT_OF_MEMORY")
        with pytest.raises(hlojit.ExecutionError, match=f"out of memory on cuda:0: {message}"):
            add(ones, ones)
    assert "cuMemPoolTrimTo" in cuda.calls
    cuda.fail[function] = real.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    np.testing.assert_array_equal(add(ones, ones), 2 * ones)


def test_a_fault_names_all_that_may_have_caused_it(cuda: FakeCuda, backend: CudaBackend) -> None:
    """Nothing is known of the programs before the one that is waited for: a context that is lost tells no events apart."""
    programs = [
        hlojit.compile(ADD.replace("@add", f"@{name}").replace("%0 =", f"{lines}%0 ="), backend="cuda")
        for name, lines in (("first", "\n"), ("second", "\n\n"), ("third", "\n\n\n"))
    ]
    x = put(np.ones(600, "f4"))
    for each in programs:
        each.execute(x, x)
    programs[0].execute(x, x).wait()
    programs[1].execute(x, x)
    last = programs[2].execute(x, x)
    programs[0].execute(x, x)
    cuda.sticky = real.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(hlojit.ExecutionError, match="third on cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS") as caught:
        last.wait()
    # What was started later may be what met it.
    assert "in one of " in str(caught.value) and all(f":{line}:1" in str(caught.value) for line in (4, 5, 6))


@pytest.mark.parametrize("first", ["upload", "waited upload", "download", "start", "status"])
def test_whoever_meets_a_fault_first_names_what_was_under_way(first: str, cuda: FakeCuda, backend: CudaBackend) -> None:
    """The message of the first is that of all."""
    add, another = (hlojit.compile(ADD.replace("add(", f"{name}("), backend="cuda") for name in ("add", "another"))
    x = put(np.ones(600, "f4"))
    add.execute(x, x).wait()
    y = add.execute(x, x)
    later = hlojit.put(np.ones(600, "f4"), "cuda")
    driver = device(backend).driver
    stream = driver.stream("one")
    cuda.sticky = real.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    meets: dict[str, Callable[[], object]] = {
        "upload": lambda: hlojit.put(np.ones(600, "f4"), "cuda"),
        "waited upload": later.wait,
        "download": lambda: hlojit.get(x),
        "start": lambda: another.execute(y, y).wait(),
        "status": lambda: driver.synchronize(driver.record(stream)),
    }
    for meet in (meets[first], y.wait):
        with pytest.raises(hlojit.ExecutionError, match="CUDA_ERROR_ILLEGAL_ADDRESS.* in hlojit.fusion at .*:3:3"):
            meet()


def test_a_fault_names_programs_that_a_thread_waits_for(
    cuda: FakeCuda, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with loops, checks or memory of others."""
    size, text = PROGRAMS["case in a loop"]
    f = hlojit.compile(text, backend="cuda")
    arguments = [put(each) for each in (array(size), np.int32(1), np.int32(0))]
    lanes = device(backend)._opened()
    monkeypatch.setattr(lanes.completions, "submit", lambda work: None)
    f.execute(*arguments)
    driver = device(backend).driver
    stream = driver.stream("one")
    cuda.sticky = real.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(hlojit.ExecutionError, match=r"ILLEGAL_ADDRESS.* in one of hlojit\.fusion at .*:\d+:\d+"):
        driver.synchronize(driver.record(stream))
    lanes.runs.clear()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def never_ready(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Events happen when the one that is returned is set."""
    gate = threading.Event()
    query = cuda.do_cuEventQuery
    pending = real.CUresult.CUDA_ERROR_NOT_READY

    def do_query(event: Any) -> None:
        query(event)
        if not gate.is_set():
            from .fake_cuda import FakeError

            raise FakeError(pending)

    monkeypatch.setattr(cuda, "do_cuEventQuery", do_query)
    monkeypatch.setattr(cuda, "do_cuEventSynchronize", lambda event: gate.wait() and None)
    return gate


def test_an_event_that_has_not_happened(cuda: FakeCuda, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    add = hlojit.compile(ADD, backend="cuda")
    x = put(np.ones(600, "f4"))
    gate = never_ready(cuda, monkeypatch)
    monkeypatch.setattr("hlojit.gpu.starts.ROUNDS", 2)
    y = add.execute(x, x)
    told: list[Event] = []
    assert not y.is_ready and not y.wait(0.001) and not y.wait(0)
    y.buffer.ready.then(told.append)
    z = add.execute(y, y)
    gate.set()
    assert y.wait() and z.wait()
    until(lambda: told == [y.buffer.ready])
    np.testing.assert_array_equal(hlojit.get(z), np.full(600, 4))


def test_ctrl_c_ends_the_waiting(cuda: FakeCuda, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    add = hlojit.compile(ADD, backend="cuda")
    x = put(np.ones(600, "f4"))
    gate = never_ready(cuda, monkeypatch)

    def synchronize(event: Any) -> None:
        # When a thread waits, no function of the driver is Python on the main thread, whose exceptions would be lost.
        if not gate.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            gate.wait()

    monkeypatch.setattr(cuda, "do_cuEventSynchronize", synchronize)
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            add(x, x)
    finally:
        signal.signal(signal.SIGINT, previous)
        gate.set()
    np.testing.assert_array_equal(hlojit.get(add(x, x)), np.full(600, 2))


def test_a_program_and_its_results_leave_nothing_behind(cuda: FakeCuda, backend: CudaBackend) -> None:
    add, x = hlojit.compile(ADD, backend="cuda"), put(np.ones(600, "f4"))
    for _ in range(3):
        add(x, x)
    events = sum(kind == "CUevent" for kind, _ in cuda.live)
    for _ in range(50):
        add(x, x)
    assert sum(kind == "CUevent" for kind, _ in cuda.live) == events
    del add
    gc.collect()
    assert not any(kind == "CUmodule" for kind, _ in cuda.live)
