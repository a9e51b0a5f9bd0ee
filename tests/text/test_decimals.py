"""Decimals beside the boundaries of a format round once, whatever f64 lies next to them."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.extensions import FloatFormat, Rounding
from hlojit.ir.attributes import FloatAttr
from hlojit.ir.formats import element_type
from hlojit.ir.scalar.arrays import decode_array
from hlojit.ir.text.parser import parse_module
from hlojit.ir.text.printer import print_module

from ..extensions.listed_formats import POSIT

WIDE: dict[str, Any] = {"exponent_bits": 7, "bias": 63}
OWN = [
    POSIT.row,
    FloatFormat("decimals24", mantissa_bits=16, **WIDE),
    FloatFormat("decimals42", mantissa_bits=34, **WIDE),
    FloatFormat("decimals58", mantissa_bits=50, **WIDE),
    FloatFormat("decimals60", mantissa_bits=52, **WIDE),
]
TOWARD = FloatFormat("decimals10z", exponent_bits=5, mantissa_bits=4, bias=15, rounding=Rounding.TOWARD_ZERO)
AWAY = FloatFormat("decimals10a", exponent_bits=5, mantissa_bits=4, bias=15, rounding=Rounding.AWAY_FROM_ZERO)
BUILT_IN = (
    "f8E4M3FN",
    "f8E5M2",
    "f8E3M4",
    "f6E2M3FN",
    "f6E3M2FN",
    "f4E2M1FN",
    "f8E8M0FNU",
    "bf16",
    "f16",
    "f32",
    "f64",
)
PLUGIN = SimpleNamespace(__name__="decimals", hlojit_formats=ext.hookimpl(lambda: [*OWN, TOWARD, AWAY]))
NAMES = [*BUILT_IN, *(row.name for row in OWN)]
COUNT = 25


@pytest.fixture(scope="module", autouse=True)
def formats() -> Any:
    with ext.using(PLUGIN):
        yield


def exact(number: Fraction) -> str:
    """All digits of a sum of powers of two."""
    with localcontext() as context:
        context.prec = 2000
        digits = f"{Decimal(number.numerator) / Decimal(number.denominator):e}"
    return digits if "." in digits else digits.replace("e", ".0e")


def numbers(name: str) -> tuple[list[int], list[Fraction], list[Fraction]]:
    """Positive codes that have a neighbour above them, their numbers, and those of these neighbours."""
    row = cast(FloatFormat, element_type(name))
    rng = np.random.default_rng(len(name))
    # Of the wide formats, numbers that f64 holds: their lower half is zero.
    codes = rng.integers(1, (1 << row.bits - row.signed) - 2, 4 * COUNT).astype(np.uint64).astype(row.storage_bits)
    pairs = []
    for code in codes.tolist():
        found = []
        for each in (code, code + 1):
            if row.in_integers:
                fraction = each & (1 << row.mantissa_bits) - 1
                exponent = each >> row.mantissa_bits
                number = Fraction((bool(exponent) << row.mantissa_bits) + fraction, 1 << row.mantissa_bits)
                top = exponent == (1 << row.exponent_bits) - 1
                found.append(None if top else number * Fraction(2) ** (max(exponent, 1) - row.bias))
                continue
            value = float(np.asarray(decode_array(np.array([each], row.storage_bits).view(row.storage), row)).item())
            found.append(Fraction(value) if np.isfinite(value) else None)
        if found[0] is not None and found[1] is not None:
            pairs.append((code, *found))
    kept = pairs[:COUNT]
    return [each[0] for each in kept], [each[1] for each in kept], [each[2] for each in kept]


def codes_of(words: list[str], name: str) -> list[int]:
    row = cast(FloatFormat, element_type(name))
    type = f"tensor<{len(words)}x{name}>"
    text = f"func.func @main() -> {type} {{\n %0 = stablehlo.constant dense<[{', '.join(words)}]> : {type}\n return %0 : {type}\n}}"
    (constant,) = (each for each in parse_module(text).main.body if "value" in each.attributes)
    return cast("list[int]", np.ascontiguousarray(constant.attributes["value"].array).view(row.storage_bits).tolist())  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NAMES)
def test_beside_ties(name: str) -> None:
    """A little less than half way between two numbers is the lower one, a little more the upper one."""
    codes, lower, upper = numbers(name)
    assert len(codes) > 5
    middles = [(low + high) / 2 for low, high in zip(lower, upper)]
    if name == "f8E8M0FNU":  # its middle is taken between exponents
        middles = [low * Fraction(3, 2) for low in lower]
    for sign, expected in ((-1, codes), (1, [code + 1 for code in codes])):
        words = [exact(middle * (1 + sign * Fraction(1, 2**90))) for middle in middles]
        assert codes_of(words, name) == expected
        one = [codes_of([word], name)[0] for word in words[:5]]
        assert one == expected[:5]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("f8E8M0FNU", POSIT.row.name)])
def test_ties_are_even(name: str) -> None:
    codes, lower, upper = numbers(name)
    words = [exact((low + high) / 2) for low, high in zip(lower, upper)]
    assert codes_of(words, name) == [code + code % 2 for code in codes]


@pytest.mark.parametrize(("row", "below", "above"), [(TOWARD, -1, 0), (AWAY, 0, 1)], ids=["toward zero", "away"])
def test_directed_roundings_see_on_which_side(row: FloatFormat, below: int, above: int) -> None:
    codes, lower, _ = numbers(row.name)
    for sign, change in ((-1, below), (1, above)):
        words = [exact(low * (1 + sign * Fraction(1, 2**90))) for low in lower]
        assert codes_of(words, row.name) == [code + change for code in codes]


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "f8E4M3FN", "decimals24", "decimals60"])
def test_attributes(name: str) -> None:
    """Numbers of attributes are read like elements of constants, and printed again as they were read."""
    _, lower, upper = numbers(name)
    for low, high in list(zip(lower, upper))[:8]:
        word = exact((low + high) / 2 * (1 + Fraction(1, 2**90)))
        text = f"module attributes {{own.number = {word} : {name}}} {{\nfunc.func @main() {{\n return\n}}\n}}"
        module = parse_module(text)
        number = module.attributes["own.number"]
        assert isinstance(number, FloatAttr) and Fraction(number.value) == high
        assert print_module(parse_module(print_module(module))) == print_module(module)


def test_decimals_out_of_range() -> None:
    """What f64 does not hold is still on one side of zero, or of infinity."""
    words = ["1.0e400", "-1.0e400", "1.0e-400", "-1.0e-400", "1.0e999999999999999999999", "1.0e-999999999999999999999"]
    assert codes_of(words, "f32") == [0x7F800000, 0xFF800000, 0, 0x80000000, 0x7F800000, 0]
    assert codes_of(words, TOWARD.name)[0] == (0b0_11110_1111 if TOWARD.has_infinity else 0)
    assert codes_of(words[2:3], AWAY.name) == [1]


def test_scales_of_quantized_types() -> None:
    """They are used as numbers of the expressed type."""
    tie = 1 + Fraction(1, 2**24)
    for word, expected in ((exact(tie * (1 + Fraction(1, 2**90))), 1 + 2.0**-23), (exact(tie), 1.0)):
        type = f"tensor<2x!quant.uniform<i8:f32, {word}>>"
        text = f"func.func @main(%x: {type}) -> tensor<2xf32> {{ %0 = stablehlo.uniform_dequantize %x : ({type}) -> tensor<2xf32> return %0 : tensor<2xf32> }}"
        for backend in ("cpu", "reference"):
            found = hlojit.compile(text, backend=backend)(np.array([1, 2], np.int8))
            np.testing.assert_array_equal(np.asarray(found), np.array([1, 2]) * expected)
