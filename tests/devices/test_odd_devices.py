"""Back ends and devices as vendors write them: old ones, failing ones, ones that break the contract or transfer late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit import ExecutionError, PluginError
from hlojit.extensions import READY, YES, Backend, Capability, Device, DeviceProgram, Event, registry
from hlojit.extensions.devices.device import MAXIMUM_IN_FLIGHT

from .test_asynchronous import X, failing, program
from .vendor import Plugin, TestBackend, TestDevice


class FunctionBackend(Backend):
    """Written for version (1, 0): compiles to a Python function."""

    def __init__(self, name: str, compiled: Any):
        self.name = name
        self.compiled = compiled

    def capability(self, instruction: Any) -> Capability:
        return YES

    def compile(self, module: Any, options: Any) -> Any:
        return self.compiled() if getattr(self.compiled, "__name__", "") == "make" else self.compiled


def test_a_back_end_of_version_1_0_has_a_host_device() -> None:
    with registry().load().using(Plugin(FunctionBackend("plain", lambda x, y: [x + y]))):
        add = hlojit.compile(program("add"), backend="plain")
        assert [str(device) for device in add.devices] == ["plain:0"] and add.devices == hlojit.devices("plain")
        x = hlojit.put(X, "plain")
        np.testing.assert_array_equal(add.execute(add(x, x), X), 3 * X)
        assert type(add(X, X)) is np.ndarray


def test_a_failing_back_end_is_named() -> None:
    def divide(x: Any, y: Any) -> Any:
        raise ZeroDivisionError("by nothing")

    def make() -> Any:
        raise KeyError("no such unit")

    def nothing() -> Any:
        return None

    nothing.__name__ = "make"
    with (
        registry()
        .load()
        .using(
            Plugin(FunctionBackend("runs", divide), FunctionBackend("makes", make), FunctionBackend("none", nothing))
        )
    ):
        broken = hlojit.compile(program("add"), backend="runs")
        with pytest.raises(
            ExecutionError,
            match=r"add: the back end 'runs' \(plugin 'Plugin'\) raised ZeroDivisionError\('by nothing'\)",
        ):
            broken(X, X)
        with pytest.raises(
            ExecutionError, match=r"add on runs:0: .*the back end 'runs' \(plugin 'Plugin'\) raised ZeroDivisionError"
        ):
            broken.execute(X, X).wait()
        with pytest.raises(
            PluginError, match=r"the back end 'makes' \(plugin 'Plugin'\): compile raised KeyError\('no such unit'\)"
        ):
            hlojit.compile(program("add"), backend="makes")
        with pytest.raises(PluginError, match="the back end 'none' .*: compile returned None for @add; expected"):
            hlojit.compile(program("add"), backend="none")


class OddDevice(Device):
    """Breaks the contract as it is told."""

    def __init__(self, backend: str, answer: Callable[[], Any]):
        super().__init__(backend)
        self.answer = answer

    def transfer_in(self, array: Any, type: Any, space: Any) -> tuple[Any, Event]:
        return array.copy(), READY

    def transfer_out(self, handle: Any, type: Any) -> Any:
        return handle

    def execute(self, program: DeviceProgram, arguments: Any, after: Event) -> Any:
        return self.answer()


class OddBackend(FunctionBackend):
    def __init__(self, answer: Callable[[], Any] = lambda: None, devices: Any = None):
        super().__init__("odd", None)
        self.found = [OddDevice("odd", answer)] if devices is None else devices

    def devices(self) -> Any:
        return self.found

    def compile(self, module: Any, options: Any) -> Any:
        return DeviceProgram.of(module, None)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: None, "add on odd:0: the back end 'odd' .*returned None from execute, not a pair"),
        (lambda: ([], READY), "the back end 'odd' .*returned 0 handles from execute, not 1"),
        (lambda: ([1], True), "not a pair of handles and event"),
        (lambda: 1 / 0, r"add on odd:0: the back end 'odd' .*raised ZeroDivisionError"),
        (
            lambda: ([np.zeros(7)], READY),
            r"transfer of tensor<6xf32> on odd:0: the back end 'odd' .*returned ndarray float64\(7,\)",
        ),
    ],
)
def test_a_device_that_breaks_its_contract_is_named(answer: Callable[[], Any], message: str) -> None:
    with registry().load().using(Plugin(OddBackend(answer))):
        add = hlojit.compile(program("add"), backend="odd")
        for _ in range(MAXIMUM_IN_FLIGHT + 1):  # what failed is not counted as running
            with pytest.raises(hlojit.HlojitError, match=message):
                add(X, X)


class SlowTransfers(TestDevice):
    """Transfers to the device are asynchronous."""

    def transfer_in(self, array: Any, type: Any, space: Any) -> tuple[int, Event]:
        handle, copied = next(self._handles), array.copy()

        def run() -> None:
            assert self.gate.wait(30)
            self.fault()
            assert handle not in self.freed, "memory that is still written to"
            self.memory[handle] = copied

        return handle, self._queue.submit(run)

    freed: tuple[int, ...] = ()

    def free(self, handle: int) -> None:
        self.freed += (handle,)
        super().free(handle)


def test_transfers_may_be_asynchronous_and_fail() -> None:
    slow = TestBackend("slow")
    device = slow._devices[0] = SlowTransfers("slow", 0)
    with registry().load().using(Plugin(slow)):
        add = hlojit.compile(program("add"), backend="slow")
        device.gate.clear()
        source = X.copy()
        array = hlojit.put(source, "slow")
        source[:] = 0
        result = add.execute(array, array)
        dropped = hlojit.put(X, "slow")
        del dropped
        assert not array.is_ready and not result.is_ready and device.freed == ()
        device.gate.set()
        np.testing.assert_array_equal(result, 2 * X)
        device.fault = failing
        broken = hlojit.put(X, "slow")
        device._queue.submit(lambda: setattr(device, "fault", lambda: None)).wait()
        for use in (broken.wait, lambda: np.asarray(broken), lambda: np.asarray(add.execute(broken, array))):
            with pytest.raises(ExecutionError, match=r"transfer of tensor<6xf32> on slow:0: .*the power is off"):
                use()


@pytest.mark.parametrize("found", [[], [1], [OddDevice("other", lambda: None)], [OddDevice("odd", lambda: None)] * 2])
def test_a_bad_list_of_devices_is_named(found: Any) -> None:
    with (
        registry().load().using(Plugin(OddBackend(devices=found))),
        pytest.raises(
            PluginError, match=r"the back end 'odd' .*: devices returned .*; expected at least one Device of its own"
        ),
    ):
        hlojit.devices("odd")
