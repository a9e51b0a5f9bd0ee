"""numba functions inside our kernels: their LLVM code, to be linked in and inlined.

A scalar function is compiled by numba for the kinds of its arguments; its LLVM module gets a small wrapper with our
calling convention, marked to be inlined always.  A function that can raise is refused: a kernel has no way to raise.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from hlojit.ir.errors import PluginError
from hlojit.ir.fingerprint import NotKeyable, fingerprint
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.formats import ElementType, IntegerType
from hlojit.ir.scalar.formats import compute_kind

_lock = threading.Lock()
_compiled: OrderedDict[tuple[Any, tuple[str, ...], str], tuple[str, str]] = OrderedDict()
_KEPT = 256

_LLVM = {"i1": "i1", "f32": "float", "f64": "double"} | {f"{s}{n}": f"i{n}" for s in "iu" for n in (8, 16, 32, 64)}
"""LLVM's types by kind; ``u8`` ... ``u64`` are integers that numba is told are unsigned."""


def numba_scalar(function: Callable[..., Any], kinds: tuple[str, ...], result: str) -> tuple[str, str]:
    """Return (symbol, LLVM module text) of a scalar function of argument ``kinds`` with a ``result`` kind.

    Raises ``PluginError`` if numba cannot compile the function, or if it can raise.
    """
    with fork_gate, _lock:
        # By content: a function that reads another global now is another function, whatever object it is.
        key = (content_of(function), kinds, result)
        if key not in _compiled:
            _compiled[key] = _compile(function, kinds, result)
            if len(_compiled) > _KEPT:
                _compiled.popitem(last=False)
        _compiled.move_to_end(key)
        return _compiled[key]


def content_of(function: Callable[..., Any]) -> object:
    """Fingerprint of a function; the function itself where it has none (it calls C through a pointer)."""
    try:
        return fingerprint(function)
    except NotKeyable:
        return function


def _types() -> dict[str, Any]:
    from numba import types

    return {
        "i1": types.boolean, "i8": types.int8, "i16": types.int16, "i32": types.int32, "i64": types.int64,
        "u8": types.uint8, "u16": types.uint16, "u32": types.uint32, "u64": types.uint64,
        "f32": types.float32, "f64": types.float64,
    }  # fmt: skip


def _compile(function: Callable[..., Any], kinds: tuple[str, ...], result: str) -> tuple[str, str]:
    import numba

    types = _types()
    python_function = getattr(function, "py_func", function)
    signature = types[result](*(types[kind] for kind in kinds))
    try:
        compiled = numba.njit(signature, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)(
            python_function
        )
    except Exception as error:
        name = getattr(python_function, "__qualname__", repr(python_function))
        raise PluginError(f"numba cannot compile {name} for ({', '.join(kinds)}) -> {result}: {error}") from error
    overload = compiled.overloads[signature.args]
    text: str = overload.library.get_llvm_str()
    native = overload.fndesc.llvm_func_name
    symbol = "hlojit_scalar_" + hashlib.sha256(f"{native}{kinds}{result}".encode()).hexdigest()[:16]
    return symbol, _with_wrapper(python_function, text, native, symbol, kinds, result)


def _with_wrapper(function: Any, text: str, native: str, symbol: str, kinds: tuple[str, ...], result: str) -> str:
    """numba's convention is ``i32 status(ptr result, ptr exception, arguments...)``; a status of 0 is success."""
    body = _function_body(text, native)
    if re.search(r"ret i32 (?!0\b)", body) or "NRT_" in body:
        name = getattr(function, "__qualname__", repr(function))
        raise PluginError(
            f"{name} can raise an exception or allocates memory, so it cannot run inside a kernel; write it without "
            "assert, raise, division that checks, or containers"
        )
    in_memory = {kind: ("i8" if kind == "i1" else _LLVM[kind]) for kind in (*kinds, result)}
    parameters = ", ".join(f"{_LLVM[kind]} %a{number}" for number, kind in enumerate(kinds))
    lines = [f"define {_LLVM[result]} @{symbol}({parameters}) alwaysinline nounwind {{"]
    lines += [f"  %r = alloca {in_memory[result]}", "  %e = alloca ptr"]
    passed = []
    for number, kind in enumerate(kinds):
        # numba passes booleans as bits too.
        passed.append(f"{_LLVM[kind]} %a{number}")
    quoted = native if re.fullmatch(r"[\w.$]+", native) else f'"{native}"'
    lines.append(f"  %s = call i32 @{quoted}(ptr %r, ptr %e, {', '.join(passed)})")
    lines.append(f"  %v = load {in_memory[result]}, ptr %r")
    if result == "i1":
        lines += ["  %b = trunc i8 %v to i1", "  ret i1 %b"]
    else:
        lines.append(f"  ret {_LLVM[result]} %v")
    lines.append("}")
    return _make_inlinable(text, native) + "\n".join(lines) + "\n"


def _function_body(text: str, native: str) -> str:
    start = re.search(rf'^define [^\n]*@"?{re.escape(native)}"?\(', text, re.MULTILINE)
    if start is None:
        raise PluginError(f"numba's module has no function {native}")
    return text[start.start() : text.index("\n}", start.start())]


def _make_inlinable(text: str, native: str) -> str:
    """Let every function of numba's module be inlined and dropped, and strip what belongs to another module."""
    text = re.sub(r"^(target (triple|datalayout)|source_filename) = .*$", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"^define (?!internal|private)(?:linkonce_odr |weak_odr |dso_local )*",
        "define internal ",
        text,
        flags=re.MULTILINE,
    )
    # The environment and the parent's argument wrappers are only data here.
    return re.sub(
        r"^(@[^\n]*) = common (local_unnamed_addr )?global", r"\1 = internal global", text, flags=re.MULTILINE
    )


def scalar_kind(element: ElementType) -> str:
    """The kind as which a scalar function sees elements of a type: the compute kind, ``u8`` ... if unsigned."""
    kind = compute_kind(element)
    return f"u{kind[1:]}" if isinstance(element, IntegerType) and not element.signed else kind


def call_scalar(
    builder: Any,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    operand_types: Sequence[ElementType],
    result_type: ElementType,
) -> Any:
    """Emit a call of a scalar function through ``ScalarBuilder.call``; a builder that evaluates calls it directly."""
    kinds, result = tuple(map(scalar_kind, operand_types)), scalar_kind(result_type)
    evaluate = getattr(builder, "call_python", None)
    if evaluate is not None:
        return evaluate(function, kinds, result, arguments)
    symbol, text = numba_scalar(function, kinds, result)
    return builder.call(symbol, compute_kind(result_type), tuple(arguments), text)
