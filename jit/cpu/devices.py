"""The CPU back end's devices: virtual ones over the same processor, each with a thread of its own."""

from __future__ import annotations

import threading
from functools import cache

from hlojit.extensions.events import at_closing
from hlojit.extensions.host_device import HostDevice
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.switches import CPU_DEVICES
from hlojit.runtime.native import stop_other_threads

MAXIMUM_DEVICES = 1024

_creation = threading.Lock()


def cpu_devices() -> tuple[HostDevice, ...]:
    """``HLOJIT_CPU_DEVICES`` devices, made by the first call."""
    with fork_gate, _creation:
        return _made()


@cache
def _made() -> tuple[HostDevice, ...]:
    count = CPU_DEVICES.count(1, most=MAXIMUM_DEVICES)
    at_closing(stop_other_threads)
    return tuple(
        HostDevice("cpu", number, kind="cpu", description=f"processor of this machine, virtual device {number}")
        for number in range(count)
    )
