"""Functions of arrays that are given codes: the same ones on every back end, and none of too many bits as a result."""

from __future__ import annotations

from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest


def like_first(call: ext.CallTypes) -> Any:
    return call.operands[0]


def flip(x: Any, result: Any) -> None:
    for i in range(x.size):
        result[i] = x[i] ^ 1


def ones(x: Any, result: Any) -> None:
    for i in range(x.size):
        result[i] = 0xFF


def python_ones(x: Any) -> Any:
    return np.full(x.shape, 0xFF, "u1").view(x.dtype)


class Codes:
    @ext.hookimpl
    def hlojit_formats(self) -> list[ext.FloatFormat]:
        return [ext.FloatFormat("t5", exponent_bits=2, mantissa_bits=2, bias=1)]

    @ext.hookimpl
    def hlojit_custom_calls(self) -> list[ext.ArrayCall]:
        return [
            ext.ArrayCall("t.flip", function=flip, codes=True, result_types=like_first),
            ext.ArrayCall("t.numbers", function=flip, result_types=like_first),
            ext.ArrayCall("t.ones", function=ones, codes=True, result_types=like_first),
            ext.ArrayCall("t.python_ones", function=python_ones, trust="python", codes=True, result_types=like_first),
        ]


def called(target: str, element: str, backend: str) -> tuple[Any, Any]:
    """A call's codes, and those of its operand."""
    x = hlojit.Array.from_values([1, 0.5, -1, 1.5], element)
    kind = f"tensor<4x{element}>"
    text = f"func.func @main(%x: {kind}) -> {kind} {{\n%0 = stablehlo.custom_call @{target}(%x) : ({kind}) -> {kind}\nreturn %0 : {kind}\n}}"
    with ext.using(Codes()):
        result = hlojit.compile(text, backend=backend)(x)
    bits = f"u{x.storage.dtype.itemsize}"
    return np.asarray(getattr(result, "storage", result)).view(bits), x.storage.view(bits)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("element", ["bf16", "f16", "f8E4M3FN", "f4E2M1FN", "t5"])
def test_numba_functions_have_codes_on_every_back_end(element: str, backend: str) -> None:
    with ext.using(Codes()):
        found, given = called("t.flip", element, backend)
    np.testing.assert_array_equal(found, given ^ 1)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_numbers_that_numba_does_not_know_are_refused_on_every_back_end(backend: str) -> None:
    with ext.using(Codes()), pytest.raises(hlojit.HlojitError, match="numba has no type for elements of bf16"):
        called("t.numbers", "bf16", backend)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("target", ["t.ones", "t.python_ones"])
@pytest.mark.parametrize("element", ["t5", "f4E2M1FN"])
def test_codes_of_too_many_bits_end_the_call(element: str, target: str, backend: str) -> None:
    with ext.using(Codes()), pytest.raises(hlojit.HlojitError, match=rf"'{target}'.*outside its [45] bits"):
        called(target, element, backend)
