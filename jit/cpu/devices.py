"""The CPU back end's devices: virtual ones over the same processor, each with a thread of its own."""

from __future__ import annotations

from typing import Final

from hlojit.extensions.devices.events import at_closing
from hlojit.extensions.devices.host_device import HostDevice
from hlojit.ir.once import Once
from hlojit.ir.switches import CPU_DEVICES
from hlojit.runtime.native import stop_other_threads

MAXIMUM_DEVICES = 1024


def _make() -> tuple[HostDevice, ...]:
    count = CPU_DEVICES.count(1, most=MAXIMUM_DEVICES)
    return tuple(
        HostDevice("cpu", number, kind="cpu", description=f"processor of this machine, virtual device {number}")
        for number in range(count)
    )


cpu_devices: Final = Once(_make, lambda _: at_closing(stop_other_threads))
"""``HLOJIT_CPU_DEVICES`` devices, made by the first call."""
