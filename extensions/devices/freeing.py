"""Giving back what nobody refers to: what a vendor's ``free`` raises cannot reach anybody, and is said once, as a warning."""

from __future__ import annotations

from typing import Any, Final

from hlojit.ir.errors import PluginWarning
from hlojit.ir.vendor_places import told
from hlojit.ir.warn import warn_about

_said: Final[set[type]] = set()
"""Classes of devices and machines whose ``free`` has failed."""


def freed(owner: Any, memory: Any) -> None:
    """Have a device or a machine give a memory back."""
    try:
        owner.free(memory)
    except Exception as error:
        if type(owner) not in _said:
            _said.add(type(owner))
            name = type(owner).__name__
            message = f"{name}.free raised {told(error, owner.free)}: memory is not given back"
            warn_about(owner.free, message, PluginWarning)
