"""Gradients of norms on the simulator: rows and the columns of all rows by one kernel, against JAX in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hlojit
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.cuda.nvptx import H200
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.graph import Instruction
from hlojit.lowering.body import Body
from hlojit.lowering.fusion_kind import FusionKind
from hlojit.lowering.summed_row_plan import SummedRowGrid, summed_row_grid, summed_row_plan

Array = np.ndarray[Any, Any]


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    centred = wide - wide.mean(-1, keepdims=True)
    return (centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + shift).astype(x.dtype)


def rms_norm(x: Any, scale: Any) -> Any:
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return (wide * jax.lax.rsqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def gradient(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Of a function of x and ``count`` vectors, with respect to all of them; the last argument is the result's."""
    return lambda *arguments: jax.vjp(function, *arguments[: 1 + count])[1](arguments[-1])


NORMS = {"layer_norm": (layer_norm, 2), "rms_norm": (rms_norm, 1)}


def arguments(count: int, shape: tuple[int, ...], dtype: Any) -> list[Array]:
    random = np.random.default_rng([7, *shape])
    x, g = (random.standard_normal(shape).astype(dtype) for _ in range(2))
    vectors = [random.standard_normal(shape[-1]).astype(np.float64 if dtype == np.float64 else np.float32)]
    return [x, *(vectors * count), g]


def text_of(function: Callable[..., Any], values: Sequence[Any]) -> str:
    with jax.enable_x64(True):
        return str(jax.jit(function, keep_unused=True).lower(*values).as_text())


def check(function: Callable[..., Any], values: list[Array], eps: float) -> None:
    """Sums of n terms are exact to some eps times the root of n, relative to the largest of all results."""
    found = hlojit.compile(text_of(function, values), backend="cuda")(*values)
    with jax.enable_x64(True):
        want = jax.tree.leaves(jax.jit(function)(*(value.astype(np.float64) for value in values)))
    for one, other in zip(found, want, strict=True):
        largest = float(np.abs(other).max())
        np.testing.assert_allclose(one.astype(np.float64), other, rtol=0, atol=8 * eps * largest)


def kernels(text: str, backend: str = "cuda") -> list[Instruction]:
    main = lower(hlojit.parse(text), registry().backend(backend), CompileOptions()).main
    return [each for each in main.body if each.name == "hlojit.fusion"]


SHAPES = [
    (64, 128),
    (7, 33),
    (2, 5),
    (1000, 3),
    (1031, 64),
    (3, 4, 65),
    (130, 257),
    (33, 1024),
    (5, 4096),
    (9, 6000),
    (40, 771),
]


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_of_norms(name: str, shape: tuple[int, ...]) -> None:
    function, count = NORMS[name]
    check(gradient(function, count), arguments(count, shape, np.float32), 2**-20)


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize(("dtype", "eps"), [(ml_dtypes.bfloat16, 2**-9), (np.float16, 2**-12), (np.float64, 2**-48)])
@pytest.mark.parametrize("shape", [(37, 96), (6, 1001), (300, 16)], ids=str)
def test_other_types(name: str, dtype: Any, eps: float, shape: tuple[int, ...]) -> None:
    function, count = NORMS[name]
    check(gradient(function, count), arguments(count, shape, dtype), eps)


def test_one_kernel_takes_rows_and_columns() -> None:
    for name, (function, count) in NORMS.items():
        values = arguments(count, (256, 512), np.float32)
        text = text_of(gradient(function, count), values)
        kinds = [FusionKind.of(Body.of(each)) for each in kernels(text)]
        assert kinds.count(FusionKind.SUMMED_ROW) == 1, name
        assert set(kinds) <= {FusionKind.SUMMED_ROW, FusionKind.ELEMENTWISE}, name
        (rows,) = [each for each in kernels(text) if FusionKind.of(Body.of(each)) is FusionKind.SUMMED_ROW]
        full = [result for result in rows.results if result.tensor_type.shape == (256, 512)]
        assert len(full) == 1, "nothing but the gradient of x is as large as x"
        assert FusionKind.SUMMED_ROW not in [FusionKind.of(Body.of(each)) for each in kernels(text, "cpu")]


def bias_gradients(x: Any, g: Any) -> tuple[Any, ...]:
    """Columns that have nothing to do with the rows' results, before and after them."""
    return g.sum(0), jax.nn.softmax(x * g, axis=-1), jnp.abs(x).max(0), (x * g).min(0)


def columns_before_rows(x: Any, g: Any) -> Any:
    """Rows of what columns gave: no kernel can do both."""
    return jax.nn.softmax(g - (x * jax.nn.softmax(x, -1)).sum(0), axis=-1), g.sum(0)


def columns_after_columns(x: Any, g: Any) -> Any:
    y = jax.nn.softmax(x, -1)
    first = (y * g).sum(0)
    return (g * first).sum(0), y


def square(x: Any, g: Any) -> Any:
    """The columns' results look like the rows'."""
    mean = x.mean(1)
    y = x - mean[:, None]
    columns = (y * g).sum(0)
    return y * columns[:, None], columns * mean, columns


def many_columns(x: Any, g: Any) -> Any:
    y = jax.nn.softmax(x, -1)
    return tuple((y * g + float(number)).sum(0) for number in range(6)), y


def extrema(x: Any, g: Any) -> Any:
    y = x - x.max(-1, keepdims=True)
    return jnp.argmax(y * g, 0).astype(x.dtype), y.max(0), y.min(1), y.prod(1)


def transposed(x: Any, g: Any) -> Any:
    y = jax.nn.softmax(x, -1)
    return (y * g.T).sum(0), y.sum(1)


PROGRAMS = [bias_gradients, columns_before_rows, columns_after_columns, square, many_columns, extrema, transposed]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("size", [3, 64, 130])
def test_rows_beside_columns(function: Callable[..., Any], size: int) -> None:
    check(function, arguments(0, (size, size), np.float32), 2**-20)


def test_rows_of_an_order_of_their_own() -> None:
    """What is not recognized is combined in order, by other kernels."""
    wide, row = "tensor<9x5xf32>", "tensor<9xf32>"
    text = f"""
    func.func @main(%x: {wide}) -> ({wide}, tensor<5xf32>) {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : ({wide}, tensor<f32>) -> {row}
      %1 = stablehlo.broadcast_in_dim %0, dims = [0] : ({row}) -> {wide}
      %2 = stablehlo.subtract %x, %1 : {wide}
      %3 = stablehlo.reduce(%2 init: %zero) across dimensions = [0] : ({wide}, tensor<f32>) -> tensor<5xf32>
        reducer(%a: tensor<f32>, %b: tensor<f32>) {{
          %4 = stablehlo.subtract %b, %a : tensor<f32>
          stablehlo.return %4 : tensor<f32>
        }}
      return %2, %3 : {wide}, tensor<5xf32>
    }}"""
    x = np.random.default_rng(3).standard_normal((9, 5)).astype(np.float32)
    rest, columns = hlojit.compile(text, backend="cuda")(x)
    total = np.zeros(5, np.float32)
    for row_ in rest:
        total = row_ - total
    np.testing.assert_array_equal(columns, total)


def grid_of(rows: int, columns: int) -> SummedRowGrid:
    wide, row = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((rows, columns), (columns,)))
    (fusion,) = [
        each
        for each in kernels(text_of(gradient(layer_norm, 2), [wide, row, row, wide]))
        if FusionKind.of(Body.of(each)) is FusionKind.SUMMED_ROW
    ]
    return summed_row_grid(summed_row_plan(Body.of(fusion)), H200)


@pytest.mark.parametrize("columns", [3, 64, 768, 1001, 4096, 8192])
@pytest.mark.parametrize("rows", [2, 33, 4096, 1 << 20])
def test_grids(rows: int, columns: int) -> None:
    grid = grid_of(rows, columns)
    assert grid.rows.lanes * grid.rows.pieces == columns and grid.rows.resident
    assert grid.rows.team * grid.rows.rounds >= grid.rows.pieces
    assert grid.rows.threads <= 1024 and grid.blocks <= grid.rows.blocks
    assert grid.blocks == 1 or grid.rows.blocks >= 4 * grid.blocks, "a block has several rows"
