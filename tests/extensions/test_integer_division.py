"""Integer division in plugins' functions is NumPy's, where a quotient overflows too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import hlojit.extensions as ext
import numba
import numpy as np
import pytest


class Plugin:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    @ext.hookimpl
    def hlojit_custom_calls(self) -> list[ext.ElementwiseCall]:
        return [ext.ElementwiseCall("test.divide", function=self.function)]


@numba.njit
def helper(x: int, y: int) -> int:
    return x // y


FUNCTIONS = [
    lambda x, y: x // y,
    lambda x, y: x % y,
    lambda x, y: divmod(x, y)[0] + divmod(x, y)[1],
    lambda x, y: helper(x, y),
]
HELPED = 3
ORACLES: list[Callable[..., Any]] = [
    np.floor_divide,
    np.remainder,
    lambda x, y: np.floor_divide(x, y) + np.remainder(x, y),
    np.floor_divide,
]


@pytest.mark.parametrize("kind", ["i8", "i32", "i64"])
@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_division_is_numpy_s(kind: str, number: int) -> None:
    dtype = np.dtype(f"i{int(kind[1:]) // 8}")
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = [least, least + 1, -7, -2, -1, 1, 2, 3, 7, most - 1, most]
    x, y = (each.ravel().astype(dtype) for each in np.meshgrid(values, values))
    shape = f"tensor<{x.size}x{kind}>"
    text = (
        f"func.func @main(%x: {shape}, %y: {shape}) -> {shape} {{\n"
        f"%0 = stablehlo.custom_call @test.divide(%x, %y) : ({shape}, {shape}) -> {shape}\nreturn %0 : {shape}\n}}"
    )
    with ext.using(Plugin(FUNCTIONS[number])), np.errstate(all="ignore"):
        expected = ORACLES[number](x, y)
        # The reference interpreter calls a numba function as it is.
        for backend in ("cpu",) if number == HELPED else ("cpu", "reference"):
            np.testing.assert_array_equal(hlojit.compile(text, backend=backend)(x, y), expected, err_msg=backend)


def test_other_numba_functions_keep_numba_s() -> None:
    kind = "tensor<i64>"
    text = (
        f"func.func @main(%x: {kind}) -> {kind} {{\n%0 = stablehlo.custom_call @test.divide(%x) : ({kind}) -> {kind}\n"
        f"return %0 : {kind}\n}}"
    )
    with ext.using(Plugin(lambda x: x // -1)):
        assert int(hlojit.compile(text)(np.int64(-(2**63)))) == -(2**63)
    own = numba.njit(error_model="numpy")(lambda x: x // -1)
    assert own(np.int64(-(2**63))) == 0
