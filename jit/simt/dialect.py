"""What one machine with threads calls things: the table that a back end supplies to the common emitter."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlojit.ir.formats import FloatFormat
from hlojit.llvm.builder import LlvmBuilder
from hlojit.llvm.text import Val
from hlojit.lowering.grid_matrix_plan import MatrixInput, MatrixInputs
from hlojit.lowering.matrix_layout import MatrixLayout
from hlojit.lowering.target import KIND_BITS
from hlojit.simt import portable_matrices
from hlojit.simt.portable_matrices import Fragments, PortableFragments

if TYPE_CHECKING:
    from hlojit.simt.builder import SimtBuilder


_NOWHERE = Val("null", "ptr")


@dataclass(frozen=True, slots=True)
class Memory:
    """What the pointers of a kernel point into: one of its buffers, or an array in the block's shared memory."""

    what: str
    """For people, such as ``operand 1 (tensor<4xf32>)``."""
    nbytes: int
    itemsize: int = 1
    """Bytes of one element."""
    number: int = -1
    """Of the buffer; -1 for shared memory."""
    offset: int = 0
    """Of shared memory: its first byte's place in that of the block."""
    is_written: bool = False
    """Whether the kernel writes it.  Then threads may access the same element only as barriers or atomic instructions allow."""
    base: Val = _NOWHERE
    """Where it begins; the builder sets it."""

    @property
    def is_shared(self) -> bool:
        """Whether it belongs to a block."""
        return self.number < 0


class Use(enum.Enum):
    """What an instruction does with memory."""

    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic update"
    COPY = "asynchronous copy"
    """Into shared memory: nobody may touch what is copied until its thread has waited for it."""


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """One instruction: ``lanes`` neighbours from a pointer on, or one element at each of several pointers."""

    memory: Memory
    pointer: Val
    lanes: int
    kind: str
    mask: Val | None
    """Lanes that take part; None means all."""
    use: Use
    align: int
    """What the pointer is a multiple of, or every one of several."""
    member: int = -1
    """The number of the fusion's instruction for which this is done; -1: not known, or no fusion."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return max(8, KIND_BITS[self.kind]) // 8


SHARED: Final = "@hlojit_shared"


def shared_place(b: SimtBuilder, offset: int) -> Val:
    """``Dialect.shared`` where shared memory is one symbol in address space 3, of a size that the launch says."""
    b.declare(SHARED, f"{SHARED} = external addrspace(3) global [0 x i8], align 16")
    text = f"getelementptr inbounds i8, ptr addrspacecast (ptr addrspace(3) {SHARED} to ptr), i64 {offset}"
    return b.emit("ptr", 1, text)


class Dialect(ABC):
    """Special registers, barriers, shuffles and the form of a kernel function, as LLVM IR text.

    Methods append to the builder.  Whole 32-bit integers are shuffled; the builder makes all other kinds of these.  What
    threads do together - barriers, shuffles, votes - all threads of the block, or of the warp, do at the same place.
    """

    name: str
    warp: int = 32
    intrinsics: frozenset[str] = frozenset()
    """What kernels may call besides ``intrinsics.EXACT``: whole names, or stems (``nvvm.add.rm`` of ``llvm.nvvm.add.rm.f32``)."""
    externs: frozenset[str] = frozenset()
    """Functions that kernels may call and that the machine's driver defines when it loads them."""

    @property
    def vote_kind(self) -> str:
        """The integer in which the lanes of a warp have a bit each."""
        return "i64" if self.warp > 32 else "i32"

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
    def shuffle_from(self, b: SimtBuilder, value: Val, lane: Val) -> Val:
        """The value (i32) of the lane of the warp with the number ``lane`` (i32); all lanes take part."""

    @abstractmethod
    def ballot(self, b: SimtBuilder, predicate: Val) -> Val:
        """The predicates (i1) of the warp, lane 0 in the lowest bit of a ``vote_kind``; all lanes take part."""

    @abstractmethod
    def sync_warp(self, b: SimtBuilder) -> None:
        """Wait until all lanes of the warp are here; what they wrote is seen by all of them afterwards."""

    @abstractmethod
    def shared(self, b: SimtBuilder, offset: int) -> Val:
        """Address of byte ``offset`` of the block's shared memory."""

    def extremum(self, b: SimtBuilder, x: Val, y: Val, *, is_maximum: bool) -> Val | None:
        """IEEE 754-2019 maximum or minimum of floats, or None where that is no instruction."""
        return None

    def status(self, b: SimtBuilder, number: int) -> Val:
        """Address of the kernel's status (``hlojit.simt.status``): one more parameter behind the ``number`` of buffers.

        Asked for while the kernel is emitted, wherever it first needs it; the address is there from its beginning on.
        """
        parameter, address = b.add_parameter("ptr addrspace(1)", "status"), b.name()
        b.at_entry(f"{address} = addrspacecast ptr addrspace(1) {parameter.text} to ptr")
        return Val(address, "ptr")

    device_scope: str = ""
    """LLVM's name of the scope in which all threads of a launch see an atomic instruction; empty: that of the whole system."""

    def copy_async(self, b: SimtBuilder, access: MemoryAccess, source: Val, exists: Val | None) -> None:
        """Begin to copy what ``access`` writes in shared memory - 4, 8 or 16 bytes - from an address in a buffer.

        Where ``exists`` is false nothing is read, and zeros are written.  Here: a load and a store.
        """
        with b.of_lanes(access.lanes):
            value = LlvmBuilder.load(b, access.kind, source, vector=access.lanes > 1, align=access.align)
            if exists is not None:
                value = b.select(exists, value, b.splat(b.constant(access.kind, 0), access.lanes))
            LlvmBuilder.store(b, value, access.pointer, align=access.align)

    def commit_copies(self, b: SimtBuilder) -> None:  # noqa: B027  nothing is under way on most machines
        """What the thread has begun to copy since it was here last is one group (which may be empty)."""

    def wait_for_copies(self, b: SimtBuilder, left: int) -> None:  # noqa: B027
        """Wait for all groups but the last ``left`` ones; the thread sees them then, others behind a barrier."""

    def number(self, b: SimtBuilder, position: int) -> Val:
        """One more parameter, behind ``position`` others, that is no address but a number (i64)."""
        return Val(b.add_parameter("i64", f"number{position}").text, "i64")

    def set_condition(self, b: SimtBuilder, handle: Val, value: Val) -> bool:
        """Set the condition (i32) of a graph's node by its handle (i64) (``hlojit.simt.conditions``).

        False, and nothing is appended, where the machine's graphs have no nodes with conditions.
        """
        return False

    exchanges_matrices: bool = True
    """Whether matrix instructions are made of others: ``portable_matrices.EXCHANGED_WORDS`` of shared memory a thread."""

    def matrix_fragments(
        self, b: SimtBuilder, layout: MatrixLayout, base: Val, first: Val, *, is_left: bool
    ) -> Fragments:
        """What lanes read of an operand's steps, which lie from ``base`` on; see ``portable_matrices``."""
        return PortableFragments(b, layout, base, first, is_left=is_left)

    def matrix_multiply(
        self,
        b: SimtBuilder,
        inputs: MatrixInputs,
        left: Sequence[Val],
        right: Sequence[Val],
        sums: Sequence[Val],
        exchange: Val | None,
    ) -> list[Val]:
        """The lane's four sums after multiplying 16 rows by 8 columns; all lanes of a warp of 32 take part."""
        assert exchange is not None
        return portable_matrices.multiply(b, inputs, left, right, sums, exchange)

    def encoded(self, b: SimtBuilder, value: Val, format: FloatFormat) -> Val | None:
        """What stands in memory for floats rounded to a narrower format, or None where that is no instruction.

        Every value has to become what ``hlojit.ir.scalar.formats`` makes of it; NaN stays some NaN.
        """
        return None

    def decoded(self, b: SimtBuilder, stored: Val, format: FloatFormat) -> Val | None:
        """The value of what stands in memory, or None where that is no instruction."""
        return None

    def matrix_elements(self, b: SimtBuilder, stored: Val, format: FloatFormat, input: MatrixInput) -> Val | None:
        """What stands in memory as elements of a type that matrix instructions take and that holds it, or None.

        None means: decoded to f32, whose upper bits are taken.
        """
        return None

    def check(self, b: SimtBuilder, access: MemoryAccess) -> None:  # noqa: B027  most machines check nothing
        """Called before every access to memory that others may see."""

    def linked(self, text: str) -> str:
        """The LLVM module of a plugin's function, whose addresses are all in address space 0, as the machine has it."""
        return text

    def for_module(self) -> Dialect:
        """The dialect for one builder; a copy where it notes what it has seen."""
        return self

    def finish(self, b: SimtBuilder, text: str) -> str:
        """The module's text, from what was emitted."""
        return text
