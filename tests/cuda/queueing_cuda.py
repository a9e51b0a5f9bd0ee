"""The fake of ``fake_cuda.py`` with a queue for every stream, which does as little as it may, as late as it may.

What is on a stream runs when somebody waits for it - for an event, a stream, everything - and then together with what it waits
for itself, by events, and nothing else.  So what one stream leaves to chance to be done before another one's work is done behind
it.  Memory is there when the stream has come to the allocation, and poisoned when it has come to the end: until then only this
stream may be given it again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .fake_cuda import FakeCuda, FakeError, real

POISON = 0xA5


@dataclass(eq=False)
class Point:
    """What a stream has done when it comes to a record of an event."""

    stream: int
    is_reached: bool = False


@dataclass(eq=False)
class Block:
    """Memory, and whether it has been given out again before its stream came to the end of it."""

    address: int
    whole: np.ndarray[Any, Any]
    ends: int = 0
    """How often it was freed where the stream has not come to yet."""


@dataclass(eq=False)
class Queue:
    """A stream: what it does, or whose points it waits for."""

    work: deque[Callable[[], Any] | Point] = field(default_factory=deque)
    freed: list[Block] = field(default_factory=list)
    """What only this stream may use: it has not come to the end of it."""


class QueueingCuda(FakeCuda):
    """One GPU on which every stream is as late as it may be."""

    def __init__(self, total: int = 1 << 28):
        super().__init__(total)
        self._queues: dict[int, Queue] = {}
        self._points: dict[int, Point] = {}
        self._blocks: dict[int, Block] = {}
        self._lock = threading.RLock()
        self.wrong: list[str] = []
        """What a GPU's driver has no defined answer to."""

    # ------------------------------------------------------------------------------------------------------ queues

    def _queue(self, stream: Any) -> Queue:
        return self._queues.setdefault(int(stream), Queue())

    def _put(self, stream: Any, work: Callable[[], Any]) -> None:
        if int(stream) in self._capturing:
            super()._put(stream, work)
        else:
            with self._lock:
                self._queue(stream).work.append(work)

    def put(self, stream: int, work: Callable[[], Any]) -> None:
        """Another library's kernel."""
        self._put(stream, work)

    def _reach(self, stream: int, until: Point | None) -> None:
        """Do what is on a stream up to a point, or all of it, and what that waits for."""
        work = self._queue(stream).work
        while work and not (until is not None and until.is_reached):
            each = work[0]
            if isinstance(each, Point):
                if not each.is_reached:
                    self._reach(each.stream, each)
                work.popleft()
            else:
                work.popleft()
                each()

    def do_cuEventRecord(self, event: Any, stream: Any) -> None:
        super().do_cuEventRecord(event, stream)
        with self._lock:
            point = self._points[int(event)] = Point(int(stream))
            self._queue(stream).work.append(lambda: setattr(point, "is_reached", True))

    def do_cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> None:
        super().do_cuStreamWaitEvent(stream, event, flags)
        with self._lock:
            if (point := self._points.get(int(event))) is not None:
                self._queue(stream).work.append(point)

    def do_cuEventSynchronize(self, event: Any) -> None:
        with self._lock:
            if (point := self._points.get(int(event))) is not None:
                self._reach(point.stream, point)

    def do_cuEventQuery(self, event: Any) -> None:
        super().do_cuEventQuery(event)
        self.do_cuEventSynchronize(event)

    def do_cuStreamSynchronize(self, stream: Any) -> None:
        with self._lock:
            self._reach(int(stream), None)

    def do_cuCtxSynchronize(self) -> None:
        with self._lock:
            for stream in list(self._queues):
                self._reach(stream, None)

    # ------------------------------------------------------------------------------------------------------ memory

    @property
    def used(self) -> int:
        return sum(each.whole.nbytes for each in self._blocks.values())

    def do_cuMemAllocAsync(self, nbytes: int, stream: Any) -> Any:
        assert nbytes > 0
        assert int(stream) not in self._capturing, "memory would be a node of the graph"
        with self._lock:
            freed = self._queue(stream).freed
            block = next((each for each in freed if each.whole.nbytes == nbytes + 256), None)
            if block is not None:
                freed.remove(block)
                return real.CUdeviceptr(block.address)
            if self.used + nbytes > self.total:
                raise FakeError(real.CUresult.CUDA_ERROR_OUT_OF_MEMORY)
            address, whole = self._free.pop(nbytes, None) or self._fresh(nbytes)
            whole[...] = POISON
            self._blocks[address] = Block(address, whole)
            self._queue(stream).work.append(lambda: self.memory.__setitem__(address, whole))
            return real.CUdeviceptr(address)

    def do_cuMemFreeAsync(self, address: int, stream: Any) -> None:
        with self._lock:
            block, queue = self._blocks[int(address)], self._queue(stream)
            block.ends += 1
            queue.freed.append(block)
            queue.work.append(lambda: self._end(block, queue))

    def _end(self, block: Block, queue: Queue) -> None:
        """The stream has come to the end of a block, which it may use again already."""
        block.ends -= 1
        block.whole[...] = POISON
        if block in queue.freed and not block.ends:
            queue.freed.remove(block)
            del self._blocks[block.address]
            if self.memory.pop(block.address, None) is None:
                self.wrong.append("a stream frees memory before another one has come to where it is taken")
            self._free[block.whole.nbytes - 256] = block.address, block.whole
