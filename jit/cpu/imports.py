"""Addresses of the functions that kernels leave open, by the names that they give them.

lapack:dgesdd        a function of SciPy's LAPACK or BLAS
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hlojit.cpu import lapack_library
from hlojit.ir.errors import HlojitError

_FINDERS: Final[Mapping[str, Callable[[str], int]]] = {"lapack": lapack_library.address}


def imported_symbols(imports: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Addresses by symbol; raises ``HlojitError`` naming what is not there."""
    return {symbol: _address(name) for symbol, name in imports}


def _address(name: str) -> int:
    kind, _, rest = name.partition(":")
    finder = _FINDERS.get(kind)
    if finder is None:
        raise HlojitError(f"a program that needs {name!r} was compiled by another version of hlojit")
    return finder(rest)
