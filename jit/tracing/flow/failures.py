"""Exceptions of Python's while a function is traced: when the compiled function has to raise them.

    assert x.sum() > 0          # checked by every call
    names[3]                    # an IndexError already while the function is traced

Python comes to the second line only where the first one has not raised, so that is what the call does as well.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hlojit.ir.errors import HlojitError

if TYPE_CHECKING:
    from hlojit.tracing.flow.runtime import TracedRuntime

_UNKNOWN_PATH: Final = (
    "raised while a branch or loop on traced values was traced: whether Python comes here is known only when the "
    "function runs"
)
_OWN: Final = str(Path(__file__).parents[2])


def note_unknown_path(error: Exception) -> None:
    """Say that an exception comes from a part that may not run."""
    if not isinstance(error, HlojitError) and not is_of_unknown_path(error):
        error.add_note(_UNKNOWN_PATH)


def is_of_unknown_path(error: Exception) -> bool:
    """Whether it comes from a part that may not run."""
    return _UNKNOWN_PATH in getattr(error, "__notes__", ())


def is_left_to_the_call(runtime: TracedRuntime, error: Exception) -> bool:
    """Whether an exception that ends the function is raised by each call, behind what is checked before; notes it then."""
    ops = runtime.ops
    if isinstance(error, HlojitError) or is_of_unknown_path(error) or not ops.checks.made:
        return False
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_OWN):
            error.add_note(f"  at {frame.filename}:{frame.lineno}")
            break
    ops.mark()
    ops.checks.add_exception(ops.builder, error)
    return True
