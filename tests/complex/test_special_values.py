"""Infinities, NaN and signs of zeros: every complex op on a grid, by its rule, compiled and by the reference.

The oracles are Annex G of the C standard, NumPy, limits by mpmath, and rows by hand for what none of them names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mpc, mpf

from tests.complex import annex_g
from tests.complex.special_values import (
    DTYPES,
    OF_ONE,
    OF_TWO,
    RULES,
    Array,
    grid,
    pairs_of,
    parts_of,
    report,
    results,
    unlike,
)

WAYS = ("rules", "reference", pytest.param("cpu", marks=pytest.mark.slow))
ELEMENTS = ("f32", "f64")
INF, NAN = math.inf, math.nan
TINY = 5e-324
"""Stands for the least number of the type."""


def fits(found: float, wanted: annex_g.Part, tolerance: float) -> bool:
    value, is_open = wanted
    if math.isnan(value) or math.isnan(found):
        return math.isnan(value) and math.isnan(found)
    if is_open:
        found, value = abs(found), abs(value)
    if value == 0 or math.isinf(value):
        return annex_g.same(found, value)
    return abs(found - value) <= tolerance * abs(value)


def required(function: str, z: complex) -> tuple[annex_g.Part, annex_g.Part] | None:
    """What Annex G requires; of an exponential with an infinite angle what StableHLO's tables of its math tests have."""
    if function == "exp" and math.isinf(z.real) and math.isinf(z.imag):
        return (NAN, False), (NAN, False)
    return annex_g.required(function, z)


NAMED_BY_C = sorted([*annex_g.ROWS, *annex_g.TURNED])


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("way", WAYS)
def test_functions_are_those_of_annex_g(way: str, element: str) -> None:
    z = grid(element, large=True)
    tolerance = 4 * float(np.finfo(z.dtype).eps)
    for name, found in zip(NAMED_BY_C, results(element, way, NAMED_BY_C, z)):
        wrong = []
        for point, value in zip(z.tolist(), found.tolist()):
            wanted = required(name, point)
            if wanted and not all(map(fits, (value.real, value.imag), wanted, (tolerance, tolerance))):
                wrong.append((point, value, wanted))
        assert not wrong, (name, wrong[:5])


def test_the_table_is_also_that_of_numpy() -> None:
    """NumPy, by the C library, follows Annex G: a table that was read wrong differs from it."""
    z = grid("f64", large=True)
    for name in NAMED_BY_C:
        function = getattr(np, name.replace("a", "arc", 1) if name.startswith("a") else name)
        with np.errstate(all="ignore"):
            found = function(z)
        for point, value in zip(z.tolist(), found.tolist()):
            wanted = annex_g.required(name, point)
            assert not wanted or all(map(fits, (value.real, value.imag), wanted, (1e-15, 1e-15))), (name, point, value)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("way", [way for way in WAYS if way != "reference"])
def test_functions_of_one_number_beside_the_reference(way: str, element: str) -> None:
    z = grid(element, large=True)
    names = [name for name in OF_ONE if way != "rules" or name in RULES]
    for name, *found in zip(names, *(results(element, each, names, z) for each in (way, "reference"))):
        # the reference loses digits beside the poles of a function of large angles
        where = unlike(found[0], found[1], units=1e5 if name == "logistic" else 8.0)
        assert not where.any(), (name, report(where, [z], *found))


def has_a_direction(x: Array, y: Array) -> Array:
    """Whether rounding does not decide the signs of a power's parts: its angle is zero, or neither large nor near an axis."""
    with np.errstate(all="ignore"):
        logarithm = np.log(x.astype(np.complex128))
        first, second = logarithm.real * y.imag, logarithm.imag * y.real
        angle = np.nan_to_num(first, nan=0.0) + np.nan_to_num(second, nan=0.0)
        quarters = angle / (math.pi / 2)
        return (
            ((angle == 0) & (x.imag == 0))
            | ~np.isfinite(angle)
            | ((np.abs(quarters - np.rint(quarters)) > 1e-6) & (np.abs(angle) < 1e4))
        )


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize(
    ("way", "large"), [("rules", False), ("cpu", False), pytest.param("cpu", True, marks=pytest.mark.slow)]
)
def test_functions_of_two_numbers_beside_the_reference(way: str, large: bool, element: str) -> None:
    # beside ordinary numbers products of the least one are zeros or not as they are rounded
    x, y = pairs_of(grid(element, large=large, extremes=not large))
    names = [name for name in OF_TWO if name != "atan2" and (way == "cpu" or name in RULES)]
    for name, *found in zip(names, *(results(element, each, names, x, y) for each in (way, "reference"))):
        where = unlike(found[0], found[1], units=1e4 if name == "power" else 8.0)
        where &= has_a_direction(x, y) if name == "power" else True
        assert not where.any(), (name, report(where, [x, y], *found))


@pytest.mark.parametrize("element", ELEMENTS)
def test_angles_beside_the_reference(element: str) -> None:
    """Where the root or the logarithm is cut, zeros decide among angles that differ by a multiple of pi."""
    y, x = pairs_of(grid(element, extremes=False))
    found, wanted = (results(element, way, ["atan2"], y, x)[0] for way in ("rules", "reference"))
    flat = (y.imag == 0) & (x.imag == 0)
    where = unlike(found, wanted) & flat
    sides = []
    for angle in (found, wanted):
        twice = 2 * angle.real.astype(np.float64)
        sides.append([np.cos(twice), np.sin(twice), angle.imag])
    where |= ~np.isclose(*sides, rtol=1e-6, atol=1e-6, equal_nan=True).all(axis=0)
    assert not where.any(), report(where, [y, x], found, wanted)


@pytest.mark.parametrize("way", WAYS)
def test_angles_at_poles_and_of_nan(way: str) -> None:
    y = np.array([1j, -1j, -1 + 1j, 0.0, complex(0, NAN), INF, complex(INF, 1)])
    x = np.array([1, 1, -1 - 1j, complex(0, NAN), 0.0, 1, 1])
    (found,) = results("f64", way, ["atan2"], y, x)
    np.testing.assert_array_equal(found.real, [NAN, NAN, NAN, NAN, NAN, math.pi / 2, NAN])
    np.testing.assert_array_equal(found.imag, [INF, -INF, -INF, NAN, NAN, 0, NAN])


# what Annex G does not name: the rules of docs/numerics.md

ROWS = {
    "cbrt": [
        ((-0.0, 0.0), (0.0, 0.0)),
        ((0.0, -0.0), (0.0, -0.0)),
        ((INF, 1.0), (INF, 0.0)),
        ((INF, -1.0), (INF, -0.0)),
        ((-INF, 1.0), (INF, INF)),
        ((1.0, -INF), (INF, -INF)),
        ((INF, NAN), (INF, NAN)),
        ((NAN, INF), (INF, NAN)),
        ((1.0, NAN), (NAN, NAN)),
    ],
    "expm1": [
        ((-0.0, -0.0), (-0.0, -0.0)),
        ((0.0, TINY), (-0.0, TINY)),
        ((-INF, 1.0), (-1.0, 0.0)),
        ((-INF, NAN), (-1.0, 0.0)),
        ((-INF, INF), (NAN, NAN)),
        ((INF, 0.0), (INF, 0.0)),
        ((INF, NAN), (INF, NAN)),
        ((1.0, INF), (NAN, NAN)),
        ((NAN, 0.0), (NAN, 0.0)),
    ],
    "log1p": [
        ((-1.0, 0.0), (-INF, 0.0)),
        ((-0.0, 0.0), (0.0, 0.0)),
        ((-0.0, -0.0), (0.0, -0.0)),
        ((NAN, INF), (INF, NAN)),
        ((-INF, 1.0), (INF, math.pi)),
        ((NAN, 1.0), (NAN, NAN)),
    ],
    "logistic": [
        ((INF, 1.0), (1.0, 0.0)),
        ((INF, -1.0), (1.0, -0.0)),
        ((INF, NAN), (1.0, 0.0)),
        ((-INF, 1.0), (0.0, 0.0)),
        ((-INF, 2.0), (-0.0, 0.0)),
        ((-INF, INF), (0.0, 0.0)),
        ((1.0, INF), (NAN, NAN)),
        ((NAN, -0.0), (NAN, -0.0)),
    ],
    "rsqrt": [
        ((0.0, 0.0), (INF, NAN)),
        ((-0.0, 0.0), (INF, NAN)),
        ((INF, 1.0), (0.0, -0.0)),
        ((-INF, -1.0), (0.0, 0.0)),
        ((NAN, INF), (0.0, -0.0)),
        ((-1.0, 0.0), (0.0, -1.0)),
        ((-1.0, -0.0), (0.0, 1.0)),
        ((1.0, NAN), (NAN, NAN)),
    ],
    "sign": [
        ((-0.0, 0.0), (0.0, 0.0)),
        ((INF, 3.0), (NAN, 0.0)),
        ((1.0, -INF), (0.0, NAN)),
        ((NAN, 1.0), (NAN, NAN)),
        ((1.0, NAN), (NAN, NAN)),
        ((-2.0, -0.0), (-1.0, -0.0)),
    ],
    "square": [
        ((1.0, 1.0), (0.0, 2.0)),
        ((-1.0, 1.0), (0.0, -2.0)),
        ((0.0, TINY), (-0.0, 0.0)),
        ((INF, 1.0), (INF, INF)),
        ((INF, INF), (NAN, INF)),
        ((INF, 0.0), (INF, NAN)),
    ],
    "abs": [((NAN, -INF), (INF, 0.0)), ((INF, NAN), (INF, 0.0)), ((-0.0, -0.0), (0.0, 0.0)), ((NAN, 1.0), (NAN, 0.0))],
}
"""Arguments and results in parts."""
POWERS = [
    ((NAN, 1.0), (0.0, -0.0), (1.0, 0.0)),
    ((0.0, 0.0), (0.0, 0.0), (1.0, 0.0)),
    ((-0.0, 0.0), (2.0, 0.0), (0.0, 0.0)),
    ((0.0, 0.0), (1.0, 1.0), (0.0, 0.0)),
    ((0.0, 0.0), (-1.0, 0.0), (INF, NAN)),
    ((0.0, 0.0), (-1.0, 2.0), (NAN, NAN)),
    ((0.0, 0.0), (0.0, 1.0), (NAN, NAN)),
    ((INF, 0.0), (2.0, 0.0), (INF, 0.0)),
    ((INF, 0.0), (-1.0, 0.0), (0.0, 0.0)),
    ((INF, NAN), (2.0, 0.0), (INF, NAN)),
    ((2.0, 0.0), (INF, 0.0), (INF, 0.0)),
    ((0.5, 0.0), (INF, 0.0), (0.0, 0.0)),
    ((1.0, 0.0), (INF, 0.0), (1.0, 0.0)),
    ((1.0, 0.0), (NAN, 0.0), (1.0, 0.0)),
    ((2.0, 0.0), (NAN, 0.0), (NAN, 0.0)),
    ((2.0, 1.0), (INF, 0.0), (NAN, NAN)),
    ((2.0, 1.0), (NAN, 0.0), (NAN, NAN)),
]


def numbers(pairs: Sequence[tuple[float, ...]]) -> Array:
    result: Array = np.empty(len(pairs), np.complex128)
    result.real, result.imag = np.transpose(pairs)
    return result


def assert_same(found: Array, wanted: Array, *operands: Array) -> None:
    where = unlike(found, wanted, units=2.0)
    assert not where.any(), report(where, operands, found, wanted, most=20)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("way", WAYS)
def test_functions_that_annex_g_does_not_name(way: str, element: str) -> None:
    least = float(np.finfo(DTYPES[element]).smallest_subnormal)
    for name, rows in ROWS.items():
        z, wanted = (
            numbers([tuple(least if x == TINY else x for x in row[side]) for row in rows]).astype(DTYPES[element])
            for side in range(2)
        )
        assert_same(results(element, way, [name], z)[0], wanted, z)


@pytest.mark.parametrize("way", WAYS)
def test_powers_of_special_values(way: str) -> None:
    x, y, wanted = (numbers([row[side] for row in POWERS]) for side in range(3))
    assert_same(results("f64", way, ["power"], x, y)[0], wanted, x, y)


def is_infinite(z: complex) -> bool:
    return math.isinf(z.real) or math.isinf(z.imag)


def is_finite(z: complex) -> bool:
    return math.isfinite(z.real) and math.isfinite(z.imag)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("way", WAYS)
def test_quotients_by_the_rules_of_annex_g(way: str, element: str) -> None:
    """G.5.1: infinite by finite is infinite, finite by infinite zero, what is not zero by zero infinite; NumPy by numbers."""
    x, y = pairs_of(grid(element))
    (found,) = results(element, way, ["divide"], x, y)
    for a, b, quotient in zip(x.tolist(), y.tolist(), found.tolist()):
        if is_infinite(a) and is_finite(b):
            assert is_infinite(quotient), (a, b, quotient)
        elif is_finite(a) and is_infinite(b):
            assert quotient == 0, (a, b, quotient)
        elif a == a and a != 0 and b == 0:
            assert is_infinite(quotient), (a, b, quotient)
        elif is_infinite(a) and is_infinite(b):
            assert quotient != quotient, (a, b, quotient)
    ordinary = np.isin(np.abs(parts_of(x)), [0, 1]).all(axis=-1) & np.isin(np.abs(parts_of(y)), [0, 1]).all(axis=-1)
    ordinary &= y != 0
    assert_same(found[ordinary], x[ordinary] / y[ordinary], x[ordinary], y[ordinary])


@pytest.mark.parametrize("way", WAYS)
def test_what_numpy_divides_by_zero(way: str) -> None:
    x, y = np.array([1, -1j, 1 + 1j]), np.zeros(3, np.complex128)
    (found,) = results("f64", way, ["divide"], x, y)
    np.testing.assert_array_equal(parts_of(found), [[INF, NAN], [NAN, -INF], [INF, INF]])


# signs of zeros: those of the limit

LIMITS: dict[str, Callable[[Any], Any]] = {
    **{name: getattr(mpmath, name) for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh")},
    **{name: getattr(mpmath, name) for name in ("exp", "log", "sin", "sinh", "sqrt", "tan", "tanh")},
    "cbrt": lambda z: mpmath.exp(mpmath.log(z) / 3),
    "logistic": lambda z: 1 / (1 + mpmath.exp(-z)),
    "rsqrt": lambda z: 1 / mpmath.sqrt(z),
}
POLES = {"log": (0,), "rsqrt": (0,), "cbrt": (0,), "atanh": (1, -1), "atan": (1j, -1j)}


def near_zero(x: float, tiny: str) -> Any:
    return mpmath.sign(math.copysign(1, x)) * mpf(tiny) if x == 0 else mpf(x)


@pytest.mark.parametrize("way", WAYS)
def test_signs_of_zeros_are_those_of_limits(way: str) -> None:
    """With numbers just beside zero in its place, on its side."""
    parts = [sign * part for part in (0.0, 0.75, 1.0, 2.0) for sign in (1, -1)]
    z = numbers([(x, y) for x in parts for y in parts])
    for name, found in zip(LIMITS, results("f64", way, list(LIMITS), z)):
        for point, value in zip(z.tolist(), found.tolist()):
            if point in POLES.get(name, ()):
                continue
            with mpmath.workdps(150):
                limit = LIMITS[name](mpc(near_zero(point.real, "1e-40"), near_zero(point.imag, "1e-60")))
            for part, wanted in ((value.real, limit.real), (value.imag, limit.imag)):
                assert math.copysign(1, part) == mpmath.sign(wanted), (name, point, value)
                assert (part == 0) == (abs(wanted) < 1e-18), (name, point, value)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("names", [("exp", "sqrt", "sign"), pytest.param(tuple(OF_ONE), marks=pytest.mark.slow)])
def test_every_place_in_a_vector_gives_the_same(names: tuple[str, ...], element: str) -> None:
    """Lengths that leave elements beside whole vectors, alone and at the end of longer arrays."""
    z = grid(element)
    whole = results(element, "cpu", names, z)
    for count in (1, 37):
        for name, one, other in zip(names, whole, results(element, "cpu", names, z[-count:].copy())):
            where = unlike(other, one[-count:], units=0.0)
            assert not where.any(), (name, count, report(where, [z[-count:]], other, one[-count:]))


@pytest.mark.slow
@pytest.mark.parametrize("element", ELEMENTS)
def test_machines_with_threads_give_the_same(
    element: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if not request.config.getoption("--gpu", default=False):
        monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    z = grid(element)
    two = pairs_of(z[::3])
    for names, operands in ((tuple(OF_ONE), (z,)), (("divide", "multiply", "power"), two)):
        for name, *found in zip(names, *(results(element, way, names, *operands) for way in ("cuda", "cpu"))):
            where = unlike(found[0], found[1], units=4.0)
            assert not where.any(), (name, report(where, operands, *found))
