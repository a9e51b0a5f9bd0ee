"""Regions of a traced program: bodies of loops and branches, in which a part of the function is recorded.

While a region is recorded, what is built goes into its block.  Arrays of outside can be read there and written: a write is undone
when the region ends, and the last value of every storage that was written is what the loop or branch has to carry out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

from hlojit.ir.blocks import Block
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Value
from hlojit.tracing.arrays.storage import Storage
from hlojit.tracing.checks import Checks

if TYPE_CHECKING:
    from hlojit.tracing.operations import Operations


@final
class Frame:
    """One region while it is recorded, and what it wrote when it is done."""

    def __init__(self, block: Block):
        self.block = block
        self.written: dict[Storage, Value] = {}
        """Storages of outside with their values at the end."""
        self.code: Value | None = None
        """The number of the first check that failed in it; None if there are none."""
        self._before: dict[Storage, Value] = {}

    def keep(self, storage: Storage) -> None:
        """Note the value of a storage before it is written for the first time."""
        self._before.setdefault(storage, storage.value)

    def restore(self) -> None:
        """Undo the writes."""
        for storage, value in self._before.items():
            self.written[storage] = storage.value
            storage.value = value
            storage.version += 1

    @contextmanager
    def again(self) -> Iterator[None]:
        """With what was written, as at the end of the region: what arrays show is read so."""
        outside = {storage: storage.value for storage in self.written}
        self._show(self.written)
        try:
            yield
        finally:
            self._show(outside)

    @staticmethod
    def _show(values: Mapping[Storage, Value]) -> None:
        for storage, value in values.items():
            storage.value = value
            storage.version += 1


@contextmanager
def recording(operations: Operations, block: Block) -> Iterator[Frame]:
    """Record into a block that has no terminator yet; ``Builder(frame.block)`` appends to it afterwards."""
    frame = Frame(block)
    outer, checks = operations.builder, operations.checks
    operations.builder = Builder(block, location=outer.location)
    operations.checks = Checks(checks.made, checks)
    operations.frames.append(frame)
    try:
        yield frame
    finally:
        frame.code = operations.checks.running
        operations.frames.pop()
        operations.builder, operations.checks = outer, checks
        frame.restore()
