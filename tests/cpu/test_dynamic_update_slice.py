"""``dynamic_update_slice`` against NumPy: clamped starts of every integer type, shapes, chains, guarded memory."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest

from .guarded import Array, run_both, spell
from .test_sort import STORAGE, values


def update_text(shape: tuple[int, ...], part: tuple[int, ...], element: str, index: str = "i32") -> str:
    starts = ", ".join(f"%s{d}" for d in range(len(shape)))
    arguments = "".join(f", %s{d}: tensor<{index}>" for d in range(len(shape)))
    types = ", ".join([spell(shape, element), spell(part, element), *[f"tensor<{index}>"] * len(shape)])
    operands = ", ".join(["%x", "%u", *([starts] if shape else [])])
    return f"""
    func.func public @main(%x: {spell(shape, element)}, %u: {spell(part, element)}{arguments}) -> {spell(shape, element)} {{
      %r = stablehlo.dynamic_update_slice {operands} : ({types}) -> {spell(shape, element)}
      return %r : {spell(shape, element)}
    }}"""


def updated(array: Array, part: Array, starts: tuple[int, ...]) -> Array:
    """NumPy's answer, with starts limited so that the part fits."""
    result = np.array(array)
    places = [min(max(start, 0), n - m) for start, n, m in zip(starts, array.shape, part.shape)]
    result[tuple(slice(place, place + m) for place, m in zip(places, part.shape))] = part
    return result


@pytest.mark.parametrize("element", STORAGE)
def test_update_element_types(element: str) -> None:
    array, part = values(element, (6, 7), 1), values(element, (2, 3), 2)
    (actual,) = run_both(update_text((6, 7), (2, 3), element), array, part, np.array(3, "i4"), np.array(2, "i4"))
    assert actual.tobytes() == updated(array, part, (3, 2)).tobytes()


@pytest.mark.parametrize(
    ("shape", "part"),
    [((), ()), ((5,), (5,)), ((5,), (1,)), ((4, 6), (4, 6)), ((4, 6), (1, 6)), ((4, 6), (4, 1)), ((3, 4, 5), (2, 4, 5)),
     ((3, 4, 5), (3, 2, 5)), ((3, 4, 5), (2, 3, 2)), ((2, 1, 3, 1), (1, 1, 3, 1)), ((4, 6), (0, 6)), ((4, 6), (2, 0))],
)  # fmt: skip
def test_update_shapes(shape: tuple[int, ...], part: tuple[int, ...]) -> None:
    array, update = values("f32", shape, 1), values("f32", part, 2)
    text = update_text(shape, part, "f32")
    for start in (0, 1, -3, 100):
        starts = (start,) * len(shape)
        actual = run_both(text, array, update, *[np.array(start, "i4") for start in starts])[0]
        np.testing.assert_array_equal(actual, updated(array, update, starts))


@pytest.mark.parametrize("index", ["i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64"])
def test_update_clamps_extreme_starts(index: str) -> None:
    array, part = values("i32", (5, 6), 1), values("i32", (2, 2), 2)
    information = np.iinfo(STORAGE[index])
    text = update_text((5, 6), (2, 2), "i32", index)
    for first in (information.min, information.max):
        for second in (information.min, 1, information.max):
            starts = (int(first), int(second))
            (actual,) = run_both(text, array, part, *[np.array(start, STORAGE[index]) for start in starts])
            np.testing.assert_array_equal(actual, updated(array, part, starts))


def test_update_of_an_operand_that_is_still_needed() -> None:
    """The argument, and a value that is read again later, keep what they held."""
    text = """
    func.func public @main(%x: tensor<64xf32>, %u: tensor<4xf32>, %i: tensor<i32>)
        -> (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) {
      %y = stablehlo.add %x, %x : tensor<64xf32>
      %b = stablehlo.optimization_barrier %y : tensor<64xf32>
      %r = stablehlo.dynamic_update_slice %b, %u, %i : (tensor<64xf32>, tensor<4xf32>, tensor<i32>) -> tensor<64xf32>
      %z = stablehlo.multiply %b, %x : tensor<64xf32>
      %q = stablehlo.dynamic_update_slice %r, %u, %i : (tensor<64xf32>, tensor<4xf32>, tensor<i32>) -> tensor<64xf32>
      return %r, %z, %q : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
    }"""
    array, part = values("f32", (64,), 1), values("f32", (4,), 2)
    kept = array.copy()
    actual = hlojit.compile(text)(array, part, np.int32(7))
    expected = updated(2 * array, part, (7,))
    for ours, theirs in zip(actual, (expected, 2 * array * array, expected)):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(array, kept)


def test_update_with_itself() -> None:
    """Operand and update are one value."""
    text = """
    func.func public @main(%x: tensor<3x3xf32>, %i: tensor<i32>) -> tensor<3x3xf32> {
      %y = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
      %r = stablehlo.dynamic_update_slice %y, %y, %i, %i
        : (tensor<3x3xf32>, tensor<3x3xf32>, tensor<i32>, tensor<i32>) -> tensor<3x3xf32>
      %q = stablehlo.dot_general %r, %x, contracting_dims = [1] x [0] : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
      return %q : tensor<3x3xf32>
    }"""
    array = np.arange(9, dtype="f4").reshape(3, 3)
    np.testing.assert_array_equal(hlojit.compile(text)(array, np.int32(1)), array @ array @ array)
