"""Radix sorts on the simulator against NumPy, JAX and the CPU, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.cuda.nvptx import SM_90
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.graph import Instruction
from hlojit.lowering.radix_plan import RadixPlan

from ..cpu.test_sort import sort_text
from .sorting import (
    FLOATS,
    STORAGE,
    Array,
    bits_of,
    check,
    compared,
    numbers,
    on_gpu,
    run,
    sorted_by,
    total_keys,
)

Runner = Callable[..., list[Array]]
__all__ = ["on_gpu"]


def sort_of(text: str) -> Instruction:
    module = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions())
    return next(each for each in module.walk() if each.name == "stablehlo.sort")


def plan_of(text: str) -> RadixPlan:
    assert SM_90.grid is not None
    made = RadixPlan.of(sort_of(text), SM_90.grid)
    assert made is not None
    return made


# ------------------------------------------------------------------------------------------------ plans


def test_short_lines_share_a_block_and_long_ones_take_several() -> None:
    def rows(shape: tuple[int, ...], element: str = "i32") -> tuple[int, int, int]:
        made = plan_of(sort_text(shape, [element], len(shape) - 1, compared("LT", element)))
        return made.rows, made.blocks, made.workspace_bytes

    assert rows((100000, 16)) == (128, 782, 0)
    assert rows((64, 16)) == (1, 64, 0), "few lines are spread over the machine"
    assert rows((3, 4096)) == (1, 3, 0)
    assert rows((3, 8192), "i8") == (1, 3, 0)
    several = rows((3, 100000))
    assert several[0] == 0 and several[1] == 3 * 25 and several[2] > 3 * 100000 * 4


@pytest.mark.parametrize(
    ("element", "digits"),
    [("i1", [1]), ("ui2", [2]), ("i4", [4]), ("f8E5M2", [8]), ("bf16", [8, 8]), ("f32", [8] * 4), ("ui64", [8] * 8)],
)
def test_narrow_keys_take_few_passes(element: str, digits: list[int]) -> None:
    made = plan_of(sort_text((100000,), [element], 0, compared("LT", element)))
    assert [digit.bits for digit in made.digits] == digits


def test_what_is_moved_is_decided_by_bytes() -> None:
    def by_number(*elements: str) -> bool:
        return plan_of(sort_text((100000,), elements, 0, compared("LT", elements[0]))).by_number

    assert not by_number("f32") and not by_number("f32", "i32") and not by_number("i8", "f64", "f64", "f64")
    assert by_number("f32", "f64", "f64", "f64", "i64")


def test_results_are_one_of_the_areas_where_lines_are_contiguous() -> None:
    assert plan_of(sort_text((100000,), ["f32"], 0, compared("LT", "f32"))).areas == 1
    assert plan_of(sort_text((100000, 3), ["f32"], 0, compared("LT", "f32"))).areas == 2
    assert plan_of(sort_text((100000,), ["f8E5M2"], 0, compared("LT", "f8E5M2"))).areas == 0


# ------------------------------------------------------------------------------------------------ sorting


@pytest.mark.parametrize(
    ("element", "direction"),
    [(element, "GT" if number % 2 else "LT") for number, element in enumerate(STORAGE)]
    + [pytest.param(e, "LT" if n % 2 else "GT", marks=pytest.mark.slow) for n, e in enumerate(STORAGE)],
)
def test_element_types(element: str, direction: str, on_gpu: Runner) -> None:
    array = numbers(element, (3, 517), seed=3)
    text = sort_text(array.shape, [element], 1, compared(direction, element))
    assert plan_of(text)
    check(text, [array], sorted_by(total_keys(array), [array], 1, descending=direction == "GT"), on_gpu)


@pytest.mark.parametrize("length", [0, 1, 2, 31, 32, 33, 1000, 4097])
def test_lengths_with_payload(length: int, on_gpu: Runner) -> None:
    keys, payload = numbers("i16", (length,), seed=length, few=True), np.arange(length, dtype="i4")
    text = sort_text((length,), ["i16", "i32"], 0, compared("LT", "i16"))
    check(text, [keys, payload], sorted_by(keys, [keys, payload], 0), on_gpu)


@pytest.mark.parametrize("length", [9000, pytest.param(100000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("content", ["random", "sorted", "reversed", "constant"])
def test_long_lines(length: int, content: str, on_gpu: Runner) -> None:
    array = numbers("f32", (length,), seed=5)
    ascending = array[np.argsort(total_keys(array), kind="stable")]
    array = {"random": array, "sorted": ascending, "reversed": ascending[::-1].copy(), "constant": array}[content]
    if content == "constant":
        array[:] = -0.0
    payload = np.arange(length, dtype="i4")
    text = sort_text((length,), ["f32", "i32"], 0, compared("LT", "f32"))
    check(text, [array, payload], sorted_by(total_keys(array), [array, payload], 0), on_gpu)


SHAPES = [((5, 7), 0), ((5, 7), 1), ((3, 29, 4), 1), ((300, 17), 1), ((17, 300), 0), ((40, 1), 0), ((1000, 2), 1),
          ((2, 0), 1), ((0, 2), 1), ((2, 8500, 2), 1), *(pytest.param(shape, axis, marks=pytest.mark.slow)
          for shape, axis in (((9001, 3), 0), ((2, 4100, 2), 1), ((3, 8200), 1)))]  # fmt: skip


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("others", [(), ("i64", "f64", "f64", "i1")])
def test_dimensions(shape: tuple[int, ...], axis: int, others: tuple[str, ...], on_gpu: Runner) -> None:
    keys = numbers("ui16", shape, seed=1, few=bool(others))
    arrays = [keys, *(numbers(element, shape, seed=2 + n) for n, element in enumerate(others))]
    text = sort_text(shape, ["ui16", *others], axis, compared("GT", "ui16"))
    check(text, arrays, sorted_by(keys.astype("i4"), arrays, axis, descending=True), on_gpu)


def test_keys_moved_by_number_through_the_workspace(on_gpu: Runner) -> None:
    keys, others = numbers("f32", (2, 9000), seed=1), [numbers("f64", (2, 9000), seed=n) for n in range(4)]
    text = sort_text((2, 9000), ["f32", *["f64"] * 4], 1, compared("LT", "f32"))
    assert plan_of(text).by_number and not plan_of(text).rows
    check(text, [keys, *others], sorted_by(total_keys(keys), [keys, *others], 1), on_gpu)


@pytest.mark.parametrize("length", [100, 9000])
def test_several_keys_and_payload(length: int, on_gpu: Runner) -> None:
    body = "\n".join((
        compared("LT", "i8", result="%less"), compared("EQ", "i8", result="%same"),
        compared("GT", "f32", "%x1", "%y1", "%second"),
        "%both = stablehlo.and %second, %same : tensor<i1>", "%r = stablehlo.or %both, %less : tensor<i1>",
    ))  # fmt: skip
    major, minor = numbers("i8", (length,), few=True), numbers("f32", (length,), seed=3, few=True)
    payload = np.arange(length, dtype="i2")
    order = np.lexsort((~total_keys(minor), major))
    text = sort_text((length,), ["i8", "f32", "i16"], 0, body)
    check(text, [major, minor, payload], [each[order] for each in (major, minor, payload)], on_gpu)


def test_a_key_is_whatever_one_side_computes(on_gpu: Runner) -> None:
    absolute = "%p = stablehlo.abs %x0 : tensor<i32>\n%q = stablehlo.abs %y0 : tensor<i32>\n"
    array = numbers("i32", (700,), seed=8) // 1000
    text = sort_text((700,), ["i32"], 0, absolute + compared("LT", "i32", "%q", "%p"))
    check(text, [array], sorted_by(np.abs(array), [array], 0, descending=True), on_gpu)


# ---------------------------------------------------------------------------------------------------- JAX

JAX_PROGRAMS: dict[str, Callable[..., Any]] = {
    "sort": jnp.sort,
    "descending": lambda x: jnp.sort(x, descending=True),
    "argsort": jnp.argsort,
    "argsort_descending": lambda x: jnp.argsort(x, descending=True),
    "first_axis": lambda x: jnp.argsort(x.reshape(-1, 6), axis=0),
    "lexsort": lambda x: jnp.lexsort((jnp.arange(x.size) % 3, x)),
    "two_keys": lambda x: jax.lax.sort((jnp.floor(x), x, jnp.arange(x.size)), num_keys=2),
    "unique": lambda x: jnp.unique(x, size=20, fill_value=7.0),
    "median": jnp.median,
}


@pytest.mark.parametrize(
    "element", ["f32", pytest.param("f16", marks=pytest.mark.slow), pytest.param("bf16", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", JAX_PROGRAMS)
def test_as_jax(name: str, element: str, on_gpu: Runner) -> None:
    """JAX's comparators treat NaN as the largest and both zeros as equal."""
    special = np.array([1.0, np.nan, -0.0, 0.0, -np.inf, 2.0, np.nan, 0.0, -0.0, np.inf, 1.0, -1.0], "f4")
    array = np.concatenate([special, numbers("f32", (60,), special=False)]).astype(STORAGE[element])
    function = jax.jit(JAX_PROGRAMS[name])
    text = function.lower(array).as_text()
    for ours, cpu, theirs in zip(on_gpu(text, array), run(text, "cpu", array), jax.tree.leaves(function(array))):
        np.testing.assert_array_equal(bits_of(ours), bits_of(cpu))
        np.testing.assert_array_equal(ours.astype("f8"), np.asarray(theirs).astype("f8"))


@pytest.mark.parametrize("element", [*FLOATS, "i32", "i1", "ui8", "i4"])
def test_jax_comparators_are_by_keys(element: str) -> None:
    array = jax.ShapeDtypeStruct((64,), STORAGE[element])
    if element in ("f6E3M2FN", "f64"):
        pytest.skip("JAX has no arrays of this type, or only where it is told to")
    made = plan_of(jax.jit(lambda x: jax.lax.sort((x, jnp.arange(64)), num_keys=1)).lower(array).as_text())
    bits = {"f4E2M1FN": 4, "i1": 1, "i4": 4}.get(element, 8 * np.dtype(STORAGE[element]).itemsize)
    assert [code.bits for code in made.codes] == [bits]


@pytest.mark.parametrize("length", [50, 9000])
def test_as_numpy(length: int, on_gpu: Runner) -> None:
    """Traced functions: NaN last, bits as they were."""
    x = numbers("f32", (2, length), seed=length)
    order = np.argsort(x, axis=1, kind="stable").astype("i8")
    traced = hlojit.jit(lambda x: (np.sort(x, axis=1), np.argsort(x, axis=1), np.sort(x, axis=1)[:, :9]))
    text = str(traced.lower(x))
    expected = np.take_along_axis(x, order, 1)
    check(text, [x], [expected, order, expected[:, :9]], on_gpu)
    assert not plan_of(text).codes[0].leaves_nan


def test_nan_last_descending(on_gpu: Runner) -> None:
    body = "\n".join((
        compared("GT", "f32", order="FLOAT", result="%before"), compared("NE", "f32", "%y0", "%y0", "%nan", "FLOAT"),
        compared("EQ", "f32", "%x0", "%x0", "%number", "FLOAT"), "%last = stablehlo.and %nan, %number : tensor<i1>",
        "%r = stablehlo.or %before, %last : tensor<i1>",
    ))  # fmt: skip
    x = numbers("f32", (600,), seed=2)
    text = sort_text((600,), ["f32"], 0, body)
    check(text, [x], [x[np.argsort(-x, kind="stable")]], on_gpu)
    assert plan_of(text).codes[0].key.nan_last


# ------------------------------------------------------------------------------------- registered formats


def _decode_eighths(code: int) -> float:
    return -0.0 if code == 7 else (code - 128) / 8.0


def _encode_eighths(value: float) -> int:
    return int(value * 8.0) + 128


@pytest.mark.parametrize("order", ["FLOAT", "TOTALORDER"])
def test_codes_that_mean_the_same_are_moved_as_they_are(order: str, on_gpu: Runner) -> None:
    """The codec has a code for -0.0 that it never makes: encoding again would lose it."""
    eighths = ext.FloatFormat(
        "eighths", bits=8, decode=_decode_eighths, encode=_encode_eighths, has_infinity=False, nan=ext.NanEncoding.NONE
    )
    codes = numbers("ui8", (2, 300), seed=4)
    codes[:, ::5], codes[:, 1::5] = 7, 128
    place = np.tile(np.arange(300, dtype="i4"), (2, 1))
    text = sort_text((2, 300), ["eighths", "i32"], 1, compared("GT", "eighths", order=order))
    values = np.where(codes == 7, 128, codes).astype("i4") * 2 + ((codes != 7) if order == "TOTALORDER" else 0)
    expected = sorted_by(values, [codes, place], 1, descending=True)
    with ext.using(SimpleNamespace(__name__="acme", hlojit_formats=ext.hookimpl(lambda: [eighths]))):
        argument = hlojit.Array(codes, "eighths")
        for backend in ("cpu", "cuda"):
            found, moved = hlojit.compile(text, backend=backend)(argument, place)
            np.testing.assert_array_equal(found.storage, expected[0])
            np.testing.assert_array_equal(moved, expected[1])
