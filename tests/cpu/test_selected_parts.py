"""Neighbours anywhere in sorted lines (medians, quantiles, the last elements): against the same part of NumPy's stable sort."""

from __future__ import annotations

from collections.abc import Sequence

import hlojit
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.cpu.kernels import quicksort
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.graph import Instruction

from .guarded import Array, run_instruction, spell
from .test_key_sort import INTEGERS, NAN, TARGETS, bits_of, inputs, jax_body, jax_keys, total_keys
from .test_sort import compare, sort_text

PARTS = ((300, 150, 151), (2999, 1400, 1600), (3001, 2900, 3001), (3001, 7, 1500), (700, 600, 640))
"""Length, first and limit."""


def part_text(shape: tuple[int, ...], elements: Sequence[str], axis: int, body: str, first: int, limit: int) -> str:
    """A program whose results are a part of every sorted line."""
    whole = sort_text(shape, elements, axis, body)
    sort, _, _ = whole[whole.index("%s:") :].rpartition("return %s")
    arguments = ", ".join(f"%a{k}: {spell(shape, element)}" for k, element in enumerate(elements))
    wanted = (*shape[:axis], limit - first, *shape[axis + 1 :])
    bounds = ", ".join(f"{first}:{limit}" if d == axis else f"0:{extent}" for d, extent in enumerate(shape))
    names, types, cuts = [], [], []
    for k, element in enumerate(elements):
        names.append(f"%p{k}")
        types.append(spell(wanted, element))
        cuts.append(f"%p{k} = stablehlo.slice %s#{k} [{bounds}] : ({spell(shape, element)}) -> {types[k]}")
    results = ", ".join(types)
    end = f"return {', '.join(names)} : {results}"
    return "\n".join([f"func.func @main({arguments}) -> ({results}) {{", sort, *cuts, end, "}"])


def selection(text: str) -> Instruction:
    module = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions())
    (fusion,) = [each for each in module.main.body if each.name == "hlojit.fusion"]
    assert fusion.attributes["kind"] == "selection"
    return fusion


def check(
    arrays: Sequence[Array], elements: Sequence[str], body: str, keys: Array, part: tuple[int, int], name: str,
    axis: int = 0,
) -> None:  # fmt: skip
    text = part_text(arrays[0].shape, elements, axis, body, *part)
    actual = run_instruction(selection(text), *arrays, target=TARGETS[name]())
    order = np.take(np.argsort(keys, axis=axis, kind="stable"), range(*part), axis)
    for found, array in zip(actual, arrays, strict=True):
        assert found.tobytes() == np.take_along_axis(array, order, axis).tobytes()


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("element", INTEGERS)
def test_integers_whatever_they_are(element: str, name: str) -> None:
    for length, *part in PARTS if name == "host" else PARTS[1:3]:
        for kind, array in inputs(INTEGERS[element], length).items():
            if name == "host" or kind in ("random", "few", "pipe", "extreme"):
                check([array], [element], compare("LT", element), total_keys(array), tuple(part), name)


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("element", NAN)
def test_zeros_and_nans_of_which_some_are_wanted(element: str, direction: str) -> None:
    """Codes of one key come in the order in which they were: a part begins and ends among them."""
    for length, first, limit in (*PARTS, (640, 310, 330)):
        array = bits_of(element, length, length)
        array[length // 4 : length // 2 : 3] = 0.0
        array[length // 4 + 1 : length // 2 : 3] = -0.0
        keys = jax_keys(array)
        keys = keys if direction == "LT" else ~keys
        check([array], [element], jax_body(element, direction), keys, (first, limit), "host")


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("element", ["i8", "i32", "f32", "i64", "f64"])
def test_payload(element: str, name: str) -> None:
    for length, first, limit in ((3001, 1000, 1100), (700, 600, 640)):
        if element in INTEGERS:
            array = inputs(INTEGERS[element], length)["random"]
            body, keys = compare("LT", element), total_keys(array)
        else:
            array = bits_of(element, length, 3)
            body, keys = jax_body(element, "LT"), jax_keys(array)
        payload = np.random.default_rng(1).integers(0, 99, length).astype("i8")
        check([array, payload], [element, "i64"], body, keys, (first, limit), name)


def test_keys_that_differ_in_bits_that_words_lose() -> None:
    generator = np.random.default_rng(0)
    for spread in (3, 1 << 12, 1 << 40):
        array = generator.integers(-2, 3, 4000) * (1 << 60) + generator.integers(0, spread, 4000)
        payload = np.arange(4000, dtype="i4")
        check([array, payload], ["i64", "i32"], compare("LT", "i64"), total_keys(array), (1900, 2050), "host")


@pytest.mark.parametrize(("shape", "axis"), [((3, 500), 1), ((500, 3), 0), ((2, 600, 40), 1), ((70, 64), 1)])
def test_lines(shape: tuple[int, ...], axis: int) -> None:
    array = np.random.default_rng(3).integers(0, 200, shape).astype("i4")
    length = shape[axis]
    for part in ((length // 2, length // 2 + 1), (length - 9, length), (5, length // 2)):
        check([array], ["i32"], compare("LT", "i32"), total_keys(array), part, "host", axis)


def test_runs_that_are_cut_badly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quicksort, "DEPTH", 0)
    quicksort.sorter_of.cache_clear()
    array = np.random.default_rng(3).integers(-9999, 9999, 5000).astype("i4")
    check([array], ["i32"], compare("LT", "i32"), total_keys(array), (2500, 2503), "host")
    quicksort.sorter_of.cache_clear()


def test_as_jax() -> None:
    array = np.random.default_rng(0).standard_normal((6, 2001)).astype("f4")
    array[0, ::7], array[1, ::5], array[2, 3:9] = np.inf, -np.inf, np.nan

    def function(x: jax.Array) -> list[jax.Array]:
        # What is read of one sort: both ends, several parts that are near each other, steps.
        last, near = jnp.sort(x, axis=1)[:, -16:], jnp.sort(x + 1, axis=1)
        numbers = jnp.argsort(x[:, :-1], axis=1)[:, 1000:1010]
        steps = jnp.sort(x - 1, axis=1)[:, 1001:1101:9]
        return [last, near[:, 900:905], near[2:4, 903:930], numbers, steps, jnp.median(x, axis=1), jnp.median(x)]

    actual = hlojit.compile(jax.jit(function).lower(array).as_text())(array)
    for ours, theirs in zip(actual, function(array), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_wide_parts_begin_with_their_lines() -> None:
    text = part_text((100,), ["i32"], 0, compare("LT", "i32"), 20, 90)
    module = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions())
    fusion = next(iter(module.main.body))
    (cut,) = [each for each in fusion.regions[0] if each.name == "stablehlo.slice"]
    assert cut.attributes["start_indices"] == (0,) and cut.attributes["limit_indices"] == (90,)


def test_approximate_top_k_is_a_selection() -> None:
    array = np.random.default_rng(0).standard_normal((4, 2000)).astype("f4")
    text = jax.jit(lambda x: jax.lax.approx_max_k(x, 8)).lower(array).as_text()
    module = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions())
    kinds = [each.attributes.get("kind") for each in module.main.body if each.name == "hlojit.fusion"]
    assert kinds == ["selection"]
    values, numbers = hlojit.compile(text)(array)
    order = np.argsort(-array, axis=1, kind="stable")[:, :8]
    np.testing.assert_array_equal(numbers, order)
    np.testing.assert_array_equal(values, np.take_along_axis(array, order, 1))


def ordered_text(shape: tuple[int, ...], element: str, number: str, axis: int, body: str) -> str:
    """A program whose results are the numbers of all elements in their sorted order, and nothing else."""
    types = spell(shape, element), spell(shape, number)
    return "\n".join((
        f"func.func @main(%a: {types[0]}) -> ({types[1]}) {{",
        f"%i = stablehlo.iota dim = {axis} : {types[1]}",
        f'%s:2 = "stablehlo.sort"(%a, %i) <{{dimension = {axis} : i64, is_stable = true}}> ({{',
        f"^bb0(%x0: tensor<{element}>, %y0: tensor<{element}>, %x1: tensor<{number}>, %y1: tensor<{number}>):",
        body, "stablehlo.return %r : tensor<i1>",
        f"}}) : ({', '.join(types)}) -> ({', '.join(types)})",
        f"return %s#1 : {types[1]}", "}",
    ))  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("element", [*INTEGERS, "f16", "f32", "f64"])
def test_numbers_of_whole_lines_are_not_read(element: str, name: str) -> None:
    """``argsort``: what counts elements is no operand, and keys are not written."""
    for length in (40, 700, 3001):
        if element in INTEGERS:
            arrays = inputs(INTEGERS[element], length)
            keys = {kind: total_keys(array) for kind, array in arrays.items()}
            body = compare("LT", element)
        else:
            arrays = {"bits": bits_of(element, length, length)}
            keys, body = {"bits": jax_keys(arrays["bits"])}, jax_body(element, "LT")
        fusion = selection(ordered_text((length,), element, "i64", 0, body))
        assert len(fusion.operands) == len(fusion.results) == 1
        for kind, array in arrays.items():
            (actual,) = run_instruction(fusion, array, target=TARGETS[name]())
            np.testing.assert_array_equal(actual, np.argsort(keys[kind], kind="stable"), err_msg=f"{kind} {length}")


@pytest.mark.parametrize(("shape", "axis"), [((3, 500), 1), ((500, 3), 0), ((2, 600, 40), 1), ((9, 2100), 1)])
def test_numbers_of_lines(shape: tuple[int, ...], axis: int) -> None:
    array = np.random.default_rng(3).integers(0, 200, shape).astype("u1")
    fusion = selection(ordered_text(shape, "ui8", "i32", axis, compare("GT", "ui8")))
    (actual,) = run_instruction(fusion, array)
    np.testing.assert_array_equal(actual, np.argsort(~array, axis=axis, kind="stable"))


def test_results_that_are_not_read_are_not_written() -> None:
    """Values by keys, both in memory; what is read of them may be anything, here a product and a part."""
    generator = np.random.default_rng(4)
    keys, values = generator.integers(-50, 50, 900).astype("i4"), generator.standard_normal(900).astype("f4")

    def function(keys: jax.Array, values: jax.Array) -> list[jax.Array]:
        _, ordered = jax.lax.sort((keys, values), num_keys=1)
        return [ordered * 2, ordered[3:900:2], ordered]

    text = jax.jit(function).lower(keys, values).as_text()
    expected = values[np.argsort(keys, kind="stable")]
    for actual, wanted in zip(
        hlojit.compile(text)(keys, values), (expected * 2, expected[3::2], expected), strict=True
    ):
        np.testing.assert_array_equal(actual, wanted)
