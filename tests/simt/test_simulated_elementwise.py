"""Element-by-element kernels on the simulator: against NumPy, and bit for bit against the CPU back end."""

from __future__ import annotations

from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest

from .fusions import simulated
from .simulated import Array, run_text

SHAPES = [(1,), (7,), (32,), (100, 3), (5, 64), (3, 129), (1000003,), (257, 4096), (2, 3, 4, 5), ()]
DTYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "i8": np.int8,
    "ui16": np.uint16,
    "i32": np.int32,
    "i64": np.int64,
}


def kind(shape: tuple[int, ...], dtype: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{dtype}>"


def values(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    drawn = np.random.default_rng(seed).normal(0, 20, shape)
    if dtype.startswith("ui"):
        drawn = np.abs(drawn)
    return np.asarray(drawn).astype(DTYPES[dtype])


def multiply_add(shape: tuple[int, ...], dtype: str) -> str:
    type = kind(shape, dtype)
    return f"""
    func.func @main(%x: {type}, %y: {type}) -> {type} {{
      %0 = stablehlo.multiply %x, %y : {type}
      %1 = stablehlo.add %0, %x : {type}
      return %1 : {type}
    }}"""


def bits(array: Array) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_and_sums(shape: tuple[int, ...], dtype: str) -> None:
    text, x, y = multiply_add(shape, dtype), values(shape, dtype, 1), values(shape, dtype, 2)
    (found,) = run_text(text, x, y)
    if dtype not in ("f16", "bf16", "f8E4M3FN"):
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(found, x * y + x)
    assert bits(found) == bits(hlojit.compile(text)(x, y))


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("op", ["exponential", "tanh", "sine", "log_plus_one", "cbrt", "power"])
def test_functions(op: str, dtype: str) -> None:
    type = kind((3001,), dtype)
    operands = "%x, %y" if op == "power" else "%x"
    text = f"""
    func.func @main(%x: {type}, %y: {type}) -> {type} {{
      %0 = stablehlo.{op} {operands} : {type}
      %1 = stablehlo.subtract %0, %y : {type}
      return %1 : {type}
    }}"""
    x, y = np.abs(values((3001,), dtype, 3)), values((3001,), dtype, 4)
    x[:4] = [0, np.inf, np.nan, 1e30 if dtype != "f16" else 1e4]
    (found,) = run_text(text, x, y)
    assert bits(found) == bits(hlojit.compile(text)(x, y))


def test_broadcast_slice_reverse_and_pad_are_read_where_they_lie() -> None:
    text = """
    func.func @main(%x: tensor<40x50xf32>, %y: tensor<30xf32>, %z: tensor<f32>) -> tensor<20x33xf32> {
      %0 = stablehlo.slice %x [3:23, 7:40] : (tensor<40x50xf32>) -> tensor<20x33xf32>
      %1 = stablehlo.reverse %0, dims = [1] : tensor<20x33xf32>
      %2 = stablehlo.pad %y, %z, low = [1], high = [2], interior = [0] : (tensor<30xf32>, tensor<f32>) -> tensor<33xf32>
      %3 = stablehlo.broadcast_in_dim %2, dims = [1] : (tensor<33xf32>) -> tensor<20x33xf32>
      %4 = stablehlo.add %1, %3 : tensor<20x33xf32>
      return %4 : tensor<20x33xf32>
    }"""
    x = values((40, 50), "f32", 5)
    y, z = values((30,), "f32", 6), np.float32(3)
    (found,) = run_text(text, x, y, np.asarray(z))
    padded = np.concatenate([[z], y, [z, z]]).astype(np.float32)
    np.testing.assert_array_equal(found, x[3:23, 7:40][:, ::-1] + padded)


def test_booleans_and_several_results() -> None:
    text = """
    func.func @main(%x: tensor<999xf32>, %y: tensor<999xf32>) -> (tensor<999xi1>, tensor<999xi32>) {
      %0 = stablehlo.compare LT, %x, %y : (tensor<999xf32>, tensor<999xf32>) -> tensor<999xi1>
      %1 = stablehlo.convert %0 : (tensor<999xi1>) -> tensor<999xi32>
      return %0, %1 : tensor<999xi1>, tensor<999xi32>
    }"""
    x, y = values((999,), "f32", 7), values((999,), "f32", 8)
    smaller, number = run_text(text, x, y)
    np.testing.assert_array_equal(smaller, x < y)
    np.testing.assert_array_equal(number, (x < y).astype(np.int32))


def test_a_transposing_read_through_shared_memory() -> None:
    text = """
    func.func @main(%x: tensor<1000x333xf32>, %y: tensor<333x1000xf32>) -> tensor<333x1000xf32> {
      %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<1000x333xf32>) -> tensor<333x1000xf32>
      %1 = stablehlo.add %0, %y : tensor<333x1000xf32>
      return %1 : tensor<333x1000xf32>
    }"""
    x, y = values((1000, 333), "f32", 9), values((333, 1000), "f32", 10)
    (found,) = run_text(text, x, y)
    np.testing.assert_array_equal(found, x.T + y)


@pytest.mark.parametrize("shape", [(300, 1001), (3000, 33), (70, 5003), (4000, 7)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16, np.int8])
def test_what_odd_rows_share(shape: tuple[int, int], dtype: Any) -> None:
    """Pieces lie across the ends of rows; what all rows, or all columns, share is read beside them."""
    random = np.random.default_rng(7)
    x, row, column = ((random.standard_normal(each) * 9).astype(dtype) for each in (shape, shape[1:], shape[:1]))

    def build(b: Any, x: Any, row: Any, column: Any) -> Any:
        total = b.add(x, b.broadcast_in_dim(row, shape, (1,)))
        return b.multiply(total, b.broadcast_in_dim(column, shape, (0,)))

    want = (x + row) * column[:, None]
    assert simulated(build, x, row, column).tobytes() == want.astype(dtype).tobytes()
