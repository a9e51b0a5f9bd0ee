"""NVIDIA's driver over functions that check what they are given (``fake_cuda.py``): what can be known without a GPU."""

from __future__ import annotations

import gc
import subprocess
import sys

import hlojit
import numpy as np
import pytest
from hlojit.cuda import nvidia_platform
from hlojit.cuda.backend import CudaBackend
from hlojit.cuda.driver_api import DriverApi
from hlojit.cuda.native_functions import NvidiaNative
from hlojit.cuda.nvidia_driver import NvidiaDriver
from hlojit.cuda.nvptx import H200
from hlojit.cuda.staging import PIECE_BYTES
from hlojit.gpu.driver import DeviceFault, DriverError, DriverRefusal, Grid, OutOfDeviceMemory
from hlojit.gpu.simulated_platform import simulated_platform
from hlojit.simt.kernels import emit_kernel

from .fake_cuda import MISSING, FakeCuda, real

THREE = """
func.func @three(%x: tensor<64xf32>, %i: tensor<i32>, %u: tensor<4xf32>) -> tensor<64xf32> {
  %0 = stablehlo.tanh %x : tensor<64xf32>
  %1 = stablehlo.dynamic_update_slice %0, %u, %i : (tensor<64xf32>, tensor<4xf32>, tensor<i32>) -> tensor<64xf32>
  %2 = stablehlo.dynamic_update_slice %1, %u, %i : (tensor<64xf32>, tensor<4xf32>, tensor<i32>) -> tensor<64xf32>
  %3 = stablehlo.negate %2 : tensor<64xf32>
  return %3 : tensor<64xf32>
}
"""


@pytest.mark.skipif(not MISSING, reason="there is a driver, and its functions would run")
def test_the_real_functions_say_what_types_they_take() -> None:
    """Without this the checks of ``fake_cuda`` would check nothing."""
    with pytest.raises(TypeError):
        real.cuLaunchKernel("x", 1, 1, 1, 32, 1, 1, 0, 0, 123, 0)


@pytest.mark.parametrize("nbytes", [1, 1000, PIECE_BYTES, 5 * PIECE_BYTES + 3])
def test_transfers_go_through_pinned_memory(cuda: FakeCuda, driver: NvidiaDriver, nbytes: int) -> None:
    array = np.random.default_rng(0).integers(0, 255, nbytes, np.uint8)
    stream = driver.stream("one")
    address = driver.allocate(nbytes, stream)
    driver.copy_in(address, array, stream)
    other = driver.allocate(nbytes, stream)
    driver.copy(other, address, nbytes, stream)
    back = np.zeros_like(array)
    driver.copy_out(back, other, stream)
    np.testing.assert_array_equal(back, array)
    assert len(cuda.pinned) <= 4, "two pieces a direction"
    driver.free(address, stream)
    driver.free(other, stream)
    assert not cuda.memory and not cuda.contexts


@pytest.mark.parametrize("has_peers", [True, False])
def test_copies_between_gpus_go_over_the_peers_way(cuda: FakeCuda, driver: NvidiaDriver, has_peers: bool) -> None:
    cuda.has_peers = has_peers
    other = NvidiaDriver(DriverApi(cuda), 1, driver.properties)
    other.open()
    array = np.random.default_rng(0).integers(0, 255, 1000, np.uint8)
    theirs, ours = driver.stream("theirs"), other.stream("ours")
    source, target = driver.allocate(1000, theirs), other.allocate(1000, ours)
    driver.copy_in(source, array, theirs)
    for _ in range(2):
        other.copy_from(driver, target, source, 1000, ours)
    back = np.zeros_like(array)
    other.copy_out(back, target, ours)
    np.testing.assert_array_equal(back, array)
    assert cuda.opened == ([1] if has_peers else []), "once"
    assert cuda.calls.count("cuMemcpyPeerAsync") == 2 and not cuda.contexts


def test_times_are_those_of_events_that_measure(cuda: FakeCuda, driver: NvidiaDriver) -> None:
    stream = driver.stream("one")
    address = driver.allocate(4, stream)
    first = driver.record_time(stream)
    for _ in range(2):
        driver.synchronize(driver.record(stream))
    last = driver.record_time(stream)
    assert driver.elapsed(first, last) == 1e6
    del first, last
    gc.collect()  # the fake's checks keep frames
    for _ in range(3):
        driver.elapsed(driver.record_time(stream), driver.record_time(stream))
    assert len(cuda.timing) == 2, "events are used again"
    stream.launched.append("tanh at line 3")
    mark = driver.record_time(stream)
    cuda.fail["cuEventSynchronize"] = real.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceFault, match="ILLEGAL_ADDRESS.* in tanh at line 3"):
        driver.elapsed(mark, mark)
    driver.free(address, stream)


def test_candidates_are_measured_by_events(
    cuda: FakeCuda, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hlojit.lowering.grid_dot_plan.MOST_CANDIDATES", 2)
    caplog.set_level("INFO", "hlojit")
    text = """
    func.func @main(%x: tensor<40x30xf32>, %y: tensor<30x20xf32>) -> tensor<40x20xf32> {
      %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<40x30xf32>, tensor<30x20xf32>) -> tensor<40x20xf32>
      return %0 : tensor<40x20xf32>
    }"""
    compiled = hlojit.compile(text, backend="cuda", options={"autotune": True})
    (launch,) = compiled.spec.program.launches()
    assert launch.kernel.candidate.startswith("threads ")
    # A launch takes a millisecond, and recording a time another one.
    assert caplog.text.count(" 2000.0 us") == 2 and "the default stays" in caplog.text
    assert not cuda.memory, "buffers have been given back"
    assert compiled(np.ones((40, 30), "f4"), np.ones((30, 20), "f4")).max() == 30


def test_programs_run_and_become_one_graph_that_is_told_new_addresses(cuda: FakeCuda, backend: CudaBackend) -> None:
    f = hlojit.compile(THREE, backend="cuda")
    x = hlojit.put(np.linspace(-1, 1, 64, dtype="f4"), "cuda")
    u, i = hlojit.put(np.arange(4, dtype="f4"), "cuda"), hlojit.put(np.int32(5), "cuda")
    expected = np.tanh(np.linspace(-1, 1, 64, dtype="f4"))
    expected[5:9] = np.arange(4)
    kernels = sum(len(launch.kernel.phases) for launch in f.spec.program.launches())
    assert kernels >= 3
    for each in (x, u, i):
        each.wait()  # arguments that are still on their way take another one
    kept = []
    for _ in range(6):
        kept.append(f(x, i, u))
        np.testing.assert_allclose(hlojit.get(kept[-1]), -expected, rtol=3e-7)
    assert cuda.calls.count("cuGraphInstantiate") == 1
    assert cuda.calls.count("cuLaunchKernel") == kernels, "of the first call"
    assert cuda.calls.count("cuGraphLaunch") == 5
    # Every result is new memory, which one kernel and nothing else writes.
    assert cuda.calls.count("cuGraphExecKernelNodeSetParams") <= 4 * 2 < 4 * kernels
    for each in kept:
        np.testing.assert_allclose(hlojit.get(each), -expected, rtol=3e-7)
    del kept, each
    cuda.calls.clear()
    for _ in range(4):
        f(x, i, u).wait()
    assert cuda.calls.count("cuGraphLaunch") == 4 and cuda.calls.count("cuMemAllocAsync") == 0
    assert cuda.calls.count("cuGraphExecKernelNodeSetParams") <= 2, "the memory is the same every time"


COPIES = """
func.func @copies(%x: tensor<600xf32>, %y: tensor<600xf32>) -> (tensor<600xf32>, tensor<600xf32>, tensor<600xf32>) {
  %0 = stablehlo.tanh %x : tensor<600xf32>
  return %0, %0, %y : tensor<600xf32>, tensor<600xf32>, tensor<600xf32>
}
"""


def test_copies_are_steps_and_nodes(cuda: FakeCuda, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hlojit.gpu.starts.GRAPH_LAUNCHES", 1)
    f = hlojit.compile(COPIES, backend="cuda")
    kept = []
    for number in range(4):
        x, y = (np.full(600, number + offset, "f4") for offset in (0.5, 7))
        given = [hlojit.put(each, "cuda") for each in (x, y)]
        assert all(each.wait() for each in given)
        kept.append((x, y, f.execute(*given)))
    for x, y, results in kept:
        for found, expected in zip(results, (np.tanh(x), np.tanh(x), y), strict=True):
            np.testing.assert_allclose(hlojit.get(found), expected, rtol=3e-7)
    assert "cuMemcpyDtoDAsync" in cuda.calls and cuda.calls.count("cuGraphInstantiate") == 1
    assert "cuGraphExecMemcpyNodeSetParams" in cuda.calls


def test_kernels_of_several_launches_are_found_by_their_names(backend: CudaBackend) -> None:
    text = """
    func.func @main(%x: tensor<200000xf32>) -> tensor<f32> {
      %0 = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = stablehlo.reduce(%x init: %0) applies stablehlo.maximum across dimensions = [0]
        : (tensor<200000xf32>, tensor<f32>) -> tensor<f32>
      return %1 : tensor<f32>
    }"""
    assert hlojit.compile(text, backend="cuda")(np.arange(200000, dtype="f4")) == 199999


def test_loops_read_back(backend: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_GPU_LOOPS", "host")
    f = hlojit.compile(
        """
        func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
          %zero = stablehlo.constant dense<0> : tensor<i32>
          %one = stablehlo.constant dense<1> : tensor<i32>
          %n = stablehlo.constant dense<7> : tensor<i32>
          %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<4xf32>
           cond {
            %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %p : tensor<i1>
          } do {
            %j = stablehlo.add %i, %one : tensor<i32>
            %b = stablehlo.add %a, %a : tensor<4xf32>
            stablehlo.return %j, %b : tensor<i32>, tensor<4xf32>
          }
          return %r#1 : tensor<4xf32>
        }""",
        backend="cuda",
    )
    assert f(np.arange(4, dtype="f4")).tolist() == [0, 128, 256, 384]


def test_a_fault_names_what_ran_and_the_process_goes_on(cuda: FakeCuda, backend: CudaBackend) -> None:
    f = hlojit.compile(THREE, backend="cuda")
    x = hlojit.put(np.zeros(64, "f4"), "cuda")
    u, i = hlojit.put(np.zeros(4, "f4"), "cuda"), hlojit.put(np.int32(5), "cuda")
    f(x, i, u)
    y = f.execute(x, i, u)
    cuda.sticky = real.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(
        hlojit.ExecutionError, match="three on cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS: as the driver explains it"
    ) as caught:
        y.wait()
    assert " in one of " in str(caught.value) and ":3:3" in str(caught.value)
    with pytest.raises(hlojit.ExecutionError, match="cuda:0 was stopped by a fault and needs a new process"):
        f(x, i, u)
    assert hlojit.jit(lambda v: v + 1)(np.zeros(2, "f4")).tolist() == [1, 1], "the CPU goes on"


def test_out_of_memory_is_said_in_bytes(cuda: FakeCuda, backend: CudaBackend) -> None:
    cuda.total = 100_000
    kept = hlojit.put(np.zeros(20_000, "f4"), "cuda")
    with pytest.raises(
        hlojit.ExecutionError, match="out of memory on cuda:0: 80,000 bytes for arrays of tensor<20000xf32>"
    ):
        hlojit.put(np.zeros(20_000, "f4"), "cuda")
    assert "cuMemPoolTrimTo" in cuda.calls
    del kept
    hlojit.put(np.zeros(20_000, "f4"), "cuda")


def test_more_shared_memory_than_every_kernel_may_have_is_asked_for(cuda: FakeCuda, driver: NvidiaDriver) -> None:
    platform = simulated_platform(H200, "simulated")
    module_text = "func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {\n %0 = stablehlo.tanh %x : tensor<8xf32>\n return %0 : tensor<8xf32>\n}"
    (instruction,) = [each for each in hlojit.parse(module_text).walk() if not each.op.is_terminator]
    kernel = emit_kernel(instruction, platform.target, platform.dialect, "kernel")
    module = driver.load(platform.assemble([kernel])["kernel"], ["kernel"])
    driver.function(module, "kernel", 1000)
    assert not cuda.shared
    function = driver.function(module, "kernel", 100_000)
    assert list(cuda.shared.values()) == [100_000]
    stream = driver.stream("one")
    x, y = driver.allocate(32, stream), driver.allocate(32, stream)
    driver.copy_in(x, np.full(8, 0.5, "f4"), stream)
    driver.launch(function, Grid(1, kernel.phases[0].threads, 100_000), [x, y], stream, "tanh")
    back = np.zeros(8, "f4")
    driver.copy_out(back, y, stream)
    np.testing.assert_allclose(back, np.tanh(np.float32(0.5)), rtol=3e-7)


def test_what_is_dropped_is_unloaded(cuda: FakeCuda, backend: CudaBackend) -> None:
    f = hlojit.compile(THREE, backend="cuda")
    arguments = np.zeros(64, "f4"), np.int32(0), np.zeros(4, "f4")
    for _ in range(3):
        f(*arguments)
    assert any(kind == "CUmodule" for kind, _ in cuda.live)
    backend.devices()[0].put(np.zeros(1, "f4")).ready.wait()
    del f
    gc.collect()
    assert not any(kind in ("CUmodule", "CUgraph", "CUgraphExec") for kind, _ in cuda.live)


def test_errors_are_the_drivers_words(cuda: FakeCuda, driver: NvidiaDriver) -> None:
    cuda.fail["cuModuleLoadData"] = real.CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU
    with pytest.raises(
        DriverError, match=r"CUDA_ERROR_NO_BINARY_FOR_GPU: as the driver explains it \(cuModuleLoadData\)"
    ):
        driver.load(b"\x7fELF", ["kernel"])
    with pytest.raises(OutOfDeviceMemory):
        driver.allocate(1 << 40, driver.stream("one"))
    mark = driver.record(driver.stream("two"))
    cuda.fail["cuEventSynchronize"] = real.CUresult.CUDA_ERROR_LAUNCH_FAILED
    with pytest.raises(DeviceFault, match="CUDA_ERROR_LAUNCH_FAILED"):
        driver.synchronize(mark)


@pytest.mark.parametrize("name", ["CUDA_ERROR_NVLINK_UNCORRECTABLE", "CUDA_ERROR_CONTAINED"])
def test_what_a_context_does_not_survive_is_a_fault(cuda: FakeCuda, driver: NvidiaDriver, name: str) -> None:
    cuda.fail["cuEventSynchronize"] = getattr(real.CUresult, name)
    with pytest.raises(DeviceFault, match=name):
        driver.synchronize(driver.record(driver.stream("one")))


def test_a_function_that_the_driver_lacks_is_not_called(
    cuda: FakeCuda, driver: NvidiaDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = 0, real.CUdriverProcAddressQueryResult(1)
    monkeypatch.setattr(cuda, "do_cuGetProcAddress", lambda *_: answer)
    with pytest.raises(DriverError, match=r"does not have cuCtxPushCurrent of CUDA 12 \(CU_GET_PROC_ADDRESS_SYMBOL_N"):
        NvidiaNative(DriverApi(cuda), 77, driver)


def test_in_a_child_of_fork_it_says_what_to_do(driver: NvidiaDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: 1)
    with pytest.raises(hlojit.ExecutionError, match="CUDA was in use when this process was forked"):
        driver.open()


# --------------------------------------------------------------------------------------------- what there is, and why not


@pytest.fixture
def found(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    monkeypatch.setattr(nvidia_platform, "driver_api", lambda: DriverApi(cuda))
    return cuda


def test_the_platform_is_what_the_driver_tells(found: FakeCuda) -> None:
    platform = nvidia_platform.nvidia_platform()
    assert (platform.target.cpu, platform.dialect.name) == ("sm_90a", "nvptx")
    assert [each.properties.kind for each in platform.drivers] == ["NVIDIA Fake 9000"]
    grid = platform.target.grid
    assert grid is not None and grid.multiprocessors == 132 and round(grid.memory_bandwidth) == 4917


def test_what_a_driver_can_never_do_is_told_from_what_it_cannot_do_now(cuda: FakeCuda) -> None:
    api, codes = DriverApi(cuda), real.CUresult
    kinds = {
        codes.CUDA_ERROR_NOT_SUPPORTED: DriverRefusal,
        codes.CUDA_ERROR_INVALID_VALUE: DriverRefusal,
        codes.CUDA_ERROR_OUT_OF_MEMORY: OutOfDeviceMemory,
        codes.CUDA_ERROR_SYSTEM_NOT_READY: DriverError,
    }
    assert {code: type(api.error("cuGraphInstantiate", code)) for code in kinds} == kinds


def test_reasons(found: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvidia_platform.reason_against() == ""
    monkeypatch.setattr(nvidia_platform.cubin, "cuda_version", lambda: 14)
    assert "the NVIDIA driver is too old: it is for CUDA 13, the installed nvJitLink makes code for CUDA 14" in (
        nvidia_platform.reason_against()
    )
    found.attributes["COMPUTE_CAPABILITY_MAJOR"] = 7
    assert "the GPU is too old: its compute capability is 7.0" in nvidia_platform.reason_against()
    found.fail["cuInit"] = real.CUresult.CUDA_ERROR_NO_DEVICE
    reason = nvidia_platform.reason_against()
    assert reason == "the NVIDIA driver finds no GPU that it can use (CUDA_ERROR_NO_DEVICE: as the driver explains it)"


@pytest.mark.skipif(not MISSING, reason="there is a driver")
def test_without_a_driver_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no NVIDIA driver is installed" in nvidia_platform.reason_against()
    monkeypatch.setattr(nvidia_platform, "find_spec", lambda name: None)
    assert nvidia_platform.reason_against() == "cuda-bindings is not installed (pip install 'hlojit[cuda]')"


def test_nothing_of_nvidias_is_imported_before_it_is_used() -> None:
    script = (
        "import sys, hlojit; from hlojit.extensions import registry; registry().load(); hlojit.devices('cpu'); "
        "print([name for name in sys.modules if name.startswith(('cuda.', 'numba_cuda', 'nvmath'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
