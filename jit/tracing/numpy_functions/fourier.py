"""``numpy.fft`` on tracers: what is transformed is cut or padded to its length, put last, and given to ``fft``.

Lengths are any; the precision is that of NumPy 2: f4 gives c8, integers c16, and irfft of c8 gives f4.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from hlojit.tracing.numpy_functions.rules import Rules, implements, refuse
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

RULES: Rules = {}
"""Rules of this module, by NumPy's function."""

FORWARD: Final = "FFT"
INVERSE: Final = "IFFT"
FROM_REAL: Final = "RFFT"
TO_REAL: Final = "IRFFT"
"""The kinds of ``fft``."""
_MOST_DIMENSIONS: Final = 3
"""Of one ``fft``."""
_SWAPPED: Final = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}
"""The norm of the opposite direction with the same factor."""


def position(axis: Any, rank: int) -> int:
    """An axis from 0; raises NumPy's error for one that the array does not have."""
    number = operator.index(axis)
    if not -rank <= number < rank:
        raise np.exceptions.AxisError(number, rank)
    return number % rank


def transformed(
    ops: Operations, operand: Any, kind: str, lengths: Sequence[int], axes: Sequence[int], norm: str | None
) -> Tracer:
    """The transform along ``axes`` to ``lengths``, which are the real side's of transforms from and to real numbers.

    The last axis is the one that is halved there; axes that repeat are transformed as often.
    """
    if norm not in _SWAPPED:
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    for length in lengths:
        if length < 1:
            raise ValueError(f"Invalid number of FFT data points ({length}) specified.")
    if not axes:
        return ops.tracer(operand)
    value = _in_its_precision(ops, operand, kind)
    positions = [position(axis, value.ndim) for axis in axes]
    if len(set(positions)) == len(positions) <= _MOST_DIMENSIONS:
        found = _at_once(ops, value, kind, lengths, positions, norm)
        # NumPy has complex numbers from f4 on, and real ones from f2 on.
        is_half = kind == TO_REAL and len(positions) == 1 and ops.tracer(operand).dtype == np.float16
        return found.astype(np.float16) if is_half else found
    steps = [(FORWARD if kind == FROM_REAL else INVERSE if kind == TO_REAL else kind)] * (len(positions) - 1) + [kind]
    order = range(len(positions)) if kind == TO_REAL else reversed(range(len(positions)))
    for number in order:
        value = _at_once(ops, value, steps[number], lengths[number : number + 1], positions[number : number + 1], norm)
    return value


def _at_once(
    ops: Operations, operand: Tracer, kind: str, lengths: Sequence[int], positions: list[int], norm: str | None
) -> Tracer:
    sizes = list(lengths)
    if kind == TO_REAL:
        sizes[-1] = lengths[-1] // 2 + 1
    last = list(range(operand.ndim - len(positions), operand.ndim))
    given: Any = fitted(ops, operand, positions, sizes)
    moved = ops.tracer(np.moveaxis(given, positions, last))
    attributes = {"fft_type": kind, "fft_length": tuple(lengths)}
    result: Any = ops.wrap(ops.builder.create("fft", [moved.value], attributes=attributes).result)
    scale = _scale(kind, math.prod(lengths), norm)
    if scale != 1:
        result = ops.tracer(result * _real_type(result.dtype).type(scale))
    return ops.tracer(np.moveaxis(result, last, positions))


def _scale(kind: str, count: int, norm: str | None) -> float:
    """What ``fft``, which divides inverse transforms by the number of elements, is multiplied by."""
    inverse = kind in (INVERSE, TO_REAL)
    if norm == "ortho":
        return math.sqrt(count) if inverse else 1 / math.sqrt(count)
    if norm == "forward":
        return count if inverse else 1 / count
    return 1


def _real_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.type(0).real.dtype


def _in_its_precision(ops: Operations, operand: Any, kind: str) -> Tracer:
    value = ops.tracer(operand)
    if kind == FROM_REAL:
        if value.dtype.kind == "c":
            raise TypeError(f"a transform of real numbers does not take {value.dtype}; use np.fft.fft")
        return value.astype(np.float32 if value.dtype.kind == "f" and value.dtype.itemsize < 8 else np.float64)
    return value.astype(np.result_type(value.dtype, 1j))


def fitted(ops: Operations, operand: Tracer, axes: Sequence[int], sizes: Sequence[int]) -> Tracer:
    """The array cut, or padded with zeros behind, to ``sizes`` along ``axes``."""
    wanted = list(operand.shape)
    for axis, size in zip(axes, sizes):
        wanted[axis] = size
    if tuple(wanted) == operand.shape:
        return operand
    if any(size < extent for size, extent in zip(wanted, operand.shape)):
        operand = operand[tuple(slice(min(size, extent)) for size, extent in zip(wanted, operand.shape))]
    more = tuple(size - extent for size, extent in zip(wanted, operand.shape))
    if not any(more):
        return operand
    nothing = (0,) * operand.ndim
    attributes = {"edge_padding_low": nothing, "edge_padding_high": more, "interior_padding": nothing}
    zero = ops.full(0, operand.dtype)
    return ops.wrap(ops.builder.create("pad", [operand.value, zero], attributes=attributes).result)


# ---------------------------------------------------------------------------------------------------- along one axis


def _length(operand: Tracer, n: Any, axis: int, kind: str) -> int:
    """The length that is asked for, or that of the operand."""
    if n is not None:
        return operator.index(n)
    extent = operand.shape[position(axis, operand.ndim)]
    return (extent - 1) * 2 if kind == TO_REAL else extent


def _along_one(name: str, kind: str) -> Callable[..., Any]:
    def rule(
        ops: Operations, a: Any, n: Any = None, axis: int = -1, norm: str | None = None, out: Any = None
    ) -> Tracer:
        refuse(f"fft.{name}", out=out)
        operand = ops.tracer(a)
        return transformed(ops, operand, kind, [_length(operand, n, axis, kind)], [axis], norm)

    return rule


RULES[np.fft.fft] = _along_one("fft", FORWARD)
RULES[np.fft.ifft] = _along_one("ifft", INVERSE)
RULES[np.fft.rfft] = _along_one("rfft", FROM_REAL)
RULES[np.fft.irfft] = _along_one("irfft", TO_REAL)


def swapped(norm: Any) -> Any:
    """The norm with which the opposite direction has the same factor."""
    if norm not in _SWAPPED:
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    return _SWAPPED[norm]


@implements(RULES, np.fft.hfft)
def hfft(ops: Operations, a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Tracer:
    refuse("fft.hfft", out=out)
    return ops.tracer(np.fft.irfft(np.conjugate(ops.tracer(a)), n, axis, norm=swapped(norm)))


@implements(RULES, np.fft.ihfft)
def ihfft(ops: Operations, a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Tracer:
    refuse("fft.ihfft", out=out)
    return ops.tracer(np.conjugate(np.fft.rfft(ops.tracer(a), n, axis, norm=swapped(norm))))


# ----------------------------------------------------------------------------------------------- along several axes


def lengths_of(operand: Tracer, s: Any, axes: Any, kind: str) -> tuple[list[int], list[int]]:
    """Lengths and axes as NumPy reads them: -1 is the operand's own length, no axes are as many last ones as lengths."""
    if axes is None:
        if s is not None:
            warnings.warn(
                "np.fft: `axes` should be given with `s` (deprecated in NumPy 2.0)", DeprecationWarning, stacklevel=2
            )
        axes = range(-len(operand.shape if s is None else s), 0)
    positions = [position(axis, operand.ndim) for axis in axes]
    if s is None:
        s = [operand.shape[axis] for axis in positions]
        if kind == TO_REAL and s:
            s[-1] = (s[-1] - 1) * 2
    if len(s) != len(positions):
        raise ValueError("Shape and axes have different lengths.")
    own = [operand.shape[axis] for axis in positions]
    given = [None if each is None else operator.index(each) for each in s]
    lengths = [length if each in (-1, None) else each for each, length in zip(given, own)]
    if kind == TO_REAL and given and given[-1] is None:
        lengths[-1] = (own[-1] - 1) * 2
    return [each for each in lengths if each is not None], positions


def _along_several(name: str, kind: str, default: tuple[int, ...] | None) -> Callable[..., Any]:
    def rule(
        ops: Operations, a: Any, s: Any = None, axes: Any = default, norm: str | None = None, out: Any = None
    ) -> Tracer:
        refuse(f"fft.{name}", out=out)
        operand = ops.tracer(a)
        lengths, positions = lengths_of(operand, s, axes, kind)
        if not positions and kind in (FROM_REAL, TO_REAL):
            raise IndexError(f"np.fft.{name} needs an axis")
        return transformed(ops, operand, kind, lengths, positions, norm)

    return rule


RULES[np.fft.fftn] = _along_several("fftn", FORWARD, None)
RULES[np.fft.ifftn] = _along_several("ifftn", INVERSE, None)
RULES[np.fft.rfftn] = _along_several("rfftn", FROM_REAL, None)
RULES[np.fft.irfftn] = _along_several("irfftn", TO_REAL, None)
RULES[np.fft.fft2] = _along_several("fft2", FORWARD, (-2, -1))
RULES[np.fft.ifft2] = _along_several("ifft2", INVERSE, (-2, -1))
RULES[np.fft.rfft2] = _along_several("rfft2", FROM_REAL, (-2, -1))
RULES[np.fft.irfft2] = _along_several("irfft2", TO_REAL, (-2, -1))


# -------------------------------------------------------------------------------------------------------- in order


def _shifted(ops: Operations, x: Any, axes: Any, sign: int) -> Tracer:
    operand = ops.tracer(x)
    chosen = range(operand.ndim) if axes is None else (axes,) if isinstance(axes, (int, np.integer)) else axes
    positions = tuple(position(axis, operand.ndim) for axis in chosen)
    # Half of the length, rounded down forwards and up backwards, so that one undoes the other.
    shifts = tuple(sign * (operand.shape[axis] // 2) for axis in positions)
    return ops.tracer(np.roll(operand, shifts, positions))


@implements(RULES, np.fft.fftshift)
def fftshift(ops: Operations, x: Any, axes: Any = None) -> Tracer:
    return _shifted(ops, x, axes, 1)


@implements(RULES, np.fft.ifftshift)
def ifftshift(ops: Operations, x: Any, axes: Any = None) -> Tracer:
    return _shifted(ops, x, axes, -1)
