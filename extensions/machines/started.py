"""What a machine returns that does not wait for its own commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from hlojit.extensions.devices.events import Event


@final
@dataclass(frozen=True, slots=True)
class Started:
    """What a machine returns that does not wait for its own commands: memories that are being written, and when they are.

    ``done`` is completed when they are written, or with the error why not, from any thread; what it waits for may be ended early
    by its ``stop``.  With ``done.nanoseconds`` it says how long that took.  Until then nothing that the command reads or writes
    is given back.
    """

    memories: Sequence[Any]
    done: Event
