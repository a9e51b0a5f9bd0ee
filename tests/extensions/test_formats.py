"""Number formats of plugins through the whole path, against exact fractions."""

from __future__ import annotations

import bisect
import itertools
import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest

ODD = ext.FloatFormat(
    "test7",
    exponent_bits=3,
    mantissa_bits=3,
    bias=4,
    has_infinity=False,
    nan=ext.NanEncoding.ALL_ONES,
    overflow=ext.Overflow.SATURATE,
)
TINY = ext.FloatFormat("test12", exponent_bits=4, mantissa_bits=7, bias=9)


def plugin(*formats: ext.FloatFormat) -> Any:
    return SimpleNamespace(__name__="test", hlojit_formats=ext.hookimpl(lambda: list(formats)))


def values_of(row: ext.FloatFormat, *, special: bool) -> dict[int, Fraction]:
    """All finite numbers of a format without its own codec, by code, from the definition."""
    values = {}
    top = 2**row.exponent_bits - 1
    for sign, exponent, mantissa in itertools.product((0, 1), range(top + 1), range(2**row.mantissa_bits)):
        if exponent == top and (special or mantissa == 2**row.mantissa_bits - 1):
            continue
        scale = Fraction(2) ** (max(exponent, 1) - row.bias - row.mantissa_bits)
        number = (mantissa + (2**row.mantissa_bits if exponent else 0)) * scale
        code = (sign << (row.exponent_bits + row.mantissa_bits)) | (exponent << row.mantissa_bits) | mantissa
        values[code] = -number if sign else number
    return values


def rounded(number: Fraction, ordered: list[tuple[Fraction, int]]) -> Fraction:
    """The nearest of the format's (number, code), ties to the even code; beyond the largest is the caller's business."""
    place = bisect.bisect_left(ordered, (number, 0))
    near = ordered[max(place - 2, 0) : place + 3]
    return min(near, key=lambda item: (abs(item[0] - number), item[1] & 1))[0]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(("row", "special"), [(ODD, False), (TINY, True)], ids=["test7", "test12"])
def test_conversion_and_addition_are_correctly_rounded(row: ext.FloatFormat, special: bool, backend: str) -> None:
    values = values_of(row, special=special)
    largest = max(values.values())
    numbers = sorted(set(values.values()))
    ordered = sorted((number, code) for code, number in values.items())
    halves = [(a + b) / 2 for a, b in itertools.pairwise(numbers)]
    inputs = np.array([float(each) for each in numbers + halves], "f4")
    assert all(Fraction(float(x)) == each for x, each in zip(inputs, numbers + halves))
    n, name = len(inputs), row.name
    text = f"""
    func.func @main(%x: tensor<{n}xf32>, %y: tensor<{n}xf32>) -> (tensor<{n}xf32>, tensor<{n}xf32>, tensor<{n}x{name}>) {{
      %0 = stablehlo.convert %x : (tensor<{n}xf32>) -> tensor<{n}x{name}>
      %1 = stablehlo.convert %y : (tensor<{n}xf32>) -> tensor<{n}x{name}>
      %2 = stablehlo.add %0, %1 : tensor<{n}x{name}>
      %3 = stablehlo.convert %0 : (tensor<{n}x{name}>) -> tensor<{n}xf32>
      %4 = stablehlo.convert %2 : (tensor<{n}x{name}>) -> tensor<{n}xf32>
      return %3, %4, %0 : tensor<{n}xf32>, tensor<{n}xf32>, tensor<{n}x{name}>
    }}
    """
    with ext.using(plugin(row)):
        y = np.random.default_rng(0).permutation(inputs)
        converted, added, encoded = hlojit.compile(text, backend=backend)(inputs, y)
        assert encoded.storage.dtype == row.storage_bits and encoded.storage.shape == (n,)
        expected = [rounded(each, ordered) for each in numbers + halves]
        assert [Fraction(float(each)) for each in converted] == expected
        assert all(values[int(code)] == each for code, each in zip(encoded.storage, expected))
        second = [rounded(Fraction(float(each)), ordered) for each in y]
        for ours, a, b in zip(added, expected, second):
            if abs(a + b) <= largest:
                assert Fraction(float(ours)) == rounded(a + b, ordered)
            elif row.overflow is ext.Overflow.SATURATE:
                assert abs(Fraction(float(ours))) == largest
            else:
                # Half a step above the largest is a tie, and the largest is odd.
                is_finite = abs(a + b) < largest + (numbers[-1] - numbers[-2]) / 2
                assert abs(float(ours)) == (float(largest) if is_finite else np.inf)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_reductions_and_products(backend: str) -> None:
    text = """
    func.func @main(%x: tensor<9x17xf32>, %y: tensor<17x5xf32>) -> (tensor<9x5xf32>, tensor<9xf32>) {
      %0 = stablehlo.convert %x : (tensor<9x17xf32>) -> tensor<9x17xtest12>
      %1 = stablehlo.convert %y : (tensor<17x5xf32>) -> tensor<17x5xtest12>
      %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : (tensor<9x17xtest12>, tensor<17x5xtest12>) -> tensor<9x5xtest12>
      %c = stablehlo.constant dense<0.0> : tensor<test12>
      %3 = stablehlo.reduce(%0 init: %c) applies stablehlo.add across dimensions = [1] : (tensor<9x17xtest12>, tensor<test12>) -> tensor<9xtest12>
      %4 = stablehlo.convert %2 : (tensor<9x5xtest12>) -> tensor<9x5xf32>
      %5 = stablehlo.convert %3 : (tensor<9xtest12>) -> tensor<9xf32>
      return %4, %5 : tensor<9x5xf32>, tensor<9xf32>
    }
    """
    # Small integers: every product and partial sum is a number of the format, so that no order of adding matters.
    generator = np.random.default_rng(0)
    x, y = generator.integers(-1, 2, (9, 17)).astype("f4"), generator.integers(-1, 2, (17, 5)).astype("f4")
    with ext.using(plugin(TINY)):
        product, total = hlojit.compile(text, backend=backend)(x, y)
    np.testing.assert_array_equal(product, x @ y)
    np.testing.assert_array_equal(total, x.sum(1))


def decode_logarithm(code: int) -> float:
    """Sign and a logarithm with three bits behind the point; 0 is zero."""
    if code & 127 == 0:
        return 0.0
    magnitude = math.exp2(((code & 127) - 64) / 8.0)
    return -magnitude if code & 128 else magnitude


def encode_logarithm(value: float) -> int:
    if value == 0.0 or value != value:
        return 0
    scaled = min(max(math.floor(math.log2(abs(value)) * 8.0 + 0.5), -63.0), 63.0)
    return int(scaled) + 64 + (128 if value < 0.0 else 0)


LOGARITHM = ext.FloatFormat(
    "testlog8", bits=8, decode=decode_logarithm, encode=encode_logarithm, has_infinity=False, nan=ext.NanEncoding.NONE
)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_format_with_its_own_codec(backend: str) -> None:
    text = """
    func.func @main(%x: tensor<200xf32>) -> (tensor<200xf32>, tensor<200xtestlog8>, tensor<200xf32>) {
      %0 = stablehlo.convert %x : (tensor<200xf32>) -> tensor<200xtestlog8>
      %1 = stablehlo.multiply %0, %0 : tensor<200xtestlog8>
      %2 = stablehlo.convert %0 : (tensor<200xtestlog8>) -> tensor<200xf32>
      %3 = stablehlo.convert %1 : (tensor<200xtestlog8>) -> tensor<200xf32>
      return %2, %0, %3 : tensor<200xf32>, tensor<200xtestlog8>, tensor<200xf32>
    }
    """
    x = np.linspace(-7, 9, 200, dtype="f4")
    with ext.using(plugin(LOGARITHM)):
        converted, encoded, squared = hlojit.compile(text, backend=backend)(x)
        codes = [encode_logarithm(float(each)) for each in x]
        assert encoded.storage.tolist() == codes
        np.testing.assert_allclose(converted, [decode_logarithm(code) for code in codes], rtol=1e-6)
        once = [encode_logarithm(decode_logarithm(code) ** 2) for code in codes]
        np.testing.assert_allclose(squared, [decode_logarithm(code) for code in once], rtol=1e-6)


def test_codec_that_cannot_be_compiled_is_a_plugin_error() -> None:
    def decode(code: int) -> float:
        return {1: object()}[code]  # type: ignore[return-value]

    broken = ext.FloatFormat("testbad", bits=8, decode=decode, encode=encode_logarithm)
    text = (
        "func.func @main(%x: tensor<20xtestbad>) -> tensor<20xf32> {\n%0 = stablehlo.convert %x : (tensor<20xtestbad>) -> tensor<20xf32>\n"
        "return %0 : tensor<20xf32>\n}"
    )
    with ext.using(plugin(broken)), pytest.raises(hlojit.PluginError, match="numba cannot compile"):
        hlojit.compile(text)


def test_format_replaced_by_another_of_its_name() -> None:
    text = (
        "func.func @main(%x: tensor<20xf32>) -> tensor<20xf32> {\n%0 = stablehlo.convert %x : (tensor<20xf32>) -> tensor<20xtestlog8>\n"
        "%1 = stablehlo.convert %0 : (tensor<20xtestlog8>) -> tensor<20xf32>\nreturn %1 : tensor<20xf32>\n}"
    )
    x = np.full(20, 3.0, "f4")
    other = ext.FloatFormat("testlog8", bits=8, decode=lambda code: code * 1.0, encode=lambda value: int(value))
    results = []
    for row in (LOGARITHM, other, LOGARITHM):
        with ext.using(plugin(row)):
            results.append(float(hlojit.compile(text)(x)[0]))
    assert results[1] == 3.0 and results[0] == results[2] == pytest.approx(decode_logarithm(encode_logarithm(3.0)))


def test_format_is_unknown_after_its_plugin_has_gone() -> None:
    with ext.using(plugin(ODD)):
        assert "test7" in str(
            hlojit.parse("func.func @main(%x: tensor<2xtest7>) -> tensor<2xtest7> { return %x : tensor<2xtest7> }")
        )
    with pytest.raises(hlojit.HlojitError, match="test7"):
        hlojit.parse("func.func @main(%x: tensor<2xtest7>) -> tensor<2xtest7> { return %x : tensor<2xtest7> }")


def test_a_codec_that_raises_is_named() -> None:
    def encode(value: float) -> int:
        return int(math.log2(value))

    row = ext.FloatFormat("testlog", bits=8, decode=lambda code: 2.0**code, encode=encode, nan=ext.NanEncoding.NONE)
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %c = stablehlo.constant dense<VALUE> : tensor<4xtestlog>
      %0 = stablehlo.subtract %c, %c : tensor<4xtestlog>
      %1 = stablehlo.convert %0 : (tensor<4xtestlog>) -> tensor<4xf32>
      return %1 : tensor<4xf32>
    }"""
    with ext.using(plugin(row)):
        with pytest.raises(
            hlojit.HlojitError, match=r"the encode function of testlog raised .*cannot convert float NaN to integer"
        ):
            hlojit.compile(text.replace("VALUE", "-1.0"))
        with pytest.raises(hlojit.HlojitError, match="the encode function of testlog raised"):
            hlojit.Array.from_values([0.0], row)
        hlojit.compile(text.replace("VALUE", "1.0"))  # folding fails, and what remains compiles


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_plain_arrays_are_refused_where_they_could_be_codes_or_numbers(backend: str) -> None:
    values = np.array([0.0, 1.0, 2.0, 4.0], "f4")
    row = ext.FloatFormat(
        "test2", bits=2, decode=lambda code: values[code], encode=lambda value: int(value) if value < 4 else 3
    )
    text = """func.func @main(%x: tensor<4xtest2>) -> (tensor<4xf32>, tensor<4xtest2>) {
      %0 = stablehlo.convert %x : (tensor<4xtest2>) -> tensor<4xf32>
      %1 = stablehlo.convert %0 : (tensor<4xf32>) -> tensor<4xtest2>
      return %0, %1 : tensor<4xf32>, tensor<4xtest2>
    }"""
    with ext.using(plugin(row)):
        executable = hlojit.compile(text, backend=backend)
        codes = np.array([0, 1, 2, 3], "u1")
        decoded, encoded = executable(hlojit.Array(codes, row))
        np.testing.assert_array_equal(decoded, values)
        np.testing.assert_array_equal(encoded.storage, codes)
        np.testing.assert_array_equal(encoded, values)
        for plain in (codes, codes.astype("i8"), values):
            with pytest.raises(hlojit.HlojitError, match=r"expected tensor<4xtest2>.*from_values.*hlojit.Array\(codes"):
                executable(plain)
