"""What C's Annex G (ISO/IEC 9899:2018, G.6; the same as C99's but for ctanh of 0 + i inf) requires of infinities, NaN and zeros.

A row says what a function gives where the imaginary part has no minus sign; the rest follows from f(conj z) = conj f(z), and of
odd and even functions from that.  Arguments: ``0`` and ``-0``, ``inf``, ``-inf``, ``nan``, ``1``, ``finite`` (any finite number,
zeros too), ``other`` (finite and not zero), ``positive`` (without a minus sign, finite, zero too), ``number`` (not NaN and not zero), ``any``.
Results: ``0?`` and ``inf?`` are those whose sign is left open; ``inf*cos`` is infinity times the cosine of the imaginary part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

ROWS: Final = {
    "acos": """
        0 0 -> pi/2 -0 | -0 0 -> pi/2 -0 | 0 nan -> pi/2 nan | -0 nan -> pi/2 nan | finite inf -> pi/2 -inf
        other nan -> nan nan | -inf positive -> pi -inf | inf positive -> 0 -inf | -inf inf -> 3pi/4 -inf
        inf inf -> pi/4 -inf | inf nan -> nan inf? | -inf nan -> nan inf? | nan finite -> nan nan | nan inf -> nan -inf
        nan nan -> nan nan""",
    "acosh": """
        0 0 -> 0 pi/2 | -0 0 -> 0 pi/2 | finite inf -> inf pi/2 | 0 nan -> nan pi/2? | -0 nan -> nan pi/2?
        other nan -> nan nan | -inf positive -> inf pi | inf positive -> inf 0 | -inf inf -> inf 3pi/4
        inf inf -> inf pi/4 | inf nan -> inf nan | -inf nan -> inf nan | nan finite -> nan nan | nan inf -> inf nan
        nan nan -> nan nan""",
    "asinh": """
        0 0 -> 0 0 | positive inf -> inf pi/2 | finite nan -> nan nan | inf positive -> inf 0 | inf inf -> inf pi/4
        inf nan -> inf nan | nan 0 -> nan 0 | nan other -> nan nan | nan inf -> inf? nan | nan nan -> nan nan""",
    "atanh": """
        0 0 -> 0 0 | 0 nan -> 0 nan | 1 0 -> inf 0 | positive inf -> 0 pi/2 | other nan -> nan nan | inf positive -> 0 pi/2
        inf inf -> 0 pi/2 | inf nan -> 0 nan | nan finite -> nan nan | nan inf -> 0? pi/2 | nan nan -> nan nan""",
    "cosh": """
        0 0 -> 1 0 | 0 inf -> nan 0? | 0 nan -> nan 0? | other inf -> nan nan | other nan -> nan nan | inf 0 -> inf 0
        inf other -> inf*cos inf*sin | inf inf -> inf? nan | inf nan -> inf nan | nan 0 -> nan 0? | nan number -> nan nan
        nan nan -> nan nan""",
    "sinh": """
        0 0 -> 0 0 | 0 inf -> 0? nan | 0 nan -> 0? nan | other inf -> nan nan | other nan -> nan nan | inf 0 -> inf 0
        inf other -> inf*cos inf*sin | inf inf -> inf? nan | inf nan -> inf? nan | nan 0 -> nan 0 | nan number -> nan nan
        nan nan -> nan nan""",
    "tanh": """
        0 0 -> 0 0 | 0 inf -> 0 nan | other inf -> nan nan | 0 nan -> 0 nan | other nan -> nan nan
        inf positive -> 1 0*sin*cos | inf inf -> 1 0? | inf nan -> 1 0? | nan 0 -> nan 0 | nan number -> nan nan
        nan nan -> nan nan""",
    "exp": """
        0 0 -> 1 0 | -0 0 -> 1 0 | finite inf -> nan nan | finite nan -> nan nan | inf 0 -> inf 0
        -inf finite -> 0*cos 0*sin | inf other -> inf*cos inf*sin | -inf inf -> 0? 0? | inf inf -> inf? nan
        -inf nan -> 0? 0? | inf nan -> inf? nan | nan 0 -> nan 0 | nan number -> nan nan | nan nan -> nan nan""",
    "log": """
        -0 0 -> -inf pi | 0 0 -> -inf 0 | finite inf -> inf pi/2 | finite nan -> nan nan | -inf positive -> inf pi
        inf positive -> inf 0 | -inf inf -> inf 3pi/4 | inf inf -> inf pi/4 | inf nan -> inf nan | -inf nan -> inf nan
        nan finite -> nan nan | nan inf -> inf nan | nan nan -> nan nan""",
    "sqrt": """
        0 0 -> 0 0 | -0 0 -> 0 0 | any inf -> inf inf | finite nan -> nan nan | -inf positive -> 0 inf | inf positive -> inf 0
        -inf nan -> nan inf? | inf nan -> inf nan | nan finite -> nan nan | nan nan -> nan nan""",
}
"""By function; ``sin``, ``cos``, ``tan``, ``asin`` and ``atan`` are those of iz, see ``TURNED``."""

ODD: Final = frozenset({"asinh", "atanh", "sinh", "tanh"})
EVEN: Final = frozenset({"cosh"})
TURNED: Final = {"asin": "asinh", "atan": "atanh", "sin": "sinh", "tan": "tanh", "cos": "cosh"}
"""f(z) = -i g(iz); the cosine is cosh(iz)."""

_CLASSES: Final[dict[str, Callable[[float], bool]]] = {
    "finite": math.isfinite,
    "other": lambda x: math.isfinite(x) and x != 0,
    "positive": lambda x: math.isfinite(x) and math.copysign(1, x) > 0,
    "number": lambda x: not math.isnan(x) and x != 0,
    "any": lambda x: True,
}
_MULTIPLES: Final = {"pi/4": 0.25, "pi/2": 0.5, "3pi/4": 0.75, "pi": 1.0}


def same(x: float, y: float) -> bool:
    """Equal, zeros with their signs, or both NaN."""
    return (math.isnan(x) and math.isnan(y)) or (x == y and math.copysign(1, x) == math.copysign(1, y))


def _fits(x: float, name: str) -> bool:
    return _CLASSES[name](x) if name in _CLASSES else same(x, float(name))


def _value(name: str, y: float) -> float:
    """The number that a result's name stands for."""
    name = name.rstrip("?")
    sign, name = (-1.0, name[1:]) if name.startswith("-") else (1.0, name)
    if "*" in name:
        size, *factors = name.split("*")
        circle = math.prod(math.sin(y) if factor == "sin" else math.cos(y) for factor in factors)
        return float(size) * circle
    return sign * (_MULTIPLES[name] * math.pi if name in _MULTIPLES else float(name))


Part = tuple[float, bool]
"""A value, and whether its sign is left open."""


def required(function: str, z: complex) -> tuple[Part, Part] | None:
    """What Annex G requires of both parts, or None where it is silent (numbers and their functions)."""
    if function in TURNED:
        turned = required(TURNED[function], complex(-z.imag, z.real))
        if turned is None or function == "cos":
            return turned
        (real, open_real), (imag, open_imag) = turned
        return (imag, open_imag), (-real, open_real)
    if math.copysign(1, z.imag) < 0 and not math.isnan(z.imag):
        return _conjugate(required(function, z.conjugate()))
    if function in ODD | EVEN and math.copysign(1, z.real) < 0 and not math.isnan(z.real):
        # f(-conj z) is -conj f(z) of odd functions, conj f(z) of even ones
        found = _conjugate(required(function, complex(-z.real, z.imag)))
        return found if function in EVEN or found is None else _negated(found)
    for row in ROWS[function].replace("\n", "|").split("|"):
        if not row.strip():
            continue
        wanted, found_names = (side.split() for side in row.split("->"))
        if all(map(_fits, (z.real, z.imag), wanted)):
            real, imag = ((_value(name, z.imag), name.endswith("?")) for name in found_names)
            return real, imag
    return None


def _conjugate(parts: tuple[Part, Part] | None) -> tuple[Part, Part] | None:
    return parts and (parts[0], (-parts[1][0], parts[1][1]))


def _negated(parts: tuple[Part, Part]) -> tuple[Part, Part]:
    (real, open_real), (imag, open_imag) = parts
    return (-real, open_real), (-imag, open_imag)
