"""The back end ``cuda`` on the simulator, and over NVIDIA's driver as far as that goes without a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hlojit.cuda.backend import CudaBackend
from hlojit.cuda.nvptx import H200
from hlojit.extensions import registry
from hlojit.gpu.driver import Properties

if TYPE_CHECKING:
    from hlojit.cuda.nvidia_driver import NvidiaDriver

    from .fake_cuda import FakeCuda


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Its switch is set, but for ``--gpu``; returns the back end's name."""
    if not request.config.getoption("--gpu"):
        monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    return "cuda"


@pytest.fixture
def cuda() -> FakeCuda:
    """NVIDIA's functions."""
    pytest.importorskip("cuda.bindings.driver")
    from .fake_cuda import FakeCuda

    return FakeCuda()


@pytest.fixture
def driver(cuda: FakeCuda) -> NvidiaDriver:
    """The driver over them."""
    from hlojit.cuda.driver_api import DriverApi
    from hlojit.cuda.nvidia_driver import NvidiaDriver

    made = NvidiaDriver(
        DriverApi(cuda), 0, Properties("NVIDIA Fake 9000", cuda.total, dlpack_device=(2, 0), no_conditional_graphs="")
    )
    made.open()
    return made


@pytest.fixture
def backend(driver: NvidiaDriver, monkeypatch: pytest.MonkeyPatch) -> CudaBackend:
    """The back end with this driver, and the simulator's kernels."""
    from hlojit.cuda.nvidia_platform import product_library
    from hlojit.gpu.simulated_platform import simulated_platform

    platform = replace(simulated_platform(H200, "simulated"), drivers=(driver,), library=product_library)
    monkeypatch.setattr("hlojit.cuda.backend._platform", lambda *switches: platform)
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    found = registry().load().backend("cuda")
    assert isinstance(found, CudaBackend)
    return found
