"""Acme's memory: bytes that only the machine sees, and what lies where."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hlojit.extensions import Event, Held, Layout, TensorType
from numpy.typing import NDArray

ALIGNMENT = 64


@dataclass(eq=False, slots=True)
class Region:
    """A tensor in memory: its bytes, its shape as it lies there, and the command that writes it."""

    address: int
    nbytes: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    written: Event = field(default_factory=Event)
    cycle: int = 0
    """When the command that writes it has ended, by the machine's clock."""
    source: Held | None = None
    """Whose bytes these are, if they are another tensor's."""

    @property
    def ready(self) -> int:
        """The cycle from which on it may be read."""
        return self.cycle if self.source is None else self.source.memory.ready


def shape_in_memory(type: TensorType, layout: Layout) -> tuple[int, ...]:
    """The shape of what ``layout.pack`` returns: whole tiles, then what is in a tile."""
    extents = [type.shape[dimension] for dimension in layout.order or range(type.rank)]
    plain = len(extents) - len(layout.tile)
    tiles = [-(-extent // size) for extent, size in zip(extents[plain:], layout.tile, strict=True)]
    return (*extents[:plain], *tiles, *layout.tile)


class Memory:
    """A heap of bytes, first fit."""

    def __init__(self, size: int) -> None:
        self._bytes = bytearray(size)
        self._free = [(0, size)]
        self._returned: deque[Region] = deque()
        self._lock = threading.Lock()

    def allocate(self, type: TensorType, layout: Layout) -> Region:
        """Memory for a tensor; raises ``MemoryError`` if no piece is large enough."""
        shape, dtype = shape_in_memory(type, layout), np.dtype(type.element_type.storage)
        nbytes = -(-max(int(np.prod(shape)) * dtype.itemsize, 1) // ALIGNMENT) * ALIGNMENT
        with self._lock:
            self._collect()
            for number, (address, length) in enumerate(self._free):
                if length >= nbytes:
                    self._free[number : number + 1] = [(address + nbytes, length - nbytes)] if length > nbytes else []
                    return Region(address, nbytes, dtype, shape)
        raise MemoryError(f"acme: {nbytes} bytes are wanted, {self.available} are free")

    def release(self, region: Region) -> None:
        """Give memory back.  Takes no lock: the garbage collector calls it, perhaps in the middle of ``allocate``."""
        if region.source is None:
            self._returned.append(region)
        region.source = None

    def view(self, region: Region) -> NDArray[Any]:
        """The elements as they lie there; for commands of the machine only."""
        count = int(np.prod(region.shape))
        return np.frombuffer(self._bytes, region.dtype, count, region.address).reshape(region.shape)

    @property
    def available(self) -> int:
        """Bytes that are free."""
        return sum(length for _, length in self._free) + sum(region.nbytes for region in list(self._returned))

    def _collect(self) -> None:
        while self._returned:
            region = self._returned.popleft()
            self._free.append((region.address, region.nbytes))
        merged: list[tuple[int, int]] = []
        for address, length in sorted(self._free):
            if merged and sum(merged[-1]) == address:
                merged[-1] = merged[-1][0], merged[-1][1] + length
            else:
                merged.append((address, length))
        self._free = merged
