"""Exact results of JAX's harnesses, from their own inputs, with which neither hlojit nor JAX has to do.

* Elementwise functions: mpmath, element by element.
* Sums of products: the inputs are cut into slices of so few bits that all products and sums of slices are exact in f64
  (Ozaki, Ogita, Oishi and Rump, 2012), and what JAX computes of slices is added in extended precision.
* Products and logarithms of sums, transforms: NumPy and SciPy in extended precision.

An oracle gives numbers of NumPy's ``longdouble`` (64 bits) or pairs of them; its error is far below a unit of f64.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import mpmath
import numpy as np
from mpmath import mpc, mpf

from tools.conformance.comparison import same

Array = np.ndarray[Any, Any]
DIGITS: Final = 60
SLICE_BITS: Final = 18
"""Products of two slices have 36 bits: 2^17 of them are summed exactly."""
SLICES: Final = 4


def _sign(z: Any) -> Any:
    return z / abs(z) if z else z


def _incomplete_gamma(a: Any, x: Any) -> Any:
    """The lower function over the whole one, by its series."""
    if a <= 0 or x < 0:
        return mpmath.nan
    return x**a * mpmath.exp(-x) * mpmath.hyp1f1(1, a + 1, x) / mpmath.gamma(a + 1)


def _incomplete_beta(a: Any, b: Any, x: Any) -> Any:
    if a <= 0 or b <= 0 or not 0 <= x <= 1:
        return mpmath.nan
    return mpmath.betainc(a, b, 0, x, regularized=True)


ELEMENTWISE: Final[dict[str, Callable[..., Any]]] = {
    **{name: getattr(mpmath, name) for name in ("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos")},
    **{name: getattr(mpmath, name) for name in ("cosh", "erf", "erfc", "exp", "expm1", "log", "sin", "sinh", "sqrt")},
    **{name: getattr(mpmath, name) for name in ("tan", "tanh")},
    "abs": abs,
    "add_any": lambda x, y: x + y,
    "bessel_i0e": lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)),
    "bessel_i1e": lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "digamma": lambda x: mpmath.psi(0, x),
    "div": lambda x, y: x / y,
    "erf_inv": mpmath.erfinv,
    "exp2": lambda x: mpf(2) ** x,
    "igamma": _incomplete_gamma,
    "igammac": lambda a, x: 1 - _incomplete_gamma(a, x),
    "lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))),
    "log1p": lambda x: mpmath.log(1 + x),
    "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
    "mul": lambda x, y: x * y,
    "pow": lambda x, y: x**y,
    "regularized_incomplete_beta": _incomplete_beta,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sign": _sign,
}
"""By group: the function of mpmath's numbers."""
BILINEAR: Final = frozenset({"dot_general", "conv_general_dilated"})
LINEAR: Final = frozenset({"cumsum", "reduce_sum"})


def exact(harness: Any, arguments: Sequence[Any], inputs: Sequence[Array]) -> Array | None:
    """The result of a harness with one result, or None where there is no oracle for it."""
    group = harness.group_name
    if not inputs:
        return None
    if group == "integer_pow":
        return _elementwise(lambda x: x ** int(harness.params["y"]), inputs)
    if group in ELEMENTWISE:
        return _elementwise(ELEMENTWISE[group], inputs)
    if group in BILINEAR:
        return _bilinear(harness.dyn_fun, arguments)
    if group in LINEAR:
        return _added([(_run(harness.dyn_fun, [part]), 1) for part in _slices(inputs[0])])
    return _OTHERS[group](harness, inputs) if group in _OTHERS else None


def _number(value: Any) -> Any:
    if np.iscomplexobj(value):
        return mpc(float(value.real), float(value.imag))
    return mpf(float(value))


def _elementwise(function: Callable[..., Any], inputs: Sequence[Array]) -> Array:
    """Values of a function; NaN where it has none, or an input is not finite."""
    arrays = np.broadcast_arrays(*inputs)
    found = []
    with mpmath.workdps(DIGITS):
        for values in zip(*(array.ravel() for array in arrays), strict=True):
            try:
                finite = all(np.isfinite(np.complex128(value)) for value in values)
                found.append(function(*map(_number, values)) if finite else mpmath.nan)
            except (ZeroDivisionError, ValueError, mpmath.mp.NoConvergence):
                found.append(mpmath.nan)
        complex_result = any(np.iscomplexobj(array) for array in arrays) and any(
            isinstance(each, mpc) for each in found
        )
        numbers = [_wide(each, complex_result) for each in found]
    kind = np.clongdouble if complex_result else np.longdouble
    return np.array(numbers, kind).reshape(arrays[0].shape)


def _wide(value: Any, complex_result: bool) -> Any:
    if complex_result:
        return np.clongdouble(complex(0, 1)) * _real(mpc(value).imag) + _real(mpc(value).real)
    return np.longdouble("nan") if isinstance(value, mpc) and value.imag else _real(mpc(value).real)


def _real(value: Any) -> Any:
    """A number of mpmath's in extended precision: the sum of its leading parts."""
    high = np.float64(float(value))
    if not np.isfinite(high) or not mpmath.isfinite(value):
        return np.longdouble(high)
    return np.longdouble(high) + np.longdouble(float(value - mpf(float(high))))


def _slices(array: Array) -> list[Array]:
    """The array as a sum of arrays whose elements are multiples of one unit each, with ``SLICE_BITS`` bits."""
    if np.iscomplexobj(array):
        real, imag = _slices(array.real), _slices(array.imag)
        return real + [1j * part for part in imag]
    if array.dtype.kind in "biu":
        return [array.astype(np.float64)]
    rest = array.astype(np.float64)
    largest = float(np.abs(rest).max(initial=0.0))
    unit = 2.0 ** (np.frexp(largest)[1] - SLICE_BITS)
    parts = []
    for _ in range(SLICES):
        parts.append(np.rint(rest / unit) * unit)
        rest = rest - parts[-1]
        unit /= 2.0**SLICE_BITS
    return parts


def _run(function: Callable[..., Any], arguments: Sequence[Any]) -> Array:
    import jax

    return np.asarray(jax.jit(function)(*arguments))


def _added(terms: Sequence[tuple[Array, complex]]) -> Array:
    """The sum of terms of decreasing size times units (1, 1j, -1), in extended precision."""
    wide = np.clongdouble if any(np.iscomplexobj(term) or np.iscomplex(unit) for term, unit in terms) else np.longdouble
    total = np.zeros(terms[0][0].shape, wide)
    for term, unit in reversed(terms):
        total = total + term.astype(wide) * wide(unit)
    return total


def _bilinear(function: Callable[..., Any], arguments: Sequence[Any]) -> Array | None:
    """A product of two arrays: slices by slices, which are real; results of another type than the arguments' have no oracle."""
    left, right = (_real_slices(np.asarray(each)) for each in arguments[:2])
    terms = []
    for (one, first), (other, second) in itertools.product(left, right):
        try:
            part = _run(function, [one, other, *arguments[2:]])
        except TypeError:  # the harness asks for a type of results that is narrower than f64
            return None
        if part.dtype != np.float64:
            return None
        terms.append((part, first * second))
    return _added(terms)


def _real_slices(array: Array) -> list[tuple[Array, complex]]:
    if not np.iscomplexobj(array):
        return [(part, 1) for part in _slices(array)]
    return [(part, 1) for part in _slices(array.real)] + [(part, 1j) for part in _slices(array.imag)]


def _extended(array: Array) -> Array:
    wide: Array = array.astype(np.clongdouble if np.iscomplexobj(array) else np.longdouble)
    return wide


def _along(function: Callable[..., Any]) -> Callable[[Any, Sequence[Array]], Array]:
    """A cumulative function along the harness's axis."""

    def run(harness: Any, inputs: Sequence[Array]) -> Array:
        axis, array = harness.params["axis"], _extended(inputs[0])
        turned = np.flip(array, axis) if harness.params["reverse"] else array
        result: Array = function(turned, axis)
        return np.flip(result, axis) if harness.params["reverse"] else result

    return run


def _windows(function: Callable[..., Any]) -> Callable[[Any, Sequence[Array]], Array | None]:
    """A function of windows without padding and dilation; others move the same sums."""

    def run(harness: Any, inputs: Sequence[Array]) -> Array | None:
        given = harness.params
        plain = all(set(given[name]) == {1} for name in ("base_dilation", "window_dilation", "window_strides"))
        if not plain or isinstance(given["padding"], str) or any(any(each) for each in given["padding"]):
            return None
        windows = np.lib.stride_tricks.sliding_window_view(_extended(inputs[0]), given["window_dimensions"])
        axes = tuple(range(inputs[0].ndim, 2 * inputs[0].ndim))
        return np.asarray(function(windows, axes, np.asarray(given["init_value"]).astype(windows.dtype)))

    return run


def _transform(harness: Any, inputs: Sequence[Array]) -> Array:
    import scipy.fft

    lengths, kind = harness.params["fft_lengths"], int(harness.params["fft_type"])
    axes = tuple(range(-len(lengths), 0))
    function = (scipy.fft.fftn, scipy.fft.ifftn, scipy.fft.rfftn, scipy.fft.irfftn)[kind]
    return np.asarray(function(_extended(inputs[0]), s=lengths, axes=axes))


def _triangular_solution(harness: Any, inputs: Sequence[Array]) -> Array | None:
    """Of matrices of short floats, in f64."""
    import scipy.linalg

    given, (a, b) = harness.params, inputs
    if a.ndim != 2 or np.iscomplexobj(a) or a.dtype.itemsize > 2 or not given["left_side"]:
        return None
    options = {"lower": given["lower"], "trans": int(given["tranpose_a"]), "unit_diagonal": given["unit_diagonal"]}
    return _extended(scipy.linalg.solve_triangular(a.astype(np.float64), b.astype(np.float64), **options))


def _scattered_product(harness: Any, inputs: Sequence[Array]) -> Array | None:
    """Of single elements of a line, each multiplied at most once: the others are multiplied by 1."""
    (operand, updates), numbers = inputs, harness.params["dimension_numbers"]
    places = np.ravel(harness.params["scatter_indices"])
    if operand.ndim != 1 or numbers.update_window_dims or updates.shape != places.shape:
        return None
    if np.unique(places).size < places.size or not np.all((places >= 0) & (places < operand.size)):
        return None
    factors = np.ones(operand.shape, updates.dtype)
    factors[places] = updates
    return _elementwise(lambda x, y: x * y, [operand, factors])


_OTHERS: Final[dict[str, Callable[[Any, Sequence[Array]], Array | None]]] = {
    "cumlogsumexp": _along(np.logaddexp.accumulate),
    "cumprod": _along(np.cumprod),
    "fft": _transform,
    "reduce_prod": lambda harness, inputs: np.prod(_extended(inputs[0]), axis=tuple(harness.params["axes"])),
    "reduce_window_add": _windows(lambda windows, axes, initial: windows.sum(axes) + initial),
    "reduce_window_mul": _windows(lambda windows, axes, initial: windows.prod(axes) * initial),
    "scatter_mul": _scattered_product,
    "triangular_solve": _triangular_solution,
}


def _spacing(magnitude: Array, dtype: Any) -> Array:
    import ml_dtypes

    limits: Any = ml_dtypes.finfo
    info = limits(np.empty(0, dtype).real.dtype if np.dtype(dtype).kind == "c" else dtype)
    lowest = np.longdouble(float(info.tiny))
    exponent = np.frexp(np.maximum(magnitude, lowest))[1] - 1
    return np.ldexp(np.longdouble(float(info.eps)), exponent)


def errors(found: Array, wanted: Array) -> tuple[float, float]:
    """The largest error in units at each value, and at the largest magnitude; values that are not finite are left out."""
    wide = np.clongdouble if found.dtype.kind == "c" else np.longdouble
    values = found.astype(wide)
    with np.errstate(all="ignore"):
        usable = np.isfinite(wanted) & np.isfinite(values)
        if not usable.any():
            return 0.0, 0.0
        values, wanted = values[usable], wanted[usable]
        apart = np.maximum(np.abs(values.real - wanted.real), np.abs(values.imag - wanted.imag))
        size = np.maximum(np.abs(wanted.real), np.abs(wanted.imag))
        ulp = apart / _spacing(size, found.dtype)
        large = apart / _spacing(size.max(), found.dtype)
    return float(ulp.max()), float(large.max())


def decides(result: Array, expected: Array, wanted: Array) -> bool:
    """Whether the exact values judge every element: where there is none, both results must be the same."""
    known = np.isfinite(wanted) & np.isfinite(result.astype(wanted.dtype))
    return bool(np.all(known | same(result, expected).reshape(*known.shape, -1).all(axis=-1)))
