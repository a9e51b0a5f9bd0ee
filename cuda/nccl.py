"""NCCL moves among GPUs, if ``HLOJIT_GPU_COLLECTIVES=nccl`` asks for it; **not run yet**: several GPUs have not been at hand.

    communicator = nccl().communicator((0, 1, 3), 1, context)      # GPU 1's part in what GPUs 0, 1 and 3 do together
    communicator.all_gather(source, target, nbytes, stream)

By ctypes over the eight functions of its C interface that are needed, which have been the same since version 2.7; nothing is
combined by it, so that elements are bytes.  One communicator a group, made by the first of its host threads for all members
(``ncclCommInitAll``); each is used by the thread of its own GPU, with that GPU's context current.

A communicator that is aborted is gone, and only one thread at a time may use it.  So one member's abort refuses all calls
from then on, ends at once what no thread is in, and leaves the rest to the threads that are.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final, final

from hlojit.gpu.driver import DriverError, Message
from hlojit.ir.once import Once
from hlojit.ir.switches import GPU_COLLECTIVES
from hlojit.ir.time_limit import uninterrupted

CHOICES: Final = ("copies", "nccl")
_BYTE: Final = 1
"""``ncclUint8``."""
_pointer, _size, _int = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "ncclCommInitAll": (ctypes.POINTER(_pointer), _int, ctypes.POINTER(_int)),
    "ncclCommAbort": (_pointer,),
    "ncclAllGather": (_pointer, _pointer, _size, _int, _pointer, _pointer),
    "ncclSend": (_pointer, _size, _int, _int, _pointer, _pointer),
    "ncclRecv": (_pointer, _size, _int, _int, _pointer, _pointer),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
}
"""All return a status, 0 where all is well; sizes are in elements, streams are CUDA's handles."""


def is_chosen() -> bool:
    """Whether the switch asks for it."""
    return GPU_COLLECTIVES.choice(CHOICES) == "nccl"


@final
class Nccl:
    """The library, with errors as exceptions, and the communicators of this process."""

    def __init__(self, library: Any):
        self._library: Final = library
        for name, types in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, _int
        library.ncclGetErrorString.argtypes, library.ncclGetErrorString.restype = (_int,), ctypes.c_char_p
        self._lock = threading.Lock()
        self._groups: dict[tuple[int, ...], _Group] = {}

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function; raises ``DriverError`` in NCCL's words."""
        status = getattr(self._library, name)(*arguments)
        if status:
            text = self._library.ncclGetErrorString(status)
            raise DriverError(f"{name}: {text.decode(errors='replace') if text else status}")

    def communicator(
        self, ordinals: tuple[int, ...], own: int, context: AbstractContextManager[None]
    ) -> NcclCommunicator:
        """The part of the GPU number ``own`` in a group; within ``context`` its context is current."""
        with uninterrupted(), self._lock, context:
            group = self._groups.get(ordinals)
            if group is None or group.is_aborted:
                count = len(ordinals)
                made = (_pointer * count)()
                self("ncclCommInitAll", made, count, (_int * count)(*ordinals))
                group = self._groups[ordinals] = _Group(self, [int(each or 0) for each in made])
            return group.part(ordinals.index(own), context)


@final
class _Group:
    """The communicators of all members, and which of them threads are in."""

    def __init__(self, library: Nccl, handles: Sequence[int]):
        self._library = library
        self._handles = tuple(handles)
        self._lock = threading.Lock()
        self._busy: set[int] = set()
        self._parts: dict[int, NcclCommunicator] = {}
        self.is_aborted = False

    def part(self, place: int, context: AbstractContextManager[None]) -> NcclCommunicator:
        """One member's, always the same."""
        found = self._parts.get(place)
        if found is None:
            found = self._parts[place] = NcclCommunicator(self._library, self, self._handles[place], context)
        return found

    @contextmanager
    def calling(self, handle: int) -> Iterator[None]:
        """Within, a thread uses a communicator, which stays as long; raises ``DriverError`` if it has been aborted."""
        with uninterrupted(), self._lock:
            if self.is_aborted:
                raise DriverError("NCCL's communicators were aborted: another member of their group has failed")
            self._busy.add(handle)
        try:
            yield
        finally:
            with uninterrupted(), self._lock:
                self._busy.remove(handle)
                is_left_to_us = self.is_aborted
            if is_left_to_us:
                self._library("ncclCommAbort", handle)

    def abort(self) -> None:
        """End what is waited for in all communicators."""
        with uninterrupted(), self._lock:
            if self.is_aborted:
                return
            self.is_aborted = True
            idle = [each for each in self._handles if each not in self._busy]
        with ExitStack() as every:
            # In order, and all of them: an error of one is raised after the others.
            for each in reversed(idle):
                every.callback(self._library, "ncclCommAbort", each)


@final
class NcclCommunicator:
    """One GPU's part in a group: a ``Communicator``."""

    def __init__(self, library: Nccl, group: _Group, handle: int, context: AbstractContextManager[None]):
        self._library = library
        self._context = context
        self._group = group
        self._handle = handle

    def all_gather(self, source: int, target: int, nbytes: int, stream: int) -> None:
        """One call."""
        with self._context, self._group.calling(self._handle):
            self._library("ncclAllGather", source, target, nbytes, _BYTE, self._handle, stream)

    def move(self, sends: Sequence[Message], receives: Sequence[Message], stream: int) -> None:
        """One group of calls: they are one operation, and no order among them matters."""
        library = self._library
        with self._context, self._group.calling(self._handle):
            library("ncclGroupStart")
            try:
                for each in sends:
                    library("ncclSend", each.address, each.nbytes, _BYTE, each.partner, self._handle, stream)
                for each in receives:
                    library("ncclRecv", each.address, each.nbytes, _BYTE, each.partner, self._handle, stream)
            finally:
                library("ncclGroupEnd")

    def abort(self) -> None:
        """End it for all members."""
        self._group.abort()


def _load() -> Nccl:
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    try:
        path = load_nvidia_dynamic_lib("nccl").abs_path
    except DynamicLibNotFoundError as error:
        raise DriverError(
            "HLOJIT_GPU_COLLECTIVES=nccl, but there is no libnccl.so.2 (pip install nvidia-nccl-cu13); "
            "without the switch GPUs copy from each other"
        ) from error
    return Nccl(ctypes.CDLL(path))


nccl: Final = Once(_load)
"""The installed library; raises ``DriverError`` without one."""
