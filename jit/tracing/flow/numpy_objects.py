"""NumPy's objects that compute when indexed or called: ``np.r_``, ``np.c_``, ``np.mgrid``, ``np.ogrid``, ``np.vectorize``."""

from __future__ import annotations

import functools
from typing import Any, Final, final

import numpy as np
from hlojit.tracing import control_flow
from hlojit.tracing.errors import TracingError
from hlojit.tracing.flow.arrays import holds_tracers
from hlojit.tracing.numpy_functions.numpy_source import own_source
from hlojit.tracing.operations import Operations
from hlojit.tracing.rewriting import substitute

_BY_BRACKETS: Final = (type(np.r_), type(np.c_), type(np.mgrid), type(np.ogrid))
_WIDE: Final = (np.dtype(bool), np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.complex128))
"""Types whose elements are Python's numbers."""


def stand_in(ops: Operations, thing: Any) -> Any:
    """What is indexed or called in its place; None for everything else."""
    if isinstance(thing, _BY_BRACKETS):
        return _ByBrackets(thing)
    return functools.partial(_vectorized, ops, thing) if type(thing) is np.vectorize else None


@final
class _ByBrackets:
    """Indexed by NumPy's own source, rewritten."""

    def __init__(self, thing: Any):
        self._thing = thing

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        bounds = [bound for part in parts if isinstance(part, slice) for bound in (part.start, part.stop, part.step)]
        if not holds_tracers(*parts, *bounds):
            return self._thing[key]
        if isinstance(parts[0], str) and parts[0] in ("r", "c"):
            raise TracingError(f"np.r_[{parts[0]!r}, ...] makes an np.matrix: use np.vstack or np.column_stack")
        source: Any = own_source(type(self._thing).__getitem__)
        return source(self._thing, key)


def _vectorized(ops: Operations, thing: np.vectorize, *arguments: Any, **named: Any) -> Any:
    """One element after another, each as Python's number, as NumPy does; the types of the results are those that are written."""
    if not holds_tracers(*arguments, *named.values()):
        return thing(*arguments, **named)
    if thing.signature is not None or thing.excluded or named:
        raise TracingError(
            "np.vectorize with signature=, excluded= or named arguments, of traced arrays: write the loop, or use hlojit.vmap"
        )
    operands = [ops.tracer(each) for each in arguments]
    types = list(thing.otypes or "")
    if not types and any(each.dtype not in _WIDE for each in operands):
        raise TracingError(
            "np.vectorize of elements narrower than Python's numbers: NumPy takes the type of what the function makes of the "
            "first one; write otypes=[...]"
        )
    shape = np.broadcast_shapes(*(each.shape for each in operands))
    if not types and 0 in shape:
        raise ValueError("cannot call `vectorize` on size 0 inputs unless `otypes` is set")
    function = substitute(thing.pyfunc)

    def of_one(elements: Any) -> Any:
        return function(*map(ops.python_number, map(ops.tracer, elements)))

    rows = tuple(np.broadcast_to(each, shape).ravel() for each in operands)
    before = ops.widened
    made = control_flow.map(of_one, rows)
    if not types and ops.widened != before:
        raise TracingError(
            "np.vectorize of a function that returns, or computes with, an integer on one path and a float on another: NumPy "
            "takes the type of the first element's result for all; write otypes=[...]"
        )
    several = isinstance(made, tuple)
    results = [ops.wrap(ops.value(each.reshape(shape))) for each in (made if several else (made,))]
    if types and len(types) != len(results):
        raise ValueError("number of outputs is not that of otypes")
    cast = [_cast(each, np.dtype(kind)) for each, kind in zip(results, types)] if types else results
    return tuple(cast) if several else cast[0]


def _cast(made: Any, kind: np.dtype[Any]) -> Any:
    """In the type that ``otypes`` says: NumPy makes it of Python's numbers, and raises where they do not fit."""
    fits = made.dtype == kind or kind.kind in "bc" or (kind.kind == "f" and made.dtype.kind != "c")
    if not fits and not (kind == np.int64 and made.dtype.kind == "b"):
        raise TracingError(
            f"np.vectorize with otypes=[{kind}] of a function that returns {made.dtype}: convert what it makes"
        )
    return made.astype(kind)
