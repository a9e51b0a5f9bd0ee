"""The extension ``fft`` of the array API standard."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from hlojit.numpy.compiled import Names
from hlojit.numpy.signatures import FFT

_FUNCTIONS: Final = Names(__name__, FFT, np.fft)
__all__ = sorted([*_FUNCTIONS.names, "fftfreq", "rfftfreq"])  # noqa: PLE0605  the table has them


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """As in NumPy, which has no ``dtype=``."""
    made = np.fft.fftfreq(n, d=d, device=device)
    return made if dtype is None else made.astype(dtype)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """As in NumPy, which has no ``dtype=``."""
    made = np.fft.rfftfreq(n, d=d, device=device)
    return made if dtype is None else made.astype(dtype)


def __getattr__(name: str) -> Any:
    made = _FUNCTIONS.function(name)
    globals()[name] = made
    return made


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
