"""Row kernels: reductions with what is computed from their results, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hlojit.ir.errors import UnsupportedError

from ..simt.fusions import layer_norm, softmax


def reference_softmax(x: Any) -> Any:
    wide = x.astype(np.float64)
    power = np.exp(wide - wide.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


SHAPES = [(256, 64), (3, 5), (7, 1), (2, 9000), (4, 3, 65), (1, 64), (1, 1), (70, 129), (5,), (2, 40000)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_row_softmax(lab: Any, random: np.random.Generator, shape: tuple[int, ...]) -> None:
    x = (random.standard_normal(shape) * 3).astype(np.float32)
    np.testing.assert_allclose(lab.run(softmax, x, kind="row"), reference_softmax(x), rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16], ids=lambda d: np.dtype(d).name)
def test_row_softmax_types(lab: Any, random: np.random.Generator, dtype: Any) -> None:
    x = random.standard_normal((33, 100)).astype(dtype)
    result = lab.run(softmax, x, kind="row").astype(np.float64)
    np.testing.assert_allclose(result, reference_softmax(x), rtol=8 * float(ml_dtypes.finfo(dtype).eps))


def test_row_softmax_special_values(lab: Any) -> None:
    x = np.array([[np.nan, 1, 2], [np.inf, 1, 2], [-np.inf, 0, 0], [-np.inf, -np.inf, -np.inf]], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(lab.run(softmax, x, kind="row"), reference_softmax(x), rtol=1e-6)


@pytest.mark.parametrize("shape", [(5, 7), (64, 768), (3, 1000)], ids=str)
def test_row_layer_norm(lab: Any, random: np.random.Generator, shape: tuple[int, int]) -> None:
    x = random.standard_normal(shape).astype(np.float32)
    gain, bias = (random.standard_normal(shape[1]).astype(np.float32) for _ in range(2))
    wide = x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * gain + bias
    np.testing.assert_allclose(lab.run(layer_norm, x, gain, bias, kind="row"), want, rtol=1e-4, atol=1e-5)


def test_row_stores_reductions_and_rows(lab: Any, random: np.random.Generator) -> None:
    x = random.standard_normal((9, 77)).astype(np.float32)

    def build(b: Any, x: Any, init: Any) -> Any:
        total = b.reduce([x], [init], b.combiner("add", "f32"), dimensions=(1,))
        largest = b.reduce([x], [init], b.combiner("maximum", "f32"), dimensions=(1,))
        return total, b.subtract(x, b.broadcast_in_dim(total, (9, 77), (0,))), largest

    total, rest, largest = lab.run(build, x, np.float32(0), kind="row")
    alone = lab.run(lambda b, x, i: b.reduce([x], [i], b.combiner("add", "f32"), dimensions=(1,)), x, np.float32(0))
    np.testing.assert_array_equal(total, alone)
    np.testing.assert_array_equal(rest, x - total[:, None])
    np.testing.assert_array_equal(largest, x.max(1, initial=0))


def test_row_rounds_like_separate_kernels(lab: Any, random: np.random.Generator) -> None:
    x = random.standard_normal((6, 300)).astype(ml_dtypes.bfloat16)

    def build(b: Any, x: Any, init: Any) -> Any:
        total = b.reduce([x], [init], b.combiner("add", "bf16"), dimensions=(1,))
        return b.subtract(x, b.broadcast_in_dim(total, (6, 300), (0,)))

    init = np.zeros((), ml_dtypes.bfloat16)
    total = lab.run(lambda b, x, i: b.reduce([x], [i], b.combiner("add", "bf16"), dimensions=(1,)), x, init)
    want = (x.astype(np.float32) - total.astype(np.float32)[:, None]).astype(ml_dtypes.bfloat16)
    assert lab.run(build, x, init, kind="row").tobytes() == want.tobytes()


def test_row_refuses_reductions_of_leading_dimensions(lab: Any) -> None:
    def build(b: Any, x: Any, init: Any) -> Any:
        total = b.reduce([x], [init], b.combiner("add", "f32"), dimensions=(0,))
        return b.subtract(x, b.broadcast_in_dim(total, (4, 6), (1,)))

    with pytest.raises(UnsupportedError, match="last dimensions"):
        lab.run(build, np.ones((4, 6), np.float32), np.float32(0), kind="row")
