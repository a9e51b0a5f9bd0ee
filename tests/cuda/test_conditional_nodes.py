"""Loops and branches in CUDA graphs as far as that goes without a GPU: kernels that set conditions, and the driver's functions."""

from __future__ import annotations

import gc
import re
import struct
from functools import partial
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.cuda import conditional_nodes, cublaslt, nvidia_platform
from hlojit.cuda.assemblers.choice import NAMES, assembler
from hlojit.cuda.assemblers.cubin import cubin_of, unavailable
from hlojit.cuda.backend import CudaBackend
from hlojit.cuda.driver_api import DriverApi
from hlojit.cuda.nvidia_driver import NvidiaDriver
from hlojit.cuda.nvptx import SM_80, SM_90, SM_100, NvptxDialect
from hlojit.ir.errors import HlojitError
from hlojit.lowering.target import Target
from hlojit.simt.amdgpu import AmdgpuDialect
from hlojit.simt.conditions import CASE, LOOP, PREDICATE, condition_kernels
from hlojit.simt.simulator.dialect import SimulatorDialect
from hlojit.simt.simulator.module import SimulatedModule, assemble

from ..loop_programs import PROGRAMS, array
from .fake_cublaslt import FakeLt
from .fake_cuda import FakeCuda, real
from .ptx_machine import PtxMachine

TARGETS = pytest.mark.parametrize("target", [SM_80, SM_90, SM_100], ids=lambda target: target.cpu)
ASSEMBLERS = pytest.mark.parametrize("name", NAMES)
SETTER = "cudaGraphSetConditional"

CASES: list[tuple[str, list[Any], int]] = [
    *((LOOP, [np.uint8(p), np.int32(s)], int(bool(p) and not s)) for p in (0, 1, 255) for s in (0, 1, 0x01010101)),
    *((PREDICATE, [np.uint8(p)], 0 if p else 1) for p in (0, 1, 128)),
    *(
        (CASE, [np.int32(i), n], i if 0 <= i < n else n - 1)
        for n in (1, 2, 5)
        for i in (-(2**31), -1, 0, 1, 2, 4, 5, 99)
    ),
]
"""Kernel, what it is given, and the condition that it has to set."""


@ASSEMBLERS
@pytest.mark.parametrize(("symbol", "given", "expected"), CASES)
def test_what_the_kernels_set(name: str, symbol: str, given: list[Any], expected: int) -> None:
    machine = PtxMachine(ptx_of(name, SM_90)[symbol])
    handle = 0x123456789ABCDE01
    buffers = [each if isinstance(each, int) else np.full(1, each) for each in given]
    machine.run(symbol, blocks=1, threads=1, buffers=[*buffers, handle])
    assert machine.calls == [(SETTER, (handle, expected))]


@pytest.mark.parametrize(("symbol", "given", "expected"), CASES)
def test_what_the_simulators_kernels_set(symbol: str, given: list[Any], expected: int) -> None:
    codes = {code.symbol: code for code in condition_kernels(SimulatorDialect())}
    module = SimulatedModule([assemble(codes[symbol])], [symbol])
    memory = np.zeros(256 * 5, np.uint8)
    start = -memory.ctypes.data % 256
    addresses = []
    for number, each in enumerate(given):
        if isinstance(each, int):
            addresses.append(each)
        else:
            place = memory[start + 256 * number :]
            place[: each.nbytes] = np.frombuffer(each.tobytes(), "u1")
            addresses.append(place.ctypes.data)
    word = np.full(1, 77, np.uint32)
    module.launch(symbol, [*addresses, word.ctypes.data], 1, 1)
    assert word[0] == expected


_TEXTS: dict[tuple[str, str], dict[str, str]] = {}


def ptx_of(name: str, target: Target) -> dict[str, str]:
    key = name, target.cpu
    if key not in _TEXTS:
        _TEXTS[key] = {code.symbol: assembler(name).ptx(code, target) for code in condition_kernels(NvptxDialect())}
    return _TEXTS[key]


@pytest.mark.skipif(bool(unavailable()), reason=unavailable())
@TARGETS
@ASSEMBLERS
@pytest.mark.parametrize("symbol", [LOOP, CASE, PREDICATE])
def test_machine_code_leaves_the_setter_to_the_driver(name: str, target: Target, symbol: str) -> None:
    """No library is linked: one function is undefined in the machine code, and of another name the assembler would not take it."""
    ptx = ptx_of(name, target)[symbol]
    assert re.findall(r"call\.uni (\w+)", re.sub(r"\s+", " ", ptx)) == [SETTER]
    made = cubin_of(ptx, target)
    assert set(undefined_functions(made.image)) == {SETTER}
    assert made.usages[symbol].spills == 0
    with pytest.raises(HlojitError, match="Undefined reference to 'somebodyElses'"):
        cubin_of(ptx.replace(SETTER, "somebodyElses"), target)


def undefined_functions(image: bytes) -> list[str]:
    """Symbols of an ELF file that are functions of no section."""
    (sections,), (size, count) = struct.unpack_from("<Q", image, 40), struct.unpack_from("<HH", image, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, sections + size * number) for number in range(count)]
    found = []
    for _, kind, _, _, offset, nbytes, link, _, _, entry in headers:
        if kind == 2:
            names = headers[link][4]
            for place in range(offset, offset + nbytes, entry):
                name, information, _, section = struct.unpack_from("<IBBH", image, place)
                if information & 15 == 2 and section == 0:
                    found.append(image[names + name : image.index(b"\0", names + name)].decode())
    return found


def test_a_kernel_that_calls_anything_else_is_refused() -> None:
    for code in condition_kernels(NvptxDialect()):
        broken = type(code)(code.ir.replace(SETTER, "cudaGraphLaunch"), code.phases)
        with pytest.raises(HlojitError, match="calls cudaGraphLaunch, which nobody defines"):
            assembler("llvm").ptx(broken, SM_90)


def test_machines_without_such_graphs_have_no_such_kernels() -> None:
    assert condition_kernels(AmdgpuDialect()) == ()


# -------------------------------------------------------------------------------------------------------------- driver


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_one_graph(cuda: FakeCuda, backend: CudaBackend, name: str) -> None:
    size, text = PROGRAMS[name]
    f, expected = hlojit.compile(text, backend="cuda"), hlojit.compile(text, backend="cpu")
    for n, m in [(0, 0), (1, 1), (2, -1), (3, 2), (4, 1)]:
        arguments = [hlojit.put(each, "cuda") for each in (array(size), np.int32(n), np.int32(m))]
        for each in arguments:
            each.wait()
        cuda.calls.clear()
        y = f.execute(*arguments)
        y.wait()
        assert cuda.calls.count("cuGraphLaunch") == 1 and "cuMemcpyDtoHAsync" not in cuda.calls
        np.testing.assert_array_equal(hlojit.get(y), expected(array(size), np.int32(n), np.int32(m)))


@pytest.mark.parametrize("refuses", ["", "cuGraphExecKernelNodeSetParams", "cuGraphExecMemcpyNodeSetParams"])
def test_graphs_are_told_new_addresses(cuda: FakeCuda, backend: CudaBackend, refuses: str) -> None:
    """What has other addresses, in bodies of bodies too; a graph that the driver does not let be told is made anew."""
    size, text = PROGRAMS["exchanging loop in a case"]
    f, expected = hlojit.compile(text, backend="cuda"), hlojit.compile(text, backend="cpu")
    n, m = hlojit.put(np.int32(3), "cuda"), hlojit.put(np.int32(0), "cuda")
    kept = []
    for number in range(7):
        if refuses and number == 5:
            cuda.fail[refuses] = real.CUresult.CUDA_ERROR_NOT_SUPPORTED
        x = array(size) + np.float32(number)
        kept.append((on_device := hlojit.put(x, "cuda"), f(on_device, n, m)))
        np.testing.assert_array_equal(hlojit.get(kept[-1][1]), expected(x, np.int32(3), np.int32(0)))
    assert cuda.calls.count("cuGraphInstantiate") == 4 + bool(refuses) and not cuda.fail
    assert {"cuGraphExecKernelNodeSetParams", "cuGraphExecMemcpyNodeSetParams"} <= set(cuda.calls)
    del f
    gc.collect()
    assert not any(kind in ("CUgraph", "CUgraphExec") for kind, _ in cuda.live)


PRODUCT = """
func.func @main(%x: tensor<64x64xbf16>, %n: tensor<i32>) -> tensor<64x64xbf16> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<64x64xbf16>
   cond {
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %w = stablehlo.dot_general %v, %x, contracting_dims = [1] x [0]
      : (tensor<64x64xbf16>, tensor<64x64xbf16>) -> tensor<64x64xbf16>
    stablehlo.return %j, %w : tensor<i32>, tensor<64x64xbf16>
  }
  return %r#1 : tensor<64x64xbf16>
}"""


def test_products_by_a_library_in_a_loop(cuda: FakeCuda, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are captured like kernels; memory that the library works in is no part of what is captured."""
    lt = FakeLt()
    monkeypatch.setattr("hlojit.lowering.library_product.FEWEST_MACS", 1 << 10)
    monkeypatch.setattr(cublaslt, "unavailable", lambda: "")
    monkeypatch.setattr(cublaslt, "load_bindings", lambda: lt)
    monkeypatch.setattr(lt, "matmul", lambda *given: cuda._put(given[-1], partial(FakeLt.matmul, lt, *given)))
    f = hlojit.compile(PRODUCT, backend="cuda")
    permutation = np.eye(64, dtype="f4")[np.random.default_rng(0).permutation(64)]
    for n in (0, 1, 2, 5):
        found = f(hlojit.Array.from_values(permutation, "bf16"), np.int32(n))
        np.testing.assert_array_equal(np.asarray(found, "f4"), np.linalg.matrix_power(permutation, n + 1))
    assert lt.calls == 8 and "cuGraphAddNode" in cuda.calls
    assert len({workspace for _, workspace in lt.workspaces}) == 1


def test_graphs_that_are_dropped_are_destroyed(cuda: FakeCuda, backend: CudaBackend) -> None:
    size, text = PROGRAMS["case in a loop"]
    f = hlojit.compile(text, backend="cuda")
    for n in range(3):
        f(array(size), np.int32(n), np.int32(0))
    assert "cuGraphAddNode" in cuda.calls
    del f
    backend.devices()[0].put(np.zeros(1, "f4")).ready.wait()
    assert not any(kind in ("CUgraph", "CUgraphExec") for kind, _ in cuda.live)


def test_what_the_driver_refuses_is_read_back(cuda: FakeCuda, backend: CudaBackend) -> None:
    size, text = PROGRAMS["loop"]
    f = hlojit.compile(text, backend="cuda")
    cuda.fail["cuGraphInstantiate"] = real.CUresult.CUDA_ERROR_NOT_SUPPORTED
    expected = hlojit.compile(text, backend="cpu")(array(size), np.int32(3), np.int32(0))
    for _ in range(2):
        np.testing.assert_array_equal(f(array(size), np.int32(3), np.int32(0)), expected)
    assert cuda.calls.count("cuGraphInstantiate") == 1
    assert not any(kind in ("CUgraph", "CUgraphExec") for kind, _ in cuda.live)


def test_a_fault_in_a_loop_names_what_ran(cuda: FakeCuda, backend: CudaBackend) -> None:
    size, text = PROGRAMS["loop"]
    f = hlojit.compile(text, backend="cuda")
    arguments = [hlojit.put(each, "cuda") for each in (array(size), np.int32(3), np.int32(0))]
    for each in arguments:
        each.wait()
    f(*arguments)
    cuda.fail["cuEventSynchronize"] = real.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(hlojit.ExecutionError, match="one of .*the condition of a loop"):
        f.execute(*arguments).wait()


def test_old_drivers_have_no_such_graphs(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_platform, "driver_api", lambda: DriverApi(cuda))
    (driver,) = nvidia_platform.nvidia_platform().drivers
    assert isinstance(driver, NvidiaDriver) and driver.properties.no_conditional_graphs == ""
    monkeypatch.setattr(cuda, "do_cuDriverGetVersion", lambda: 12040)
    assert conditional_nodes.reason_against(DriverApi(cuda)) == (
        "the NVIDIA driver is for CUDA 12.4, graphs with loops and branches came with CUDA 12.8"
    )
