"""Devices in the sense of PJRT: where a back end's buffers live and its programs run, asynchronously.

A back end that has devices of its own subclasses ``Device`` and implements three things - transfer in, transfer out,
execute - in terms of *handles*, which are whatever it likes (an address, an object of a driver, a bytearray)::

    class MyDevice(Device):
        def transfer_in(self, array, type, space):
            return self.driver.upload(array), READY            # the array has been read when this returns

        def transfer_out(self, handle, type):
            return np.frombuffer(self.driver.download(handle), type.element_type.storage).reshape(type.shape)

        def execute(self, program, arguments, after):
            results = [self.driver.reserve(type.nbytes) for type in program.outputs]
            return results, self.queue.submit(lambda: program.code(arguments, results), after)

    class MyBackend(Backend):
        def devices(self):
            return self._devices                              # the same objects every time

        def compile(self, module, options):
            return DeviceProgram.of(module, self.assemble(module))

Everything else is the core's: it checks arguments, places them, keeps inputs alive until the program has run, passes
errors on to what depends on them, and names program and device in them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import numpy as np
from hlojit.extensions.devices.buffers import (
    DEVICE_MEMORY,
    Buffer,
    Memory,
    MemorySpace,
    NDArray,
    failure,
)
from hlojit.extensions.devices.events import READY, Event
from hlojit.extensions.devices.holds import Given, Hold, give
from hlojit.extensions.devices.pending import Pending
from hlojit.extensions.devices.rendezvous import Participant
from hlojit.extensions.origins import backend_text, device_text
from hlojit.ir import unwritten
from hlojit.ir.donation import donated_arguments
from hlojit.ir.errors import ArgumentError, HlojitError, PluginError, UnsupportedError, short_repr
from hlojit.ir.formats import element_type_of
from hlojit.ir.types import TensorType, tensor
from hlojit.ir.vendor_places import place_of

if TYPE_CHECKING:
    from hlojit.ir.graph import Module


MAXIMUM_IN_FLIGHT: Final = 128
"""Executions that a device may have pending; one more waits, so that a fast producer does not fill the memory."""


@dataclass(frozen=True, slots=True)
class ForeignMemory:
    """Another library's memory on a device: the address, and what keeps it alive.

    ``queue`` is where that library fills it, in its own numbers (of CUDA: a stream); None: it is filled, or the device's
    ``foreign_queue`` waits for it already.
    """

    address: int
    owner: object
    queue: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """What ``Backend.compile`` returns for devices of its own: ``code`` in the vendor's form, and the signature.

    ``donated`` names the arguments whose memory the program may take: they are not valid afterwards.
    """

    name: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    code: Any
    donated: tuple[int, ...] = ()

    @classmethod
    def of(cls, module: Module, code: Any, *, donated: Iterable[int] | None = None) -> DeviceProgram:
        """With name and signature of the module's entry function; ``donated`` by default as its text says."""
        body = module.main.body
        if donated is None:
            donated = donated_arguments(module.main)
        inputs = tuple(argument.tensor_type for argument in body.arguments)
        outputs = tuple(value.tensor_type for value in body.returned)
        return cls(module.main.name, inputs, outputs, code, tuple(donated))


class Device(ABC):
    """A device of a back end; see the module's docstring.

    ``backend`` is the back end's name, ``id`` counts its devices, ``kind`` names the model, ``memory_spaces`` lists its
    memories, the default one first.
    """

    hlojit_runtime: ClassVar[bool] = True

    def __init__(
        self,
        backend: str,
        id: int = 0,
        *,
        kind: str = "",
        description: str = "",
        memory_spaces: Sequence[MemorySpace] = (DEVICE_MEMORY,),
    ):
        self.backend = backend
        self.id = id
        self.kind = kind or backend
        self.description = description or f"{self.kind} {id}"
        self.memory_spaces = tuple(memory_spaces)
        self.frees = type(self).free is not Device.free
        """Whether the vendor is told when nobody can reach a handle any more."""
        self._pending = Pending(MAXIMUM_IN_FLIGHT)

    # ------------------------------------------------------------ the vendor's

    @abstractmethod
    def transfer_in(self, array: NDArray, type: TensorType, space: MemorySpace) -> tuple[Any, Event]:
        """Take a C-contiguous array of the type's storage dtype into a memory; returns handle and ready event.

        The array must have been read when this returns: its owner may overwrite it at once.  An event with a source of the
        vendor's own (``Event.source``) is taken as it is: its error says what failed, and the device sees to the handle.
        """

    @abstractmethod
    def transfer_out(self, handle: Any, type: TensorType) -> NDArray:
        """The contents as an array of the type's storage dtype; called when the buffer is ready."""

    @abstractmethod
    def execute(self, program: DeviceProgram, arguments: Sequence[Any], after: Event) -> tuple[Sequence[Any], Event]:
        """Start a program on handles; returns one handle per result and the event that they are filled in.

        Called in the order of the user's calls, possibly from several threads.  ``after`` is the event that the
        arguments are ready: the program must not read them before (a ``Queue`` takes it), and need not run if it
        failed.  Results must not share memory with arguments, except those that the program says are donated - and
        these may still be read by programs that were started before.
        """

    def execute_among(
        self, program: DeviceProgram, arguments: Sequence[Any], after: Event, participant: Participant
    ) -> tuple[Sequence[Any], Event]:
        """``execute`` for one process of a program that several devices run together.

        Where the program meets the others, a thread of the device's own calls ``participant.exchange``; what that raises ends
        the program.  By default this is refused.
        """
        raise UnsupportedError(
            program.name, self.backend, f"{self} runs no programs for several devices: it has no execute_among"
        )

    def free(self, handle: Any) -> None:  # noqa: B027  a device whose handles are Python objects needs nothing here
        """Give a handle's memory back: nobody can reach it, and nothing that runs uses it."""

    def reserve(self, type: TensorType, space: MemorySpace) -> Any:
        """A handle of memory without contents; by default zeros are transferred."""
        handle, event = self.transfer_in(unwritten.zeros(type.shape, type.element_type.storage), type, space)
        event.wait()
        return handle

    def receive(
        self, handle: Any, source: Device, type: TensorType, space: MemorySpace, ready: Event
    ) -> tuple[Any, Event] | None:
        """Copy another device's handle to a memory of this one without the host; None: there is no such way (the default).

        ``ready`` is the event that the contents are there, which must be waited for on the devices if it can be.  What is put
        on the source's queues later may write over them: it must come after the copy.
        """
        return None

    def nbytes(self, handle: Any, type: TensorType) -> int:
        """Bytes that a buffer takes on the device (packing, padding); by default those of the storage dtype."""
        return type.nbytes

    def host_view(self, handle: Any, type: TensorType) -> NDArray | None:
        """The contents without a copy, where the host can read the memory; None where it cannot (the default)."""
        return None

    dlpack_device: tuple[int, int] | None = None
    """Type and number in DLPack's terms, of a device whose memory other libraries use in place; then the three below."""

    def lend(self, handle: Any) -> int:
        """Where the memory of a handle begins, for another library.

        It uses it on queues of its own, and may drop it before what it put there has run.
        """
        raise NotImplementedError

    def foreign_queue(self) -> int:
        """The queue (stream) that other libraries are to have wait for what they hand over."""
        raise NotImplementedError

    def borrow(self, memory: ForeignMemory, type: TensorType) -> tuple[Any, Event]:
        """A handle of another library's memory, which holds such a tensor; it is only read."""
        raise NotImplementedError

    # -------------------------------------------------------------- the core's

    @final
    def put(self, array: NDArray, type: TensorType | None = None, space: MemorySpace | None = None) -> Buffer:
        """Transfer an array (of an element type's dtype or storage dtype) and return its buffer."""
        if type is None:
            type = tensor(array.shape, element_type_of(array.dtype))
        storage = type.element_type.storage
        if array.shape != type.shape or array.dtype not in (storage, type.element_type.dtype):
            raise ArgumentError(f"put on {self}: expected {type}, got dtype {array.dtype} and shape {array.shape}")
        space = self._known(space)
        source = np.ascontiguousarray(array, storage).reshape(type.shape)
        what = f"transfer of {type}"
        try:
            returned: Any = self.transfer_in(source, type, space)
        except PluginError as error:
            raise PluginError(f"{what} on {device_text(self.backend, self)}: {error}") from error
        except HlojitError:
            raise
        except Exception as error:
            raise failure(what, self, error) from error
        if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Event)):
            raise PluginError(
                f"{what} on {self}: {backend_text(self.backend)} returned {short_repr(returned)} from transfer_in, not a pair of "
                f"handle and Event{place_of(self.transfer_in)}"
            )
        handle, event = returned
        memory = Memory(self, handle)
        if event is not READY and event.source is None:
            event = self._outcome(event, what, [memory])
        return Buffer(self, type, space, memory, event)

    @final
    def put_buffer(self, buffer: Buffer, space: MemorySpace | None = None) -> Buffer:
        """Copy another device's buffer: from device to device where there is a way, else through the host."""
        space = self._known(space)
        what = f"transfer of {buffer.type} from {buffer.device}"
        with Hold((buffer,)) as (memory,):
            try:
                found = self.receive(memory.handle, buffer.device, buffer.type, space, buffer.ready)
            except HlojitError:
                raise
            except Exception as error:
                raise failure(what, self, error) from error
        if found is None:
            return self.put(buffer.to_host(), buffer.type, space)
        handle, event = found
        made = Memory(self, handle)
        return Buffer(self, buffer.type, space, made, self._outcome(event, what, [made, memory]))

    @final
    def borrowed(self, memory: ForeignMemory, type: TensorType) -> Buffer:
        """A buffer over another library's memory; a program that is given it gets a copy."""
        handle, event = self.borrow(memory, type)
        made = Buffer(self, type, self.memory_spaces[0], Memory(self, handle), event)
        made._is_viewed = True
        return made

    @final
    def allocate(self, type: TensorType, space: MemorySpace | None = None) -> Buffer:
        """A buffer whose contents are not defined."""
        space = self._known(space)
        try:
            handle = self.reserve(type, space)
        except PluginError as error:
            raise PluginError(f"allocation of {type} on {device_text(self.backend, self)}: {error}") from error
        except HlojitError:
            raise
        except Exception as error:
            raise failure(f"allocation of {type}", self, error) from error
        return Buffer(self, type, space, Memory(self, handle), READY)

    def _outcome(self, event: Event, what: str, kept: list[Memory]) -> Event:
        """The vendor's event with an error that names what failed; memories live until then."""
        done = Event()

        def finish(_: Event) -> None:
            kept.clear()
            done.complete(None if event.error is None else failure(what, self, event.error))

        event.then(finish)
        return done

    def _known(self, space: MemorySpace | None) -> MemorySpace:
        if space is None:
            return self.memory_spaces[0]
        if space not in self.memory_spaces:
            kinds = ", ".join(each.kind for each in self.memory_spaces)
            name = space.kind if isinstance(space, MemorySpace) else space
            raise ArgumentError(f"{self} has no memory space {name!r}; pass one of its memory_spaces ({kinds})")
        return space

    def start(self, program: DeviceProgram, buffers: Sequence[Buffer]) -> tuple[list[Buffer], Event]:
        """Execute a program on buffers of this device (checked by the caller); the inputs live until it is done.

        The results are pending until the event.  What is donated is taken in one step with the start: no other thread
        starts a program with these buffers in between.

        A device that does nothing but what was put on it before, in that order, may start programs in a shorter way of its own:
        ``execute`` is then for what this way does not take.
        """
        return self._start(program, partial(give, program.name, buffers, program.donated))

    def start_given(self, program: DeviceProgram, given: Given) -> tuple[list[Buffer], Event]:
        """``start``, when the arguments have been given to the program."""
        return self._start(program, lambda: given)

    @final
    def start_among(
        self, program: DeviceProgram, buffers: Sequence[Buffer], participant: Participant
    ) -> tuple[list[Buffer], Event]:
        """``start`` for one process of a program that several devices run together."""
        return self._start(program, partial(give, program.name, buffers, program.donated), participant)

    def _start(
        self, program: DeviceProgram, giving: Callable[[], Given], participant: Participant | None = None
    ) -> tuple[list[Buffer], Event]:
        # First: nothing is held while other programs' ends are waited for.
        self._pending.wait_for_room()
        memories: list[Memory] = []
        results: list[Memory] = []
        returned: Any = None
        try:
            memories, ready, hold = giving()
            with hold:
                after = Event.all(ready)
                arguments = [each.handle for each in memories]
                returned = (
                    self.execute(program, arguments, after)
                    if participant is None
                    else self.execute_among(program, arguments, after, participant)
                )
                handles, event = _checked(returned, program, self)
            results.extend(map(partial(Memory, self), handles))
            done = self._end(program, after, event, [*memories, *results])
            space = self.memory_spaces[0]
            return [Buffer(self, type, space, memory, done) for type, memory in zip(program.outputs, results)], done
        except BaseException as error:
            self._abandon(returned, memories, results)
            if isinstance(error, HlojitError) or not isinstance(error, (Exception, SystemExit)):
                raise
            raise failure(program.name, self, error) from error

    def _end(self, program: DeviceProgram, after: Event, event: Event, kept: list[Memory]) -> Event:
        """The end of a program, known by the vendor's event.

        Memories live until then, results, too: a program must not write to what was given back because nobody wants it.
        """
        done = Event(event.stop)

        def finish(_: Event) -> None:
            error = after.error or event.error
            try:
                kept.clear()
                self._pending.remove(done)
                if error is not None and after.error is None:
                    error = failure(program.name, self, error)
            finally:
                done.nanoseconds = event.nanoseconds
                # Whatever happens: somebody waits for it.
                done.complete(error)

        Event.all((after, event)).then(finish)
        self._pending.add(done)
        return done

    def _abandon(self, returned: Any, memories: list[Memory], results: list[Memory]) -> None:
        """Nobody gets the results of what was started, if it was: it is to end soon, and keeps its memory until then."""
        if returned is None:
            return
        try:
            handles, event = returned
            kept = [*memories, *results, *(Memory(self, each) for each in handles[len(results) :])]
            event.then(lambda _: kept.clear())
            event.stop()
        except Exception:  # it is not known what was started: the caller has the error that says so
            return

    @final
    def __str__(self) -> str:
        return f"{self.backend}:{self.id}"

    def __repr__(self) -> str:
        return f"<Device {self}: {self.description}>"


def is_one_of(device: Device, known: Iterable[Device]) -> bool:
    """Whether a device is one of these very objects: a vendor's devices may be equal to each other, and without a hash."""
    return any(device is each for each in known)


def _checked(returned: Any, program: DeviceProgram, device: Device) -> tuple[list[Any], Event]:
    where = f"{program.name} on {device}: {backend_text(device.backend)}"
    if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Event)):
        raise PluginError(
            f"{where} returned {short_repr(returned)} from execute, not a pair of handles and event{place_of(device.execute)}"
        )
    handles = list(returned[0]) if isinstance(returned[0], Iterable) else None
    if handles is None or len(handles) != len(program.outputs):
        found = f"{len(handles)} handles" if handles is not None else f"{short_repr(returned[0])} for handles"
        raise PluginError(
            f"{where} returned {found} from execute, not {len(program.outputs)}{place_of(device.execute)}"
        )
    return handles, returned[1]
