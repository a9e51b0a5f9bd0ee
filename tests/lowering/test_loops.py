"""Loop kernels against NumPy: shapes, element types, broadcasting, movement, tails, bounds."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

SHAPES = [
    (),
    (1,),
    (7,),
    (16,),
    (64,),
    (65,),
    (1000,),
    (3, 5),
    (64, 64),
    (5, 1, 33),
    (2, 3, 4, 5),
    (40000,),
    (0,),
    (3, 0, 2),
]
FLOATS = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def numbers(random: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    return (random.standard_normal(shape) * 10).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_loop_multiply_add_every_shape(lab: Any, random: np.random.Generator, shape: tuple[int, ...]) -> None:
    x, y, z = (numbers(random, shape, np.float32) for _ in range(3))
    result = lab.run(lambda b, x, y, z: b.add(b.multiply(x, y), z), x, y, z)
    np.testing.assert_array_equal(result, x * y + z)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=lambda d: np.dtype(d).name)
def test_loop_multiply_add_every_type(lab: Any, random: np.random.Generator, dtype: Any) -> None:
    x, y, z = (numbers(random, (9, 29), dtype) for _ in range(3))
    result = lab.run(lambda b, x, y, z: b.add(b.multiply(x, y), z), x, y, z)
    with np.errstate(all="ignore"):
        assert result.tobytes() == np.add(np.multiply(x, y), z).astype(dtype).tobytes()


def test_loop_booleans(lab: Any, random: np.random.Generator) -> None:
    x, y = (random.integers(0, 2, 131).astype(bool) for _ in range(2))
    result = lab.run(lambda b, x, y: b.xor(b.not_(x), b.and_(x, y)), x, y)
    np.testing.assert_array_equal(result, ~x ^ (x & y))


def test_loop_mixed_widths(lab: Any, random: np.random.Generator) -> None:
    x, y = numbers(random, 77, np.int8), numbers(random, 77, np.float64)
    result = lab.run(
        lambda b, x, y: b.select(b.compare(b.convert(x, "f64"), y, "LT"), b.convert(y, "f32"), b.convert(x, "f32")),
        x,
        y,
    )
    np.testing.assert_array_equal(result, np.where(x < y, y.astype(np.float32), x.astype(np.float32)))


@pytest.mark.parametrize("dimensions", [(), (0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("shape", [(5, 6, 7), (2, 3, 70), (70, 2, 1)], ids=str)
def test_loop_broadcast_every_position(
    lab: Any, random: np.random.Generator, shape: tuple[int, ...], dimensions: tuple[int, ...]
) -> None:
    x = numbers(random, shape, np.float32)
    y = numbers(random, tuple(shape[d] for d in dimensions), np.float32)
    result = lab.run(lambda b, x, y: b.subtract(x, b.broadcast_in_dim(y, shape, dimensions)), x, y)
    wide = y.reshape([shape[d] if d in dimensions else 1 for d in range(3)])
    np.testing.assert_array_equal(result, x - wide)


@pytest.mark.parametrize("permutation", [(1, 0, 2), (0, 2, 1), (2, 1, 0), (2, 0, 1), (1, 2, 0)], ids=str)
@pytest.mark.parametrize("shape", [(5, 6, 7), (17, 33, 65), (64, 2, 128)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float64], ids=lambda d: np.dtype(d).name)
def test_loop_transpose(
    lab: Any, random: np.random.Generator, shape: tuple[int, ...], permutation: tuple[int, ...], dtype: Any
) -> None:
    x = numbers(random, shape, dtype)
    result = lab.run(lambda b, x: b.add(t := b.transpose(x, permutation), t), x)
    np.testing.assert_array_equal(result, x.transpose(permutation) * dtype(2))


@pytest.mark.parametrize(
    ("source", "target", "permutation"),
    [
        ((8, 16), (128,), (0,)),
        ((12, 64), (12, 4, 16), (1, 0, 2)),
        ((6, 35), (5, 42), (0, 1)),
        ((4, 6, 8), (24, 8), (1, 0)),
        ((1, 30), (30, 1), (0, 1)),
        ((60,), (3, 4, 5), (2, 0, 1)),
        ((), (1, 1), (0, 1)),
    ],
    ids=str,
)
def test_loop_reshape_and_transpose(
    lab: Any, random: np.random.Generator, source: Any, target: Any, permutation: Any
) -> None:
    x = numbers(random, source, np.float32)
    result = lab.run(lambda b, x: b.negate(b.transpose(b.reshape(x, target), permutation)), x)
    np.testing.assert_array_equal(result, -x.reshape(target).transpose(permutation))


@pytest.mark.parametrize(
    ("low", "high", "interior"),
    [
        ((0, 2), (0, 3), (0, 0)),
        ((1, 0), (2, 0), (0, 0)),
        ((3, 70), (1, 5), (0, 0)),
        ((-1, -2), (-1, 4), (0, 0)),
        ((0, 1), (0, 2), (0, 1)),
        ((2, -3), (0, -2), (1, 2)),
    ],
    ids=str,
)
def test_loop_pad(lab: Any, random: np.random.Generator, low: Any, high: Any, interior: Any) -> None:
    x, value = numbers(random, (6, 37), np.float32), np.float32(7.5)
    result = lab.run(lambda b, x, v: b.pad(b.negate(x), v, low, high, interior), x, value)
    wide = np.full([n + (n - 1) * i for n, i in zip(x.shape, interior)], value)
    wide[tuple(slice(None, None, i + 1) for i in interior)] = -x
    padded = np.pad(wide, [(max(a, 0), max(z, 0)) for a, z in zip(low, high)], constant_values=value)
    cut = tuple(slice(max(-a, 0), n - max(-z, 0)) for n, a, z in zip(padded.shape, low, high))
    np.testing.assert_array_equal(result, padded[cut])


@pytest.mark.parametrize("dimension", [0, 1])
def test_loop_concatenate(lab: Any, random: np.random.Generator, dimension: int) -> None:
    extents = (3, 1, 70, 20)
    shapes = [(n, 19) if dimension == 0 else (19, n) for n in extents]
    arrays = [numbers(random, shape, np.float32) for shape in shapes]
    result = lab.run(lambda b, *xs: b.negate(b.concatenate(list(xs), dimension)), *arrays)
    np.testing.assert_array_equal(result, -np.concatenate(arrays, dimension))


def test_loop_slice_strided_and_reversed(lab: Any, random: np.random.Generator) -> None:
    x = numbers(random, (9, 200), np.float32)
    result = lab.run(lambda b, x: b.reverse(b.slice(x, (1, 3), (8, 190), (2, 3)), (0, 1)), x)
    np.testing.assert_array_equal(result, x[1:8:2, 3:190:3][::-1, ::-1])
    result = lab.run(lambda b, x: b.reverse(b.slice(x, (1, 3), (8, 190), (1, 1)), (1,)), x)
    np.testing.assert_array_equal(result, x[1:8, 3:190][:, ::-1])


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.uint8, np.int64], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("dimension", [0, 1])
def test_loop_iota(lab: Any, dtype: Any, dimension: int) -> None:
    from hlojit.ir.formats import element_type_of
    from hlojit.ir.types import tensor

    type = tensor((6, 70), element_type_of(np.dtype(dtype)))
    result = lab.run(lambda b, x: b.add(x, b.iota(type, dimension)), np.zeros((6, 70), dtype))
    np.testing.assert_array_equal(
        result, np.broadcast_to(np.arange(6)[:, None] if dimension == 0 else np.arange(70), (6, 70)).astype(dtype)
    )


@pytest.mark.parametrize("start", [(0, 0), (3, 40), (-5, 1000), (2**31 - 1, -(2**31))], ids=str)
def test_loop_dynamic_slice_clamps(lab: Any, random: np.random.Generator, start: tuple[int, int]) -> None:
    x = numbers(random, (9, 100), np.float32)
    result = lab.run(
        lambda b, x, i, j: b.negate(b.dynamic_slice(x, [i, j], (4, 70))), x, np.int32(start[0]), np.int32(start[1])
    )
    i, j = min(max(start[0], 0), 5), min(max(start[1], 0), 30)
    np.testing.assert_array_equal(result, -x[i : i + 4, j : j + 70])


def test_loop_dynamic_slice_unsigned_start(lab: Any, random: np.random.Generator) -> None:
    x = numbers(random, (100,), np.float32)
    result = lab.run(lambda b, x, i: b.dynamic_slice(x, [i], (70,)), x, np.uint64(2**64 - 1))
    np.testing.assert_array_equal(result, x[30:])


def test_loop_several_roots(lab: Any, random: np.random.Generator) -> None:
    x = numbers(random, (33, 7), np.float32)
    first, second = lab.run(lambda b, x: (b.negate(x), b.convert(b.multiply(x, x), "f64")), x)
    np.testing.assert_array_equal(first, -x)
    np.testing.assert_array_equal(second, (x * x).astype(np.float64))


def test_loop_scalar_operands_of_clamp(lab: Any, random: np.random.Generator) -> None:
    x = numbers(random, (5, 66), np.float32)
    result = lab.run(lambda b, lo, x, hi: b.clamp(lo, x, hi), np.float32(-3), x, np.float32(4))
    np.testing.assert_array_equal(result, np.clip(x, -3, 4))


def test_loop_constants(lab: Any) -> None:
    table = np.arange(24, dtype=np.float32).reshape(4, 6)
    result = lab.run(lambda b, x: b.add(b.transpose(b.constant(table), (1, 0)), x), np.ones((6, 4), np.float32))
    np.testing.assert_array_equal(result, table.T + 1)


def test_loop_deep_chain(lab: Any, random: np.random.Generator) -> None:
    def build(b: Any, x: Any) -> Any:
        for _ in range(3000):
            x = b.negate(x)
        return x

    x = numbers(random, (20,), np.float32)
    np.testing.assert_array_equal(lab.run(build, x), x)


def test_loop_diamond_chain_is_not_exponential(lab: Any) -> None:
    def build(b: Any, x: Any) -> Any:
        for _ in range(60):
            x = b.multiply(b.add(x, x), b.constant(0.5, x.type))
        return x

    x = np.arange(20, dtype=np.float32)
    np.testing.assert_array_equal(lab.run(build, x), x)


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn], ids=lambda d: np.dtype(d).name
)
def test_loop_narrow_floats_round_every_step(lab: Any, random: np.random.Generator, dtype: Any) -> None:
    x, y = ((random.standard_normal(211)).astype(dtype) for _ in range(2))
    result = lab.run(lambda b, x, y: b.multiply(b.add(x, y), b.subtract(x, y)), x, y)
    wide = np.float32
    total, difference = (x.astype(wide) + y.astype(wide)).astype(dtype), (x.astype(wide) - y.astype(wide)).astype(dtype)
    assert result.tobytes() == (total.astype(wide) * difference.astype(wide)).astype(dtype).tobytes()
