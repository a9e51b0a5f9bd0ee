"""Gradients of norms on the simulator: rows and the columns of all rows by one kernel, against JAX in float64."""

from __future__ import annotations

from collections.abc import Callable
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


def text_of(function: Callable[..., Any], values: list[Array]) -> str:
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


SHAPES = [(64, 128), (7, 33), (2, 5), (1000, 3), (1031, 64), (3, 4, 65), (130, 257), (33, 1024), (5, 4096), (9, 6000), (40, 771)]


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
