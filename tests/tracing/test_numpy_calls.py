"""NumPy's functions with unusual arguments, over dtypes: the same as eager NumPy to the type and shape, or an error.

Expressions are separated by ``|``; each is a function of the arrays that it names.  A call may be refused, never differ.
"""

from __future__ import annotations

import ast
import linecache
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import hlojit
import numpy as np
import pytest

CALLS = """
np.correlate(x[0], y[1]) | np.correlate(x[0], y[1,:2], 'full') | np.correlate(x[0,:2], y[1], 'same') | np.correlate(x[0,:2], y[1], 'full')
np.correlate(x[0,:3], y[1], 'valid')
np.convolve(x[0], y[1,:3]) | np.convolve(x[0], y[1,:2], 'same') | np.convolve(x[0,:2], y[1], 'valid') | np.convolve(x[0], 2)
np.convolve(x[0], [1,2.5]) | np.convolve(x[0,:1], y[1]) | np.convolve(x, y)
np.interp(x, [0,1,2], [3,4,7]) | np.interp(x[0,0], [0,1,2.], [3,4,7.]) | np.interp(x, np.arange(3), y[0,:3], left=-1, right=9)
np.interp(x, [1.], [2.]) | np.interp(x, [0,2,1], [1,5,2], period=3) | np.interp(2.5, np.sort(x[0]), y[0]) | np.interp(x, [0,1,1,2],[0,1,2,3])
np.interp(x, [0,1,2],[1j,2,3])
np.quantile(x, 0.3) | np.quantile(x, [0.1,0.9], axis=1) | np.quantile(x, 0.5, axis=(0,1), keepdims=True)
np.percentile(x, 50, method='nearest') | np.quantile(x, 0.25, method='lower', axis=0) | np.quantile(x, 0.25, method='hazen')
np.percentile(x, [0,100]) | np.quantile(x, 1.5) | np.median(x, axis=(0,1))
np.nanmedian(x) | np.nanmedian(x, axis=0, keepdims=True) | np.nanmedian(x, axis=(1,0)) | np.nanquantile(x, 0.3)
np.nanquantile(x, [0.2,0.5], axis=1) | np.nanpercentile(x, 75, axis=0, keepdims=True) | np.nanquantile(x, 0.4, method='weibull', axis=1)
np.nanquantile(x, np.float64(0.4)) | np.nanpercentile(x, [10, 20.5]) | np.nanmean(x, axis=1) | np.nanstd(x, axis=0, ddof=1) | np.nanvar(x)
np.pad(x, 1, mode='edge') | np.pad(x, ((1,2),(0,3)), mode='reflect') | np.pad(x, 2, mode='symmetric') | np.pad(x, 5, mode='wrap')
np.pad(x, 1, mode='linear_ramp', end_values=3) | np.pad(x, 1, mode='mean') | np.pad(x, 2, mode='maximum', stat_length=2)
np.pad(x, 1, mode='minimum') | np.pad(x, 2, mode='reflect', reflect_type='odd') | np.pad(x, 1, mode='median') | np.pad(x[:0], 1, mode='edge')
np.pad(x, (2,1), mode='constant', constant_values=(1,2)) | np.pad(x[0,0], 1) | np.pad(x, 3, 'no such')
np.delete(x, 1) | np.delete(x, [0,-1], axis=1) | np.delete(x, slice(None,None,2), 1) | np.delete(x, 9, 0) | np.insert(x, 1, 5, axis=0)
np.insert(x, [0,2], y[:, :1], axis=1) | np.insert(x[0], [1,1], [7,8]) | np.insert(x, -1, 3) | np.delete(x, np.array([True,False,True]), 0)
np.block([x, y]) | np.block([[x],[y]]) | np.block([[x[0]], [y]]) | np.cross(x[:, :3], y[:, :3]) | np.cross(x[:, 1:], y[:, 1:], axis=1)
np.cross(x[:, :3].T, y[:, :3].T, axisa=0, axisb=0)
np.select([x>1, x>0], [x, y]) | np.select([x>1, x>0], [x, 2*y], -1) | np.select([x>1], [1.5], x) | np.select([(x>1)[0]], [x], 0)
np.select([x>1, x>2], [x])
np.apply_along_axis(np.sum, 0, x) | np.apply_along_axis(lambda r: r[::-1], 1, x) | np.apply_along_axis(lambda r: r[0], 1, x)
np.apply_along_axis(np.sort, 0, x)
np.digitize(x, [0,1,2]) | np.digitize(x, [2,1,0]) | np.digitize(x, [0,1,2], right=True) | np.digitize(x[0,0], [0., 1.])
np.diagflat(x, 1) | np.diagflat(x[0], -2) | np.ediff1d(x) | np.ediff1d(x, to_begin=9, to_end=[1,2]) | np.kron(x, y) | np.kron(x[0], y)
np.kron(2, x) | np.trapezoid(x, axis=0)
np.linspace(x[0,0], x[1,1], 4) | np.linspace(x[0], y[1], 3) | np.linspace(x[0], 5, 4, endpoint=False, axis=1)
np.linspace(0, x[0,0], 3, retstep=True) | np.linspace(x[0,0], 2, 1) | np.linspace(x[0,0], 2, 0)
np.histogram(x, 4) | np.histogram(x, 3, (-1, 4)) | np.histogram(x, [0,1,3]) | np.histogram(x, 3, (0,2), density=True)
np.histogram(x, 4, weights=y) | np.histogram(x, 2, (2,1)) | np.histogram(x, 0) | np.histogram(x*0, 3)
np.histogram2d(x[0], y[0], 3, [[-2,3],[-2,3]]) | np.histogram_bin_edges(x, 4) | np.histogram2d(x[0], y[1], [[-1,0,2],[-1,1,4]])
np.meshgrid(x[0], y[1,:2]) | np.meshgrid(x[0]) | np.meshgrid(x[0], y[1], x[2,:2], indexing='ij')
np.meshgrid(x[0], y[0], sparse=True, copy=False) | np.meshgrid(x[0,0], y)
np.unravel_index(i, (3,4)) | np.unravel_index(i, (3,4), order='F') | np.unravel_index(i[0], (2,2,3)) | np.unravel_index(i+99, (3,4))
np.ravel_multi_index((i%3, i%4), (3,4)) | np.ravel_multi_index((i, i), (3,4), mode='wrap')
np.ravel_multi_index((i, i), (3,4), mode=('clip','wrap')) | np.ravel_multi_index((i, i), (3,4))
np.ravel_multi_index((i%3, i%4), (3,4), order='F')
np.lib.stride_tricks.sliding_window_view(x, 2, axis=1) | np.lib.stride_tricks.sliding_window_view(x, (2,2))
np.lib.stride_tricks.sliding_window_view(x, 9, 0) | np.lib.stride_tricks.sliding_window_view(x[0], 3).mean(axis=-1)
(np.put(x, [0,-1], [7,8]), x) | (np.put(x, [0,0,0], [7,8,9]), x) | (np.put(x, [5,1,5], 3), x) | (np.put(x.T, [1,2], [5,6]), x)
(np.put(x, [99], 1), x) | (np.put(x, [99,-99], [1,2], mode='clip'), x) | (np.put(x, [13], 1, mode='wrap'), x) | (np.place(x, x>0, [7,8]), x)
(np.place(x, x>1, 3), x) | (np.place(x.T, x.T>0, [7,8,9]), x) | (x.put(i%12, y), x)
np.lexsort((x[0], y[0])) | np.lexsort(x) | np.lexsort((x, y), axis=0) | np.lexsort((x[0]>0, x[0])) | np.lexsort(x[0])
np.broadcast_arrays(x, y[0]) | [q+1 for q in np.broadcast_arrays(x, 3)] | np.broadcast_arrays(x) | np.atleast_2d([x[0], y[0]])
np.mean([x, y]) | np.mean([x[0,0], y[0,0]]) | np.max([x[0], y[0]], axis=1) | np.add([x[0,0], 1], [2, y[0,0]]) | np.sqrt([x[0,1]*x[0,1], 4])
np.dot([x[0,0], x[0,1]], [1,2])
np.packbits(i) | np.packbits(x>0, axis=1) | np.packbits(x>0, axis=0, bitorder='little') | np.packbits(x) | np.unpackbits(u)
np.unpackbits(u.reshape(3,4), axis=0) | np.unpackbits(u, count=20) | np.unpackbits(u, count=-3, bitorder='little')
np.unpackbits(u, count=200) | np.unpackbits(x)
np.polymul(x[0], y[1]) | np.polymul(x[0], 2) | np.roots(x[2]) | np.poly(x[0]) | np.roots(np.array([x[2,0]])) | np.polyval(x[0], y)
np.modf(x) | np.frexp(x) | np.ldexp(x, i[:4]) | np.ldexp(x, 3) | np.ldexp(x, -1074) | np.ldexp(2.0, i) | np.nextafter(x, y)
np.nextafter(x, 0) | np.spacing(x) | np.logaddexp2(x, y) | np.gcd(x, y) | np.lcm(x, y) | np.gcd(i, 6) | np.gcd(x, -4) | np.lcm(i, -4)
np.modf(x[0,0]) | np.frexp(x[0,0]) | np.gcd(i[0], 4) | np.modf(x, out=(x, y)) | np.modf(2.5) + x[0,0]
np.frexp(s) | np.ldexp(s, i-1040) | np.ldexp(s, 1000) | np.nextafter(s, 1) | np.spacing(s) | np.modf(s) | np.frexp(s.astype('f4'))
np.nextafter(s.astype('f4'), np.float32(9)) | np.spacing(s.astype('f4')) | np.spacing(s.astype('f2'))
np.nextafter(s.astype('f2'), np.float16(0)) | np.frexp(s.astype('f2')) | np.ldexp(s.astype('f2'), i-12) | np.ldexp(s.astype('f4'), i-130)
(np.add.at(x, ([0,0,1],[1,1,2]), 2), x) | (np.add.at(x, [0,0], y[:2]), x) | (np.add.at(x[0], i%4, y.ravel()), x)
(np.maximum.at(x, (slice(None), [1,1]), 3), x) | (np.subtract.at(x, [0,2,0], 1), x) | (np.multiply.at(x, x>0, 2), x)
(np.add.at(x, [9], 1), x) | (np.add.at(x, [0], 1.5), x) | (np.add.at(i, [1,1], 1), i)
np.add.reduceat(x, [0,2,1]) | np.add.reduceat(x, [0,3], axis=1) | np.multiply.reduceat(x[0], [1,0]) | np.maximum.reduceat(x, [0,1])
np.add.reduceat(x, [9])
x.tolist() | x[0,0].tolist() | x.flags.c_contiguous + x | x.T.flags.f_contiguous + x | x.flags['C'] + x | np.isfortran(x.T) + x
np.require(x, 'f4', 'F') | np.asarray_chkfinite(x) | np.asarray_chkfinite(x/0) | np.unique_counts(i) | np.unique_inverse(i) | np.unique_all(i)
np.bincount(i, minlength=20) | np.bincount(i%5, minlength=5) | np.bincount(i%5, minlength=3) | np.bincount(i%5, weights=s*0+1.5, minlength=5)
np.histogramdd((x[0], y[0]), 3, [(-2,3),(-2,4)]) | np.can_cast(x, 'f8') + x | np.tensordot(x, y) | np.linalg.tensordot(x, y)
"""

KINDS = ("f8", "f4", "i8", "i4", "u1", "bool", "nan", "f2", "c16", "empty")
ROUNDED = 64
"""Of the last place of the largest element: sums in another order."""

STOPPED = {
    ("bool", "np.roots(x[2])"): "the leading coefficient",
    ("bool", "np.polymul(x[0], y[1])"): "the leading coefficient",
}
"""Calls whose result NumPy makes shorter, by the values: an error of the call."""


def arrays(kind: str) -> dict[str, Any]:
    x: Any = np.array([[3, -1, 2, 0], [0, 2, -2, 1], [1, 1, 4, -3]])
    y: Any = np.array([[1, 2, 0, 3], [2, -2, 1, 1], [0, 3, 3, 2]])
    if kind == "nan":
        x, y = x / 2.0, y * 1.0
        x[0, 1] = x[1, :] = np.nan
    elif kind == "bool":
        x, y = x > 0, y > 1
    elif kind == "c16":
        x, y = x + 1j * y, y - 0.5j
    elif kind == "empty":
        x, y = np.zeros((0, 4)), np.zeros((0, 4))
    elif kind[0] == "f":
        x, y = (x * 0.75).astype(kind), (y / 2).astype(kind)
    else:
        x, y = (abs(each).astype(kind) if kind == "u1" else each.astype(kind) for each in (x, y))
    s = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 5e-324, -3e-310, 1e308, 2.0**-1022, 3e-5]
    return {"x": x, "y": y, "i": np.arange(12)[::-1].copy(), "u": np.arange(12, dtype="u1") * 21, "s": np.array(s)}


def _expressions() -> list[str]:
    return [each.strip() for line in CALLS.strip().splitlines() for each in line.split(" | ")]


def _cases() -> Iterator[Any]:
    """One kind of arrays for each call, all ten in the slow run."""
    for text in _expressions():
        start = zlib.crc32(text.encode()) % len(KINDS)
        for number, kind in enumerate((*KINDS[start:], *KINDS[:start])):
            yield pytest.param(kind, text, marks=() if number < 1 else pytest.mark.slow)


def _function(kind: str, text: str) -> tuple[Callable[..., Any], list[str]]:
    names = sorted({node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)} & set("xyius"))
    file, source = f"<{kind} {text}>", f"def call({', '.join(names)}):\n    return {text}\n"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space: dict[str, Any] = {"np": np}
    exec(compile(source, file, "exec"), space)
    return space["call"], names


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, (tuple, list)):
        for each in tree:
            yield from _leaves(each)
    else:
        yield tree


def _require_same(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs)
    if not isinstance(theirs, (np.ndarray, np.generic)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12) if isinstance(theirs, float) else None
        assert isinstance(theirs, float) or ours == theirs
        return
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    if theirs.dtype.kind not in "fc":
        np.testing.assert_array_equal(ours, theirs)
        return
    size = float(np.max(np.abs(theirs[np.isfinite(theirs)]), initial=0)) if theirs.size else 0.0
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=ROUNDED * float(np.finfo(theirs.dtype).eps) * size)
    is_zero = theirs == 0
    np.testing.assert_array_equal(np.signbit(ours.real[is_zero]), np.signbit(theirs.real[is_zero]))


@pytest.mark.parametrize(("kind", "text"), list(_cases()))
def test_as_numpy_or_refused(kind: str, text: str) -> None:
    function, names = _function(kind, text)
    own, theirs = ({name: arrays(kind)[name] for name in names} for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = function(**theirs)
        except Exception as error:
            with pytest.raises((type(error), hlojit.HlojitError)):
                hlojit.jit(function)(**own)
            return
        try:
            found = hlojit.jit(function)(**own)
        except hlojit.HlojitError:
            return
        except ValueError as error:
            assert STOPPED[(kind, text)] in str(error)
            return
    pairs = list(_leaves((found, list(own.values())))), list(_leaves((expected, list(theirs.values()))))
    assert len(pairs[0]) == len(pairs[1])
    for a, b in zip(*pairs):
        _require_same(a, b)


def test_few_calls_are_refused() -> None:
    """What is compared above must not become less unseen."""
    refused = 0
    for text in _expressions():
        function, names = _function("f8", text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                hlojit.jit(function).lower(**{name: arrays("f8")[name] for name in names})
            except hlojit.HlojitError:
                refused += 1
            except Exception:
                pass
    assert refused <= 12
