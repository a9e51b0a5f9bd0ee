"""Fields of float formats: what is refused when one is made, and in which native float it is computed."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir.format_fields import native_compute

NAN, OVER = ext.NanEncoding, ext.Overflow


def made(name: str = "test9", **fields: Any) -> ext.FloatFormat:
    return ext.FloatFormat(name, **{"exponent_bits": 4, "mantissa_bits": 4, "bias": 7, **fields})


@pytest.mark.parametrize(("fields", "message"), [
    ({"name": "7-bit"}, "name='7-bit' cannot be written in a program"),
    ({"name": "größe"}, "cannot be written"),
    ({"name": "i7"}, "name='i7' means something else"),
    ({"name": "tensor"}, "name='tensor' means something else"),
    ({"name": "f32"}, "name='f32' is a type of hlojit's own"),
    ({"name": "bf16", "numpy_name": "float64"}, "numpy_name='float64' is a dtype of 64 bits, and the format has 9"),
    ({"bits": 9, "exponent_bits": 0, "mantissa_bits": 8}, "exponent_bits=0 leaves no field"),
    ({"exponent_bits": 2.0}, "exponent_bits=2.0 is no integer"),
    ({"mantissa_bits": -1}, "mantissa_bits=-1 is negative"),
    ({"bits": 12}, "bits=12, and its sign, exponent and mantissa have 9; leave bits out"),
    ({"mantissa_bits": 74}, "it has 79 bits; a format has 2 to 64"),
    ({"signed": False, "exponent_bits": 1, "mantissa_bits": 0}, "it has 1 bits"),
    ({"bias": 500_000}, "is bias=500000 right"),
    ({"has_infinity": False}, r"overflow=Overflow.INFINITY \(the default\) and has_infinity=False; say Overflow.NAN or"),
    ({"has_infinity": False, "nan": NAN.NONE, "overflow": OVER.NAN}, "overflow=Overflow.NAN and nan=NanEncoding.NONE"),
    ({"nan": NAN.NEGATIVE_ZERO, "signed": False}, "there is no negative zero"),
    ({"nan": NAN.NEGATIVE_ZERO, "has_zero": False}, "there is no zero"),
    ({"mantissa_bits": 0}, "nan=NanEncoding.IEEE is a mantissa that is not zero"),
    ({"exponent_bits": 1, "mantissa_bits": 0, "nan": NAN.ALL_ONES, "overflow": OVER.NAN, "has_infinity": False},
     "leave no pattern for a number but zero"),
    ({"nan": "IEEE"}, "nan='IEEE' is none of NanEncoding.IEEE"),
    ({"overflow": True}, "overflow=True is none of Overflow.INFINITY"),
    ({"accumulator": "f16"}, "accumulator='f16' is no type in which sums are taken; say 'f32' or 'f64'"),
    ({"decode": abs}, "it has decode and no encode"),
    ({"encode": abs}, "it has encode and no decode"),
    ({"decode": 3, "encode": abs}, "decode=3 is no function"),
    ({"numpy_name": "float9_e4m4"}, "numpy_name='float9_e4m4' is a dtype of neither"),
    ({"numpy_name": "float16"}, "is a dtype of 16 bits, and the format has 9"),
])  # fmt: skip
def test_contradictory_fields_are_refused_at_once(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=message):
        made(**fields)


def test_one_error_lists_all_that_is_wrong() -> None:
    with pytest.raises(hlojit.HlojitError) as error:
        made(bits=12, accumulator="f16", numpy_name="nothing")
    assert all(part in str(error.value) for part in ("'test9' cannot be", "bits=12", "accumulator=", "numpy_name="))


def test_a_hook_that_makes_such_a_format_is_named() -> None:
    plugin = SimpleNamespace(__name__="careless", hlojit_formats=ext.hookimpl(lambda: [made(bits=12)]))
    with pytest.raises(hlojit.PluginError, match=r"careless.*leave bits out"):
        ext.register(plugin)


def test_formats_that_are_odd_and_right() -> None:
    made(exponent_bits=1, mantissa_bits=1, bias=0)
    made(mantissa_bits=0, nan=NAN.NONE, has_infinity=False, overflow=OVER.SATURATE)
    made(signed=False, mantissa_bits=12)
    made(numpy_name="", exponent_bits=1, mantissa_bits=0, nan=NAN.NONE, has_infinity=False, overflow=OVER.SATURATE)


@pytest.mark.parametrize(("fields", "expected"), [
    ({"exponent_bits": 4, "mantissa_bits": 3}, "f32"),
    ({"exponent_bits": 5, "mantissa_bits": 10, "bias": 15}, "f32"),
    ({"exponent_bits": 5, "mantissa_bits": 11, "bias": 15}, "f64"),  # products have 24 bits, but quotients need 26
    ({"exponent_bits": 8, "mantissa_bits": 7, "bias": 127}, "f32"),
    ({"exponent_bits": 8, "mantissa_bits": 8, "bias": 127}, "f64"),  # products among the least numbers lose bits in f32
    ({"exponent_bits": 8, "mantissa_bits": 7, "bias": 127, "nan": NAN.ALL_ONES, "has_infinity": False,
      "overflow": OVER.NAN}, "f64"),  # numbers up to 2**129
    ({"exponent_bits": 8, "mantissa_bits": 7, "bias": 127, "overflow": OVER.SATURATE}, "f64"),  # infinity is not the largest number
    ({"exponent_bits": 8, "mantissa_bits": 15, "bias": 127}, "f64"),
    ({"exponent_bits": 8, "mantissa_bits": 24, "bias": 127}, "f64"),
    ({"exponent_bits": 8, "mantissa_bits": 25, "bias": 127}, ""),
    ({"exponent_bits": 11, "mantissa_bits": 52, "bias": 1023}, "f64"),
])  # fmt: skip
def test_the_float_in_which_a_format_is_computed(fields: dict[str, Any], expected: str) -> None:
    row = ext.FloatFormat("test", **{"bias": 7, **fields})
    assert native_compute(row) == expected


@pytest.mark.parametrize(("numbers", "expected"), [
    (lambda code: code / 8, "f32"),
    (lambda code: math.nan if code == 128 else 2.0 ** ((code ^ 128) % 40), "f32"),
    (lambda code: 2.0 ** (code / 16), "f64"),  # no number of 11 bits
    (lambda code: 2.0 ** code, "f64"),  # beyond f32
    (lambda code: undefined_name, "f64"),  # noqa: F821
])  # fmt: skip
def test_numbers_of_functions_decide_too(numbers: Any, expected: str) -> None:
    assert ext.FloatFormat("test", bits=8, decode=numbers, encode=int).compute == expected
    assert ext.FloatFormat("test", bits=16, decode=numbers, encode=int).compute == "f64"


@pytest.mark.parametrize("overflow", [OVER.SATURATE, OVER.NAN])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_without_infinity_its_code_in_ieee_formats_is_nan(backend: str, overflow: ext.Overflow) -> None:
    """It was read as a number that rounding never gives, so that adding 0 changed it."""
    reserved = made("reserved", mantissa_bits=2, has_infinity=False, nan=NAN.IEEE, overflow=overflow)
    text = """
    func.func @main(%x: tensor<2xreserved>) -> (tensor<2xf32>, tensor<2xf32>) {
      %0 = stablehlo.convert %x : (tensor<2xreserved>) -> tensor<2xf32>
      %zero = stablehlo.constant dense<0.0> : tensor<2xreserved>
      %1 = stablehlo.add %x, %zero : tensor<2xreserved>
      %2 = stablehlo.convert %1 : (tensor<2xreserved>) -> tensor<2xf32>
      return %0, %2 : tensor<2xf32>, tensor<2xf32>
    }
    """

    class Plugin:
        @ext.hookimpl
        def hlojit_formats(self) -> list[ext.FloatFormat]:
            return [reserved]

    with ext.using(Plugin()):
        numbers, sums = hlojit.compile(text, backend=backend)(
            hlojit.Array(np.array([0b0111011, 0b0111100], "u1"), reserved)
        )
    np.testing.assert_array_equal(numbers, [224, np.nan])
    np.testing.assert_array_equal(sums, [224, np.nan])
