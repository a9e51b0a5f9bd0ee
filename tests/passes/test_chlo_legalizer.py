"""``chlo-legalizer``: programs without CHLO that mean the same, for every op and element type."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.command import main
from hlojit.compiler import parse
from hlojit.ir.formats import FloatFormat, IntegerType, element_type
from hlojit.ir.ops.definition import Pointwise, ops
from hlojit.ir.passes.pipeline_text import parse_pipeline
from hlojit.ir.verifier import verify

POINTWISE = sorted(op.mnemonic for op in ops() if op.dialect == "chlo" and isinstance(op.lowering, Pointwise))
COMPLEX = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "conj", "cosh", "sinh", "square", "tan")
FEW_UNITS = 6.0
"""Without a fused multiply-add the last bits may differ."""


def legalized(text: str) -> str:
    module = parse(text)
    parse_pipeline("chlo-legalize-to-stablehlo").run(module)
    verify(module)
    printed = str(module)
    assert "chlo." not in printed and "hlojit." not in printed
    return printed


def unary_program(name: str, type: str, count: int = 1) -> str:
    names = ["%x", "%y"][:count]
    kinds = ", ".join([type] * count)
    arguments = ", ".join(f"{each}: {type}" for each in names)
    result = type if not name.startswith("is_") else type[: type.rindex("x") + 1] + "i1>"
    call = f"chlo.{name} {', '.join(names)} : {kinds} -> {result}"
    return f"func.func @main({arguments}) -> {result} {{\n %r = {call}\n return %r : {result}\n}}"


def inputs(name: str, element: str, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    made = element_type(element)
    if isinstance(made, IntegerType):
        low, high = made.minimum, made.maximum
        return [rng.integers(low, high, 24, made.storage, endpoint=True).astype(made.dtype) for _ in range(count)]
    values = [rng.normal(size=24) * 2 for _ in range(count)]
    if name == "zeta":
        values = [np.abs(values[0]) + 1.25, np.abs(values[1]) + 0.5]
    if name == "polygamma":
        values = [np.floor(np.abs(values[0])), np.abs(values[1]) + 0.5]
    return [value.astype(made.dtype) for value in values]


LONG = ("digamma", "lgamma", "polygamma", "zeta")
FLOATS: list[Any] = [
    pytest.param(name, element, marks=[pytest.mark.slow] if name in LONG else [])
    for name in POINTWISE
    if name != "mulhi"
    for element in ("f32", "f64")
]
FLOATS += [(name, element) for name in ("acosh", "erf", "next_after") for element in ("bf16", "f8E4M3FN")]


def both_ways(text: str, *arrays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the program gives, and what its op by op evaluation without CHLO gives."""
    wanted = np.asarray(hlojit.compile(text, backend="cpu")(*arrays))
    return wanted, np.asarray(hlojit.compile(legalized(text), backend="reference")(*arrays))


@pytest.mark.parametrize(("name", "element"), FLOATS)
def test_functions_of_floats_mean_the_same(name: str, element: str) -> None:
    count = 2 if name in ("next_after", "polygamma", "zeta") else 1
    text = unary_program(name, f"tensor<24x{element}>", count)
    arrays = inputs(name, element, count)
    wanted, found = both_ways(text, *arrays)
    assert found.dtype == wanted.dtype
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    format = element_type(element)
    assert isinstance(format, FloatFormat)
    np.testing.assert_allclose(
        a, b, rtol=FEW_UNITS * 2.0**-format.mantissa_bits if format.is_native else 0.0, atol=1e-15
    )


@pytest.mark.parametrize("element", ["i4", "ui4", "i8", "ui8", "i32", "ui32", "i64", "ui64"])
def test_upper_halves_of_products_are_the_same(element: str) -> None:
    text = unary_program("mulhi", f"tensor<24x{element}>", 2)
    arrays = inputs("mulhi", element, 2)
    wanted, found = both_ways(text, *arrays)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("name", COMPLEX)
def test_functions_of_complex_numbers_mean_the_same(name: str, element: str) -> None:
    text = unary_program(name, f"tensor<24xcomplex<{element}>>")
    rng = np.random.default_rng(5)
    z = (rng.normal(size=24) + 1j * rng.normal(size=24)).astype({"f32": "c8", "f64": "c16"}[element])
    wanted, found = both_ways(text, z)
    np.testing.assert_allclose(found, wanted, rtol=4 * np.finfo(found.dtype).eps)


STRUCTURE = {
    "constant": ("", "chlo.constant dense<[1.0, 2.0]> : tensor<2xf32>", "tensor<2xf32>"),
    "constant_like": (
        "%x: tensor<3xf32>",
        '"chlo.constant_like"(%x) {value = 2.5 : f32} : (tensor<3xf32>) -> tensor<3xf32>',
        "tensor<3xf32>",
    ),
    "broadcast_add": (
        "%x: tensor<2x3xf32>, %y: tensor<3xf32>",
        "chlo.broadcast_add %x, %y : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>",
        "tensor<2x3xf32>",
    ),
    "broadcast_zeta": (
        "%x: tensor<2x3xf32>, %y: tensor<3xf32>",
        "chlo.broadcast_zeta %x, %y : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>",
        "tensor<2x3xf32>",
    ),
    "is_inf": ("%x: tensor<3xf32>", "chlo.is_inf %x : tensor<3xf32> -> tensor<3xi1>", "tensor<3xi1>"),
    "square": ("%x: tensor<3xf32>", "chlo.square %x : tensor<3xf32> -> tensor<3xf32>", "tensor<3xf32>"),
}


@pytest.mark.parametrize("name", STRUCTURE)
def test_other_ops_mean_the_same(name: str) -> None:
    arguments, call, result = STRUCTURE[name]
    text = f"func.func @main({arguments}) -> {result} {{\n %r = {call}\n return %r : {result}\n}}"
    shapes: dict[int, list[tuple[int, ...]]] = {0: [], 1: [(3,)], 2: [(2, 3), (3,)]}
    arrays: list[Any] = [np.full(shape, 1.5, np.float32) for shape in shapes[arguments.count("%")]]
    wanted, found = both_ways(text, *arrays)
    np.testing.assert_allclose(found.astype(float), wanted.astype(float), rtol=1e-6)


def test_the_command_runs_it_alone(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(unary_program("erf", "tensor<4xf32>"))
    assert main(["opt", "-p", "chlo-legalize-to-stablehlo", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "stablehlo.multiply" in printed and "chlo" not in printed
