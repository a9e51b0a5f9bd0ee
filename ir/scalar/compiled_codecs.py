"""Codecs of formats without tables, applied to long arrays: compiled once, as for kernels, where Python would take seconds.

Three million numbers of 32 bits are three million calls of ``encode`` twice, and of ``decode`` once.  A function that cannot
be compiled, raises, or gives a code of too many bits is called in Python, which says what is wrong and for which number.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import numpy as np
from hlojit.ir.fingerprint import NotKeyable, fingerprint
from hlojit.ir.scalar.calls import code_bits, evaluated, plain_kind
from hlojit.ir.scalar.numpy_builder import DTYPE, NumpyBuilder, NumpyScalar

Array = np.ndarray[Any, Any]

MANY: Final = 1 << 15
"""From so many elements on compiling a function takes less than calling it."""
_AT_ONCE: Final = 1 << 20
"""Elements of one call: each has a limit of time."""
_KEPT: Final = 64

_applied: OrderedDict[tuple[str, tuple[str, ...], str], Callable[[Array], Array] | None] = OrderedDict()
"""By the function's content: it may read a global that changes."""


class CodecBuilder(NumpyBuilder):
    """Applies functions of one number to long arrays by compiled code."""

    def call(
        self,
        function: Callable[..., Any],
        kinds: tuple[str, ...],
        result_kind: str,
        arguments: tuple[NumpyScalar, ...],
        user: str,
    ) -> NumpyScalar:
        """See ``NumpyBuilder.call``."""
        if (
            len(arguments) == 1
            and arguments[0].array.size >= MANY
            and (code_bits(result_kind) or result_kind[0] == "f")
        ):
            array = arguments[0].array
            with suppress(Exception):  # whoever calls it in Python says what is wrong
                found = _by_compiled_code(function, kinds, result_kind, array.view(np.dtype(_dtype_name(kinds[0]))))
                if found is not None:
                    return NumpyScalar(plain_kind(result_kind), found.reshape(array.shape))
        return super().call(function, kinds, result_kind, arguments, user)


def _dtype_name(kind: str) -> str:
    """NumPy's name of a kind of arguments."""
    return f"{kind[0]}{int(kind[1:]) // 8}"


def _by_compiled_code(function: Callable[..., Any], kinds: tuple[str, ...], result: str, array: Array) -> Array | None:
    """Results of all elements; None where there is no compiled function, or one of its codes has too many bits."""
    bits = code_bits(result)
    applied = _compiled(function, kinds, "i64" if bits else result)
    if applied is None:
        return None
    flat = np.ascontiguousarray(array).ravel()
    found = np.empty(flat.size, DTYPE[plain_kind(result)])
    for first in range(0, flat.size, _AT_ONCE):
        part = applied(flat[first : first + _AT_ONCE])
        if bits and bits < 64 and (part.min() < 0 or part.max() >> bits):
            return None
        found[first : first + _AT_ONCE] = part  # codes of as many bits as their storage wrap to its sign
    return found


def _compiled(function: Callable[..., Any], kinds: tuple[str, ...], result: str) -> Callable[[Array], Array] | None:
    try:
        key = fingerprint(function), kinds, result
    except NotKeyable:
        return None
    if key not in _applied:
        made = None
        with suppress(Exception):
            made = evaluated(function, kinds, result)
        _applied[key] = made
        while len(_applied) > _KEPT:
            with suppress(KeyError):
                _applied.popitem(last=False)
        return made
    return _applied.get(key)
