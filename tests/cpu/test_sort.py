"""``sort`` against NumPy and JAX: lengths, dimensions, element types, comparators, stability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hlojit
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from .guarded import Array, run_both, run_guarded, spell

STORAGE: dict[str, Any] = {
    "f64": "f8", "f32": "f4", "f16": "f2", "bf16": ml_dtypes.bfloat16, "i8": "i1", "i16": "i2", "i32": "i4",
    "i64": "i8", "ui8": "u1", "ui16": "u2", "ui32": "u4", "ui64": "u8", "i1": "?",
}  # fmt: skip


def sort_text(shape: Sequence[int], elements: Sequence[str], dimension: int, body: str, stable: bool = True) -> str:
    """A program that sorts its arguments; the comparator's arguments are %x0, %y0, %x1, %y1, ..., its result %r."""
    types = [spell(shape, element) for element in elements]
    names = ", ".join(f"%a{k}" for k in range(len(elements)))
    arguments = ", ".join(f"%a{k}: {type}" for k, type in enumerate(types))
    scalars = ", ".join(f"%x{k}: tensor<{e}>, %y{k}: tensor<{e}>" for k, e in enumerate(elements))
    results = f"({', '.join(types)})"
    values = ", ".join(f"%s#{k}" for k in range(len(elements)))
    return f"""
    func.func public @main({arguments}) -> {results} {{
      %s:{len(elements)} = "stablehlo.sort"({names}) ({{
      ^bb0({scalars}):
        {body}
        stablehlo.return %r : tensor<i1>
      }}) {{dimension = {dimension} : i64, is_stable = {str(stable).lower()}}} : {results} -> {results}
      return {values} : {", ".join(types)}
    }}"""


def compare(direction: str, element: str, lhs: str = "%x0", rhs: str = "%y0", result: str = "%r") -> str:
    """One comparison."""
    type = f"tensor<{element}>"
    return f"{result} = stablehlo.compare {direction}, {lhs}, {rhs} : ({type}, {type}) -> tensor<i1>"


def values(element: str, shape: Sequence[int], seed: int = 0, few: bool = False) -> Array:
    """Numbers of an element type, with repetitions; ``few`` draws from three."""
    generator = np.random.default_rng(seed)
    if element == "i1":
        return generator.random(shape) < 0.5
    if element.startswith(("f", "bf")):
        drawn = np.asarray(generator.integers(-1, 2, shape) if few else generator.standard_normal(shape) * 100)
        return drawn.astype(STORAGE[element])
    information = np.iinfo(STORAGE[element])
    low, high = (0, 2) if few else (int(information.min), int(information.max))
    return generator.integers(low, high, shape, STORAGE[element], endpoint=True)


@pytest.mark.parametrize("element", STORAGE)
def test_sort_element_types(element: str) -> None:
    array = values(element, (3, 37), seed=1)
    (actual,) = run_both(sort_text((3, 37), [element], 1, compare("LT", element)), array)
    np.testing.assert_array_equal(actual, np.sort(array, axis=1))


@pytest.mark.parametrize("length", [1, 2, 3, 11, 12, 13, 24, 25, 48, 49, 96, 97, 193, 1000])
def test_sort_lengths(length: int) -> None:
    for few in (False, True):
        array = values("i32", (length,), seed=length, few=few)
        (actual,) = run_guarded(sort_text((length,), ["i32"], 0, compare("LT", "i32")), array)
        np.testing.assert_array_equal(actual, np.sort(array))


@pytest.mark.parametrize(
    ("shape", "dimension"),
    [((5, 7), 0), ((5, 7), 1), ((5, 7), -1), ((5, 7), -2), ((3, 29, 4), 1), ((30, 2, 3), 0), ((2, 3, 15), 2),
     ((1, 40), 0), ((40, 1), 0), ((26, 1, 1), 0), ((0, 3), 0), ((3, 0), 0), ((0,), 0)],
)  # fmt: skip
def test_sort_dimensions(shape: tuple[int, ...], dimension: int) -> None:
    array = values("f32", shape, seed=5)
    text = sort_text(shape, ["f32"], dimension, compare("LT", "f32"))
    actual = hlojit.compile(text)(array) if array.size == 0 else run_both(text, array)[0]
    np.testing.assert_array_equal(actual, np.sort(array, axis=dimension))


@pytest.mark.parametrize(("shape", "axis"), [((101,), 0), ((50, 6), 0), ((6, 50), 1)])
@pytest.mark.parametrize("others", [("i32",), ("i8", "f64"), ("i1", "bf16", "i64")])
def test_sort_carries_operands_and_is_stable(shape: tuple[int, ...], axis: int, others: tuple[str, ...]) -> None:
    keys = values("i16", shape, seed=9, few=True)
    rest = [values(element, shape, seed=20 + k) for k, element in enumerate(others)]
    text = sort_text(shape, ["i16", *others], axis, compare("LT", "i16"))
    order = np.argsort(keys, axis=axis, kind="stable")
    for actual, array in zip(run_both(text, keys, *rest), [keys, *rest]):
        np.testing.assert_array_equal(actual, np.take_along_axis(array, order, axis))


def test_sort_descending_is_stable() -> None:
    keys = values("ui8", (300,), few=True)
    numbers = np.arange(300, dtype="i4")
    actual = run_both(sort_text((300,), ["ui8", "i32"], 0, compare("GT", "ui8")), keys, numbers)
    np.testing.assert_array_equal(actual[1], np.argsort(-keys.astype("i4"), kind="stable"))


def test_sort_by_two_keys() -> None:
    body = "\n".join((
        compare("LT", "i32", result="%less"), compare("EQ", "i32", result="%same"),
        compare("GT", "f32", "%x1", "%y1", "%second"),
        "%both = stablehlo.and %same, %second : tensor<i1>", "%r = stablehlo.or %less, %both : tensor<i1>",
    ))  # fmt: skip
    major, minor = values("i32", (4, 77), few=True), values("f32", (4, 77), seed=3)
    actual = run_both(sort_text((4, 77), ["i32", "f32"], 1, body), major, minor)
    order = np.lexsort((-minor, major), axis=1)
    np.testing.assert_array_equal(actual[0], np.take_along_axis(major, order, 1))
    np.testing.assert_array_equal(actual[1], np.take_along_axis(minor, order, 1))


def test_sort_keeps_bits() -> None:
    """NaN payloads and signed zeros are moved, not recomputed, for every float format."""
    for element, unsigned in (("f16", "u2"), ("bf16", "u2"), ("f32", "u4"), ("f64", "u8")):
        bits = np.arange(200).astype(unsigned) * np.dtype(unsigned).type(2 ** (8 * np.dtype(unsigned).itemsize) // 200)
        text, operand = sort_text((200,), [element], 0, compare("LT", element)), bits.view(STORAGE[element])
        # NaN has no place in this order, so kernels may differ, but nothing is lost.
        for actual in (run_guarded(text, operand)[0], hlojit.compile(text)(operand)):
            np.testing.assert_array_equal(np.sort(actual.view(unsigned)), np.sort(bits))


@pytest.mark.parametrize(
    "body",
    ["%r = stablehlo.constant dense<true> : tensor<i1>", "%r = stablehlo.constant dense<false> : tensor<i1>",
     compare("NE", "f32"), compare("LE", "f32"), compare("LT", "f32")],
)  # fmt: skip
def test_sort_any_comparator_stays_inside(body: str) -> None:
    """A comparator that is no order gives some permutation, and nothing outside is touched."""
    array = values("f32", (3, 67))
    array[0, ::3], array[1, ::2] = np.nan, -0.0
    (actual,) = run_guarded(sort_text((3, 67), ["f32"], 1, body), array)
    np.testing.assert_array_equal(np.sort(actual.view("u4"), 1), np.sort(array.view("u4"), 1))


def test_sort_without_comparisons_keeps_order() -> None:
    array = values("i32", (64,))
    body = "%r = stablehlo.constant dense<false> : tensor<i1>"
    np.testing.assert_array_equal(run_both(sort_text((64,), ["i32"], 0, body), array)[0], array)


def test_sort_total_order() -> None:
    array = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.5, -1.5] * 6, "f4")
    type = "tensor<f32>"
    body = f"%r = stablehlo.compare LT, %x0, %y0, TOTALORDER : ({type}, {type}) -> tensor<i1>"
    (actual,) = run_both(sort_text(array.shape, ["f32"], 0, body), array)
    bits = array.view("i4")
    keys = np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)
    np.testing.assert_array_equal(actual.view("i4"), bits[np.argsort(keys, kind="stable")])


SPECIAL = np.array([1.0, np.nan, -0.0, 0.0, -np.inf, 2.0, np.nan, 0.0, -0.0, np.inf, 1.0, -1.0], "f4")

JAX_PROGRAMS: dict[str, Callable[..., Any]] = {
    "sort": jnp.sort,
    "argsort": jnp.argsort,
    "descending": lambda x: jnp.sort(x, descending=True),
    "argsort_descending": lambda x: jnp.argsort(x, descending=True),
    "first_axis": lambda x: jnp.argsort(x.reshape(-1, 6), axis=0),
    "lexsort": lambda x: jnp.lexsort((jnp.arange(x.size) % 3, x)),
    "top_k": lambda x: jax.lax.top_k(x, 5),
    "unique": lambda x: jnp.unique(x, size=20, fill_value=7.0),
    "median": jnp.median,
    "bf16": lambda x: jnp.sort(x.astype(jnp.bfloat16)).astype(jnp.float32),
    "f16": lambda x: jnp.argsort(x.astype(jnp.float16)),
    "complex_keys": lambda x: jax.lax.sort((x, x + 1, jnp.arange(x.size)), num_keys=2),
}


@pytest.mark.parametrize("name", JAX_PROGRAMS)
def test_sort_as_jax(name: str) -> None:
    """JAX's comparators treat NaN as the largest and both zeros as equal."""
    array = np.concatenate([SPECIAL, np.round(values("f32", (60,), seed=4) / 50)])
    function = jax.jit(JAX_PROGRAMS[name])
    actual = hlojit.compile(function.lower(array).as_text())(array)
    expected = jax.tree.leaves(function(array))
    for ours, theirs in zip(actual if isinstance(actual, tuple) else (actual,), expected, strict=True):
        theirs = np.asarray(theirs)  # noqa: PLW2901
        np.testing.assert_array_equal(ours, theirs)
        if theirs.dtype.kind == "f":
            number = ~np.isnan(theirs)
            np.testing.assert_array_equal(np.signbit(ours)[number], np.signbit(theirs)[number])


def test_sort_comparator_may_use_values_from_outside() -> None:
    body = "%x = stablehlo.multiply %x0, %k : tensor<i32>\n%y = stablehlo.multiply %y0, %k : tensor<i32>\n"
    text = sort_text((9,), ["i32"], 0, body + compare("LT", "i32", "%x", "%y"))
    constant = text.replace(" {\n", " {\n%k = stablehlo.constant dense<-1> : tensor<i32>\n", 1)
    array = values("i32", (9,), few=True)
    np.testing.assert_array_equal(hlojit.compile(constant)(array), -np.sort(-array))
    given = text.replace("%a0: tensor<9xi32>)", "%a0: tensor<9xi32>, %k: tensor<i32>)")
    for factor in (-1, 1, 0):
        expected = array if factor == 0 else factor * np.sort(factor * array)
        np.testing.assert_array_equal(hlojit.compile(given)(array, np.int32(factor)), expected)
