"""Calls of programs with arrays on devices, and calls that return before the program has run.

    y = executable.execute(x)       # returns at once, an Array on a device that is pending
    z = executable.execute(y)       # runs after it
    np.asarray(z)                   # waits, and copies to the host

Arguments on a device make results on that device; ``execute`` makes them there in any case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
from hlojit.arrays import Array, NDArray, to_storage
from hlojit.extensions import Backend, Buffer, Device, DeviceProgram
from hlojit.extensions.backends.backend_checks import devices_of
from hlojit.extensions.devices.buffers import failure
from hlojit.extensions.devices.device import is_one_of
from hlojit.extensions.devices.events import Event
from hlojit.extensions.devices.holds import Hold
from hlojit.extensions.devices.host_device import HostDevice
from hlojit.extensions.devices.turns import Turn
from hlojit.foreign_arrays import borrowed
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.ir.formats import ElementType, QuantizedType
from hlojit.ir.types import TensorType, Type
from hlojit.placement import DEFAULT_BACKEND, common_device, devices, to_outside


def has_device_array(arguments: Sequence[object]) -> bool:
    """Whether an argument is an array on a device."""
    return any(type(argument) is Array and argument.device is not None for argument in arguments)


def refuse_keywords(name: str, inputs: Sequence[Type], keywords: Mapping[str, object]) -> None:
    """The arguments of a compiled program have no names."""
    if keywords:
        raise ArgumentError(
            f"{name} takes its arguments by position, {name}({', '.join(map(str, inputs))}); "
            f"it was called with {', '.join(f'{name}=' for name in keywords)}"
        )


@final
class DeviceCall:
    """A program that can be executed on the devices of a back end."""

    __slots__ = ("_devices", "backend", "program")

    def __init__(self, program: DeviceProgram, backend: Backend | None):
        self.program = program
        self.backend = backend
        self._devices: tuple[Device, ...] = ()

    def __call__(self, *arguments: object, **keywords: object) -> Any:
        """Run and wait: results on the device if an argument is on one, otherwise on the host."""
        if keywords:
            refuse_keywords(self.program.name, self.program.inputs, keywords)
        plain = self._plain(arguments)
        device, buffers = plain or self._place(arguments := self._borrowed(arguments), None)
        # A donated argument may still be read by programs before this one: they keep their order on the device's thread.
        if isinstance(device, HostDevice) and not self.program.donated:
            results = self.run_here(device, buffers)
        elif isinstance(device, HostDevice):
            results = self._run_in_turn(device, buffers)
        else:
            results = self._run_there(device, buffers)
        if plain or has_device_array(arguments):
            return _arrays(results)
        return _unpacked([to_outside(buffer) for buffer in results])

    def execute(self, *arguments: object, device: Device | str | None = None) -> Any:
        """Start the program and return at once; see ``Executable.execute``."""
        placed = None if device is not None else self._plain(arguments)
        where, buffers = placed or self._place(self._borrowed(arguments), device)
        results, _ = where.start(self.program, buffers)
        return _arrays(results)

    def placed(self, arguments: Sequence[object], device: Device) -> tuple[Device, list[Buffer]]:
        """The arguments, checked and on a device."""
        return self._place(self._borrowed(tuple(arguments)), device)

    def device_for(self, arguments: Sequence[object], chosen: Device | str, is_asked_for: bool) -> Device:
        """Where the arguments are, or else the chosen one, which is an error if it is asked for and they are elsewhere."""
        arguments = self._borrowed(tuple(arguments))
        if not is_asked_for and common_device(self.program.name, arguments, self.devices()) is not None:
            return self._device(arguments, None)
        return self._device(arguments, chosen)

    def devices(self) -> tuple[Device, ...]:
        """Where the program can run: native code that belongs to no back end runs on the CPU's."""
        if not self._devices:
            self._devices = devices_of(self.backend) if self.backend is not None else devices(DEFAULT_BACKEND)
        return self._devices

    def _plain(self, arguments: tuple[object, ...]) -> tuple[Device, list[Buffer]] | None:
        """Of arrays of exactly these types on one device of ours, which need no more than a look; None of others."""
        types = self.program.inputs
        if len(arguments) != len(types) or self.program.donated:
            return None
        buffers: list[Buffer] = []
        device: Device | None = None
        for argument, type_ in zip(arguments, types):
            if type(argument) is not Array:
                return None
            buffer = argument._buffer
            if buffer is None or buffer.type is not type_ or buffer._memory is None:
                return None
            if device is not buffer.device:
                if device is not None:
                    return None
                device = buffer.device
            buffers.append(buffer)
        return None if device is None or not is_one_of(device, self._devices) else (device, buffers)

    def _borrowed(self, arguments: tuple[object, ...]) -> tuple[object, ...]:
        """With other libraries' arrays on our devices as arrays of ours."""
        if all(type(each) is Array or type(each) is np.ndarray for each in arguments):
            return arguments
        name, known = self.program.name, self.devices()
        return tuple(borrowed(each, known, f"{name}, argument {n}") for n, each in enumerate(arguments))

    def _place(self, arguments: Sequence[object], chosen: Device | str | None) -> tuple[Device, list[Buffer]]:
        """Check the arguments, choose the device, and transfer those that are on the host."""
        name, types = self.program.name, self.program.inputs
        if len(arguments) != len(types):
            expected = len(types)
            raise ArgumentError(
                f"{name} takes {expected} argument{'s' if expected != 1 else ''}, not {len(arguments)}: "
                f"({', '.join(map(str, types))})"
            )
        device = self._device(arguments, chosen)
        # All are checked before one is transferred.
        checked = [
            checked_argument(argument, type_, name, number)
            for number, (argument, type_) in enumerate(zip(arguments, types))
        ]
        buffers = [each if isinstance(each, Buffer) else device.put(each, type_) for each, type_ in zip(checked, types)]
        given = Counter(map(id, buffers))
        for number in self.program.donated:
            if given[id(buffers[number])] > 1:
                raise ArgumentError(f"{name}, argument {number} is donated and given as another argument, too")
        return device, buffers

    def _device(self, arguments: Sequence[object], chosen: Device | str | None) -> Device:
        name, known = self.program.name, self.devices()
        found = common_device(name, arguments, known)
        if chosen is None:
            return known[0] if found is None else found
        device = next(
            (each for each in known if chosen is each or (isinstance(chosen, str) and chosen == str(each))), None
        )
        if device is None:
            raise ArgumentError(
                f"{name} cannot be executed on {chosen}: it is compiled for {', '.join(map(str, known))}"
            )
        if found is not None and found is not device:
            raise ArgumentError(
                f"{name} cannot be executed on {device}: an argument is on {found}; "
                f"move it with hlojit.put(array, {str(device)!r})"
            )
        return device

    def _run_there(self, device: Device, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Have the device run it, and wait."""
        done: Event | None = None
        try:
            results, done = device.start(self.program, buffers)
            done.wait()
        except BaseException:
            if done is not None:
                done.stop()
            raise
        return results

    def _run_in_turn(self, device: HostDevice, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Run on this thread, where Ctrl-C ends it, while the device's thread waits: what was started before has run."""
        turn = Turn(self.program.code)
        with turn.mine:
            results, done = device.start(replace(self.program, code=turn), buffers)
            done.then(turn.come)
            turn.run()
        done.wait()
        return results

    def run_here(self, device: HostDevice, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Run on this thread, which would wait anyway; a program that is given one of the arguments waits for it."""
        with Hold(buffers, queued=True) as memories:
            for buffer in buffers:
                buffer.ready.wait()
            try:
                returned = self.program.code(*[memory.handle.array for memory in memories])
            except HlojitError:
                raise
            except (Exception, SystemExit) as error:
                raise failure(self.program.name, device, error) from error
        arrays = returned if isinstance(returned, tuple) else (returned,)
        return [device.adopt(array, type_.refined(array.shape)) for array, type_ in zip(arrays, self.program.outputs)]


def checked_argument(argument: object, type_: TensorType, name: str, number: int) -> Buffer | NDArray:
    """The buffer of an array on a device, or the storage of any other argument; raises ``ArgumentError`` if it does not fit."""
    if type(argument) is not Array or argument.buffer is None:
        return to_storage(argument, type_, f"{name}, argument {number}")
    buffer = argument.buffer
    # Types are interned while somebody has them; the comparison of their parts is for those made in another scope.
    if buffer.type is not type_ and (buffer.type.shape, _stored(buffer.type)) != (type_.shape, _stored(type_)):
        raise ArgumentError(f"{name}, argument {number}: expected {type_}, got {buffer.type}")
    # Deleted and donated ones are refused here.
    buffer.memory()
    return buffer


def _stored(type_: TensorType) -> ElementType:
    """The element type of what is in memory: of quantized numbers, their integers."""
    element = type_.element_type
    return element.storage_element if isinstance(element, QuantizedType) else element


def _arrays(buffers: Sequence[Buffer]) -> Any:
    if len(buffers) == 1:
        return Array.from_buffer(buffers[0])
    return tuple(map(Array.from_buffer, buffers))


def _unpacked(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)
