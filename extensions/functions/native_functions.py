"""Native functions as plugins hand them over: their addresses, and what their parameters are.

address_of(ctypes.CDLL(None).tgamma)
argument_list("operand0, result0, result0.size:i32, alpha:f64 -> status")
"""

from __future__ import annotations

import ctypes
import difflib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

from hlojit.ir.errors import PluginError, short_repr

C_FUNCTION: Final = ctypes.CFUNCTYPE(None).__mro__[1]
"""The base of ctypes' functions."""
NUMBERS: Final = ("i8", "i16", "i32", "i64", "f32", "f64")
"""Types of numbers that a native function may take."""
RETURNS: Final = ("void", "status", "result0")

_PART = re.compile(
    r"(?:(?P<side>operand|result)(?P<number>\d+)(?:\.(?:(?P<size>size)|shape(?P<dimension>\d+)))?|(?P<attribute>[A-Za-z_]\w*))"
    r"(?:\s*:\s*(?P<type>\w+))?"
)


def may_raise(handler: object) -> bool:
    """Whether it is the C function of a Python one that nobody has made safe: ctypes keeps the callback with it."""
    if not isinstance(handler, C_FUNCTION) or getattr(handler, "catches_exceptions", False):
        return False
    kept = getattr(handler, "_objects", None) or {}
    return any(type(each).__name__ == "CThunkObject" for each in kept.values())


def address_of(handler: Any) -> int:
    """The address of a C function - of ctypes, of cffi, in a PyCapsule, a number, or with an ``address`` - or 0."""
    if isinstance(handler, int) and not isinstance(handler, bool):
        return handler if 0 < handler < 1 << 63 else 0
    if type(handler).__name__ == "PyCapsule":
        name_of = ctypes.pythonapi.PyCapsule_GetName
        name_of.restype, name_of.argtypes = ctypes.c_char_p, (ctypes.py_object,)
        pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        return int(pointer_of(handler, name_of(handler)) or 0)
    if isinstance(handler, C_FUNCTION):
        return int(ctypes.cast(cast(Any, handler), ctypes.c_void_p).value or 0)
    if type(handler).__module__ == "_cffi_backend":
        return _address_of_cffi(handler)
    found = getattr(handler, "address", None)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def _address_of_cffi(handler: Any) -> int:
    import importlib

    cffi: Any = importlib.import_module("_cffi_backend")
    try:
        if cffi.typeof(handler).kind != "function" and cffi.typeof(handler).kind != "pointer":
            return 0
        return int(cffi.cast(cffi.new_primitive_type("uintptr_t"), handler))
    except TypeError:
        return 0


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of a native function: an address, a number of elements, or an attribute of the call."""

    side: str
    """``operand``, ``result``, or empty for an attribute."""
    number: int = 0
    extent: int | None = None
    """A dimension, -1 for all elements, or None for the address."""
    attribute: str = ""
    type: str = "ptr"

    def __str__(self) -> str:
        if self.attribute:
            return self.attribute
        return f"{self.side}{self.number}{'' if self.extent is None else '.size' if self.extent < 0 else f'.shape{self.extent}'}"


@dataclass(frozen=True, slots=True)
class ArgumentList:
    """What a native function takes and returns."""

    arguments: tuple[Argument, ...]
    returns: str
    """``void``, ``status``, or ``result`` where what it returns is the element of one: ``returned``."""
    returned: Argument | None = None


def argument_list(signature: str) -> ArgumentList:
    """A signature, read; raises ``PluginError`` saying what is wrong with it."""
    if not isinstance(signature, str):
        raise PluginError(
            f"a signature is a text such as 'operand0, result0, result0.size', not {short_repr(signature)}"
        )
    return _read(signature)


@lru_cache(maxsize=256)
def _read(signature: str) -> ArgumentList:
    parameters, arrow, returns = (part.strip() for part in signature.partition("->"))
    result = re.fullmatch(r"result(\d+)", returns)
    if arrow and result is None and returns not in RETURNS:
        raise PluginError(f"the signature {signature!r}: behind -> stands one of {', '.join(RETURNS)}, not {returns!r}")
    given = [part.strip() for part in parameters.split(",")] if parameters else []
    arguments = tuple(_argument(part, signature) for part in given)
    if result is not None:
        returned = Argument("result", int(result[1]))
        if returned in arguments:
            raise PluginError(f"the signature {signature!r}: {returns} is returned, and so no parameter")
        return ArgumentList(arguments, "result", returned)
    return ArgumentList(arguments, returns or "void")


def _argument(part: str, signature: str) -> Argument:
    match = _PART.fullmatch(part)
    if match is None:
        raise PluginError(
            f"the signature {signature!r}: {part!r} is none of operand0, result0, operand0.size, operand0.shape1:i32, alpha:f64"
        )
    kind = match["type"]
    if match["side"] and match["size"] is None and match["dimension"] is None:
        if kind is not None:
            raise PluginError(f"the signature {signature!r}: {part!r} is an address and has no type")
        return Argument(match["side"], int(match["number"]))
    if kind is not None and kind not in NUMBERS:
        raise PluginError(f"the signature {signature!r}: numbers are {', '.join(NUMBERS)}, not {kind}")
    if match["attribute"]:
        if kind is None:
            _refuse_mistyped(match["attribute"], signature)
        return Argument("", attribute=match["attribute"], type=kind or "f64")
    if kind in ("f32", "f64"):
        raise PluginError(f"the signature {signature!r}: {part!r} is a number of elements, an integer")
    extent = -1 if match["size"] else int(match["dimension"])
    return Argument(match["side"], int(match["number"]), extent, type=kind or "i64")


def _refuse_mistyped(name: str, signature: str) -> None:
    """Refuse ``reslt0`` and ``operand``, which nobody means as numbers of a configuration; with a type they would be that."""
    letters = name.rstrip("0123456789")
    near = difflib.get_close_matches(letters, ("operand", "result"), n=1, cutoff=0.75)
    if near:
        meant = f"{near[0]}{name.removeprefix(letters) or 0}"
        raise PluginError(
            f"the signature {signature!r}: {name!r} is no operand or result; did you mean {meant!r}? (a number of that name in "
            f"the call's configuration is written with its type: '{name}:f64')"
        )
