"""Odd formats everywhere: one exponent bit, no mantissa, no sign, three bits, wide ones, posits of 16 bits, logarithms.

What is checked is what a format must not change: constants of every kind, text, sorts, gathers, loops, jit, threads.  The oracle is the
list of a format's numbers where it is short, and exact fractions in ``test_rounding`` and ``test_wide_formats``.
"""

from __future__ import annotations

import threading
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.extensions import NanEncoding, Overflow, Rounding

from .test_codec_tables import FIXED, LOGARITHM

NONE: dict[str, Any] = {"has_infinity": False, "nan": NanEncoding.NONE, "overflow": Overflow.SATURATE}


def decode_posit16(code: int) -> float:
    """A posit of 16 bits with one exponent bit; 32768 is not a number."""
    if code == 0:
        return 0.0
    if code == 32768:
        return float("nan")
    bits = 65536 - code if code > 32768 else code
    ones = bits & 16384 != 0
    position = 14
    regime = 0
    while position >= 0 and (bits >> position & 1 != 0) == ones:
        regime += 1
        position -= 1
    exponent = 2 * (regime - 1 if ones else -regime)
    position -= 1
    if position >= 0:
        exponent += bits >> position & 1
    width = max(position, 0)
    value = (1.0 + (bits & ((1 << width) - 1)) / (1 << width)) * 2.0 ** (exponent * 1.0)
    return -value if code > 32768 else value


def encode_posit16(value: float) -> int:
    """By bisection over the codes, whose order is the numbers'."""
    if value != value:
        return 32768
    magnitude = abs(value)
    if magnitude == 0.0:
        return 0
    low = 1
    high = 32767
    while low < high:
        middle = (low + high + 1) // 2
        if decode_posit16(middle) <= magnitude:
            low = middle
        else:
            high = middle - 1
    if low < 32767 and decode_posit16(low) <= magnitude:
        rest = magnitude - decode_posit16(low)
        room = decode_posit16(low + 1) - magnitude
        if rest > room or (rest == room and low & 1 == 1):
            low += 1
    return 65536 - low if value < 0.0 else low


ROWS = [
    ext.FloatFormat("odd1e", exponent_bits=1, mantissa_bits=4, bias=0, **NONE),
    ext.FloatFormat("odd0m", exponent_bits=6, mantissa_bits=0, bias=30, **NONE),
    ext.FloatFormat("oddu", exponent_bits=4, mantissa_bits=4, bias=7, signed=False),
    ext.FloatFormat("odd3", exponent_bits=1, mantissa_bits=1, bias=0, **NONE),
    ext.FloatFormat("odd2", exponent_bits=1, mantissa_bits=0, bias=0, **NONE),
    ext.FloatFormat("oddz", exponent_bits=4, mantissa_bits=3, bias=300, has_infinity=False, nan=NanEncoding.NEGATIVE_ZERO,
                    overflow=Overflow.NAN),
    ext.FloatFormat("odd24", exponent_bits=8, mantissa_bits=15, bias=127),
    ext.FloatFormat("odd40", exponent_bits=8, mantissa_bits=31, bias=127),
    ext.FloatFormat("odd64", exponent_bits=11, mantissa_bits=52, bias=1023),
    ext.FloatFormat("odd58", exponent_bits=7, mantissa_bits=50, bias=63, rounding=Rounding.TOWARD_ZERO),
    ext.FloatFormat("oddposit16", bits=16, decode=decode_posit16, encode=encode_posit16),
    LOGARITHM,
    FIXED,
]  # fmt: skip
PLUGIN = SimpleNamespace(__name__="odd", hlojit_formats=ext.hookimpl(lambda: ROWS))


@pytest.fixture(scope="module", autouse=True)
def formats() -> Any:
    with ext.using(PLUGIN):
        yield


def numbers(row: ext.FloatFormat, count: int = 24) -> hlojit.Array:
    """Some numbers of a format, zero and NaN left out."""
    random = np.random.default_rng(3)
    codes = random.integers(0, 1 << row.bits, 40 * count, dtype="u8").astype(row.storage)
    values = hlojit.Array(codes, row).to_values()
    kept = np.isfinite(values) & (values != 0)
    return hlojit.Array(codes[kept][:count].copy() if kept.sum() >= count else np.resize(codes[kept], count), row)


PROGRAM = """func.func @main(%x: tensor<24xF>) -> (tensor<24xF>, tensor<24xF>, tensor<3xF>, tensor<2xF>, tensor<F>, tensor<24xf64>, tensor<24xF>) {
  %k = stablehlo.constant dense<LIST> : tensor<24xF>
  %s = stablehlo.constant dense<"HEX"> : tensor<2xF>
  %n = stablehlo.constant dense<ONE> : tensor<F>
  %0 = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<F>, %b: tensor<F>):
    %c = stablehlo.compare LT, %a, %b : (tensor<F>, tensor<F>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) {dimension = 0 : i64} : (tensor<24xF>) -> tensor<24xF>
  %i = stablehlo.constant dense<[[23], [0], [5]]> : tensor<3x1xi32>
  %1 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0],
    index_vector_dim = 1>, slice_sizes = array<i64: 1>}> : (tensor<24xF>, tensor<3x1xi32>) -> tensor<3xF>
  %z = stablehlo.constant dense<0> : tensor<i32>
  %w:2 = stablehlo.while(%j = %z, %v = %x) : tensor<i32>, tensor<24xF>
  cond { %m = stablehlo.constant dense<3> : tensor<i32>
    %p = stablehlo.compare LT, %j, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do { %one = stablehlo.constant dense<1> : tensor<i32>
    %q = stablehlo.add %j, %one : tensor<i32>
    %r = stablehlo.reverse %v, dims = [0] : tensor<24xF>
    stablehlo.return %q, %r : tensor<i32>, tensor<24xF> }
  %f = stablehlo.convert %x : (tensor<24xF>) -> tensor<24xf64>
  %g = stablehlo.convert %f : (tensor<24xf64>) -> tensor<24xF>
  return %k, %0, %1, %s, %n, %f, %g : tensor<24xF>, tensor<24xF>, tensor<3xF>, tensor<2xF>, tensor<F>, tensor<24xf64>, tensor<24xF> }"""


def text(row: ext.FloatFormat, x: hlojit.Array) -> str:
    # All digits: the shortest decimal of a number may lie below it, and a rounding toward zero takes the next one there.
    values = [f"{Decimal(float(each)):e}" for each in x.to_values()]
    width = row.storage_bits.itemsize
    pattern = x.storage[:2].astype(f">u{width}").view(f"u{width}")
    raw = np.asarray(x.storage[:2]).tobytes().hex().upper()
    assert pattern.size == 2
    return (
        PROGRAM.replace("LIST", f"[{', '.join(values)}]").replace("HEX", f"0x{raw}").replace("ONE", values[0])
        .replace("xF>", f"x{row.name}>").replace("<F>", f"<{row.name}>")
    )  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_constants_sorts_gathers_and_loops(row: ext.FloatFormat, backend: str) -> None:
    x = numbers(row)
    values = x.to_values().astype("f8")
    program = text(row, x)
    parsed = hlojit.parse(program)
    assert str(hlojit.parse(str(parsed))) == str(parsed)
    found = hlojit.compile(program, backend=backend)(x)
    wide = [np.asarray(each) if isinstance(each, np.ndarray) else each.to_values().astype("f8") for each in found]
    expected = [values, np.sort(values), values[[23, 0, 5]], values[:2], values[0], values, values]
    for ours, theirs in zip(wide, expected):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_arrays_and_jit(row: ext.FloatFormat) -> None:
    x = numbers(row)
    values = x.to_values()
    again = hlojit.Array.from_values(values, row.name)
    np.testing.assert_array_equal(again.to_values(), values)
    assert str(row.name) in repr(x)
    found = hlojit.jit(lambda a: (a.astype(row.name), np.maximum(a.astype(row.name), a.astype(row.name)[::-1])))(
        values.astype("f8")
    )
    np.testing.assert_array_equal(found[0].to_values(), values)
    np.testing.assert_array_equal(found[1].to_values(), np.maximum(values, values[::-1]))


def test_several_threads_from_a_cold_start() -> None:
    rows = [ROWS[0], ROWS[7], LOGARITHM]
    expected = [row_result(row) for row in rows]
    failures: list[object] = []

    def work(number: int) -> None:
        row = rows[number % 3]
        with ext.using(PLUGIN):
            if not np.array_equal(row_result(row, 100 + number), expected[number % 3]):
                failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def row_result(row: ext.FloatFormat, salt: int = 0) -> Any:
    """x * y + x in a program of its own for each salt."""
    program = f"""func.func @f{salt}(%x: T, %y: T) -> T {{ %0 = stablehlo.multiply %x, %y : T
      %1 = stablehlo.add %0, %x : T
      return %1 : T }}""".replace("T", f"tensor<24x{row.name}>").replace(f"@f{salt}", "@main")
    x = numbers(row)
    return hlojit.compile(program)(x, hlojit.Array(x.storage[::-1].copy(), row)).storage
