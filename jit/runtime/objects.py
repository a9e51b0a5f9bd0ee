"""Where Python and NumPy keep the fields of their objects, measured instead of compiled in.

The compiled call path reads an array's type, dtype, rank, shape, base, flags and data pointer straight from the object.  The
offsets are derived from the size of an object header in this interpreter (longer in a free-threaded one) and checked
against arrays whose fields are known; if anything differs, ``measure`` returns None and calls go through Python.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import asdict, dataclass
from functools import cache
from types import CellType
from typing import Any, Final

import numpy as np


@dataclass(frozen=True, slots=True)
class ObjectLayout:
    """Byte offsets of fields, from the start of the object."""

    type: int
    tuple_size: int
    tuple_item: int
    bytes_data: int
    array_data: int
    array_rank: int
    array_shape: int
    array_strides: int
    array_base: int
    array_dtype: int
    array_flags: int
    array_handler: int
    """The capsule by which NumPy allocated the memory that an array owns; null where it owns none."""

    def llvm_ir(self) -> str:
        """The offsets as the constants ``@offset.*``."""
        return "".join(f"@offset.{name} = private constant i64 {value}\n" for name, value in asdict(self).items())


def _word(address: int) -> int:
    return int(ctypes.c_size_t.from_address(address).value)


def expected() -> ObjectLayout:
    """The offsets as CPython on a 64-bit machine has them; nothing is read."""
    header = object.__basicsize__
    return ObjectLayout(
        type=header - 8,
        tuple_size=header,
        tuple_item=tuple.__basicsize__,
        bytes_data=bytes.__basicsize__ - 1,
        array_data=header,
        array_rank=header + 8,
        array_shape=header + 16,
        array_strides=header + 24,
        array_base=header + 32,
        array_dtype=header + 40,
        array_flags=header + 48,
        array_handler=header + 72,
    )


def _agrees(layout: ObjectLayout, array: np.ndarray[Any, Any]) -> bool:
    address = id(array)
    flags = ctypes.c_int.from_address(address + layout.array_flags).value
    expected_flags = (
        array.flags.c_contiguous | array.flags.owndata << 2 | array.flags.aligned << 8 | array.flags.writeable << 10
    )
    shape = _word(address + layout.array_shape) if array.ndim else 0
    strides = _word(address + layout.array_strides) if array.ndim else 0
    return (
        _word(address + layout.type) == id(np.ndarray)
        and _word(address + layout.array_data) == array.ctypes.data
        and ctypes.c_int.from_address(address + layout.array_rank).value == array.ndim
        and all(_word(shape + 8 * axis) == extent for axis, extent in enumerate(array.shape))
        and all(_word(strides + 8 * axis) == stride % (1 << 64) for axis, stride in enumerate(array.strides))
        and _word(address + layout.array_base) == (0 if array.base is None else id(array.base))
        and _word(address + layout.array_dtype) == id(array.dtype)
        and flags & 0x505 == expected_flags
        and _word(address + layout.array_handler) == (_allocator() if array.flags.owndata else 0)
    )


def numpy_function(position: int) -> int:
    """The address of a function in NumPy's table, whose positions are part of its binary interface."""
    get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    table = get_pointer(np._core._multiarray_umath._ARRAY_API, None)  # type: ignore[attr-defined]
    return _word(table + 8 * position)


_TYPE_BYTES: Final = 400
"""Of the part of a type in which its flags are; types are longer."""
_GET_HANDLER: Final = 305
"""Position of PyDataMem_GetHandler."""


def _allocator() -> int:
    """The address of the capsule by which NumPy allocates in this context."""
    return id(ctypes.PYFUNCTYPE(ctypes.py_object)(numpy_function(_GET_HANDLER))())


@cache
def measure() -> ObjectLayout | None:
    """The offsets in this process, or None if they are not where they are expected."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    layout = expected()
    holder = (object(), None, None)
    if _word(id(holder) + layout.tuple_item) != id(holder[0]) or _word(id(holder) + layout.tuple_size) != len(holder):
        return None
    text = b"hlojit01"
    if ctypes.string_at(id(text) + layout.bytes_data, len(text)) != text:
        return None
    read_only = np.arange(35, dtype=np.int16).reshape(5, 7)
    read_only.flags.writeable = False
    unaligned = np.zeros(17, np.uint8)[1:].view(np.float64)
    samples: list[np.ndarray[Any, Any]] = [
        np.zeros((), np.float64),
        np.zeros((2, 3, 5), np.float32),
        np.zeros((4, 6), np.complex128).T,
        np.zeros((0, 9), ">i4"),
        np.zeros(11, np.bool_)[::2],
        read_only,
        unaligned,
    ]
    return layout if all(_agrees(layout, sample) for sample in samples) else None


def type_flags() -> int:
    """Where types have their flags, from the start of the object; 0 if that is not found."""
    if ctypes.sizeof(ctypes.c_ulong) != 8:
        return 0
    samples: tuple[type, ...] = (type, int, ObjectLayout, type("Sample", (), {}), np.ndarray)
    found = [
        offset
        for offset in range(0, _TYPE_BYTES, 8)
        if all(_word(id(sample) + offset) == sample.__flags__ for sample in samples)
    ]
    return found[0] if len(found) == 1 else 0


@dataclass(frozen=True, slots=True)
class WordsOfObjects:
    """Byte offsets of words that say what an object is now: one that holds the same word is the same."""

    dict_version: int
    """Another number after each change of a dictionary."""
    cell_contents: int
    function_code: int
    function_defaults: int
    function_keyword_defaults: int


@cache
def words() -> WordsOfObjects | None:
    """Where they are in this process; None if they are not found: dictionaries have no such word from Python 3.13 on."""
    if measure() is None:
        return None
    header = object.__basicsize__

    def sample(a: object = (), *, b: object = ()) -> None:
        del a, b

    places = [
        [offset for offset in range(header, type(sample).__basicsize__, 8) if _word(id(sample) + offset) == id(part)]
        for part in (sample.__code__, sample.__defaults__, sample.__kwdefaults__)
    ]
    cell = CellType(places)
    if any(len(found) != 1 for found in places) or _word(id(cell) + header) != id(places):
        return None
    version = header + 8
    if not _changes_with_dictionaries(version):
        return None
    code, defaults, keyword_defaults = (found[0] for found in places)
    return WordsOfObjects(version, header, code, defaults, keyword_defaults)


_SPECIALIZED: Final = 64
"""Rounds after which the interpreter has put special instructions in the place of general ones."""


def _changes_with_dictionaries(offset: int) -> bool:
    """Whether a word of dictionaries is another one after each way to change them, and the same after none."""

    class Sample:
        attribute = 0

    table: dict[str, Any] = {"present": 0}
    code = compile("global present\npresent = present + 1", "<sample>", "exec")
    thing = Sample()
    thing.attribute = 0
    attributes = vars(thing)
    seen = []
    for number in range(_SPECIALIZED):
        table["other"] = number
        seen.append(_word(id(table) + offset))
        exec(code, table)
        seen.append(_word(id(table) + offset))
        del table["other"]
        seen.append(_word(id(table) + offset))
        thing.attribute = number
        seen.append(_word(id(attributes) + offset))
        before = _word(id(table) + offset)
        if table["present"] != number + 1 or _word(id(table) + offset) != before:
            return False
    return len(set(seen)) == len(seen)
