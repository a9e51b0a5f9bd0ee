"""Where arrays are: the devices of a back end, and the way to a device and back.

device = hlojit.devices("cpu")[0]
x = hlojit.put(np.arange(8.0), device)      # an hlojit.Array on the device
y = executable(x)                           # stays there
hlojit.get(y)                               # a NumPy array
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.arrays import Array, NDArray, from_storage, is_in_blocks, plain_storage
from hlojit.extensions import Backend, Buffer, Device, MemorySpace, registry
from hlojit.extensions.backends.backend_checks import devices_of, why_unavailable
from hlojit.extensions.devices.device import is_one_of
from hlojit.foreign_arrays import borrowed
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.ir.switches import BACKEND

DEFAULT_BACKEND = "cpu"


def default_name() -> str:
    """What is named where nothing is: a back end, or one of its devices; of several, the first."""
    return (BACKEND.text() or DEFAULT_BACKEND).partition(",")[0].strip()


def default_backend() -> str:
    """The name of the back end that is taken where none is named; of several, the first."""
    return default_name().partition(":")[0]


def named(backend: str | Sequence[str] | None) -> str | Sequence[str]:
    """What a caller, or the switch, means by ``backend``: the name of one, or names of several and of devices."""
    if backend is not None and not isinstance(backend, str):
        return backend
    name = backend or BACKEND.text() or DEFAULT_BACKEND
    return [each.strip() for each in name.split(",")] if "," in name or ":" in name else name


def named_backend(name: str) -> Backend:
    """The back end of a name such as ``"nova"`` or ``"nova:1"``, whose device must be there."""
    if isinstance(name, str) and ":" in name:
        find_device(name)
        name = name.partition(":")[0]
    return registry().backend(name)


def devices(backend: str | None = None) -> tuple[Device, ...]:
    """The devices of a back end (default: ``HLOJIT_BACKEND``, then the CPU), the default one first; of ``"nova:1"`` that one."""
    name = backend or default_name()
    if isinstance(name, str) and ":" in name:
        return (find_device(name),)
    chosen = registry().backend(name)
    reason = why_unavailable(chosen)
    if reason:
        raise HlojitError(f"the back end {chosen.name!r} cannot be used here: {reason}")
    return devices_of(chosen)


def find_device(device: Device | str | None) -> Device:
    """A device by itself, by its name (``"cpu:0"``), by its back end's name, or the default one."""
    if isinstance(device, Device):
        return device
    if device is not None and not isinstance(device, str):
        raise ArgumentError(
            f"{device!r} of type {type(device).__name__} is no device; pass one of hlojit.devices(), or a name such as 'cpu:0'"
        )
    backend, colon, number = (device or default_name()).partition(":")
    known = devices(backend)
    for each in known:
        if str(each.id) == number or not colon:
            return each
    raise HlojitError(
        f"there is no device {device or default_name()!r}; the back end {backend!r} has {', '.join(map(str, known))}"
    )


def put(array: Any, device: Device | str | None = None, *, memory_space: MemorySpace | None = None) -> Array:
    """Transfer an array to a device; returns an ``Array`` there, whose contents may still be on their way.

    ``array`` is anything that a program takes - NumPy arrays, scalars, other libraries' host arrays, ``Array`` - and
    has been read when this returns: it may be overwritten.  An ``Array`` on another device is copied from device to device where
    there is a way (GPUs of one driver), else through the host.
    ``device`` is a ``Device`` or its name (``"cpu:0"``); by default the first one of the default back end.
    """
    target = find_device(device)
    if is_in_blocks(array):
        parts = [put(part, target, memory_space=memory_space) for part in array.parts]
        return Array.in_blocks(parts, array.element_type)
    if isinstance(array, Array) and array.buffer is not None:
        space = array.buffer.memory_space
        if array.device is target and memory_space in (None, space):
            array.buffer.memory()
            return array
        return Array.from_buffer(target.put_buffer(array.buffer, memory_space))
    array = borrowed(array, (target,), f"put on {target}")
    if isinstance(array, Array) and array.device is target:
        return array
    storage, type_ = plain_storage(array, f"put on {target}")
    return Array.from_buffer(target.put(storage, type_, memory_space))


def get(array: Any) -> NDArray | Array:
    """Wait for an array on a device and copy it to the host, into memory of the caller's own.

    Returns a NumPy array, or an ``Array`` on the host for formats without a dtype.  Arrays on the host are returned as
    they are.
    """
    if not isinstance(array, Array):
        return np.asarray(array)
    if is_in_blocks(array):
        return (
            array if array.device is None else Array.in_blocks([get(part) for part in array.parts], array.element_type)
        )
    return array if array.buffer is None else to_outside(array.buffer)


def to_outside(buffer: Buffer) -> NDArray | Array:
    """A buffer's contents as a program called with host arrays returns them."""
    return from_storage(buffer.to_host(), buffer.type)


def common_device(name: str, arguments: Sequence[Any], known: Sequence[Device]) -> Device | None:
    """The device that the arguments are on, one of ``known``; None if all are on the host.

    Raises ``ArgumentError`` naming both if they are on different ones, or on none that the program runs on.
    """
    device: Device | None = None
    first = 0
    for number, argument in enumerate(arguments):
        if type(argument) is not Array or argument.device is None or argument.device is device:
            continue
        if device is not None:
            raise ArgumentError(
                f"{name}: argument {first} is on {device}, argument {number} on {argument.device}; "
                f"move one with hlojit.put(array, {str(device)!r})"
            )
        device, first = argument.device, number
    if device is not None and not is_one_of(device, known):
        names = ", ".join(map(str, known))
        raise ArgumentError(
            f"{name}: argument {first} is on {device}, the program is compiled for {names}; "
            f"move it with hlojit.put(array, {str(known[0])!r})"
        )
    return device
