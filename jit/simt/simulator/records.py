"""Where things lie in the records that simulated kernels, the scheduler and Python share.

``LAUNCH`` belongs to one launch; Python makes it and reads from it what went wrong.  ``BLOCK`` belongs to one call of a
kernel's function and describes the block that it is running.  ``LANE`` is what a thread and the scheduler tell each other.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from typing import Final

from hlojit.lowering import abi
from hlojit.lowering.abi import Field, laid_out

LAUNCH: Final[Mapping[str, Field]] = laid_out(
    (
        ("claimed", "i32"),  # not 0: a fault has been found; the first one is kept
        ("kind", "i32"),  # a FaultKind
        ("site", "i32"),  # number of the instruction, see KernelFacts.sites; 0: the thread had ended
        ("other_site", "i32"),
        ("thread", "i32"),
        ("other_thread", "i32"),
        ("block", "i64"),
        ("other_block", "i64"),
        ("offset", "i64"),  # of the first byte that was accessed
        ("shared_bytes", "i64"),  # what the launch gives every block
        ("threads", "i32"),  # of a block
        ("alone", "i32"),  # not 0: one thread of the process runs all blocks
        ("cells", "ptr"),  # for every buffer the address of who accessed its elements, or null
    )
)

BLOCK: Final[Mapping[str, Field]] = laid_out(
    (
        ("number", "i64"),
        ("context", "ptr"),
        ("launch", "ptr"),
        ("buffers", "ptr"),
        ("shared", "ptr"),
        ("shared_bytes", "i64"),
        ("lanes", "ptr"),
        ("clocks", "ptr"),  # for every warp the time at which its lanes waited for each other
        ("frames", "ptr"),  # of the coroutines; null before the first thread began
        ("frame_bytes", "i64"),
        ("cells", "ptr"),  # who accessed the elements of shared memory
        ("time", "i64"),  # counts barriers of blocks and of warps; never goes back
        ("barrier_time", "i64"),
        ("start_time", "i64"),
        ("threads", "i32"),
        ("warp_shift", "i32"),  # lanes of a warp, as a power of two
        ("stopped", "i32"),  # not 0: a thread of the block has met a fault
        ("reserved", "i32"),
    )
)

LANE: Final[Mapping[str, Field]] = laid_out(
    (
        ("handle", "ptr"),  # of the coroutine
        ("meeting", "i32"),  # where the thread waits: site * 4 + Meeting; 0: it has ended
        ("turn", "i32"),  # 0 or 4: which of the two slots the next exchange uses
        ("slots", "i64"),  # two words; a lane may run on to its next exchange before its neighbours have read
    )
)
LANE_BYTES: Final = 32
VERSION: Final = 3
"""Of the functions that kernels call and of the form of their facts: objects outlive a process in files."""


MOST_COPIES: Final = 128
"""Asynchronous copies of a thread that are under way."""
COPIES_BYTES: Final = 32 + MOST_COPIES * 32
"""Of a thread's queue of them: three counts (begun, done, groups), then of each its offset, bytes, bytes of an element, group."""
MOST_THREADS: Final = 1024
"""Of a block: what an entry that tells who accessed an element has room for."""
SEVERAL_BLOCKS: Final = (1 << 28) - 1
"""What stands for more than one block where an entry has room for one; numbers of blocks are smaller."""


class Meeting(enum.IntEnum):
    """What a thread waits for."""

    BARRIER = 1
    EXCHANGE = 2
    """All lanes of the warp have put a value into their slots."""
    WARP = 3


class FaultKind(enum.IntEnum):
    """What was found to be wrong with a kernel."""

    OUTSIDE = 1
    """An access outside of its memory."""
    SHARED_RACE = 2
    """Two threads of a block accessed an element of shared memory, one of them writing, and nothing ordered them."""
    BUFFER_RACE = 3
    """Two threads, of a block or of two, accessed an element of a buffer, one of them writing, and nothing ordered them."""
    DIVERGED = 4
    """Threads that should wait at one place wait at different ones, or have ended."""
    PARTIAL_WARP = 5
    """A warp exchanges values, or waits, that has fewer threads than lanes."""
    LAUNCH = 6
    """The launch has another number of threads than the kernel was made for, or too little shared memory."""
    MISALIGNED = 7
    """An access at an address that is no multiple of what the instruction promises."""
    COPIES = 8
    """A thread has begun more asynchronous copies than the simulator keeps, and waited for none."""


RECORDS: Final = {"launch": LAUNCH, "block": BLOCK, "lane": LANE}


def identity() -> str:
    """Hash of everything that kernels' objects and the scheduler must agree on, the context included."""
    text = repr(
        (
            abi.identity(),
            sorted((name, sorted(fields.items())) for name, fields in RECORDS.items()),
            LANE_BYTES,
            VERSION,
        )
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def nbytes(record: Mapping[str, Field]) -> int:
    """Bytes of a record."""
    last = list(record.values())[-1]
    return last.offset + (4 if last.type == "i32" else 8)
