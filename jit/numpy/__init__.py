"""The array API standard (2024.12) on NumPy's arrays, each function compiled once for each signature::

    import hlojit.numpy as hnp

    y = hnp.sum(hnp.sin(x), axis=0)

Called in a function under ``hlojit.jit`` they are parts of its program.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

import numpy as np
from hlojit.numpy import signatures
from hlojit.numpy.compiled import Names
from hlojit.numpy.plain import broadcast_arrays, finfo, iinfo, meshgrid

__array_api_version__: Final = "2024.12"
_FUNCTIONS: Final = Names(__name__, signatures.MAIN, np)
_EXTENSIONS: Final = ("fft", "linalg")

_PLAIN: Final = (broadcast_arrays, finfo, iinfo, meshgrid)

_NAMES: Final = (*signatures.NUMPYS, *(each.__name__ for each in _PLAIN), *_EXTENSIONS, "__array_api_version__")

__all__ = sorted([*_FUNCTIONS.names, *_NAMES])  # noqa: PLE0605  the table has them


def __getattr__(name: str) -> Any:
    if name in _EXTENSIONS:
        return importlib.import_module(f"hlojit.numpy.{name}")
    made = getattr(np, name) if name in signatures.NUMPYS else _FUNCTIONS.function(name)
    globals()[name] = made
    return made


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
