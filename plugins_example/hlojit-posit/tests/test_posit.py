"""Posits against fractions, run as a vendor would run them: with an installed hlojit and this installed package."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import hlojit
import mlp
import numpy as np
import pytest
from exact import edges, nearest, number
from hlojit import testing
from hlojit.extensions import registry
from hlojit_posit.codec import decoder, encoder

BACKENDS = ("cpu", "reference")
WIDTHS = (8, 16, 32)
EXACT = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y if y else None,
}


def posits(codes: Any, bits: int) -> hlojit.Array:
    return hlojit.Array(np.asarray(codes).astype(f"u{bits // 8}"), f"posit{bits}")


def apply(op: str, bits: int, *codes: Any, backend: str = "cpu") -> list[int]:
    """The codes of the results of an op of StableHLO."""
    kind = f"tensor<{len(codes[0])}xposit{bits}>"
    names = ["%x", "%y"][: len(codes)]
    header = ", ".join(f"{name}: {kind}" for name in names)
    text = (
        f"func.func @main({header}) -> {kind} {{ %0 = stablehlo.{op} {', '.join(names)} : {kind} return %0 : {kind} }}"
    )
    return hlojit.compile(text, backend=backend)(*(posits(each, bits) for each in codes)).storage.tolist()


def convert(source: str, target: str, x: Any, backend: str = "cpu") -> Any:
    one, other = (f"tensor<{len(x)}x{name}>" for name in (source, target))
    text = f"func.func @main(%x: {one}) -> {other} {{ %0 = stablehlo.convert %x : ({one}) -> {other} return %0 : {other} }}"
    return hlojit.compile(text, backend=backend)(x)


def sample(bits: int, count: int, seed: int = 0) -> list[int]:
    """Codes: all edges, random ones, and numbers whose exponents are near each other."""
    rng = np.random.default_rng(seed)
    half = count // 2
    close = encode_all(rng.normal(0, 4, count - half), bits)
    return edges(bits) + rng.integers(0, 1 << bits, half).tolist() + close


def encode_all(values: Any, bits: int) -> list[int]:
    return hlojit.Array.from_values(np.asarray(values, "f8"), f"posit{bits}").storage.tolist()


def expected(op: str, bits: int, x: list[int], y: list[int]) -> list[int]:
    results = []
    for left, right in ((number(a, bits), number(b, bits)) for a, b in zip(x, y, strict=True)):
        results.append(nearest(None if left is None or right is None else EXACT[op](left, right), bits))
    return results


def test_plugin_is_found_by_its_entry_point() -> None:
    record = registry().load().records["posit"]
    assert record.package == "hlojit-posit" and not record.error and record.identity


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_codes_mean_the_numbers_of_the_standard_and_come_back(bits: int, backend: str) -> None:
    codes = list(range(1 << bits)) if bits < 32 else sample(bits, 4000)
    values = convert(f"posit{bits}", "f64", posits(codes, bits), backend)
    for code, value in zip(codes, values.tolist(), strict=True):
        exact = number(code, bits)
        assert value != value if exact is None else Fraction(value) == exact
    assert convert("f64", f"posit{bits}", values, backend).storage.tolist() == codes


@pytest.mark.parametrize("bits", WIDTHS)
def test_the_functions_called_from_python_say_the_same(bits: int) -> None:
    decode, encode = decoder(bits), encoder(bits)
    for code in range(256) if bits == 8 else edges(bits):
        exact = number(code, bits)
        assert encode(decode(code)) == code
        assert decode(code) != decode(code) if exact is None else Fraction(float(decode(code))) == exact


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_between_two_codes_are_rounded_by_the_bits(bits: int, backend: str) -> None:
    """At each number that decides, exact in f64, and on its two sides; posit8 and posit16: all that there are."""
    largest = (1 << (bits - 1)) - 1
    lower = range(1, largest) if bits < 32 else [code for code in sample(bits, 1000) if 0 < code < largest]
    middles = np.array([float(number(2 * code + 1, bits + 1)) for code in lower])
    above, below = np.nextafter(middles, np.inf), np.nextafter(middles, 0)
    for values, wanted in (
        (middles, [code + code % 2 for code in lower]),
        (above, [code + 1 for code in lower]),
        (below, list(lower)),
        (-above, [(1 << bits) - code - 1 for code in lower]),
    ):
        assert convert("f64", f"posit{bits}", values, backend).storage.tolist() == wanted


@pytest.mark.parametrize("bits", WIDTHS)
def test_nothing_becomes_zero_or_nar_that_is_neither(bits: int) -> None:
    nar = 1 << (bits - 1)
    values = [1e-45, -1e-45, 1e-38, 3e38, -3e38, 0.0, -0.0, np.inf, -np.inf, np.nan]
    assert encode_all(values, bits) == [1, 2 * nar - 1, 1, nar - 1, nar + 1, 0, 0, nar, nar, nar]


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_becomes_zero_or_nar_beyond_the_range_of_f32(bits: int, backend: str) -> None:
    nar = 1 << (bits - 1)
    values = np.array([5e-324, -1e-300, 1e39, 1.7e308, -1.7e308])
    assert convert("f64", f"posit{bits}", values, backend).storage.tolist() == [
        1,
        2 * nar - 1,
        nar - 1,
        nar - 1,
        nar + 1,
    ]


@pytest.mark.parametrize("op", EXACT)
def test_posit8_computes_every_pair_exactly_and_rounds_once(op: str) -> None:
    x, y = (each.ravel().tolist() for each in np.meshgrid(np.arange(256), np.arange(256)))
    wanted = expected(op, 8, x, y)
    for backend in BACKENDS:
        assert apply(op, 8, x, y, backend=backend) == wanted


@pytest.mark.parametrize("op", EXACT)
@pytest.mark.parametrize("bits", [16, 32])
def test_wider_posits_round_once(op: str, bits: int) -> None:
    x, y = sample(bits, 1500), sample(bits, 1500)
    rng = np.random.default_rng(2)
    rng.shuffle(y)
    wanted = expected(op, bits, x, y)
    for backend in BACKENDS:
        assert apply(op, bits, x, y, backend=backend) == wanted


@pytest.mark.parametrize("bits", WIDTHS)
def test_square_roots_round_once(bits: int) -> None:
    codes = list(range(256)) if bits == 8 else sample(bits, 1500)
    nar = 1 << (bits - 1)
    wanted = [nar if code >= nar else nearest(number(code, bits), bits, 2) for code in codes]
    for backend in BACKENDS:
        assert apply("sqrt", bits, codes, backend=backend) == wanted


@pytest.mark.parametrize("backend", BACKENDS)
def test_posit32_products_that_f64_would_round_to_a_tie(backend: str) -> None:
    """28 bits times 28 bits: f64 drops the last three of the product, and with them the side of the tie it lies on."""
    rng = np.random.default_rng(0)
    x, y = [], []
    while len(x) < 500:
        left = int(rng.integers(1 << 27, 1 << 28)) | 1
        side = int(rng.choice([-1, 1]))
        right = ((1 << 27) + side) * pow(left, -1, 1 << 28) % (1 << 28)
        if right >= 1 << 27 and left * right >= 1 << 55:
            x.append(left)
            y.append(right)
    codes = [encode_all(np.array(each) * 2.0**-27, 32) for each in (x, y)]
    wanted = expected("multiply", 32, *codes)
    assert apply("multiply", 32, *codes, backend=backend) == wanted
    twice = encode_all(np.array(x) * 2.0**-27 * (np.array(y) * 2.0**-27), 32)
    assert sum(one != other for one, other in zip(twice, wanted, strict=True)) > 100, "the test tries what it says"


@pytest.mark.parametrize("backend", BACKENDS)
def test_conversions_round_once(backend: str) -> None:
    tie = 2**54  # between the two largest posit16
    assert convert("i64", "posit16", np.array([tie + 1, tie, -tie - 1]), backend).storage.tolist() == [
        0x7FFF,
        0x7FFE,
        0x8001,
    ]
    near = posits(encode_all([1.0625 + 2.0**-27, 1.0625, 1.0625 - 2.0**-27], 32), 32)
    assert convert("posit32", "posit8", near, backend).storage.tolist() == [0x41, 0x40, 0x40]
    values = posits(encode_all([2.5, -2.5, 1e30, np.nan], 16), 16)
    assert convert("posit16", "i32", values, backend).tolist() == [2, -2, 2**31 - 1, 0]
    np.testing.assert_array_equal(
        convert("posit16", "f16", values, backend), np.array([2.5, -2.5, np.inf, np.nan], "f2")
    )


@pytest.mark.parametrize(("bits", "step"), [(8, 1), (16, 16), (32, 1 << 21)])
@pytest.mark.parametrize("op", ["exponential", "log"])
def test_functions_are_rounded_once_where_f64_holds_the_result(op: str, bits: int, step: int) -> None:
    """Not so by construction: the function is rounded to f32 or f64 first. These codes do not meet a tie."""
    context = Context(prec=40)
    codes, wanted = [], []
    for code in range(1, 1 << (bits - 1), step):
        for signed in (code, (1 << bits) - code):
            exact = number(signed, bits)
            assert exact is not None
            if (op == "log" and exact <= 0) or (op == "exponential" and abs(exact) > 80):
                continue
            x = context.divide(Decimal(exact.numerator), Decimal(exact.denominator))
            codes.append(signed)
            wanted.append(nearest(Fraction(context.exp(x) if op == "exponential" else context.ln(x)), bits))
    assert apply(op, bits, codes) == wanted


@pytest.mark.parametrize("bits", WIDTHS)
def test_what_the_standard_has_otherwise(bits: int) -> None:
    """No part of the format: each op is computed in a float, which overflows, and sums are no quire."""
    nar = 1 << (bits - 1)
    assert apply("exponential", bits, encode_all([1000, -1000], bits)) == [nar, 0], "the standard: largest and smallest"
    big, small = 2.0 ** (4 * bits - 8), 2.0 ** (8 - 4 * bits)
    dot = hlojit.jit(lambda x, y: x @ y)
    found = dot(posits(encode_all([big, small, -big], bits), bits), posits(encode_all([big, 1, big], bits), bits))
    assert found.to_values() == 0, "a quire keeps the smallest posit"


@pytest.mark.parametrize("bits", WIDTHS)
def test_order(bits: int) -> None:
    codes = sample(bits, 400)
    signed = np.array(codes, f"u{bits // 8}").view(f"i{bits // 8}")
    x = posits(codes, bits)
    ordered = hlojit.jit(np.sort)(x).storage.view(signed.dtype)
    nar = (signed == np.iinfo(signed.dtype).min).sum()
    np.testing.assert_array_equal(ordered, np.roll(np.sort(signed), -nar))  # np.sort has NaN behind all numbers
    kind = f"tensor<{len(codes)}xposit{bits}>"
    flags = f"tensor<{len(codes)}xi1>"
    for backend in BACKENDS:
        for order in ("FLOAT", "TOTALORDER"):
            less = hlojit.compile(
                f"func.func @main(%x: {kind}, %y: {kind}) -> {flags} {{"
                f" %0 = stablehlo.compare LT, %x, %y, {order} : ({kind}, {kind}) -> {flags} return %0 : {flags} }}",
                backend=backend,
            )(x, posits(codes[::-1], bits))
            wanted = signed < signed[::-1]
            if order == "FLOAT":  # NaR is NaN there: less than nothing
                lowest = np.iinfo(signed.dtype).min
                wanted &= (signed != lowest) & (signed[::-1] != lowest)
            np.testing.assert_array_equal(less, wanted)


@pytest.mark.parametrize(("bits", "code"), [(8, "0x44"), (16, "0x4400"), (32, "0x44000000")])
def test_text(bits: int, code: str) -> None:
    kind = f"tensor<2xposit{bits}>"
    text = (
        f"func.func @main() -> {kind} {{ %0 = stablehlo.constant dense<[1.5, 1.0e+38]> : {kind} return %0 : {kind} }}"
    )
    largest = (1 << (bits - 1)) - 1
    assert f"dense<[{code}, 0x{largest:X}]>" in str(hlojit.parse(text))
    for program in (text, str(hlojit.parse(text)), text.replace("1.5", code)):
        assert hlojit.compile(program)().storage.tolist() == [int(code, 16), largest]
    shown = hlojit.Array.from_values([1.5, np.nan], f"posit{bits}")
    assert repr(shown) == f"Array([1.5, nan], tensor<2xposit{bits}>)"
    nar = text.replace("[1.5, 1.0e+38]", hex(largest + 1))
    assert np.isnan(hlojit.compile(nar)().to_values()).all()


def test_a_network_is_trained_in_posits() -> None:
    single = mlp.train("f4", "f4", 100)
    assert single[-1] < single[0] / 50
    for computed, kept in (("posit16", "posit16"), ("posit8", "posit16")):
        losses = mlp.train(computed, kept, 100)
        np.testing.assert_allclose(losses[0], single[0], rtol=0.05)
        assert losses[-1] < 1.25 * single[-1]


@pytest.mark.parametrize(
    ("bits", "groups"), [(8, ()), (16, ("encodings", "rounding", "text")), (32, ("encodings", "rounding"))]
)
def test_the_kit(bits: int, groups: tuple[str, ...]) -> None:
    """All of it for the quickest; ``pytest --pyargs hlojit.testing --plugin=posit`` tries all of all."""
    registry().load()
    testing.check_format(f"posit{bits}", budget="smoke", groups=groups).raise_if_failed()
