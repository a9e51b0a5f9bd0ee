"""The memory of one device: who holds what, what is kept for the next call, and what is said when there is none left.

The results of a call are mostly as large as those of the call before, whose memory has come back by then.  Where asking the
driver costs time, *shelves* keep such blocks: a block that nobody refers to any more is given out again at once, since what is
put on the stream later uses it later.  It is the driver's again when too much lies there, or when memory runs out.

Other libraries use what they were lent on streams of their own, and may drop it before their kernels have run.  Such blocks are
put *aside* when they come back, until all streams of the device have been waited for: that happens when many lie there, or when
memory runs out.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar, final

from hlojit.gpu.driver import ALIGNMENT, Driver, OutOfDeviceMemory, Stream
from hlojit.ir.current_process import process

LISTED = 6
"""Holders that a message names."""
KEPT_SHARE: Final = 1 / 32
"""Of the device's memory: what may lie on shelves when another block is taken from the driver."""
_OUT_OF_MEMORY: Final = "out of memory"
MOST_ASIDE: Final = 256
"""Blocks that other libraries have dropped, before they are waited for."""

T = TypeVar("T")


@final
class DeviceMemory:
    """A handle: memory that goes back to where it is from when nothing refers to it any more."""

    __slots__ = ("__weakref__", "address", "nbytes", "origin")

    def __init__(self, origin: Shelf | Taken | Lent, address: int, nbytes: int):
        self.address = address
        self.nbytes = nbytes
        # Last: what has no origin is nobody's yet.
        self.origin = origin

    def lend(self) -> None:
        """Another library uses it from now on, on any stream."""
        if type(self.origin) is not Lent:
            self.origin = Lent(self.origin, self.nbytes)

    def __del__(self) -> None:
        # Destructors run anywhere: single operations of lists, no lock.
        try:
            back = self.origin.back
        except AttributeError:  # Ctrl-C came before it was made
            return
        back(self.address)


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
class Taken:
    """A block that is the driver's again when it comes back."""

    __slots__ = ("holder", "pool")

    def __init__(self, pool: MemoryPool, holder: str):
        self.pool = pool
        self.holder = holder

    def back(self, address: int) -> None:
        """Give memory back, in the stream's order."""
        if address:
            self.pool.give_back(address)


@final
class Shelf:
    """Blocks of one size for one purpose, in the order of the pool's stream."""

    __slots__ = ("_blocks", "back", "holder", "nbytes", "pool")

    def __init__(self, pool: MemoryPool, nbytes: int, holder: str, blocks: list[int]):
        self.pool = pool
        self.holder = holder
        self.nbytes = nbytes
        self._blocks = blocks
        self.back: Final[Callable[[int], None]] = blocks.append
        """For ``DeviceMemory``: the next one to ask gets it, who therefore finds much of it in the cache."""

    def take(self) -> DeviceMemory:
        """Memory without contents, which is used by what is put on the stream from now on."""
        try:
            address = self._blocks.pop()
        except IndexError:
            address = self.pool.drawn(self.nbytes, self.holder)
        return DeviceMemory(self, address, self.nbytes)


@final
class Lent:
    """Where a block comes from that streams of others may still use when it comes back."""

    __slots__ = ("_nbytes", "_origin", "holder", "pool")

    def __init__(self, origin: Shelf | Taken, nbytes: int):
        self._origin = origin
        self._nbytes = nbytes
        self.pool = origin.pool
        self.holder = origin.holder

    def back(self, address: int) -> None:
        """Put it aside."""
        if address:
            self.pool.aside.append((self._origin, address, self._nbytes))


@final
class MemoryPool:
    """Memory for one stream, in its order: what is freed may be used at once by what is put on the stream later."""

    def __init__(self, name: str, driver: Driver, stream: Stream):
        self._name = name
        self._driver = driver
        self._stream = stream
        self._process = process.id
        self._kept: dict[int, list[int]] = {}
        self._most_kept = int(driver.properties.total_memory * KEPT_SHARE)
        self._scratch: DeviceMemory | None = None
        self.aside: Final[deque[tuple[Shelf | Taken, int, int]]] = deque()
        """What was lent and came back: origin, address, bytes."""

    @property
    def held_bytes(self) -> int:
        """What has been allocated and not given back."""
        return sum(each.nbytes for each in self._held())

    def _held(self) -> list[DeviceMemory]:
        """All handles of this memory: looked for when somebody asks, which costs less than keeping books at every call."""
        return [each for each in gc.get_objects() if type(each) is DeviceMemory and each.origin.pool is self]

    def allocate(self, nbytes: int, holder: str, stream: Stream | None = None) -> DeviceMemory:
        """Memory without contents; ``holder`` says in messages what it is for.  Nothing is taken for no bytes.

        ``stream`` is the one that uses it first, if it is not the pool's, which must wait for that use.
        """
        if not nbytes:
            return DeviceMemory(Taken(self, holder), 0, 0)
        address = self._obtained(nbytes, holder, self._stream if stream is None else stream)
        return DeviceMemory(Taken(self, holder), address, nbytes)

    def shelf(self, nbytes: int, holder: str) -> Shelf:
        """Where memory of a size comes from again and again; ``holder`` says in messages what it is for."""
        # Nothing, too: its address is 0.
        whole = -(-nbytes // ALIGNMENT) * ALIGNMENT
        return Shelf(self, whole, holder, self._kept.setdefault(whole, []))

    def drawn(self, nbytes: int, holder: str) -> int:
        """For a shelf on which there is nothing: a new block."""
        if not nbytes:
            return 0
        if self.kept_bytes > self._most_kept:
            self.clear()
        return self._obtained(nbytes, holder, self._stream)

    def scratch(self, nbytes: int) -> DeviceMemory:
        """Memory that every program may use while it runs: they run one after the other, and find it at the same place."""
        found = self._scratch
        if found is None or found.nbytes < nbytes:
            self._scratch = None
            self._scratch = found = self.allocate(nbytes, "temporaries of programs")
        return found

    @property
    def kept_bytes(self) -> int:
        """Bytes on shelves."""
        return sum(nbytes * len(blocks) for nbytes, blocks in list(self._kept.items()))

    def clear(self) -> None:
        """Give the driver what lies on shelves."""
        for blocks in list(self._kept.values()):
            while blocks:
                try:
                    address = blocks.pop()
                except IndexError:  # another thread has taken the last one
                    break
                if address:
                    self._driver.free(address, self._stream)

    def readmit(self) -> None:
        """Wait for everybody's streams, and give what lies aside back to where it is from."""
        found: list[tuple[Shelf | Taken, int, int]] = []
        try:
            # Only what is there before the waiting begins; another thread may do the same.
            with suppress(IndexError):
                while True:
                    found.append(self.aside.popleft())
            if found:
                self._driver.drain()
        except BaseException:
            self.aside.extend(found)
            raise
        for origin, address, _ in found:
            origin.back(address)

    def give_back(self, address: int) -> None:
        """To the driver; for ``DeviceMemory``.  What a parent process allocated is the parent's to free."""
        if self._process == process.id:
            self._driver.free(address, self._stream)

    def supplied(self, what: str, make: Callable[[], T]) -> T:
        """What ``make`` returns, for which the driver takes memory of its own; tried again when all that can be is free.

        ``make`` may be called twice; ``what`` says in messages what the memory is for.
        """
        try:
            return make()
        except OutOfDeviceMemory:
            self._give_all_back()
        try:
            return make()
        except OutOfDeviceMemory as error:
            reason = str(error) if str(error).startswith(_OUT_OF_MEMORY) else self._refused(f"{what} ({error})")
            raise OutOfDeviceMemory(error.nbytes, reason) from error

    def _obtained(self, nbytes: int, holder: str, stream: Stream) -> int:
        aside = self.aside
        if len(aside) >= MOST_ASIDE or (aside and sum(each for *_, each in list(aside)) > self._most_kept):
            self.readmit()
        try:
            return self._driver.allocate(nbytes, stream)
        except OutOfDeviceMemory:
            return self._obtained_after_all(nbytes, holder, stream)

    def _obtained_after_all(self, nbytes: int, holder: str, stream: Stream) -> int:
        """Once more, when all that nobody can reach or use has been given back."""
        self._give_all_back()
        try:
            return self._driver.allocate(nbytes, stream)
        except OutOfDeviceMemory as error:
            raise OutOfDeviceMemory(nbytes, self._refused(f"{nbytes:,} bytes for {holder}")) from error

    def _give_all_back(self) -> None:
        gc.collect()
        self._scratch = None
        self.readmit()
        self.clear()
        self._driver.trim()

    def _refused(self, wanted: str) -> str:
        """The message when there is none for what somebody wants."""
        free, total = self._driver.memory()
        amounts: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for each in self._held():
            if each.nbytes:
                amounts[each.origin.holder] += each.nbytes
                counts[each.origin.holder] += 1
        listed = [
            f"{size:,} by {name}" + (f" ({counts[name]} of them)" if counts[name] > 1 else "")
            for name, size in amounts.most_common(LISTED)
        ]
        rest = sum(amounts.values()) - sum(size for _, size in amounts.most_common(LISTED))
        if rest:
            listed.append(f"{rest:,} by others")
        held = f"held are {', '.join(listed)}" if listed else "this process holds none of it"
        return f"{_OUT_OF_MEMORY} on {self._name}: {wanted}, {free:,} of {total:,} are free; {held}"
