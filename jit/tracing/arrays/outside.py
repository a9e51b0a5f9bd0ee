"""Arrays and numbers that a traced function finds outside of itself: they become constants of its program, or an error."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from hlojit.ir.errors import ArgumentError
from hlojit.plain_arrays import on_the_host
from hlojit.tracing.errors import TracingError
from hlojit.tracing.places import frames_from, is_own, user_frame

NDArray = np.ndarray[Any, Any]

ADVICE: Final = {
    "O": "its elements are Python objects; convert it to numbers: .astype(float)",
    "U": "texts stay outside; pass numbers (names == 'a' are booleans, np.unique(names, return_inverse=True)[1] codes)",
    "S": "texts stay outside; pass numbers (names == b'a' are booleans, np.unique(names, return_inverse=True)[1] codes)",
    "M": "pass the dates as integers: .astype(np.int64)",
    "m": "pass the durations as integers: .astype(np.int64)",
    "V": "pass the fields as arrays of their own",
}
"""What to write instead, by the kind of the dtype."""
_MOST_FRAMES: Final = 8
"""That are searched for a name."""


def elements(operand: Any, kind: Any = None) -> NDArray:
    """The elements of an operand that is not traced; raises ``TracingError`` that names it where it has none."""
    if isinstance(operand, (np.ndarray, np.generic)):
        if isinstance(operand, np.ndarray) and type(operand) not in (np.ndarray, np.memmap):
            raise TracingError(
                f"{named(operand)} is of a subclass of NumPy's arrays with a meaning of its own, "
                "which would be lost: use np.asarray(x)" + (", or x.filled(...)" if hasattr(operand, "filled") else "")
            )
        _require_numbers(operand, operand.dtype)
        return np.asarray(operand, kind)
    array = np.asarray(
        _viewed(operand) if hasattr(operand, "__dlpack__") or hasattr(operand, "__array__") else operand, kind
    )
    _require_numbers(operand, array.dtype)
    return array


def _viewed(operand: Any) -> NDArray:
    try:
        return on_the_host(operand, named(operand))
    except ArgumentError as error:
        raise TracingError(str(error)) from None


def dtype_of(operand: Any) -> np.dtype[Any]:
    """The dtype of such an operand, as NumPy's promotion sees it."""
    # Integers of any size can be compared.
    return np.asarray(operand).dtype if type(operand) is int else elements(operand).dtype


def _require_numbers(operand: Any, dtype: np.dtype[Any]) -> None:
    if dtype.kind == "O" and not isinstance(operand, np.ndarray):
        raise TracingError(
            f"{type(operand).__name__} objects cannot be used in a compiled function: {named(operand)} is neither a number nor "
            "an array; compute with it outside"
        )
    if dtype.kind in ADVICE and dtype.isbuiltin != 2:
        raise TracingError(f"{named(operand)} has elements of dtype {dtype}: {ADVICE[dtype.kind]}")


def named(value: Any) -> str:
    """A value in messages: how the function that uses it calls it, and its type."""
    name = _name(value)
    kind = type(value).__name__
    return f"{name} of type {kind}" if name else f"a value of type {kind}"


def _name(value: Any) -> str | None:
    for number, frame in enumerate(frames_from(user_frame())):
        if number == _MOST_FRAMES:
            break
        if is_own(frame.f_code.co_filename):
            continue
        variables = {**{name: frame.f_globals.get(name) for name in frame.f_code.co_names}, **frame.f_locals}
        found = next((name for name, each in variables.items() if each is value and name.isidentifier()), None)
        if found is not None:
            return found
    return None
