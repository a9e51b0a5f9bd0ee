"""Jitted functions of arrays of registered formats, which NumPy has no dtype for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir.formats import BUILT_IN, element_type
from hlojit.tracing.errors import TracingError


def stepped(step: float) -> ext.FloatFormat:
    """A fixed-point format of 8 bits, made of a codec alone: code 128 is 0, a code more is ``step`` more."""

    def decode(code: int) -> float:
        return ((code & 255) - 128) * step

    def encode(value: float) -> int:
        return int(min(max(math.floor(value / step + 0.5) + 128.0, 0.0), 255.0))

    return ext.FloatFormat("acme8", bits=8, decode=decode, encode=encode, has_infinity=False, nan=ext.NanEncoding.NONE)


def plugin(*formats: ext.FloatFormat) -> Any:
    return SimpleNamespace(__name__="test", hlojit_formats=ext.hookimpl(lambda: list(formats)))


SMALL = ext.FloatFormat("acme6", exponent_bits=3, mantissa_bits=2, bias=3)


@pytest.fixture(autouse=True)
def _formats() -> Iterator[None]:
    with ext.using(plugin(stepped(0.25), SMALL)):
        yield


def test_a_jitted_function_takes_and_returns_arrays_of_a_format() -> None:
    x = hlojit.Array.from_values(np.arange(6).reshape(2, 3) / 4, "acme8")
    y = hlojit.Array.from_values(np.float32([1, 2, -3]), "acme8")

    @hlojit.jit
    def f(x: Any, y: Any) -> Any:
        return {"sum": x + y, "wide": x.astype(np.float32) * 2, "same": y[::-1], "moved": x.T}

    for _ in range(2):
        result = f(x, y)
        total = result["sum"]
        assert isinstance(total, hlojit.Array) and total.element_type is x.element_type
        np.testing.assert_array_equal(total.to_values(), x.to_values() + y.to_values())
        np.testing.assert_array_equal(result["wide"], x.to_values() * 2)
        np.testing.assert_array_equal(result["same"].to_values(), y.to_values()[::-1])
        np.testing.assert_array_equal(result["moved"].to_values(), x.to_values().T)


def test_the_element_type_is_part_of_the_signature() -> None:
    traced = []

    @hlojit.jit
    def f(x: Any) -> Any:
        traced.append(1)
        return x + x

    codes = np.uint8([130, 140])
    for _ in range(2):
        np.testing.assert_array_equal(f(hlojit.Array(codes, "acme8")).to_values(), [1, 6])
        np.testing.assert_array_equal(f(codes), codes + codes)
        np.testing.assert_array_equal(f(hlojit.Array(codes.view("i1"), "i8")), codes.view("i1") * 2)
    assert len(traced) == 3


def test_arithmetic_with_numbers_and_conversion_to_a_format() -> None:
    x = hlojit.Array.from_values(np.float32([0.5, -2, 3]), "acme8")
    result = hlojit.jit(lambda x: (x * 2 - 1.5, -x, np.maximum(x, 0)))(x)
    for ours, expected in zip(result, (x.to_values() * 2 - 1.5, -x.to_values(), np.maximum(x.to_values(), 0))):
        assert isinstance(ours, hlojit.Array)
        np.testing.assert_array_equal(ours.to_values(), expected)
    made = hlojit.jit(lambda x: x.astype("acme8"))(np.float32([0.3, 1.0]))
    np.testing.assert_array_equal(made.to_values(), [0.25, 1.0])
    np.testing.assert_array_equal(hlojit.jit(lambda x: (x > 0, np.where(x > 0, x, -x)))(x)[0], [True, False, True])


def test_formats_do_not_mix_with_dtypes_silently() -> None:
    x = hlojit.Array.from_values(np.float32([0.5, -2]), "acme8")
    with pytest.raises(hlojit.HlojitError, match=r"acme8.*float32.*astype"):
        hlojit.jit(lambda x, y: x + y)(x, np.ones(2, "f4"))


def test_arrays_of_types_of_less_than_a_byte() -> None:
    x = hlojit.Array(np.int8([1, -8, 7]), "i4")
    result = hlojit.jit(lambda x: x[::-1])(x)
    assert np.asarray(result).astype("i1").tolist() == [7, -8, 1]


def test_each_function_rounds_once_into_the_format() -> None:
    x = np.float32([0.0, 0.25, 1.0, 1.5, 2.0, 3.0])
    encoded = hlojit.Array.from_values(x, "acme6")
    result = hlojit.jit(lambda x: (np.exp(x), np.sqrt(x), np.hypot(x, 1), x / 3, np.isinf(x)))(encoded)
    for ours, exact in zip(result, (np.exp(x), np.sqrt(x), np.hypot(x, 1), x / np.float32(3))):
        np.testing.assert_array_equal(ours.to_values(), hlojit.Array.from_values(exact, "acme6").to_values())
    assert not result[-1].any()


def test_indexing_updates_and_joining_keep_the_format() -> None:
    x = hlojit.Array.from_values(np.arange(6, dtype="f4").reshape(2, 3), "acme8")

    @hlojit.jit
    def f(x: Any) -> Any:
        updated = x.copy()
        updated[0, 1:] = 7.5
        return updated, np.concatenate([x, x[:1]]), np.zeros_like(x), x[np.array([1, 0, 1])]

    plain = np.arange(6, dtype="f4").reshape(2, 3)
    updated = plain.copy()
    updated[0, 1:] = 7.5
    expected = (updated, np.concatenate([plain, plain[:1]]), np.zeros_like(plain), plain[[1, 0, 1]])
    for ours, theirs in zip(f(x), expected):
        assert isinstance(ours, hlojit.Array)
        np.testing.assert_array_equal(ours.to_values(), theirs)


def test_an_array_of_a_format_from_outside_is_a_constant_of_it() -> None:
    weights = hlojit.Array.from_values(np.float32([1.5, -2.0]), "acme8")
    x = hlojit.Array.from_values(np.float32([0.5, 0.25]), "acme8")
    np.testing.assert_array_equal(hlojit.jit(lambda x: x + weights)(x).to_values(), [2.0, -1.75])


def test_what_needs_a_dtype_says_what_to_do() -> None:
    x = hlojit.Array.from_values(np.float32([1.5, -2.0]), "acme8")
    with pytest.raises(hlojit.HlojitError, match=r"acme8 has none.*astype"):
        hlojit.jit(lambda x: np.linalg.norm(x))(x)
    np.testing.assert_array_equal(hlojit.jit(lambda x: x.to_values().sum())(x), np.float32(-0.5))


def test_an_array_of_a_format_that_was_registered_again() -> None:
    x = hlojit.Array.from_values(np.float32([1.5, -2.0]), "acme8")
    f = hlojit.jit(lambda x, y: x + y.astype("acme8"))
    for _ in range(2):
        with ext.using(plugin(stepped(0.25), SMALL)):
            np.testing.assert_array_equal(f(x, np.float32([0.5, 1])).to_values(), [2, -1])
    with (
        ext.using(plugin(stepped(0.5), SMALL)),
        pytest.raises(hlojit.ArgumentError, match="acme8 was registered again"),
    ):
        f(x, np.float32([0.5, 1]))


def test_plugins_of_a_jitted_function_that_another_one_calls() -> None:
    other = ext.FloatFormat("other8", exponent_bits=4, mantissa_bits=3, bias=7)
    inner = hlojit.jit(plugins=[SimpleNamespace(__name__="inner", hlojit_formats=ext.hookimpl(lambda: [other]))])(
        lambda x: x.astype("other8").astype(np.float32)
    )
    x = np.float32([1.01, 3.3])
    np.testing.assert_array_equal(hlojit.jit(lambda x: inner(x) + 1)(x), np.float32([2.0, 4.25]))
    np.testing.assert_array_equal(inner(x), np.float32([1.0, 3.25]))


@pytest.mark.parametrize("name", ["f8", "f4", "half", "b1", "d", "float", "a6"])
def test_a_registered_name_is_the_format_whatever_numpy_calls_so(name: str) -> None:
    x = np.float32([0.3, 1.13, 100])
    narrow = ext.FloatFormat(
        name, exponent_bits=3, mantissa_bits=2, bias=3, has_infinity=False, nan=ext.NanEncoding.NONE,
        overflow=ext.Overflow.SATURATE,
    )  # fmt: skip
    f = hlojit.jit(lambda x: x.astype(name).astype(np.float32))
    with ext.using(SimpleNamespace(__name__="other", hlojit_formats=ext.hookimpl(lambda: [narrow]))):
        np.testing.assert_array_equal(f(x), np.float32([0.3125, 1.25, 28]))


def test_hlojits_own_spellings_are_numpys_dtypes() -> None:
    assert hlojit.jit(lambda x: x.astype("i4"))(np.float32([100])).tolist() == [100]


def test_an_unknown_name_is_refused_with_near_ones() -> None:
    with pytest.raises(TracingError, match="'acme9' is no dtype .* no plugin registered .* 'acme"):
        hlojit.jit(lambda x: x.astype("acme9"))(np.float32([1]))


def test_codes_outside_the_format_are_refused() -> None:
    with pytest.raises(hlojit.HlojitError, match=r"Array of acme6: the code 200 is outside its 6 bits \(0 to 63\)"):
        hlojit.Array(np.uint8([1, 200]), "acme6")
    with pytest.raises(hlojit.HlojitError, match=r"Array of i4: the code 100 is outside its 4 bits \(-8 to 7\)"):
        hlojit.Array(np.int8([100]), "i4")


def test_every_element_type_has_a_name_for_astype() -> None:
    """One rule: NumPy's dtypes that there are elements of, then StableHLO's names."""
    numpys = {"i1": "i1", "i2": "i2", "i4": "i4", "i8": "i8"}
    given = np.array([0, 1, 1])
    for row in BUILT_IN.values():
        wanted = np.dtype(numpys[row.name]) if row.name in numpys else row.dtype
        if wanted is None:  # a block format
            made = hlojit.jit(lambda x, name=row.name: x.astype(name))(np.ones((32, 32), "f4"))
            assert made.element_type == row
            continue
        by_name = hlojit.jit(lambda x, name=row.name: x.astype(name))(given)
        assert by_name.dtype == wanted
        by_dtype = hlojit.jit(lambda x, dtype=wanted: x.astype(dtype))(given)
        np.testing.assert_array_equal(by_name.view("u1"), by_dtype.view("u1"))


def test_names_of_stablehlo_where_a_dtype_is_wanted() -> None:
    ones = np.ones(3, "f4")
    assert hlojit.jit(lambda x: np.sum(x, dtype="f16"))(ones).dtype == np.float16
    assert hlojit.jit(lambda x: np.mean(x, dtype="f64"))(ones).dtype == np.float64
    assert hlojit.jit(lambda x: np.add(x, x, dtype="f64"))(ones).dtype == np.float64
    assert hlojit.jit(lambda x: np.full_like(x, 2, dtype="bf16"))(ones).dtype == element_type("bf16").dtype
    with pytest.raises(TracingError, match=r"computes nothing in acme6.*astype"):
        hlojit.jit(lambda x: np.sum(x, dtype="acme6"))(ones)
