"""numba functions inside our kernels: their LLVM code, to be linked in and inlined.

A scalar function is compiled by numba for the kinds of its arguments, with bounds checks; ``linked_code`` checks what the
code does and makes it fit.  A function that could read or write memory that is not its own is refused by name.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, Final

from hlojit.extensions.functions.checked_copies import checked_copy, omitted
from hlojit.extensions.functions.implementations import foreign_implementations
from hlojit.extensions.functions.kernel_arithmetic import arithmetic_of_kernels
from hlojit.extensions.functions.linked_code import WIDENED, Signature, Unfit, linked_function
from hlojit.extensions.functions.lost_numbers import lost_numbers
from hlojit.extensions.functions.native_scalars import NativeScalar
from hlojit.extensions.functions.returned_numbers import mixes_integers, returned_kind
from hlojit.ir.errors import PluginError
from hlojit.ir.fingerprint import NotKeyable, fingerprint
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.formats import ElementType, IntegerType
from hlojit.ir.scalar.calls import ScalarFunction, code_bits
from hlojit.ir.scalar.formats import compute_kind

STANDS_FOR: Final = "hlojit_stands_for"
"""Attribute of a function that calls a plugin's: the latter, which messages name."""
CACHE_BYTES: Final = 32 << 20
"""Compiled functions that are kept, by the size of their text."""

_private = itertools.count()
_compiled: OrderedDict[tuple[str, tuple[str, ...], str], ScalarFunction] = OrderedDict()


def compile_scalar(function: Callable[..., Any], kinds: tuple[str, ...], result: str, user: str) -> ScalarFunction:
    """The code of a scalar function of argument ``kinds`` with a ``result`` kind; ``user`` is what needs it.

    Raises ``PluginError`` if numba cannot compile the function, or if it does what a kernel cannot.
    """
    if isinstance(function, NativeScalar):
        return function.compiled(kinds, user)
    try:
        identity = fingerprint(function)
    except NotKeyable as error:
        return _described(_compile(function, kinds, result, user, error), function, user)
    key = identity, kinds, result
    with fork_gate.inside:
        made = _compiled.get(key) or _compile(function, kinds, result, user, None, identity)
        if made.unkeyable:
            return _described(made, function, user)
        found = _keep(key, made)
    return _described(found, function, user)


def _keep(key: tuple[str, tuple[str, ...], str], made: ScalarFunction) -> ScalarFunction:
    """Under no lock: single steps, each of which leaves a whole table to other threads and to signal handlers."""
    found = _compiled.setdefault(key, made)
    with suppress(KeyError):
        _compiled.move_to_end(key)
    while len(_compiled) > 1 and sum(len(each.llvm_ir) for each in list(_compiled.values())) > CACHE_BYTES:
        with suppress(KeyError):
            _compiled.popitem(last=False)
    return found


def _described(found: ScalarFunction, function: Callable[..., Any], user: str) -> ScalarFunction:
    """What can fail, with the names of the function and of what uses it.

    Not with the file: the text is a part of the kernel, which serves everybody who has the same function.
    """
    name = getattr(getattr(function, "py_func", function), "__qualname__", "a function")
    return replace(found, failure=f"{user}: {found.failure} in {name}") if found.failure else found


def described_function(function: Any) -> str:
    """A function's name and where it is written."""
    python = getattr(function, "py_func", function)
    python = getattr(python, STANDS_FOR, python)
    code = getattr(python, "__code__", None)
    name: str = getattr(python, "__qualname__", repr(python))
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name


def _numba_types() -> dict[str, Any]:
    """numba's type by kind.

    Unsigned arguments that fit are given as int64: numba negates and subtracts unsigned integers as unsigned, Python
    does not.
    """
    from numba import types

    return {
        "i1": types.boolean, "i8": types.int8, "i16": types.int16, "i32": types.int32, "i64": types.int64,
        "u8": types.uint8, "u16": types.uint16, "u32": types.uint32, "u64": types.uint64,
        "f32": types.float32, "f64": types.float64,
    }  # fmt: skip


def _compile(
    function: Callable[..., Any],
    kinds: tuple[str, ...],
    result: str,
    user: str,
    unkeyable: NotKeyable | None,
    identity: str = "",
) -> ScalarFunction:
    try:
        compiled, overload = compiled_by_numba(function, kinds, result, user)
        returned = returned_kind(overload, result)
        integers_wanted = result[0] in "iu" and result != "i1"
        with numbas_lock():  # its tables change while other threads compile
            for complaint in complaints(overload, integers_wanted=integers_wanted):
                raise Unfit(complaint)
            foreign = next(foreign_implementations(overload, compiled.typingctx), "")
        if unkeyable is not None:
            raise Unfit(f"depends on what has no content: {unkeyable}")
        text: str = overload.library.get_llvm_str()
        if foreign:  # the content of the function, which another one may share, does not tell what it does
            identity += f" {next(_private)}"
        symbol = "hlojit_scalar_" + hashlib.sha256(f"{identity}{kinds}{result}".encode()).hexdigest()[:16]
        signature = Signature(kinds, returned, code_bits(result))
        linked = linked_function(text, overload.fndesc.llvm_func_name, symbol, signature)
        reason = (
            f"{described_function(function)} uses {foreign}, which was registered with numba, so it" if foreign else ""
        )
        return replace(linked, unkeyable=str(NotKeyable(reason)) if foreign else "")
    except Unfit as error:
        raise PluginError(f"{user}: {described_function(function)} {error}, so it cannot run inside a kernel") from None


def numbas_lock() -> Any:
    """Held by whoever compiles."""
    from numba.core.compiler_lock import global_compiler_lock

    return global_compiler_lock


def compiled_by_numba(function: Any, kinds: tuple[str, ...], result: str, user: str) -> tuple[Any, Any]:
    """numba's function and what it compiled for arguments of these kinds."""
    import numba

    known, python = _numba_types(), getattr(function, "py_func", function)
    try:
        with arithmetic_of_kernels():
            defaults = omitted(python, len(kinds))
            arguments = (*(known[WIDENED.get(kind, kind)] for kind in kinds), *defaults)
            compiled = numba.njit(
                arguments, error_model="numpy", boundscheck=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
            )(checked_copy(python))
    except Unfit:
        raise
    except Exception as error:
        # What numba says takes many lines, the first of which is ours.
        found = str(error).replace("\n", "\n  ")
        raise PluginError(
            f"{user}: numba cannot compile {described_function(function)} for ({', '.join(kinds)}) -> {result}: {found}"
        ) from error
    return compiled, compiled.overloads[arguments]


# ------------------------------------------------------------------------------------------------ what numba found


def complaints(overload: Any, *, integers_wanted: bool, numbers: bool = True, depth: int = 0) -> Iterator[str]:
    """What numba's types tell of a function: pointers, views without bounds and, of ``numbers``, signs that would be lost."""
    import numba
    from numba.extending import _Intrinsic
    from numpy.lib.stride_tricks import as_strided

    kinds: Any = numba.types
    annotation = overload.type_annotation
    for kind in annotation.typemap.values():
        key = getattr(kind, "typing_key", None)
        if isinstance(kind, kinds.Function) and (
            key in (numba.carray, numba.farray, as_strided) or isinstance(key, _Intrinsic)
        ):
            yield f"uses {getattr(key, '__name__', key)}, whose memory is not checked"
        elif isinstance(kind, kinds.Function) and key in _unchecked_functions():
            name = getattr(key, "__name__", key)
            yield f"uses np.{name}, whose indices numba does not check: write the loop, or say bounds=False"
        elif isinstance(kind, (kinds.ExternalFunctionPointer, kinds.ExternalFunction, kinds.FunctionType)):
            yield "calls a C function through its address"
        elif isinstance(kind, (kinds.CPointer, kinds.RawPointer)):
            yield "uses a C pointer"
        elif isinstance(kind, kinds.ArrayCTypes):
            yield "uses .ctypes, the address of an array"
        elif isinstance(kind, kinds.NumpyFlatType):
            yield "uses .flat, whose indices numba does not check"
        elif isinstance(kind, kinds.Dispatcher) and depth < 16:
            for other in kind.dispatcher.overloads.values():
                yield from _unchecked(kind.dispatcher, other)
                yield from complaints(other, integers_wanted=integers_wanted, numbers=numbers, depth=depth + 1)
                if integers_wanted and mixes_integers(other):
                    yield f"calls {kind.dispatcher.py_func.__qualname__}, which returns integers and floats: write int(x) there"
    yield from _outputs(annotation)
    if numbers:
        yield from lost_numbers(annotation, integers_wanted=integers_wanted)


@cache
def _unchecked_functions() -> frozenset[Any]:
    """Functions of NumPy that numba implements by loops in which indices are data and bounds nobody's."""
    import numpy as np

    return frozenset({np.bincount, np.delete, np.insert, np.take_along_axis, np.fill_diagonal})


def _outputs(annotation: Any) -> Iterator[str]:
    """Of functions that write into an array which they are given numba looks at that array's shape alone."""
    import numpy as np

    for expression, signature in annotation.calltypes.items():
        if getattr(expression, "op", None) != "call" or signature is None:
            continue
        function = getattr(annotation.typemap.get(expression.func.name), "typing_key", None)
        takes = function.nin if isinstance(function, np.ufunc) else 2 if function is np.outer else None
        if takes is not None and len(signature.args) > takes:
            name = f"np.{getattr(function, '__name__', function)}"
            yield (
                f"gives {name} an array to write to, whose shape numba does not compare with the operands': "
                f"write result[...] = {name}(...), or say bounds=False"
            )


def _unchecked(dispatcher: Any, overload: Any) -> Iterator[str]:
    from numba.core import types as kinds

    if dispatcher.targetoptions.get("boundscheck"):
        return
    if any(isinstance(kind, kinds.Array) for kind in overload.type_annotation.typemap.values()):
        yield (
            f"calls {dispatcher.py_func.__qualname__} through its module, which is compiled without bounds checks; import "
            "the function by its name"
        )


# ------------------------------------------------------------------------------------------------------- for custom calls


def scalar_kind(element: ElementType) -> str:
    """The kind as which a scalar function sees elements of a type: the compute kind, ``u8`` ... if unsigned."""
    kind = compute_kind(element)
    return f"u{kind[1:]}" if isinstance(element, IntegerType) and not element.signed else kind


def result_kind(element: ElementType) -> str:
    """The kind that is made of what a scalar function returns: of integers with the bits of the type."""
    if isinstance(element, IntegerType):
        return f"{'i' if element.signed else 'u'}{element.bits}"
    return compute_kind(element)


def call_scalar(
    builder: Any,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    operand_types: Sequence[ElementType],
    result_type: ElementType,
    user: str,
) -> Any:
    """Emit a call of a scalar function of elements; ``user`` says in errors what calls it."""
    kinds = tuple(map(scalar_kind, operand_types))
    return builder.call(function, kinds, result_kind(result_type), tuple(arguments), user)
