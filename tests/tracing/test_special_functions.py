"""``scipy.special`` in traced functions: errors against mpmath, dtypes, promotion and special values against SciPy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import hlojit
import mpmath
import numpy as np
import pytest
import scipy.special
from hlojit.tracing.errors import TracingError
from hlojit.tracing.scipy_functions.special_ufuncs import RULES
from mpmath import mpf

Array = np.ndarray[Any, Any]
GENERATOR = np.random.default_rng(3)


def spread(low: float, high: float, count: int = 40) -> Array:
    return GENERATOR.uniform(low, high, count)


def sizes(low: float, high: float, count: int = 20) -> Array:
    """Numbers of all sizes, by their decimal exponents."""
    return np.asarray(10.0 ** GENERATOR.uniform(low, high, count))


def joined(*parts: Array) -> Array:
    return np.concatenate(parts)


REALS = joined(spread(-4, 4), spread(-30, 30, 20), sizes(-30, 0, 10))
POSITIVE = joined(spread(0, 5), spread(0, 150, 20), sizes(-30, 30))
INSIDE = joined(spread(0, 1), sizes(-300, 0), 1 - sizes(-9, -1))


def log_ndtr(x: Any) -> Any:
    return mpmath.log(mpmath.ncdf(x))


def ndtri(p: Any) -> Any:
    return mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1)


def kl(x: Any, y: Any) -> Any:
    return x * mpmath.log(x / y) - x + y


def boxcox(x: Any, exponent: Any) -> Any:
    return mpmath.expm1(exponent * mpmath.log(x)) / exponent


EXACT: dict[str, tuple[Callable[..., Any], float, tuple[Array, ...]]] = {
    "erf": (mpmath.erf, 2, (REALS,)),
    "erfc": (mpmath.erfc, 2, (joined(spread(-4, 4), spread(4, 26)),)),
    "erfinv": (mpmath.erfinv, 2, (joined(spread(-1, 1), sizes(-30, 0)),)),
    "erfcinv": (lambda x: mpmath.erfinv(1 - x), 6, (joined(spread(0, 0.9), spread(1.1, 2), sizes(-300, -1)),)),
    "gamma": (mpmath.gamma, 4, (joined(spread(-20, 20), spread(20, 171)),)),
    "rgamma": (mpmath.rgamma, 6, (joined(spread(-20, 20), spread(20, 170)),)),
    "gammaln": (lambda x: mpmath.log(abs(mpmath.gamma(x))), 4, (POSITIVE,)),
    "loggamma": (mpmath.loggamma, 4, (POSITIVE,)),
    "psi": (mpmath.digamma, 6, (joined(POSITIVE, spread(-20, -3)),)),
    "_zeta": (mpmath.zeta, 4, (spread(1.1, 20), spread(0.1, 50))),
    "_riemann_zeta": (mpmath.zeta, 24, (joined(spread(-20, 1, 60), spread(1, 40, 20), -sizes(-20, -1)),)),
    "beta": (mpmath.beta, 150, (spread(0.01, 60), spread(0.01, 60))),
    "betaln": (lambda a, b: mpmath.log(mpmath.beta(a, b)), 16, (joined(spread(12, 40), sizes(2, 8)), joined(spread(2, 30), sizes(1, 8)))),
    "ndtr": (mpmath.ncdf, 4, (spread(-1.5, 8),)),
    "log_ndtr": (log_ndtr, 32, (joined(spread(-40, 6, 80), -sizes(1, 8)),)),
    "ndtri": (ndtri, 4, (joined(spread(0.05, 0.45), spread(0.55, 1), sizes(-300, -2)),)),
    "i0": (lambda x: mpmath.besseli(0, x), 4, (spread(-40, 40),)),
    "i0e": (lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)), 4, (joined(spread(-20, 20), sizes(0, 6)),)),
    "i1": (lambda x: mpmath.besseli(1, x), 6, (spread(-40, 40),)),
    "i1e": (lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)), 4, (joined(spread(-20, 20), sizes(0, 6)),)),
    "expit": (lambda x: 1 / (1 + mpmath.exp(-x)), 2, (REALS,)),
    "logit": (lambda x: mpmath.log(x) - mpmath.log1p(-x), 4, (joined(INSIDE, spread(0.3, 0.65)),)),
    "log_expit": (lambda x: -mpmath.log1p(mpmath.exp(-x)), 2, (joined(REALS, spread(-800, 700)),)),
    "expm1": (mpmath.expm1, 2, (REALS,)),
    "log1p": (mpmath.log1p, 2, (POSITIVE,)),
    "exp2": (lambda x: mpf(2) ** x, 2, (REALS,)),
    "exp10": (lambda x: mpf(10) ** x, 2, (spread(-300, 300),)),
    "cbrt": (mpmath.cbrt, 2, (POSITIVE,)),
    "xlogy": (lambda x, y: x * mpmath.log(y), 4, (spread(-3, 3), spread(1.1, 9))),
    "xlog1py": (lambda x, y: x * mpmath.log1p(y), 4, (spread(-3, 3), spread(-0.9, 9))),
    "entr": (lambda x: -x * mpmath.log(x), 4, (POSITIVE,)),
    "rel_entr": (lambda x, y: x * mpmath.log(x / y), 8, (spread(0, 1), spread(1.1, 3))),
    "kl_div": (kl, 40, (spread(0, 1), spread(2, 3))),
    "huber": (lambda d, r: r * r / 2 if abs(r) <= d else d * (abs(r) - d / 2), 6, (spread(1, 2), spread(-1, 9))),
    "pseudo_huber": (lambda d, r: d * d * (mpmath.sqrt(1 + (r / d) ** 2) - 1), 6, (spread(1, 2), joined(spread(-9, 9, 20), sizes(-9, 0)))),
    "boxcox": (boxcox, 8, (spread(1.5, 90), spread(-5, 40))),
    "boxcox1p": (lambda x, e: boxcox(1 + x, e), 300, (joined(spread(0, 9, 20), sizes(-12, 0)), spread(0.1, 20))),
    "inv_boxcox": (lambda x, e: (1 + e * x) ** (1 / e), 60, (spread(0, 9), spread(0.1, 4))),
    "inv_boxcox1p": (lambda x, e: (1 + e * x) ** (1 / e) - 1, 60, (spread(0.1, 9), spread(0.1, 4))),
    "exprel": (lambda x: mpmath.expm1(x) / x, 4, (REALS,)),
    "cosm1": (lambda x: -2 * mpmath.sin(x / 2) ** 2, 6, (joined(spread(-3, 3), sizes(-100, 0)),)),
    "radian": (lambda d, m, s: mpmath.radians(d + m / 60 + s / 3600), 4, (spread(0, 360), spread(0, 60), spread(0, 60))),
}  # fmt: skip
"""Exact values, the bound of the error in f8 in units in the last place, and operands (where nothing is ill-conditioned)."""

WITHOUT_AN_ERROR = {"round", "gammasgn"}


def ufunc_of(name: str) -> Any:
    return getattr(scipy.special, name, None) or getattr(scipy.special._ufuncs, name)


def run(name: str, *arrays: Any) -> Any:
    ufunc = ufunc_of(name)
    return hlojit.jit(lambda *given: ufunc(*given))(*arrays)


@pytest.mark.parametrize("name", sorted(EXACT))
def test_errors_against_mpmath(name: str) -> None:
    exact, bound, operands = EXACT[name]
    count = min(len(each) for each in operands)
    arrays = [each[:count] if len(operands) > 1 else each for each in operands]
    found = run(name, *arrays)
    with mpmath.workdps(360 if name in ("erfcinv", "ndtri", "erfinv", "logit") else 40):
        expected = [exact(*(mpf(float(each)) for each in point)) for point in zip(*arrays)]
        errors = [
            abs(mpf(float(ours)) - theirs) / float(np.spacing(abs(float(theirs))))
            for ours, theirs in zip(found, expected)
        ]
    worst = int(np.argmax([float(error) for error in errors]))
    assert errors[worst] <= bound, f"{float(errors[worst]):.3g} units at {[float(each[worst]) for each in arrays]}"
    # In f4 everything is computed in wider numbers, or to as many units.
    narrow = run(name, *(each.astype("f4") for each in arrays))
    assert narrow.dtype == np.float32
    theirs = np.asarray(ufunc_of(name)(*(each.astype("f4") for each in arrays)))
    both = np.isfinite(theirs) & np.isfinite(narrow)
    np.testing.assert_allclose(narrow[both], theirs[both], rtol=4e-7, atol=1e-37)


def test_every_rule_has_a_case() -> None:
    assert set(RULES) == set(EXACT) | WITHOUT_AN_ERROR
    assert all(isinstance(ufunc_of(name), np.ufunc) for name in RULES)


CORNERS = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, -1.5, 2.0, -2.0, np.inf, -np.inf, np.nan, 800.0, -800.0])


@pytest.mark.parametrize("name", sorted(set(RULES) - {"_zeta", "_riemann_zeta"}))
def test_special_values_are_scipys(name: str) -> None:
    """Infinities, NaN and zeros, of every pair of corners for two operands."""
    ufunc = ufunc_of(name)
    if ufunc.nin == 3:
        arrays: tuple[Array, ...] = (CORNERS, CORNERS, CORNERS)
    elif ufunc.nin == 2:
        positive = CORNERS[~(CORNERS < 0)] if name.startswith("beta") else CORNERS
        arrays = tuple(each.ravel() for each in np.meshgrid(positive, positive))
    else:
        arrays = (CORNERS,)
    with np.errstate(all="ignore"):
        expected = ufunc(*arrays)
    np.testing.assert_allclose(run(name, *arrays), expected, rtol=1e-11, atol=0)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("i4", "erf"),
        ("i8", "gammaln"),
        ("u1", "expit"),
        ("f2", "ndtr"),
        ("?", "gamma"),
        ("c16", "expm1"),
        ("c8", "log1p"),
    ],
)
def test_dtypes_are_scipys(dtype: str, name: str) -> None:
    array = np.array([1, 0, 1]).astype(dtype)
    found, expected = run(name, array), ufunc_of(name)(array)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_python_numbers_count_as_scipy_counts_them() -> None:
    array = np.linspace(0.5, 2, 4, dtype="f4")
    found = hlojit.jit(
        lambda x, y: (scipy.special.xlogy(x, 2.0), scipy.special.xlogy(3, x), scipy.special.xlogy(x, y))
    )(array, np.ones(1))
    expected = [scipy.special.xlogy(array, 2.0), scipy.special.xlogy(3, array), scipy.special.xlogy(array, np.ones(1))]
    assert [each.dtype for each in found] == [each.dtype for each in expected]


def test_what_has_no_rule_is_named() -> None:
    with pytest.raises(TracingError, match="jv"):
        hlojit.jit(lambda x: scipy.special.jv(1, x))(np.ones(2))
    with pytest.raises(TracingError, match="erf of complex"):
        hlojit.jit(lambda x: scipy.special.erf(x))(np.ones(2, "c16"))
    with pytest.raises(TracingError, match="where="):
        hlojit.jit(lambda x: scipy.special.erf(x, where=np.array([True, False])))(np.ones(2))


def test_tracing_does_not_import_scipy() -> None:
    source = (
        "import sys, hlojit, numpy as np\n"
        "try:\n    hlojit.jit(lambda x: np.spacing(x)).lower(np.ones(2))\nexcept hlojit.HlojitError:\n    pass\n"
        "hlojit.jit(lambda x: np.sin(x)).lower(np.ones(2))\n"
        "assert not any(name.split('.')[0] == 'scipy' for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", source], check=True, timeout=60)
