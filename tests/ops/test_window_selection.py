"""select_and_scatter: compiled against the reference, and gradients of max pooling against JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hlojit
import jax
import numpy as np
import pytest
from hlojit.ir.interpreter import evaluate

BACKENDS = ("cpu", "reference")
REGION = """({{
  ^bb0(%a: tensor<{e}>, %b: tensor<{e}>):
    %p = stablehlo.compare {direction}, %a, %b : (tensor<{e}>, tensor<{e}>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }}, {{
  ^bb0(%a: tensor<{e}>, %b: tensor<{e}>):
    %s = stablehlo.{combine} %a, %b : tensor<{e}>
    stablehlo.return %s : tensor<{e}>
  }})"""


def spell(shape: Sequence[int], element: str) -> str:
    return f"tensor<{''.join(f'{extent}x' for extent in shape)}{element}>"


def program(
    shape: Sequence[int],
    counts: Sequence[int],
    window: str,
    element: str = "f32",
    direction: str = "GE",
    combine: str = "add",
) -> str:
    x, u, i = spell(shape, element), spell(counts, element), f"tensor<{element}>"
    region = REGION.format(e=element, direction=direction, combine=combine)
    return (
        f"func.func @main(%x: {x}, %u: {u}, %i: {i}) -> {x} {{\n"
        f'  %r = "stablehlo.select_and_scatter"(%x, %u, %i) {region} {{{window}}} : ({x}, {u}, {i}) -> {x}\n'
        f"  return %r : {x}\n}}"
    )


OVERLAPPING = "window_dimensions = array<i64: 3, 3>, window_strides = array<i64: 2, 1>, padding = dense<[[1, 2], [0, 1]]> : tensor<2x2xi64>"
CASES: dict[str, tuple[Any, ...]] = {
    "windows that overlap": ((9, 7), (5, 6), OVERLAPPING),
    "integers, the least": ((9, 7), (5, 6), OVERLAPPING, "i8", "LT", "maximum"),
    "narrow floats": ((9, 7), (5, 6), OVERLAPPING, "bf16", "GT"),
    "not equal": ((9, 7), (5, 6), OVERLAPPING, "f64", "NE", "subtract"),
    "padding alone": ((3,), (5,), "window_dimensions = array<i64: 2>, window_strides = array<i64: 2>, padding = dense<[[4, 3]]> : tensor<1x2xi64>"),
    "nothing at all": ((0, 4), (0, 4), "window_dimensions = array<i64: 1, 1>"),
    "no window": ((2, 4), (0, 4), "window_dimensions = array<i64: 3, 1>"),
    "a scalar": ((), (), ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_compiled_program_is_the_reference_s(case: str) -> None:
    text = program(*CASES[case])
    module = hlojit.parse(text)
    random = np.random.default_rng(1)
    arguments = [
        np.asarray(random.integers(-4, 5, type.shape)).astype(type.element_type.storage)
        for type in hlojit.compile(text).input_types
    ]
    if CASES[case][3:] and CASES[case][3] == "bf16":
        arguments = [each.astype(np.float32).astype(hlojit.compile(text).input_types[0].element_type.dtype) for each in arguments]  # fmt: skip
    (expected,) = evaluate(module, *arguments)
    found: Any = hlojit.compile(text)(*arguments)
    assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


def test_equal_and_unordered_elements() -> None:
    """GE keeps the first of equals; a NaN is kept by nothing, and keeps nothing, once it is the candidate."""
    text = program((6,), (2,), "window_dimensions = array<i64: 3>, window_strides = array<i64: 3>")
    x = np.array([2, 2, 1, np.nan, 1, 0], "f4")
    module = hlojit.parse(text)
    arguments = x, np.array([5, 7], "f4"), np.float32(0)
    (expected,) = evaluate(module, *arguments)
    np.testing.assert_array_equal(hlojit.compile(text)(*arguments), expected)
    np.testing.assert_array_equal(expected, [5, 0, 0, 0, 7, 0])


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("size", "stride"), [(2, 2), (3, 2), (3, 1)])
def test_gradients_of_max_pooling(padding: str, size: int, stride: int) -> None:
    def pooled(x: Any) -> Any:
        return jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, size, size, 1), (1, stride, stride, 1), padding)

    def loss(x: Any) -> Any:
        return (pooled(x) ** 2).sum()

    x = np.random.default_rng(0).standard_normal((2, 9, 8, 3)).astype("f4")
    lowered = jax.jit(jax.grad(loss)).lower(x)
    assert "select_and_scatter" in lowered.as_text()
    for backend in BACKENDS:
        found: Any = hlojit.compile(lowered.as_text(), backend=backend)(x)
        np.testing.assert_allclose(found, lowered.compile()(x), rtol=1e-6)
