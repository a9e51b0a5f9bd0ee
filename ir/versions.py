"""What the code that comes out of a compilation depends on besides the program: versions of hlojit and what it stands on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

_PACKAGES = ("llvmlite", "numba", "numpy", "scipy", "ml_dtypes")
_METADATA = re.compile(rf"({'|'.join(_PACKAGES)})-(.+)\.dist-info")


@cache
def versions() -> dict[str, str]:
    """Name to version, in a fixed order; hlojit's own ends in a hash of its files."""
    found = {"python": ".".join(map(str, sys.version_info[:3])), "hlojit": _own_version()}
    found |= _installed()
    return found


@cache
def versions_text() -> str:
    """All of them as one text, for keys."""
    return " ".join(f"{name}={version}" for name, version in versions().items())


def _installed() -> dict[str, str]:
    """Versions by the names of the metadata's folders: reading the metadata takes milliseconds each."""
    found: dict[str, str] = {}
    for folder in sys.path:
        if len(found) == len(_PACKAGES):
            break
        with suppress(OSError):
            for name in os.listdir(folder or "."):
                match = _METADATA.fullmatch(name)
                if match:
                    found.setdefault(match[1], match[2])
    for name in _PACKAGES:
        if name not in found:
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                found[name] = "unknown"
    return {name: found[name] for name in _PACKAGES}


def _own_version() -> str:
    package = sys.modules["hlojit"]
    digest = hashlib.sha256()
    root = Path(str(package.__file__)).parent
    for path, size, modified in sorted(_files(root, "")):
        digest.update(f"{path} {size} {modified}\n".encode())
    return f"{package.__version__}+{digest.hexdigest()[:16]}"


def _files(folder: Path | str, prefix: str) -> list[tuple[str, int, int]]:
    """Path, size and time of change of every source file: in a checkout code changes while the version does not."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".ll")):
                with suppress(OSError):  # a link to a file that is gone
                    status = entry.stat()
                    found.append((prefix + entry.name, status.st_size, status.st_mtime_ns))
            elif entry.name != "__pycache__" and entry.is_dir():
                found += _files(entry.path, f"{prefix}{entry.name}/")
    return found
