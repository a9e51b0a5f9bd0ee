"""What a Python function reads that its source does not say: files, the environment, the clock, chance, its own namespace.

    def tuned(builder, instruction): return float(open("tune.txt").read())      # reads "open"

A function that does so may do something else in the next process, though its source is the same, so it has no content hash.
The list is by name, and rather too long than too short: being on it costs a compilation per process.
"""

from __future__ import annotations

import builtins
from types import FunctionType, ModuleType
from typing import Any, Final

from hlojit.ir.code_reads import chains, codes

_BUILTINS: Final = frozenset("open eval exec globals locals vars __import__ input breakpoint".split())
_BUILTIN_FUNCTIONS: Final = frozenset(id(getattr(builtins, name)) for name in _BUILTINS)
_NAMESPACES: Final = frozenset({"__builtins__", "__loader__", "__spec__"})
_MODULES: Final = frozenset(
    "os posix nt io random secrets uuid time datetime subprocess socket importlib pathlib tempfile shutil glob fileinput "
    "linecache inspect pkgutil runpy site sysconfig platform locale getpass pwd signal select asyncio multiprocessing "
    "concurrent ssl urllib http ftplib smtplib configparser gzip bz2 lzma zipfile tarfile sqlite3 dbm shelve wave mmap "
    "gc xml zoneinfo".split()
) | {"numpy.random", "scipy.io", "scipy.datasets"}
_FUNCTIONS: Final = frozenset(
    f"numpy.{name}" for name in "load loadtxt genfromtxt fromfile fromregex memmap open_memmap".split()
)
_CONSTANTS: Final = frozenset({"sys.maxsize", "sys.float_info", "sys.int_info", "sys.byteorder", "sys.version_info"})
_ATTRIBUTES: Final = frozenset(
    "environ getenv read_text read_bytes fromfile loadtxt genfromtxt memmap import_module __globals__".split()
)
"""Telling wherever they are read from: of an object that the function is given, too."""


def outside_read(function: FunctionType) -> str:
    """The name of something that the function reads from outside of its source, or an empty text."""
    for code in codes(function.__code__):
        for name in code.co_names:
            if name in _ATTRIBUTES:
                return name
    for chain in chains(function):
        if chain[0][0] in _NAMESPACES:
            return chain[0][0]
        for path, value in chain:
            if _is_outside(path, value):
                return path
        path, value = chain[-1]
        if isinstance(value, ModuleType) and value.__name__ == "sys":
            return path
    return ""


def _is_outside(path: str, value: Any) -> bool:
    """Whether what a name means brings something from outside; of a module's attribute the path begins with its name."""
    if path.startswith("sys."):
        return path not in _CONSTANTS and not path.startswith("sys.float_info.")
    if id(value) in _BUILTIN_FUNCTIONS or path in _FUNCTIONS:
        return True
    if isinstance(value, ModuleType):
        return _is_listed(value.__name__)
    kind = value if hasattr(value, "__qualname__") else type(value)
    module = getattr(kind, "__module__", None)
    if not isinstance(module, str):
        # Functions such as random.random are methods of a hidden object.
        module = type(getattr(value, "__self__", None)).__module__
    return _is_listed(module) or f"{module}.{getattr(kind, '__name__', '')}" in _FUNCTIONS


def _is_listed(module: str) -> bool:
    return module.partition(".")[0] in _MODULES or ".".join(module.split(".")[:2]) in _MODULES
