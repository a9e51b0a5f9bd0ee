"""SciPy's LAPACK and BLAS: addresses of their functions, and how much scratch memory a call wants.

The functions are C functions whose parameters are all pointers (``scipy.linalg.cython_lapack``), which need neither the GIL
nor Python.  SciPy is imported when the first is asked for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from hlojit.ir.errors import HlojitError

QUERY_BYTES: Final = 64
"""Of the memory that a query may write, for each parameter."""


@cache
def _capsules() -> Mapping[str, Any]:
    from scipy.linalg import cython_blas, cython_lapack

    return {**cython_blas.__pyx_capi__, **cython_lapack.__pyx_capi__}


@cache
def address(function: str) -> int:
    """The address of a function such as ``dgesdd``; raises ``HlojitError`` where SciPy has none that takes 32-bit integers."""
    capsule = _capsules().get(function)
    if capsule is None:
        raise HlojitError(f"this SciPy's LAPACK has no {function}")
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    name: bytes = name_of(capsule)
    if b" int *" not in name:
        raise HlojitError(f"this SciPy's LAPACK has integers of 64 bits: {function} is {name.decode()}")
    found: int = pointer_of(capsule, name)
    return found


def query(function: str, parameters: Sequence[bytes]) -> list[bytes]:
    """Call a function with a copy of each parameter's memory, given by its first bytes, and return what is there then.

    For queries only: nothing but the first ``QUERY_BYTES`` of each may be written.
    """
    memories = [ctypes.create_string_buffer(content.ljust(QUERY_BYTES, b"\0"), QUERY_BYTES) for content in parameters]
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(memories))(address(function))
    call(*map(ctypes.addressof, memories))
    return [memory.raw for memory in memories]
