"""Arrays of other libraries through DLPack, without a copy.

NumPy's own ``from_dlpack`` knows neither bfloat16 nor the 8-bit floats; those are taken as their bits and then viewed
as ml_dtypes' dtypes.  The producer's memory is kept alive by the array that is returned.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, final

import ml_dtypes
import numpy as np
from hlojit.ir.errors import ArgumentError

_HOST_DEVICES: Final = {1: "cpu", 3: "cuda_host", 11: "rocm_host", 13: "cuda_managed"}
_DEVICES: Final = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi"}

_FLOATS: Final = {
    (4, 16): "bfloat16",
    (7, 8): "float8_e3m4",
    (8, 8): "float8_e4m3",
    (9, 8): "float8_e4m3b11fnuz",
    (10, 8): "float8_e4m3fn",
    (11, 8): "float8_e4m3fnuz",
    (12, 8): "float8_e5m2",
    (13, 8): "float8_e5m2fnuz",
    (14, 8): "float8_e8m0fnu",
}
"""(type code, bits) of DLPack to ml_dtypes' name, for what NumPy does not know."""


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def from_dlpack(value: Any, where: str) -> np.ndarray[Any, Any]:
    """View ``value`` (anything with ``__dlpack__``) as a NumPy array; ``where`` begins the message of an error."""
    try:
        device, _ = value.__dlpack_device__()
    except (AttributeError, TypeError, ValueError) as error:
        raise ArgumentError(f"{where}: __dlpack_device__ of {type(value).__name__} failed: {error}") from error
    if int(device) not in _HOST_DEVICES:
        name = _DEVICES.get(int(device), f"number {int(device)}")
        raise ArgumentError(
            f"{where}: the {type(value).__name__} is in the memory of device {name}; copy it to the host first"
        )
    try:
        return np.asarray(np.from_dlpack(value))
    except Exception as numpy_error:  # exceptions of producers are their own
        try:
            return _from_capsule(value.__dlpack__())
        except Exception as error:
            # DLPack has no types for integers of less than a byte, nor for all narrow floats; NumPy's protocol may.
            if hasattr(value, "__array__"):
                return np.asarray(value)
            raise ArgumentError(
                f"{where}: the {type(value).__name__} cannot be read through DLPack: {numpy_error}"
            ) from error


@final
class _Owner:
    """The array interface of a capsule's tensor; holds the capsule, whose destructor frees the tensor."""

    def __init__(self, capsule: object, interface: dict[str, Any]):
        self.capsule = capsule
        self.__array_interface__ = interface


def _from_capsule(capsule: object) -> np.ndarray[Any, Any]:
    get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    # The capsule is not renamed to "used_dltensor": it stays the owner, and frees the tensor when the array dies.
    tensor = _Tensor.from_address(get_pointer(capsule, b"dltensor"))
    key = (tensor.dtype.code, tensor.dtype.bits)
    if key not in _FLOATS or tensor.dtype.lanes != 1:
        raise TypeError(f"DLPack type code {key[0]} with {key[1]} bits and {tensor.dtype.lanes} lanes")
    itemsize = tensor.dtype.bits // 8
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] * itemsize for axis in range(tensor.ndim)) if tensor.strides else None
    dtype = np.dtype(getattr(ml_dtypes, _FLOATS[key]))
    if 0 in shape:
        return np.empty(shape, dtype)
    interface = {
        "version": 3,
        "shape": shape,
        "strides": strides,
        "typestr": f"|u{itemsize}" if itemsize == 1 else f"=u{itemsize}".replace("=", "<"),
        "data": ((tensor.data or 0) + tensor.byte_offset, False),
    }
    return np.asarray(_Owner(capsule, interface)).view(dtype)
