"""Buffers: tensors in the memory of a device, which is given back when nobody refers to it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, final

import numpy as np
from hlojit.extensions.devices.events import Event
from hlojit.extensions.devices.freeing import freed
from hlojit.extensions.devices.holds import Hold
from hlojit.extensions.origins import backend_text, device_text
from hlojit.ir.current_process import process
from hlojit.ir.errors import ExecutionError, HlojitError, PluginError, text_of
from hlojit.ir.types import TensorType
from hlojit.ir.vendor_places import place_of, told

if TYPE_CHECKING:
    from hlojit.extensions.devices.device import Device


NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class MemorySpace:
    """A kind of memory of a device.  ``is_host``: NumPy can read and write it in place."""

    kind: str
    is_host: bool = False


DEVICE_MEMORY: Final = MemorySpace("device")
HOST_MEMORY: Final = MemorySpace("host", is_host=True)


def failure(what: str, device: Device, error: BaseException) -> ExecutionError:
    """The error that a user sees: what failed where, and why."""
    if isinstance(error, HlojitError):
        where = device_text(device.backend, device)
        made = ExecutionError(f"{what} on {where}: {text_of(error).removeprefix(f'{what}: ')}")
    else:
        made = ExecutionError(f"{what} on {device}: {backend_text(device.backend)} raised {told(error)}")
    made.__cause__ = error
    return made


class Memory:
    """A handle and its device; the handle is freed when nothing refers to its memory any more."""

    __slots__ = ("_freeing", "device", "handle")

    handle: Any

    def __init__(self, device: Device, handle: Any):
        self.device = device
        self.handle = handle
        self._freeing = _Freeing(device, handle) if device.frees else None


@final
class PromisedMemory(Memory):
    """The memory of a result whose program somebody else is about to start: who needs the handle waits for that."""

    __slots__ = ("_found", "_kept")

    def __init__(self, device: Device):
        self.device = device
        self._freeing = None
        self._found = Event()
        self._kept: Memory | None = None

    @property
    def handle(self) -> Any:
        """Of the memory that was promised; raises ``ExecutionError`` if it never came to be."""
        self._found.wait()
        assert self._kept is not None, "an event without an error"
        return self._kept.handle

    def keep(self, memory: Memory) -> None:
        """Say that the promised memory is this one."""
        self._kept = memory
        self._found.complete()

    def fail(self, error: BaseException) -> None:
        """There will be none; without effect if there is one."""
        self._found.settle(error)


@final
class _Freeing:
    """Frees a handle; apart from the memory, which is made and dropped with every result."""

    __slots__ = ("_device", "_handle", "_process")

    def __init__(self, device: Device, handle: Any):
        self._device = device
        self._handle = handle
        self._process = process.id

    def __del__(self, process: Any = process) -> None:
        # What a parent process made is the parent's to free.
        if self._process == process.id:
            freed(self._device, self._handle)


@final
class Buffer:
    """A tensor in the memory of a device; its contents do not change once they are ready.

    ``ready`` is the event that it is filled: pending while the program that makes it runs, failed if that failed.
    """

    hlojit_runtime: ClassVar[bool] = True
    __slots__ = ("__weakref__", "_gone", "_is_viewed", "_memory", "device", "holds", "memory_space", "ready", "type")

    def __init__(self, device: Device, type: TensorType, space: MemorySpace, memory: Memory, ready: Event):
        self.device = device
        self.type = type
        self.memory_space = space
        self.ready = ready
        self._memory: Memory | None = memory
        self._gone = ""
        self._is_viewed = False
        self.holds: tuple[weakref.ref[Hold], ...] = ()
        """Who reads the contents; see ``hlojit.extensions.devices.holds``."""

    @property
    def is_deleted(self) -> bool:
        """Whether it was deleted or donated."""
        return self._memory is None

    @property
    def nbytes(self) -> int:
        """Bytes that it takes on the device."""
        return self.device.nbytes(self.memory().handle, self.type)

    def memory(self) -> Memory:
        """The memory, which lives as long as somebody holds it; raises if the buffer was deleted or donated."""
        return self._memory or self._refuse()

    def to_host(self) -> NDArray:
        """Wait for the contents and copy them into a new array of the type's storage dtype."""
        self._wait()
        with Hold((self,)) as (memory,):
            handle = memory.handle
            view = self.view_of(memory)
            return self._transferred(handle) if view is None else view.copy()

    def host_view(self) -> NDArray | None:
        """Wait, and return the contents without a copy, read-only; None if the host cannot read the memory."""
        self._wait()
        with Hold((self,)) as (memory,):
            view = self.view_of(memory)
            if view is not None:
                self._is_viewed = True
                view = view.view()
                view.flags.writeable = False
            return view

    def lent_address(self) -> int:
        """Wait, and return where the contents lie, for another library; for devices with ``dlpack_device``."""
        self._wait()
        self._is_viewed = True
        return self.device.lend(self.memory().handle)

    def _wait(self) -> None:
        self.memory()
        self.ready.wait()

    def view_of(self, memory: Memory) -> NDArray | None:
        """The vendor's ``host_view`` of a memory that holds such a tensor, checked."""
        view = self._read(self.device.host_view, memory.handle)
        return None if view is None else self._checked(view)

    def copy_of(self, memory: Memory) -> Buffer:
        """A new buffer with the contents of a memory that holds such a tensor, which are there."""
        view = self.view_of(memory)
        contents = self._transferred(memory.handle) if view is None else view
        return self.device.put(contents, self.type, self.memory_space)

    def _transferred(self, handle: Any) -> NDArray:
        return self._checked(self._read(self.device.transfer_out, handle))

    def _read(self, read: Callable[[Any, TensorType], Any], handle: Any) -> Any:
        try:
            return read(handle, self.type)
        except PluginError as error:
            where = device_text(self.device.backend, self.device)
            raise PluginError(f"transfer of {self.type} on {where}: {error}") from error
        except HlojitError:
            raise
        except (Exception, SystemExit) as error:
            raise failure(f"transfer of {self.type}", self.device, error) from error

    def _checked(self, array: object) -> NDArray:
        storage = self.type.element_type.storage
        if not isinstance(array, np.ndarray) or array.shape != self.type.shape or array.dtype != storage:
            raise PluginError(
                f"transfer of {self.type} on {self.device}: {backend_text(self.device.backend)} returned "
                f"{type(array).__name__} {getattr(array, 'dtype', '')}{getattr(array, 'shape', '')}; expected an array "
                f"{storage}{self.type.shape}{place_of(self.device.transfer_out)}"
            )
        return array

    def delete(self) -> None:
        """Give the memory back, once what runs with it has ended; using the buffer is an error from now on."""
        if self._memory is not None:
            self._gone = f"the buffer of {self.type} on {self.device} was deleted"
            self._memory = None

    def give(self, program: str) -> bool:
        """Leave the memory to a program; using the buffer is an error from now on, and names that program.

        Returns whether others look at the memory: NumPy arrays (``host_view``), other libraries.  For
        ``hlojit.extensions.devices.holds``.
        """
        self._gone = f"the buffer of {self.type} on {self.device} was donated to {program}"
        self._memory = None
        return self._is_viewed

    def _refuse(self) -> NoReturn:
        raise ExecutionError(f"{self._gone}; its contents are gone")

    def __repr__(self) -> str:
        state = self._gone or repr(self.ready)
        return f"<Buffer {self.type} on {self.device} ({self.memory_space.kind}): {state}>"
