"""The usual small kernels: elementwise, reductions, normalizations, movement, products, convolution, one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.programs import Program, _layer_norm, _random


def _case(
    name: str, function: Callable[..., Any], *arguments: Any, x64: bool = False
) -> tuple[str, Callable[[], Program]]:
    return name, lambda: Program(name, function, arguments, x64=x64)


def _matrix(size: int, dtype: str = "f4") -> tuple[Any, Any]:
    return _random(size, size, scale=1.0, dtype=dtype), _random(size, size, scale=1.0, seed=1, dtype=dtype)


_ROWS = _random(256, 1024, scale=1.0)
_LARGE = _random(4096, 4096, scale=1.0)

KERNELS: dict[str, Callable[[], Program]] = dict(
    (
        _case("call_one_small_array", lambda x: x + 1, _random(8, scale=1.0)),
        _case("add_mul_1m", lambda x, y: x * y + x, _random(1 << 20, scale=1.0), _random(1 << 20, scale=1.0, seed=1)),
        _case("add_one_64mb", lambda x: x + 1, _LARGE),
        _case("exp_256k", jnp.exp, _ROWS),
        _case("tanh_256k", jnp.tanh, _ROWS),
        _case("sin_256k", jnp.sin, _ROWS),
        _case("gelu_256k", jax.nn.gelu, _ROWS),
        _case("log_f64_256k", lambda x: jnp.log(jnp.abs(x)), _ROWS.astype("f8"), x64=True),
        _case("bf16_mul_add_256k", lambda x: x * x + x, jnp.asarray(_ROWS, "bfloat16")),
        _case("softmax_256x1024", lambda x: jax.nn.softmax(x, axis=-1), _ROWS),
        _case("layer_norm_256x1024", lambda x: _layer_norm(x, x[0], x[1]), _ROWS),
        _case("sum_rows", lambda x: x.sum(1), _ROWS),
        _case("sum_columns", lambda x: x.sum(0), _ROWS),
        _case("sum_all_64mb", jnp.sum, _LARGE),
        _case("argmax_rows", lambda x: jnp.argmax(x, axis=1), _ROWS),
        _case("cumsum_256x1024", lambda x: jnp.cumsum(x, axis=1), _ROWS),
        _case("transpose_1024", lambda x: x.T + 1, _LARGE[:1024, :1024].copy()),
        _case("concatenate", lambda x: jnp.concatenate([x, x * 2], 1), _ROWS),
        _case("gather_rows", lambda x, i: x[i], _ROWS, _random(4096, scale=100.0).astype("i4") % 256),
        _case("segment_sum", lambda x, i: jnp.zeros(256, "f4").at[i].add(x), _random(1 << 16, scale=1.0),
              _random(1 << 16, scale=100.0, seed=5).astype("i4") % 256),
        _case("segment_sum_1m", lambda x, i: jnp.zeros(4096, "f4").at[i].add(x), _random(1 << 20, scale=1.0),
              _random(1 << 20, scale=2000.0, seed=5).astype("i4") % 4096),
        _case("sort_64k", jnp.sort, _random(1 << 16, scale=1.0)),
        _case("sort_rows", lambda x: jnp.sort(x, axis=1), _ROWS),
        _case("argsort_64k", jnp.argsort, _random(1 << 16, scale=1.0)),
        _case("top_k_rows", lambda x: lax.top_k(x, 8), _ROWS),
        _case("top_k_1m", lambda x: lax.top_k(x, 64), _random(1 << 20, scale=1.0)),
        _case("matmul_128", jnp.matmul, *_matrix(128)),
        _case("matmul_512", jnp.matmul, *_matrix(512)),
        _case("matmul_1024", jnp.matmul, *_matrix(1024)),
        _case("matmul_f64_512", jnp.matmul, *_matrix(512, "f8"), x64=True),
        _case("matmul_batched", jnp.matmul, _random(64, 64, 64, scale=1.0), _random(64, 64, 64, scale=1.0, seed=1)),
        _case("matvec_1024", jnp.matmul, _random(1024, 1024, scale=1.0), _random(1024, scale=1.0)),
        _case(
            "conv_3x3",
            lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
            _random(1, 56, 56, 64, scale=1.0), _random(3, 3, 64, 64),
        ),
        _case(
            "conv_depthwise",
            lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                                  feature_group_count=128),
            _random(1, 56, 56, 128, scale=1.0), _random(3, 3, 1, 128),
        ),
        _case("threefry_bits", lambda key: jax.random.bits(jax.random.wrap_key_data(key), (1 << 18,)),
              _random(2, scale=1000.0).astype("u4")),
        _case("mandelbrot_loop", lambda c: lax.fori_loop(0, 50, lambda _, z: jnp.clip(z * z + c, -2, 2), c * 0), 0.05 * _ROWS),
    )
)  # fmt: skip
