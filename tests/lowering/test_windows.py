"""``reduce_window`` against JAX and NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import hlojit
import jax
import numpy as np
import pytest
from hlojit.ir.builder import Builder
from hlojit.ir.formats import element_type
from hlojit.ir.graph import Block
from hlojit.ir.types import tensor

CASES: list[Any] = [
    ((10,), (3,), (1,), (1,), (1,), ((0, 0),)),
    ((17,), (3,), (2,), (1,), (1,), ((1, 1),)),
    ((9, 33), (3, 3), (1, 1), (1, 1), (1, 1), ((1, 1), (1, 1))),
    ((9, 33), (3, 3), (2, 2), (2, 1), (1, 2), ((1, 3), (0, 2))),
    ((9, 33), (2, 2), (1, 1), (1, 1), (1, 1), ((-1, 0), (2, -3))),
    ((2, 16, 16), (1, 5, 5), (1, 1, 1), (1, 1, 1), (1, 1, 1), ((0, 0), (2, 2), (2, 2))),
    ((100,), (50,), (1,), (1,), (1,), ((49, 0),)),
    ((3, 0), (1, 2), (1, 1), (1, 1), (1, 1), ((0, 0), (1, 1))),
]


def window_instruction(shape: Any, element: str, name: str, init: Any, **attributes: Any) -> Any:
    block = Block([tensor(shape, element), tensor((), element)])
    b = Builder(block)
    start = block.arguments[1] if init is None else b.constant(init, tensor((), element))
    return b.reduce_window([block.arguments[0]], [start], b.combiner(name, element), **attributes).producer


@pytest.mark.parametrize(("shape", "size", "stride", "base", "dilation", "padding"), CASES, ids=str)
@pytest.mark.parametrize("name", ["add", "maximum"])
def test_reduce_window(
    lab: Any,
    random: np.random.Generator,
    shape: Any,
    size: Any,
    stride: Any,
    base: Any,
    dilation: Any,
    padding: Any,
    name: str,
) -> None:
    x = random.standard_normal(shape).astype(np.float32)
    init = np.float32(0 if name == "add" else -np.inf)
    instruction = window_instruction(
        shape,
        "f32",
        name,
        None,
        window_dimensions=size,
        window_strides=stride,
        base_dilations=base,
        window_dilations=dilation,
        padding=padding,
    )
    operator = jax.lax.add if name == "add" else jax.lax.max
    want = jax.lax.reduce_window(x, init, operator, size, stride, padding, base, dilation)
    np.testing.assert_allclose(lab.run_instruction(instruction, x, init)[0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_reduce_window_scan(lab: Any, random: np.random.Generator, axis: int, reverse: bool) -> None:
    shape = (5, 70, 9)
    x = random.standard_normal(shape).astype(np.float32)
    size = tuple(n if d == axis else 1 for d, n in enumerate(shape))
    edge = (0, shape[axis] - 1) if reverse else (shape[axis] - 1, 0)
    padding = tuple(edge if d == axis else (0, 0) for d in range(3))
    flip = (lambda a: np.flip(a, axis)) if reverse else (lambda a: a)
    for name, init, ufunc in (("add", 0.0, np.add), ("maximum", None, np.maximum), ("multiply", 1.0, np.multiply)):
        instruction = window_instruction(shape, "f32", name, init, window_dimensions=size, padding=padding)
        start = np.float32(-1 if init is None else init)
        want = flip(ufunc.accumulate(flip(x), axis))
        want = np.maximum(want, start) if name == "maximum" else want
        np.testing.assert_allclose(lab.run_instruction(instruction, x, start)[0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("element", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("init", ["0.0", "-0.0"])
@pytest.mark.parametrize("padding", ["2, 0", "0, 2"])
def test_cumulative_sums_have_the_signs_of_their_zeros(element: str, init: str, padding: str) -> None:
    """An init of 0.0 is not the identity, which is -0.0; every row of three zeros and ones, alone and by vectors."""
    rows = np.array(list(itertools.product((0.0, -0.0, 1.0, -1.0), repeat=3)))
    for shape, sizes, edges in (
        ("64x3", "1, 3", f"[0, 0], [{padding}]"),
        ("3x64", "3, 1", f"[{padding}], [0, 0]"),
    ):
        text = f"""
        func.func @main(%x: tensor<{shape}x{element}>) -> tensor<{shape}x{element}> {{
          %c = stablehlo.constant dense<{init}> : tensor<{element}>
          %r = "stablehlo.reduce_window"(%x, %c) ({{
          ^bb0(%a: tensor<{element}>, %b: tensor<{element}>):
            %s = stablehlo.add %a, %b : tensor<{element}>
            stablehlo.return %s : tensor<{element}>
          }}) {{window_dimensions = array<i64: {sizes}>, padding = dense<[{edges}]> : tensor<2x2xi64>}}
            : (tensor<{shape}x{element}>, tensor<{element}>) -> tensor<{shape}x{element}>
          return %r : tensor<{shape}x{element}>
        }}"""
        x = (rows if shape == "64x3" else rows.T).astype(element_type(element).storage)
        found, expected = (np.asarray(hlojit.compile(text, backend=name)(x)) for name in ("cpu", "reference"))
        assert found.tobytes() == expected.tobytes()


def test_reduce_window_pads_with_init_as_specified(lab: Any) -> None:
    """The padding consists of init values, which an addition counts."""
    instruction = window_instruction((2,), "f32", "add", None, window_dimensions=(3,), padding=((1, 1),))
    result = lab.run_instruction(instruction, np.array([1, 10], np.float32), np.float32(100))[0]
    np.testing.assert_array_equal(result, [100 + 100 + 1 + 10, 100 + 1 + 10 + 100])
