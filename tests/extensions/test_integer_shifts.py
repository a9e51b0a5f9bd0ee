"""Shifts of integers in plugins' functions are NumPy's for every count, on every back end."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest

WRITTEN = 70


def loop_left(x: Any, y: Any, result: Any) -> None:
    for i in range(x.size):
        result[i] = x[i] << y[i]


def loop_right(x: Any, y: Any, result: Any) -> None:
    for i in range(x.size):
        result[i] = x[i] >> y[i]


def all_left(x: Any, y: Any, result: Any) -> None:
    result[...] = np.left_shift(x, y)


def all_right(x: Any, y: Any, result: Any) -> None:
    result[...] = x >> y


def loop_quotient(x: Any, y: Any, result: Any) -> None:
    for i in range(x.size):
        result[i] = x[i] // y[i]


def like_first(call: ext.CallTypes) -> Any:
    return call.operands[0]


CALLS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "left": (ext.ElementwiseCall("t.left", function=lambda x, y: x << y), np.left_shift),
    "right": (ext.ElementwiseCall("t.right", function=lambda x, y: x >> y), np.right_shift),
    "written": (
        ext.ElementwiseCall("t.written", function=lambda x, y: (x >> WRITTEN) + (y << 65)),
        lambda x, y: x >> 70,
    ),
    "loop_left": (ext.ArrayCall("t.loop_left", function=loop_left, result_types=like_first), np.left_shift),
    "loop_right": (ext.ArrayCall("t.loop_right", function=loop_right, result_types=like_first), np.right_shift),
    "all_left": (ext.ArrayCall("t.all_left", function=all_left, result_types=like_first), np.left_shift),
    "all_right": (ext.ArrayCall("t.all_right", function=all_right, result_types=like_first), np.right_shift),
}


class Shifts:
    @ext.hookimpl
    def hlojit_custom_calls(self) -> list[Any]:
        return [call for call, _ in CALLS.values()]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", ["i4", "i8", "u8"])
def test_shift_by_any_count_is_numpy_s(dtype: str, backend: str) -> None:
    info = np.iinfo(dtype)
    numbers = np.array([info.min, info.max, 1, 3, 7, info.max // 3], dtype)
    counts = np.array(
        [each for each in (-(2**31), -33, -1, 0, 1, 31, 32, 33, 63, 64, 65, 127) if each >= info.min], dtype
    )
    x, y = (each.ravel() for each in np.meshgrid(numbers, counts))

    @hlojit.jit(backend=backend)
    def shifted(x: Any, y: Any) -> Any:
        return [hlojit.custom_call(f"t.{name}", x, y, result=x) for name in CALLS]

    with ext.using(Shifts()):
        found = shifted(x, y)
    for (name, (_, oracle)), numbers in zip(CALLS.items(), found, strict=True):
        np.testing.assert_array_equal(numbers, oracle(x, y), err_msg=name)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_quotient_that_overflows_in_a_function_of_arrays_is_numpy_s(backend: str) -> None:
    call = ext.ArrayCall("t.quotient", function=loop_quotient, result_types=like_first)
    plugin = type("Plugin", (), {"hlojit_custom_calls": ext.hookimpl(lambda self: [call])})()
    x, y = np.full(5, -(2**63)), np.array([-1, 1, 2, -2, 3])
    with ext.using(plugin), np.errstate(all="ignore"):
        quotient = hlojit.jit(backend=backend)(lambda x, y: hlojit.custom_call("t.quotient", x, y))(x, y)
        np.testing.assert_array_equal(quotient, operator.floordiv(x, y))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_ui64_divided_by_zero_is_zero(backend: str) -> None:
    call = ext.ElementwiseCall("t.quotient", function=lambda x, y: x // y)
    plugin = type("Plugin", (), {"hlojit_custom_calls": ext.hookimpl(lambda self: [call])})()
    x, y = np.array([2**64 - 1, 5, 2**63], "u8"), np.array([0, 0, 2], "u8")
    with ext.using(plugin):
        quotient = hlojit.jit(backend=backend)(lambda x, y: hlojit.custom_call("t.quotient", x, y))(x, y)
    assert quotient.tolist() == [0, 0, 2**62]
