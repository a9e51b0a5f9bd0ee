"""The memory of one device: who holds what, and what is said when there is none left."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable
from typing import final

from hlojit.gpu.driver import Driver, OutOfDeviceMemory, Stream

LISTED = 6
"""Holders that a message names."""


@final
class DeviceMemory:
    """A handle: memory that goes back to its pool when nothing refers to it any more."""

    __slots__ = ("__weakref__", "_pool", "_process", "address", "nbytes")

    def __init__(self, pool: MemoryPool, address: int, nbytes: int):
        self._pool = pool
        self._process = os.getpid()
        self.address = address
        self.nbytes = nbytes

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        # What a parent process allocated is the parent's to free.
        if self.address and self._process == getpid():
            self._pool.release(self.address)


@final
class BorrowedMemory:
    """A handle of another library's memory: as long as it is there, its owner is."""

    __slots__ = ("__weakref__", "_owner", "address", "nbytes")

    def __init__(self, address: int, nbytes: int, owner: object):
        self._owner = owner
        self.address = address
        self.nbytes = nbytes


Handle = DeviceMemory | BorrowedMemory


@final
class MemoryPool:
    """Memory for one stream, in its order: what is freed may be used at once by what is put on the stream later."""

    def __init__(self, name: str, driver: Driver, stream: Stream):
        self._name = name
        self._driver = driver
        self._stream = stream
        self._held: dict[int, tuple[str, int]] = {}

    @property
    def held_bytes(self) -> int:
        """What has been allocated and not given back."""
        return sum(nbytes for _, nbytes in list(self._held.values()))

    def allocate(self, nbytes: int, holder: str, stream: Stream | None = None) -> DeviceMemory:
        """Memory without contents; ``holder`` says in messages what it is for.  Nothing is taken for no bytes.

        ``stream`` is the one that uses it first, if it is not the pool's, which must wait for that use.
        """
        stream = self._stream if stream is None else stream
        if not nbytes:
            return DeviceMemory(self, 0, 0)
        try:
            address = self._driver.allocate(nbytes, stream)
        except OutOfDeviceMemory:
            address = self._allocate_again(nbytes, holder, stream)
        self._held[address] = (holder, nbytes)
        return DeviceMemory(self, address, nbytes)

    def release(self, address: int) -> None:
        """Give memory back; for ``DeviceMemory``."""
        # Destructors run anywhere: one operation of a dict, no lock.
        if self._held.pop(address, None) is not None:
            self._driver.free(address, self._stream)

    def _allocate_again(self, nbytes: int, holder: str, stream: Stream) -> int:
        """Once more, when all that nobody can reach has been given back."""
        gc.collect()
        self._driver.trim()
        try:
            return self._driver.allocate(nbytes, stream)
        except OutOfDeviceMemory as error:
            raise OutOfDeviceMemory(
                nbytes, f"out of memory on {self._name}: {self._explained(nbytes, holder)}"
            ) from error

    def _explained(self, nbytes: int, holder: str) -> str:
        free, total = self._driver.memory()
        amounts: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for name, size in list(self._held.values()):
            amounts[name] += size
            counts[name] += 1
        listed = [
            f"{size:,} by {name}" + (f" ({counts[name]} of them)" if counts[name] > 1 else "")
            for name, size in amounts.most_common(LISTED)
        ]
        rest = sum(amounts.values()) - sum(size for _, size in amounts.most_common(LISTED))
        if rest:
            listed.append(f"{rest:,} by others")
        held = f"held are {', '.join(listed)}" if listed else "this process holds none of it"
        return f"{nbytes:,} bytes for {holder}, {free:,} of {total:,} are free; {held}"
