"""Addresses of the functions that kernels leave open, by the names that they give them.

lapack:dgesdd              a function of SciPy's LAPACK or BLAS
ffi:acme.scale             the handler that is registered for a custom call target
runtime:hlojit_ffi_fail    the runtime's, of those that few programs call
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hlojit.cpu import lapack_library
from hlojit.extensions import registry
from hlojit.extensions.foreign_calls import ForeignCall
from hlojit.ir.errors import HlojitError
from hlojit.runtime import ffi

Found = tuple[int, object]
"""An address, and what must live as long as somebody may call it."""


def imported_symbols(imports: Iterable[tuple[str, str]]) -> tuple[dict[str, int], tuple[object, ...]]:
    """Addresses by symbol, and what they depend on; raises ``HlojitError`` naming what is not there."""
    found = {symbol: _find(name) for symbol, name in imports}
    return {symbol: address for symbol, (address, _) in found.items()}, tuple(owner for _, owner in found.values())


def _find(name: str) -> Found:
    kind, _, rest = name.partition(":")
    finder = _FINDERS.get(kind)
    if finder is None:
        raise HlojitError(f"a program that needs {name!r} was compiled by another version of hlojit")
    return finder(rest)


def _library(name: str) -> Found:
    return lapack_library.address(name), None


def _handler(target: str) -> Found:
    call = registry().custom_call(target)
    if not isinstance(call, ForeignCall):
        raise HlojitError(
            f"the program calls the native function of custom call target {target!r}, and no plugin in scope has one: "
            "register it as a ForeignCall"
        )
    address = call.address()
    if call.asks_version:
        ffi.check_handler(f"the handler of {call.user}", address)
    return address, call


def _runtime(name: str) -> Found:
    return ffi.addresses()[name], None


_FINDERS: Final[Mapping[str, Callable[[str], Found]]] = {"lapack": _library, "ffi": _handler, "runtime": _runtime}
