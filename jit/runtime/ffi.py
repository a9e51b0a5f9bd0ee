"""XLA's foreign function interface (FFI) as hlojit offers it to native functions: layouts, and the functions behind its table.

A handler is a C function ``XLA_FFI_Error* handler(XLA_FFI_CallFrame*)``.  Generated code fills the frame
(``hlojit.cpu.kernels.ffi_call``), ``ffi.ll`` beside this file is the table of functions that the frame points to.  Structures
are those of ``xla/ffi/api/c_api.h``; sizes are what a structure's own first field says, in bytes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from importlib import resources
from typing import Final

from hlojit.ir.errors import HlojitError
from hlojit.ir.once import Once
from hlojit.runtime import layout
from hlojit.runtime.native import CORE_SYMBOLS, native

API_VERSION: Final = (0, 3)
BUFFER_BYTES: Final = 48
ARGUMENTS_BYTES: Final = 40
ATTRIBUTES_BYTES: Final = 48
FRAME_BYTES: Final = 168
"""Of a frame without the field for results that come later, which follows."""
EXECUTE: Final = 3
"""The stage in which a handler computes."""

ERROR_CODES: Final = (
    "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED "
    "FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED"
).split()

_C_LIBRARY: Final = ("malloc", "free", "strlen")
_EXPORTS: Final = ("hlojit_ffi_api", "hlojit_ffi_fail", "hlojit_ffi_destroy")


def _load() -> Mapping[str, int]:
    from hlojit.machine_code import loading

    text = (resources.files(__package__) / "ffi.ll").read_text(encoding="utf-8")
    target = loading.process_target()
    image = loading.kept_object(f"{layout.accessors()}\n{text}", target, pipeline="inline")
    library = ctypes.CDLL(None)
    imports = {name: native().addresses[name] for name in CORE_SYMBOLS}
    for name in _C_LIBRARY:
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        assert address is not None
        imports[name] = address
    code = loading.load_objects([image], _EXPORTS, imports)
    code.keep_for_ever()
    return {name: code.address(name) for name in _EXPORTS}


addresses: Final = Once(_load)
"""Addresses of the table and of what generated code calls; made when the first program needs them."""


def explained(error: int, place: int) -> str:
    """The message of a handler's error, which ends with this: what failed, why, and where in the program."""
    code = ctypes.c_int32.from_address(error).value
    length = ctypes.c_int64.from_address(error + 8).value
    message = ctypes.string_at(error + 16, length).decode("utf-8", "replace")
    what, _, where = ctypes.string_at(place).decode("utf-8", "replace").partition("\n")
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(addresses()["hlojit_ffi_destroy"])(error)
    name = ERROR_CODES[code] if 0 <= code < len(ERROR_CODES) else f"error {code}"
    return f"{what} failed: {name}: {message}\n  at {where}"


# ---------------------------------------------------------------------------------------------- what a handler is


class _ApiVersion(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
    )


class _Metadata(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("version", _ApiVersion),
        ("traits", ctypes.c_uint32),
        ("state_type", ctypes.c_int64),
    )


class _MetadataExtension(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("metadata", ctypes.POINTER(_Metadata)),
    )


class _List(ctypes.Structure):
    """Of arguments and of results."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
    )


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("names", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
    )


class _Frame(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.POINTER(_MetadataExtension)),
        ("api", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("arguments", _List),
        ("results", _List),
        ("attributes", _Attributes),
        ("future", ctypes.c_void_p),
    )


METADATA_EXTENSION: Final = 1
_checked: set[int] = set()


def check_handler(what: str, address: int) -> None:
    """Ask a handler for which version it was built, as XLA does; ``HlojitError`` where it is none of ours."""
    if address in _checked:
        return
    metadata = _Metadata(size=ctypes.sizeof(_Metadata), version=_ApiVersion(size=ctypes.sizeof(_ApiVersion)))
    extension = _MetadataExtension(
        size=ctypes.sizeof(_MetadataExtension), type=METADATA_EXTENSION, metadata=ctypes.pointer(metadata)
    )
    frame = _Frame(
        size=FRAME_BYTES,
        extension=ctypes.pointer(extension),
        api=addresses()["hlojit_ffi_api"],
        stage=EXECUTE,
        arguments=_List(size=ARGUMENTS_BYTES),
        results=_List(size=ARGUMENTS_BYTES),
        attributes=_Attributes(size=ATTRIBUTES_BYTES),
    )
    error = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)(ctypes.addressof(frame))
    if error:
        place = ctypes.create_string_buffer(f"the question of {what} for its version\n(before any call)".encode())
        raise HlojitError(explained(error, ctypes.addressof(place)))
    found = metadata.version.major, metadata.version.minor
    if found[0] != API_VERSION[0] or found[1] > API_VERSION[1]:
        raise HlojitError(
            f"{what} was built for version {found[0]}.{found[1]} of XLA's FFI; hlojit has {API_VERSION[0]}.{API_VERSION[1]}"
        )
    if metadata.state_type:
        raise HlojitError(f"{what} keeps a state between calls, which hlojit's FFI has not")
    _checked.add(address)
