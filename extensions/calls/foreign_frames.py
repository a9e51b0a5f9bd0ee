"""A call of a handler of XLA's foreign function interface, as arrays: what a handler written in Python reads and fills.

    @foreign_handler
    def scale(frame):
        call = ForeignFrame(frame)
        np.multiply(call.operands[0], call.attributes["factor"], out=call.results[0])

The structures are those of ``xla/ffi/api/c_api.h``.  Nobody checks an address in them: handlers are *trusted native*.
"""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any, Final, final

import numpy as np
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import find_element_type
from hlojit.ir.ops.foreign_frames import (
    ARRAY,
    DATA_TYPES,
    DICTIONARY,
    ERROR_CREATE_OFFSET,
    SCALAR,
    STRING,
    Frame,
    FrameArray,
    FrameAttributes,
    FrameBuffer,
    FrameList,
    FrameScalar,
    FrameText,
    NewError,
)

INTERNAL: Final = 13
"""The code of an error of a handler's own (``XLA_FFI_Error_Code_INTERNAL``)."""
_NAMES: Final = {code: name for name, code in reversed(DATA_TYPES.items())}
_Array = np.ndarray[Any, Any]


@final
class ForeignFrame:
    """A call, by the address that a handler is given; it is good as long as the handler has not returned.

    ``operands`` and ``results`` are NumPy arrays over the call's own memory, row-major and of the shapes that the program says;
    operands are read-only, results are to be filled.  Elements of types that NumPy does not have are ``ml_dtypes``' where that
    has them, otherwise codes.  ``attributes`` are numbers of NumPy's (their dtype is the type that the program says), arrays,
    texts and dictionaries, by name.
    """

    def __init__(self, address: int):
        self.address = address
        self._frame: Any = Frame.from_address(address)

    @property
    def stage(self) -> int:
        """3 where the handler is to compute; hlojit calls handlers in no other stage."""
        return int(self._frame.stage)

    @cached_property
    def operands(self) -> tuple[_Array, ...]:
        """The operands, read-only."""
        return tuple(
            _array(self._frame.arguments, number, writable=False) for number in range(self._frame.arguments.count)
        )

    @cached_property
    def results(self) -> tuple[_Array, ...]:
        """The results, to be filled."""
        return tuple(_array(self._frame.results, number, writable=True) for number in range(self._frame.results.count))

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """The call's configuration."""
        return _attributes(self._frame.attributes)

    def error(self, message: str, code: int = INTERNAL) -> int:
        """The address of a new error, for the handler to return; ``code`` is one of ``XLA_FFI_Error_Code``."""
        create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(
            ctypes.c_int64.from_address(self._frame.api + ERROR_CREATE_OFFSET).value
        )
        given = NewError(ctypes.sizeof(NewError), None, message.encode("utf-8", "replace"), code)
        return int(create(ctypes.addressof(given)) or 0)


def _array(values: FrameList, number: int, *, writable: bool) -> _Array:
    buffer: Any = FrameBuffer.from_address(values.values[number])
    shape = tuple(buffer.extents[: buffer.rank]) if buffer.rank else ()
    return _elements(buffer.type, buffer.data, shape, writable=writable)


def _elements(type: int, address: int | None, shape: tuple[int, ...], *, writable: bool) -> _Array:
    """An array over memory; only operands and attributes are not to be written."""
    element = find_element_type(_NAMES.get(type, ""))
    if element is None:
        raise HlojitError(f"an element type of number {type} is none of hlojit's")
    dtype = np.dtype(element.dtype or element.storage)
    array: _Array = np.empty(shape, dtype)
    if array.size and address:
        memory: Any = (ctypes.c_byte * array.nbytes).from_address(address)
        array = np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
    array.flags.writeable = writable
    return array


def _attributes(given: FrameAttributes) -> dict[str, Any]:
    kinds = (ctypes.c_int32 * given.count).from_address(given.types) if given.count else ()
    return {
        str(FrameText.from_address(given.names[number])): _attribute(kind, given.values[number])
        for number, kind in enumerate(kinds)
    }


def _attribute(kind: int, address: int) -> Any:
    if kind == STRING:
        return str(FrameText.from_address(address))
    if kind == DICTIONARY:
        return _attributes(FrameAttributes.from_address(address))
    if kind == SCALAR:
        scalar = FrameScalar.from_address(address)
        return _elements(scalar.type, scalar.value, (), writable=False)[()]
    if kind == ARRAY:
        array = FrameArray.from_address(address)
        return _elements(array.type, array.data, (array.count,), writable=False)
    raise HlojitError(f"an attribute of the kind {kind} is none of XLA's")
