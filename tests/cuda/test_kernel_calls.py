"""Custom calls that are kernels which a plugin has written: launches on a GPU, substitutes elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.cuda.assemblers import cubin
from hlojit.cuda.assemblers.choice import assembler
from hlojit.cuda.device_functions import numba_function_code
from hlojit.cuda.nvptx import SM_80, SM_90
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.ops.definition import DeviceFunction
from hlojit.lowering.kernel import KernelCode
from numba import cuda, float32, njit

from .ptx_machine import PtxMachine

pytestmark = pytest.mark.usefixtures("simulator")

needs_numba_cuda = pytest.mark.skipif(bool(assembler("numba").unavailable()), reason="needs numba-cuda")
TEXT = """func.func @main(%x: tensor<1000xf32>) -> tensor<1000xf32> {
  %0 = stablehlo.add %x, %x : tensor<1000xf32>
  %1 = stablehlo.custom_call @acme.reverse(%0) : (tensor<1000xf32>) -> tensor<1000xf32>
  %2 = stablehlo.negate %1 : tensor<1000xf32>
  return %2 : tensor<1000xf32>
}"""
X = np.arange(1000, dtype="f4")


@pytest.fixture(autouse=True)
def compiles_on_gpus(request: pytest.FixtureRequest) -> None:
    """On a GPU it is numba.cuda that compiles the kernels, where their substitutes run otherwise."""
    reason = assembler("numba").unavailable() if request.config.getoption("--gpu") else ""
    if reason:
        pytest.skip(reason)


@cuda.jit
def reverse(x: Any, result: Any) -> None:
    i = cuda.grid(1)
    if i < x.size:
        result[i] = x[x.size - 1 - i]


def thirds(call: ext.KernelSite) -> ext.Launch:
    return ext.Launch(-(-call.results[0].size // 256), 256)


def plugin(**changed: Any) -> Any:
    given: dict[str, Any] = {"kernel": reverse, "launch": thirds, "substitute": lambda x: x[::-1]}
    call = ext.KernelCall("acme.reverse", **{**given, **changed})
    return SimpleNamespace(__name__="acme", hlojit_custom_calls=ext.hookimpl(lambda: [call]))


def compiled(text: str = TEXT, backend: str = "cuda", **changed: Any) -> Any:
    with ext.using(plugin(**changed)):
        return hlojit.compile(text, backend=backend)


@pytest.mark.parametrize("backend", ["cuda", "reference"])
def test_the_substitute_runs_where_there_is_no_gpu(backend: str) -> None:
    np.testing.assert_array_equal(compiled(backend=backend)(X), -2 * X[::-1])


def test_a_call_is_one_launch_of_the_asked_geometry() -> None:
    executable = compiled(launch=lambda call: ext.Launch(7, 96, 1024))
    launches = [launch.kernel.phases[0] for launch in executable.spec.program.launches()]
    assert [(each.tasks, each.threads, each.shared_bytes) for each in launches][1] == (7, 96, 1024)
    assert len(launches) == 3


@pytest.mark.simulator_only("its kernel is for other arrays than its substitute")
def test_several_operands_and_results_of_any_shape_and_type() -> None:
    text = """func.func @main(%x: tensor<3x5xui8>, %y: tensor<bf16>, %z: tensor<0xi64>) -> (tensor<5x3xui8>, tensor<2xbf16>, tensor<i1>) {
  %0:3 = stablehlo.custom_call @acme.reverse(%x, %y, %z) : (tensor<3x5xui8>, tensor<bf16>, tensor<0xi64>) -> (tensor<5x3xui8>, tensor<2xbf16>, tensor<i1>)
  return %0#0, %0#1, %0#2 : tensor<5x3xui8>, tensor<2xbf16>, tensor<i1>
}"""
    x, y = np.arange(15, dtype="u1").reshape(3, 5), hlojit.Array.from_values(1.5, "bf16")
    executable = compiled(
        text,
        launch=lambda call: ext.Launch(1, call.operands[0].size),
        substitute=lambda x, y, z: (x.T, np.repeat(y, 2), np.array(not z.size)),
    )
    a, b, c = executable(x, y, np.zeros(0, "i8"))
    np.testing.assert_array_equal(a, x.T)
    np.testing.assert_array_equal(np.asarray(b).astype("f4"), [1.5, 1.5])
    assert bool(c)


@pytest.mark.simulator_only("a GPU runs the kernel, not its substitute")
def test_without_a_substitute_the_simulator_says_so() -> None:
    for backend, match in (
        ("cuda", r"'acme\.reverse' is not supported by the back end 'cuda': .*needs a substitute="),
        ("cpu", r"not supported by the back end 'cpu': it is a kernel written for the back end 'cuda'"),
    ):
        with pytest.raises(hlojit.UnsupportedError, match=match):
            compiled(backend=backend, substitute=None)
    with pytest.raises(hlojit.HlojitError, match="has no substitute= for others"):
        compiled(backend="reference", substitute=None)(X)


@pytest.mark.parametrize(
    ("substitute", "match"),
    [
        (lambda x: x[1:], r"its substitute returned float32\[999\], not float32\[1000\]"),
        (lambda x: x.astype("f8"), r"its substitute returned float64\[1000\], not float32\[1000\]"),
        (lambda x: 1 // 0, r"its substitute raised ZeroDivisionError"),
        (lambda x: x.fill(0), r"its substitute raised ValueError\(.*read-only"),
    ],
    ids=["shape", "type", "error", "operand"],
)
@pytest.mark.simulator_only("a GPU runs the kernel, not its substitute")
def test_what_a_substitute_gets_wrong_is_an_error_that_names_it(substitute: Callable[..., Any], match: str) -> None:
    executable = compiled(substitute=substitute)
    with pytest.raises(hlojit.ExecutionError, match=rf"'acme\.reverse'.*{match}"):
        executable(X)


@pytest.mark.parametrize(
    ("launch", "error", "match"),
    [
        (lambda call: ext.Launch(1, 4096), hlojit.UnsupportedError, r"launched with 4,096 threads of a block, there are 1,024"),
        (lambda call: ext.Launch(1, 32, 1 << 20), hlojit.UnsupportedError, r"launched with 1,048,576 shared bytes"),
        (lambda call: (1, 32), hlojit.PluginError, r"launch returned \(1, 32\), not a Launch"),
        (lambda call: ext.Launch(-1, 32), hlojit.PluginError, r"'acme\.reverse': Launch: blocks are .*, not -1"),
        (lambda call: ext.Launch(0, 32), hlojit.PluginError, r"'acme\.reverse': launch returned no blocks, .* tensor<1000xf32>"),
        (lambda call: call.results[1], hlojit.PluginError, r"launch failed: IndexError"),
    ],
    ids=["threads", "shared", "tuple", "negative", "none", "raises"],
)  # fmt: skip
def test_a_geometry_that_cannot_be_is_refused(launch: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        compiled(launch=launch)


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ((1.5, 32), r"blocks are a whole number from 0 to 2,147,483,647, not 1\.5"),
        ((-1, 32), "blocks are a whole number from 0 to 2,147,483,647, not -1"),
        ((1 << 31, 32), "blocks are a whole number from 0 to 2,147,483,647, not 2147483648"),
        ((True, 32), "blocks are .*, not True"),
        ((1, 0), "threads are a whole number from 1 to 2,147,483,647, not 0"),
        ((1, 32, -4), "shared_bytes are a whole number from 0 to .*, not -4"),
    ],
)
def test_a_launch_that_no_machine_can_do_is_refused_when_it_is_made(sizes: Any, match: str) -> None:
    with pytest.raises(hlojit.PluginError, match=match):
        ext.Launch(*sizes)


@pytest.mark.simulator_only("a GPU runs the kernel, not its substitute")
def test_no_blocks_are_for_results_without_elements() -> None:
    x = np.zeros(0, "f4")
    assert compiled(TEXT.replace("1000", "0"))(x).shape == (0,)


def test_what_is_registered_is_checked_and_listed_as_native() -> None:
    with pytest.raises(hlojit.PluginError, match="'acme.reverse': kernel is None, which is not a function"):
        plugin(kernel=None)
    for kernel in (lambda x, result: None, reverse.py_func, njit(reverse.py_func), np.copyto):
        with pytest.raises(
            hlojit.PluginError, match=r"'acme\.reverse': kernel is .*, no kernel of numba.cuda's: decorate"
        ):
            plugin(kernel=kernel)
    assert plugin(kernel=reverse.py_func, backend="acme")
    assert ext.KernelCall("x", kernel=reverse, launch=thirds).trust == "trusted native"


def test_a_configuration_is_refused() -> None:
    text = TEXT.replace("reverse(%0)", 'reverse(%0) {backend_config = "fast"}')
    with pytest.raises(hlojit.PluginError, match=r"the call has a backend_config, 'fast', which a kernel does not get"):
        compiled(text)


@pytest.mark.simulator_only("a GPU runs the kernel, not its substitute")
def test_a_program_with_a_substitute_is_not_saved(tmp_path: Path) -> None:
    executable = compiled()
    with pytest.raises(
        hlojit.HlojitError,
        match=r"the substitute of custom call target 'acme\.reverse', a Python function that the simulator runs, cannot be identified",
    ):
        executable.save(tmp_path / "program.hlojit")


# ------------------------------------------------------------------------------------------------- what a GPU would get


def code_of(text: str, target: Any, **changed: Any) -> KernelCode:
    with ext.using(plugin(**changed)):
        main = lower(hlojit.parse(text), registry().backend("cuda"), CompileOptions()).main
        (call,) = [each for each in main.body if isinstance(each.op.lowering, DeviceFunction)]
        assert isinstance(call.op.lowering, DeviceFunction)
        return numba_function_code(call, call.op.lowering, target, "entry_of_reverse")


@needs_numba_cuda
@pytest.mark.parametrize("target", [SM_80, SM_90], ids=lambda target: target.cpu)
def test_the_kernel_is_compiled_by_numba_cuda_to_take_addresses(target: Any) -> None:
    code = code_of(TEXT, target, substitute=None)
    assert re.findall(r"\.entry (\w+)\(", code.ir) == ["entry_of_reverse"]
    entry = code.ir[code.ir.index(".entry") :]
    assert len(re.findall(r"\.param \.u64", entry[: entry.index(")")])) == 2
    assert not re.search(r"\bcall\b", code.ir) and "ld.global" in entry and "st.global" in entry
    result = np.zeros(1000, "f4")
    PtxMachine(code.ir).run("entry_of_reverse", blocks=4, threads=256, buffers=[X.copy(), result], shared_bytes=0)
    np.testing.assert_array_equal(result, X[::-1])
    if not cubin.unavailable():
        assert cubin.cubin_of(code.ir, target).usages["entry_of_reverse"].spills == 0


@needs_numba_cuda
def test_a_jitted_kernel_with_shared_memory_barriers_and_helpers() -> None:
    @cuda.jit(device=True)
    def twice(x: float) -> float:
        return x + x

    @cuda.jit
    def rotated(matrix: Any, scale: Any, result: Any) -> None:
        tile = cuda.shared.array(64, float32)
        i = cuda.threadIdx.x
        tile[i] = twice(matrix[cuda.blockIdx.x, i]) * scale[()]
        cuda.syncthreads()
        result[cuda.blockIdx.x, i] = tile[(i + 1) % 64]

    text = """func.func @main(%x: tensor<8x64xf32>, %s: tensor<f32>) -> tensor<8x64xf32> {
  %0 = stablehlo.custom_call @acme.reverse(%x, %s) : (tensor<8x64xf32>, tensor<f32>) -> tensor<8x64xf32>
  return %0 : tensor<8x64xf32>
}"""
    changed: dict[str, Any] = {"kernel": rotated, "launch": lambda call: ext.Launch(8, 64)}
    code = code_of(text, SM_90, **changed)
    assert "bar.sync" in code.ir and ".shared" in code.ir and ".maxntid" in code.ir
    assert not code.unkeyable, "on a GPU it is kept under the content of its source"
    executable = compiled(text, **changed, substitute=lambda x, s: np.roll(2 * x * s, -1, axis=1))
    x = np.random.default_rng(0).random((8, 64), "f4")
    np.testing.assert_array_equal(executable(x, np.float32(3)), np.roll(2 * x * np.float32(3), -1, axis=1))


@needs_numba_cuda
def test_what_numba_cuda_refuses_is_an_error_that_names_the_target() -> None:
    @cuda.jit
    def broken(x: Any, result: Any) -> None:
        result[0] = nonsense  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(
        hlojit.PluginError, match=r"'acme\.reverse': numba\.cuda cannot compile its kernel: (?s:.*)nonsense"
    ):
        code_of(TEXT, SM_90, kernel=broken)
