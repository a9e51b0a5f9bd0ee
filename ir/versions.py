"""What the code that comes out of a compilation depends on besides the program: versions of hlojit and what it stands on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

_PACKAGES = ("llvmlite", "numba", "numpy", "scipy", "ml_dtypes")
_OWN = ("hlojit", "hlojit.cuda", "hlojit.extensions", "hlojit.ir")
"""hlojit's packages that may lie in folders of their own: an editable install leaves them where the checkout has them."""
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


def sources_changed() -> bool:
    """Whether a file of hlojit's was changed after this process had imported hlojit.

    What runs is then no version of hlojit's that has a name: modules that were imported before the change, and modules
    that were imported after it.
    """
    global _changed, _modules
    # What was imported before the last look has been looked at.
    modules = len(sys.modules)
    if not _changed and modules != _modules:
        started = sys.modules["hlojit"].__dict__["IMPORTED"]
        _changed = any(changed > started for folder in _folders() for _, _, _, changed in _files(folder, ""))
        _modules = modules
        if _changed:
            import logging

            logging.getLogger("hlojit").info("sources of hlojit were changed: this process uses no cache on disk")
    return _changed


_changed = False
_modules = 0


def _own_version() -> str:
    package = sys.modules["hlojit"]
    return f"{package.__version__}+{_hash_of(_folders())}"


@cache
def _folders() -> tuple[str, ...]:
    """The folders that hlojit's sources are in, none inside another; the packages need not be imported for it."""
    found = []
    for name in _OWN:
        spec = importlib.util.find_spec(name)
        found += list(spec.submodule_search_locations or ()) if spec is not None else []
    return tuple(each for each in found if not any(each.startswith(other + os.sep) for other in found))


def _hash_of(folders: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        for path, size, modified, _ in sorted(_files(folder, "")):
            digest.update(f"{path} {size} {modified}\n".encode())
    return digest.hexdigest()[:16]


def _files(folder: str, prefix: str) -> list[tuple[str, int, int, int]]:
    """Path, size, time of modification and of change of every source: in a checkout code changes, the version does not."""
    found = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".ll")):
                with suppress(OSError):  # a link to a file that is gone
                    status = entry.stat()
                    # The time of change cannot be set back, as tools do that copy files with their times.
                    changed = status.st_ctime_ns if os.name == "posix" else status.st_mtime_ns
                    found.append((prefix + entry.name, status.st_size, status.st_mtime_ns, changed))
            elif entry.name != "__pycache__" and entry.is_dir():
                found += _files(entry.path, f"{prefix}{entry.name}/")
    return found
