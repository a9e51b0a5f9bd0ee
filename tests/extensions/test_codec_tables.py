"""Formats given by functions of up to 16 bits become tables that say exactly what the functions say."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir.scalar.codec_tables import codec_tables, order_of
from hlojit.ir.scalar.formats import encode
from hlojit.ir.scalar.numpy_builder import NumpyBuilder
from hlojit.lowering import op_tables

from .listed_formats import POSIT, decode_posit, encode_posit


def decode_logarithm(code: int) -> float:
    """A sign, and the logarithm of the magnitude in eighths; 0 is zero, 128 no number."""
    if code in (0, 128):
        return 0.0 if code == 0 else float("nan")
    magnitude = 2.0 ** (((code & 127) - 64.0) / 8.0)
    return -magnitude if code & 128 else magnitude


def encode_logarithm(value: float) -> int:
    if value != value:
        return 128
    magnitude = abs(value)
    if magnitude < 2.0**-8.0:
        return 0
    code = 127 if magnitude > 2.0**7.9 else int(math.log2(magnitude) * 8.0 + 64.5)
    code = min(max(code, 1), 127)
    return code + 128 if value < 0.0 else code


def encode_swapped(value: float) -> int:
    """Rises and falls: no step function of few steps."""
    return int(abs(value) * 1e7) % 3 if abs(value) < 100.0 else 3


def decode_fixed(code: int) -> float:
    """Sixteen bits, eight of them behind the point."""
    return (code - 65536.0 if code > 32767 else code * 1.0) / 256.0


def encode_fixed(value: float) -> int:
    if value != value:
        return 0
    scaled = min(max(value * 256.0, -32768.0), 32767.0)
    whole = math.floor(scaled)
    rest = scaled - whole
    code = int(whole)
    if rest > 0.5 or (rest == 0.5 and code & 1 == 1):
        code += 1
    return code + 65536 if code < 0 else code


LOGARITHM = ext.FloatFormat("tablelog8", bits=8, decode=decode_logarithm, encode=encode_logarithm)
FIXED = ext.FloatFormat("tablefixed16", bits=16, decode=decode_fixed, encode=encode_fixed)


def neighbours(number: float, dtype: Any) -> list[float]:
    with np.errstate(over="ignore"):
        return [float(np.nextafter(dtype(number), dtype(to))) for to in (-np.inf, np.inf)]


@pytest.mark.parametrize("row", [POSIT.row, LOGARITHM], ids=["posit8", "log8"])
def test_tables_of_eight_bits_are_the_functions(row: ext.FloatFormat) -> None:
    tables = codec_tables(row)
    assert tables is not None and row.decode is not None and row.encode is not None
    dtype = np.float32 if row.compute == "f32" else np.float64
    for code in range(256):
        np.testing.assert_equal(float(tables.values[code]), row.decode(code))
    numbers = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-300, -1e-300, 1e300]
    around = [float(each) for each in tables.values[np.isfinite(tables.values)]]
    around += [(a + b) / 2 for a, b in zip(sorted(around), sorted(around)[1:])]
    numbers += [near for each in around for near in (each, *neighbours(each, dtype))]
    numbers += [random.Random(3).uniform(-300, 300) for _ in range(3000)]
    with np.errstate(over="ignore"):
        given = np.array(numbers).astype(dtype)
    expected = [row.encode(float(each)) for each in given]
    assert tables.encoded(given).tolist() == expected
    assert tables.encoded(np.tile(given, 3)).tolist() == expected * 3  # beyond 4,096 by the upper bits


def test_tables_of_sixteen_bits_are_the_functions() -> None:
    tables = codec_tables(FIXED)
    assert tables is not None and FIXED.compute == "f64"
    codes = np.arange(1 << 16)
    np.testing.assert_array_equal(tables.values, (codes - 65536.0 * (codes > 32767)) / 256)
    for code in range(0, 65000, 997):
        tie = decode_fixed(code) + 1 / 512
        for number in (tie, *neighbours(tie, np.float64)):
            assert tables.encoded(np.array([number])).tolist() == [encode_fixed(number)]


def test_orders_are_those_of_numbers() -> None:
    numbers = np.array([-np.inf, -3.0, -1e-45, -0.0, 0.0, 1e-45, 2.0, np.inf], "f4")
    assert (np.diff(order_of(numbers).astype("i8")) > 0).all()


@pytest.mark.parametrize("fields", [
    {"decode": decode_posit, "encode": encode_swapped},
    {"decode": decode_posit, "encode": lambda value: 300},
    {"decode": decode_posit, "encode": lambda value: -1 if value < 0 else 0},
    {"decode": decode_posit, "encode": lambda value: 1.5},
    {"decode": lambda code: 1.0 / (code - code // 1 + "a"), "encode": encode_posit},
    {"decode": decode_posit, "encode": lambda value: int("x")},
])  # fmt: skip
def test_functions_that_are_no_step_function_have_no_tables(fields: dict[str, Any]) -> None:
    assert codec_tables(ext.FloatFormat("test8", bits=8, **fields)) is None


def test_a_function_that_never_ends_has_no_tables() -> None:
    def endless(code: int) -> float:
        while code > 3:
            code = code + 1 if code < 9 else 4
        return 0.5

    assert codec_tables(ext.FloatFormat("test8", bits=8, decode=endless, encode=encode_posit)) is None


SCALE = np.array([1.0])


def test_a_global_value_that_changes_changes_the_tables() -> None:
    def encode(value: float) -> int:
        return int(min(max(value / SCALE[0], 0.0), 255.0)) if value == value else 0

    row = ext.FloatFormat("test8", bits=8, decode=lambda code: code * SCALE[0], encode=encode)
    first = codec_tables(row)
    SCALE[0] = 2.0
    try:
        second = codec_tables(row)
    finally:
        SCALE[0] = 1.0
    assert first is not None and second is not None
    assert (first.values[3], second.values[3]) == (3, 6)
    assert codec_tables(row) is first


def test_numbers_are_rounded_once_from_f64() -> None:
    """A number just above a tie is one in f32."""
    tie = float(Fraction(17, 16))
    given = np.array([tie + 2.0**-40, tie, tie - 2.0**-40])
    for row in (POSIT.row, ext.FloatFormat("test8", exponent_bits=4, mantissa_bits=3, bias=7)):
        found = hlojit.Array.from_values(given, row).to_values()
        if row is POSIT.row:
            np.testing.assert_array_equal(found, POSIT.all_rounded(given))
        else:
            assert found.tolist() == [1.125, 1.0, 1.0]
    assert hlojit.Array.from_values([3, -2], POSIT.row).to_values().tolist() == [3, -2]


def test_arrays_of_posits_are_made_before_anything_is_compiled() -> None:
    code = """
import sys, time
import numpy as np
import hlojit, hlojit.extensions as ext
from types import SimpleNamespace
VALUES = np.array([0.0, 0.5, 1.0, 2.0, -0.0, -0.5, -1.0, -2.0])
row = ext.FloatFormat("early3", bits=3, decode=lambda code: float(VALUES[code]),
    encode=lambda value: int(np.argmin(np.abs(VALUES - value))) if value == value else 0)
ext.register(SimpleNamespace(__name__="early", hlojit_formats=ext.hookimpl(lambda: [row])))
array = hlojit.Array.from_values(np.linspace(-2, 2, 30000), "early3")
assert set(array.to_values().tolist()) == {0.0, 0.5, 1.0, 2.0, -0.5, -1.0, -2.0}
assert "numba" not in sys.modules and "llvmlite" not in sys.modules
print(repr(array)[:20])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Array([-2.")


def test_a_format_of_such_functions_computes_as_the_list_of_its_numbers() -> None:
    plugin = SimpleNamespace(__name__="tables", hlojit_formats=ext.hookimpl(lambda: [LOGARITHM, FIXED]))
    text = """func.func @main(%x: tensor<300xF>, %y: tensor<300xF>) -> tensor<300xF> {
      %0 = stablehlo.multiply %x, %y : tensor<300xF>
      return %0 : tensor<300xF> }"""
    with ext.using(plugin):
        for row in (LOGARITHM, FIXED):
            assert row.encode is not None
            x, y = np.random.default_rng(1).uniform(-6, 6, (2, 300))
            given = [hlojit.Array.from_values(each, row) for each in (x, y)]
            expected = [row.encode(float(a * b)) for a, b in zip(*(each.to_values() for each in given))]
            for backend in ("cpu", "reference"):
                assert (
                    hlojit.compile(text.replace("F>", f"{row.name}>"), backend=backend)(*given).storage.tolist()
                    == expected
                )


def test_cells_of_kernels_are_the_functions() -> None:
    """What kernels look up, number by number, also around every bound."""
    for row in (POSIT.row, LOGARITHM, FIXED):
        tables = codec_tables(row)
        assert tables is not None
        for dtype, kind, steps in ((np.float32, "f32", tables.single), (np.float64, "f64", tables.steps)):
            assert tables.cells(kind) is not None
            around = np.concatenate(
                [steps.bounds - 1, steps.bounds, steps.bounds + 1, order_of(np.array([0.0, -0.0], dtype))]
            )
            sign = np.iinfo(around.dtype)
            given = (around ^ ((around >> (sign.bits - 1)) & sign.max)).view(dtype)
            given = np.concatenate([given, np.array([np.inf, -np.inf, np.nan, -np.nan], dtype)])
            builder: Any = NumpyBuilder()
            found = encode(builder, builder.value(kind, given), row).array.view(row.storage_bits)
            np.testing.assert_array_equal(found, tables.encoded(given))
            assert row.encode is not None
            assert found[:: 1 + found.size // 300].tolist() == [
                row.encode(np.float64(each)) for each in given[:: 1 + found.size // 300]
            ]


BODY = """func.func @main(%x: tensor<FxF>, %y: tensor<FxF>) -> (tensor<FxF>, tensor<FxF>, tensor<FxF>, tensor<FxF>) {
  %0 = stablehlo.multiply %x, %y : tensor<FxF>
  %1 = stablehlo.add %0, %x : tensor<FxF>
  %2 = stablehlo.divide %1, %y : tensor<FxF>
  %3 = stablehlo.exponential %2 : tensor<FxF>
  %4 = stablehlo.subtract %3, %1 : tensor<FxF>
  %5 = stablehlo.maximum %4, %y : tensor<FxF>
  %6 = stablehlo.power %5, %x : tensor<FxF>
  %7 = stablehlo.negate %6 : tensor<FxF>
  return %7, %1, %3, %5 : tensor<FxF>, tensor<FxF>, tensor<FxF>, tensor<FxF> }"""


def test_tables_of_ops_give_what_the_ops_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all pairs of codes, NaN among them; more ops than a kernel has room for tables."""
    plugin = SimpleNamespace(__name__="tables", hlojit_formats=ext.hookimpl(lambda: [POSIT.row, LOGARITHM]))
    codes = np.arange(256, dtype="u1")
    x, y = np.repeat(codes, 256), np.tile(codes, 256)
    with ext.using(plugin):
        for row in (POSIT.row, LOGARITHM):
            results = []
            for shape in ((65536,), (256, 256), (2, 32768)):  # kernels are kept by their content
                with monkeypatch.context() as patch:
                    if len(shape) == 2:
                        patch.setattr(op_tables, "op_table", lambda *_: None)
                    text = BODY.replace("<FxF>", f"<{'x'.join(map(str, shape))}x{row.name}>")
                    executable = hlojit.compile(text, backend="reference" if shape[0] == 2 else "cpu")
                    given = [hlojit.Array(each.reshape(shape), row) for each in (x, y)]
                    results.append([each.storage.ravel() for each in executable(*given)])
            for other in results[1:]:
                for ours, theirs in zip(results[0], other):
                    np.testing.assert_array_equal(ours, theirs)
