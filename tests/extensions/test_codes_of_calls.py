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


@pytest.mark.parametrize("element", ["t5", "f4E2M1FN"])
@pytest.mark.parametrize("wrong", [0, (1 << 18) - 1, 1 << 18, (1 << 18) + 2])
def test_a_code_of_too_many_bits_that_one_of_many_tasks_writes(element: str, wrong: int) -> None:
    """It is looked for behind all tasks, by tasks of 2**18 codes; wherever it is, and in no other call."""
    size = (1 << 18) + 3

    def copy(x: Any, result: Any, begin: int, end: int) -> None:
        for i in range(begin, end):
            result[i] = 0x80 if x[i] == 1 else x[i]

    class Copies(Codes):
        @ext.hookimpl
        def hlojit_kernels(self) -> list[ext.Kernel]:
            tasks = ext.TaskFunction(copy, tasks=size, cost=1.0, codes=True)
            return [
                ext.Kernel("t.copy", backend="cpu", pattern=ext.OpPattern("stablehlo.abs"), build=lambda group: tasks)
            ]

    kind = f"tensor<{size}x{element}>"
    numbers = np.ones(size)
    with ext.using(Copies()):
        run = hlojit.compile(
            f"func.func @main(%x: {kind}) -> {kind} {{\n%0 = stablehlo.abs %x : {kind}\nreturn %0 : {kind}\n}}"
        )
        sound = hlojit.Array.from_values(numbers, element)
        np.testing.assert_array_equal(np.asarray(run(sound), "f4"), numbers)
        codes = np.array(sound.storage).view("u1")
        codes[wrong] = 1
        with pytest.raises(
            hlojit.ExecutionError, match=r"kernel 't\.copy'.*a code of result 0 is outside its [45] bits"
        ):
            run(hlojit.Array(codes.view(sound.storage.dtype), element))
        np.testing.assert_array_equal(np.asarray(run(sound), "f4"), numbers)
