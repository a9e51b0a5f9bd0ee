"""Structures of XLA's foreign function interface (``xla/ffi/api/c_api.h``, version 0.3), as ctypes has them.

Sizes are what a structure's own first field says, in bytes.
"""

from __future__ import annotations

import ctypes
from typing import Final

BUFFER_BYTES: Final = 48
ARGUMENTS_BYTES: Final = 40
ATTRIBUTES_BYTES: Final = 48
FRAME_BYTES: Final = 168
"""Of a frame without the field for results that come later, which follows."""
EXECUTE: Final = 3
"""The stage in which a handler computes."""
ARRAY, DICTIONARY, SCALAR, STRING = 1, 2, 3, 4
"""Kinds of attributes."""
DATA_TYPES: Final = {
    "i1": 1,
    **{"i2": 26, "i4": 21, "i8": 2, "i16": 3, "i32": 4, "i64": 5},
    **{"ui2": 27, "ui4": 22, "ui8": 6, "ui16": 7, "ui32": 8, "ui64": 9},
    **{"f16": 10, "f32": 11, "f64": 12, "bf16": 16, "complex<f32>": 15, "complex<f64>": 18},
    **{"f8E5M2": 19, "f8E3M4": 29, "f8E4M3": 28, "f8E4M3FN": 20, "f8E4M3B11FNUZ": 23, "f8E5M2FNUZ": 24},
    **{"f8E4M3FNUZ": 25, "f4E2M1FN": 32, "f8E8M0FNU": 33},
    **{f"si{bits}": code for bits, code in ((8, 2), (16, 3), (32, 4), (64, 5))},
}
"""XLA's numbers of element types, by name."""


class ApiVersion(ctypes.Structure):
    """XLA_FFI_Api_Version."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
    )


class Metadata(ctypes.Structure):
    """What a handler says of itself."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("version", ApiVersion),
        ("traits", ctypes.c_uint32),
        ("state_type", ctypes.c_int64),
    )


class MetadataExtension(ctypes.Structure):
    """The question for it."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("metadata", ctypes.POINTER(Metadata)),
    )


class FrameList(ctypes.Structure):
    """Of arguments and of results."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("values", ctypes.POINTER(ctypes.c_void_p)),
    )


class FrameAttributes(ctypes.Structure):
    """Of the call, sorted by name."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("names", ctypes.POINTER(ctypes.c_void_p)),
        ("values", ctypes.POINTER(ctypes.c_void_p)),
    )


class Frame(ctypes.Structure):
    """A call: what a handler is given."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.POINTER(MetadataExtension)),
        ("api", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("arguments", FrameList),
        ("results", FrameList),
        ("attributes", FrameAttributes),
        ("future", ctypes.c_void_p),
    )


class FrameBuffer(ctypes.Structure):
    """An operand or result; ``type`` is one of ``DATA_TYPES``."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("type", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("extents", ctypes.POINTER(ctypes.c_int64)),
    )


class FrameText(ctypes.Structure):
    """A name or a text: bytes without an end."""

    _fields_ = (("data", ctypes.c_void_p), ("length", ctypes.c_size_t))

    def __str__(self) -> str:
        return ctypes.string_at(self.data, self.length).decode("utf-8", "replace")


class FrameScalar(ctypes.Structure):
    """An attribute that is a number of one of ``DATA_TYPES``."""

    _fields_ = (("type", ctypes.c_int), ("value", ctypes.c_void_p))


class FrameArray(ctypes.Structure):
    """An attribute that is numbers."""

    _fields_ = (("type", ctypes.c_int), ("count", ctypes.c_size_t), ("data", ctypes.c_void_p))


class NewError(ctypes.Structure):
    """What the first function of the frame's table takes: it makes an error."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("code", ctypes.c_int),
    )


ERROR_CREATE_OFFSET: Final = 48
"""Where the table has the address of that function."""
