"""SciPy's functions that are plain Python, by what is called in their place in traced code, against SciPy on arrays."""

from __future__ import annotations

import re
import sys
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hlojit
import mpmath
import numpy as np
import pytest
import scipy.fft
import scipy.linalg
import scipy.signal
import scipy.special
from hlojit.tracing.errors import TracingError
from hlojit.tracing.scipy_functions.functions import FUNCTIONS, replacement_for

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
GENERATOR = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def _numbers_of_the_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test draws does not depend on the tests before it."""
    monkeypatch.setattr(
        sys.modules[__name__], "GENERATOR", np.random.default_rng(zlib.crc32(request.node.name.encode()))
    )


class Module:
    """A module of SciPy's whose functions are those that stand in for them where ``traced``."""

    def __init__(self, module: Any, traced: bool):
        self._module, self._traced = module, traced

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)
        found = replacement_for(function)
        assert found is not None, name
        return found if self._traced else function


def flat(results: Any) -> list[Any]:
    return [leaf for each in results for leaf in flat(each)] if isinstance(results, (tuple, list)) else [results]


def agree(module: Any, cases: list[Function], *arrays: Any, units: float = 200) -> None:
    """All cases, traced as one function, give SciPy's results; errors in epsilons of the largest number."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = [case(Module(module, False), *arrays) for case in cases]
        found = hlojit.jit(lambda *given: [case(Module(module, True), *given) for case in cases])(*arrays)
    for number, (ours, theirs) in enumerate(zip(found, expected)):
        assert isinstance(ours, tuple) == isinstance(theirs, tuple), f"case {number}"
        for mine, other in zip(flat(ours), flat(theirs), strict=True):
            wanted = np.asarray(other)
            if isinstance(mine, bool):
                assert mine == other
                continue
            assert (mine.dtype, mine.shape) == (wanted.dtype, wanted.shape), f"case {number}"
            # SciPy gives some of what it computes in f4 as f8.
            kinds = [each for each in (wanted.dtype, arrays[0].dtype) if each.kind in "fc"]
            bound = units * max(float(np.finfo(each).eps) for each in kinds) if wanted.dtype.kind in "fc" else 0
            largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
            np.testing.assert_allclose(mine, wanted, rtol=bound, atol=bound * largest, err_msg=f"case {number}")


# -------------------------------------------------------------------------------------------------------- scipy.special


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
def test_exponentials(dtype: str) -> None:
    x = (GENERATOR.standard_normal((3, 5)) * 20).astype(dtype)
    weights = GENERATOR.standard_normal((3, 5)).astype("f4")
    agree(
        scipy.special,
        [
            lambda s, x, b: s.logsumexp(x),
            lambda s, x, b: s.logsumexp(x, axis=1),
            lambda s, x, b: s.logsumexp(x, axis=0, keepdims=True),
            lambda s, x, b: s.logsumexp(x, axis=(0, 1), b=np.abs(b)),
            lambda s, x, b: s.logsumexp(x, axis=-1, b=b, return_sign=True),
            lambda s, x, b: s.logsumexp(x, 1, b),
            lambda s, x, b: s.logsumexp(x[0, 0]),
            lambda s, x, b: s.softmax(x),
            lambda s, x, b: s.softmax(x, axis=0),
            lambda s, x, b: s.log_softmax(x),
            lambda s, x, b: s.log_softmax(x, axis=1),
        ],
        x,
        weights,
        units=20,
    )


def test_exponentials_of_what_is_infinite_or_far_apart() -> None:
    rows = np.array([[0.0, -40.0], [np.inf, 0.0], [-np.inf, -np.inf], [np.nan, 1.0], [1e4, 1e4], [np.inf, -np.inf]])
    agree(scipy.special, [lambda s, x: s.logsumexp(x, axis=1), lambda s, x: s.log_softmax(x, axis=1)], rows, units=4)
    (found,) = hlojit.jit(lambda x: (replacement_for(scipy.special.logsumexp)(x),))(np.array([0.0, -40.0]))  # type: ignore[misc]
    np.testing.assert_allclose(found, np.log1p(np.exp(-40.0)), rtol=1e-14)


def test_gamma_functions_of_several_arguments() -> None:
    x = GENERATOR.uniform(0.5, 12, 30)
    n = GENERATOR.integers(0, 9, 30)
    agree(
        scipy.special,
        [
            lambda s, x, n: s.polygamma(0, x),
            lambda s, x, n: s.polygamma(2, x.astype("f4")),
            lambda s, x, n: s.polygamma(n, x),
            lambda s, x, n: s.zeta(x + 1.5, x),
            lambda s, x, n: s.zeta(x),
            lambda s, x, n: s.zeta(x.astype("f4")),
            lambda s, x, n: s.multigammaln(x + 2, 3),
            lambda s, x, n: s.factorial(n),
            lambda s, x, n: s.comb(n + 12, n),
            lambda s, x, n: s.comb(n, 3),
            lambda s, x, n: s.comb(n, 3, repetition=True),
        ],
        x,
        n,
        units=100,
    )


# ------------------------------------------------------------------------------------------------------------ scipy.fft


@pytest.mark.parametrize("dtype", ["f8", "f4", "i2"])
def test_fourier_transforms(dtype: str) -> None:
    x = (GENERATOR.standard_normal((3, 4, 6)) * 9).astype(dtype)
    names = [f"{front}{end}" for front in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft") for end in ("", "2", "n")]
    agree(
        scipy.fft,
        [
            *[lambda s, x, n=name: getattr(s, n)(x) for name in names],
            lambda s, x: s.fft(x, 5, axis=0, norm="ortho", overwrite_x=True, workers=2),
            lambda s, x: s.fftn(x, (2, 8)),
            lambda s, x: s.fftn(x, axes=1),
            lambda s, x: s.rfftn(x, 5),
            lambda s, x: s.hfftn(x, axes=(0, 1), norm="forward"),
            lambda s, x: s.ihfft(x, 4, 1, "ortho"),
            lambda s, x: s.fftshift(x, axes=1),
            lambda s, x: s.ifftshift(x),
        ],
        x,
        units=20,
    )


@pytest.mark.parametrize("name", ["dct", "dst", "idct", "idst"])
@pytest.mark.parametrize("kind", [1, 2, 3, 4])
def test_cosine_and_sine_transforms(name: str, kind: int) -> None:
    """Of every length from 2, as formulas differ for even and odd ones."""
    x = GENERATOR.standard_normal((3, 8))
    agree(
        scipy.fft,
        [
            *[lambda s, x, n=n: getattr(s, name)(x[:, :n], kind) for n in range(2, 8)],
            *[lambda s, x, n=n: getattr(s, name)(x, kind, norm=n) for n in ("ortho", "forward", "backward")],
            lambda s, x: getattr(s, name)(x, kind, orthogonalize=True),
            lambda s, x: getattr(s, name)(x, kind, norm="ortho", orthogonalize=False),
            lambda s, x: getattr(s, name)(x.astype("f4"), kind, 5, axis=0),
            lambda s, x: getattr(s, f"{name}n")(x, kind),
            lambda s, x: getattr(s, f"{name}n")(x, kind, s=(9,), norm="ortho"),
            lambda s, x: getattr(s, f"{name}n")(x, kind, axes=[0]),
        ],
        x,
        units=30,
    )


# --------------------------------------------------------------------------------------------------------- scipy.linalg


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "c8"])
def test_systems(dtype: str) -> None:
    imaginary = 1j if dtype.startswith("c") else 0
    a = (GENERATOR.standard_normal((5, 5)) + imaginary * GENERATOR.standard_normal((5, 5))).astype(dtype)
    a = (a @ a.conj().T + np.eye(5)).astype(dtype)
    b = GENERATOR.standard_normal((5, 2)).astype("f4")
    agree(
        scipy.linalg,
        [
            lambda s, a, b: s.solve(a, b),
            lambda s, a, b: s.solve(a, b[:, 0], assume_a="pos"),
            lambda s, a, b: s.solve(np.tril(a), b, assume_a="her", lower=True),
            lambda s, a, b: s.solve(a, b, assume_a="upper triangular"),
            lambda s, a, b: s.solve(a, b, assume_a="diagonal", check_finite=False),
            # SciPy has it for real matrices only.
            lambda s, a, b: s.solve(a.real, b, transposed=True),
            lambda s, a, b: s.inv(a),
            # SciPy's is of LU factors in f4, given as f8.
            lambda s, a, b: s.det(a.astype("c16" if dtype.startswith("c") else "f8")),
            lambda s, a, b: s.norm(a, 1),
            lambda s, a, b: s.norm(a[0]),
            lambda s, a, b: s.norm(a, "fro", keepdims=True),
            lambda s, a, b: s.pinv(a[:, :3]),
            lambda s, a, b: s.pinv(a, rtol=0.1, return_rank=True)[0],
            lambda s, a, b: s.solve_triangular(a, b),
            lambda s, a, b: s.solve_triangular(a, b[:, 0], lower=True, unit_diagonal=True),
            lambda s, a, b: s.solve_triangular(a, b, trans=1),
            lambda s, a, b: s.solve_triangular(a, b, trans="C", lower=True),
            lambda s, a, b: s.cholesky(a),
            lambda s, a, b: s.cholesky(a, lower=True),
            lambda s, a, b: s.cho_factor(a),
            lambda s, a, b: s.cho_solve(s.cho_factor(a), b),
            lambda s, a, b: s.cho_solve(s.cho_factor(a, lower=True), b[:, 1]),
            lambda s, a, b: s.lu_factor(a),
            lambda s, a, b: s.lu_factor(a[:, :3])[0],
            lambda s, a, b: s.lu_solve(s.lu_factor(a), b),
            lambda s, a, b: s.lu_solve(s.lu_factor(a), b[:, 0], trans=1),
            lambda s, a, b: s.lu_solve(s.lu_factor(a), b, trans=2),
            lambda s, a, b: s.lu(a),
            lambda s, a, b: s.lu(a[::-1, :3]),
            lambda s, a, b: s.lu(a[:2], p_indices=True)[1:],
            lambda s, a, b: s.lu(a, permute_l=True),
            lambda s, a, b: s.lstsq(a[:, :2], b)[0],
        ],
        a,
        b,
        units=5000,
    )


def test_the_factors_of_many_matrices_multiply_to_them() -> None:
    a = GENERATOR.standard_normal((6, 7, 7))
    p, lower, upper = hlojit.jit(lambda a: replacement_for(scipy.linalg.lu)(a))(a)  # type: ignore[misc]
    np.testing.assert_allclose(p @ lower @ upper, a, atol=1e-13)


@pytest.mark.parametrize("dtype", ["f8", "c8"])
def test_other_factorizations(dtype: str) -> None:
    a = GENERATOR.standard_normal((4, 4)).astype(dtype)
    a = a + a.conj().T
    agree(
        scipy.linalg,
        [
            lambda s, a: s.svdvals(a),
            lambda s, a: s.svd(a, compute_uv=False),
            lambda s, a: s.svd(a[:, :2], full_matrices=False)[1],
            lambda s, a: s.qr(a[:, :2]),
            lambda s, a: s.qr(a[:, :2], mode="economic"),
            lambda s, a: s.qr(a[:, :2], mode="r"),
            lambda s, a: s.eigvalsh(a),
            lambda s, a: s.eigh(a, eigvals_only=True, subset_by_index=[1, 2]),
            lambda s, a: s.eigh(a, lower=False)[0],
            lambda s, a: np.sort(np.abs(s.eigvals(a))),
            lambda s, a: np.sort(np.abs(s.eig(a)[0])),
            lambda s, a: s.expm(a),
            lambda s, a: s.expm(np.stack([a * 0, a * 2, a * 0.1])),
            lambda s, a: s.toeplitz(a[0]),
            lambda s, a: s.toeplitz(a[0], a[1, :3]),
            lambda s, a: s.hankel(a[0]),
            lambda s, a: s.hankel(a[0], a[1]),
            lambda s, a: s.circulant(a[0]),
            lambda s, a: s.block_diag(a, a[0], a[:2, :3].real),
        ],
        a,
        units=2000,
    )


def test_exponentials_of_large_matrices() -> None:
    """Of matrices with eigenvalues up to about 40, where SciPy's own are off by thousands of units."""
    compiled = hlojit.jit(lambda a: replacement_for(scipy.linalg.expm)(a))  # type: ignore[misc]
    with mpmath.workdps(50):
        for _ in range(10):
            half = GENERATOR.standard_normal((4, 4)) * 5
            exact = np.array(mpmath.expm(mpmath.matrix((half + half.T).tolist())).tolist(), np.float64)
            assert (
                np.abs(compiled(half + half.T) - exact).max() <= 1000 * np.finfo(np.float64).eps * np.abs(exact).max()
            )


# --------------------------------------------------------------------------------------------------------- scipy.signal


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i4"])
def test_convolutions(dtype: str) -> None:
    x = (GENERATOR.standard_normal((6, 9)) * 9).astype(dtype)
    k = (GENERATOR.standard_normal((3, 4)) * 9).astype(dtype)
    modes = ("full", "same", "valid")
    functions = ("convolve", "correlate")
    agree(
        scipy.signal,
        [
            *[lambda s, x, k, n=n, m=m: getattr(s, n)(x, k, m) for n in functions for m in modes],
            *[lambda s, x, k, n=n, m=m: getattr(s, n)(x[0], k[0], m, "direct") for n in functions for m in modes],
            *[lambda s, x, k, n=n, m=m: getattr(s, n)(k, x, m) for n in functions for m in modes],
            *[lambda s, x, k, m=m, b=b: s.convolve2d(x, k, m, b) for m in modes for b in ("fill", "wrap", "symm")],
            *[lambda s, x, k, m=m, b=b: s.correlate2d(x, k, m, b) for m in modes for b in ("fill", "wrap", "symm")],
            lambda s, x, k: s.correlate2d(k, x, "valid"),
            lambda s, x, k: s.correlate2d(x, k[:, :3], "same", "fill", 1),
            lambda s, x, k: s.convolve(x[0, 0], k[0, 0]),
        ],
        x,
        k,
    )
    agree(
        scipy.signal,
        [
            *[lambda s, x, k, m=m: s.fftconvolve(x, k, m) for m in modes],
            *[lambda s, x, k, m=m: s.fftconvolve(x[:, :, None], k[:1, :, None], m, axes=1) for m in modes],
            lambda s, x, k: s.oaconvolve(x[0], k[0]),
            lambda s, x, k: s.convolve(x, k, method="fft"),
            lambda s, x, k: s.fftconvolve(x[:0], k),
        ],
        x,
        k,
    )


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
def test_signals_along_an_axis(dtype: str) -> None:
    x = (GENERATOR.standard_normal((4, 9)) * 9).astype(dtype)
    cases: list[Function] = [
        lambda s, x: s.detrend(x),
        lambda s, x: s.detrend(x, axis=0),
        lambda s, x: s.detrend(x, type="constant"),
        lambda s, x: s.detrend(x, bp=[3, 6]),
    ]
    if dtype != "i4":
        cases += [lambda s, x: s.hilbert(x), lambda s, x: s.hilbert(x, 6, 0), lambda s, x: s.hilbert(x, N=12)]
    agree(scipy.signal, cases, x)


# --------------------------------------------------------------------------------------------------------------- others


def test_every_rule_is_compared() -> None:
    """Every function is a case of the tests above: called by its name, or the name stands in a list (dctn and dct2 as dct)."""
    words = set(re.findall(r'[(" ](s\.\w+(?=\()|\w+(?="))', Path(__file__).read_text(encoding="utf-8")))
    missing = {
        f"{module}.{name}"
        for module, rules in FUNCTIONS.items()
        for name in rules
        if not {f"s.{name}", name, name.rstrip("2n")} & words
    }
    assert missing == set()


def test_nothing_stands_in_for_other_functions() -> None:
    def solve(a: Any, b: Any) -> Any:
        return a + b

    assert replacement_for(solve) is None
    assert replacement_for(np.linalg.solve) is None
    assert replacement_for(scipy.linalg.sqrtm) is None
    assert replacement_for(3) is None


def test_plain_arrays_go_to_the_function_itself() -> None:
    found = replacement_for(scipy.linalg.solve)
    assert found is not None
    np.testing.assert_array_equal(found(np.eye(2), np.ones(2)), np.ones(2))
    inside = hlojit.jit(lambda x: x + found(np.eye(2), np.ones(2)))
    np.testing.assert_array_equal(inside(np.ones(2)), [2.0, 2.0])


WRONG: list[tuple[Any, Function]] = [
    (scipy.linalg, lambda s, a: s.solve(a[:2], a)),
    (scipy.linalg, lambda s, a: s.solve(a, a[:2])),
    (scipy.linalg, lambda s, a: s.eigh(a, subset_by_index=[2, 7])),
    (scipy.fft, lambda s, a: s.dct(a, 5)),
    (scipy.fft, lambda s, a: s.fft(a, norm="orto")),
    (scipy.fft, lambda s, a: s.fftn(a, axes=(0, 0))),
    (scipy.signal, lambda s, a: s.convolve(a, a[0])),
    (scipy.signal, lambda s, a: s.convolve(a[:2], a[:, :2], "valid")),
    (scipy.signal, lambda s, a: s.fftconvolve(a, a, "ful")),
    (scipy.signal, lambda s, a: s.detrend(a, type="cubic")),
    (scipy.signal, lambda s, a: s.convolve2d(a, a, boundary="edge")),
]


@pytest.mark.parametrize(("module", "wrong"), WRONG, ids=range(len(WRONG)))
def test_errors_are_scipys(module: Any, wrong: Function) -> None:
    a = np.eye(3)
    with pytest.raises((ValueError, TypeError)):
        wrong(Module(module, False), a)
    with pytest.raises((ValueError, TypeError)):
        hlojit.jit(lambda a: wrong(Module(module, True), a))(a)


@pytest.mark.parametrize(
    ("module", "refused", "text"),
    [
        (scipy.linalg, lambda s, a: s.qr(a, pivoting=True), "pivoting"),
        (scipy.linalg, lambda s, a: s.eigh(a, a), "b="),
        (scipy.linalg, lambda s, a: s.eig(a, left=True), "left"),
        (scipy.special, lambda s, a: s.factorial(a, exact=True), "exact"),
        (scipy.special, lambda s, a: s.logsumexp(a * 1j), "complex"),
        (scipy.fft, lambda s, a: s.dct(a * 1j), "complex"),
    ],
)
def test_what_cannot_be_compiled_is_named(module: Any, refused: Function, text: str) -> None:
    with pytest.raises(TracingError, match=text):
        hlojit.jit(lambda a: refused(Module(module, True), a))(np.eye(3))
