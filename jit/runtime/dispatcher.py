"""The native `__call__` of jitted functions (``dispatch.ll``), and the records that it is driven by.

    class Function(Dispatched):
        def __call__(self, *arguments, **named): ...      # what every call means

    install(Function, report)                             # from now on calls that an entry recognizes never come there

Entries are plain words: operations and addresses of objects, which the entry keeps.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from hlojit.runtime import layout, objects
from hlojit.runtime.native import native

MOST_WORDS: Final = 1024
"""What an entry may take of a thread's stack."""
_METH_METHOD_FASTCALL_KEYWORDS: Final = 0x282
"""Without METH_METHOD, CPython 3.11 specializes calls of the method without ``self`` as if there was one."""
_NO_RESULT: Final = b""
_METHOD_DESCRIPTOR: Final = 1 << 17
"""CPython's Py_TPFLAGS_METHOD_DESCRIPTOR."""

Entry = tuple[bytes, tuple[object, ...]]
"""The record, and what its addresses depend on."""


class Dispatched:
    """What has entries; native code finds them in the object's first slot."""

    __slots__ = ("_entries",)
    _entries: tuple[Entry, ...]


@final
class Words:
    """Operations as they are written, and the objects whose addresses are in them."""

    def __init__(self, names: Sequence[str]):
        self._codes = {name: number for number, name in enumerate(names, 1)}
        self._words: list[int] = []
        self.kept: list[object] = []

    def add(self, name: str, *operands: int) -> None:
        """One operation."""
        self._words += (self._codes[name], *operands)

    def object(self, value: object) -> int:
        """The address of an object, which is kept."""
        self.kept.append(value)
        return id(value)

    def written(self) -> bytes:
        """All of them, and the end."""
        return struct.pack(f"={len(self._words) + 1}q", *self._words, 0)


def entry(
    matching: Words,
    giving: Words | None,
    call: Callable[..., Any],
    finish: Callable[..., Any],
    numbers: dict[str, int],
) -> Entry | None:
    """An entry that runs ``call``; ``numbers`` are the other fields of the record.  None if it would need much of the stack."""
    if numbers["values"] + numbers["leaves"] + numbers["stack"] > MOST_WORDS:
        return None
    offsets = objects.measure()
    assert offsets is not None
    given = giving.written() if giving is not None else _NO_RESULT
    function, callee = native_of(call)
    fields = {
        **numbers,
        "function": function,
        "callee": callee,
        "giving": id(given) + offsets.bytes_data if giving is not None else 0,
        "finish": id(finish),
    }
    header = struct.pack(f"={len(layout.ENTRY)}q", *(fields[name] for name in layout.ENTRY))
    kept = (call, finish, given, *matching.kept, *(giving.kept if giving is not None else ()))
    return header + matching.written(), kept


def native_of(call: Callable[..., Any]) -> tuple[int, int]:
    """The C function of an executable's call and what it is called with; 0 and the callable itself of any other."""
    if type(call) is type(len):
        function = _of_function("PyCFunction_GetFunction", call)
        if function == native().addresses["hlojit_call"]:
            return function, _of_function("PyCFunction_GetSelf", call)
    return 0, id(call)


def _of_function(name: str, function: Callable[..., Any]) -> int:
    ask = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)((name, ctypes.pythonapi))
    return int(ask(function) or 0)


# -------------------------------------------------------------------------------------------------------- installation


class _MethodDefinition(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_lock = threading.Lock()
_installed: list[object] = []
"""What native code points to; for ever."""


def is_possible() -> bool:
    """Whether objects of this interpreter look as native code expects, and one thread at a time runs Python."""
    return objects.measure() is not None and getattr(sys, "_is_gil_enabled", lambda: True)() and _slot() > 0


def install(kind: type[Dispatched], report: Callable[[BaseException], object]) -> None:
    """Put the native call in the place of a class's ``__call__``, which calls that none of the entries recognizes go to."""
    if _installed:
        return
    with _lock:
        if _installed:
            return
        otherwise = kind.__dict__["__call__"]
        runtime = native()
        definition = _MethodDefinition(
            b"__call__",
            runtime.addresses["hlojit_dispatch"],
            _METH_METHOD_FASTCALL_KEYWORDS,
            b"Call the compiled function.",
        )
        runtime.hlojit_dispatch_setup(_slot(), id(otherwise), id(report))
        new_method = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(
            ("PyDescr_NewMethod", ctypes.pythonapi)
        )
        method = new_method(kind, ctypes.addressof(definition))
        _installed.extend((definition, otherwise, report, kind))
        # Native code outlives every Python object.
        for each in _installed:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
        type.__setattr__(kind, "__call__", method)
        _make_method_descriptor(kind)


def _make_method_descriptor(kind: type) -> None:
    """Have ``instance.function(x)`` call ``function(instance, x)``, as Python does with its own functions: no object is made.

    Classes written in Python cannot say so, though ``__get__`` of this one means just that.  Where the flags of types are not
    found, ``__get__`` is called, as before.
    """
    offset = objects.type_flags()
    if offset:
        word = ctypes.c_ulong.from_address(id(kind) + offset)
        word.value |= _METHOD_DESCRIPTOR
        modified = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("PyType_Modified", ctypes.pythonapi))
        modified(kind)


def answered() -> int:
    """How many calls entries have answered since the start of the process."""
    return int(native().hlojit_dispatched())


def _slot() -> int:
    """Where the slot of ``Dispatched`` is; 0 if it is not found."""
    probe, marker = Dispatched(), ()
    probe._entries = marker
    found = object.__basicsize__
    size = Dispatched.__basicsize__
    if size < found + 8 or ctypes.c_size_t.from_address(id(probe) + found).value != id(marker):
        return 0
    del probe._entries
    return found if ctypes.c_size_t.from_address(id(probe) + found).value == 0 else 0
