"""Numbers in environment variables.

threads = number_of("HLOJIT_NUM_THREADS", 1, 257); limit = bytes_of("HLOJIT_CACHE_SIZE")
"""

from __future__ import annotations

import os
from typing import Final

from hlojit.ir.errors import HlojitError

LARGEST: Final = (1 << 63) - 1
"""What an amount of bytes is cut down to: native code counts them in 64 bits."""
_MOST_DIGITS: Final = 30
_SUFFIXES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def is_number(text: str) -> bool:
    """Whether the text is some ASCII digits (``str.isdigit`` takes those that ``int`` refuses, such as ²)."""
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def number_of(name: str, least: int, most: int) -> int | None:
    """The number in a variable, or None if it is not set; raises ``HlojitError`` if it is not from ``least`` to ``most``."""
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    if not is_number(text) or not least <= int(text) <= most:
        raise HlojitError(f"{name}={_shown(text)} is not a number from {least} to {most}")
    return int(text)


def bytes_of(name: str) -> int | None:
    """The bytes in a variable, such as ``512m``, or None if it is not set; raises ``HlojitError`` if it is no such number."""
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    factor = _SUFFIXES.get(text[-1].lower(), 1)
    digits = text if factor == 1 else text[:-1]
    if not is_number(digits):
        raise HlojitError(f"{name}={_shown(text)} is not a number of bytes (a suffix k, m or g is allowed)")
    return min(int(digits) * factor, LARGEST)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 2 * _MOST_DIGITS else f"{text[:_MOST_DIGITS]}...")
