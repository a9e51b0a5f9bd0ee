"""Which comparators are recognized as orders by keys, and that keys as integers are in their order."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import ml_dtypes
import numpy as np
import pytest
from hlojit.ir.formats import FloatFormat
from hlojit.ir.graph import Block
from hlojit.ir.ops.sort_order import sort_order
from hlojit.ir.scalar import formats
from hlojit.ir.scalar.numpy_builder import NumpyBuilder
from hlojit.lowering.sort_keys import KeyCode, key_codes


def comparator(body: str, elements: Sequence[str] = ("f32", "i32")) -> Block:
    """A comparator with arguments %a, %b (of the first operand), %i, %j (of the second), whose result is %r."""
    names = ("a", "b", "i", "j")
    arguments = ", ".join(f"%{name}: tensor<{elements[n // 2]}>" for n, name in enumerate(names[: 2 * len(elements)]))
    types = [f"tensor<8x{element}>" for element in elements]
    joined = f"({', '.join(types)})"
    module = hlojit.parse(f"""
    func.func @main({", ".join(f"%x{n}: {type}" for n, type in enumerate(types))}) -> {joined} {{
      %s:{len(elements)} = "stablehlo.sort"({", ".join(f"%x{n}" for n in range(len(elements)))}) ({{
      ^bb0({arguments}):
        {body}
        stablehlo.return %r : tensor<i1>
      }}) {{dimension = 0 : i64}} : {joined} -> {joined}
      return {", ".join(f"%s#{n}" for n in range(len(elements)))} : {", ".join(types)}
    }}""")
    return next(each for each in module.walk() if each.name == "stablehlo.sort").regions[0]


def compare(direction: str, lhs: str, rhs: str, element: str = "f32", result: str = "%r", order: str = "") -> str:
    return (
        f"{result} = stablehlo.compare {direction}, {lhs}, {rhs}{order} : "
        f"(tensor<{element}>, tensor<{element}>) -> tensor<i1>"
    )


TOTAL = ", TOTALORDER"


@pytest.mark.parametrize(
    ("direction", "lhs", "rhs", "descending"),
    [("LT", "%a", "%b", False), ("GT", "%a", "%b", True), ("LT", "%b", "%a", True), ("GT", "%b", "%a", False)],
)
def test_one_key(direction: str, lhs: str, rhs: str, descending: bool) -> None:
    keys = sort_order(comparator(compare(direction, lhs, rhs, order=TOTAL)))
    assert keys is not None and [(key.descending, key.total, key.leaves_nan) for key in keys] == [
        (descending, True, False)
    ]


def test_numbers_that_are_not_ordered_totally_leave_nan() -> None:
    (key,) = sort_order(comparator(compare("LT", "%a", "%b"))) or ()
    assert key.leaves_nan
    (number,) = sort_order(comparator(compare("LT", "%i", "%j", "i32"))) or ()
    assert not number.leaves_nan


def nan_last(direction: str, left: str = "%a", right: str = "%b", *, nan: str = "%b", number: str = "%a") -> str:
    return "\n".join((
        compare(direction, left, right, result="%1"), compare("NE", nan, nan, result="%2"),
        compare("EQ", number, number, result="%3"), "%4 = stablehlo.and %3, %2 : tensor<i1>",
        "%r = stablehlo.or %4, %1 : tensor<i1>",
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("left", "right", "direction", "descending"),
    [("%a", "%b", "LT", False), ("%a", "%b", "GT", True), ("%b", "%a", "GT", False), ("%b", "%a", "LT", True)],
)
def test_nan_last(left: str, right: str, direction: str, descending: bool) -> None:
    """As NumPy sorts: numbers in their order, zeros equal, NaNs behind them as they were."""
    (key,) = sort_order(comparator(nan_last(direction, left, right))) or ()
    assert key.nan_last and not key.leaves_nan and key.descending is descending
    code = code_of(nan_last(direction, left, right), "f32")
    numbers = np.array([-np.inf, -1.0, -0.0, 0.0, 1e-40, 2.0, np.inf, np.nan, -np.nan], "f4")
    found = integers(code, "f32", numbers).astype("i8")
    order = [0, 1, 2, 2, 3, 4, 5] if not descending else [5, 4, 3, 3, 2, 1, 0]
    assert np.unique(found, return_inverse=True)[1].tolist() == [*order, 6, 6]


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("element", ["f16", "bf16", "f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E3M4"])
def test_nan_last_by_codes(element: str, direction: str) -> None:
    code = code_of(nan_last(direction).replace("<f32>", f"<{element}>"), element)
    dtype = np.dtype(DTYPES[element])
    codes = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        values = codes.view(dtype).astype("f8") * (1.0 if direction == "LT" else -1.0) + 0.0
    rank = np.unique(np.where(np.isnan(values), np.inf, values), return_inverse=True)[1] * 2 + np.isnan(values)
    found = integers(code, element, codes).astype("i8")
    assert code.bits == 8 * dtype.itemsize
    np.testing.assert_array_equal(np.unique(found, return_inverse=True)[1], np.unique(rank, return_inverse=True)[1])


AND, OR = "stablehlo.and", "stablehlo.or"


def lexicographic(*, tie: str = TOTAL, joined: str = OR, operands: str = "%a, %b") -> str:
    lhs, rhs = operands.split(", ")
    return "\n".join((
        compare("LT", "%a", "%b", result="%1", order=TOTAL), compare("EQ", lhs, rhs, result="%2", order=tie),
        compare("GT", "%i", "%j", "i32", "%3"), f"%4 = {AND} %3, %2 : tensor<i1>", f"%r = {joined} %4, %1 : tensor<i1>",
    ))  # fmt: skip


@pytest.mark.parametrize("operands", ["%a, %b", "%b, %a"])
def test_several_keys(operands: str) -> None:
    keys = sort_order(comparator(lexicographic(operands=operands)))
    assert keys is not None and [key.descending for key in keys] == [False, True]


REFUSED = {
    "no strict order": compare("LE", "%a", "%b", order=TOTAL),
    "no order": compare("NE", "%a", "%b"),
    "one side": compare("LT", "%a", "%a", order=TOTAL),
    "two operands": "%c = stablehlo.convert %j : (tensor<i32>) -> tensor<f32>\n" + compare("LT", "%a", "%c"),
    "a constant": "%r = stablehlo.constant dense<true> : tensor<i1>",
    "sides made differently": "%c = stablehlo.abs %a : tensor<f32>\n" + compare("LT", "%c", "%b"),
    "other constants": "%c = stablehlo.constant dense<1> : tensor<i32>\n%d = stablehlo.constant dense<2> : tensor<i32>\n"
    "%e = stablehlo.add %i, %c : tensor<i32>\n%f = stablehlo.add %j, %d : tensor<i32>\n"
    + compare("LT", "%e", "%f", "i32"),
    "ties of another order": lexicographic(tie=""),
    "both conditions": lexicographic(joined=AND),
    "NaN first": nan_last("LT", nan="%a", number="%b"),
    "one NaN": nan_last("LT", nan="%b", number="%b"),
    "ties of nothing": lexicographic(operands="%a, %a"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_order_by_keys(name: str) -> None:
    assert sort_order(comparator(REFUSED[name])) is None


def code_of(body: str, element: str) -> KeyCode:
    (code,) = key_codes(comparator(body, [element])) or ()
    return code


def integers(code: KeyCode, element: str, codes: Any) -> Any:
    """Keys as unsigned integers of elements that are given as they stand in memory."""
    b: Any = NumpyBuilder()
    ((number, argument),) = code.arguments
    kind = formats.storage_kind(argument.tensor_type.element_type)
    found = b.array(code.compute(b, {number: b.value(kind, codes)}))
    return found.view(f"u{found.dtype.itemsize}")


JAX = "\n".join(
    f"%z{s} = stablehlo.constant dense<0.0> : tensor<E>\n%n{s} = stablehlo.constant dense<NAN> : tensor<E>\n"
    f"%e{s} = stablehlo.compare EQ, %{s}, %z{s}, FLOAT : (tensor<E>, tensor<E>) -> tensor<i1>\n"
    f"%f{s} = stablehlo.select %e{s}, %z{s}, %{s} : tensor<i1>, tensor<E>\n"
    f"%g{s} = stablehlo.compare NE, %{s}, %{s}, FLOAT : (tensor<E>, tensor<E>) -> tensor<i1>\n"
    f"%h{s} = stablehlo.select %g{s}, %n{s}, %f{s} : tensor<i1>, tensor<E>\n"
    for s in "ab"
)
"""Both sides as JAX compares them: one zero, one NaN."""
NANS = {"f16": "0x7E00", "bf16": "0x7FC0", "f8E4M3FN": "0x7F", "f8E5M2": "0x7E", "f8E4M3FNUZ": "0x80", "f8E3M4": "0x7C"}
DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "f8E3M4": ml_dtypes.float8_e3m4,
}  # fmt: skip


@pytest.mark.parametrize("element", NANS)
def test_codes_of_narrow_floats_are_in_the_order_of_jax(element: str) -> None:
    """All codes: as many bits as the format has, NaN above everything, zeros equal."""
    body = JAX.replace("<E>", f"<{element}>").replace("NAN", NANS[element])
    code = code_of(body + compare("LT", "%ha", "%hb", element, order=TOTAL), element)
    dtype = np.dtype(DTYPES[element])
    codes = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        values = codes.view(dtype).astype("f8") + 0.0
    found = integers(code, element, codes).astype("i8")
    assert code.bits == 8 * dtype.itemsize
    rank = np.unique(np.where(np.isnan(values), np.inf, values), return_inverse=True)[1] * 2 + np.isnan(values)
    np.testing.assert_array_equal(np.unique(found, return_inverse=True)[1], np.unique(rank, return_inverse=True)[1])


def test_numbers_of_formats_without_nan_are_ordered_by_plain_comparisons() -> None:
    code = code_of(compare("LT", "%a", "%b", "f4E2M1FN"), "f4E2M1FN")
    values = np.arange(16, dtype="u1").view(ml_dtypes.float4_e2m1fn).astype("f4")
    found = integers(code, "f4E2M1FN", np.arange(16, dtype="u1"))
    assert not code.leaves_nan and code.bits == 4
    np.testing.assert_array_equal(
        np.unique(found, return_inverse=True)[1], np.unique(values + 0.0, return_inverse=True)[1]
    )


@pytest.mark.parametrize("direction", ["LT", "GT"])
def test_integers_of_wide_keys(direction: str) -> None:
    numbers = np.array([-(2**31), -5, -1, 0, 1, 7, 2**31 - 1], "i4")
    found = integers(code_of(compare(direction, "%a", "%b", "i32"), "i32"), "i32", numbers).astype("i8")
    assert (np.diff(found) > 0).all() if direction == "LT" else (np.diff(found) < 0).all()
    reals = np.array([-np.nan, -np.inf, -1.5, -1e-310, -0.0, 0.0, 1e-310, 2.0, np.inf, np.nan], "f8")
    found = integers(code_of(compare(direction, "%a", "%b", "f64", order=TOTAL), "f64"), "f64", reals)
    assert (found[1:] > found[:-1]).all() if direction == "LT" else (found[1:] < found[:-1]).all()


def test_a_codec_is_asked_for_values() -> None:
    """A format that functions decode is ordered by what they return, whatever its codes are."""
    backwards = FloatFormat("acme_backwards", 4, 3, 7, decode=lambda code: -float(code), encode=lambda x: int(-x))
    plugin = SimpleNamespace(__name__="acme", hlojit_formats=ext.hookimpl(lambda: [backwards]))
    with ext.using(plugin):
        code = code_of(compare("LT", "%a", "%b", "acme_backwards", order=TOTAL), "acme_backwards")
    assert code.map is None and code.bits == 32
