"""What plans need to know about a machine whose code runs as many threads: a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hlojit.ir.errors import HlojitError

WARPS: Final = (8, 16, 32, 64)
"""Lanes that a warp may have: sums between the warps of a block are brought together by one of them."""
LEAST_THREADS: Final = 512
"""Of the largest block: what radix sorts are made of."""
LEAST_SHARED_BYTES: Final = 8 << 10
"""Of a block: two tiles of a product, and what warps tell each other."""
LEAST_REGISTERS: Final = 32
"""Of a thread."""
ACCESSES: Final = (8, 16)
"""Bytes of the widest access: an element of 64 bits, or what shared memory is aligned for."""
LONGEST_SELECTION: Final = 2048
"""Elements of a line that one block of any machine sorts in its shared memory (``selection_plan``)."""
LONGEST_SUMMED_ROW: Final = 1 << 15
"""Bytes of a row, of the largest accumulators, whose elements and sums the registers of a block hold (``summed_row_plan``)."""


@dataclass(frozen=True, slots=True)
class GridMachine:
    """Threads come in warps (which run in step), warps in blocks (which share memory and meet at barriers).

    Speeds are the vendor's published ones; the registers and the shared memory are those of one multiprocessor.
    """

    multiprocessors: int
    warp: int = 32
    threads_per_block: int = 1024
    threads_per_multiprocessor: int = 2048
    registers: int = 65536
    """32-bit registers of a multiprocessor."""
    registers_per_thread: int = 255
    shared_bytes: int = 48 << 10
    """What one block may have."""
    access_bytes: int = 16
    """The widest load or store of one thread."""
    segment_bytes: int = 128
    """What a warp should read at least from one place: a line of the cache."""
    gigahertz: float = 1.5
    memory_bandwidth: float = 1000.0
    """Bytes a nanosecond."""
    asynchronous_copies: bool = False
    """Whether what is copied from memory to shared memory goes on while its thread does."""
    matrix_inputs: tuple[str, ...] = ()
    """Types of the elements that its matrix instructions multiply (``grid_matrix_plan``)."""
    rounds_to_tf32: bool = False
    """Whether products of f32 whose precision is not HIGHEST may round their operands to the eleven bits of tf32."""
    matrix_rates: tuple[tuple[str, float], ...] = ()
    """Operations a nanosecond of all its matrix units, by the type that they multiply; for estimates."""

    def __post_init__(self) -> None:
        check_warp(self.warp)
        if self.access_bytes not in ACCESSES:
            raise HlojitError(f"a machine's access_bytes are 8 or 16, not {self.access_bytes!r}")
        for name, least in (
            ("multiprocessors", 1),
            ("threads_per_block", LEAST_THREADS),
            ("threads_per_multiprocessor", self.threads_per_block),
            ("registers", self.threads_per_block),
            ("registers_per_thread", LEAST_REGISTERS),
            ("shared_bytes", LEAST_SHARED_BYTES),
            ("segment_bytes", self.access_bytes),
        ):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise HlojitError(f"a machine's {name} are a whole number of at least {least:,}, not {value!r}")
        for name in ("gigahertz", "memory_bandwidth"):
            if not getattr(self, name) > 0:
                raise HlojitError(f"a machine's {name} is a number above 0, not {getattr(self, name)!r}")


def check_warp(lanes: int) -> None:
    """Raise ``HlojitError`` for warps that kernels cannot be made for."""
    if type(lanes) is not int or lanes not in WARPS:
        raise HlojitError(f"warps have {', '.join(map(str, WARPS[:-1]))} or {WARPS[-1]} lanes here, not {lanes!r}")
