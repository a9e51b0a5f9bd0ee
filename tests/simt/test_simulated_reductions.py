"""Reductions of threads on the simulator: against NumPy, and bit for bit against the CPU where order does not matter."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hlojit.ir.types import tensor

from .fusions import on_cpu, reduction, simulated

UFUNCS = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
CASES = [
    (shape, axes)
    for shape in [
        (1,),
        (5,),
        (300,),
        (1, 1),
        (3, 70),
        (70, 3),
        (1, 400),
        (400, 1),
        (2, 3, 70),
        (33, 5, 64),
        (3, 1, 4, 5),
    ]
    for n in range(len(shape) + 1)
    for axes in itertools.combinations(range(len(shape)), n)
]


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)
def test_all_dimensions(random: np.random.Generator, shape: Any, axes: Any) -> None:
    x = random.integers(-1000, 1000, shape, np.int32)
    total = simulated(reduction(axes), x, np.int32(3))
    np.testing.assert_array_equal(total, x.sum(axes, dtype=np.int32) + 3)


EXTENTS = [
    (1, 2, 3, 4, 5, 7, 8, 9),
    (15, 16, 17, 31, 32, 33, 63, 64, 65, 70),
    pytest.param(range(1, 71), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("extents", EXTENTS, ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_short_extents(random: np.random.Generator, extents: range, axis: int) -> None:
    for extent in extents:
        x = random.standard_normal((3, extent) if axis else (extent, 3)).astype(np.float32)
        np.testing.assert_array_equal(simulated(reduction((axis,), "maximum"), x, np.float32(-9)), x.max(axis))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_the_only_row_may_leave_more_elements_behind_its_pieces_than_there_are_pieces(
    random: np.random.Generator, dtype: Any
) -> None:
    for extent in (6, 7, 17, 22, 31, 46, 63):
        x = random.integers(-9, 9, extent, dtype)
        np.testing.assert_array_equal(simulated(reduction((0,)), x, dtype(3)), x.sum(dtype=dtype) + dtype(3))


@pytest.mark.parametrize("extent", [127, 128, 1000, 4096, 50257, 100003])
@pytest.mark.parametrize("rows", [1, 2, 7, 1000])
@pytest.mark.parametrize("axis", [0, 1])
def test_long_extents(random: np.random.Generator, extent: int, rows: int, axis: int) -> None:
    if extent * rows > 1 << 22:
        pytest.skip("seconds on the simulator")
    x = random.uniform(-1, 1, (rows, extent) if axis else (extent, rows)).astype(np.float32)
    wide = x.astype(np.float64)
    found = simulated(reduction((axis,)), x, np.float32(0.5))
    assert (np.abs(found - (wide.sum(axis) + 0.5)) <= 1e-6 * np.abs(wide).sum(axis) + 1e-6).all()


@pytest.mark.parametrize("name", UFUNCS)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64])
def test_integers(random: np.random.Generator, name: str, axes: Any, dtype: Any) -> None:
    info = np.iinfo(dtype)
    x = random.integers(info.min, info.max, (37, 96), dtype, endpoint=True)
    ufunc, init = UFUNCS[name], dtype(5)
    with np.errstate(all="ignore"):
        want = ufunc(ufunc.reduce(x, axis=axes, dtype=dtype), init)
    np.testing.assert_array_equal(simulated(reduction(axes, name), x, init), want)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
def test_booleans(random: np.random.Generator, axes: Any) -> None:
    x = random.integers(0, 50, (41, 300)) == 0
    np.testing.assert_array_equal(simulated(reduction(axes, "or"), x, np.False_), x.any(axes))
    np.testing.assert_array_equal(simulated(reduction(axes, "and"), ~x, np.True_), (~x).all(axes))


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
def test_integers_of_four_bits(random: np.random.Generator, axes: Any) -> None:
    x = random.integers(0, 16, (9, 64)).astype(ml_dtypes.uint4)
    total = simulated(reduction(axes), x, np.zeros((), ml_dtypes.uint4))
    np.testing.assert_array_equal(total.astype(int), x.astype(int).sum(axes) % 16)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("axis", [0, 1])
def test_extrema_of_special_values(dtype: Any, name: str, axis: int) -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], dtype)
    signed = np.copysign(np.array(np.nan, np.float32), np.float32(-1)).astype(dtype)
    x = np.array(list(itertools.product([*values, signed], repeat=3)), dtype)
    x = np.concatenate([x, x[:, :1]], 1) if axis else x.T.copy()
    init = np.array(-np.inf if name == "maximum" else np.inf, dtype)
    found = simulated(reduction((axis,), name), x, init).astype(np.float64)
    want = on_cpu(reduction((axis,), name), x, init).astype(np.float64)
    np.testing.assert_array_equal(found, want)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(found)[number], np.signbit(want)[number])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("axis", [0, 1])
def test_narrow_floats_accumulate_wide(random: np.random.Generator, dtype: Any, axis: int) -> None:
    x = (random.uniform(0, 1, (3, 3000) if axis else (3000, 3)) / 16).astype(dtype)
    found = simulated(reduction((axis,)), x, np.zeros((), dtype)).astype(np.float64)
    np.testing.assert_allclose(found, x.astype(np.float64).sum(axis), rtol=float(ml_dtypes.finfo(dtype).eps))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0,), (0, 1000)], ids=str)
def test_nothing_to_reduce_gives_the_init_value(shape: Any) -> None:
    found = simulated(reduction((0,)), np.zeros(shape, np.float32), np.float32(4))
    np.testing.assert_array_equal(found, np.full(shape[1:], 4, np.float32))


def test_the_init_value_is_combined_once() -> None:
    x = np.ones((3, 400000), np.float32)
    np.testing.assert_array_equal(simulated(reduction((1,)), x, np.float32(1000)), np.full(3, 401000))
    np.testing.assert_array_equal(simulated(reduction((1,), "multiply"), x, np.float32(2)), np.full(3, 2))
    np.testing.assert_array_equal(simulated(reduction((0,)), x.T.copy(), np.float32(1000)), np.full(3, 401000))


@pytest.mark.parametrize("axis", [0, 1])
def test_sums_keep_negative_zero(axis: int) -> None:
    x = np.full((2, 100) if axis else (100, 2), -0.0, np.float32)
    assert np.signbit(simulated(reduction((axis,)), x, np.float32(-0.0))).all()


def test_large_sums_are_accurate_and_the_same_every_time(random: np.random.Generator) -> None:
    x = random.uniform(0, 1, 3_000_017).astype(np.float32)
    found = simulated(reduction((0,)), x, np.float32(0))
    assert abs(float(found) / x.sum(dtype=np.float64) - 1) < 1e-6
    assert found.tobytes() == simulated(reduction((0,)), x, np.float32(0)).tobytes()
    columns = simulated(reduction((0,)), x[:-2].reshape(-1, 3), np.float32(0))
    np.testing.assert_allclose(columns, x[:-2].reshape(-1, 3).sum(0, dtype=np.float64), rtol=1e-6)


def argmax(shape: Any, element: str, axis: int) -> Any:
    """The largest element and its index, as JAX prints it."""

    def combine(b: Any, a: Any, i: Any, c: Any, j: Any) -> Any:
        better = b.compare(a, c, "GT")
        if element == "f32":
            better = b.or_(better, b.compare(a, a, "NE"))
        first = b.or_(better, b.and_(b.compare(a, c, "EQ"), b.compare(i, j, "LT")))
        return b.select(better, a, c), b.select(first, i, j)

    def build(b: Any, x: Any, value: Any, index: Any) -> Any:
        region = b.region([tensor((), element), tensor((), "i32")] * 2, combine)
        return b.reduce([x, b.iota(tensor(shape, "i32"), axis)], [value, index], region, dimensions=(axis,))

    return build


@pytest.mark.parametrize("shape", [(3, 5), (40, 700), (2, 150000)], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_argmax(random: np.random.Generator, shape: Any, axis: int, dtype: Any) -> None:
    x = (random.standard_normal(shape) * 20).astype(dtype)
    if dtype == np.float32:
        x.reshape(-1)[random.integers(0, x.size, 3)] = np.nan
    low = dtype(-np.inf) if dtype == np.float32 else np.iinfo(dtype).min
    build = argmax(shape, "f32" if dtype == np.float32 else "i32", axis)
    value, index = simulated(build, x, np.array(low, dtype), np.int32(0))
    np.testing.assert_array_equal(index, x.argmax(axis))
    np.testing.assert_array_equal(value, x.max(axis))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("results", [3, 300])
def test_unknown_regions_run_in_order(axis: int, results: int) -> None:
    x = (np.arange(1, 100 * results + 1, dtype=np.float32) / 64).reshape((results, 100) if axis else (100, results))
    scalar = tensor((), "f32")

    def build(b: Any, x: Any, init: Any) -> Any:
        region = b.region([scalar, scalar], lambda b, a, c: b.add(b.multiply(a, b.constant(0.5, scalar)), c))
        return b.reduce([x], [init], region, dimensions=(axis,))

    want = np.full(results, 2, np.float32)
    for line in x.T if axis else x:
        want = want * np.float32(0.5) + line
    np.testing.assert_array_equal(simulated(build, x, np.float32(2)), want)


def test_operands_across_the_grain(random: np.random.Generator) -> None:
    x = random.integers(-9, 9, (5, 70, 33), np.int32)

    def build(b: Any, x: Any, init: Any) -> Any:
        return b.reduce([b.transpose(x, (2, 0, 1))], [init], b.combiner("add", "i32"), dimensions=(1,))

    np.testing.assert_array_equal(simulated(build, x, np.int32(0)), x.transpose(2, 0, 1).sum(1))

    def back(b: Any, x: Any, init: Any) -> Any:
        turned = b.transpose(x, (2, 0, 1))
        total = b.reduce([turned], [init], b.combiner("add", "i32"), dimensions=(0,))
        return total, b.reduce([b.negate(turned)], [init], b.combiner("xor", "i32"), dimensions=(0,))

    total, mixed = simulated(back, x, np.int32(5))
    np.testing.assert_array_equal(total, x.sum(2) + 5)
    np.testing.assert_array_equal(mixed, np.bitwise_xor.reduce(-x, axis=2) ^ 5)

    def reshaped(b: Any, x: Any, init: Any) -> Any:
        return b.reduce([b.reshape(x, (70, 165))], [init], b.combiner("add", "i32"), dimensions=(0,))

    np.testing.assert_array_equal(simulated(reshaped, x, np.int32(0)), x.reshape(70, 165).sum(0))


def test_unknown_regions_keep_their_order_across_the_grain() -> None:
    x = (np.arange(1, 2101, dtype=np.float32) / 64).reshape(100, 3, 7)
    scalar = tensor((), "f32")

    def build(b: Any, x: Any, init: Any) -> Any:
        region = b.region([scalar, scalar], lambda b, a, c: b.add(b.multiply(a, b.constant(0.5, scalar)), c))
        return b.reduce([b.transpose(x, (1, 2, 0))], [init], region, dimensions=(1, 2))

    want = np.full(3, 2, np.float32)
    for value in x.transpose(1, 2, 0).reshape(3, -1).T:
        want = want * np.float32(0.5) + value
    np.testing.assert_array_equal(simulated(build, x, np.float32(2)), want)


@pytest.mark.parametrize("shape", [(17, 130), (130, 17), (1, 5000)], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_several_reductions_and_what_is_stored_on_the_way(random: np.random.Generator, shape: Any, axis: int) -> None:
    x = random.standard_normal(shape).astype(np.float32)

    def build(b: Any, x: Any, init: Any) -> Any:
        square = b.multiply(x, x)
        total = b.reduce([x], [init], b.combiner("add", "f32"), dimensions=(axis,))
        largest = b.reduce([square], [init], b.combiner("maximum", "f32"), dimensions=(axis,))
        return total, largest, b.negate(square)

    total, largest, negative = simulated(build, x, np.float32(0))
    np.testing.assert_allclose(total, x.sum(axis, dtype=np.float64), rtol=1e-6, atol=1e-4)
    np.testing.assert_array_equal(largest, (x * x).max(axis))
    np.testing.assert_array_equal(negative, -(x * x))


def test_what_belongs_to_a_row_is_read_beside_it(random: np.random.Generator) -> None:
    x, y = random.integers(-9, 9, (37, 50), np.int32), random.integers(-9, 9, (37,), np.int32)

    def build(b: Any, x: Any, y: Any, init: Any) -> Any:
        product = b.multiply(x, b.broadcast_in_dim(y, (37, 50), (0,)))
        return b.reduce([product], [init], b.combiner("add", "i32"), dimensions=(1,))

    np.testing.assert_array_equal(simulated(build, x, y, np.int32(1)), (x * y[:, None]).sum(1) + 1)


@pytest.mark.parametrize("warp", [8, 16, 64])
@pytest.mark.parametrize("shape", [(1, 3000), (5, 70), (2, 100000), (700, 3)], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_warps_of_other_machines(random: np.random.Generator, warp: int, shape: Any, axis: int) -> None:
    x = random.integers(-1000, 1000, shape, np.int64)
    found = simulated(reduction((axis,)), x, np.int64(3), warp=warp)
    np.testing.assert_array_equal(found, x.sum(axis) + 3)


def test_inputs_are_promoted(random: np.random.Generator) -> None:
    x = random.integers(-128, 127, (5, 300), np.int8)

    def build(b: Any, x: Any, init: Any) -> Any:
        return b.reduce([x], [init], b.combiner("add", "i32"), dimensions=(1,))

    np.testing.assert_array_equal(simulated(build, x, np.int8(1)), x.sum(1, dtype=np.int32) + 1)
