"""Where things lie in the records that native code and Python share: the kernel context and the call record.

The runtime's native parts (``*.ll`` beside this file) read and write these records through accessor functions such as
``@context.cancel``, which are generated here from the same tables, so that no offset is written twice::

    define private ptr @context.cancel(ptr %record) alwaysinline {
      %field = getelementptr inbounds i8, ptr %record, i64 68
      ret ptr %field
    }

Emitters of kernels and host programs use ``CONTEXT["cancel"].offset``.
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


def _layout(fields: Iterable[tuple[str, str]]) -> dict[str, Field]:
    placed: dict[str, Field] = {}
    offset = 0
    for name, kind in fields:
        size = _SIZES[kind]
        assert offset % size == 0, f"{name} is not aligned"
        placed[name] = Field(offset, kind)
        offset += size
    return placed


CONTEXT: Final[Mapping[str, Field]] = _layout(
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
"""The context: the first parameter of every kernel and of every host program.  It lives on the caller's stack."""

CONTEXT_BYTES: Final = 192

CALL: Final[Mapping[str, Field]] = _layout(
    (
        ("entry", "ptr"),  # i32 entry(ptr context, ptr slots)
        ("inputs", "i64"),
        ("outputs", "i64"),
        ("constants", "i64"),
        ("copies", "i64"),
        ("arena_bytes", "i64"),
        ("release_gil", "i64"),  # 0: the call is so short that keeping the GIL is cheaper
        ("threads", "i64"),  # 0: as many as the process has
        ("otherwise", "ptr"),  # Python callable that takes the arguments when they are not plain arrays
        ("explain", "ptr"),  # Python callable (status, detail0, detail1) that raises the error
        ("constant_table", "ptr"),  # addresses of the constants
        ("copy_table", "ptr"),  # triples (to slot, from slot, bytes)
        ("output_words", "ptr"),  # where the descriptions of the outputs begin
        ("donated", "i64"),  # number of donated inputs whose memory the program takes
        ("donation_table", "ptr"),  # their input numbers
        ("input_bytes", "ptr"),  # bytes of every input
    )
)
"""The call record: what the compiled call path knows of an executable.

It is followed by one description per input, then one per output, as 64-bit words: input = (dtype object, rank,
dimensions...), output = (dtype object, rank, bytes, dimensions...).  An output that is made in the memory of donated input
``n`` has ``-1 - n`` in place of its bytes.
"""

CALL_BYTES: Final = 8 * len(CALL)


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


def accessors() -> str:
    """LLVM IR of the accessor functions of both records."""
    lines = []
    for record, fields in (("context", CONTEXT), ("call", CALL)):
        for name, field in fields.items():
            lines += [
                f"define private ptr @{record}.{name}(ptr %record) alwaysinline {{",
                f"  %field = getelementptr inbounds i8, ptr %record, i64 {field.offset}",
                "  ret ptr %field",
                "}",
            ]
    return "\n".join(lines) + "\n"


def identity() -> str:
    """Hash of everything that compiled code and runtime must agree on."""
    text = repr((sorted(CONTEXT.items()), CONTEXT_BYTES, [(member.name, member.value) for member in Status]))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
