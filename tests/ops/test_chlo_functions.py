"""CHLO's functions of two numbers, its Bessel function and its products' upper halves, on every back end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hlojit
import mpmath
import numpy as np
import pytest
from hlojit.ir.formats import FloatFormat, IntegerType, element_type
from hlojit.ir.scalar.arrays import from_bits, to_bits
from mpmath import mpf

from tools.real_accuracy import hurwitz_zeta, polygamma

DTYPES: dict[str, Any] = {"f32": np.float32, "f64": np.float64}
BACKENDS = ("cpu", "cuda", "reference")
FLOATS = ("f4E2M1FN", "f6E2M3FN", "f6E3M2FN", "f8E3M4", "f8E4M3", "f8E4M3B11FNUZ", "f8E4M3FN", "f8E4M3FNUZ")
FLOATS += ("f8E5M2", "f8E5M2FNUZ", "f8E8M0FNU")
INTEGERS = [f"{prefix}{bits}" for prefix in ("i", "ui") for bits in (2, 4, 8, 16, 32, 64)]


@pytest.fixture(autouse=True, scope="module")
def simulator(request: pytest.FixtureRequest) -> Iterator[None]:
    """The back end ``cuda`` runs on the simulator, unless there is a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.config.getoption("--gpu", default=False):
            patch.setenv("HLOJIT_CUDA", "simulator")
        yield


def run(op: str, element: str, backend: str, *arrays: np.ndarray) -> np.ndarray:
    type = f"tensor<{arrays[0].size}x{element}>"
    names = [f"%{number}" for number in range(len(arrays))]
    arguments = ", ".join(f"{name}: {type}" for name in names)
    kinds = ", ".join([type] * len(arrays))
    text = f"func.func @main({arguments}) -> {type} {{\n %r = chlo.{op} {', '.join(names)} : {kinds} -> {type}\n"
    result: Any = hlojit.compile(text + f" return %r : {type}\n}}", backend=backend)(*arrays)
    return np.asarray(result)


def integers(name: str) -> np.ndarray:
    element = element_type(name)
    assert isinstance(element, IntegerType)
    if element.bits <= 4:
        return np.arange(element.minimum, element.maximum + 1)
    lowest, highest = element.minimum, element.maximum
    edges = [lowest, lowest + 1, 0, 1, 2, 3, highest - 1, highest, highest // 3]
    drawn = np.random.default_rng(element.bits).integers(lowest, highest, 20, element.storage)
    return np.array([*edges, *drawn.tolist()], object)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", INTEGERS)
def test_mulhi_is_the_upper_half_of_the_product(name: str, backend: str) -> None:
    element = element_type(name)
    values = integers(name)
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    wanted = [(int(a) * int(b)) >> element.bits for a, b in zip(x, y)]
    found = run("mulhi", name, backend, x.astype(element.dtype), y.astype(element.dtype))
    assert [int(value) for value in found] == wanted


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FLOATS)
def test_next_after_steps_through_all_numbers_of_a_format(name: str, backend: str) -> None:
    format = element_type(name)
    assert isinstance(format, FloatFormat)
    codes = np.arange(1 << format.bits, dtype=np.uint8)
    values = from_bits(codes, format).astype(np.float64)
    ordered = sorted({float(value) for value in values if not np.isnan(value)})
    x, y = (values[np.random.default_rng(seed).integers(0, len(values), 400)] for seed in (1, 2))
    found = run("next_after", name, backend, x.astype(format.dtype), y.astype(format.dtype)).astype(np.float64)
    for a, b, value in zip(x, y, found):
        if np.isnan(a) or np.isnan(b):
            assert np.isnan(value)
            continue
        place = ordered.index(a) + (b > a) - (b < a)
        assert value == ordered[place], (a, b)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("element", "dtype"), [("f32", np.float32), ("f64", np.float64)])
def test_next_after_is_numpy_s(element: str, dtype: Any, backend: str) -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 3e38, np.inf, -np.inf, np.nan, np.finfo(dtype).max], dtype)
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    found, wanted = run("next_after", element, backend, x, y), _numpy_s(x, y)
    np.testing.assert_array_equal(found, wanted)
    known = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(wanted[known]))


def _numpy_s(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.nextafter(x, y)


def units(found: np.ndarray, exact: list[Any]) -> float:
    """The largest error in units in the last place of the exact value."""
    info = np.finfo(found.dtype)
    worst = 0.0
    for value, wanted in zip(found.tolist(), exact):
        exponent = max(mpmath.frexp(wanted)[1] - 1, info.minexp)
        worst = max(worst, float(abs(mpf(value) - wanted) / mpf(2) ** (exponent - info.nmant)))
    return worst


def points(dtype: Any, low: float, high: float, count: int) -> np.ndarray:
    return np.exp(np.random.default_rng(3).uniform(low, high, count)).astype(dtype)


@pytest.mark.parametrize(("element", "bound"), [("f32", 0.6), ("f64", 3.0)])
def test_zeta_is_close(element: str, bound: float) -> None:
    dtype = DTYPES[element]
    s = np.concatenate([1 + points(dtype, -13, 5, 30), [1.5, 2, 3, 20, 1000]]).astype(dtype)
    q = np.concatenate([points(dtype, -5, 12, 30), [1, 0.5, 1e-3, 100, 2]]).astype(dtype)
    with mpmath.workdps(60):
        exact = [hurwitz_zeta(mpf(a), mpf(b)) for a, b in zip(s.tolist(), q.tolist())]
        for backend in ("cpu", "cuda"):
            assert units(run("zeta", element, backend, s, q), exact) < bound


@pytest.mark.parametrize(("element", "bound"), [("f32", 0.6), ("f64", 3.0)])
def test_zeta_on_the_left_sums_both_sides(element: str, bound: float) -> None:
    q = np.array([-0.5, -1.5, -0.25, -100.75, -7.125, -1e-3, -3.5, -8.5], DTYPES[element])
    s = np.array([2, 3, 4, 5, 2, 3, 11, 2], DTYPES[element])
    with mpmath.workdps(60):
        exact = []
        for a, b in zip(s.tolist(), q.tolist()):
            count = int(mpmath.ceil(-b))
            exact.append(sum((mpf(b) + k) ** -int(a) for k in range(count)) + hurwitz_zeta(mpf(a), mpf(b) + count))
        assert units(run("zeta", element, "cpu", s, q), exact) < bound


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_zeta_at_its_borders(element: str, backend: str) -> None:
    inf, nan = np.inf, np.nan
    rows = [(1, 1, inf), (0.5, 1, nan), (2, 0, inf), (3, 0, nan), (2.5, -1.5, nan), (2, -3, inf), (3, -3, nan)]
    rows += [(inf, 1, 1), (inf, 2, 0), (2, inf, 0), (2, nan, nan), (nan, 1, nan)]
    s, q, wanted = (np.array(column, DTYPES[element]) for column in zip(*rows))
    np.testing.assert_array_equal(run("zeta", element, backend, s, q), wanted)


@pytest.mark.parametrize(("element", "bound"), [("f32", 0.6), ("f64", 3.0)])
def test_polygamma_is_close(element: str, bound: float) -> None:
    n = np.array([0, 1, 2, 3, 4, 5, 10, 20] * 4, DTYPES[element])
    x = points(DTYPES[element], -1, 5, 32)
    with mpmath.workdps(60):
        exact = [polygamma(a, mpf(b)) for a, b in zip(n.tolist(), x.tolist())]
        for backend in ("cpu", "cuda"):
            assert units(run("polygamma", element, backend, n, x), exact) < bound


@pytest.mark.parametrize("backend", BACKENDS)
def test_polygamma_of_large_orders_neither_overflows_nor_vanishes_on_the_way(backend: str) -> None:
    n = np.array([60000.0, 1000.0, 60000.0, 1001.0, 3000.0, 5001.0, np.inf])
    x = np.array([2.5, 60000.0, 1e15, 400.0, 1150.0, 1900.0, 2.0])
    found = run("polygamma", "f64", backend, n, x)
    assert found[:3].tolist() == [-np.inf, 0.0, 0.0] and np.isnan(found[6])
    with mpmath.workdps(60):
        exact = [
            (-1) ** (int(a) + 1) * mpmath.exp(mpmath.loggamma(a + 1) - (a + 1) * mpmath.log(b))
            for a, b in zip(n[3:6], x[3:6])
        ]
        exact = [
            value * sum((mpf(b) / (b + k)) ** (a + 1) for k in range(400)) for value, a, b in zip(exact, n[3:6], x[3:6])
        ]
    np.testing.assert_allclose(found[3:6], [float(value) for value in exact], rtol=1e-10)


def test_polygamma_neither_overflows_nor_vanishes_on_the_way() -> None:
    n, x = np.array([170.0, 200.0, 0.5, -1.0]), np.array([150.0, 60.0, 1.0, 1.0])
    found = run("polygamma", "f64", "cpu", n, x)
    with mpmath.workdps(60):
        exact = [polygamma(a, mpf(b)) for a, b in zip(n[:2], x)]
    np.testing.assert_allclose(found[:2], [float(value) for value in exact], rtol=1e-12)
    assert np.all(np.isnan(found[2:]))


@pytest.mark.parametrize(("element", "bound"), [("f32", 0.6), ("f64", 4.0)])
def test_bessel_i1e_is_close(element: str, bound: float) -> None:
    edges = np.array([0.0, -0.0, 15.999, 16.0, 16.01, -1.0, 1e30])
    plain = [np.linspace(-40, 40, 41), np.linspace(9, 16, 71), np.array([12.229414853713427, 11.40172543135784])]
    x = np.concatenate([*plain, points(DTYPES[element], -20, 20, 30), edges]).astype(DTYPES[element])
    with mpmath.workdps(60):
        exact = [mpmath.besseli(1, mpf(v)) * mpmath.exp(-abs(mpf(v))) for v in x.tolist()]
        for backend in ("cpu", "cuda"):
            assert units(run("bessel_i1e", element, backend, x), exact) < bound


def test_bessel_i1e_keeps_signs_and_nan() -> None:
    found = run("bessel_i1e", "f32", "cpu", np.array([-0.0, np.inf, -np.inf, np.nan], np.float32))
    np.testing.assert_array_equal(found, [0, 0, 0, np.nan])
    assert np.signbit(found[0])


def test_bits_of_a_step_are_those_of_the_reference() -> None:
    format = element_type("bf16")
    assert isinstance(format, FloatFormat)
    x = from_bits(np.array([0, 1, 0x3F80, 0x7F7F, 0x8000], np.uint16), format)
    up = run("next_after", "bf16", "cpu", x.astype(format.dtype), np.full(5, np.inf).astype(format.dtype))
    np.testing.assert_array_equal(to_bits(up.astype(np.float32), format), [1, 2, 0x3F81, 0x7F80, 1])
