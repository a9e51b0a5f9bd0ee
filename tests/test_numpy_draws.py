"""Drawn calls of every function on the page of NumPy's functions: what eager NumPy gives, or an error.

The page's own call of each function (``tools/numpy_calls.py``) gets arrays of drawn dtypes, values and layouts; ufuncs, reductions,
sorts and the calls in ``KEYWORDS`` get drawn shapes and keyword arguments besides.  ``make draws`` draws new ones, many of each.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hlojit
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
coverage: Any = pytest.importorskip("numpy_coverage")

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        f"NumPy {np.__version__} " not in coverage.PAGE.read_text(encoding="utf-8"),
        reason="the page is of another NumPy",
    ),
]
EXAMPLES = int(os.environ.get("DRAWS", "3"))
drawn = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))

DTYPES = "? i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split()
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan)
REDUCTIONS = (
    "all any argmax argmin max min mean nanmax nanmean nanmin nanprod nanstd nansum nanvar prod ptp std sum var".split()
)
ALONG = "argsort cumprod cumsum diff flip median nancumprod nancumsum sort".split()
UFUNCS = sorted(
    call.name[3:] for call in coverage.all_calls()["numpy"] if isinstance(getattr(np, call.name[3:], None), np.ufunc)
)

KEYWORDS = """
np.flip(x, {axis})
np.rot90(x, {count}, axes=({one}, {one}))
np.expand_dims(x, {axis})
np.squeeze(x, axis={axis})
np.moveaxis(x, {one}, {one})
np.swapaxes(x, {one}, {one})
np.rollaxis(x, {one}, {one})
np.reshape(x, {shape}, order={order})
np.ravel(x, order={order})
np.resize(x, {shape})
np.tile(x, {shape})
np.broadcast_to(x, {shape})
np.concatenate([x, y], axis={axis})
np.stack([x, y], axis={one})
np.append(x, y, axis={axis})
np.delete(x, {one}, axis={axis})
np.insert(x, {one}, {number}, axis={axis})
np.split(x, {count}, axis={one})
np.array_split(x, {count}, axis={one})
np.pad(x, {count}, mode={padding})
np.take(x, [0, {one}], axis={axis}, mode={bounds})
np.take_along_axis(x, np.argmax(x, axis={one}, keepdims=True), {one})
np.compress([True, False], x, axis={axis})
np.diagonal(x, {shift}, {one}, {one})
np.trace(x, {shift}, {one}, {one})
np.diag(x, {shift})
np.tril(x, {shift})
np.triu(x, {shift})
np.clip(x, {number}, {number})
np.clip(x, y, None)
np.where(x, y, {number})
np.where(x > 1, x, y)
np.percentile(x, {share}, axis={axis}, method={method})
np.quantile(x, {share} / 100, axis={axis}, keepdims=True)
np.median(x, axis={axis})
np.nanmedian(x, axis={axis})
np.average(x, axis={axis}, weights=y)
np.cov(x, bias=True)
np.corrcoef(x)
np.diff(x, n={count}, axis={one}, prepend={number})
np.gradient(x, {number}, axis={axis})
np.trapezoid(x, dx=0.5, axis={one})
np.interp(x, [0, 1, 4], [2.0, 3.0, -1.0], left={number})
np.searchsorted([0, 1, 1, 4], x, side={side})
np.digitize(x, [0, 1, 4], right={truth})
np.histogram(x, bins=4, range=(-2, 5), density={truth})
np.bincount(x, minlength={count})
np.unwrap(x, axis={one})
np.dot(x, y)
np.inner(x, y)
np.outer(x, y)
np.kron(x, y)
np.matmul(x, y)
np.tensordot(x, y, axes={count})
np.vdot(x, y)
np.cross(x, y)
np.convolve(x, y, mode={convolution})
np.cumulative_sum(x, axis={axis}, include_initial={truth})
np.argsort(x, axis={axis}, stable=True)
np.sort(x, axis={axis})
np.fft.fft(x, n={count}, axis={one}, norm={norm})
np.fft.rfft(x, n={count}, axis={one}, norm={norm})
np.linalg.norm(x, ord={ord}, axis={axis})
np.linalg.vector_norm(x, axis={axis}, ord=1)
np.packbits(x, axis={axis}, bitorder={bits})
np.vander(x, {count})
np.ldexp(x, {shift})
np.add.reduceat(x, [0, 1], axis={one})
np.multiply.reduce(x, axis={axis}, initial={number})
np.maximum.accumulate(x, axis={one})
np.subtract.outer(x, y)
np.put_along_axis(x, np.argmin(x, axis={one}, keepdims=True), {number}, {one})
np.copyto(x, y, casting={casting})
np.putmask(x, x > 1, y)
np.put(x, [0, {one}], {number}, mode={bounds})
np.einsum('...i,...i->...', x, y)
np.sum(x, axis={axis}, dtype={dtype}, keepdims={truth}, out=y)
np.linspace(x, y, {count}, axis={one})
np.meshgrid(x, y, indexing={indexing})
np.piecewise(x, [x > 1], [{number}, 2])
np.select([x > 1], [y], {number})
np.choose(x, [x, y], mode={bounds})
np.apply_along_axis(np.sum, {one}, x)
np.ptp(x, axis={axis}, keepdims={truth})
np.nanmax(x, axis={axis}, initial={number})
np.std(x, axis={axis}, ddof={count}, keepdims={truth})
x.sum(axis={axis}, keepdims={truth})
x.argmax(axis={axis}, keepdims={truth})
x.fill({number})
x.sort(axis={one})
x.T + y
x[{one}]
x[..., ::-1]
x[x > 1].sum()
x.mean(dtype={dtype})
x.item()
x.transpose({axis})
"""
"""Calls with keyword arguments, of which each name in braces is one of ``PIECES``."""

PIECES = {
    "axis": "None 0 1 -1 -2 2 (0,1) ()",
    "one": "0 1 -1 2 -3",
    "count": "0 1 2 3 -1",
    "shift": "0 1 -1 3",
    "shape": "(2,3) (4,3) (-1,) (3,-1) 5 () (1,5)",
    "order": "'C' 'F' 'A' 'K'",
    "number": "0 2 -1 300 1.5 True np.nan 2j np.float32(2) np.uint8(3)",
    "padding": "'constant' 'edge' 'reflect' 'symmetric' 'wrap' 'mean' 'maximum' 'linear_ramp' 'other'",
    "bounds": "'raise' 'wrap' 'clip'",
    "share": "0 30 100 [25,75] 101",
    "method": "'linear' 'lower' 'nearest' 'midpoint' 'weibull' 'inverted_cdf'",
    "side": "'left' 'right'",
    "truth": "True False",
    "convolution": "'full' 'same' 'valid'",
    "norm": "None 'ortho' 'forward'",
    "ord": "None 1 2 np.inf 'fro' 0 3",
    "bits": "'big' 'little'",
    "casting": "'no' 'safe' 'same_kind' 'unsafe'",
    "dtype": "'f4' 'i8' 'u1' '?' 'c16' 'f2' None",
    "indexing": "'xy' 'ij'",
}

WITHOUT_ARRAYS = {"np.empty", "np.fft.rfftfreq"}

DIFFERENT: dict[str, str] = {
    **dict.fromkeys(
        ("ndarray.argpartition", "ndarray.partition", "np.argpartition", "np.partition"),
        "on either side of the place asked for, elements come in an order that NumPy does not specify",
    ),
    **dict.fromkeys(("ndarray.argsort", "np.argsort"), "equal elements come in an order that NumPy does not specify"),
    **dict.fromkeys(
        ("np.full_like", "np.min_scalar_type"), "negative floats as unsigned integers, which C leaves to the processor"
    ),
    "np.linalg.lstsq": "residuals of matrices without full rank are NaN (docs/linear-algebra.md)",
    "np.piecewise": "every branch is traced, also one that NumPy does not call because no element chooses it",
    "np.polyfit": "least squares of badly conditioned matrices differ by more than the tolerance",
}
"""Functions whose drawn calls are known to differ, and how: each is a fault to mend, not a promise."""


def _call(text: str, parameters: list[str]) -> Callable[..., Any]:
    """A function with source: its statements are what a user would have written."""
    file, source = f"<drawn: {text}>", f"def call({', '.join(parameters)}):\n    return {text}\n"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    namespace: dict[str, Any] = {"np": np}
    exec(compile(source, file, "exec"), namespace)
    made: Callable[..., Any] = namespace["call"]
    return made


def _laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """The same elements in memory of another order."""
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "reversed":
        return array[::-1].copy()[::-1] if array.ndim else array
    if layout == "strided" and array.ndim:
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    return array.copy()


LAYOUTS = st.sampled_from(("plain", "fortran", "reversed", "strided"))


@st.composite
def arrays(draw: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Small numbers with ties; extremes of integers, infinities, NaN and signed zeros among them where drawn."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    found = random.integers(-4, 9, shape)
    if dtype.kind in "ub":
        found = abs(found)
    array = np.asarray(found / 2 if dtype.kind in "fc" else found).astype(dtype)
    if draw(st.booleans()) and array.size:
        at = tuple(random.integers(0, side) for side in shape)
        info = np.iinfo(dtype) if dtype.kind in "iu" else None
        array[at] = draw(st.sampled_from((info.min, info.max) if info else SPECIAL))
    return _laid_out(array, draw(LAYOUTS))


SHAPES = st.sampled_from(((), (0,), (1,), (5,), (3, 4), (0, 3), (1, 4), (2, 3, 4), (2, 1, 2, 3)))
AXES = st.sampled_from(("None", "0", "1", "-1", "-2", "2", "(0, 1)", "(0, 0)", "()"))


def _outcome(function: Callable[..., Any], given_: dict[str, np.ndarray]) -> tuple[Any, BaseException | None]:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return function(**given_), None
    except Exception as error:
        return None, error


def _copied(given_: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of the same layouts in other memory."""
    found = {}
    for name, array in given_.items():
        base = array if array.base is None else array.base
        offset = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        memory = base.copy(order="K")
        buffer = memory.data if memory.flags.c_contiguous else memory.T.data
        found[name] = np.ndarray(array.shape, array.dtype, buffer, offset, array.strides)
    return found


def _assert_equal(ours: Any, theirs: Any, epsilon: float) -> None:
    assert type(ours) is type(theirs), f"a {type(ours).__name__} instead of a {type(theirs).__name__}"
    if not isinstance(theirs, (np.ndarray, np.generic)):
        assert ours == theirs or ours != ours
        return
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    if theirs.dtype.kind not in "fc":
        np.testing.assert_array_equal(ours, theirs)
        return
    finite = abs(theirs[np.isfinite(theirs)].astype(complex))
    scale = float(np.max(finite, initial=0))
    tolerance = 1e3 * max(epsilon, float(np.finfo(theirs.dtype).eps)) * max(scale, 1.0)
    np.testing.assert_allclose(ours.astype(complex), theirs.astype(complex), rtol=0, atol=tolerance)


def _epsilon(dtype: np.dtype) -> float:
    """Of the numbers NumPy computes with: half and single precision for short integers and truth values."""
    kind = dtype if dtype.kind in "fc" else np.dtype(f"f{min(2 * dtype.itemsize, 8)}")
    return float(np.finfo(kind).eps)


def _is_clear(text: str, error: BaseException, expected: BaseException | None, given_: dict[str, np.ndarray]) -> bool:
    """Whether an error says where and what: NumPy's own, a refusal, or another mistake of the call, which has several."""
    message = str(error)
    if isinstance(error, np.linalg.LinAlgError):
        # Of infinities and NaN some builds of LAPACK give NaN, and others an error.
        return expected is not None or not all(np.isfinite(each).all() for each in given_.values())
    is_refusal = "cannot be compiled" in message or "which NumPy drops" in message
    return (
        isinstance(error, hlojit.HlojitError)
        or (message.startswith("<drawn") and (is_refusal or expected is not None))
        or (expected is not None and isinstance(error, type(expected)))
    )


def same_or_error(text: str, given_: dict[str, np.ndarray]) -> bool:
    """Compare a call with NumPy's; whether it was refused."""
    function = _call(text, list(given_))
    their_arrays, our_arrays = _copied(given_), _copied(given_)
    theirs, expected = _outcome(function, their_arrays)
    ours, error = _outcome(hlojit.jit(function), our_arrays)
    what = f"{text} of " + ", ".join(f"{k} = {v!r} {v.strides}" for k, v in given_.items())
    if error is not None:
        assert _is_clear(text, error, expected, given_), f"{what}: {type(error).__name__}: {error}"
        return expected is None
    assert expected is None, f"{what}: NumPy raises {expected!r}, we give {ours!r}"
    epsilon = max(_epsilon(each.dtype) for each in given_.values())
    if "fft." in text and not all(np.isfinite(each).all() for each in given_.values()):
        return False  # which sums have infinities less infinities is the algorithm's affair
    try:
        ours_all = list(coverage._leaves([ours, *our_arrays.values()]))
        theirs_all = list(coverage._leaves([theirs, *their_arrays.values()]))
        for one, other in zip(ours_all, theirs_all, strict=True):
            _assert_equal(one, other, epsilon)
    except AssertionError as difference:
        raise AssertionError(f"{what}: {ours!r} instead of {theirs!r}: {difference}") from None
    return False


def _one_of_eight(names: list[Any], key: Callable[[Any], str]) -> list[Any]:
    """One of eight; all in the slow run."""
    return [
        pytest.param(
            name,
            id=key(name),
            marks=[
                *([] if zlib.crc32(key(name).encode()) % 8 == 1 else [pytest.mark.slow]),
                *([pytest.mark.skip(reason=DIFFERENT[key(name)])] if key(name) in DIFFERENT else []),
            ],
        )
        for name in names
    ]


PAGE_CALLS = [call for calls in coverage.all_calls().values() for call in calls if call.parameters]


@pytest.mark.parametrize("call", _one_of_eight(PAGE_CALLS, lambda call: str(call.name)))
def test_the_pages_calls_with_drawn_arrays(call: Any) -> None:
    shapes = {name: array.shape for name, array in coverage.calls.arrays().items()}
    refused = []

    @drawn
    @given(st.fixed_dictionaries({name: arrays(shapes[name]) for name in call.parameters}))
    def check(given_: dict[str, np.ndarray]) -> None:
        if "s" in given_:
            given_["s"].sort()
        refused.append(same_or_error(call.text, given_))

    check()
    is_refused = f"| `{call.text}` |" in coverage.PAGE.read_text(encoding="utf-8")
    assert EXAMPLES < 20 or is_refused or not all(refused), "every call was refused"


@pytest.mark.parametrize("name", _one_of_eight(UFUNCS, lambda name: f"ufunc {name}"))
@drawn
@given(st.data())
def test_ufuncs(name: str, data: Any) -> None:
    shape = data.draw(SHAPES)
    given_ = {"x": data.draw(arrays(shape))}
    operands = ["x"]
    if getattr(np, name).nin == 2:
        other = data.draw(st.sampled_from(("y", "2", "-1", "300", "1.5", "True")))
        operands.append(other)
        if other == "y":
            given_["y"] = data.draw(arrays(data.draw(st.sampled_from((shape, shape[1:], (2,))))))
    keyword = data.draw(st.sampled_from(("", "", "out", "dtype='f4'", "dtype='i8'", "casting='no'")))
    if keyword == "out":
        given_["out"] = data.draw(arrays(shape))
        keyword = "out=out"
    same_or_error(f"np.{name}({', '.join(filter(None, [*operands, keyword]))})", given_)


@pytest.mark.parametrize("name", _one_of_eight(REDUCTIONS, lambda name: f"reduction {name}"))
@drawn
@given(st.data())
def test_reductions(name: str, data: Any) -> None:
    keyword = data.draw(
        st.sampled_from(("", ", keepdims=True", ", dtype='f4'", ", ddof=1", ", initial=3", ", where=[True]"))
    )
    same_or_error(f"np.{name}(x, axis={data.draw(AXES)}{keyword})", {"x": data.draw(arrays(data.draw(SHAPES)))})


@pytest.mark.parametrize("name", _one_of_eight(ALONG, lambda name: f"along {name}"))
@drawn
@given(st.data())
def test_functions_along_an_axis(name: str, data: Any) -> None:
    stable = ", kind='stable'" if name == "argsort" else ""
    same_or_error(f"np.{name}(x, axis={data.draw(AXES)}{stable})", {"x": data.draw(arrays(data.draw(SHAPES)))})


@pytest.mark.parametrize("template", _one_of_eight(KEYWORDS.strip().splitlines(), str))
@drawn
@given(st.data())
def test_keyword_arguments(template: str, data: Any) -> None:
    shape = data.draw(SHAPES)
    given_ = {"x": data.draw(arrays(shape))}
    if re.search(r"\by\b", template):
        given_["y"] = data.draw(arrays(data.draw(st.sampled_from((shape, shape[::-1], shape[1:], (2,))))))
    text = re.sub(r"\{(\w+)\}", lambda found: data.draw(st.sampled_from(PIECES[found[1]].split())), template)
    same_or_error(text, given_)


def test_every_covered_function_is_drawn() -> None:
    """Those that take no array have nothing to draw: the page's own test runs them."""
    names = {name for found in coverage.public_names().values() for name in found}
    assert names - {call.name for call in PAGE_CALLS} == WITHOUT_ARRAYS
