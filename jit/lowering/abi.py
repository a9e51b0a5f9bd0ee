"""What generated code and a runtime that runs it agree on: the kernel context, and how a program says that it failed.

The context is the first parameter of every kernel and of every host program.  Emitters ask for ``CONTEXT["cancel"].offset``;
the runtime makes accessor functions from the same table (``hlojit.runtime.layout``), so that no offset is written twice.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

_SIZES = {"i32": 4, "i64": 8, "ptr": 8}


class Field(NamedTuple):
    """One field of a record: its offset in bytes and its LLVM type."""

    offset: int
    type: str


def laid_out(fields: Iterable[tuple[str, str]]) -> dict[str, Field]:
    """Fields, given by name and type, one behind the other."""
    placed: dict[str, Field] = {}
    offset = 0
    for name, kind in fields:
        size = _SIZES[kind]
        assert offset % size == 0, f"{name} is not aligned"
        placed[name] = Field(offset, kind)
        offset += size
    return placed


CONTEXT: Final[Mapping[str, Field]] = laid_out(
    (
        # First cache line: written before a launch only, read by every worker.
        ("device", "ptr"),  # reserved: the device's own record
        ("stream", "ptr"),  # reserved: the queue that kernels are launched on
        ("pool", "ptr"),  # the thread pool
        ("arena", "ptr"),  # temporaries of the call
        ("replica", "i32"),  # which replica and partition of a multi-device program this call is
        ("partition", "i32"),
        ("threads", "i32"),  # how many threads the call may use, the calling one included
        ("reserved", "i32"),
        ("record", "ptr"),  # the call record of the executable
        ("user", "ptr"),  # free for the host program
        # Second line: what can change during a call.
        ("error", "i32"),  # a Status; the first failure wins
        ("cancel", "i32"),  # not 0: stop as soon as possible
        ("detail0", "i64"),  # two words that explain the error
        ("detail1", "i64"),
        ("poll_deadline", "i64"),  # cycle count before which hlojit_poll has nothing to do; 0: not set yet
        ("thread", "i64"),  # identity of the Python thread that made the call
        ("thread_state", "ptr"),  # PyEval_SaveThread's result while the GIL is released, else null
        ("kernels", "i64"),  # counted by the host program
        ("bytes_moved", "i64"),  # counted by the host program
        ("launches", "i64"),  # counted by hlojit_parallel_for: launches that were shared among threads
        ("float_environment", "i64"),  # the caller's floating-point environment, while the program has its own
        ("reserved2", "i64"),
        ("reserved3", "i64"),
    )
)
"""The fields of the context, which lives on the caller's stack."""

CONTEXT_BYTES: Final = 192


class Status(enum.IntEnum):
    """What a host program returns, and what its context's error field says."""

    OK = 0
    PYTHON_ERROR = 1
    """A Python exception is pending (Ctrl-C, or raised by a callback)."""
    OUT_OF_MEMORY = 2
    """``detail0`` is the number of bytes."""
    PROGRAM_ERROR = 3
    """The program itself failed; the details are the host program's own."""
    FUNCTION_FAILED = 4
    """A plugin's function failed; the details are the address and the length of a message in UTF-8."""
    FOREIGN_CALL_FAILED = 5
    """A handler of XLA's FFI failed; the details are the addresses of its error, and of what was called where."""
    PYTHON_CALL_FAILED = 6
    """A plugin's function in Python raised; ``detail0`` is a number by which the runtime knows the exception."""
    NATIVE_CALL_FAILED = 7
    """A plugin's native function returned a status; the details are the address of what was called where, and the status."""


def identity() -> str:
    """Hash of everything that compiled code and runtime must agree on."""
    text = repr((sorted(CONTEXT.items()), CONTEXT_BYTES, [(member.name, member.value) for member in Status]))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
