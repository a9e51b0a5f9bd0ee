"""The ufuncs of ``scipy.special`` on tracers, by NumPy's functions, CHLO's ops and series.

``RULES`` maps their names to rules over arrays of the loop's dtype.  What is f4 is computed in f8 and rounded once, as most
of SciPy's functions do it, but for the few that SciPy computes in f4.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.rules import refuse, weak_kind
from hlojit.tracing.operations import Operations
from hlojit.tracing.scipy_functions import special_series
from hlojit.tracing.tracer import Tracer

RULES: dict[str, Callable[..., Any]] = {}
"""``rule(operations, *arrays)`` by the ufunc's name."""
_COMPLEX: Final = {"expm1", "log1p"}
"""Names of rules that take complex numbers."""
_IN_F4: Final = {
    "expit",
    "logit",
    "log_expit",
    "erf",
    "erfc",
    "erfinv",
    "expm1",
    "log1p",
    "exp2",
    "exp10",
    "cbrt",
    "round",
}
"""Names of rules whose f4 needs no wider numbers."""
_ROOT_OF_HALF: Final = math.sqrt(0.5)


def special_rule(ufunc: np.ufunc) -> Callable[..., Any] | None:
    """The rule of a ufunc that is one of ``scipy.special``, or None; SciPy is not imported for it."""
    name = ufunc.__name__
    if name not in RULES:
        return None
    modules = (sys.modules.get("scipy.special"), sys.modules.get("scipy.special._ufuncs"))
    return special_ufunc if any(getattr(module, name, None) is ufunc for module in modules) else None


def special_ufunc(ops: Operations, ufunc: np.ufunc, inputs: Sequence[Any], options: Mapping[str, Any]) -> Tracer:
    """A ufunc of ``scipy.special``; options other than ``dtype`` are refused."""
    name = ufunc.__name__
    rest = {key: value for key, value in options.items() if not (key == "where" and value is True)}
    dtype = rest.pop("dtype", None)
    refuse(f"scipy.special.{name}", **rest)
    loop = _loop(ufunc, inputs, dtype)
    if loop.kind == "c" and name not in _COMPLEX:
        raise TracingError(f"scipy.special.{name} of complex numbers cannot be compiled yet")
    if loop.char not in "fdFD":
        raise TracingError(f"scipy.special.{name} of {loop} cannot be compiled")
    computed = loop if loop.kind == "c" or name in _IN_F4 else np.dtype(np.float64)
    return ops.tracer(RULES[name](ops, *(ops.wrap(ops.value(each, computed)) for each in inputs))).astype(loop)


def _loop(ufunc: np.ufunc, inputs: Sequence[Any], dtype: Any) -> np.dtype[Any]:
    """The dtype of the ufunc's loop, by its own resolution; Python numbers are weak."""
    own = [each.dtype if isinstance(each, Tracer) else np.asarray(each).dtype for each in inputs]
    kinds: list[Any] = [weak_kind(each) or mine for each, mine in zip(inputs, own)]
    if all(isinstance(kind, type) for kind in kinds):
        kinds = list(own)
    options: Any = {} if dtype is None else {"signature": (None,) * len(inputs) + (np.dtype(dtype),)}
    return np.dtype(ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout), **options)[-1])


def _rule(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def one_op(ops: Operations, name: str, *arrays: Any) -> Any:
    """An op element by element on arrays of one dtype, which are broadcast."""
    shape = np.broadcast_shapes(*(each.shape for each in arrays))
    return ops.wrap(ops.builder.create(name, [ops.broadcast(each.value, shape) for each in arrays]).result)


RULES["erf"] = lambda ops, x: one_op(ops, "chlo.erf", x)
RULES["erfc"] = lambda ops, x: one_op(ops, "chlo.erfc", x)
RULES["erfinv"] = lambda ops, x: one_op(ops, "chlo.erf_inv", x)
RULES["i1e"] = lambda ops, x: one_op(ops, "chlo.bessel_i1e", x)
RULES["gamma"] = lambda ops, x: one_op(ops, "hlojit.gamma", x)
RULES["expm1"] = lambda ops, x: np.expm1(x)
RULES["log1p"] = lambda ops, x: np.log1p(x)
RULES["exp2"] = lambda ops, x: np.exp2(x)
RULES["cbrt"] = lambda ops, x: np.cbrt(x)
RULES["round"] = lambda ops, x: np.rint(x)
RULES["expit"] = lambda ops, x: one_op(ops, "logistic", x)


@_rule("exp10")
def _exp10(ops: Operations, x: Any) -> Any:
    return np.power(x.dtype.type(10), x)


# ---------------------------------------------------------------------------------------- gamma functions and theirs


@_rule("gammaln")
def _gammaln(ops: Operations, x: Any) -> Any:
    return np.where(x == -np.inf, -np.inf, one_op(ops, "chlo.lgamma", x))


@_rule("loggamma")
def _loggamma(ops: Operations, x: Any) -> Any:
    return np.where(x < 0, np.nan, one_op(ops, "chlo.lgamma", x))


@_rule("rgamma")
def _rgamma(ops: Operations, x: Any) -> Any:
    """Zero at the poles; where the gamma function overflows, its reciprocal may still be a number."""
    at_pole = (x <= 0) & (x == np.floor(x))
    far = _gammasgn(ops, x) * np.exp(-one_op(ops, "chlo.lgamma", x))
    return np.where(at_pole, 0.0, np.where(np.abs(x) > 170, far, 1 / one_op(ops, "hlojit.gamma", x)))


@_rule("gammasgn")
def _gammasgn(ops: Operations, x: Any) -> Any:
    below = np.floor(x)
    sign = np.where((x < 0) & (np.remainder(below, 2.0) != 0), -1.0, 1.0)
    sign = np.where((x < 0) & (x == below), np.nan, sign)
    return np.where(np.isnan(x), x, np.where(x == 0, np.copysign(1.0, x), sign))


@_rule("psi")
def psi(ops: Operations, x: Any) -> Any:
    """The digamma function."""
    return np.where(x == 0, np.copysign(np.inf, -x), one_op(ops, "chlo.digamma", x))


@_rule("_zeta")
def hurwitz_zeta(ops: Operations, s: Any, q: Any) -> Any:
    """SciPy is infinite at every pole, and has nothing for negative ``q`` and orders that are no integers."""
    at_pole = (s >= 1) & (q <= 0) & (q == np.floor(q)) | (s == 1) & ~np.isnan(q)
    # The first terms of Euler's and Maclaurin's formula: what a power of q alone would make of them has no denormal numbers left.
    far = np.maximum(q, 1e10)
    distant = (1 / (s - 1) + 0.5 / far) * np.power(far, 1 - s)
    found = np.where((q > 1e10) & (q < np.inf), distant, one_op(ops, "chlo.zeta", s, q))
    return np.where(at_pole, np.inf, np.where(s < 1, np.nan, found))


@_rule("_riemann_zeta")
def riemann_zeta(ops: Operations, s: Any) -> Any:
    """The zeta function of all real numbers; below 0 by reflection."""
    one = ops.tracer(np.ones_like(s))
    right = one_op(ops, "chlo.zeta", np.where(s > 1, s, 2.0), one)
    mirrored = 1 - s
    left = special_series.riemann_left(
        s, one_op(ops, "hlojit.gamma", mirrored), one_op(ops, "chlo.zeta", np.where(s < -0.25, mirrored, 2.0), one)
    )
    middle = special_series.riemann_middle(np.where((s >= -0.25) & (s < 1), s, 0.5))
    found = np.where(s > 1, right, np.where(s < -0.25, left, np.where(s == 1, np.inf, middle)))
    return np.where(np.isnan(s), s, found)


@_rule("betaln")
def _betaln(ops: Operations, a: Any, b: Any) -> Any:
    """Of the gamma functions themselves where these are numbers, of Stirling's series for large ones: logarithms cancel."""
    large, small = np.maximum(a, b), np.minimum(a, b)
    near = (np.abs(large) < 20) & (np.abs(small) < 20)
    product = np.log(np.abs(_beta_near(ops, large, small)))
    logarithms = _gammaln(ops, small) + (_gammaln(ops, large) - _gammaln(ops, large + small))
    far = special_series.log_beta_far(large, small, _gammaln(ops, small))
    found = np.where(near, product, np.where((large >= 10) & (small > 0), far, logarithms))
    found = np.where((large == np.inf) & (small > 0), np.where(small == np.inf, np.nan, -np.inf), found)
    return np.where((a == 0) | (b == 0), np.inf, found)


def _beta_near(ops: Operations, a: Any, b: Any) -> Any:
    gammas = [one_op(ops, "hlojit.gamma", each) for each in (a, b)]
    return gammas[1] * (gammas[0] * _rgamma(ops, a + b))


@_rule("beta")
def _beta(ops: Operations, a: Any, b: Any) -> Any:
    large, small = np.maximum(a, b), np.minimum(a, b)
    near = (np.abs(large) < 20) & (np.abs(small) < 20)
    signs = _gammasgn(ops, a) * _gammasgn(ops, b) * _gammasgn(ops, a + b)
    found = np.where(near, _beta_near(ops, large, small), signs * np.exp(_betaln(ops, a, b)))
    return np.where((a == 0) | (b == 0), np.inf, found)


# ------------------------------------------------------------------------------------- the normal distribution


@_rule("erfcinv")
def _erfcinv(ops: Operations, x: Any) -> Any:
    return -_ROOT_OF_HALF * special_series.ndtri(0.5 * x)


@_rule("ndtr")
def _ndtr(ops: Operations, x: Any) -> Any:
    return 0.5 * one_op(ops, "chlo.erfc", -_ROOT_OF_HALF * x)


@_rule("log_ndtr")
def _log_ndtr(ops: Operations, x: Any) -> Any:
    """The logarithm of a number near 1, of a small one, and where that is none, of its asymptotic series."""
    tail = one_op(ops, "chlo.erfc", _ROOT_OF_HALF * np.abs(np.maximum(x, -20.0)))
    return np.where(x > 0, np.log1p(-0.5 * tail), np.where(x > -14, np.log(0.5 * tail), special_series.log_tail(x)))


RULES["ndtri"] = lambda ops, x: special_series.ndtri(x)


# ---------------------------------------------------------------------------------------------- Bessel functions


RULES["i0e"] = lambda ops, x: special_series.i0e(x)
RULES["i0"] = lambda ops, x: np.exp(np.abs(x)) * special_series.i0e(x)


@_rule("i1")
def _i1(ops: Operations, x: Any) -> Any:
    return np.exp(np.abs(x)) * one_op(ops, "chlo.bessel_i1e", x)


# --------------------------------------------------------------------------------------- logarithms and entropies


@_rule("logit")
def _logit(ops: Operations, x: Any) -> Any:
    """Around one half, where the quotient is near 1, of the distance from it."""
    centred = 2 * (x - 0.5)
    near = np.log1p(centred) - np.log1p(-centred)
    return np.where((x < 0.3) | (x > 0.65), np.log(x / (1 - x)), near)


@_rule("log_expit")
def _log_expit(ops: Operations, x: Any) -> Any:
    return np.where(x < 0, x, 0) - np.log1p(np.exp(-np.abs(x)))


@_rule("xlogy")
def _xlogy(ops: Operations, x: Any, y: Any) -> Any:
    return np.where((x == 0) & ~np.isnan(y), 0, x * np.log(y))


@_rule("xlog1py")
def _xlog1py(ops: Operations, x: Any, y: Any) -> Any:
    return np.where((x == 0) & ~np.isnan(y), 0, x * np.log1p(y))


@_rule("entr")
def _entr(ops: Operations, x: Any) -> Any:
    return np.where(x == 0, 0, np.where(x < 0, -np.inf, -x * np.log(x)))


@_rule("rel_entr")
def _rel_entr(ops: Operations, x: Any, y: Any) -> Any:
    """The difference of logarithms where the quotient is none."""
    quotient = x / y
    usable = (quotient > np.finfo(np.float64).tiny) & (quotient < np.inf)
    inside = x * np.where(usable, np.log(np.where(usable, quotient, 1)), np.log(x) - np.log(y))
    unknown = np.isnan(x) | np.isnan(y)
    outside = np.where((x == 0) & (y >= 0), 0, np.inf)
    return np.where(unknown, np.nan, np.where((x > 0) & (y > 0), inside, outside))


@_rule("kl_div")
def _kl_div(ops: Operations, x: Any, y: Any) -> Any:
    unknown = np.isnan(x) | np.isnan(y)
    outside = np.where((x == 0) & (y >= 0), y, np.inf)
    inside = x * np.log(x / y) - x + y
    return np.where(unknown, np.nan, np.where((x > 0) & (y > 0), inside, outside))


# ------------------------------------------------------------------------------------------------ losses and powers


@_rule("huber")
def _huber(ops: Operations, delta: Any, r: Any) -> Any:
    size = np.abs(r)
    found = np.where(size <= delta, 0.5 * r * r, delta * (size - 0.5 * delta))
    return np.where(delta < 0, np.inf, found)


@_rule("pseudo_huber")
def _pseudo_huber(ops: Operations, delta: Any, r: Any) -> Any:
    """``sqrt(1 + v**2) - 1`` is written so that nothing cancels."""
    ratio = r / delta
    found = delta * delta * np.expm1(0.5 * np.log1p(ratio * ratio))
    return np.where(delta < 0, np.inf, np.where((delta == 0) | (r == 0), 0, found))


@_rule("boxcox")
def _boxcox(ops: Operations, x: Any, exponent: Any) -> Any:
    logarithm = np.log(x)
    power = exponent * logarithm
    # Far from 1 the power itself has no rounded logarithm in it.
    less_one = np.where(np.abs(power) >= 1, np.power(np.abs(x), exponent) - 1, np.expm1(power))
    found = np.where(np.abs(exponent) < 1e-19, logarithm, less_one / exponent)
    return np.where(x < 0, np.nan, found)


@_rule("boxcox1p")
def _boxcox1p(ops: Operations, x: Any, exponent: Any) -> Any:
    logarithm = np.log1p(x)
    near = (np.abs(exponent) < 1e-19) | ((np.abs(logarithm) < 1e-289) & (np.abs(exponent) < 1e273))
    return np.where(near, logarithm, np.expm1(exponent * logarithm) / exponent)


@_rule("inv_boxcox")
def _inv_boxcox(ops: Operations, x: Any, exponent: Any) -> Any:
    product = exponent * x
    apart = np.log(np.abs(x)) + np.log(np.abs(exponent))
    logarithm = np.where(product == np.inf, np.where(np.isinf(x), np.inf, apart), np.log1p(product))
    return np.where(exponent == 0, np.exp(x), np.exp(logarithm / exponent))


@_rule("inv_boxcox1p")
def _inv_boxcox1p(ops: Operations, x: Any, exponent: Any) -> Any:
    product = exponent * x
    found = np.where(np.abs(product) < 1e-154, x, np.expm1(np.log1p(product) / exponent))
    return np.where(exponent == 0, np.expm1(x), found)


@_rule("exprel")
def _exprel(ops: Operations, x: Any) -> Any:
    found = np.where(np.abs(x) < np.finfo(np.float64).eps, 1, np.expm1(x) / x)
    return np.where(x > 717, np.where(np.isnan(x), x, np.inf), found)


@_rule("cosm1")
def _cosm1(ops: Operations, x: Any) -> Any:
    half = np.sin(0.5 * x)
    return -2 * half * half


@_rule("radian")
def _radian(ops: Operations, degrees: Any, minutes: Any, seconds: Any) -> Any:
    return np.deg2rad(degrees + minutes / 60 + seconds / 3600)
