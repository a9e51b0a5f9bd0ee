"""The reference interpreter on JAX's own programs, against JAX on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlojit.ir.interpreter import evaluate
from hlojit.ir.text.parser import parse_module
from hlojit.ir.verifier import verify
from jax import lax

RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def integers(low: int, high: int, *shape: int, dtype: Any = np.int32) -> np.ndarray:
    return RNG.integers(low, high, shape).astype(dtype)


def convolution(**options: Any) -> Callable[..., Any]:
    return lambda x, k: lax.conv_general_dilated(x, k, **options)


def window(
    init: float, combine: Any, dimensions: Any, strides: Any, padding: Any, **options: Any
) -> Callable[..., Any]:
    return lambda x: lax.reduce_window(x, init, combine, dimensions, strides, padding, **options)


NHWC = ("NHWC", "HWIO", "NHWC")
MAX_POOL = window(-np.inf, lax.max, (1, 2, 3), (1, 2, 2), "SAME")
BF16, F8 = jnp.bfloat16, jnp.float8_e4m3fn

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], float]] = {
    "dot": (lambda a, b: a @ b, (f32(3, 4), f32(4, 5)), 1e-6),
    "batched product": (lambda a, b: jnp.einsum("bij,bkj->bik", a, b), (f32(2, 3, 4), f32(2, 5, 4)), 1e-6),
    "inner dimensions": (lambda a, b: jnp.einsum("ajbk,kcja->bcj", a, b), (f32(2, 3, 4, 5), f32(5, 6, 3, 2)), 1e-5),
    "int8 product": (
        lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32),
        (integers(-99, 99, 3, 4, dtype=np.int8), integers(-99, 99, 4, 5, dtype=np.int8)),
        0,
    ),
    "bf16 product and gelu": (lambda a, b: jax.nn.gelu(a @ b), (f32(3, 4).astype(BF16), f32(4, 5).astype(BF16)), 1e-2),
    "f8 product": (lambda a, b: a @ b, (f32(3, 4).astype(F8), f32(4, 5).astype(F8)), 0.1),
    "softmax": (jax.nn.softmax, (f32(3, 7),), 1e-6),
    "argmax, argmin": (lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0)), (f32(3, 7),), 0),
    "argmax of NaN": (lambda x: jnp.argmax(x, 1), (np.array([[1, np.nan, 3], [2, 2, 1]], np.float32),), 0),
    "prod, any, all, mean": (
        lambda x: (jnp.prod(x, 0), jnp.any(x > 0, 1), jnp.all(x > 0), x.mean((0, 1))),
        (f32(3, 4),),
        1e-6,
    ),
    "cumsum": (lambda x: (jnp.cumsum(x, 1), lax.cumprod(x, 1, reverse=True), lax.cummax(x, 0)), (f32(3, 7),), 1e-5),
    "sort, argsort": (lambda x: (jnp.sort(x), jnp.argsort(x, descending=True)), (f32(3, 7),), 0),
    "sort of zeros and NaN": (jnp.argsort, (np.array([0, np.nan, -0.0, 1, -np.inf, np.nan, 0], np.float32),), 0),
    "top_k": (lambda x: lax.top_k(x, 3), (f32(3, 7),), 0),
    "top_k of ties and NaN": (lambda x: lax.top_k(x, 4), (np.array([1, 2, np.nan, 2, -np.inf], np.float32),), 0),
    "median": (lambda x: jnp.median(x, 1), (f32(3, 30),), 1e-6),
    "histogram": (lambda x: jnp.histogram(x, bins=5)[0], (f32(30),), 0),
    "take": (lambda x, i: jnp.take(x, i, axis=0), (f32(5, 3), np.array([0, 7, -1, 2], np.int32)), 0),
    "take clipped": (lambda x, i: jnp.take(x, i, axis=1, mode="clip"), (f32(5, 3), np.array([0, 7, -1], np.int32)), 0),
    "take along axis": (lambda x, i: jnp.take_along_axis(x, i, 1), (f32(5, 3), integers(0, 3, 5, 2)), 0),
    "batched gather": (jax.vmap(lambda x, i: x[i]), (f32(4, 5, 2), integers(0, 5, 4, 3)), 0),
    "slices at indices": (
        jax.vmap(lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 2)), (None, 0)),
        (f32(5, 3), np.array([0, 2, 9], np.int32)),
        0,
    ),
    "scatter add": (lambda x, i, u: x.at[i].add(u), (f32(5, 3), np.array([0, 7, 1, 1], np.int32), f32(4, 3)), 1e-6),
    "scatter set": (lambda x, i, u: x.at[i].set(u), (f32(5, 3), np.array([0, 3, 1, 7], np.int32), f32(4, 3)), 0),
    "scatter max": (lambda x, i: jax.ops.segment_max(x, i, 4), (f32(9), integers(0, 4, 9)), 0),
    "scatter of windows": (
        lambda x, i, u: x.at[:, i, 1:3].multiply(u),
        (f32(2, 5, 4), np.array([4, 0, 4], np.int32), f32(2, 3, 2)),
        1e-6,
    ),
    "batched scatter": (jax.vmap(lambda x, i, u: x.at[i].add(u)), (f32(3, 5), integers(0, 5, 3, 4), f32(3, 4)), 1e-6),
    "dynamic_update_slice": (
        lambda a, b, i: lax.dynamic_update_slice(a, b, (i, i)),
        (f32(3, 4), f32(2, 2), np.int32(5)),
        0,
    ),
    "convolution": (
        convolution(
            window_strides=(2, 1),
            padding=[(1, 2), (0, 1)],
            rhs_dilation=(1, 2),
            lhs_dilation=(2, 1),
            dimension_numbers=NHWC,
        ),
        (f32(2, 6, 7, 4), f32(3, 2, 4, 6)),
        1e-5,
    ),
    "convolution with negative padding": (
        convolution(window_strides=(1, 1), padding=[(-1, 2), (1, -2)], dimension_numbers=NHWC),
        (f32(2, 6, 7, 3), f32(3, 2, 3, 5)),
        1e-5,
    ),
    "grouped convolution": (
        convolution(window_strides=(1, 1), padding="SAME", feature_group_count=4),
        (f32(2, 4, 6, 7), f32(8, 1, 3, 3)),
        1e-5,
    ),
    "batch grouped convolution": (
        convolution(window_strides=(1, 1), padding="VALID", batch_group_count=2),
        (f32(4, 3, 6, 7), f32(8, 3, 3, 3)),
        1e-5,
    ),
    "1d and 3d convolution": (
        lambda x, k, y, q: (
            lax.conv_general_dilated(x, k, (2,), "SAME"),
            lax.conv_general_dilated(y, q, (1, 2, 1), "VALID"),
        ),
        (f32(2, 3, 9), f32(4, 3, 3), f32(1, 2, 4, 5, 3), f32(3, 2, 2, 2, 2)),
        1e-5,
    ),
    "gradient of a convolution": (
        jax.grad(
            lambda x, k: (lax.conv_general_dilated(x, k, (2, 1), "SAME", dimension_numbers=NHWC) ** 2).sum(), (0, 1)
        ),
        (f32(2, 6, 7, 3), f32(3, 2, 3, 4)),
        1e-4,
    ),
    "max pool": (MAX_POOL, (f32(2, 6, 7),), 0),
    "gradient of max pool": (jax.grad(lambda x: (MAX_POOL(x) ** 2).sum()), (f32(2, 6, 7),), 1e-6),
    "average pool, dilated": (
        window(
            0.0,
            lax.add,
            (1, 2, 3),
            (1, 2, 2),
            ((0, 0), (1, 2), (0, 1)),
            window_dilation=(1, 2, 1),
            base_dilation=(1, 1, 2),
        ),
        (f32(2, 6, 7),),
        1e-6,
    ),
    "fori_loop": (lambda x: lax.fori_loop(0, 10, lambda i, c: c * 1.1 + i, x), (f32(3),), 1e-6),
    "scan": (lambda x: lax.scan(lambda c, y: (c + y, c * y), jnp.zeros(3), x), (f32(5, 3),), 1e-6),
    "cond": (lambda p, x: lax.cond(p, lambda x: x + 1, lambda x: x * 2, x), (np.bool_(True), f32(3)), 0),
    "switch": (
        lambda i, x: lax.switch(i, [lambda x: x + 1, lambda x: x * 2, lambda x: -x], x),
        (np.int32(5), f32(3)),
        0,
    ),
    "fft": (lambda a: (jnp.fft.fft2(a), jnp.fft.rfft(a), jnp.fft.irfft(jnp.fft.rfft(a), 7)), (f32(4, 7),), 1e-5),
    "ifft of complex": (lambda a, b: jnp.fft.ifftn(a + 1j * b), (f32(2, 3, 4), f32(2, 3, 4)), 1e-6),
    "random normal": (lambda: jax.random.normal(jax.random.key(0), (3, 5)), (), 1e-6),
    "random uniform by rng_bit_generator": (lambda: jax.random.uniform(jax.random.key(7, impl="rbg"), (3, 5)), (), 0),
    "random permutation": (lambda: jax.random.permutation(jax.random.key(0), 13), (), 0),
    "CHLO functions": (
        lambda a: (
            jax.nn.gelu(a, approximate=False),
            lax.lgamma(a),
            lax.digamma(a),
            lax.erf_inv(jnp.tanh(a)),
            lax.erfc(a),
        ),
        (f32(3, 4),),
        1e-4,
    ),
    "CHLO trigonometry": (
        lambda x: (
            jnp.sinh(x),
            jnp.cosh(x),
            jnp.arcsinh(x),
            jnp.arctan(x),
            jnp.arcsin(jnp.tanh(x)),
            jnp.arccos(jnp.tanh(x)),
            jnp.arccosh(1 + x * x),
            jnp.arctanh(jnp.tanh(x)),
            jnp.tan(x),
            lax.square(x),
        ),
        (f32(50),),
        1e-4,
    ),
    "CHLO gamma functions": (
        lambda x: (
            jax.scipy.special.polygamma(2, jnp.abs(x) + 1),
            jax.scipy.special.i1e(x),
            jax.scipy.special.zeta(jnp.abs(x) + 2, jnp.abs(x) + 1),
        ),
        (f32(5),),
        1e-4,
    ),
    "nextafter": (
        jnp.nextafter,
        (
            np.array([0, -0.0, 0, 1, -1, np.inf, np.nan, 1, 1e-45, 5], np.float32),
            np.array([1, -1, 0, 2, -2, 0, 1, np.nan, -1, 5], np.float32),
        ),
        0,
    ),
    "complex numbers": (lambda a, b: (jnp.abs(a + 1j * b), jnp.conj(a + 1j * b)), (f32(3), f32(3)), 1e-6),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    function, arguments, tolerance = PROGRAMS[name]
    compiled = jax.jit(function)
    module = parse_module(compiled.lower(*arguments).as_text())
    verify(module)
    results = evaluate(module, *arguments)
    expected = jax.tree.leaves(compiled(*arguments))
    assert len(results) == len(expected)
    for result, wanted in zip(results, map(np.asarray, expected)):
        assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
        wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(result.astype(wide), wanted.astype(wide), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("algorithm", ["RNG_THREE_FRY", "RNG_DEFAULT"])
def test_random_bits_are_those_of_xla(algorithm: str, dtype: Any) -> None:
    """XLA's default on the CPU is Philox."""
    states = [np.array(state, np.uint64) for state in ([1, 2], [2**40 + 7, 2**64 - 2])]
    with jax.enable_x64(True):
        for shape in ((), (3, 5), (4, 3, 1)):
            program = jax.jit(
                lambda state, shape=shape: lax.rng_bit_generator(
                    state, shape, dtype=dtype, algorithm=getattr(lax.RandomAlgorithm, algorithm)
                )
            )
            module = parse_module(program.lower(states[0]).as_text())
            for state in states:
                for result, wanted in zip(evaluate(module, state), program(state)):
                    np.testing.assert_array_equal(result, np.asarray(wanted))
