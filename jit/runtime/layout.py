"""Where things lie in the records that native code and Python share: the kernel context and the call record.

The runtime's native parts (``*.ll`` beside this file) read and write these records through accessor functions such as
``@context.cancel``, which are generated here from the same tables, so that no offset is written twice::

    define private ptr @context.cancel(ptr %record) alwaysinline {
      %field = getelementptr inbounds i8, ptr %record, i64 68
      ret ptr %field
    }

The context and the status that a program returns belong to generated code as well (``hlojit.lowering.abi``); the call
record is the runtime's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hlojit.lowering.abi import CONTEXT, Field, laid_out

CALL: Final[Mapping[str, Field]] = laid_out(
    (
        ("entry", "ptr"),  # i32 entry(ptr context, ptr slots)
        ("inputs", "i64"),
        ("outputs", "i64"),
        ("constants", "i64"),
        ("arena_bytes", "i64"),
        ("release_gil", "i64"),  # 0: the call is so short that keeping the GIL is cheaper
        ("threads", "i64"),  # 0: as many as the process has
        ("otherwise", "ptr"),  # Python callable that takes the arguments when they are not plain arrays
        ("explain", "ptr"),  # Python callable (status, detail0, detail1) that raises the error
        ("constant_table", "ptr"),  # addresses of the constants
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

ENTRY: Final[Mapping[str, Field]] = laid_out(
    (
        (
            "function",
            "ptr",
        ),  # C function (callee, arrays, count, null), or null: then the callee is called as Python does
        ("callee", "ptr"),
        ("positional", "i64"),  # arguments by position
        ("named", "i64"),  # arguments by keyword
        ("values", "i64"),  # room for these and all that is taken out of them or made of them
        ("leaves", "i64"),  # room for what the program is called with
        ("stack", "i64"),  # room for values that results are made of
        ("results", "i64"),  # of the program
        ("giving", "ptr"),  # operations that make the result; null: it is what the program returns
        ("finish", "ptr"),  # Python callable (what the program returned, leaves) that does the same
    )
)
"""One kind of call of a jitted function, followed by the operations that recognize it."""

ENTRY_BYTES: Final = 8 * len(ENTRY)

FRAME: Final[Mapping[str, Field]] = laid_out(
    (
        ("values", "ptr"),
        ("count", "i64"),  # of values
        ("leaves", "ptr"),
        ("leaf_count", "i64"),
        ("keywords", "ptr"),  # names, or null
        ("items", "ptr"),  # the program's results
        ("stack", "ptr"),
        ("height", "i64"),  # of the stack
    )
)
"""What the operations of an entry work on, on the caller's stack."""

DIRECT_TABLE: Final[Mapping[str, Field]] = laid_out(
    (
        ("watched", "i64"),  # number of pairs of an address and the word that has to be there
        ("words", "ptr"),  # the pairs
        ("records", "i64"),  # their addresses follow
        ("ranks", "i64"),  # dimensions of all arguments together
    )
)
"""What callers that know no Python find records by (``direct.ll``)."""

DIRECT: Final[Mapping[str, Field]] = laid_out(
    (
        ("call", "ptr"),  # the executable's record
        ("leaves", "i64"),  # arguments
        ("results", "i64"),  # outputs that the caller has memory for
        ("writes", "i64"),  # the next outputs are written into arguments
        ("written", "ptr"),  # pairs: argument, bytes
        ("apart", "i64"),
        ("pairs", "ptr"),  # argument, bytes, another one, its bytes: that may not lie on each other
        ("words", "i64"),  # slots that the program needs
        ("sizes", "ptr"),  # of the arguments' dimensions
        ("shapes", "ptr"),  # of the results' dimensions
    )
)
"""A program for arguments of certain sizes, as such callers call it."""

MATCH: Final = tuple(
    "keyword array number scalar same equal float type tuple list dict attribute opened constant state numbers function name "
    "member cell context writable apart".split()
)
"""Operations that recognize a call (``matching.ll``), numbered from 1; 0 is the end."""

GIVE: Final = tuple(
    "check write item scalar number transposed constant tuple list dict mapping instance made python".split()
)
"""Operations that make a call's result (``giving.ll``)."""


RECORDS: Final[Mapping[str, Mapping[str, Field]]] = {"context": CONTEXT, "call": CALL, "entry": ENTRY, "frame": FRAME,
    "direct_table": DIRECT_TABLE, "direct": DIRECT}  # fmt: skip


def accessors(records: Mapping[str, Mapping[str, Field]] = RECORDS) -> str:
    """LLVM IR of the accessor functions of records, by default of all of the runtime's."""
    lines = []
    for record, fields in records.items():
        for name, field in fields.items():
            lines += [
                f"define private ptr @{record}.{name}(ptr %record) alwaysinline {{",
                f"  %field = getelementptr inbounds i8, ptr %record, i64 {field.offset}",
                "  ret ptr %field",
                "}",
            ]
    return "\n".join(lines) + "\n"


def interpreter(name: str, operations: Sequence[str]) -> str:
    """LLVM IR of the function that does one operation behind the other: ``@interpret.NAME(frame, operations)``."""
    numbered = list(enumerate(operations, 1))
    cases = " ".join(f"i64 {number}, label %do.{each}" for number, each in numbered)
    following = ", ".join(f"[ %next.{each}, %do.{each} ]" for _, each in numbered)
    lines = [
        f"define private ptr @interpret.{name}(ptr %frame, ptr %begin) {{",
        "entry:",
        "  br label %head",
        "head:",
        "  %at = phi ptr [ %begin, %entry ], [ %next, %after ]",
        "  %code = load i64, ptr %at, align 8",
        "  %operands = getelementptr inbounds i64, ptr %at, i64 1",
        f"  switch i64 %code, label %done [ {cases} ]",
    ]
    for _, each in numbered:
        lines += [
            f"do.{each}:",
            f"  %next.{each} = call ptr @{name}.{each}(ptr %frame, ptr %operands)",
            "  br label %after",
        ]
    lines += [
        "after:",
        f"  %next = phi ptr {following}",
        "  %is_no = icmp eq ptr %next, null",
        "  br i1 %is_no, label %no, label %head",
        "done:",
        "  ret ptr %at",
        "no:",
        "  ret ptr null",
        "}",
    ]
    return "\n".join(lines) + "\n"
