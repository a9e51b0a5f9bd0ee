"""Python functions called from generated code: one trampoline for all of them.

    void call(function, description, length, buffers, outcome)

runs on the thread of the program's call.  ctypes takes the GIL for it, whether or not the program gave it away; the runtime and
the program hold no lock then, so that the function may do what it likes: call hlojit, start threads and wait for them, fork.
``outcome`` is 0 where all results are written; otherwise the number of an exception, which ``raise_outcome`` raises once.
Before the trampoline has begun it is ``INTERRUPTED``: where Ctrl-C comes first, ctypes returns and nobody has changed it.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NoReturn

import numpy as np
from hlojit.ir.binary import Reader, Writer
from hlojit.ir.errors import ExecutionError, repr_of
from hlojit.ir.once import Once
from hlojit.ir.plugin_names import with_sources
from hlojit.ir.scalar.arrays import first_outside
from hlojit.ir.vendor_places import raised_at

INTERRUPTED: Final = -1
_KEPT: Final = 256
"""Exceptions of calls that failed for another reason before anybody asked, at most."""
_LONGEST: Final = 2000
"""Characters of what is said of an exception."""
_Function: Final = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)
_NDArray = np.ndarray[Any, Any]
_numbers: Final = itertools.count(1)
_raised: Final[dict[int, tuple[str, BaseException]]] = {}
"""What calls ended with, and what is said of it, by number."""


def description_of(
    user: str, place: str, operands: Sequence[_Form], results: Sequence[_Form], keywords: dict[str, Any]
) -> bytes:
    """What the trampoline must know of a call, as bytes; raises ``NotKeyable`` for other keywords than plain ones."""
    writer = Writer({})
    writer.put((user, place, tuple(operands), tuple(results), keywords))
    return writer.finish()


_Form = tuple[str, str, tuple[int, ...], int]
"""Of an array: the dtypes in memory and outside, by name, its shape, and the bits of its codes where memory has room for more."""


def trampoline() -> int:
    """The address of the C function; it lives as long as the process."""
    return ctypes.cast(_entry(), ctypes.c_void_p).value or 0


def raise_outcome(name: str, number: int) -> NoReturn:
    """Raise what the call of a program ended with."""
    said, error = _raised.pop(number, ("a Python function was interrupted", KeyboardInterrupt()))
    if isinstance(error, KeyboardInterrupt):
        raise error
    raise ExecutionError(f"{name}: {with_sources(said)}") from error


def _called(function: int, description: int, length: int, buffers: int, outcome: int) -> None:
    # Whatever happens in here, the last step of all is to say so.
    ended = ctypes.c_int64.from_address(outcome)
    try:
        callee = ctypes.cast(function, ctypes.py_object).value
        _run(callee, _read(ctypes.string_at(description, length)), buffers)
    except BaseException as error:
        while len(_raised) >= _KEPT:
            _raised.pop(next(iter(_raised)), None)
        number = next(_numbers)
        _raised[number] = _told(error, description, length), error
        ended.value = number
        return
    ended.value = 0


_entry: Final = Once(lambda: _Function(_called))


class _Wrong(Exception):
    """A function that returned something else than it should."""


def _told(error: BaseException, description: int, length: int) -> str:
    user, place, _, _, _ = _read(ctypes.string_at(description, length))
    what = str(error) if isinstance(error, _Wrong) else f"its function raised {_cut(repr_of(error))}{raised_at(error)}"
    return f"{user}: {what}{place and f'{chr(10)}  at {place}'}"


def _cut(said: str) -> str:
    """Not longer than can be read: where calls call programs, each tells what the next one told, with ever more backslashes."""
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]} ... ({len(said)} characters; the cause has them)"


@lru_cache(maxsize=1024)
def _read(description: bytes) -> tuple[str, str, tuple[Any, ...], tuple[Any, ...], dict[str, Any]]:
    user, place, operands, results, keywords = Reader(description, {}).value()
    return user, place, tuple(map(_form, operands)), tuple(map(_form, results)), keywords


def _form(given: _Form) -> tuple[np.dtype[Any], np.dtype[Any], tuple[int, ...], int]:
    return _dtype(given[0]), _dtype(given[1]), *given[2:]


def _dtype(name: str) -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _run(callee: Any, described: tuple[Any, ...], buffers: int) -> None:
    _, _, operands, results, keywords = described
    count = len(operands) + len(results)
    addresses = (ctypes.c_uint64 * count).from_address(buffers)
    given = [_copy(address, *form) for address, form in zip(addresses, operands)]
    returned = callee(*given, **keywords)
    found = () if returned is None else tuple(returned) if isinstance(returned, tuple) else (returned,)
    if len(found) != len(results):
        raise _Wrong(f"its function returned {_counted(found, returned)}, not {_results(len(results))}")
    for number, (each, address, form) in enumerate(zip(found, addresses[len(operands) :], results)):
        _write(each, number, address, *form)


def _counted(found: tuple[Any, ...], returned: Any) -> str:
    return "None" if returned is None else _results(len(found))


def _results(count: int) -> str:
    return f"{count} result{'' if count == 1 else 's'}"


def _copy(address: int, storage: np.dtype[Any], outside: np.dtype[Any], shape: tuple[int, ...], bits: int) -> _NDArray:
    """An operand as the function has it: of its own, since what it keeps must outlive the program's memory; read-only."""
    copied = np.array(_view(address, storage, shape)).astype(outside, copy=False)
    copied.flags.writeable = False
    return copied


def _view(address: int, storage: np.dtype[Any], shape: tuple[int, ...]) -> _NDArray:
    size = int(np.prod(shape, dtype=np.int64))
    if not size:
        return np.empty(shape, storage)
    memory: Any = (ctypes.c_uint8 * (size * storage.itemsize)).from_address(address)
    bytes_of: _NDArray = np.frombuffer(memory, np.uint8)
    return bytes_of.view(storage).reshape(shape)


def _write(
    returned: Any,
    number: int,
    address: int,
    storage: np.dtype[Any],
    outside: np.dtype[Any],
    shape: tuple[int, ...],
    bits: int,
) -> None:
    array = np.asarray(returned)
    if array.shape != shape or array.dtype not in (storage, outside):
        raise _Wrong(f"result {number} of its function is {array.dtype}{list(array.shape)}, not {outside}{list(shape)}")
    stored = np.ascontiguousarray(array.astype(storage, copy=False)).reshape(shape)
    if bits and (wrong := first_outside(stored, bits)) is not None:
        raise _Wrong(f"result {number} of its function has the code {wrong}, outside its {bits} bits")
    _view(address, storage, shape)[...] = stored
