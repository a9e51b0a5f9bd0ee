"""Where the functions of plugins are written, for the errors of programs that run them.

Kernels are the same for everybody who has the same function, so that their messages cannot name files.  The executable
knows the plugins of its process: it adds the place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hlojit.extensions.calls.elementwise_calls import ElementwiseCall
from hlojit.ir.block_formats import BlockFormat, scaling_user
from hlojit.ir.environment import CUSTOM_CALLS, tables
from hlojit.ir.formats import FloatFormat
from hlojit.ir.scalar.formats import decode_user, encode_user


def function_places() -> dict[str, str]:
    """The file and line of every scalar function of the plugins in scope, by what uses it in messages of kernels."""
    found = {}
    for call in tables().table(CUSTOM_CALLS).values():
        if isinstance(call, ElementwiseCall):
            found[call.user] = _place(call.function) if call.function else f"made by {_place(call.factory)}"
    for row in tables().element_types.values():
        if isinstance(row, FloatFormat) and row.decode is not None and row.encode is not None:
            found |= {decode_user(row): _place(row.decode), encode_user(row): _place(row.encode)}
        elif isinstance(row, BlockFormat) and callable(row.scaling):
            found[scaling_user(row)] = _place(row.scaling)
    return found


def with_place(message: str, places: Mapping[str, str]) -> str:
    """What a kernel reports of a function, with the place where the function is written, if that is known."""
    place = next((each for user, each in places.items() if message.startswith(f"{user}: ")), "")
    return f"{message} ({place})" if place else message


def _place(function: Callable[..., Any] | None) -> str:
    python = getattr(function, "py_func", function)
    code = getattr(python, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else "a function in C"
