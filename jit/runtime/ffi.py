"""XLA's foreign function interface (FFI) as hlojit offers it to native functions: layouts, and the functions behind its table.

A handler is a C function ``XLA_FFI_Error* handler(XLA_FFI_CallFrame*)``.  Generated code fills the frame
(``hlojit.cpu.kernels.foreign_call``), ``ffi.ll`` beside this file is the table of functions that the frame points to.  Structures
are those of ``xla/ffi/api/c_api.h``; sizes are what a structure's own first field says, in bytes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from importlib import resources
from typing import Final

from hlojit.ir.errors import HlojitError
from hlojit.ir.once import Once
from hlojit.ir.ops.foreign_frames import (
    ARGUMENTS_BYTES,
    ATTRIBUTES_BYTES,
    EXECUTE,
    FRAME_BYTES,
    ApiVersion,
    Frame,
    FrameAttributes,
    FrameList,
    Metadata,
    MetadataExtension,
)
from hlojit.runtime import layout
from hlojit.runtime.native import CORE_SYMBOLS, native

API_VERSION: Final = (0, 3)
ERROR_CODES: Final = (
    "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED "
    "FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED"
).split()

_C_LIBRARY: Final = ("malloc", "free", "strlen")
_MALLOC: Final = ctypes.CDLL(None).malloc
_MALLOC.restype = ctypes.c_void_p
_EXPORTS: Final = (
    "hlojit_ffi_api",
    "hlojit_ffi_fail",
    "hlojit_ffi_destroy",
    "hlojit_ffi_interrupted",
    "hlojit_ffi_python",
    "hlojit_ffi_python_function",
)


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
    """The message of a handler's error, which ends with this: what failed, why, and where in the program.

    Raises ``KeyboardInterrupt`` where Ctrl-C has ended a handler that is Python.
    """
    if error == addresses()["hlojit_ffi_interrupted"]:
        raise KeyboardInterrupt
    code = ctypes.c_int32.from_address(error).value
    length = ctypes.c_int64.from_address(error + 8).value
    message = ctypes.string_at(error + 16, length).decode("utf-8", "replace")
    what, _, where = ctypes.string_at(place).decode("utf-8", "replace").partition("\n")
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(addresses()["hlojit_ffi_destroy"])(error)
    name = ERROR_CODES[code] if 0 <= code < len(ERROR_CODES) else f"error {code}"
    return f"{what} failed: {name}: {message}\n  at {where}"


def new_error(code: int, message: str) -> int:
    """The address of an error object, for a handler to return; it is the C library's memory, which the caller frees."""
    text = message.encode()
    made = _MALLOC(ctypes.c_size_t(17 + len(text)))
    if made:
        ctypes.memmove(
            made, code.to_bytes(8, "little") + len(text).to_bytes(8, "little") + text + b"\0", 17 + len(text)
        )
    return int(made or 0)


# ---------------------------------------------------------------------------------------------- what a handler is


METADATA_EXTENSION: Final = 1
_checked: set[int] = set()


def check_handler(what: str, address: int) -> None:
    """Ask a handler for which version it was built, as XLA does; ``HlojitError`` where it is none of ours."""
    if address in _checked:
        return
    metadata = Metadata(size=ctypes.sizeof(Metadata), version=ApiVersion(size=ctypes.sizeof(ApiVersion)))
    extension = MetadataExtension(
        size=ctypes.sizeof(MetadataExtension), type=METADATA_EXTENSION, metadata=ctypes.pointer(metadata)
    )
    frame = Frame(
        size=FRAME_BYTES,
        extension=ctypes.pointer(extension),
        api=addresses()["hlojit_ffi_api"],
        stage=EXECUTE,
        arguments=FrameList(size=ARGUMENTS_BYTES),
        results=FrameList(size=ARGUMENTS_BYTES),
        attributes=FrameAttributes(size=ATTRIBUTES_BYTES),
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
