"""C functions of arrays as custom calls, by their signatures."""

from __future__ import annotations

import ctypes
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import ArrayCall, ArrayFunction
from hlojit.ir.errors import ExecutionError, PluginError

from .array_programs import cumulative, program, registered

MEMCPY = ctypes.CDLL(None).memcpy


def test_a_native_function_takes_what_its_signature_lists() -> None:
    seen = []
    kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_double, ctypes.c_int16)
    made = ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)

    @made
    def function(x: int, r: int, size: int, columns: int, factor: float, power: int) -> int:
        seen.append((size, columns, factor, power))
        ctypes.memmove(r, x, 4 * size)
        return size - 6

    call = ArrayCall(
        "t.f",
        function=ctypes.cast(function, ctypes.c_void_p).value,
        trust="native",
        signature="operand0, result0, operand0.size, operand0.shape1:i32, factor:f64, power:i16 -> status",
        substitute=lambda x, factor, power: x,
    )
    config = "factor = 0.5 : f64, power = -3 : i64"
    with registered(call):
        run = hlojit.compile(program("2x3xf32", "2x3xf32", config))
        x = np.arange(6, dtype="f4").reshape(2, 3)
        np.testing.assert_array_equal(run(x), x)
        np.testing.assert_array_equal(hlojit.compile(program("2x3xf32", "2x3xf32", config), backend="reference")(x), x)
        failing = hlojit.compile(program("2x5xf32", "2x5xf32", config))
    assert seen == [(6, 3, 0.5, -3)]
    with pytest.raises(ExecutionError, match=r"(?s)target 't.f': its function returned 4\n  at .*:2:"):
        failing(np.ones((2, 5), "f4"))


@pytest.mark.parametrize(
    ("kind", "c_type", "value"),
    [
        ("i8", ctypes.c_int8, -7),
        ("ui8", ctypes.c_uint8, 249),
        ("i16", ctypes.c_int16, -700),
        ("ui32", ctypes.c_uint32, 2**32 - 7),
        ("i64", ctypes.c_int64, -(2**40)),
        ("f32", ctypes.c_float, 0.375),
        ("1x1xf64", ctypes.c_double, -1.1),
    ],
)
def test_a_native_function_returns_the_element_of_a_result(kind: str, c_type: Any, value: float) -> None:
    made = ctypes.CFUNCTYPE(c_type, ctypes.c_void_p)(lambda x: value)
    pointer = ctypes.cast(made, ctypes.c_void_p).value
    call = ArrayCall("t.f", function=pointer, trust="native", signature="operand0 -> result0")
    assert call.level == "trusted native"
    with registered(call):
        assert np.asarray(hlojit.compile(program("4xf32", kind))(np.zeros(4, "f4"))).item() == value


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ("operand0 -> result0", "a C function returns one number of i8, i16.*, and it is a tensor<4xf32>"),
        ("operand0 -> result2", "takes result2: the call has 1 result"),
        ("operand1, result0", "takes operand1: the call has 1 operand"),
        ("operand0.shape3", "takes operand0.shape3: it is a tensor<4xf32>"),
        ("factor", "takes factor: the call has no attribute of that name"),
    ],
)
def test_a_signature_that_does_not_fit_the_call_is_refused(signature: str, said: str) -> None:
    call = ArrayCall("t.f", function=MEMCPY, trust="native", signature=signature)
    with registered(call), pytest.raises(PluginError, match=f"(?s)'t.f': .*{said}"):
        hlojit.compile(program("4xf32", "4xf32"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"trust": "gpu"}, "trust is one of 'numba', 'python', 'native'"),
        ({"function": 3.0}, "cannot be called"),
        ({"function": np.exp}, "is the ufunc exp"),
        ({"trust": "native"}, "is a function of ctypes, cffi"),
        ({"function": MEMCPY, "trust": "native"}, "needs signature="),
        ({"function": MEMCPY, "trust": "native", "signature": "operandx:q"}, "numbers are i8"),
        ({"function": MEMCPY, "trust": "native", "signature": "operand0 -> f64"}, "one of void, status, result0"),
        (
            {"function": MEMCPY, "trust": "native", "signature": "result0 -> result0"},
            "is returned, and so no parameter",
        ),
        ({"function": MEMCPY, "trust": "native", "signature": "operand0, 7"}, "'7' is none of"),
        ({"function": ctypes.CFUNCTYPE(None)(lambda: None), "trust": "native", "signature": ""}, "must not raise"),
        ({"trust": "python", "signature": "operand0"}, "has no signature="),
        ({"substitute": 3}, "substitute is 3"),
    ],
)
def test_what_is_no_function_of_arrays_is_refused_where_it_is_made(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(PluginError, match=f"'t.f': .*{said}"):
        ArrayCall("t.f", **{"function": cumulative, **arguments})
    given = {"function": cumulative, **arguments}
    with pytest.raises(PluginError, match=said):
        ArrayFunction(given.pop("function"), given.pop("trust", "numba"), **given)
