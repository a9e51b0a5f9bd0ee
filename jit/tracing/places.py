"""Lines of the user's own source, and how errors name them.

    file.py:12: k[i] = v : what happened, and what to write instead

Every message that reaches whoever calls a jitted function is put together here (``Place.says``).
"""

from __future__ import annotations

import functools
import importlib.util
import linecache
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, final

import numpy as np

_LONGEST: Final = 72
"""Characters of a line that a message shows."""
_PLACED: Final = re.compile(r"[^:\n]+:\d+: ")
_INSTALLED: Final = ("site-packages", "dist-packages")


def _folders(package: str) -> list[str]:
    spec = importlib.util.find_spec(package)
    return list(spec.submodule_search_locations or ()) if spec is not None else []


# As code objects spell them, which need not be the real path.  In a checkout the packages lie beside each other.
_OWN_FOLDERS: Final = tuple(
    {
        spelt + os.sep
        for path in (
            os.path.dirname(os.path.dirname(__file__)),
            os.path.dirname(__file__),
            os.path.dirname(np.__file__),
            *(folder for name in ("ir", "extensions", "cuda") for folder in _folders(f"hlojit.{name}")),
        )
        for spelt in (path, os.path.realpath(path))
    }
)


@final
@dataclass(frozen=True)
class Place:
    """One line of source."""

    file: str
    line: int
    text: str
    """The line, or the part of it that is meant."""
    function: str = "<module>"

    def __str__(self) -> str:
        head = f"{os.path.basename(self.file)}:{self.line}:"
        return f"{head} {shortened(self.text)} :" if self.text else head

    def says(self, what: str) -> str:
        """A message about this line; messages that name their own line stay."""
        return what if _PLACED.match(what) else f"{self} {what}"

    @classmethod
    def at(cls, file: str, line: int, function: str = "<module>") -> Place:
        """A line of a file, as far as it is there."""
        return cls(file, line, linecache.getline(file, line).strip(), function)

    @classmethod
    def of_frame(cls, frame: FrameType) -> Place:
        """Where a frame is now."""
        code = frame.f_code
        return cls(code.co_filename, frame.f_lineno, _text(frame, frame.f_lasti, frame.f_lineno), code.co_qualname)

    @classmethod
    def of_entry(cls, entry: TracebackType) -> Place:
        """Where a frame of a traceback was left."""
        code, line = entry.tb_frame.f_code, entry.tb_lineno
        return cls(code.co_filename, line, _text(entry.tb_frame, entry.tb_lasti, line), code.co_qualname)


def shortened(text: str) -> str:
    """A line for a message: without the colon or comma that ends it, and not longer than it should be."""
    text = text.strip().rstrip(":,").rstrip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4].rstrip()} ..."


def _text(frame: FrameType, position: int, line: int) -> str:
    """The line; of a long one the expression that is meant."""
    source = linecache.getline(frame.f_code.co_filename, line, frame.f_globals)
    if len(source.strip()) <= _LONGEST:
        return source.strip()
    spans = list(frame.f_code.co_positions())
    first, last, start, end = spans[position // 2] if position // 2 < len(spans) else (None,) * 4
    if first != last or first != line or start is None or end is None or end <= start:
        return source.strip()
    # Columns count bytes.
    return source.encode()[start:end].decode(errors="replace")


def frames_from(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def user_frame() -> FrameType | None:
    """The frame of the innermost caller that is neither of this package nor of NumPy."""
    return next((each for each in frames_from(sys._getframe(1)) if not is_own(each.f_code.co_filename)), None)


def is_own(name: str) -> bool:
    """Whether a file is of this package, or of NumPy, whose compiled code names its files from its own root."""
    return name.startswith(_OWN_FOLDERS) or (name.startswith("numpy/") and name.endswith(".pyx"))


@functools.lru_cache(1024)
def is_library_file(name: str) -> bool:
    """Whether a file is of the standard library or of an installed package."""
    if name.startswith("<frozen "):
        return True
    path = Path(name)
    if any(part in _INSTALLED for part in path.parts):
        return True
    return any(path.is_relative_to(folder) for folder in _library_folders())


@functools.cache
def _library_folders() -> tuple[str, ...]:
    """Where Python's own modules and installed packages are."""
    keys = ("stdlib", "platstdlib", "purelib", "platlib")
    found = {sysconfig.get_path(key) for key in keys}
    found |= {path for path in (*site.getsitepackages(), site.getusersitepackages()) if path}
    return tuple(sorted(filter(None, found)))
