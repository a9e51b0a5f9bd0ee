"""Functions of complex numbers, part by part: ``FUNCTIONS["exp"](b, real, imag)`` gives the result's parts.

Parts in f32 are computed in f64 and rounded once; parts in f64 by pairs of f64 (``hlojit.ir.scalar.wide_numbers``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from hlojit.ir.scalar import complex_arithmetic, complex_exponentials, complex_inverses, complex_roots
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.expression import Term

Rule = Callable[..., tuple[Scalar, Scalar]]


def _by_kind(formula: Callable[..., tuple[Term, Term]]) -> Rule:
    def rule(b: ScalarBuilder, *parts: Scalar) -> tuple[Scalar, Scalar]:
        terms = [Term(b, part) for part in parts]
        if parts[0].kind == "f64":
            real, imag = formula(*terms, True)
            return real.value, imag.value
        real, imag = formula(*(term.widen() for term in terms), False)
        return real.narrow().value, imag.narrow().value

    return rule


_FORMULAS: Final[tuple[Callable[..., Any], ...]] = (
    complex_exponentials.cos,
    complex_exponentials.cosh,
    complex_exponentials.exp,
    complex_exponentials.expm1,
    complex_exponentials.logistic,
    complex_exponentials.sin,
    complex_exponentials.sinh,
    complex_exponentials.tan,
    complex_exponentials.tanh,
    complex_inverses.acos,
    complex_inverses.acosh,
    complex_inverses.asin,
    complex_inverses.asin_acos_kernel,
    complex_inverses.asinh,
    complex_inverses.atan,
    complex_inverses.atanh,
    complex_inverses.log,
    complex_inverses.log1p,
    complex_roots.atan2,
    complex_roots.cbrt,
    complex_roots.power,
    complex_roots.rsqrt,
    complex_roots.sqrt,
    complex_roots.square,
)

FUNCTIONS: Final[Mapping[str, Rule]] = {
    **{formula.__name__: _by_kind(formula) for formula in _FORMULAS},
    **complex_arithmetic.RULES,
}
"""``rule(b, real, imag)``, for ``power``, ``atan2`` and ``divide`` ``rule(b, real, imag, real, imag)``, by name."""
