"""What back ends answer about themselves, checked: every complaint names the back end and the plugin that it is of."""

from __future__ import annotations

from hlojit.extensions.backends.backend import Backend
from hlojit.extensions.devices.device import Device
from hlojit.extensions.origins import backend_text
from hlojit.ir.errors import PluginError, short_repr
from hlojit.ir.vendor_calls import call_named


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
    returned: object = call_named(lambda: f"{backend_text(backend.name)}: devices", lambda: tuple(backend.devices()))
    found = returned if isinstance(returned, tuple) else ()
    names = [str(device) for device in found if isinstance(device, Device)]
    if not found or len(set(names)) != len(found) or any(device.backend != backend.name for device in found):
        raise PluginError(
            f"{backend_text(backend.name)}: devices returned {short_repr(list(found))}; expected at least one Device of its "
            "own, each with an id of its own"
        )
    return found
