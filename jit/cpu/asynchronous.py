"""Bodies of asynchronous pairs: called by generated code, on the thread that runs one of the processes of a program.

A body runs on a second host thread that the process's own thread has, with a context of its own, one after the other in the
order in which they begin; it waits for other processes' bodies while the own thread goes on.  The program says where it waits
for a body, and when it ends before, none is left behind: they use its memory.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from typing import Any, Final, final

from hlojit.extensions.devices.events import Event, Queue
from hlojit.extensions.devices.rendezvous import current_participant
from hlojit.ir.errors import ExecutionError
from hlojit.ir.once import Once
from hlojit.lowering.abi import CONTEXT, CONTEXT_BYTES, Status
from hlojit.runtime.native import native

_Execute: Final = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)
_Begin: Final = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 5)
_Wait: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
_Abandon: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)

_NEVER: Final = (1 << 64) - 1
_local = threading.local()
_bodies: Final[dict[int, _Body]] = {}
"""Those that have begun, by their frames."""


def asynchronous_symbols() -> Mapping[str, int]:
    """What host programs with asynchronous pairs are linked with."""
    return {name: ctypes.cast(entry, ctypes.c_void_p).value or 0 for name, entry in _entries().items()}


@final
class _Body:
    """One body, from where it begins until somebody has waited for it."""

    def __init__(self, function: int, context: int, slots: int, cells: int):
        participant = current_participant()
        assert participant is not None, "programs with asynchronous pairs run on devices"
        self._own = participant
        self._addresses = (function, slots, cells)
        self._context = ctypes.create_string_buffer(ctypes.string_at(context, CONTEXT_BYTES), CONTEXT_BYTES)
        for name in ("error", "cancel", "detail0", "detail1", "thread", "thread_state", "kernels", "bytes_moved"):
            self._field(name).value = 0
        # Nobody asks on this thread whether the call is to stop.
        self._field("poll_deadline").value = _NEVER
        self._status = int(Status.PROGRAM_ERROR)
        self._beside = participant.beside()
        try:
            self._done: Event = _thread_beside().submit(self._run)
        except BaseException:
            self._beside.end()
            raise

    def _field(self, name: str, context: int | None = None) -> Any:
        field = CONTEXT[name]
        kind = ctypes.c_uint32 if field.type == "i32" else ctypes.c_uint64
        base = ctypes.addressof(self._context) if context is None else context
        return kind.from_address(base + field.offset)

    def _run(self) -> None:
        function, slots, cells = self._addresses
        try:
            with self._beside.participant.here():
                self._status = _execute()(ctypes.addressof(self._context), function, slots, cells)
        finally:
            self._beside.end()

    def wait(self, context: int) -> int:
        """Wait, and give the call whose ``context`` this is the counters and what went wrong; returns the status."""
        try:
            self._beside.wait(self._done)
        except ExecutionError as error:
            self._own.error = self._own.error or error
            self._settle()
        for name in ("kernels", "bytes_moved"):
            self._field(name, context).value += self._field(name).value
        if self._status:
            self._own.error = self._own.error or self._beside.participant.error
            if not self._field("error", context).value:
                for name in ("error", "detail0", "detail1"):
                    self._field(name, context).value = self._field(name).value
        return self._status

    def abandon(self) -> None:
        """Have it end early, and wait for that."""
        self._beside.call_off()
        self._settle()

    def _settle(self) -> None:
        """Wait until nothing of the call is used any more, come what may."""
        gate = threading.Event()
        self._done.then(lambda _: gate.set())
        gate.wait()


def _thread_beside() -> Queue:
    """The calling thread's second one."""
    found: Queue | None = getattr(_local, "queue", None)
    if found is None:
        found = _local.queue = Queue(f"beside {threading.current_thread().name}")
    return found


def _begin(frame: int, function: int, context: int, slots: int, cells: int) -> int:
    try:
        _bodies[frame] = _Body(function, context, slots, cells)
    except BaseException as error:
        participant = current_participant()
        if participant is not None:
            participant.error = ExecutionError(f"an asynchronous op could not begin: {error!r}")
        return Status.PROGRAM_ERROR
    return Status.OK


def _wait(frame: int, context: int) -> int:
    return _bodies.pop(frame).wait(context)


def _abandon(frames: int, count: int) -> None:
    for number in range(count):
        body = _bodies.pop(frames + number * ctypes.sizeof(ctypes.c_void_p), None)
        if body is not None:
            body.abandon()


_execute: Final = Once(lambda: _Execute(native().addresses["hlojit_execute_beside"]))
_entries: Final = Once(
    lambda: {
        "hlojit_async_begin": _Begin(_begin),
        "hlojit_async_wait": _Wait(_wait),
        "hlojit_async_abandon": _Abandon(_abandon),
    }
)
"""Live as long as the process: programs hold their addresses."""
