"""The handler behind ops on channels: a function of XLA's FFI that is Python, and runs on the thread of the call.

It takes the call frame's buffers as arrays, and the host's side of the channel (``hlojit.extensions.devices.channels``) does the
rest.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from hlojit.extensions.calls.foreign_calls import ForeignCall
from hlojit.extensions.devices.channels import matching, transferred
from hlojit.ir.errors import text_of
from hlojit.ir.formats import element_type
from hlojit.ir.once import Once
from hlojit.ir.ops.channel_expansion import TRANSFER
from hlojit.ir.ops.definition import OpDefinition, Trait
from hlojit.ir.ops.foreign_frames import DATA_TYPES, Frame, FrameBuffer, FrameList, FrameText
from hlojit.runtime.ffi import ERROR_CODES, addresses, new_error

_NAMES: Final = {number: name for name, number in DATA_TYPES.items() if not name.startswith("si")}
_Function: Final = ctypes.CFUNCTYPE(None, ctypes.POINTER(Frame), ctypes.POINTER(ctypes.c_void_p))


class _HostTransfer(ForeignCall):
    """Its handler is made when a program of the CPU needs it: that takes LLVM."""

    def __post_init__(self) -> None:
        """There is nothing that could be wrong."""

    def address(self) -> int:
        return _entry()

    def records(self) -> Sequence[OpDefinition]:
        """The op that calls become: other machines' hosts do it, too."""
        return [replace(each, traits=each.traits | {Trait.TALKS}) for each in super().records()]


def host_transfer() -> ForeignCall:
    """The custom call of ops on channels, for the CPU and the reference."""
    return _HostTransfer(TRANSFER, substitute=transferred, asks_version=False)


def _called(frame: Any, error: Any) -> None:
    """No exception is to leave it; if Ctrl-C does, the caller finds an error that says so."""
    try:
        _transfer(frame.contents)
    except KeyboardInterrupt:
        return
    except BaseException as found:
        error[0] = new_error(ERROR_CODES.index("ABORTED"), text_of(found))
        return
    error[0] = None


_function: Final = _Function(_called)


def _address() -> int:
    found = addresses()
    cell = ctypes.c_void_p.from_address(found["hlojit_ffi_python_function"])
    cell.value = ctypes.cast(_function, ctypes.c_void_p).value
    return found["hlojit_ffi_python"]


_entry: Final = Once(_address)


def _transfer(frame: Frame) -> None:
    named = dict(_attributes(frame))
    operands, results = tuple(_arrays(frame.arguments)), tuple(_arrays(frame.results))
    given = transferred(*operands, channel=named["channel"], direction=named["direction"])
    if given or results:
        matching(given, results, f"channel {named['channel']!r}: the program")


def _attributes(frame: Frame) -> Iterator[tuple[str, str]]:
    """The call's attributes, all of which are texts."""
    listed = frame.attributes
    for number in range(listed.count):
        name, value = (FrameText.from_address(pointers[number]) for pointers in (listed.names, listed.values))
        yield str(name), str(value)


def _arrays(listed: FrameList) -> Iterator[np.ndarray[Any, Any]]:
    """The buffers, as arrays over their memory."""
    for number in range(listed.count):
        buffer = FrameBuffer.from_address(listed.values[number])
        element = element_type(_NAMES[buffer.type])
        shape = tuple(buffer.extents[axis] for axis in range(buffer.rank))
        dtype = element.dtype or element.storage
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        memory = memoryview((ctypes.c_uint8 * nbytes).from_address(buffer.data) if nbytes else bytearray())
        yield np.frombuffer(memory, dtype).reshape(shape)
