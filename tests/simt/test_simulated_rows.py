"""Row kernels of threads on the simulator, against NumPy: rows in registers, in shared memory, and in neither."""

from __future__ import annotations

from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.types import tensor

from .fusions import layer_norm, on_cpu, reduction, simulated, softmax

SHAPES = [(256, 64), (3, 5), (7, 1), (1000, 3), (4, 3, 65), (1, 64), (1, 1), (70, 129), (5,), (2, 9000), (3, 1001)]
LONG = [(2, 40000), (2, 50257), (1, 100003), (3, 65536)]


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)


def reference_softmax(x: Any) -> Any:
    wide = x.astype(np.float64)
    power = np.exp(wide - wide.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


@pytest.mark.parametrize("shape", SHAPES + LONG, ids=str)
def test_softmax(random: np.random.Generator, shape: tuple[int, ...]) -> None:
    x = (random.standard_normal(shape) * 3).astype(np.float32)
    np.testing.assert_allclose(simulated(softmax, x), reference_softmax(x), rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("extent", [100, 1024, 40000])
def test_softmax_of_other_types(random: np.random.Generator, dtype: Any, extent: int) -> None:
    x = random.standard_normal((5, extent)).astype(dtype)
    eps = float(ml_dtypes.finfo(dtype).eps)
    smallest = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    np.testing.assert_allclose(simulated(softmax, x).astype(float), reference_softmax(x), rtol=8 * eps, atol=smallest)


@pytest.mark.parametrize("shape", [(9, 1001), (5, 257), (130, 515), (3, 9001), (3, 50257), (3, 30002)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_where_a_row_begins_does_not_show(random: np.random.Generator, shape: tuple[int, int], dtype: Any) -> None:
    """Rows that are no whole pieces are cut at aligned addresses, and added in one order all the same."""
    rows = np.stack([random.standard_normal(shape[1]).astype(dtype)] * shape[0])
    zero = np.zeros((), dtype)
    for found in (simulated(softmax, rows), simulated(reduction((1,)), rows, zero)):
        assert len({row.tobytes() for row in found}) == 1
    eps = float(ml_dtypes.finfo(dtype).eps)
    want = rows.astype(np.float64).sum(1)
    np.testing.assert_allclose(found.astype(float), want, rtol=2 * eps, atol=1e-7 * shape[1])


@pytest.mark.parametrize("shape", [(2, 100_003), (3, 1_000_001)], ids=str)
def test_chunks_of_rows_that_are_no_whole_pieces(random: np.random.Generator, shape: tuple[int, int]) -> None:
    rows = np.stack([random.standard_normal(shape[1]).astype(np.float32)] * shape[0])
    found = simulated(reduction((1,)), rows, np.float32(1))
    assert len(set(found.tolist())) == 1
    np.testing.assert_allclose(found, 1 + rows.sum(1, dtype=np.float64), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.bool_])
def test_any_kind_of_odd_rows(random: np.random.Generator, dtype: Any) -> None:
    x = random.integers(0, 2 if dtype is np.bool_ else 100, (7, 1237)).astype(dtype)

    def build(b: Any, x: Any, y: Any, init: Any) -> Any:
        element = x.tensor_type.element_type
        largest = b.reduce([x], [init], b.combiner("maximum", element), dimensions=(1,))
        rest = b.xor(b.xor(x, b.broadcast_in_dim(largest, (7, 1237), (0,))), b.broadcast_in_dim(y, (7, 1237), (1,)))
        return rest, b.reduce([rest], [init], b.combiner("xor", element), dimensions=(1,))

    y, init = x[3], np.zeros((), dtype)
    rest, total = simulated(build, x, y, init)
    np.testing.assert_array_equal(rest, x ^ x.max(1)[:, None] ^ y)
    np.testing.assert_array_equal(total, np.bitwise_xor.reduce(rest, axis=1))


def test_slices_of_rows_and_an_index(random: np.random.Generator) -> None:
    """Operands that begin elsewhere between aligned addresses than the result, and numbers of columns."""
    x = random.standard_normal((6, 1031)).astype(np.float32)

    def build(b: Any, x: Any, init: Any) -> Any:
        part = b.slice(x, start_indices=(0, 2), limit_indices=(6, 1029), strides=(1, 1))
        other = b.slice(x, start_indices=(0, 3), limit_indices=(6, 1030), strides=(1, 1))
        number = b.iota(tensor((6, 1027), "f32"), dimension=1)
        largest = b.reduce([part], [init], b.combiner("maximum", "f32"), dimensions=(1,))
        return b.add(b.subtract(other, b.broadcast_in_dim(largest, (6, 1027), (0,))), number)

    want = x[:, 3:1030] - x[:, 2:1029].max(1, initial=0)[:, None] + np.arange(1027, dtype=np.float32)
    np.testing.assert_array_equal(simulated(build, x, np.float32(0)), want)


def test_softmax_of_special_values() -> None:
    x = np.array([[np.nan, 1, 2], [np.inf, 1, 2], [-np.inf, 0, 0], [-np.inf, -np.inf, -np.inf]], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(simulated(softmax, x), reference_softmax(x), rtol=1e-6)


@pytest.mark.parametrize("shape", [(5, 7), (64, 768), (3, 1000), (2, 30000), (2, 70001)], ids=str)
def test_layer_norm(random: np.random.Generator, shape: tuple[int, int]) -> None:
    x = random.standard_normal(shape).astype(np.float32)
    gain, bias = (random.standard_normal(shape[1]).astype(np.float32) for _ in range(2))
    wide = x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * gain + bias
    np.testing.assert_allclose(simulated(layer_norm, x, gain, bias), want, rtol=1e-4, atol=1e-5)


def test_rows_of_a_vocabulary_are_one_kernel() -> None:
    wide, rows = "tensor<2x50257xf32>", "tensor<2xf32>"
    text = f"""
    func.func @main(%x: {wide}) -> {wide} {{
      %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %0 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
        : ({wide}, tensor<f32>) -> {rows}
      %1 = stablehlo.broadcast_in_dim %0, dims = [0] : ({rows}) -> {wide}
      %2 = stablehlo.subtract %x, %1 : {wide}
      return %2 : {wide}
    }}"""
    counts = {}
    for name in ("cpu", "cuda"):
        main = lower(hlojit.parse(text), registry().backend(name), CompileOptions()).main
        counts[name] = sum(each.name in {"hlojit.fusion", "stablehlo.reduce"} for each in main.body)
    assert counts == {"cpu": 2, "cuda": 1}


def softmax_gradient(b: Any, y: Any, dy: Any) -> Any:
    """dx = y * (dy - sum(y * dy))"""
    shape = y.tensor_type.shape
    zero = b.constant(0.0, tensor((), "f32"))
    total = b.reduce([b.multiply(y, dy)], [zero], b.combiner("add", "f32"), dimensions=(1,))
    return b.multiply(y, b.subtract(dy, b.broadcast_in_dim(total, shape, (0,))))


def norm_gradient(b: Any, x: Any, dy: Any, gain: Any) -> Any:
    """Of a norm by the root of the mean square: g = dy * gain, dx = r * g - x * r^3 * mean(g * x); and r itself."""
    rows, columns = x.tensor_type.shape
    zero = b.constant(0.0, tensor((), "f32"))
    count = b.constant(float(columns), tensor((rows,), "f32"))

    def mean(value: Any) -> Any:
        return b.divide(b.reduce([value], [zero], b.combiner("add", "f32"), dimensions=(1,)), count)

    def wide(value: Any, dimension: int = 0) -> Any:
        return b.broadcast_in_dim(value, (rows, columns), (dimension,))

    scale = b.rsqrt(b.add(mean(b.multiply(x, x)), b.constant(1e-6, tensor((rows,), "f32"))))
    scaled = b.multiply(dy, wide(gain, 1))
    inner = mean(b.multiply(scaled, x))
    cube = b.multiply(b.multiply(scale, scale), b.multiply(scale, inner))
    return b.subtract(b.multiply(scaled, wide(scale)), b.multiply(x, wide(cube))), scale


@pytest.mark.parametrize("shape", [(9, 33), (17, 1024), (2, 30011)], ids=str)
def test_gradients(random: np.random.Generator, shape: tuple[int, int]) -> None:
    x, dy = (random.standard_normal(shape).astype(np.float32) for _ in range(2))
    gain = random.standard_normal(shape[1]).astype(np.float32)
    y = reference_softmax(x).astype(np.float32)
    wide_y, wide_x, g = y.astype(float), x.astype(float), dy.astype(float) * gain
    want = wide_y * (dy - (wide_y * dy).sum(1, keepdims=True))
    np.testing.assert_allclose(simulated(softmax_gradient, y, dy), want, rtol=1e-4, atol=1e-6)
    scale = 1 / np.sqrt((wide_x**2).mean(1, keepdims=True) + 1e-6)
    found, found_scale = simulated(norm_gradient, x, dy, gain)
    np.testing.assert_allclose(found_scale, scale[:, 0], rtol=1e-5)
    want = scale * g - wide_x * scale**3 * (g * wide_x).mean(1, keepdims=True)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(9, 77), (130, 6), (3, 2048)], ids=str)
def test_reductions_and_rows_are_stored(random: np.random.Generator, shape: tuple[int, int]) -> None:
    x = random.standard_normal(shape).astype(np.float32)

    def build(b: Any, x: Any, init: Any) -> Any:
        total = b.reduce([x], [init], b.combiner("add", "f32"), dimensions=(1,))
        largest = b.reduce([x], [init], b.combiner("maximum", "f32"), dimensions=(1,))
        return total, b.subtract(x, b.broadcast_in_dim(total, shape, (0,))), largest, b.negate(total)

    total, rest, largest, negative = simulated(build, x, np.float32(0))
    np.testing.assert_allclose(total, x.sum(1, dtype=np.float64), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(rest, x - total[:, None])
    np.testing.assert_array_equal(largest, x.max(1, initial=0))
    np.testing.assert_array_equal(negative, -total)


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.int64])
@pytest.mark.parametrize("shape", [(6, 300), (2, 20000)], ids=str)
def test_integers_are_those_of_the_cpu(random: np.random.Generator, dtype: Any, shape: tuple[int, int]) -> None:
    x = random.integers(-100, 100, shape).astype(dtype)

    def build(b: Any, x: Any, init: Any) -> Any:
        element = x.tensor_type.element_type
        total = b.reduce([x], [init], b.combiner("add", element), dimensions=(1,))
        rest = b.multiply(x, b.broadcast_in_dim(total, shape, (0,)))
        return rest, b.reduce([rest], [init], b.combiner("xor", element), dimensions=(1,))

    for found, want in zip(simulated(build, x, dtype(3)), on_cpu(build, x, dtype(3)), strict=True):
        np.testing.assert_array_equal(found, want)


def test_results_are_rounded_as_in_separate_kernels(random: np.random.Generator) -> None:
    x = random.standard_normal((6, 300)).astype(ml_dtypes.bfloat16)

    def total(b: Any, x: Any, init: Any) -> Any:
        return b.reduce([x], [init], b.combiner("add", "bf16"), dimensions=(1,))

    def build(b: Any, x: Any, init: Any) -> Any:
        return b.subtract(x, b.broadcast_in_dim(total(b, x, init), (6, 300), (0,)))

    init = np.zeros((), ml_dtypes.bfloat16)
    sums = simulated(total, x, init)
    want = (x.astype(np.float32) - sums.astype(np.float32)[:, None]).astype(ml_dtypes.bfloat16)
    assert simulated(build, x, init).tobytes() == want.tobytes()


def test_unknown_regions_run_in_order(random: np.random.Generator) -> None:
    x = random.integers(-9, 9, (300, 50), np.int32)
    scalar = tensor((), "i32")

    def build(b: Any, x: Any, init: Any) -> Any:
        region = b.region([scalar, scalar], lambda b, a, c: b.subtract(c, b.multiply(a, a)))
        found = b.reduce([x], [init], region, dimensions=(1,))
        return b.add(x, b.broadcast_in_dim(found, (300, 50), (0,)))

    want = np.full(300, 2, np.int32)
    with np.errstate(over="ignore"):
        for column in x.T:
            want = column - want * want
        np.testing.assert_array_equal(simulated(build, x, np.int32(2)), x + want[:, None])
