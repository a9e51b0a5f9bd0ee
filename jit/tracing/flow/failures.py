"""Exceptions of Python's while a function is traced: when the compiled function has to raise them.

    assert x.sum() > 0          # checked by every call
    names[3]                    # an IndexError already while the function is traced

Python comes to the second line only where the first one has not raised, so that is what the call does as well.  In a branch that
may not be taken such an exception is a check of that branch, which always fails.
"""

from __future__ import annotations

import dis
from types import TracebackType
from typing import TYPE_CHECKING, Final

from hlojit.ir.errors import HlojitError
from hlojit.tracing.places import Place, is_library_file, is_own

if TYPE_CHECKING:
    from hlojit.tracing.flow.runtime import TracedRuntime

_UNKNOWN_PATH: Final = (
    "raised while a branch or loop on traced values was traced: whether Python comes here is known only when the "
    "function runs"
)
_ABOUT_TYPES: Final = (TypeError, AttributeError)
"""What Python raises of traced values that it cannot take, where NumPy's would do."""


def note_unknown_path(error: Exception) -> None:
    """Say that an exception comes from a part that may not run."""
    if not isinstance(error, HlojitError) and not is_of_unknown_path(error):
        error.add_note(_UNKNOWN_PATH)


def is_of_unknown_path(error: Exception) -> bool:
    """Whether it comes from a part that may not run."""
    return _UNKNOWN_PATH in getattr(error, "__notes__", ())


def is_left_to_the_call(runtime: TracedRuntime, error: Exception) -> bool:
    """Whether an exception that ends the function is raised by each call, behind what is checked before; notes it then."""
    if is_of_unknown_path(error) or not runtime.ops.checks.made or not is_the_programs(error):
        return False
    record(runtime, error)
    return True


def record(runtime: TracedRuntime, error: Exception) -> None:
    """Have the program raise it where it comes here."""
    entry = _of_user(error)
    place = None if entry is None else Place.of_entry(entry)
    runtime.ops.checks.add_exception(runtime.ops.builder, error.with_traceback(None), place=place)


def is_the_programs(error: Exception) -> bool:
    """Whether Python would raise it, too: it comes neither of values that are traced nor of a mistake of ours."""
    if type(error).__module__.partition(".")[0] == "hlojit":
        return False
    inner, user = _innermost(error), _of_user(error)
    if inner is None or user is None or is_library_file(user.tb_frame.f_code.co_filename):
        return False
    is_raised = _instruction(inner) == "RAISE_VARARGS"
    if inner is user:
        return is_raised or not isinstance(error, _ABOUT_TYPES) or "NoneType" in str(error)
    # By our code, or NumPy's, which say what is wrong with an index or a shape.
    return not isinstance(error, _ABOUT_TYPES) and (is_raised or type(error) in (ValueError, IndexError))


def _instruction(entry: TracebackType) -> str:
    code = entry.tb_frame.f_code.co_code
    return dis.opname[code[entry.tb_lasti]]


def _entries(error: Exception) -> list[TracebackType]:
    found, entry = [], error.__traceback__
    while entry is not None:
        found.append(entry)
        entry = entry.tb_next
    return found


def _innermost(error: Exception) -> TracebackType | None:
    return next(reversed(_entries(error)), None)


def _of_user(error: Exception) -> TracebackType | None:
    """The innermost place that is neither in this package nor in NumPy."""
    return next((each for each in reversed(_entries(error)) if not is_own(each.tb_frame.f_code.co_filename)), None)
