"""Functions of which numba would make other numbers than Python: refused with what to write, or equal on all back ends."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir.errors import PluginError

Array = np.ndarray[Any, Any]
LARGE = 2**53 + 1


def run(function: Callable[..., Any], x: Array, kind: str, result: str, backend: str) -> list[Any]:
    operand, wanted = f"tensor<{len(x)}x{kind}>", f"tensor<{len(x)}x{result}>"
    text = (
        f"func.func @main(%x: {operand}) -> {wanted} {{\n%0 = stablehlo.custom_call @test.f(%x) : ({operand}) -> {wanted}\n"
        f"return %0 : {wanted}\n}}"
    )
    hook = ext.hookimpl(lambda: [ext.ElementwiseCall("test.f", function=function)])
    with ext.using(SimpleNamespace(__name__="test", hlojit_custom_calls=hook)):
        found: list[Any] = np.asarray(hlojit.compile(text, backend=backend)(x)).tolist()
    return found


def either(x: Any) -> Any:
    if x > 0:
        return x
    return 0.5


def scaled(x: Any, *, scale: int = 3) -> Any:
    return x * scale


def joined(x: Any) -> Any:
    y = x if x > 0 else 0.5
    return y + 1


@pytest.mark.parametrize(("function", "kind", "result", "advice"), [
    (lambda x: max(x, 7), "ui64", "ui64", "write np.uint64"), (lambda x: min(9, x), "ui64", "ui64", "write np.uint64"),
    (lambda x: round(x), "ui64", "ui64", "is an integer already"), (lambda x: round(x), "i64", "i64", "is an integer already"),
    (lambda x: max(x, 0.5), "i64", "i64", r"write int\(x\)"), (lambda x: either(x), "i64", "i64", r"write int\(x\) there"),
    (joined, "i64", "i64", r"write int\(x\) or float\(x\)"), (lambda x: x**-2, "i32", "f64", r"write float\(x\) \*\* y"),
    (lambda x: 2**x, "i32", "f64", r"write float\(x\) \*\* y"), (lambda x: pow(x, x), "i64", "i64", r"write float\(x\) \*\* y"),
    (lambda x: ~(x > 3), "i32", "i32", "write not x"), (lambda x: scaled(x, 5), "i32", "i32", "write its name"),
    (lambda x: -x, "ui64", "i64", r"write -np.int64\(x\)"), (lambda x: x // 2, "ui64", "ui64", r"write np.uint64\(2\)"),
])  # fmt: skip
def test_what_would_be_another_number_is_refused(
    function: Callable[..., Any], kind: str, result: str, advice: str
) -> None:
    x = np.arange(1, 4).astype(f"u{int(kind[2:]) // 8}" if kind[0] == "u" else f"i{int(kind[1:]) // 8}")
    with pytest.raises(PluginError, match=advice):
        run(function, x, kind, result, "cpu")


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(("function", "kind", "result"), [
    (lambda x: max(x, np.uint64(7)), "ui64", "ui64"), (lambda x: abs(x) + x, "ui64", "ui64"),
    (lambda x: max(x, 0), "i64", "i64"), (lambda x: max(x * 0.5, 0), "i64", "i64"), (lambda x: max(x, 0.5), "i64", "f64"),
    (lambda x: x**3, "i64", "i64"), (lambda x: float(x) ** -2, "i64", "f64"), (lambda x: not (x > 3), "i64", "i64"),
    (lambda x: scaled(x, scale=5), "i64", "i64"), (lambda x: round(x * 0.5), "i64", "i64"), (lambda x: ~x, "i64", "i64"),
])  # fmt: skip
def test_what_is_the_same_number_is_computed(
    function: Callable[..., Any], kind: str, result: str, backend: str
) -> None:
    values = [1, 3, 8, 1 << 20]
    found = run(function, np.array(values, "u8" if kind[0] == "u" else "i8"), kind, result, backend)
    assert found == [float(function(x)) if result == "f64" else int(function(x)) for x in values]


def test_an_element_of_the_reference_does_not_depend_on_its_neighbours() -> None:
    assert run(either, np.array([LARGE, -1]), "i64", "i64", "reference") == [LARGE, 0]
    assert run(either, np.array([LARGE]), "i64", "i64", "reference") == [LARGE]
    assert run(lambda x: x if x > 0 else 2**63 + 5, np.array([LARGE, -1]), "i64", "f64", "reference") == [
        float(LARGE),
        float(2**63 + 5),
    ]
