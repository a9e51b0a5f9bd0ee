"""What one machine with threads calls things: the table that a back end supplies to the common emitter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hlojit.llvm.text import Val

if TYPE_CHECKING:
    from hlojit.simt.builder import SimtBuilder


class Dialect(ABC):
    """Special registers, barriers, shuffles and the form of a kernel function, as LLVM IR text.

    Methods append to the builder.  Whole 32-bit integers are shuffled; the builder makes all other kinds of these.
    """

    name: str
    warp: int = 32

    @abstractmethod
    @contextmanager
    def kernel(self, b: SimtBuilder, symbol: str, buffers: int, threads: int) -> Iterator[list[Val]]:
        """Open a kernel function of blocks of ``threads``; gives the addresses of the buffers (operands, results, workspace)."""
        yield []

    @abstractmethod
    def thread(self, b: SimtBuilder) -> Val:
        """Number of the thread in its block (i32)."""

    @abstractmethod
    def block(self, b: SimtBuilder) -> Val:
        """Number of the block (i32)."""

    @abstractmethod
    def barrier(self, b: SimtBuilder) -> None:
        """Wait until all threads of the block are here; what they wrote is seen by all afterwards."""

    @abstractmethod
    def shuffle(self, b: SimtBuilder, value: Val, mask: int) -> Val:
        """The value (i32) of the lane of the warp whose number differs in the bits of ``mask``; all lanes take part."""

    @abstractmethod
    def shared(self, b: SimtBuilder, offset: int) -> Val:
        """Address of byte ``offset`` of the block's shared memory."""

    def check(  # noqa: B027  most machines check nothing
        self, b: SimtBuilder, buffer: int, offset: Val, lanes: int, kind: str, *, is_store: bool
    ) -> None:
        """Called before every access to ``lanes`` neighbouring elements from ``offset`` on: ``b.sizes[buffer]`` are there."""

    def finish(self, b: SimtBuilder, text: str) -> str:
        """The module's text, from what was emitted."""
        return text
