"""Windows and scans of threads on the simulator, against JAX and NumPy, and bit for bit against the CPU's integers."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hlojit.cuda.nvptx import H200
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Block
from hlojit.ir.types import tensor
from hlojit.lowering.grid_reduction_plan import scan_columns
from hlojit.simt.kernels import emit_kernel
from hlojit.simt.simulator.dialect import SimulatorDialect

from .simulated import TARGET, run_code

CASES: list[Any] = [
    ((10,), (3,), (1,), (1,), (1,), ((0, 0),)),
    ((17,), (3,), (2,), (1,), (1,), ((1, 1),)),
    ((9, 33), (3, 3), (1, 1), (1, 1), (1, 1), ((1, 1), (1, 1))),
    ((9, 33), (3, 3), (2, 2), (2, 1), (1, 2), ((1, 3), (0, 2))),
    ((9, 33), (2, 2), (1, 1), (1, 1), (1, 1), ((-1, 0), (2, -3))),
    ((2, 16, 16), (1, 5, 5), (1, 1, 1), (1, 1, 1), (1, 1, 1), ((0, 0), (2, 2), (2, 2))),
    ((3, 0), (1, 2), (1, 1), (1, 1), (1, 1), ((0, 0), (1, 1))),
]


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)


def run_window(x: Any, init: Any, element: str, name: str, *, constant: bool = False, **attributes: Any) -> Any:
    """One ``reduce_window``; a scan needs a constant init."""
    types = [tensor(x.shape, element), tensor((), element)]
    block = Block(types)
    b = Builder(block)
    start = b.constant(np.asarray(init).item(), types[1]) if constant else block.arguments[1]
    instruction = b.reduce_window([block.arguments[0]], [start], b.combiner(name, element), **attributes).producer
    code = emit_kernel(instruction, TARGET, SimulatorDialect(), "kernel")
    return run_code(code, [x, np.asarray(init)], [instruction.results[0].tensor_type])[0]


@pytest.mark.parametrize(("shape", "size", "stride", "base", "dilation", "padding"), CASES, ids=str)
@pytest.mark.parametrize("name", ["add", "maximum"])
def test_windows(
    random: np.random.Generator, shape: Any, size: Any, stride: Any, base: Any, dilation: Any, padding: Any, name: str
) -> None:
    x = random.standard_normal(shape).astype(np.float32)
    init = np.float32(0 if name == "add" else -np.inf)
    found = run_window(
        x,
        init,
        "f32",
        name,
        window_dimensions=size,
        window_strides=stride,
        base_dilations=base,
        window_dilations=dilation,
        padding=padding,
    )
    operator = jax.lax.add if name == "add" else jax.lax.max
    want = jax.lax.reduce_window(x, init, operator, size, stride, padding, base, dilation)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def scan(x: Any, axis: int, element: str, name: str, init: Any, *, reverse: bool) -> Any:
    size = tuple(n if d == axis else 1 for d, n in enumerate(x.shape))
    edge = (0, x.shape[axis] - 1) if reverse else (x.shape[axis] - 1, 0)
    padding = tuple(edge if d == axis else (0, 0) for d in range(x.ndim))
    return run_window(x, init, element, name, constant=name != "maximum", window_dimensions=size, padding=padding)


def accumulated(ufunc: Any, x: Any, axis: int, *, reverse: bool) -> Any:
    flip = (lambda a: np.flip(a, axis)) if reverse else (lambda a: a)
    return flip(ufunc.accumulate(flip(x), axis, dtype=x.dtype))


SHAPES = [
    (1,),
    (7,),
    (33,),
    (1000,),
    (4096,),
    (100003,),
    (1 << 19,),
    (5, 70),
    (300, 32),
    (9, 1001),
    (2, 5000),
    (1000, 3),
    (30000, 2),
    (64, 512),
    (5, 70, 9),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_of_integers(random: np.random.Generator, shape: Any, reverse: bool) -> None:
    x = random.integers(-(1 << 31), 1 << 31, shape).astype(np.int32)
    for axis in range(len(shape)):
        found = scan(x, axis, "i32", "add", np.int32(0), reverse=reverse)
        np.testing.assert_array_equal(found, accumulated(np.add, x, axis, reverse=reverse))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.int64])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("shape", "reverse"), [((37, 96), True), ((2, 3000), False)], ids=str)
def test_scans_of_all_types(random: np.random.Generator, dtype: Any, shape: Any, axis: int, reverse: bool) -> None:
    x = random.integers(-9, 9, shape).astype(dtype)
    element = {np.int8: "i8", np.int64: "i64", ml_dtypes.bfloat16: "bf16"}.get(dtype, f"f{8 * x.itemsize}")
    largest = scan(x, axis, element, "maximum", dtype(-3), reverse=reverse)
    want = np.maximum(accumulated(np.maximum, x, axis, reverse=reverse), dtype(-3))
    np.testing.assert_array_equal(largest, want)
    total = scan(x, axis, element, "add", dtype(0), reverse=reverse)
    wide = accumulated(np.add, x.astype(np.int64), axis, reverse=reverse)
    # The sums are whole numbers that the accumulator holds exactly: they are rounded once.
    np.testing.assert_array_equal(total, wide.astype(dtype))


@pytest.mark.parametrize("shape", [(100003,), (3, 5001), (40000, 3)], ids=str)
def test_scans_of_floats_are_accurate(random: np.random.Generator, shape: Any) -> None:
    x = random.uniform(0, 1, shape).astype(np.float32)
    axis = 1 if shape == (3, 5001) else 0
    found = scan(x, axis, "f32", "add", np.float32(0), reverse=False)
    np.testing.assert_allclose(found, np.cumsum(x, axis, dtype=np.float64), rtol=1e-5)


@pytest.mark.parametrize("init", [0.0, -0.0])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_cumulative_sums_have_the_signs_of_their_zeros(init: float, reverse: bool, axis: int) -> None:
    rows = np.array(list(itertools.product((0.0, -0.0, 1.0, -1.0), repeat=3)), np.float32)
    x = rows if axis else rows.T.copy()
    found = scan(x, axis, "f32", "add", np.float32(init), reverse=reverse)
    want = np.float32(init) + accumulated(np.add, x, axis, reverse=reverse)
    assert found.tobytes() == want.tobytes()


@pytest.mark.parametrize("shape", [(5, 70), (2, 9000)], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_cumulative_argmax(random: np.random.Generator, shape: Any, axis: int) -> None:
    x = random.integers(-50, 50, shape).astype(np.int32)
    index = np.broadcast_to(np.arange(shape[axis], dtype=np.int32).reshape((-1, 1) if axis == 0 else (1, -1)), shape)
    scalars = [tensor((), "i32")] * 4

    def combine(b: Any, a: Any, i: Any, c: Any, j: Any) -> Any:
        better = b.compare(a, c, "GT")
        first = b.or_(better, b.and_(b.compare(a, c, "EQ"), b.compare(i, j, "LT")))
        return b.select(better, a, c), b.select(first, i, j)

    block = Block([tensor(shape, "i32"), tensor(shape, "i32")])
    b = Builder(block)
    low, zero = b.constant(-100, scalars[0]), b.constant(0, scalars[0])
    size = tuple(n if d == axis else 1 for d, n in enumerate(shape))
    padding = tuple((n - 1, 0) for n in size)
    region = b.region(scalars, combine)
    made = b.reduce_window(list(block.arguments), [low, zero], region, window_dimensions=size, padding=padding)
    instruction = made[0].producer
    code = emit_kernel(instruction, TARGET, SimulatorDialect(), "kernel")
    operands = [x, np.ascontiguousarray(index), np.int32(-100).reshape(()), np.int32(0).reshape(())]
    values, places = run_code(code, operands, [result.tensor_type for result in instruction.results])
    np.testing.assert_array_equal(values, np.maximum.accumulate(x, axis))
    lines, found = np.moveaxis(x, axis, -1), np.moveaxis(places, axis, -1)
    want = [[int(np.argmax(line[: n + 1])) for n in range(len(line))] for line in lines[:, :200]]
    np.testing.assert_array_equal(found[:, :200], want)


@pytest.mark.parametrize("reverse", [False, True])
def test_wide_columns_in_chunks(random: np.random.Generator, reverse: bool) -> None:
    """Pieces of several columns, of which there are too few lines to fill a machine."""
    x = random.integers(-100, 100, (520, 16388), np.int32)
    found = scan(x, 0, "i32", "add", np.int32(0), reverse=reverse)
    want = np.cumsum(x[::-1], 0, np.int32)[::-1] if reverse else np.cumsum(x, 0, np.int32)
    np.testing.assert_array_equal(found, want)
    grid = scan_columns(["i32"], 1, 16388, 520, H200)
    assert grid.lanes == 4 and grid.chunks == 7
