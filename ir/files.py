"""Files that are written as a whole and checked when they are read.

write_file(path, sealed(MAGIC, 1, body)); body = unsealed(MAGIC, 1, read_aligned(file, size))
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import struct
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from hlojit.ir.binary import ALIGNMENT, FormatError

_HEADER: Final = struct.Struct("<8sIIQ32s")
"""Magic, version, 0, length of the body, SHA-256 of key and body; padded to ``ALIGNMENT``."""


def sealed(magic: bytes, version: int, body: bytes, key: str = "") -> bytes:
    """A body with a header that says what it is and whether it is whole; it opens with the same ``key`` only."""
    head = _HEADER.pack(magic, version, 0, len(body), _checksum(body, key))
    return head.ljust(ALIGNMENT, b"\0") + body


def unsealed(magic: bytes, version: int, data: memoryview, key: str = "") -> memoryview:
    """The body; raises ``FormatError`` if it is of another kind, version or key, cut off, too long, or altered."""
    if len(data) < ALIGNMENT or bytes(data[: len(magic)]) != magic:
        raise FormatError("this is no file of the kind that hlojit writes here")
    _, found, _, length, digest = _HEADER.unpack_from(data)
    if found != version:
        raise FormatError(f"the file has version {found} of the format, this hlojit reads version {version}")
    body = data[ALIGNMENT:]
    if len(body) != length:
        wrong = "cut off" if len(body) < length else "longer than what was written"
        raise FormatError(f"the file is {wrong}: {len(body)} bytes of {length}")
    if _checksum(body, key) != digest:
        raise FormatError("the file is damaged: its checksum is wrong")
    return body


def _checksum(body: bytes | memoryview, key: str) -> bytes:
    digest = hashlib.sha256(f"{key}\0".encode() if key else b"")
    digest.update(body)
    return digest.digest()


def write_file(path: Path, data: bytes) -> None:
    """Write a file under another name first, so that nobody ever sees a part of it."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.", suffix=".tmp")
    try:
        try:
            file = os.fdopen(descriptor, "wb")
        except BaseException:
            os.close(descriptor)
            raise
        with file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def open_regular(path: str | os.PathLike[str], *, follow: bool = True) -> Any:
    """Open a regular file for reading; what is none - a pipe would never end - is an ``OSError``."""
    # Without waiting for somebody to write into a pipe.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags if follow else flags | getattr(os, "O_NOFOLLOW", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "this is no regular file", os.fspath(path))
        return os.fdopen(descriptor, "rb", buffering=0)
    except BaseException:
        os.close(descriptor)
        raise


def read_aligned(file: Any, size: int) -> memoryview:
    """The bytes of a file, in memory that begins where a constant may begin."""
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    view: memoryview = room.data[start : start + size]
    got = 0
    while got < size:
        step = file.readinto(view[got:])
        if not step:
            break
        got += step
    return view[:got]
