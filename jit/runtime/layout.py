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

from collections.abc import Mapping
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


RECORDS: Final[Mapping[str, Mapping[str, Field]]] = {"context": CONTEXT, "call": CALL}


def accessors(records: Mapping[str, Mapping[str, Field]] = RECORDS) -> str:
    """LLVM IR of the accessor functions of records, by default of both of the runtime's."""
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
