"""Texts that are put together while a program runs: what it prints and warns of, and messages of what it raises.

A call's configuration holds a tree as JSON, whose leaves name operands::

    ["call", "text", ["x is ", ["field", ["leaf", 0, "array"], "", ".3f"]]]        f"x is {x:.3f}"

Kinds of leaves are ``array``, ``scalar`` (NumPy's) and ``bool``, ``int``, ``float``, ``complex`` (Python's).  Python and NumPy
format them, as they would where nothing is compiled.
"""

from __future__ import annotations

import builtins
import itertools
import json
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from hlojit.extensions.calls.array_calls import ArrayCall
from hlojit.extensions.calls.custom_calls import CustomCall

PRINT: Final = "hlojit.print"
WARN: Final = "hlojit.warn"
MESSAGE: Final = "hlojit.message"

FIRST_TICKET: Final = 1 << 20
"""Numbers of failed checks are smaller."""
_KEPT: Final = 4096
_COUNT: Final = 1 << 30

NDArray = np.ndarray[Any, Any]

_messages: Final[OrderedDict[int, tuple[int, Any]]] = OrderedDict()
_numbers: Final = itertools.count()
_lock: Final = threading.Lock()


def text_calls() -> Sequence[CustomCall]:
    """The custom calls of ``print``, of warnings, and of messages with values in them."""
    return [
        ArrayCall(PRINT, function=_print, trust="python", effects=True),
        ArrayCall(WARN, function=_warn, trust="python", effects=True),
        ArrayCall(MESSAGE, function=_note, trust="python", effects=True),
    ]


def taken_message(ticket: int) -> tuple[int, Any]:
    """What a program noted under a number: which check failed, and the values of its tree."""
    with _lock:
        return _messages.pop(ticket)


# ------------------------------------------------------------------------------------------------------------- the calls


def _print(*arrays: NDArray, tree: str) -> tuple[()]:
    values, options = evaluated(json.loads(tree), arrays)
    streams = {"stdout": sys.stdout, "stderr": sys.stderr}
    builtins.print(*values, **{**options, "file": streams[options["file"]]})
    return ()


def _warn(*arrays: NDArray, tree: str) -> tuple[()]:
    message, category, file, line = evaluated(json.loads(tree), arrays)
    warnings.warn_explicit(message, getattr(builtins, category), file, line)
    return ()


def _note(*arrays: NDArray, tree: str, number: int) -> np.int32:
    values = evaluated(json.loads(tree), arrays)
    with _lock:
        ticket = FIRST_TICKET + next(_numbers) % _COUNT
        _messages[ticket] = (number, values)
        while len(_messages) > _KEPT:
            # Of calls that had failed before, whose messages nobody asks for.
            _messages.popitem(last=False)
    return np.int32(ticket)


# ------------------------------------------------------------------------------------------------------------- the trees


def evaluated(node: Any, arrays: Sequence[NDArray]) -> Any:
    """What a tree means for these operands."""
    if not isinstance(node, list):
        return node
    what, *parts = node
    if what == "leaf":
        return _leaf(arrays[parts[0]], parts[1])
    if what == "dict":
        return {evaluated(key, arrays): evaluated(value, arrays) for key, value in parts}
    values = [evaluated(each, arrays) for each in parts]
    if what == "list":
        return values
    return tuple(values) if what == "tuple" else _OPERATIONS[what](*values)


def _leaf(array: NDArray, kind: str) -> Any:
    if kind == "array":
        return array
    return array[()] if kind == "scalar" else array.item()


def field(value: Any, conversion: str, specification: str) -> str:
    """What stands in braces in a formatted string."""
    if conversion:
        value = _CONVERSIONS[conversion](value)
    return format(value, specification)


_CONVERSIONS: Final[dict[str, Callable[[Any], str]]] = {"s": str, "r": repr, "a": ascii}


def _text(*parts: str) -> str:
    return "".join(parts)


_OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    "text": _text,
    "field": field,
    "modulo": lambda template, value: template % value,
    "format": lambda template, positional, named: template.format(*positional, **named),
    "join": lambda separator, parts: separator.join(parts),
    "str": str,
    "repr": repr,
}
