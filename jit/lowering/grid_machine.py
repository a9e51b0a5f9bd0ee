"""What plans need to know about a machine whose code runs as many threads: a GPU."""

from __future__ import annotations

from dataclasses import dataclass


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
