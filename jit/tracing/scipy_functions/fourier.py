"""``scipy.fft`` on tracers: Fourier transforms as NumPy's, cosine and sine transforms by Fourier transforms."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.fourier import (
    FORWARD,
    FROM_REAL,
    INVERSE,
    TO_REAL,
    fitted,
    lengths_of,
    position,
    swapped,
    transformed,
)
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

RULES: dict[str, Callable[..., Any]] = {}
"""Rules of this module, by the function's name."""


def _refuse_plan(plan: Any) -> None:
    if plan is not None:
        raise NotImplementedError("Passing a precomputed plan is not yet supported by scipy.fft functions")


def _several(numbers: Any) -> Any:
    """Sizes or axes; SciPy takes one without brackets, too."""
    return (numbers,) if isinstance(numbers, (int, np.integer)) else numbers


def _along_one(kind: str, conjugated: str = "") -> Callable[..., Any]:
    def rule(
        ops: Operations, x: Any, n: Any = None, axis: int = -1, norm: Any = None, overwrite_x: bool = False,
        workers: Any = None, *, plan: Any = None,
    ) -> Any:  # fmt: skip
        _refuse_plan(plan)
        operand = ops.tracer(x)
        extent = operand.shape[position(axis, operand.ndim)]
        own = (extent - 1) * 2 if kind == TO_REAL else extent
        length = own if n is None else operator.index(n)
        return _conjugated(ops, operand, kind, [length], [axis], norm, conjugated)

    return rule


def _along_several(kind: str, default: Any, conjugated: str = "") -> Callable[..., Any]:
    def rule(
        ops: Operations, x: Any, s: Any = None, axes: Any = default, norm: Any = None, overwrite_x: bool = False,
        workers: Any = None, *, plan: Any = None,
    ) -> Any:  # fmt: skip
        _refuse_plan(plan)
        operand = ops.tracer(x)
        s, axes = _several(s), _several(axes)
        chosen = axes if axes is not None or s is None else range(-len(s), 0)
        lengths, positions = lengths_of(operand, s, chosen, kind)
        if len(set(positions)) < len(positions):
            raise ValueError("all axes must be unique")
        if not positions and kind in (FROM_REAL, TO_REAL):
            raise ValueError("at least 1 axis must be transformed")
        return _conjugated(ops, operand, kind, lengths, positions, norm, conjugated)

    return rule


def _conjugated(
    ops: Operations, operand: Any, kind: str, lengths: Sequence[int], axes: Sequence[int], norm: Any, conjugated: str
) -> Any:
    """A transform, or that of the ``operand`` or with the ``result`` conjugated: those of Hermitian symmetry."""
    if operand.dtype == np.float16:
        operand = operand.astype(np.float32)
    if not conjugated:
        return transformed(ops, operand, kind, lengths, axes, norm)
    given = np.conjugate(operand) if conjugated == "operand" and operand.dtype.kind == "c" else operand
    found = transformed(ops, given, kind, lengths, axes, swapped(norm))
    return np.conjugate(found) if conjugated == "result" else found


for _name, _kind, _sides in (
    ("fft", FORWARD, ""), ("ifft", INVERSE, ""), ("rfft", FROM_REAL, ""), ("irfft", TO_REAL, ""),
    ("hfft", TO_REAL, "operand"), ("ihfft", FROM_REAL, "result"),
):  # fmt: skip
    RULES[_name] = _along_one(_kind, _sides)
    RULES[f"{_name}n"] = _along_several(_kind, None, _sides)
    RULES[f"{_name}2"] = _along_several(_kind, (-2, -1), _sides)


RULES["fftshift"] = lambda ops, x, axes=None: np.fft.fftshift(ops.tracer(x), axes)
RULES["ifftshift"] = lambda ops, x, axes=None: np.fft.ifftshift(ops.tracer(x), axes)


# ------------------------------------------------------------------------------------- cosine and sine transforms


def _factors(angles: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> Any:
    """Numbers of the unit circle, in the complex dtype of a real one."""
    return np.exp(1j * angles).astype(np.result_type(dtype, np.complex64))


def _first(x: Any) -> Any:
    """By the transform of the even continuation."""
    if x.shape[-1] < 2:
        raise ValueError("DCT-I is not defined for size < 2")
    return np.fft.rfft(np.concatenate([x, np.flip(x[..., 1:-1], -1)], axis=-1)).real


def _second(x: Any) -> Any:
    """Even elements, and odd ones backwards behind them, make one transform of the same length (Makhoul, 1980)."""
    length = x.shape[-1]
    shuffled = np.concatenate([x[..., ::2], np.flip(x[..., 1::2], -1)], axis=-1)
    return 2 * (np.fft.fft(shuffled) * _factors(-np.arange(length) * math.pi / (2 * length), x.dtype)).real


def _third(x: Any) -> Any:
    """The inverse of the second one, times twice the length."""
    length = x.shape[-1]
    behind = np.concatenate([np.zeros_like(x[..., :1]), np.flip(x[..., 1:], -1)], axis=-1)
    angles = np.arange(length) * math.pi / (2 * length)
    spectrum = x * _factors(angles, x.dtype) + behind * _factors(angles - math.pi / 2, x.dtype)
    shuffled = length * np.fft.ifft(spectrum).real
    half = (length + 1) // 2
    even, odd = shuffled[..., :half], np.flip(shuffled[..., half:], -1)
    if length % 2:
        odd = np.concatenate([odd, np.zeros_like(odd[..., :1]) if odd.shape[-1] else np.zeros_like(even)], axis=-1)
    pairs = np.stack([even, odd], axis=-1)
    return pairs.reshape((*x.shape[:-1], 2 * half))[..., :length]


def _fourth(x: Any) -> Any:
    """A transform of twice the length, with half a step in front and behind."""
    length = x.shape[-1]
    turned = x * _factors(-np.arange(length) * math.pi / (2 * length), x.dtype)
    spectrum = np.fft.fft(turned, 2 * length)[..., :length]
    return 2 * (spectrum * _factors(-(2 * np.arange(length) + 1) * math.pi / (4 * length), x.dtype)).real


_COSINES: Final = {1: _first, 2: _second, 3: _third, 4: _fourth}


def _alternating(x: Any) -> Any:
    return x * (1 - 2 * (np.arange(x.shape[-1]) % 2)).astype(x.dtype)


def _first_sine(x: Any) -> Any:
    """By the transform of the odd continuation."""
    zero = np.zeros_like(x[..., :1])
    return -np.fft.rfft(np.concatenate([zero, x, zero, -np.flip(x, -1)], axis=-1)).imag[..., 1 : x.shape[-1] + 1]


_SINES: Final[dict[int, Callable[[Any], Any]]] = {
    1: _first_sine,
    2: lambda x: np.flip(_second(_alternating(x)), -1),
    3: lambda x: _alternating(_third(np.flip(x, -1))),
    4: lambda x: _alternating(_fourth(np.flip(x, -1))),
}
_INVERSE_TYPES: Final = {1: 1, 2: 3, 3: 2, 4: 4}


def _edges(length: int, places: Sequence[int], factor: float, dtype: np.dtype[Any]) -> Any:
    """Ones, with a factor at some places."""
    weights = np.ones(length, dtype)
    weights[list(places)] = factor
    return weights


def _orthogonal_places(is_sine: bool, kind: int) -> tuple[Sequence[int], Sequence[int]]:
    """Elements of the operand and of the result that an orthogonal transform has other factors for."""
    if is_sine:
        return {2: ((), (-1,)), 3: ((-1,), ())}.get(kind, ((), ()))
    return {1: ((0, -1), (0, -1)), 2: ((), (0,)), 3: ((0,), ())}.get(kind, ((), ()))


def _transform(is_sine: bool, kind: int, norm: str, orthogonalize: bool, x: Any) -> Any:
    """Along the last dimension; ``norm`` is that of the direction."""
    length = x.shape[-1]
    before, behind = _orthogonal_places(is_sine, kind) if orthogonalize else ((), ())
    if before:
        x = x * _edges(length, before, math.sqrt(2), x.dtype)
    found = (_SINES if is_sine else _COSINES)[kind](x)
    if behind:
        found = found * _edges(length, behind, math.sqrt(0.5), x.dtype)
    period = 2 * (length + (0 if kind != 1 else 1 if is_sine else -1))
    scale = {"backward": 1.0, "ortho": 1 / math.sqrt(period), "forward": 1 / period}[norm]
    return found if scale == 1 else found * x.dtype.type(scale)


def _prepared(ops: Operations, x: Any, kind: Any, norm: Any, is_inverse: bool) -> tuple[Any, int, str]:
    operand = ops.tracer(x)
    if operand.dtype.kind == "c":
        raise TracingError("cosine and sine transforms of complex numbers cannot be compiled yet; transform both parts")
    if kind not in _COSINES:
        raise ValueError(f"Invalid type specified: {kind}")
    direction = swapped(norm) if is_inverse else swapped(swapped(norm))
    narrow = operand.dtype.kind == "f" and operand.dtype.itemsize < 8
    return operand.astype(np.float32 if narrow else np.float64), _INVERSE_TYPES[kind] if is_inverse else kind, direction


def _trigonometric(is_sine: bool, is_inverse: bool, several: bool) -> Callable[..., Any]:
    def along(ops: Operations, operand: Any, lengths: Sequence[int], axes: Sequence[int], function: Any) -> Any:
        for length, axis in zip(lengths, axes):
            if length < 1:
                raise ValueError(f"invalid number of data points ({length}) specified")
            cut = fitted(ops, operand, [axis], [length])
            moved: Any = np.moveaxis(cut, axis, -1)  # type: ignore[type-var]
            operand = ops.tracer(np.moveaxis(function(moved), -1, axis))
        return operand

    def one(
        ops: Operations, x: Any, type: Any = 2, n: Any = None, axis: int = -1, norm: Any = None,
        overwrite_x: bool = False, workers: Any = None, orthogonalize: Any = None,
    ) -> Tracer:  # fmt: skip
        operand, kind, direction = _prepared(ops, x, type, norm, is_inverse)
        place = position(axis, operand.ndim)
        length = operand.shape[place] if n is None else operator.index(n)
        is_orthogonal = direction == "ortho" if orthogonalize is None else bool(orthogonalize)
        function = functools.partial(_transform, is_sine, kind, direction, is_orthogonal)
        return along(ops, operand, [length], [place], function)

    def many(
        ops: Operations, x: Any, type: Any = 2, s: Any = None, axes: Any = None, norm: Any = None,
        overwrite_x: bool = False, workers: Any = None, *, orthogonalize: Any = None,
    ) -> Tracer:  # fmt: skip
        operand, kind, direction = _prepared(ops, x, type, norm, is_inverse)
        s, axes = _several(s), _several(axes)
        chosen = axes if axes is not None or s is None else range(-len(s), 0)
        lengths, places = lengths_of(operand, s, chosen, FORWARD)
        is_orthogonal = direction == "ortho" if orthogonalize is None else bool(orthogonalize)
        function = functools.partial(_transform, is_sine, kind, direction, is_orthogonal)
        return along(ops, operand, lengths, places, function)

    return many if several else one


for _is_sine, _letter in ((False, "c"), (True, "s")):
    for _is_inverse, _front in ((False, ""), (True, "i")):
        RULES[f"{_front}d{_letter}t"] = _trigonometric(_is_sine, _is_inverse, several=False)
        RULES[f"{_front}d{_letter}tn"] = _trigonometric(_is_sine, _is_inverse, several=True)
