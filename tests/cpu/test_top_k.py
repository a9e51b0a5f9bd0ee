"""The first elements of sorted lines: against NumPy's stable sort of keys made apart, whatever the lines are."""

from __future__ import annotations

from dataclasses import replace

import hlojit
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.cpu.kernels import top_k
from hlojit.cpu.kernels.sort import emit_fused
from hlojit.cpu.processor import host_target
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.graph import Instruction
from hlojit.lowering.machine import GENERIC

from .guarded import Array, run_instruction
from .test_key_sort import TARGETS, bits_of, inputs, total_keys

NUMBERS = {"i8": "i1", "ui16": "u2", "i32": "i4", "ui32": "u4", "i64": "i8", "ui64": "u8"}


def program(shape: tuple[int, ...], element: str, k: int) -> str:
    extents = "".join(f"{extent}x" for extent in shape[:-1])
    operand = f"tensor<{extents}{shape[-1]}x{element}>"
    values, numbers = f"tensor<{extents}{k}x{element}>", f"tensor<{extents}{k}xi32>"
    return f"""
    func.func @main(%x: {operand}) -> ({values}, {numbers}) {{
      %0:2 = chlo.top_k(%x, k = {k}) : {operand} -> ({values}, {numbers})
      return %0#0, %0#1 : {values}, {numbers}
    }}"""


def selection(text: str) -> Instruction:
    """The only instruction that a program becomes."""
    module = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions())
    (fusion,) = [each for each in module.main.body if each.name == "hlojit.fusion"]
    assert fusion.attributes["kind"] == "selection"
    return fusion


def check(array: Array, element: str, k: int, name: str = "host", **changes: int) -> None:
    """``changes`` are of the machine."""
    target = TARGETS[name]()
    target = replace(target, machine=replace(target.machine, **changes)) if changes else target
    values, numbers = run_instruction(selection(program(array.shape, element, k)), array, target=target)
    order = np.argsort(~total_keys(array), axis=-1, kind="stable")[..., :k]
    np.testing.assert_array_equal(numbers, order.astype("i4"))
    expected = np.take_along_axis(array, order, -1)
    assert values.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("element", ["f32", "bf16", "f16", "f64", *NUMBERS])
def test_types(element: str, name: str) -> None:
    for length, k in ((64, 3), (1000, 8), (3001, 300)):
        if element in NUMBERS:
            arrays = inputs(NUMBERS[element], length)
            for kind in ("random", "few", "largest", "pipe") if name == "host" else ("random", "few"):
                check(arrays[kind], element, k, name)
        else:
            check(bits_of(element, length, length), element, k, name)


@pytest.mark.parametrize(
    ("length", "k"), [(5, 1), (5, 4), (16, 4), (100, 99), (257, 64), (4096, 1), (4100, 1000), (20_000, 96)]
)
def test_lengths(length: int, k: int) -> None:
    check(bits_of("f32", length, k), "f32", k)


@pytest.mark.parametrize("shape", [(1, 300), (7, 300), (400, 50), (3, 2, 1000)])
def test_lines(shape: tuple[int, ...]) -> None:
    array = bits_of("f32", int(np.prod(shape)), 3).reshape(shape)
    check(array, "f32", 9)


@pytest.mark.parametrize("cores", [2, 5])
def test_parts_of_a_line_give_what_the_line_gives(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_k, "SMALLEST_PART", 500)
    for kind in ("random", "constant", "reversed", "few", "sorted"):
        check(inputs("i4", 7001)[kind], "i32", 30, cores=cores)


def test_a_line_in_which_every_element_is_better_than_those_before() -> None:
    check(np.arange(50_000, dtype="i4"), "i32", 40)
    check(np.arange(50_000, dtype="i4")[::-1].copy(), "i32", 40)


@pytest.mark.parametrize("k", [1, 20, 900])
def test_first_elements_of_a_sort_with_payload(k: int) -> None:
    array = np.random.default_rng(k).standard_normal((3, 1000)).astype("f4")
    rest = np.random.default_rng(1).integers(0, 99, (3, 1000)).astype("i8")

    def function(x: jax.Array, y: jax.Array) -> list[jax.Array]:
        return [each[:, :k] for each in jax.lax.sort((x, y), dimension=1, num_keys=1)]

    with jax.enable_x64(True):
        text = jax.jit(function).lower(array, rest).as_text()
    order = np.argsort(array, axis=1, kind="stable")[:, :k]
    for actual, operand in zip(hlojit.compile(text)(array, rest), (array, rest)):
        np.testing.assert_array_equal(actual, np.take_along_axis(operand, order, 1))


def test_as_jax() -> None:
    array = np.random.default_rng(0).standard_normal((4, 2000)).astype("f4")
    array[0, ::7], array[1, ::5], array[2, 3:9] = np.inf, -np.inf, np.nan

    def function(x: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        return jax.lax.top_k(x, 16), jnp.sort(x, axis=1)[:, :10]

    actual = hlojit.compile(jax.jit(function).lower(array).as_text())(array)
    for ours, theirs in zip(actual, jax.tree.leaves(function(array)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_plan_follows_the_machine() -> None:
    target = replace(host_target(), machine=GENERIC)
    assert target.machine.cores == 2
    text = program((1 << 20,), "f32", 8)
    assert [phase.tasks for phase in emit_fused(selection(text), target, "k").phases] == [4, 1]
    lines = selection(program((64, 1 << 15), "f32", 8))
    assert [phase.tasks for phase in emit_fused(lines, target, "k").phases] == [64]
