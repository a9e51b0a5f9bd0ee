"""The identity of a back end is that of what it compiles: what runs have made is not looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.extensions.devices.host_device import HostDevice
from hlojit.gpu.backend import GpuBackend
from hlojit.gpu.platforms import Platform
from hlojit.gpu.simulated_platform import simulated_platform
from hlojit.ir import evaluate
from hlojit.ir.environment import tables
from hlojit.ir.fingerprint import ContentWalk, NotKeyable, fingerprint
from hlojit.ir.process_identity import process_identity
from hlojit.lowering.grid_machine import GridMachine

X = np.float32([1, 2, 3])


class Acme(GpuBackend):
    """A vendor's, which holds its platform."""

    name, machine = "acme32", "Acme GPU"

    def __init__(self) -> None:
        super().__init__()
        self.made = simulated_platform(GridMachine(60), "Acme 32")

    def platform(self) -> Platform:
        return self.made


class OnHost(ext.Backend):
    """One whose devices are the host's."""

    name = "onhost"

    def __init__(self) -> None:
        self.factor = 2.0

    def capability(self, instruction: Any) -> Any:
        return ext.YES

    def compile(self, module: Any, options: Any) -> Any:
        return lambda *arrays: [np.float32(self.factor) * each for each in evaluate(module, *arrays)]


class Holding(OnHost):
    """One that keeps its devices itself."""

    name = "holding"

    def __init__(self) -> None:
        super().__init__()
        self.kept = [HostDevice(self.name)]

    def devices(self) -> Sequence[ext.Device]:
        return self.kept


def plugin_of(backend: ext.Backend) -> Any:
    return SimpleNamespace(__name__="acme", hlojit_api=(1, 1), hlojit_backends=ext.hookimpl(lambda: [backend]))


@pytest.fixture
def visited(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often values of each class were looked at."""
    found: Counter[str] = Counter()
    put = ContentWalk.put

    def counted(walk: ContentWalk, value: Any) -> None:
        found[f"{type(value).__module__}.{type(value).__qualname__}"] += 1
        put(walk, value)

    monkeypatch.setattr(ContentWalk, "put", counted)
    yield found


@pytest.mark.parametrize("make", [Acme, OnHost, Holding])
def test_a_back_end_that_has_run_is_what_it_was(make: type[Any], visited: Counter[str]) -> None:
    backend = make()
    plugin = plugin_of(backend)
    for _ in range(2):
        visited.clear()
        with ext.using(plugin):
            before = tables().identity
    first = visited.total()
    assert 0 < first < 1000
    with ext.using(plugin):
        f = hlojit.jit(lambda x: x + x, backend=backend.name)
        y = f(hlojit.put(X, backend.name))
        assert np.asarray(y).shape == (3,) and backend.devices()
    visited.clear()
    with ext.using(plugin):
        assert tables().identity == before
    assert visited.total() <= first
    inside = ("hlojit.gpu.", "hlojit.extensions.devices.events", "hlojit.runtime.", "threading.", "_thread.")
    runtime = [name for name in visited if name.startswith(inside) and "Platform" not in name]
    assert not runtime, "nothing that belongs to runs"


def test_a_device_counts_by_itself() -> None:
    device, other = HostDevice("acme"), HostDevice("acme")
    with pytest.raises(NotKeyable, match="HostDevice"):
        fingerprint(device)
    one, again, two = (process_identity(device, {"device": each}) for each in (device, device, other))
    assert one == again != two


def test_what_a_back_end_says_of_itself_counts() -> None:
    backend = OnHost()
    with ext.using(plugin_of(backend)):
        before = tables().identity
    backend.factor = 3.0
    with ext.using(plugin_of(backend)):
        assert tables().identity != before
