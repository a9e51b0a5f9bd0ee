"""The extension ``linalg`` of the array API standard."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from hlojit.numpy.compiled import Names
from hlojit.numpy.signatures import LINALG

_FUNCTIONS: Final = Names(__name__, LINALG, np.linalg)
__all__ = _FUNCTIONS.names  # noqa: PLE0605  the table has them


def __getattr__(name: str) -> Any:
    made = _FUNCTIONS.function(name)
    globals()[name] = made
    return made


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
