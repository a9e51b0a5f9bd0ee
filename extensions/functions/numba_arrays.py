"""numba functions of arrays inside our kernels: their LLVM code, to be linked in.

numba compiles the function for the types of a call, with bounds checks; ``linked_arrays`` checks what the code does and makes it
fit.  A function that could read or write memory that is not its own is refused by name.
"""

from __future__ import annotations

import dis
import hashlib
import itertools
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final

from hlojit.extensions.functions.array_functions import ArrayFunction
from hlojit.extensions.functions.checked_copies import copied_with, omitted
from hlojit.extensions.functions.implementations import foreign_implementations
from hlojit.extensions.functions.kernel_arithmetic import arithmetic_of_kernels
from hlojit.extensions.functions.linked_arrays import LinkedArrays, linked_arrays
from hlojit.extensions.functions.linked_code import Unfit
from hlojit.extensions.functions.numba_bridge import CACHE_BYTES, complaints, described_function, numbas_lock
from hlojit.ir.errors import PluginError, short_repr
from hlojit.ir.fingerprint import NotKeyable, fingerprint
from hlojit.ir.formats import BooleanType, ComplexType, ElementType, FloatFormat, IntegerType
from hlojit.ir.types import TensorType

_private = itertools.count()
_FLOATS: Final = {"f32": "float32", "f64": "float64"}
_COMPLEX: Final = {"complex<f32>": "complex64", "complex<f64>": "complex128"}


def compile_arrays(
    function: ArrayFunction,
    operands: Sequence[TensorType],
    results: Sequence[TensorType],
    user: str,
    *,
    has_range: bool = False,
    takes_addresses: bool = False,
) -> tuple[LinkedArrays, str]:
    """The code of a numba function, and why it has no identity outside of this process, or an empty text.

    With ``has_range`` the function takes two integers behind the arrays, with ``takes_addresses`` pointers in place of them.
    Raises ``PluginError``, in one line, where numba cannot compile it or where it does what a kernel cannot.
    """
    python: Any = function.function
    kinds = [_numba_type(kind, function, user, readonly=True) for kind in operands]
    kinds += [_numba_type(kind, function, user, readonly=False) for kind in results]
    if takes_addresses:
        kinds = [_pointer_to(kind) for kind in kinds]
    if has_range:
        kinds += [_integer(), _integer()]
    if function.bounds:
        _expect_written(python, len(operands), len(results), user)
    try:
        code = _code(function, tuple(kinds), user)
        said = f"{code.identity}{has_range}{takes_addresses}{', '.join(map(str, (*operands, '->', *results)))}"
        symbol = "hlojit_arrays_" + hashlib.sha256(said.encode()).hexdigest()[:16]
        types = (*operands, *results)
        linked = linked_arrays(
            code.text, code.native, symbol, types, has_range=has_range, takes_addresses=takes_addresses
        )
        return linked, code.unkeyable
    except Unfit as error:
        raise PluginError(f"{user}: {described_function(python)} {error}, so it cannot run inside a kernel") from None


def _expect_written(python: Any, operands: int, results: int, user: str) -> None:
    """``r = x * 2`` gives a name to another array, and leaves what lay in the result's memory there."""
    code = getattr(getattr(python, "py_func", python), "__code__", None)
    if code is None:
        return
    names = code.co_varnames[operands : operands + results]
    steps = list(dis.get_instructions(code))
    for before, step in zip(steps, steps[1:]):
        in_place = before.opname == "BINARY_OP" and before.argrepr.endswith("=")
        if step.opname == "STORE_FAST" and step.argval in names and not in_place:
            raise PluginError(
                f"{user}: {described_function(python)} assigns to {step.argval}, the array of its result, which it then does not "
                f"write: say {step.argval}[...] = ..."
            )


@dataclass(frozen=True, slots=True)
class _Code:
    """What numba made of a function for arrays of some types, of whatever shape."""

    text: str
    native: str
    identity: str
    unkeyable: str = ""


_kept: Final[OrderedDict[tuple[str, str], _Code]] = OrderedDict()


def _code(function: ArrayFunction, kinds: tuple[Any, ...], user: str) -> _Code:
    """Compiled once for all shapes; what has no identity is compiled again whenever it is asked for."""
    try:
        identity = fingerprint((function.function, function.bounds, function.fastmath, function.error_model))
    except NotKeyable as error:
        return _made(function, kinds, user, f"private {next(_private)}", str(error))
    key = identity, ", ".join(map(str, kinds))
    found = _kept.get(key) or _made(function, kinds, user, identity, "")
    if found.unkeyable:
        return found
    # Single steps, under no lock: each leaves a whole table to other threads and to signal handlers.
    found = _kept.setdefault(key, found)
    while len(_kept) > 1 and sum(len(each.text) for each in list(_kept.values())) > CACHE_BYTES:
        with suppress(KeyError):
            _kept.popitem(last=False)
    return found


def _made(function: ArrayFunction, kinds: tuple[Any, ...], user: str, identity: str, unkeyable: str) -> _Code:
    compiled, overload = _compiled(function, kinds, user)
    with numbas_lock():
        for complaint in _complaints(overload, function):
            raise Unfit(complaint)
        foreign = next(foreign_implementations(overload, compiled.typingctx), "")
    if foreign:
        identity += f" {next(_private)}"
        unkeyable = (
            unkeyable or f"{described_function(function.function)} uses {foreign}, which was registered with numba"
        )
    return _Code(overload.library.get_llvm_str(), overload.fndesc.llvm_func_name, identity, unkeyable)


def _compiled(function: ArrayFunction, kinds: tuple[Any, ...], user: str) -> tuple[Any, Any]:
    """numba's function and what it compiled for arrays of these types."""
    import numba

    python: Any = function.function
    fast = set(function.flags) or False
    options = {"error_model": function.error_model, "boundscheck": function.bounds, "fastmath": fast}
    plain = getattr(python, "py_func", python)
    try:
        with arithmetic_of_kernels():
            arguments = (*kinds, *omitted(plain, len(kinds)))
            copy = copied_with(plain, numba.njit(**options)) if isinstance(plain, FunctionType) else plain
            made = numba.njit(arguments, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)(copy)
    except Unfit:
        raise
    except Exception as error:
        listed = ", ".join([*map(str, kinds), *_given_defaults(plain, len(kinds))])
        raise PluginError(
            f"{user}: numba cannot compile {described_function(python)} for ({listed}): "
            f"{_too_many(plain, kinds) or _reason(error)}"
        ) from error
    return made, made.overloads[arguments]


def _given_defaults(function: Any, count: int) -> list[str]:
    """The parameters behind ``count`` arguments with their values: attributes of the call, or defaults."""
    code = getattr(function, "__code__", None)
    if code is None:
        return []
    names, values = code.co_varnames[: code.co_argcount], function.__defaults__ or ()
    defaults = dict(zip(reversed(names), reversed(values)))
    return [f"{name}={short_repr(defaults[name])}" for name in names[count:] if name in defaults]


def _too_many(function: Any, kinds: tuple[Any, ...]) -> str:
    """Why numba failed where arrays of the call stand for parameters that have defaults; an empty text if none does."""
    code = getattr(function, "__code__", None)
    if code is None or not all(hasattr(kind, "mutable") for kind in kinds):
        return ""
    required = code.co_argcount - len(function.__defaults__ or ())
    results = sum(kind.mutable for kind in kinds)
    if not results <= required < len(kinds):
        return ""
    spare = ", ".join(code.co_varnames[required : code.co_argcount])

    def said(count: int, what: str) -> str:
        return f"{count} {what}{'' if count == 1 else 's'}"

    return (
        f"it takes {said(required - results, 'operand')} and {said(results, 'result')} ({spare} by keyword), and the call has "
        f"{said(len(kinds) - results, 'operand')}"
    )


def _complaints(overload: Any, function: ArrayFunction) -> Iterator[str]:
    from numba import types

    if function.bounds:
        yield from complaints(overload, integers_wanted=False, numbers=False)
    returned = overload.signature.return_type
    if returned is not types.none:
        yield (
            f"returns {returned}: it is given the arrays of its results behind those of its operands, and writes them "
            "(result[:] = ...)"
        )


def _reason(error: Exception) -> str:
    """What numba says, in one line: the last thing that tells more than where it stands."""
    said = str(error)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if "setitem" in said and "readonly" in said:
        return "it writes to an operand, and operands are read-only; write to the results, or to a copy" + _line(said)
    telling = [
        line for line in lines if not line.startswith(("Failed in", "During:", "File ", "<source", "^", "[1]", "[2]"))
    ]
    told = telling or lines or [type(error).__name__]
    # "No implementation of function ... found for signature:" and, in the next line, the signature.
    found = " ".join(told[:2]) if told[0].endswith(":") else told[0]
    return found.replace(" >>> ", " ")[:400] + _line(said)


def _line(said: str) -> str:
    """Where numba's complaint stands."""
    found = re.search(r'File "[^"<>]+", line (\d+)', said)
    return f" (line {found[1]})" if found else ""


def _numba_type(kind: TensorType, function: ArrayFunction, user: str, *, readonly: bool) -> Any:
    from numba import types

    return types.Array(
        getattr(types, numba_element(kind.element_type, function, user)), kind.rank, "C", readonly=readonly
    )


def _pointer_to(array: Any) -> Any:
    from numba import types

    return types.CPointer(array.dtype)


def _integer() -> Any:
    from numba import types

    return types.int64


def numba_element(element: ElementType, function: ArrayFunction, user: str) -> str:
    """numba's name of the type as which a function sees elements; raises ``PluginError`` where there is none, for ``user``."""
    match element:
        case BooleanType():
            return "boolean"
        case IntegerType():
            return element.storage.name
        case FloatFormat() if element.name in _FLOATS:
            return _FLOATS[element.name]
        case ComplexType() if element.name in _COMPLEX:
            return _COMPLEX[element.name]
        case FloatFormat() if function.codes:
            return element.storage_bits.name
    raise PluginError(
        f"{user}: numba has no type for elements of {element}; convert them in the program (stablehlo.convert to f32), or take "
        "their codes as unsigned integers (codes=True)"
    )
