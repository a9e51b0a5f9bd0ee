"""Back ends with several devices: virtual ones of the CPU, simulated GPUs."""

from __future__ import annotations

import pytest
from hlojit.extensions.devices.host_device import HostDevice

DEVICES = 8


def make_devices(name: str, monkeypatch: pytest.MonkeyPatch, count: int = DEVICES) -> None:
    """Give a back end so many devices."""
    owners = {"cpu": "hlojit.cpu.backend.cpu_devices", "reference": "hlojit.reference.plugin.reference_devices"}
    if name in owners:
        made = tuple(HostDevice(name, number) for number in range(count))
        monkeypatch.setattr(owners[name], lambda: made)
    else:
        monkeypatch.setenv("HLOJIT_CUDA", f"simulator devices={count}")


@pytest.fixture(params=["cpu", "cuda"])
def several(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a back end that has eight devices."""
    name: str = request.param
    make_devices(name, monkeypatch)
    return name


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> str:
    """Eight virtual devices of the CPU."""
    make_devices("cpu", monkeypatch)
    return "cpu"


@pytest.fixture(params=["cpu", "cuda", "reference"])
def every(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same of all back ends, the interpreter among them."""
    name: str = request.param
    make_devices(name, monkeypatch)
    return name
