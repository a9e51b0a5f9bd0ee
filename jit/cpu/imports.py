"""Addresses of the functions that kernels leave open, by the names that they give them.

lapack:dgesdd              a function of SciPy's LAPACK or BLAS
ffi:acme.scale             the handler that is registered for a custom call target
runtime:hlojit_ffi_fail    the runtime's, of those that few programs call
array:acme.attention       the ArrayFunction of a custom call target: a native one, or the Python object
object:7                   that of this process with a number
scalar:acme.gamma          the C function of scalars of a custom call target
python:trampoline          what calls Python objects
numba:NRT_Allocate         a function of numba's runtime
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hlojit.cpu import lapack_library
from hlojit.extensions import registry
from hlojit.extensions.calls.array_calls import ArrayCall
from hlojit.extensions.calls.elementwise_calls import ElementwiseCall
from hlojit.extensions.calls.foreign_calls import ForeignCall
from hlojit.extensions.functions.array_functions import ArrayFunction, function_of
from hlojit.extensions.functions.native_scalars import NativeScalar
from hlojit.ir.errors import HlojitError
from hlojit.runtime import ffi, python_calls

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


def _array_call(target: str) -> Found:
    call = registry().custom_call(target)
    if not isinstance(call, ArrayCall):
        raise HlojitError(
            f"the program calls the function of custom call target {target!r}, and no plugin in scope has one: register it as "
            "an ArrayCall"
        )
    return _itself(call.implementation)


def _scalar(target: str) -> Found:
    call = registry().custom_call(target)
    function = call.function if isinstance(call, ElementwiseCall) else None
    if not isinstance(function, NativeScalar):
        raise HlojitError(
            f"the program calls the C function of custom call target {target!r}, and no plugin in scope has one: register it as "
            "an ElementwiseCall"
        )
    return function.address, function


def _object(number: str) -> Found:
    function = function_of(int(number))
    if function is None:
        raise HlojitError("the program calls a function of the process that compiled it, which is gone")
    return _itself(function)


def _itself(function: ArrayFunction) -> Found:
    """The address of a native function, otherwise of the Python object."""
    if function.trust == "native":
        return function.address, function
    return id(function.function), function.function


def _trampoline(_: str) -> Found:
    return python_calls.trampoline(), None


def _numba(name: str) -> Found:
    """Of numba, which has told LLVM by then."""
    import llvmlite.binding as llvm
    from hlojit.extensions.functions.numba_bridge import numbas_lock
    from numba.core.registry import cpu_target

    with numbas_lock():
        cpu_target.target_context.refresh()  # with which its runtime begins
    address = llvm.address_of_symbol(name)
    if not address:
        raise HlojitError(
            f"the program calls {name} of numba, which this version of numba has not; compile it again from its source"
        )
    return address, None


_FINDERS: Final[Mapping[str, Callable[[str], Found]]] = {
    "lapack": _library,
    "ffi": _handler,
    "runtime": _runtime,
    "array": _array_call,
    "scalar": _scalar,
    "object": _object,
    "python": _trampoline,
    "numba": _numba,
}
