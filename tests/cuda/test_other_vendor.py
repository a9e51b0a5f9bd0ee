"""A vendor of another machine with threads: his own back end, AMD's dialect for its images, the simulator to run on.

Written from docs/cuda.md alone: what it imports is what a vendor imports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, final

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.gpu.backend import GpuBackend
from hlojit.gpu.platforms import Platform
from hlojit.gpu.simulated_platform import simulated_platform
from hlojit.lowering.kernel import KernelCode
from hlojit.machine_code.worker_process import compile_apart
from hlojit.simt.amdgpu import GFX942, MI300X, AmdgpuDialect

TABLE = np.arange(64, dtype="f4") ** 2


def gain(x: float) -> float:
    return x * TABLE[int(x) % 64]


SIX = ext.FloatFormat(
    "redsix", exponent_bits=3, mantissa_bits=2, bias=3, has_infinity=False, nan=ext.NanEncoding.NONE,
    overflow=ext.Overflow.SATURATE)  # fmt: skip


@final
class RedBackend(GpuBackend):
    """Red GPUs: without one, the simulator of a machine of their size, with wavefronts of 64."""

    name, machine = "red", "Red GPU"

    def __init__(self) -> None:
        super().__init__()
        self._platform = simulated_platform(MI300X, "simulated MI300X")

    def platform(self) -> Platform:
        return self._platform


def assemble(codes: Sequence[KernelCode]) -> Mapping[str, bytes]:
    """What the vendor's platform would have with GPUs in the machine: GCN code objects."""
    return {
        code.symbol: compile_apart(
            code.ir, GFX942, pipeline="threads", linked=[text for _, text in code.linked], what=f"kernel {code.symbol}"
        )
        for code in codes
    }


@final
class AssemblingBackend(GpuBackend):
    """The same vendor on a machine where programs are compiled and not run."""

    name, machine = "redcode", "Red GPU"

    def __init__(self) -> None:
        super().__init__()
        self._platform = Platform(GFX942, AmdgpuDialect(64), assemble, ())

    def platform(self) -> Platform:
        return self._platform


@pytest.fixture(autouse=True)
def plugin() -> Any:
    backends: list[ext.Backend] = [RedBackend(), AssemblingBackend()]
    brought = SimpleNamespace(
        __name__="red",
        hlojit_api=(1, 1),
        hlojit_backends=ext.hookimpl(lambda: backends),
        hlojit_formats=ext.hookimpl(lambda: [SIX]),
        hlojit_custom_calls=ext.hookimpl(lambda: [ext.ElementwiseCall("red.gain", function=gain)]),
    )
    with ext.using(brought):
        yield


SOFTMAX = """func.func @main(%x: tensor<48x300xf32>) -> (tensor<48x300xf32>, tensor<300x48xf32>, tensor<48xredsix>) {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %g = stablehlo.custom_call @red.gain(%x) : (tensor<48x300xf32>) -> tensor<48x300xf32>
  %m = stablehlo.reduce(%g init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<48x300xf32>, tensor<f32>) -> tensor<48xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<48xf32>) -> tensor<48x300xf32>
  %d = stablehlo.subtract %g, %mb : tensor<48x300xf32>
  %e = stablehlo.exponential %d : tensor<48x300xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<48x300xf32>, tensor<f32>) -> tensor<48xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<48xf32>) -> tensor<48x300xf32>
  %r = stablehlo.divide %e, %sb : tensor<48x300xf32>
  %t = stablehlo.transpose %g, dims = [1, 0] : (tensor<48x300xf32>) -> tensor<300x48xf32>
  %six = stablehlo.convert %s : (tensor<48xf32>) -> tensor<48xredsix>
  return %r, %t, %six : tensor<48x300xf32>, tensor<300x48xf32>, tensor<48xredsix>
}"""


def test_programs_run_on_the_vendor_s_back_end() -> None:
    x = np.random.default_rng(0).integers(-3, 4, (48, 300)).astype("f4") / 2
    found, theirs = (hlojit.compile(SOFTMAX, backend=backend)(x) for backend in ("red", "cpu"))
    np.testing.assert_allclose(found[0], theirs[0], rtol=1e-6)
    np.testing.assert_array_equal(found[1], theirs[1])
    np.testing.assert_array_equal(found[2].storage, theirs[2].storage)
    assert hlojit.devices("red")[0].kind == "simulated MI300X"


def test_failures_of_functions_are_reported_there_too() -> None:
    def find(x: int) -> float:
        return TABLE[x]

    calls = [ext.ElementwiseCall("red.find", function=find)]
    text = "func.func @main(%x: tensor<99xi32>) -> tensor<99xf32> {\n%0 = stablehlo.custom_call @red.find(%x) : (tensor<99xi32>) -> tensor<99xf32>\nreturn %0 : tensor<99xf32>\n}"
    with ext.using(SimpleNamespace(__name__="find", hlojit_custom_calls=ext.hookimpl(lambda: calls))):
        executable = hlojit.compile(text, backend="red")
    np.testing.assert_array_equal(executable(np.full(99, 3, "i4")), np.full(99, 9.0, "f4"))
    with pytest.raises(hlojit.ExecutionError, match=r"main on red:0: .*an index is out of range in .*find"):
        executable(np.full(99, 64, "i4"))


def test_the_same_program_becomes_code_objects() -> None:
    """Formats and functions of plugins included."""
    backend = ext.registry().backend("redcode")
    from hlojit.compiler import lower

    module = lower(hlojit.parse(SOFTMAX), backend, ext.CompileOptions()).freeze()
    compiled: Any = backend.compile(module, ext.CompileOptions())
    images = [bytes(image) for _, image in compiled.objects]
    assert images and all(image[:4] == b"\x7fELF" for image in images)
