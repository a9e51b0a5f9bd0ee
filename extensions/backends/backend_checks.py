"""What back ends answer about themselves, checked: every complaint names the back end and the plugin that it is of."""

from __future__ import annotations

from collections.abc import Iterable

from hlojit.extensions.backends.backend import Backend
from hlojit.extensions.devices.device import Device
from hlojit.extensions.origins import backend_text
from hlojit.ir.errors import PluginError, short_repr
from hlojit.ir.vendor_calls import call_named
from hlojit.ir.vendor_places import place_of


def why_unavailable(backend: Backend) -> str:
    """Why a back end cannot be used on this machine, or an empty string."""
    answer: object = call_named(lambda: f"{backend_text(backend.name)}: unavailable", backend.unavailable)
    if answer is None:
        return ""
    if not isinstance(answer, str):
        raise PluginError(
            f"{backend_text(backend.name)}: unavailable returned {short_repr(answer)}; return None where the device can be "
            "used, or the reason why not as a string"
        )
    return answer


def devices_of(backend: Backend) -> tuple[Device, ...]:
    """A back end's devices, checked."""
    returned: object = call_named(
        lambda: f"{backend_text(backend.name)}: devices", lambda: _as_tuple(backend.devices())
    )
    if isinstance(returned, Device):
        raise PluginError(
            f"{backend_text(backend.name)}: devices returned one {type(returned).__name__}; return a list, of the same objects "
            f"every time{place_of(backend.devices)}"
        )
    if not isinstance(returned, tuple):
        raise PluginError(
            f"{backend_text(backend.name)}: devices returned {short_repr(returned)}; expected at least one Device"
            f"{place_of(backend.devices)}"
        )
    found = returned
    names = [str(device) for device in found if isinstance(device, Device)]
    if not found or len(set(names)) != len(found) or any(device.backend != backend.name for device in found):
        raise PluginError(
            f"{backend_text(backend.name)}: devices returned {short_repr(list(found))}; expected at least one Device of its "
            "own, each with an id of its own" + place_of(backend.devices)
        )
    return found


def _as_tuple(returned: object) -> object:
    """A generator runs here, where what it raises is told."""
    return tuple(returned) if isinstance(returned, Iterable) and not isinstance(returned, (str, Device)) else returned
