"""Sorts that count digits of narrow keys, one core or several to a line: against NumPy's stable sort of keys made apart."""

from __future__ import annotations

from dataclasses import replace

import hlojit
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlojit.cpu.kernels import shared_counting
from hlojit.cpu.kernels.sort import emit_sort
from hlojit.cpu.processor import host_target
from hlojit.lowering import line_sort_plan
from hlojit.lowering.line_sort_plan import LineSortPlan
from hlojit.lowering.sorted_arrays import sorted_arrays

from .guarded import Array, kernel_instruction, run_guarded, run_instruction
from .test_key_sort import INTEGERS, NAN, TARGETS, bits_of, inputs, jax_body, jax_keys, total_keys
from .test_selected_parts import ordered_text, selection
from .test_sort import compare, sort_text

ELEMENTS = ("i8", "ui8", "i16", "ui16", "f16", "bf16", "f8E5M2")


@pytest.fixture(autouse=True)
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_sort_plan, "LEAST_COUNTED", (500, 500))
    monkeypatch.setattr(shared_counting, "SMALLEST_PART", 300)


def drawn(element: str, length: int) -> dict[str, tuple[Array, Array]]:
    """Arrays, and their keys as unsigned integers."""
    if element in INTEGERS:
        return {kind: (array, total_keys(array)) for kind, array in inputs(INTEGERS[element], length).items()}
    array = bits_of(element, length, length)
    climbing = array[np.argsort(jax_keys(array), kind="stable")]
    return {kind: (each, jax_keys(each)) for kind, each in (("bits", array), ("sorted", climbing))}


def body_of(element: str, direction: str = "LT") -> str:
    return jax_body(element, direction) if element in NAN else compare(direction, element)


@pytest.mark.parametrize("cores", [1, 4])
@pytest.mark.parametrize("element", ELEMENTS)
def test_payload_comes_along_in_the_order_of_equal_keys(element: str, cores: int) -> None:
    target = replace(host_target(), machine=replace(host_target().machine, cores=cores))
    for length in (599, 3001):
        text = sort_text((length,), [element, "i32", "ui8", "i1"], 0, body_of(element))
        phases = len(emit_sort(kernel_instruction(text), target, "k").phases)
        assert phases == 1 if cores == 1 or length < 600 else phases in (3, 5)
        for kind, (array, keys) in drawn(element, length).items():
            order = np.argsort(keys, kind="stable")
            rest = np.arange(length, dtype="i4"), np.arange(length).astype("u1"), np.arange(length) % 3 == 0
            for actual, operand in zip(run_guarded(text, array, *rest, target=target), [array, *rest]):
                assert actual.tobytes() == operand[order].tobytes(), (kind, length)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    ("shape", "axis", "cores"), [((2, 1201), 1, 4), ((900, 3), 0, 4), ((5, 700), 1, 2), ((3000,), 0, 9)]
)
def test_numbers_of_lines(shape: tuple[int, ...], axis: int, cores: int, name: str) -> None:
    target = TARGETS[name]()
    target = replace(target, machine=replace(target.machine, cores=cores))
    for element, direction in (("ui16", "GT"), ("i8", "LT")):
        array = np.random.default_rng(3).integers(0, 120, shape).astype(INTEGERS[element])
        fusion = selection(ordered_text(shape, element, "i64", axis, compare(direction, element)))
        (actual,) = run_instruction(fusion, array, target=target)
        keys = total_keys(array)
        expected = np.argsort(~keys if direction == "GT" else keys, axis=axis, kind="stable")
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("cores", [1, 3])
def test_keys_alone(cores: int) -> None:
    """Bytes without anything that comes along: both zeros and all NaNs keep their order."""
    target = replace(host_target(), machine=replace(host_target().machine, cores=cores))
    for element in ("i8", "ui8", "f8E5M2"):
        for kind, (array, keys) in drawn(element, 2000).items():
            (actual,) = run_guarded(sort_text((2000,), [element], 0, body_of(element)), array, target=target)
            assert actual.tobytes() == array[np.argsort(keys, kind="stable")].tobytes(), kind


def test_two_keys_of_a_byte_are_two_digits() -> None:
    generator = np.random.default_rng(2)
    major, minor = generator.integers(-9, 9, 1500).astype("i1"), generator.integers(0, 256, 1500).astype("u1")
    text = sort_text(
        (1500,), ["i8", "ui8", "i32"], 0,
        "\n".join((
            compare("LT", "i8", result="%less"), compare("EQ", "i8", result="%same"),
            compare("GT", "ui8", "%x1", "%y1", "%second"),
            "%both = stablehlo.and %same, %second : tensor<i1>", "%r = stablehlo.or %less, %both : tensor<i1>",
        )),
    )  # fmt: skip
    plan = LineSortPlan.of(sorted_arrays(kernel_instruction(text)), host_target())
    assert plan is not None and plan.passes == 2
    order, numbers = np.lexsort((~minor, major)), np.arange(1500, dtype="i4")
    for actual, operand in zip(run_guarded(text, major, minor, numbers), (major, minor, numbers)):
        np.testing.assert_array_equal(actual, operand[order])


@pytest.mark.parametrize("length", [1 << 24, (1 << 24) + 1, 1 << 31])
def test_words_between_passes_hold_every_number(length: int) -> None:
    text = ordered_text((length,), "ui16", "i64", 0, compare("LT", "ui16")).replace("return %s#1", "return %s#1, %s#0")
    text = text.replace(f"-> (tensor<{length}xi64>) {{", f"-> (tensor<{length}xi64>, tensor<{length}xui16>) {{")
    text = text.replace(f"%s#0 : tensor<{length}xi64>", f"%s#0 : tensor<{length}xi64>, tensor<{length}xui16>")
    (sort,) = [each for each in hlojit.parse(text).main.body if each.name == "stablehlo.sort"]
    plan = LineSortPlan.of(sorted_arrays(sort), host_target())
    assert plan is not None and plan.passes == 2 and not plan.is_shortened
    assert plan.key_bits - 8 + plan.number_bits <= {"i32": 32, "i64": 64}[plan.word]


def test_threads_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users run it: all phases, by one thread and by several."""
    monkeypatch.setattr(line_sort_plan, "LEAST_COUNTED", (2048, 8192))
    for dtype in ("u1", "i2"):
        array = np.random.default_rng(0).integers(0, 99, 300_001).astype(dtype)
        text = jax.jit(jnp.argsort).lower(array).as_text()
        program = hlojit.compile(text)
        for _ in range(5):
            np.testing.assert_array_equal(program(array), np.argsort(array, kind="stable"))
