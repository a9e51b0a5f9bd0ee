"""``result_accuracy``: tolerances that the code keeps compile, tighter ones are refused with the figure."""

from __future__ import annotations

import re

import hlojit
import numpy as np
import pytest
from hlojit.ir.errors import UnsupportedError


def program(op: str, element: str, tolerance: str, mode: str = "TOLERANCE") -> str:
    type = f"tensor<4x{element}>"
    accuracy = f"#stablehlo.result_accuracy<{tolerance}, mode = #stablehlo.result_accuracy_mode<{mode}>>"
    return f"""
    func.func @main(%x: {type}) -> {type} {{
      %0 = "stablehlo.{op}"(%x) {{result_accuracy = {accuracy}}} : ({type}) -> {type}
      return %0 : {type}
    }}"""


FUNCTIONS = {
    "exponential": np.exp,
    "exponential_minus_one": np.expm1,
    "tanh": np.tanh,
    "log": np.log,
    "sqrt": np.sqrt,
    "cosine": np.cos,
}
MANTISSA = {"bf16": 7, "f32": 23, "f64": 52}
"""Bits behind the point of a number between 1 and 2."""
NONE = "atol = 0.0, rtol = 0.0, ulps = 0"
KEPT = [
    ("exponential", "f32", "atol = 0.0, rtol = 0.0, ulps = 2", "TOLERANCE"),
    ("exponential", "f32", "atol = 0.0, rtol = 1.0e-5, ulps = 0", "TOLERANCE"),
    ("exponential", "f64", "atol = 0.0, rtol = 1.0e-12, ulps = 0", "TOLERANCE"),
    ("tanh", "f32", "atol = 1.0e-6, rtol = 0.0, ulps = 0", "TOLERANCE"),
    ("log", "bf16", "atol = 0.0, rtol = 0.0, ulps = 1", "TOLERANCE"),
    ("log", "complex<f32>", "atol = 0.0, rtol = 0.0, ulps = 1", "TOLERANCE"),
    ("sqrt", "complex<f64>", "atol = 0.0, rtol = 0.0, ulps = 3", "TOLERANCE"),
    ("exponential_minus_one", "complex<f32>", "atol = 0.0, rtol = 0.0, ulps = 1", "TOLERANCE"),
    ("cosine", "f32", NONE, "HIGHEST"),
    ("cosine", "f32", NONE, "DEFAULT"),
]
REFUSED = [
    ("exponential", "f32", "atol = 0.0, rtol = 0.0, ulps = 1", "up to 2 units"),
    ("exponential", "f32", "atol = 1.0e-6, rtol = 0.0, ulps = 1", "up to 2 units"),
    ("log", "f64", "atol = 0.0, rtol = 1.0e-16, ulps = 1", "up to 2 units"),
    ("tanh", "f32", "atol = 1.0e-8, rtol = 0.0, ulps = 1", "up to 2 units"),
    ("sine", "complex<f64>", "atol = 0.0, rtol = 0.0, ulps = 1", "up to 3 units"),
    ("logistic", "complex<f64>", "atol = 0.0, rtol = 0.0, ulps = 4", "no bound of it is known"),
]


@pytest.mark.parametrize(("op", "element", "tolerance", "mode"), KEPT)
def test_a_tolerance_that_is_kept(op: str, element: str, tolerance: str, mode: str) -> None:
    executable = hlojit.compile(program(op, element, tolerance, mode))
    dtype = executable.input_types[0].element_type.dtype
    x = (
        np.array([0.5 - 0.125j, 0.3 + 0.7j, -1.75 + 1e-3j, 3 - 2j])
        if "complex" in element
        else np.array([0.5, 0.3, 1.75, 3])
    ).astype(dtype)
    found = np.asarray(executable(x))
    assert found.dtype == dtype
    wide = np.clongdouble if "complex" in element else np.longdouble
    wanted = FUNCTIONS[op](x.astype(wide))
    absolute, relative, units = (float(number) for number in re.findall(r"= ([\d.e-]+)", tolerance))
    if mode != "TOLERANCE":
        units = 2
    for part in (np.real, np.imag) if "complex" in element else (np.real,):
        value, exact = part(found.astype(wide)), part(wanted)
        unit = np.exp2(np.floor(np.log2(np.abs(exact))) - MANTISSA[element.removeprefix("complex<").removesuffix(">")])
        assert np.all(np.abs(value - exact) <= absolute + relative * np.abs(exact) + units * unit)


@pytest.mark.parametrize(("op", "element", "tolerance", "expected"), REFUSED)
def test_a_tolerance_that_is_not_kept(op: str, element: str, tolerance: str, expected: str) -> None:
    with pytest.raises(UnsupportedError, match=expected):
        hlojit.compile(program(op, element, tolerance))
