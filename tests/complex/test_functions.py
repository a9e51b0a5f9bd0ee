"""Functions of complex numbers in programs, on every back end, against NumPy and SciPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import hlojit
import numpy as np
import pytest


@pytest.fixture(autouse=True, scope="module")
def simulator(request: pytest.FixtureRequest) -> Iterator[None]:
    """The back end ``cuda`` runs on the simulator, unless there is a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.config.getoption("--gpu", default=False):
            patch.setenv("HLOJIT_CUDA", "simulator")
        yield


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "chlo.acos": np.arccos,
    "chlo.acosh": np.arccosh,
    "chlo.asin": np.arcsin,
    "chlo.asinh": np.arcsinh,
    "chlo.atan": np.arctan,
    "chlo.atanh": np.arctanh,
    "chlo.conj": np.conj,
    "chlo.cosh": np.cosh,
    "chlo.sinh": np.sinh,
    "chlo.square": np.square,
    "chlo.tan": np.tan,
    "stablehlo.cbrt": lambda z: np.exp(np.log(z) / 3),
    "stablehlo.cosine": np.cos,
    "stablehlo.exponential": np.exp,
    "stablehlo.exponential_minus_one": np.expm1,
    "stablehlo.log": np.log,
    "stablehlo.log_plus_one": np.log1p,
    "stablehlo.logistic": lambda z: 1 / (1 + np.exp(-z)),
    "stablehlo.rsqrt": lambda z: 1 / np.sqrt(z),
    "stablehlo.sine": np.sin,
    "stablehlo.sqrt": np.sqrt,
    "stablehlo.tan": np.tan,
    "stablehlo.tanh": np.tanh,
}


def points(element: str, count: int = 37) -> np.ndarray:
    generator = np.random.default_rng(2)
    parts = generator.normal(size=(count, 2)) * np.exp(generator.normal(size=(count, 2)))
    return (parts[:, 0] + 1j * parts[:, 1]).astype({"f32": "c8", "f64": "c16"}[element])


def assert_close(found: np.ndarray, wanted: np.ndarray, units: float) -> None:
    """As vectors: NumPy's own parts are off where they cancel."""
    assert found.dtype.kind == "c"
    gap = np.abs(found - wanted) / np.abs(wanted)
    assert np.max(gap) <= units * np.finfo(found.dtype).eps, (found[np.argmax(gap)], wanted[np.argmax(gap)])


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_functions_of_one_number(backend: str, element: str) -> None:
    z = points(element)
    type = f"tensor<{z.size}xcomplex<{element}>>"
    lines = [
        f"%{number} = {name} %z : {type} -> {type}" if name.startswith("chlo") else f"%{number} = {name} %z : {type}"
        for number, name in enumerate(FUNCTIONS)
    ]
    names = ", ".join(f"%{number}" for number in range(len(lines)))
    types = ", ".join([type] * len(lines))
    text = f"func.func @main(%z: {type}) -> ({types}) {{\n" + "\n".join(lines) + f"\nreturn {names} : {types}\n}}"
    for name, found in zip(FUNCTIONS, hlojit.compile(text, backend=backend)(z)):
        wanted = FUNCTIONS[name](z.astype(np.complex128))
        assert_close(np.asarray(found), wanted, 8 if element == "f64" else 1)


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("backend", ["cpu", "cuda", "reference"])
def test_powers_and_angles(backend: str, element: str) -> None:
    z, w = points(element), points(element)[::-1].copy()
    type = f"tensor<{z.size}xcomplex<{element}>>"
    text = f"""
    func.func @main(%z: {type}, %w: {type}) -> ({type}, {type}) {{
      %0 = stablehlo.power %z, %w : {type}
      %1 = stablehlo.atan2 %z, %w : {type}
      return %0, %1 : {type}, {type}
    }}"""
    power, angle = (np.asarray(result) for result in hlojit.compile(text, backend=backend)(z, w))
    z, w = z.astype(np.complex128), w.astype(np.complex128)
    assert_close(power, z**w, 200 if element == "f64" else 4)
    assert_close(angle, -1j * np.log((w + 1j * z) / np.sqrt(w * w + z * z)), 2000 if element == "f64" else 4)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_kernel_of_inverse_sines_gives_all_four(backend: str) -> None:
    z = points("f64")
    type = f"tensor<{z.size}xcomplex<f64>>"
    text = f"""
    func.func @main(%z: {type}) -> {type} {{
      %0 = "chlo._asin_acos_kernel"(%z) : ({type}) -> {type}
      return %0 : {type}
    }}"""
    kernel = np.asarray(hlojit.compile(text, backend=backend)(z))
    sine = np.arctan2(z.real, kernel.real) + 1j * np.copysign(kernel.imag, z.imag)
    np.testing.assert_allclose(sine, np.arcsin(z), rtol=1e-12)
    cosine = np.arctan2(kernel.real, z.real) - 1j * np.copysign(kernel.imag, z.imag)
    np.testing.assert_allclose(cosine, np.arccos(z), rtol=1e-12)


INF, NAN, MOST = np.inf, np.nan, np.finfo(np.float64).max
AT_HARD_PLACES = {
    "stablehlo.exponential": [(complex(a, b), complex(NAN, NAN)) for a in (INF, -INF, 1.0) for b in (INF, -INF)],
    "stablehlo.log_plus_one": [
        (complex(0, 1e-160), complex(5e-321, 1e-160)),  # y^2 / 2
        (
            complex(-(2.0**-41), 2.0**-20),
            complex(2.0**-83, 9.536743164063946e-07),
        ),  # 2x + y^2 is 0: x^2 / 2 is left
        (complex(-1e-20, 1e-320), complex(-1e-20, 1e-320)),
        (complex(MOST, -MOST), complex(710.1292864836639, -np.pi / 4)),
        (complex(-1, 0), complex(-INF, 0)),
        (complex(-INF, 1), complex(INF, np.pi)),
    ],
    "chlo.square": [
        (complex(MOST, -MOST), complex(0, -INF)),
        (complex(-INF, MOST), complex(INF, -INF)),
        (complex(1 + 2.0**-30, 1), complex(2.0**-29 + 2.0**-60, 2 + 2.0**-29)),
        (complex(3, 4), complex(-7, 24)),
    ],
}


@pytest.mark.parametrize("name", AT_HARD_PLACES)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_infinite_parts_and_what_cancellation_leaves(backend: str, name: str) -> None:
    """Worked out by hand, or by mpmath: each part by itself."""
    z, wanted = (np.array(values) for values in zip(*AT_HARD_PLACES[name]))
    type = f"tensor<{z.size}xcomplex<f64>>"
    text = f'func.func @main(%z: {type}) -> {type} {{ %0 = "{name}"(%z) : ({type}) -> {type} return %0 : {type} }}'
    found = np.asarray(hlojit.compile(text, backend=backend)(z))
    for part in ("real", "imag"):
        np.testing.assert_array_max_ulp(getattr(found, part), getattr(wanted, part), 2)
