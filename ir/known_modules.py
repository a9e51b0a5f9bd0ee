"""Which modules count by name and version: those of the standard library, of hlojit and of the packages below it.

A name does not tell: a plugin's own ``profile.py`` is not the standard library's.  It has to lie where that does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

KNOWN_PACKAGES: Final = frozenset({"hlojit", "numpy", "scipy", "numba", "llvmlite", "ml_dtypes", "pluggy"})
"""Besides the standard library: packages whose functions and classes count by name and version, not by content."""

_STANDARD_LIBRARY: Final = os.path.join(os.path.dirname(os.__file__), "")
_HEAP_TYPE: Final = 1 << 9
"""CPython's flag of classes that are made when a program runs."""
_INSTALLED: Final = ("site-packages", "dist-packages")
"""Folders inside that of the standard library that do not belong to it."""


def known_version(name: object, namespace: Mapping[str, Any] | None = None) -> str | None:
    """The version of the known package that a module belongs to (empty for the standard library's), or None.

    ``namespace`` holds the module's globals; without it, the module imported under the name is meant.
    """
    if not isinstance(name, str):
        return None
    top = name.partition(".")[0]
    is_package = top in KNOWN_PACKAGES
    if not is_package and (top not in sys.stdlib_module_names or top == "__main__"):
        return None
    if namespace is None:
        # Some classes in C name a module that does not exist, inside a package that does.
        module = sys.modules.get(name) or sys.modules.get(top)
        if module is None:
            return None
        namespace = vars(module)
    if is_package:
        return _version_of_package(top, name, _location(namespace))
    return "" if _is_standard(namespace) else None


def known_class(kind: type) -> str | None:
    """The same for a class, which has to be what its module has under its name.

    ``ABCMeta`` and ``types.new_class`` give a class that a call makes their own module's name: ``type("Tile", (Pass,), {...})``.
    """
    version = known_version(kind.__module__)
    module = sys.modules.get(kind.__module__)
    is_made_in_c = not kind.__flags__ & _HEAP_TYPE
    if version is None or module is None or is_made_in_c or "<locals>" in kind.__qualname__:
        return version
    found: Any = None
    scope: Mapping[str, Any] = vars(module)
    for part in kind.__qualname__.split("."):
        found = scope.get(part)
        scope = getattr(found, "__dict__", {})
    return version if found is kind else None


def _location(namespace: Mapping[str, Any]) -> str:
    found = namespace.get("__file__") or getattr(namespace.get("__spec__"), "origin", None)
    return found if isinstance(found, str) else ""


def _is_standard(namespace: Mapping[str, Any]) -> bool:
    if getattr(namespace.get("__spec__"), "origin", None) in ("built-in", "frozen"):
        return True
    found = _location(namespace)
    inside = found.removeprefix(_STANDARD_LIBRARY)
    return inside != found and inside.split(os.sep)[0] not in _INSTALLED


def _version_of_package(top: str, name: str, location: str) -> str | None:
    version = getattr(sys.modules.get(top), "__version__", None)
    if not isinstance(version, str):
        return None
    # Packages run code of their own making, which lies nowhere, under their names.
    inside = not location or any(location.startswith(os.path.join(folder, "")) for folder in _folders(name))
    return version if inside else None


def _folders(name: str) -> Iterator[str]:
    """Folders of a package and of those inside it that a module's name passes through."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        yield from getattr(sys.modules.get(".".join(parts[:count])), "__path__", ())
