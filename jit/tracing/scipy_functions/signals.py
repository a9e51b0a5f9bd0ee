"""``scipy.signal``'s convolutions and correlations, ``hilbert`` and ``detrend`` on tracers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.convolutions import convolved, convolved_by_transforms
from hlojit.tracing.numpy_functions.fourier import position
from hlojit.tracing.numpy_functions.lapack_routines import whole_number
from hlojit.tracing.operations import Operations

RULES: dict[str, Callable[..., Any]] = {}
"""Rules of this module, by the function's name."""


def _rule(rule: Callable[..., Any]) -> Callable[..., Any]:
    RULES[rule.__name__] = rule
    return rule


def _centred(array: Any, shape: Sequence[int], starts: Sequence[int] | None = None) -> Any:
    """The middle of an array, or what begins at ``starts``."""
    begin = [(have - want) // 2 for have, want in zip(array.shape, shape)] if starts is None else starts
    return array[tuple(slice(first, first + extent) for first, extent in zip(begin, shape))]


def _swap_needed(mode: str, first: Sequence[int], second: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether a valid convolution is one of the second array by the first; raises where it is neither."""
    if mode not in ("full", "same", "valid"):
        raise ValueError("acceptable mode flags are 'valid', 'same', or 'full'")
    if mode != "valid" or all(first[axis] >= second[axis] for axis in axes):
        return False
    if all(second[axis] >= first[axis] for axis in axes):
        return True
    raise ValueError("For 'valid' mode, one must be at least as large as the other in every dimension")


def _cut(found: Any, mode: str, first: Sequence[int], second: Sequence[int], axes: Sequence[int]) -> Any:
    """The part of a whole convolution that a mode asks for."""
    if mode == "full":
        return found
    if mode == "same":
        return _centred(found, [first[axis] if axis in axes else n for axis, n in enumerate(found.shape)])
    extents = [first[axis] - second[axis] + 1 if axis in axes else n for axis, n in enumerate(found.shape)]
    return _centred(found, extents)


def _reversed(operand: Any) -> Any:
    flipped = np.flip(operand)
    return np.conjugate(flipped) if operand.dtype.kind == "c" else flipped


# ------------------------------------------------------------------------------------------------------ convolutions


@_rule
def convolve(ops: Operations, in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    """SciPy's own estimate says which method is the faster one; integers are always summed."""
    volume: Any = ops.tracer(in1)
    kernel: Any = ops.tracer(in2)
    if volume.ndim != kernel.ndim:
        raise ValueError("volume and kernel should have the same dimensionality")
    if volume.ndim == 0:
        return volume * kernel
    axes = range(volume.ndim)
    if _swap_needed(mode, volume.shape, kernel.shape, axes):
        volume, kernel = kernel, volume
    kind = np.result_type(volume.dtype, kernel.dtype)
    if method == "auto":
        method = _faster_method(volume, kernel, mode)
    if method not in ("direct", "fft"):
        raise ValueError("Acceptable method flags are 'auto', 'direct', or 'fft'.")
    if method == "fft" and kind.kind in "fc":
        return fftconvolve(ops, volume, kernel, mode).astype(kind)
    return _cut(convolved(ops, volume, kernel), mode, volume.shape, kernel.shape, axes)


def _faster_method(volume: Any, kernel: Any, mode: str) -> str:
    from scipy.signal import choose_conv_method

    stand_ins = [np.broadcast_to(np.zeros((), each.dtype), each.shape) for each in (volume, kernel)]
    return str(choose_conv_method(*stand_ins, mode=mode))


@_rule
def fftconvolve(ops: Operations, in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    volume: Any = ops.tracer(in1)
    kernel: Any = ops.tracer(in2)
    if volume.ndim != kernel.ndim:
        raise ValueError("in1 and in2 should have the same dimensionality")
    if volume.ndim == 0:
        return volume * kernel
    if not volume.size or not kernel.size:
        return ops.wrap(ops.full(0, np.dtype(np.float64), (0,)))
    given = range(volume.ndim) if axes is None else (axes,) if isinstance(axes, (int, np.integer)) else axes
    chosen = sorted({position(axis, volume.ndim) for axis in given})
    if axes is not None and not chosen:
        raise ValueError("when provided, axes cannot be empty")
    chosen = [axis for axis in chosen if volume.shape[axis] != 1 and kernel.shape[axis] != 1]
    rest = [axis for axis in range(volume.ndim) if axis not in chosen]
    if any(1 not in (a := {volume.shape[axis], kernel.shape[axis]}) and len(a) > 1 for axis in rest):
        raise ValueError(f"incompatible shapes for in1 and in2: {volume.shape} and {kernel.shape}")
    if _swap_needed(mode, volume.shape, kernel.shape, chosen):
        volume, kernel = kernel, volume
    first, second = (each if each.dtype.kind in "fc" else each.astype(np.float64) for each in (volume, kernel))
    found = convolved_by_transforms(ops, first, second, chosen)
    if mode == "same":
        return _centred(found, volume.shape)
    return _cut(found, mode, volume.shape, kernel.shape, chosen)


RULES["oaconvolve"] = fftconvolve


@_rule
def correlate(ops: Operations, in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    kernel: Any = ops.tracer(in2)
    if ops.tracer(in1).ndim != kernel.ndim:
        raise ValueError("in1 and in2 should have the same dimensionality")
    return convolve(ops, in1, _reversed(kernel), mode, method)


# ------------------------------------------------------------------------------------------------- of two dimensions


def _surrounded(ops: Operations, image: Any, widths: Sequence[int], boundary: str, fill: Any) -> Any:
    """An image with what is around it, so many elements on each side."""
    if boundary in ("fill", "pad"):
        value = ops.full(fill, image.dtype)
        attributes = {"edge_padding_low": tuple(widths), "edge_padding_high": tuple(widths), "interior_padding": (0, 0)}
        return ops.wrap(ops.builder.create("pad", [image.value, value], attributes=attributes).result)
    for axis, width in enumerate(widths):
        extent = image.shape[axis]
        places = np.arange(-width, extent + width)
        if boundary in ("wrap", "circular"):
            places = places % extent
        elif boundary in ("symm", "symmetric"):
            places = places % (2 * extent)
            places = np.where(places < extent, places, 2 * extent - 1 - places)
        else:
            raise ValueError(
                "Acceptable boundary flags are 'fill', 'circular' (or 'wrap'), and 'symmetric' (or 'symm')."
            )
        image = np.take(image, places, axis=axis)
    return image


def _of_images(ops: Operations, in1: Any, in2: Any, mode: str, boundary: str, fill: Any, correlates: bool) -> Any:
    image: Any = ops.tracer(in1)
    window: Any = ops.tracer(in2)
    if not image.ndim == window.ndim == 2:
        raise ValueError(f"{'correlate' if correlates else 'convolve'}2d inputs must both be 2-D arrays")
    swapped = _swap_needed(mode, image.shape, window.shape, (0, 1))
    if swapped:
        image, window = window, image
    kind = np.result_type(image.dtype, window.dtype)
    if correlates:
        window = np.conjugate(window) if window.dtype.kind == "c" else window
        window = np.flip(window)
    extents = window.shape
    around = _surrounded(ops, image.astype(kind), [extent - 1 for extent in extents], boundary, fill)
    full = _cut(convolved(ops, ops.tracer(around), window.astype(kind)), "valid", around.shape, extents, (0, 1))
    if mode == "same":
        # A window of even size has its centre on the other side where it is reversed.
        starts = [extent // 2 if correlates else (extent - 1) // 2 for extent in extents]
        return _centred(full, image.shape, starts)
    found = _cut(full, mode, image.shape, extents, (0, 1))
    return _reversed(found) if swapped and correlates else found


@_rule
def convolve2d(
    ops: Operations, in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0
) -> Any:
    return _of_images(ops, in1, in2, mode, boundary, fillvalue, correlates=False)


@_rule
def correlate2d(
    ops: Operations, in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0
) -> Any:
    return _of_images(ops, in1, in2, mode, boundary, fillvalue, correlates=True)


# -------------------------------------------------------------------------------------------------------- along an axis


@_rule
def hilbert(ops: Operations, x: Any, N: Any = None, axis: int = -1) -> Any:
    """The analytic signal: without the spectrum's negative half."""
    operand: Any = ops.tracer(x)
    if operand.dtype.kind == "c":
        raise ValueError("x must be real.")
    place = position(axis, operand.ndim)
    length = operand.shape[place] if N is None else whole_number(N, "N must be a whole number")
    if length <= 0:
        raise ValueError("N must be positive.")
    spectrum: Any = np.moveaxis(np.fft.fft(operand, length, axis=place), place, -1)
    weights = np.zeros(length, spectrum.real.dtype)
    weights[0] = 1
    weights[1 : (length + 1) // 2] = 2
    if length % 2 == 0:
        weights[length // 2] = 1
    return np.moveaxis(np.fft.ifft(spectrum * weights), -1, place)


@_rule
def detrend(
    ops: Operations, data: Any, axis: int = -1, type: str = "linear", bp: Any = 0, overwrite_data: bool = False
) -> Any:
    """Lines are fitted by matrices that the length alone says."""
    if type not in ("linear", "l", "constant", "c"):
        raise ValueError("Trend type must be 'linear' or 'constant'.")
    operand: Any = ops.tracer(data)
    if type in ("constant", "c"):
        return operand - np.mean(operand, axis=axis, keepdims=True)
    kind = operand.dtype if operand.dtype.char in "dfDF" else np.dtype(np.float64)
    values: Any = np.moveaxis(operand.astype(kind), axis, -1)
    length = values.shape[-1]
    try:
        breaks = np.unique(np.concatenate([[0], np.atleast_1d(np.asarray(bp, int)), [length]])).tolist()
    except (TypeError, ValueError) as error:
        raise TracingError("scipy.signal.detrend: bp= must be whole numbers that are known") from error
    if breaks[-1] > length:
        raise ValueError("Breakpoints must be less than length of data along given axis.")
    parts = []
    for first, last in zip(breaks, breaks[1:]):
        count = last - first
        lines = np.stack([np.arange(1, count + 1) / count, np.ones(count)], axis=1)
        part = values[..., first:last]
        fitted = (part @ np.linalg.pinv(lines).T.astype(kind)) @ lines.T.astype(kind)
        parts.append(part - fitted)
    return np.moveaxis(np.concatenate(parts, axis=-1), -1, axis)
