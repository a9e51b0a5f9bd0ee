"""The CPU back end's devices: virtual ones over the same processor, each with a thread of its own."""

from __future__ import annotations

import os
import threading
from functools import cache

from hlojit.extensions.events import at_closing
from hlojit.extensions.host_device import HostDevice
from hlojit.ir.errors import HlojitError
from hlojit.runtime.native import stop_other_threads

MAXIMUM_DEVICES = 1024

_creation = threading.Lock()


def cpu_devices() -> tuple[HostDevice, ...]:
    """``HLOJIT_CPU_DEVICES`` devices, made by the first call."""
    with _creation:
        return _made()


@cache
def _made() -> tuple[HostDevice, ...]:
    text = os.environ.get("HLOJIT_CPU_DEVICES", "").strip() or "1"
    if not text.isdigit() or not 1 <= int(text) <= MAXIMUM_DEVICES:
        raise HlojitError(f"HLOJIT_CPU_DEVICES={text!r} is not a number from 1 to {MAXIMUM_DEVICES}")
    at_closing(stop_other_threads)
    return tuple(
        HostDevice("cpu", number, kind="cpu", description=f"processor of this machine, virtual device {number}")
        for number in range(int(text))
    )
