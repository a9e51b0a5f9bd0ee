"""A handler of XLA's foreign function interface, in Python, over the structures of ``xla/ffi/api/c_api.h``.

``kernels.smooth`` is exponential smoothing along the last dimension: y[t] = decay * y[t - 1] + (1 - decay) * x[t].  A handler
that is compiled with XLA's headers is registered in the same way, as a function of ctypes or the PyCapsule that JAX takes.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from hlojit.extensions import ForeignCall, foreign_handler

F32, F64 = 11, 12
"""Element types as the interface numbers them."""


def structure(name: str, *fields: tuple[str, Any]) -> type[ctypes.Structure]:
    """A structure of the interface, which begins with its size and extensions."""
    head = [("struct_size", ctypes.c_size_t), ("extension", ctypes.c_void_p)]
    return type(name, (ctypes.Structure,), {"_fields_": [*head, *fields]})


POINTERS = ctypes.POINTER(ctypes.c_void_p)
Buffers = structure("Buffers", ("size", ctypes.c_int64), ("types", ctypes.c_void_p), ("items", POINTERS))
Attributes = structure(
    "Attributes", ("size", ctypes.c_int64), ("types", ctypes.c_void_p), ("names", POINTERS), ("items", POINTERS)
)
Frame = structure(
    "Frame",
    ("api", ctypes.c_void_p),
    ("context", ctypes.c_void_p),
    ("stage", ctypes.c_int64),
    ("arguments", Buffers),
    ("results", Buffers),
    ("attributes", Attributes),
)
Buffer = structure(
    "Buffer",
    ("dtype", ctypes.c_int64),
    ("data", ctypes.c_void_p),
    ("rank", ctypes.c_int64),
    ("dims", ctypes.POINTER(ctypes.c_int64)),
)


class Name(ctypes.Structure):
    """A text of the interface."""

    _fields_ = (("text", ctypes.c_void_p), ("size", ctypes.c_size_t))


class Number(ctypes.Structure):
    """An attribute that is a number."""

    _fields_ = (("dtype", ctypes.c_int64), ("value", ctypes.POINTER(ctypes.c_double)))


def array(address: int) -> np.ndarray[Any, Any]:
    """The elements of a buffer, where they lie."""
    buffer: Any = Buffer.from_address(address)
    if buffer.dtype != F32:
        raise TypeError("kernels.smooth is for f32")
    shape = buffer.dims[: buffer.rank]
    floats = ctypes.c_float * int(np.prod(shape))
    return np.frombuffer(floats.from_address(buffer.data), "f4").reshape(shape)


def attribute(frame: Any, wanted: bytes) -> float:
    """An attribute of type f64."""
    attributes = frame.attributes
    for place in range(attributes.size):
        name = Name.from_address(attributes.names[place])
        if ctypes.string_at(name.text, name.size) == wanted:
            number = Number.from_address(attributes.items[place])
            if number.dtype & 0xFFFFFFFF != F64:
                raise TypeError(f"{wanted.decode()} is of type f64")
            return float(number.value[0])
    raise ValueError(f"kernels.smooth needs an attribute {wanted.decode()}")


def smoothed(x: np.ndarray[Any, Any], decay: float) -> np.ndarray[Any, Any]:
    """The function, of arrays; also what back ends without native calls run."""
    result, last = np.empty_like(x), np.zeros(x.shape[:-1], "f4")
    with np.errstate(invalid="ignore"):
        for step in range(x.shape[-1]):
            last = (np.float32(decay) * last + np.float32(1 - decay) * x[..., step]).astype("f4")
            result[..., step] = last
    return result


@foreign_handler
def smooth(frame: int) -> None:
    """Read the frame; what is raised here ends the call with an error that names the target."""
    call: Any = Frame.from_address(frame)
    x, result = array(call.arguments.items[0]), array(call.results.items[0])
    result[...] = smoothed(x, attribute(call, b"decay"))


SMOOTH = ForeignCall(
    "kernels.smooth",
    handler=smooth,
    substitute=smoothed,
    asks_version=False,
    result_types=lambda call: call.operands[0],
)
