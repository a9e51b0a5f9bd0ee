"""A device whose memory is the host's: buffers are NumPy arrays, programs are Python callables over them.

The CPU back end's devices are of this class, and so is the one device of every back end that has none of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

from hlojit.extensions.devices.buffers import HOST_MEMORY, Buffer, Memory, MemorySpace, NDArray
from hlojit.extensions.devices.device import Device, DeviceProgram
from hlojit.extensions.devices.events import READY, Event, Queue
from hlojit.extensions.devices.rendezvous import Participant
from hlojit.ir import unwritten
from hlojit.ir.errors import ExecutionError
from hlojit.ir.types import TensorType


@final
class HostMemory:
    """The handle: an array of the storage dtype, or None until the program that makes it has run."""

    __slots__ = ("array",)

    def __init__(self, array: NDArray | None = None):
        self.array = array


@final
class HostDevice(Device):
    """Runs programs on a thread of its own, in order; ``code`` of a program takes and returns storage arrays."""

    def __init__(self, backend: str, id: int = 0, *, kind: str = "host", description: str = ""):
        super().__init__(backend, id, kind=kind, description=description, memory_spaces=(HOST_MEMORY,))
        self._queue: Final = Queue(f"{backend}:{id}")

    def transfer_in(self, array: NDArray, type: TensorType, space: MemorySpace) -> tuple[HostMemory, Event]:
        """Copy: the caller may overwrite its array."""
        return HostMemory(array.copy()), READY

    def transfer_out(self, handle: HostMemory, type: TensorType) -> NDArray:
        """The array itself."""
        assert handle.array is not None
        return handle.array

    def host_view(self, handle: HostMemory, type: TensorType) -> NDArray | None:
        """The array itself."""
        return handle.array

    def reserve(self, type: TensorType, space: MemorySpace) -> HostMemory:
        """An array without contents."""
        return HostMemory(unwritten.zeros(type.shape, type.element_type.storage))

    def adopt(self, array: NDArray, type: TensorType) -> Buffer:
        """A buffer that is the array, without a copy: nobody else may write to it."""
        return Buffer(self, type, HOST_MEMORY, Memory(self, HostMemory(array)), READY)

    def execute(
        self, program: DeviceProgram, arguments: Sequence[HostMemory], after: Event
    ) -> tuple[Sequence[HostMemory], Event]:
        """Run on the device's thread."""
        return self._submitted(program, arguments, after, program.code)

    def execute_among(
        self, program: DeviceProgram, arguments: Sequence[HostMemory], after: Event, participant: Participant
    ) -> tuple[Sequence[HostMemory], Event]:
        """Run on the device's thread, which is the process's: code finds it as ``current_participant()``."""

        def code(*arrays: NDArray | None) -> Any:
            with participant.here():
                try:
                    return program.code(*arrays)
                except ExecutionError:
                    # Native code carries no exceptions: what it met knows why.
                    if participant.error is None:
                        raise
                    raise participant.error from None

        return self._submitted(program, arguments, after, code)

    def _submitted(
        self, program: DeviceProgram, arguments: Sequence[HostMemory], after: Event, code: Callable[..., Any]
    ) -> tuple[Sequence[HostMemory], Event]:
        results = [HostMemory() for _ in program.outputs]

        def run() -> None:
            returned = code(*[argument.array for argument in arguments])
            for result, array in zip(results, returned if isinstance(returned, tuple) else (returned,)):
                result.array = array

        return results, self._queue.submit(run, after)
