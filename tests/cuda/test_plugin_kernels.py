"""Kernels of plugins on GPUs: functions of numba.cuda for ops, composites, subgraphs and groups."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.cuda.assemblers.choice import assembler
from hlojit.cuda.device_functions import numba_function_code
from hlojit.cuda.nvptx import SM_90
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.ops.internal import device_function
from numba import cuda

pytestmark = pytest.mark.usefixtures("simulator")

needs_numba_cuda = pytest.mark.skipif(bool(assembler("numba").unavailable()), reason="needs numba-cuda")
TEXT = """func.func @main(%x: tensor<30x50xf32>) -> tensor<30x50xf32> {
  %0 = stablehlo.add %x, %x : tensor<30x50xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<30x50xf32>) -> tensor<50x30xf32>
  %2 = stablehlo.sine %1 : tensor<50x30xf32>
  %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<50x30xf32>) -> tensor<30x50xf32>
  return %3 : tensor<30x50xf32>
}"""
X = np.linspace(-3, 3, 1500, dtype="f4").reshape(30, 50)


@pytest.fixture(autouse=True)
def compiles_on_gpus(request: pytest.FixtureRequest) -> None:
    """On a GPU it is numba.cuda that compiles the kernels, where their substitutes run otherwise."""
    reason = assembler("numba").unavailable() if request.config.getoption("--gpu") else ""
    if reason:
        pytest.skip(reason)


@cuda.jit
def doubled(x: Any, result: Any) -> None:
    i = cuda.grid(1)
    if i < x.size:
        row, column = i // x.shape[1], i % x.shape[1]
        result[row, column] = x[row, column] + x[row, column]


def of_elements(site: ext.KernelSite) -> ext.Launch:
    return ext.Launch(-(-site.results[0].size // 128), 128)


def plugin(pattern: Any, **given: Any) -> Any:
    def build(group: ext.KernelGroup) -> Any:
        assert group.backend == "cuda" and group.target.grid is not None
        return ext.CudaKernel(doubled, **{"launch": of_elements, **given})

    found = ext.Kernel("nova.double", backend="cuda", pattern=pattern, build=build, cost=1.0)
    return SimpleNamespace(__name__="nova", hlojit_kernels=ext.hookimpl(lambda: [found]))


PATTERNS = [
    ext.OpPattern("stablehlo.add"),
    ext.SubgraphPattern(lambda each: [each], root="stablehlo.add"),
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=["op", "subgraph"])
def test_a_function_of_numba_cuda_computes_a_group_and_the_graph_stands_in_for_it(pattern: Any) -> None:
    with ext.using(plugin(pattern)):
        executable = hlojit.compile(TEXT, backend="cuda")
    np.testing.assert_allclose(executable(X), np.sin(2 * X), rtol=2e-6, atol=1e-6)
    first, *_ = executable.spec.program.launches()
    assert first.instruction_name == "nova.double"
    phase = first.kernel.phases[0]
    assert (phase.tasks, phase.threads) == (12, 128)


@pytest.mark.simulator_only("a GPU runs the kernel, not its substitute")
def test_a_substitute_of_its_own_runs_in_the_simulator() -> None:
    with ext.using(plugin(PATTERNS[0], substitute=lambda x: 0 * x, launch=ext.Launch(12, 128))):
        np.testing.assert_array_equal(hlojit.compile(TEXT, backend="cuda")(X), 0 * X)
    with ext.using(plugin(PATTERNS[0], substitute=lambda x: x[1:])):
        executable = hlojit.compile(TEXT, backend="cuda")
    with pytest.raises(hlojit.ExecutionError, match=r"kernel 'nova.double' \(plugin 'nova'\): its substitute returned"):
        executable(X)


@pytest.mark.simulator_only("its kernel is for other arrays than its graph")
def test_groups_of_the_fusion_passes_are_taken_over() -> None:
    text = """func.func @main(%x: tensor<30x50xf32>) -> tensor<30xf32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.multiply %x, %x : tensor<30x50xf32>
      %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1]
         : (tensor<30x50xf32>, tensor<f32>) -> tensor<30xf32>
      return %1 : tensor<30xf32>
    }"""
    with ext.using(plugin(ext.AnchorPattern("stablehlo.reduce"))):
        executable = hlojit.compile(text, backend="cuda")
        report = hlojit.kernel_report(text, backend="cuda")
    assert [launch.instruction_name for launch in executable.spec.program.launches()] == ["nova.double"]
    assert "nova.double (plugin 'nova') for reduction fusion of 3 instructions around stablehlo.reduce" in str(report)
    np.testing.assert_allclose(executable(X), (X * X).sum(axis=1), rtol=1e-5)


LINEAR = """func.func @main(%x: tensor<20x30xf32>, %w: tensor<30x40xf32>, %b: tensor<40xf32>) -> tensor<20x40xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<20x40xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<20x30xf32>, tensor<30x40xf32>) -> tensor<20x40xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<40xf32>) -> tensor<20x40xf32>
  %2 = stablehlo.add %0, %1 : tensor<20x40xf32>
  %3 = stablehlo.maximum %2, %zero : tensor<20x40xf32>
  return %3 : tensor<20x40xf32>
}"""


@cuda.jit
def linear_relu(x: Any, w: Any, bias: Any, result: Any) -> None:
    i = cuda.grid(1)
    if i < result.size:
        row, column = i // result.shape[1], i % result.shape[1]
        total = np.float32(0.0)
        for k in range(x.shape[1]):
            total += x[row, k] * w[k, column]
        result[row, column] = max(total + bias[column], np.float32(0.0))


def test_a_product_with_what_follows_it_is_one_group() -> None:
    """A function of numba.cuda computes the whole of it, or declines, and hlojit's own kernel does."""
    groups: list[list[str]] = []

    def build(group: ext.KernelGroup) -> Any:
        groups.append([each.op.name.partition(".")[2] for each in group.instructions])
        x, w, _ = group.operand_types
        if x.shape[0] * w.shape[1] % 2:
            return ext.Declined("pairs of results are wanted")
        return ext.CudaKernel(linear_relu, of_elements)

    pattern = ext.AnchorPattern("stablehlo.dot_general")
    kernel = ext.Kernel("nova.linear", backend="cuda", pattern=pattern, build=build)
    rng = np.random.default_rng(0)
    for rows, columns in ((20, 40), (21, 39)):
        text = LINEAR.replace("20x", f"{rows}x").replace("40xf32", f"{columns}xf32")
        with ext.using(SimpleNamespace(__name__="nova", hlojit_kernels=ext.hookimpl(lambda: [kernel]))):
            executable = hlojit.compile(text, backend="cuda")
        x, w, b = (rng.standard_normal(shape).astype("f4") for shape in ((rows, 30), (30, columns), (columns,)))
        np.testing.assert_allclose(executable(x, w, b), np.maximum(x @ w + b, 0), rtol=1e-4, atol=1e-5)
        (launch,) = executable.spec.program.launches()
        assert (launch.instruction_name == "nova.linear") == (rows == 20)
    assert {"dot_general", "broadcast_in_dim", "add", "maximum"} <= set(groups[0])


@needs_numba_cuda
def test_it_becomes_ptx_with_the_shapes_known() -> None:
    with ext.using(plugin(PATTERNS[0])):
        backend = registry().backend("cuda")
        module = lower(hlojit.parse(TEXT), backend, CompileOptions())
        (taken,) = [each for each in module.main.body if device_function(each) is not None]
        function = device_function(taken)
        assert function is not None
        code = numba_function_code(taken, function, SM_90, "nova_double")
    assert ".visible .entry nova_double(" in code.ir and not code.unkeyable


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"launch": lambda site: 7}, r"kernel 'nova.double' \(plugin 'nova'\): launch returned 7, not a Launch"),
        ({"launch": lambda site: 1 // 0}, r"kernel 'nova.double' \(plugin 'nova'\): launch failed: ZeroDivisionError"),
        ({"launch": ext.Launch(1, 4096)}, r"it is launched with 4,096 threads of a block, there are 1,024"),
        ({"launch": 3}, r"CudaKernel: launch is 3; give a Launch"),
    ],
    ids=["type", "error", "threads", "number"],
)
def test_wrong_launches_are_errors_that_name_the_kernel(given: Any, match: str) -> None:
    with (
        ext.using(plugin(PATTERNS[0], **given)),
        pytest.raises((hlojit.PluginError, hlojit.UnsupportedError), match=match),
    ):
        hlojit.compile(TEXT, backend="cuda")


def test_functions_of_the_host_are_no_kernels_for_gpus_and_others_are_none_for_the_host() -> None:
    def build(group: ext.KernelGroup) -> Any:
        return ext.ArrayFunction(lambda x, result: None)

    wrong = ext.Kernel("nova.host", backend="cuda", pattern=PATTERNS[0], build=build)
    with (
        ext.using(SimpleNamespace(__name__="nova", hlojit_kernels=ext.hookimpl(lambda: [wrong]))),
        pytest.raises(hlojit.PluginError, match="on 'cuda' a kernel is one of CudaKernel, or Declined"),
    ):
        hlojit.compile(TEXT, backend="cuda")
    with pytest.raises(hlojit.PluginError, match=r"CudaKernel: kernel is .*decorate the function with @numba.cuda.jit"):
        ext.CudaKernel(lambda x: None, of_elements)
