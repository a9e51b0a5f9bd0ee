"""What was compiled once, on disk: kernels and programs by keys that hold everything they depend on.

    cache = disk_cache()                     # None where it is switched off, or the folder cannot be trusted
    data = cache.get("kernels", key)
    cache.put("kernels", key, data)

The folder is the user's own (``XDG_CACHE_HOME/hlojit``, or ``HLOJIT_CACHE``): what lies in it is run as native code, so a
folder or file that belongs to somebody else, or that others may write, is not read.  Entries are written under another
name and renamed, so that any number of processes may share a folder.  A cache never makes a program fail: what cannot be
read is a miss, what cannot be written is left.  A process whose hlojit was changed on disk after it had been imported uses
no cache: what it compiles is of no version that a key could name.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from hlojit.ir.errors import HlojitError
from hlojit.ir.files import open_regular, read_aligned, write_file
from hlojit.ir.switches import CACHE, CACHE_SIZE
from hlojit.ir.versions import sources_changed

LAYOUT: Final = "v3"
"""Name of the folder below the user's; another layout takes another name."""
KINDS: Final = ("programs", "kernels", "objects", "tables", "tuned")
DEFAULT_LIMIT: Final = 1 << 30
LARGEST_SHARE: Final = 4
"""An entry takes at most this part of the limit."""
KEPT_AT_EVICTION: Final = 0.75
_STALE_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the cache."""

    kind: str
    key: str
    path: Path
    nbytes: int
    used: float
    """When it was last read or written."""


@final
class DiskCache:
    """A folder of entries, bounded by ``limit`` bytes."""

    def __init__(self, folder: Path, limit: int = DEFAULT_LIMIT):
        self.folder = folder
        self.limit = limit
        self._written = 0
        self._checked = False

    def get(self, kind: str, key: str) -> memoryview | None:
        """The bytes of an entry, or None."""
        path = self._path(kind, key)
        try:
            with open_regular(path, follow=False) as file:
                status = os.fstat(file.fileno())
                if not _is_ours(status) or status.st_size * LARGEST_SHARE > self.limit:
                    return None
                data = read_aligned(file, status.st_size)
                with suppress(OSError):
                    os.utime(file.fileno() if os.utime in os.supports_fd else path)
                return data
        except (OSError, MemoryError):
            return None

    def put(self, kind: str, key: str, data: bytes) -> None:
        """Keep an entry, if there is room and the folder can be written."""
        if len(data) * LARGEST_SHARE > self.limit or sources_changed():
            return
        path = self._path(kind, key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(path, data)
        except OSError:
            return
        self._written += len(data)
        # The first entry of a process, and then once in a while: looking at every file takes its time.
        if not self._checked or self._written * 16 > self.limit:
            self._checked, self._written = True, 0
            self.evict()

    def discard(self, kind: str, key: str) -> None:
        """Remove an entry that turned out to be damaged."""
        with suppress(OSError):
            self._path(kind, key).unlink()

    def entries(self) -> Iterator[Entry]:
        """All entries."""
        for kind in KINDS:
            for path in (self.folder / LAYOUT / kind).glob("??/*"):
                with suppress(OSError):
                    status = path.lstat()
                    if stat.S_ISREG(status.st_mode) and not path.name.startswith("."):
                        yield Entry(kind, path.name, path, status.st_size, status.st_mtime)

    def evict(self) -> None:
        """Remove the entries that were used longest ago until what is left is within the limit."""
        self._remove_leftovers()
        entries = sorted(self.entries(), key=lambda entry: entry.used)
        total = sum(entry.nbytes for entry in entries)
        if total <= self.limit:
            return
        for entry in entries:
            if total <= self.limit * KEPT_AT_EVICTION:
                break
            with suppress(OSError):
                entry.path.unlink()
                total -= entry.nbytes

    def clear(self) -> int:
        """Remove every entry and return their number."""
        self._remove_leftovers(0.0)
        count = 0
        for entry in list(self.entries()):
            with suppress(OSError):
                entry.path.unlink()
                count += 1
        return count

    def _remove_leftovers(self, age: float = _STALE_SECONDS) -> None:
        """Files of writers that were killed."""
        limit = time.time() - age
        for path in (self.folder / LAYOUT).glob("*/??/.*.tmp"):
            with suppress(OSError):
                if path.lstat().st_mtime <= limit:
                    path.unlink()

    def _path(self, kind: str, key: str) -> Path:
        return self.folder / LAYOUT / kind / key[:2] / key


def _is_ours(status: os.stat_result) -> bool:
    """Whether a file or folder belongs to this user and nobody else may write it."""
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def folder_setting() -> Path | None:
    """The folder that the switches name, or None if the cache is off."""
    setting = CACHE.text()
    if setting.lower() in ("off", "0"):
        return None
    if setting:
        try:
            return Path(setting).expanduser()
        except RuntimeError as error:
            raise HlojitError(f"{CACHE.name}={setting!r}: there is no such user's home") from error
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # XDG says that a relative path is to be ignored.
        return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "hlojit"
    except RuntimeError:  # there is no home
        return None


def limit_setting() -> int:
    """Bytes that the folder may hold."""
    return CACHE_SIZE.nbytes(DEFAULT_LIMIT)


def reason_against(folder: Path) -> str:
    """Why a folder is not used, or an empty string; makes it if it is not there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if stat.S_ISLNK(status.st_mode):
            status = folder.stat()
    except OSError as error:
        return str(error)
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder} is not a folder"
    if not _is_ours(status):
        return f"{folder} belongs to another user, or others may write it: what lies there may be anybody's code"
    return ""


_caches: dict[tuple[Path, int], DiskCache | None] = {}


def disk_cache() -> DiskCache | None:
    """The cache that the switches ask for, or None."""
    folder, limit = folder_setting(), limit_setting()
    if folder is None or sources_changed():
        return None
    key = (folder, limit)
    if key not in _caches:
        _caches[key] = None if reason_against(folder) else DiskCache(folder, limit)
    return _caches[key]
