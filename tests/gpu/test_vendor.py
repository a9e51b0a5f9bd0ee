"""A vendor's GPU in a page: a back end over ``hlojit.gpu`` with a machine of its own, warps of 64 threads, its own name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import hlojit
import numpy as np
import pytest
from hlojit.extensions import Backend, hookimpl, registry
from hlojit.gpu.backend import GpuBackend
from hlojit.gpu.platforms import Platform
from hlojit.lowering.fusion_kind import FusionKind
from hlojit.lowering.grid_machine import GridMachine
from hlojit.simt.kernels import ANCHORS, has_fusion

MACHINE = GridMachine(60, warp=64, shared_bytes=64 << 10, registers_per_thread=256, memory_bandwidth=1600.0)


@cache
def platform() -> Platform:
    from hlojit.gpu.simulated_platform import simulated_platform

    return simulated_platform(MACHINE, "Acme 64", devices=2)


class AcmeBackend(GpuBackend):
    """The vendor's."""

    name, machine = "acme64", "Acme GPU"
    reason: str | None = None

    def unavailable(self) -> str | None:
        return self.reason

    def platform(self) -> Platform:
        return platform()


class Plugin:
    hlojit_api = (1, 1)

    def __init__(self, backend: Backend):
        self.backend = backend

    @hookimpl
    def hlojit_backends(self) -> Sequence[Backend]:
        return [self.backend]


@pytest.fixture
def acme() -> Iterator[AcmeBackend]:
    made = AcmeBackend()
    with registry().load().using(Plugin(made)):
        yield made


def softmax(x: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)  # type: ignore[no-any-return]


def test_programs_run_on_the_vendors_devices(acme: AcmeBackend) -> None:
    x = np.random.default_rng(0).standard_normal((40, 300)).astype("f4")
    f = hlojit.jit(softmax, backend="acme64")
    np.testing.assert_allclose(f(x), softmax(x), rtol=2e-6)
    np.testing.assert_allclose(f(hlojit.put(x, "acme64:1")), softmax(x), rtol=2e-6)
    assert [str(each) for each in hlojit.devices("acme64")] == ["acme64:0", "acme64:1"]


def test_its_programs_are_not_those_of_another_machine(
    acme: AcmeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    text = str(hlojit.jit(softmax).lower(np.zeros((40, 300), "f4")))
    codes = [
        {launch.kernel.symbol for launch in hlojit.compile(text, backend=name).spec.program.launches()}
        for name in ("acme64", "cuda")
    ]
    assert not codes[0] & codes[1]


def test_a_gpu_that_is_not_there_says_why(acme: AcmeBackend) -> None:
    acme.reason = "no Acme driver (libacme.so) is installed"
    with pytest.raises(
        hlojit.HlojitError, match=r"'acme64' cannot be used here: no Acme driver \(libacme.so\) is installed"
    ):
        hlojit.compile(str(hlojit.jit(softmax).lower(np.zeros((4, 3), "f4"))), backend="acme64")


def test_fusions_have_emitters() -> None:
    """The back end says what it fuses without loading those who compute it."""
    limits = GpuBackend.fusion_limits
    assert limits.rows == has_fusion(FusionKind.ROW) and limits.anchors == ANCHORS


def test_the_runtime_of_gpus_imports_nothing_of_nvidias() -> None:
    script = (
        "import sys, hlojit.gpu.backend, hlojit.gpu.simulated_platform; "
        "print([name for name in sys.modules if name.startswith(('hlojit.cuda', 'cuda', 'numba'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("length", [300, 5000, 9001])
def test_sorts_by_keys_are_those_of_warps_of_32(acme: AcmeBackend, length: int) -> None:
    """Ranks come from votes of 64 lanes; a block's shared memory is smaller."""
    x = np.random.default_rng(length).integers(-9, 10, (2, length)).astype("i2")
    places = np.tile(np.arange(length, dtype="i4"), (2, 1))
    tensors = f"tensor<2x{length}xi16>", f"tensor<2x{length}xi32>"
    text = f"""
    func.func @main(%x: {tensors[0]}, %i: {tensors[1]}) -> ({tensors[0]}, {tensors[1]}, tensor<2x9xi16>, tensor<2x9xi32>) {{
      %0:2 = "stablehlo.sort"(%x, %i) ({{
      ^bb0(%a: tensor<i16>, %b: tensor<i16>, %c: tensor<i32>, %d: tensor<i32>):
        %1 = stablehlo.compare LT, %a, %b : (tensor<i16>, tensor<i16>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      }}) {{dimension = 1 : i64, is_stable = true}} : ({tensors[0]}, {tensors[1]}) -> ({tensors[0]}, {tensors[1]})
      %2:2 = chlo.top_k(%x, k = 9) : {tensors[0]} -> (tensor<2x9xi16>, tensor<2x9xi32>)
      return %0#0, %0#1, %2#0, %2#1 : {tensors[0]}, {tensors[1]}, tensor<2x9xi16>, tensor<2x9xi32>
    }}"""
    found = hlojit.compile(text, backend="acme64")(x, places)
    order, largest = np.argsort(x, axis=1, kind="stable"), np.argsort(-x, axis=1, kind="stable")[:, :9]
    for ours, wanted in zip(
        found, (np.take_along_axis(x, order, 1), order, np.take_along_axis(x, largest, 1), largest)
    ):
        np.testing.assert_array_equal(ours, wanted)
