"""What becomes of the numbers that plugins' functions return: one conversion on all back ends, or a named refusal."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import ml_dtypes
import numpy as np
import pytest
from hlojit.extensions import FloatFormat, NanEncoding

Array = np.ndarray[Any, Any]
BACKENDS = ("cpu", "reference")
FLOATS = np.array([1.5, -1.5, 1e30, -1e30, np.nan, np.inf, -np.inf, 300.7, -0.5, 2.0**63, -(2.0**31), 7.99])
INTEGERS = np.array([1, -1, 2**40 + 3, -(2**40) - 3, 2**31, 255, 300, -129, 0, 2**63 - 1, -(2**63), 2**53 + 1])


def plugin(*, calls: Any = (), formats: Any = ()) -> Any:
    return SimpleNamespace(
        __name__="test", hlojit_custom_calls=ext.hookimpl(lambda: calls), hlojit_formats=ext.hookimpl(lambda: formats)
    )


def run(function: Callable[..., Any], x: Array, kind: str, result: str, backend: str) -> Array:
    """The call, alone and with something fused to its left and right."""
    operand, wanted = f"tensor<{len(x)}x{kind}>", f"tensor<{len(x)}x{result}>"
    text = (
        f"func.func @main(%x: {operand}) -> {wanted} {{\n%0 = stablehlo.custom_call @test.f(%x) : ({operand}) -> {wanted}\n"
        f"return %0 : {wanted}\n}}"
    )
    with ext.using(plugin(calls=[ext.ElementwiseCall("test.f", function=function)])):
        found: Array = np.asarray(hlojit.compile(text, backend=backend)(x))
    return found


def nearest(value: float, low: int, high: int) -> int:
    """What ``stablehlo.convert`` makes of a float, in exact arithmetic."""
    if math.isnan(value):
        return 0
    return high if value >= high else low if value <= low else int(value)


def limits(kind: str) -> tuple[int, int]:
    bits = int(kind.removeprefix("u")[1:])
    return (0, 2**bits - 1) if kind[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


KINDS = ("i2", "i4", "ui4", "i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_floats_become_the_nearest_integers(kind: str, backend: str) -> None:
    low, high = limits(kind)
    x = np.tile(FLOATS, 9)
    expected = [nearest(value, low, high) for value in x.tolist()]
    assert [int(each) for each in run(lambda x: x * 1.0, x, "f64", kind, backend)] == expected


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_integers_wrap(kind: str, backend: str) -> None:
    low, high = limits(kind)
    expected = [(value - low) % (high - low + 1) + low for value in INTEGERS.tolist()]
    assert [int(each) for each in run(lambda x: x, INTEGERS, "i64", kind, backend)] == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_not_zero_is_true(backend: str) -> None:
    np.testing.assert_array_equal(run(lambda x: x, FLOATS * 0.5, "f64", "i1", backend), FLOATS * 0.5 != 0)
    np.testing.assert_array_equal(run(lambda x: x, INTEGERS, "i64", "i1", backend), INTEGERS != 0)
    np.testing.assert_array_equal(run(lambda x: x > 1, INTEGERS, "i64", "f32", backend), (INTEGERS > 1).astype("f4"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_large_integers_are_rounded_to_floats_once(backend: str) -> None:
    x = np.array([2**24 + 1, 2**53 + 1, 2**62 + 2**38 + 1, -(2**62) - 2**38 - 1, 2**63 - 1], "i8")
    np.testing.assert_array_equal(run(lambda x: x, x, "i64", "f32", backend), x.astype("f4"))
    np.testing.assert_array_equal(run(lambda x: x, x, "i64", "f64", backend), x.astype("f8"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_floats_are_rounded_to_formats(backend: str) -> None:
    found = run(lambda x: x, FLOATS, "f64", "f8E4M3FN", backend)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found.astype("f4"), FLOATS.astype(ml_dtypes.float8_e4m3fn).astype("f4"))


def test_conversions_inside_a_function_are_defined() -> None:
    """LLVM says nothing of them, of the code around them neither; a bounds check would not be one."""
    table = np.arange(16.0)
    x = np.tile(FLOATS, 9)
    expected = [nearest(value, -(2**63), 2**63 - 1) for value in x.tolist()]
    assert run(lambda x: int(x), x, "f64", "i64", "cpu").tolist() == expected
    assert run(lambda x: np.uint8(x), x, "f64", "ui8", "cpu").tolist() == [nearest(each, 0, 255) for each in x.tolist()]
    assert run(lambda x: int(1e30) // 2 + x, INTEGERS[:1], "i64", "i64", "cpu").tolist() == [2**62]
    for value in (1e30, -1e30, math.inf, 16.0, -17.0):
        with pytest.raises(hlojit.ExecutionError, match="an index is out of range"):
            run(lambda x: table[int(x)], np.full(40, value), "f64", "f64", "cpu")
    assert run(lambda x: table[int(x)], np.full(40, math.nan), "f64", "f64", "cpu").tolist() == [0.0] * 40


NO_NUMBERS: dict[str, Callable[[float], Any]] = {
    "complex": lambda x: complex(x, 1.0),
    "None": lambda x: None,
    "string": lambda x: "a",
    "tuple": lambda x: (x, x),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NO_NUMBERS)
def test_what_is_no_number_is_refused(name: str, backend: str) -> None:
    for result in ("f64", "i32"):
        with pytest.raises(hlojit.HlojitError, match="'test.f'.* returns? .*a bool, an integer or a float|returned"):
            run(NO_NUMBERS[name], FLOATS, "f64", result, backend)


def handed_on(x: int) -> Any:
    y = x
    if x < 0:
        y = 0.5  # type: ignore[assignment]
    return y


def test_integers_beside_floats_are_refused_where_integers_are_declared() -> None:
    """NumPy's and numba's types would be converted differently."""
    for function in (lambda x: x if x > 0 else 0.5, handed_on):
        with pytest.raises(hlojit.PluginError, match="returns integers and floats.*int"):
            run(function, INTEGERS, "i64", "i32", "cpu")
        np.testing.assert_array_equal(
            run(function, INTEGERS, "i64", "f64", "cpu"), run(function, INTEGERS, "i64", "f64", "reference")
        )
    for backend in BACKENDS:  # literals are the same either way
        assert run(lambda x: x * 0.5 if x > 0 else 3, INTEGERS[:4], "i64", "i32", backend).tolist() == [
            0,
            3,
            2**31 - 1,
            3,
        ]


def codec(encode: Callable[[float], Any], bits: int = 4) -> Any:
    return FloatFormat(
        "wide", bits=bits, decode=lambda code: float(code), encode=encode, has_infinity=False, nan=NanEncoding.NONE
    )


CONVERSION = """func.func @main(%x: tensor<100xf32>) -> tensor<100xf32> {
  %0 = stablehlo.convert %x : (tensor<100xf32>) -> tensor<100xwide>
  %1 = stablehlo.convert %0 : (tensor<100xwide>) -> tensor<100xf32>
  return %1 : tensor<100xf32> }"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("bits", "good", "bad"), [(4, 15, 16), (4, 0, -1), (8, 255, 256), (8, 0, -1), (12, 4095, 2**40)]
)
def test_codes_outside_a_format_are_errors(bits: int, good: int, bad: int, backend: str) -> None:
    with ext.using(plugin(formats=[codec(lambda value: int(value), bits)])):
        executable = hlojit.compile(CONVERSION, backend=backend)
    x = np.full(100, good, "f4")
    assert executable(x).tolist() == x.tolist()
    x[77] = bad
    with pytest.raises(hlojit.HlojitError, match=f"the encode function of wide.* outside its {bits} bits"):
        executable(x)
    x[77] = good
    assert executable(x).tolist() == x.tolist()


@pytest.mark.parametrize("backend", BACKENDS)
def test_codes_that_are_no_integers_are_refused(backend: str) -> None:
    with (
        ext.using(plugin(formats=[codec(lambda value: value)])),
        pytest.raises(hlojit.HlojitError, match="the encode function of wide.*a code is an integer"),
    ):
        hlojit.compile(CONVERSION, backend=backend)(np.ones(100, "f4"))
