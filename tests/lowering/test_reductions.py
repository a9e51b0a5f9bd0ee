"""Reduction kernels against NumPy and JAX: axes, types, combiners, special values, order."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hlojit.ir.types import tensor

SHAPES = [
    (1,),
    (7,),
    (64,),
    (1000,),
    (3, 5),
    (128, 257),
    (4, 1, 33),
    (5, 6, 7),
    (2, 130, 3),
    (300000,),
    (3, 200000),
    (200000, 3),
    (40, 9000),
    (9000, 300),
]
CASES = [
    (shape, axes)
    for shape in SHAPES
    for n in range(1, len(shape) + 1)
    for axes in itertools.combinations(range(len(shape)), n)
]


def reduce(name: str, axes: tuple[int, ...]) -> Any:
    def build(b: Any, x: Any, init: Any) -> Any:
        return b.reduce([x], [init], b.combiner(name, x.tensor_type.element_type), dimensions=axes)

    return build


@pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)
def test_reduce_add_and_maximum_every_axes(lab: Any, random: np.random.Generator, shape: Any, axes: Any) -> None:
    x = random.standard_normal(shape).astype(np.float32)
    total = lab.run(reduce("add", axes), x, np.float32(3), kind="reduction")
    wide = x.astype(np.float64)
    bound = 1e-6 * np.abs(wide).sum(axis=axes) + 1e-6
    assert total.shape == wide.sum(axis=axes).shape
    assert (np.abs(total - (wide.sum(axis=axes) + 3)) <= bound).all()
    largest = lab.run(reduce("maximum", axes), x, np.float32(1), kind="reduction")
    np.testing.assert_array_equal(largest, x.max(axis=axes, initial=1))


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64], ids=lambda d: np.dtype(d).name
)
@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum", "and", "or", "xor"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
def test_reduce_integers(lab: Any, random: np.random.Generator, dtype: Any, name: str, axes: Any) -> None:
    info = np.iinfo(dtype)
    x = random.integers(info.min, info.max, (37, 83), dtype, endpoint=True)
    init = dtype(5)
    result = lab.run(reduce(name, axes), x, init, kind="reduction")
    ufunc = {
        "add": np.add,
        "multiply": np.multiply,
        "maximum": np.maximum,
        "minimum": np.minimum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[name]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(result, ufunc(ufunc.reduce(x, axis=axes, dtype=dtype), init))


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
def test_reduce_booleans_any_all(lab: Any, random: np.random.Generator, axes: Any) -> None:
    x = random.integers(0, 50, (41, 300)) == 0
    np.testing.assert_array_equal(lab.run(reduce("or", axes), x, np.False_), x.any(axis=axes))
    np.testing.assert_array_equal(lab.run(reduce("and", axes), ~x, np.True_), (~x).all(axis=axes))


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16], ids=lambda d: np.dtype(d).name
)
@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("axes", [(0,), (1,)], ids=str)
def test_reduce_extrema_of_special_values(lab: Any, dtype: Any, name: str, axes: Any) -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], dtype)
    signed_nan = np.copysign(np.array(np.nan, dtype), np.array(-1, dtype))
    x = np.array(list(itertools.product([*values, signed_nan], repeat=3)), dtype)
    x = np.concatenate([x, x[:, :1]], 1) if axes == (1,) else x.T.copy()
    init = np.array(-np.inf if name == "maximum" else np.inf, dtype)
    result = lab.run(reduce(name, axes), x, init, kind="reduction")
    operator = jax.lax.max if name == "maximum" else jax.lax.min
    want = np.asarray(jax.lax.reduce(jnp.asarray(x), init, operator, axes)).astype(np.float64)
    # JAX leaves the sign of zero open; the specification does not.
    lines = np.moveaxis(x, axes[0], -1).astype(np.float64)
    zero = want == 0
    np.testing.assert_array_equal(np.isnan(result.astype(np.float64)), np.isnan(lines).any(-1))
    np.testing.assert_array_equal(result.astype(np.float64), want)
    is_zero = lines == 0
    signs = np.signbit(lines)
    expected = ~(is_zero & ~signs).any(-1) if name == "maximum" else (is_zero & signs).any(-1)
    np.testing.assert_array_equal(np.signbit(result.astype(np.float64))[zero], expected[zero])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=lambda d: np.dtype(d).name)
def test_reduce_narrow_floats_accumulate_wide(lab: Any, random: np.random.Generator, dtype: Any) -> None:
    x = random.uniform(0, 1, (3, 3000)).astype(dtype)
    result = lab.run(reduce("add", (1,)), x, dtype(0), kind="reduction")
    want = x.astype(np.float64).sum(1)
    np.testing.assert_allclose(result.astype(np.float64), want, rtol=float(ml_dtypes.finfo(dtype).eps))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0,)], ids=str)
def test_reduce_empty_gives_init(lab: Any, shape: Any) -> None:
    result = lab.run(reduce("add", (0,)), np.zeros(shape, np.float32), np.float32(4), kind="reduction")
    np.testing.assert_array_equal(result, np.full(shape[1:], 4, np.float32))


def test_reduce_no_dimensions_combines_init(lab: Any) -> None:
    result = lab.run(reduce("add", ()), np.arange(70, dtype=np.float32), np.float32(4), kind="reduction")
    np.testing.assert_array_equal(result, np.arange(70) + 4)


def test_reduce_init_is_combined_once(lab: Any) -> None:
    x = np.ones((3, 400000), np.float32)
    np.testing.assert_array_equal(lab.run(reduce("add", (1,)), x, np.float32(1000)), np.full(3, 401000))
    np.testing.assert_array_equal(lab.run(reduce("multiply", (1,)), x, np.float32(2)), np.full(3, 2))


def test_reduce_sum_keeps_negative_zero(lab: Any) -> None:
    result = lab.run(reduce("add", (1,)), np.full((2, 100), -0.0, np.float32), np.float32(-0.0))
    assert np.signbit(result).all()


def test_reduce_large_sum_is_accurate(lab: Any, random: np.random.Generator) -> None:
    x = random.uniform(0, 1, 5_000_000).astype(np.float32)
    result = lab.run(reduce("add", (0,)), x, np.float32(0))
    assert abs(float(result) / x.sum(dtype=np.float64) - 1) < 1e-6
    columns = lab.run(reduce("add", (0,)), x.reshape(-1, 5), np.float32(0))
    np.testing.assert_allclose(columns, x.reshape(-1, 5).sum(0, dtype=np.float64), rtol=1e-6)


def test_reduce_order_does_not_depend_on_what_is_fused(lab: Any, random: np.random.Generator) -> None:
    x = random.standard_normal((5, 3001)).astype(np.float32)

    def fused(b: Any, x: Any, init: Any) -> Any:
        value = b.exponential(b.tanh(b.sine(b.log(b.abs(x)))))
        return b.reduce([value], [init], b.combiner("add", "f32"), dimensions=(1,))

    stored = lab.run(lambda b, x: b.exponential(b.tanh(b.sine(b.log(b.abs(x))))), x)
    assert lab.run(fused, x, np.float32(0)).tobytes() == lab.run(reduce("add", (1,)), stored, np.float32(0)).tobytes()


def test_reduce_fused_producers_and_several_roots(lab: Any, random: np.random.Generator) -> None:
    x = random.standard_normal((17, 130)).astype(np.float32)

    def build(b: Any, x: Any, init: Any) -> Any:
        square = b.multiply(x, x)
        total = b.reduce([x], [init], b.combiner("add", "f32"), dimensions=(1,))
        squares = b.reduce([square], [init], b.combiner("add", "f32"), dimensions=(1,))
        return total, squares, b.negate(square)

    total, squares, negative = lab.run(build, x, np.float32(0), kind="reduction")
    np.testing.assert_allclose(total, x.sum(1), atol=1e-4)
    np.testing.assert_allclose(squares, (x * x).sum(1), rtol=1e-5)
    np.testing.assert_array_equal(negative, -(x * x))


@pytest.mark.parametrize("shape", [(3, 5), (40, 700), (2, 150000)], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int32], ids=lambda d: np.dtype(d).name)
def test_reduce_argmax(lab: Any, random: np.random.Generator, shape: Any, axis: int, dtype: Any) -> None:
    x = (random.standard_normal(shape) * 20).astype(dtype)
    if dtype == np.float32:
        x.reshape(-1)[random.integers(0, x.size, 3)] = np.nan
    element = "f32" if dtype == np.float32 else "i32"

    def combine(b: Any, a: Any, i: Any, c: Any, j: Any) -> Any:
        better = b.compare(a, c, "GT")
        if element == "f32":
            better = b.or_(better, b.compare(a, a, "NE"))
        first = b.or_(better, b.and_(b.compare(a, c, "EQ"), b.compare(i, j, "LT")))
        return b.select(better, a, c), b.select(first, i, j)

    def build(b: Any, x: Any, value: Any, index: Any) -> Any:
        scalars = [tensor((), element), tensor((), "i32")] * 2
        region = b.region(scalars, combine)
        return b.reduce([x, b.iota(tensor(shape, "i32"), axis)], [value, index], region, dimensions=(axis,))

    low = dtype(-np.inf) if dtype == np.float32 else np.iinfo(dtype).min
    value, index = lab.run(build, x, np.array(low, dtype), np.int32(0), kind="reduction")
    np.testing.assert_array_equal(index, x.argmax(axis))
    np.testing.assert_array_equal(value, x.max(axis))


def test_reduce_unknown_region_runs_in_order(lab: Any) -> None:
    x = np.arange(1, 301, dtype=np.float32).reshape(3, 100) / 64
    scalar = tensor((), "f32")

    def build(b: Any, x: Any, init: Any) -> Any:
        region = b.region([scalar, scalar], lambda b, a, c: b.add(b.multiply(a, b.constant(0.5, scalar)), c))
        return b.reduce([x], [init], region, dimensions=(1,))

    want = np.full(3, 2, np.float32)
    for column in x.T:
        want = want * np.float32(0.5) + column
    np.testing.assert_array_equal(lab.run(build, x, np.float32(2)), want)
    transposed = lab.run(lambda b, x, i: build(b, b.transpose(x, (1, 0)), i), x.T.copy(), np.float32(2))
    np.testing.assert_array_equal(transposed, want)


def test_reduce_promotes_inputs(lab: Any, random: np.random.Generator) -> None:
    x = random.integers(-128, 127, (5, 300), np.int8)

    def build(b: Any, x: Any, init: Any) -> Any:
        return b.reduce([x], [init], b.combiner("add", "i32"), dimensions=(1,))

    np.testing.assert_array_equal(lab.run(build, x, np.int8(1)), x.sum(1, dtype=np.int32) + 1)
