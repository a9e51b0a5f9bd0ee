"""Functions of C libraries that are there already, through ctypes: libm's for elements, libc's for arrays."""

from __future__ import annotations

import ctypes
import ctypes.util
from typing import Any

import numpy as np
from hlojit.extensions import ArrayCall, CallTypes, ElementwiseCall

libm, libc = ctypes.CDLL(ctypes.util.find_library("m")), ctypes.CDLL(None)

bessel = libm.j0
bessel.argtypes, bessel.restype = [ctypes.c_double], ctypes.c_double


def swapped(pairs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What ``swab`` does, for back ends without native code."""
    return pairs.reshape(-1, 2)[:, ::-1].reshape(pairs.shape)


def octets_like(call: CallTypes) -> Any:
    """The result is like the operand; what the C function would misread is refused here, when the program is compiled."""
    (pairs,) = call.operands
    if pairs.element_type.name != "ui8" or pairs.size % 2:
        raise ValueError(f"an even number of ui8 is wanted, not {pairs}")
    return pairs


NATIVE_CALLS = [
    ElementwiseCall("kernels.bessel_j0", function=bessel),
    ArrayCall(
        "kernels.swap_bytes",
        function=libc.swab,
        trust="native",
        signature="operand0, result0, operand0.size",
        substitute=swapped,
        result_types=octets_like,
    ),
]
