"""Memory of devices that several libraries share: DLPack capsules of it, and other libraries' arrays on it.

The CUDA array interface says the same as DLPack in a dictionary; of arrays that offer both, DLPack is taken, which knows
more element types and orders streams by itself.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any, Final, final

import ml_dtypes
import numpy as np
from hlojit.runtime.dlpack import _FLOATS, _Tensor

CUDA: Final = 2
"""DLPack's type of the devices that the CUDA array interface is about."""
_VERSIONED_FROM: Final = (1, 0)
_READ_ONLY: Final = 1
_KINDS: Final = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_CODES: Final = {name: (code, bits) for (code, bits), name in _FLOATS.items()}


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_exported: dict[int, tuple[object, ...]] = {}
"""By the address of what a consumer has: that, and all that it refers to."""
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


def _delete(address: int) -> None:
    _exported.pop(address, None)


def _destroy(capsule: int) -> None:
    # Of a capsule that nobody consumed: consumers rename theirs.
    for name in (b"dltensor", b"dltensor_versioned"):
        if _is_valid(capsule, name):
            _exported.pop(_pointer(capsule, name), None)


_deleter, _destructor = _DELETER(_delete), _DESTRUCTOR(_destroy)


def _function(name: str, result: Any, *parameters: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *parameters)((name, ctypes.pythonapi))


_is_valid = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_pointer_of = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_new_capsule = _function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR)


def capsule_of(
    address: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    device: tuple[int, int],
    owner: object,
    *,
    version: tuple[int, int] | None = None,
) -> object:
    """A capsule of dense memory, which ``owner`` keeps alive; ``version`` is the newest that the consumer knows.

    Raises ``BufferError`` for an element type that DLPack does not have.
    """
    tensor = _Tensor()
    tensor.data = address
    tensor.device_type, tensor.device_id = device
    tensor.ndim = len(shape)
    code, bits = _code(dtype)
    tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = code, bits, 1
    # Versions before 1.2 let the strides be left out; consumers of later ones want them.
    sizes = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    strides = (ctypes.c_int64 * max(1, len(shape)))(*steps)
    tensor.shape, tensor.strides = (ctypes.cast(each, ctypes.POINTER(ctypes.c_int64)) for each in (sizes, strides))
    deleter = ctypes.cast(_deleter, ctypes.c_void_p)
    made: _Managed | _Versioned
    if version is not None and tuple(version) >= _VERSIONED_FROM:
        made, name = _Versioned(1, 0, None, deleter, _READ_ONLY, tensor), b"dltensor_versioned"
    else:
        made, name = _Managed(tensor, None, deleter), b"dltensor"
    place = ctypes.addressof(made)
    _exported[place] = (made, sizes, strides, name, owner)
    return _new_capsule(place, name, _destructor)


def _code(dtype: np.dtype[Any]) -> tuple[int, int]:
    if dtype.name in _CODES:
        return _CODES[dtype.name]
    if dtype.kind not in _KINDS:
        raise BufferError(f"DLPack has no type for {dtype.name}")
    return _KINDS[dtype.kind], dtype.itemsize * 8


@final
@dataclass(frozen=True, slots=True)
class ForeignArray:
    """Another library's array on a device; ``stream`` is where that library fills it, if it still may."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    """In elements; None: dense."""
    dtype: np.dtype[Any]
    device: tuple[int, int]
    owner: object
    stream: int | None = None

    @property
    def is_dense(self) -> bool:
        """Whether elements lie one behind the other, the last dimension's as neighbours."""
        expected = [math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]
        found = expected if self.strides is None else self.strides
        return all(size == 1 or a == b for size, a, b in zip(self.shape, found, expected)) or 0 in self.shape


def device_of(value: Any) -> tuple[int, int] | None:
    """DLPack's name of the device that a foreign array is on; None of what is no such array."""
    if hasattr(value, "__dlpack_device__"):
        kind, number = value.__dlpack_device__()
        return int(kind), int(number)
    if hasattr(value, "__cuda_array_interface__"):
        return CUDA, -1
    return None


def foreign_array(value: Any, stream: int) -> ForeignArray:
    """The array that a library offers; where it may, it has our ``stream`` wait for what fills it."""
    return _by_dlpack(value, stream) if hasattr(value, "__dlpack__") else _by_interface(value)


def _by_dlpack(value: Any, stream: int) -> ForeignArray:
    capsule = value.__dlpack__(stream=stream)
    tensor = _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else None
    address = (tensor.data or 0) + tensor.byte_offset
    device = (int(tensor.device_type), int(tensor.device_id))
    # The capsule keeps its name: it stays the owner, and frees the tensor when it is dropped.
    return ForeignArray(address, shape, strides, _dtype(tensor.dtype), device, (value, capsule))


def _dtype(found: Any) -> np.dtype[Any]:
    code, bits, lanes = int(found.code), int(found.bits), int(found.lanes)
    if (code, bits) in _FLOATS:
        small: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _FLOATS[code, bits]))
        return small
    kinds = {number: kind for kind, number in _KINDS.items()}
    if lanes != 1 or code not in kinds or bits % 8:
        raise TypeError(f"DLPack type code {code} with {bits} bits and {lanes} lanes")
    name = "bool" if kinds[code] == "b" else f"{kinds[code]}{bits // 8}"
    return np.dtype(name)


def _by_interface(value: Any) -> ForeignArray:
    found = value.__cuda_array_interface__
    dtype = np.dtype(found["typestr"])
    shape = tuple(map(int, found["shape"]))
    given = found.get("strides")
    strides = None if given is None else tuple(step // dtype.itemsize for step in given)
    if found.get("mask") is not None:
        raise TypeError("a masked array; its mask would be lost")
    return ForeignArray(found["data"][0] or 0, shape, strides, dtype, (CUDA, -1), value, found.get("stream"))
