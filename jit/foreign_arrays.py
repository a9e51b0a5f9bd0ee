"""Other libraries' arrays on a device as arguments, without a copy: what CuPy, PyTorch, numba or JAX have on a GPU.

x = borrowed(torch_tensor, devices, "f, argument 0")      # an Array on one of the devices, or the tensor as it was
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from hlojit.arrays import Array
from hlojit.extensions import Device
from hlojit.extensions.devices.device import ForeignMemory
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.formats import element_type_of
from hlojit.ir.types import tensor

_ON_THE_HOST: Final = (Array, np.ndarray, np.generic, bool, int, float, complex)


def borrowed(value: Any, devices: Sequence[Device], where: str) -> Any:
    """An ``Array`` over another library's memory if it lies on one of the devices; anything else as it is."""
    if isinstance(value, _ON_THE_HOST) or all(device.dlpack_device is None for device in devices):
        return value
    with fork_gate.inside:
        from hlojit.runtime.dlpack_devices import device_of, foreign_array
    try:
        place = device_of(value)
        device = None if place is None else _found(devices, place)
        if device is None:
            return value
        found = foreign_array(value, device.foreign_queue())
    except (AttributeError, KeyError, TypeError, ValueError, BufferError) as error:
        raise ArgumentError(f"{where}: the {type(value).__name__} cannot be read: {error}") from error
    if not found.is_dense:
        strides = found.strides
        raise ArgumentError(f"{where}: the {type(value).__name__} has the strides {strides}; pass a contiguous one")
    try:
        kind = tensor(found.shape, element_type_of(found.dtype))
    except HlojitError as error:
        raise ArgumentError(f"{where}: {error}") from None
    return Array.from_buffer(device.borrowed(ForeignMemory(found.address, found.owner, found.stream), kind))


def _found(devices: Sequence[Device], place: tuple[int, int]) -> Device | None:
    """The device; number -1 means that the address tells, and one device is enough to know."""
    kind, number = place
    known = [each for each in devices if each.dlpack_device is not None and each.dlpack_device[0] == kind]
    return next(
        (each for each in known if each.dlpack_device == (kind, number)), known[0] if number < 0 and known else None
    )
