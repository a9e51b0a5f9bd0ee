"""Functions of ``math`` in elementwise calls: what compiled code computes where Python raises, on the reference too."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest

NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 200.0, -200.5, -745.0, 8315.0, 1e-320, math.inf, -math.inf, math.nan)
UNARY = (
    *("sqrt", "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "gamma", "lgamma", "erf", "erfc", "floor", "ceil", "trunc"),
    *("fabs", "degrees", "radians"),
)


def of_one(name: str) -> Callable[..., Any]:
    function = getattr(math, name)
    return lambda x: float(function(x))


def helper(x: float) -> float:
    return math.exp(-x)


def swish(x: float) -> float:
    return x / (1.0 + helper(x))


FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    **{name: (1, of_one(name)) for name in UNARY},
    "swish": (1, swish),
    "divided": (1, lambda x: 1.0 / (1.0 / math.exp(x) - 0.0)),
    "pow": (2, lambda x, y: math.pow(x, y)),
    "power": (2, lambda x, y: x**y),
    "atan2": (2, lambda x, y: math.atan2(x, y)),
    "hypot": (2, lambda x, y: math.hypot(x, y)),
    "ldexp": (2, lambda x, y: math.ldexp(x, 3000 if y > 0 else -3000)),
}


class Plugin:
    @ext.hookimpl
    def hlojit_custom_calls(self) -> list[ext.ElementwiseCall]:
        return [ext.ElementwiseCall(f"m.{name}", function=each) for name, (_, each) in FUNCTIONS.items()]


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    with ext.using(Plugin()):
        yield


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, np.ndarray[Any, Any]]]:
    """All functions in one program, on both back ends: by back end and name."""
    arguments: list[np.ndarray[Any, Any]] = []
    for count in (1, 2):
        points = np.array(list(itertools.product(NUMBERS, repeat=count)))
        arguments += list(points.T.copy())
    short, long = (f"tensor<{len(NUMBERS) ** count}xf64>" for count in (1, 2))
    lines, results = [], []
    for place, (name, (count, _)) in enumerate(FUNCTIONS.items()):
        kind, names = (short, "%x") if count == 1 else (long, "%y, %z")
        lines.append(f"%{place} = stablehlo.custom_call @m.{name}({names}) : ({', '.join([kind] * count)}) -> {kind}")
        results.append((f"%{place}", kind))
    kinds, values = ", ".join(kind for _, kind in results), ", ".join(value for value, _ in results)
    text = f"func.func @main(%x: {short}, %y: {long}, %z: {long}) -> ({kinds}) {{\n" + "\n".join(lines)
    text += f"\nreturn {values} : {kinds} }}"
    return {
        backend: dict(zip(FUNCTIONS, map(np.asarray, hlojit.compile(text, backend=backend)(*arguments))))
        for backend in ("cpu", "reference")
    }


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_reference_computes_what_kernels_do(name: str, found: dict[str, dict[str, np.ndarray[Any, Any]]]) -> None:
    compiled, meant = found["cpu"][name], found["reference"][name]
    np.testing.assert_allclose(compiled, meant, rtol=1e-13, atol=0)
    numbers = ~np.isnan(meant)
    np.testing.assert_array_equal(np.signbit(compiled)[numbers], np.signbit(meant)[numbers])


def test_what_a_function_raises_itself_is_named() -> None:
    def refused(x: float) -> float:
        if math.exp(x) > 1.0:
            raise ValueError("not for me")
        return x

    plugin = type("Refuses", (), {})()
    plugin.hlojit_custom_calls = ext.hookimpl(lambda: [ext.ElementwiseCall("m.refused", function=refused)])
    text = """func.func @main(%x: tensor<2xf64>) -> tensor<2xf64> {
      %0 = stablehlo.custom_call @m.refused(%x) : (tensor<2xf64>) -> tensor<2xf64>
      return %0 : tensor<2xf64> }"""
    with (
        ext.using(plugin),
        pytest.raises(hlojit.HlojitError, match=r"'m.refused': its function raised ValueError\('not for me'\)"),
    ):
        hlojit.compile(text, backend="reference")(np.array([0.0, 8315.0]))
