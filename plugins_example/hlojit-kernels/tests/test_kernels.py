"""The kernels: who is taken, what they compute beside NumPy in double precision, and what they decline."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest
from hlojit.testing import check_kernel
from hlojit_kernels.attention import ATTENTION
from hlojit_kernels.cases import HAMMING_TEXT, SOFTMAX_TEXT
from hlojit_kernels.hamming import HAMMING
from hlojit_kernels.softmax import SOFTMAX

ATTENTION_TEXT = """
func.func @main(%q: tensor<2x150x16xf32>, %k: tensor<2x600x16xf32>, %v: tensor<2x600x24xf32>) -> tensor<2x150x24xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %four = stablehlo.constant dense<4.0> : tensor<2x150x600xf32>
  %0 = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<2x150x16xf32>, tensor<2x600x16xf32>) -> tensor<2x150x600xf32>
  %1 = stablehlo.divide %0, %four : tensor<2x150x600xf32>
  %2 = stablehlo.reduce(%1 init: %low) applies stablehlo.maximum across dimensions = [2] : (tensor<2x150x600xf32>, tensor<f32>) -> tensor<2x150xf32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<2x150xf32>) -> tensor<2x150x600xf32>
  %4 = stablehlo.subtract %1, %3 : tensor<2x150x600xf32>
  %5 = stablehlo.exponential %4 : tensor<2x150x600xf32>
  %6 = stablehlo.reduce(%5 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<2x150x600xf32>, tensor<f32>) -> tensor<2x150xf32>
  %7 = stablehlo.broadcast_in_dim %6, dims = [0, 1] : (tensor<2x150xf32>) -> tensor<2x150x600xf32>
  %8 = stablehlo.divide %5, %7 : tensor<2x150x600xf32>
  %9 = stablehlo.dot_general %8, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x150x600xf32>, tensor<2x600x24xf32>) -> tensor<2x150x24xf32>
  return %9 : tensor<2x150x24xf32>
}
"""

random = np.random.default_rng(0)


def attend(q, k, v, scale=0.5):
    """One head or several; NumPy's own, and what is traced.

    numba compiles the kernel once for each rank, number of heads, scale and block of queries: the tests share most of them.
    """
    scores = q @ np.swapaxes(k, -1, -2) * q.dtype.type(scale)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def in_double(q, k, v, scale=0.5):
    return attend(*(each.astype("f8") for each in (q, k, v)), scale)


def taken(program) -> list[str]:
    return [each.kernel for each in hlojit.kernel_report(program).taken]


def test_attention_as_text_is_one_kernel() -> None:
    q, k, v = (random.standard_normal(shape, "f4") for shape in ((2, 150, 16), (2, 600, 16), (2, 600, 24)))
    assert taken(ATTENTION_TEXT) == ["kernels.attention"]
    np.testing.assert_allclose(hlojit.compile(ATTENTION_TEXT)(q, k, v), in_double(q, k, v, 0.25), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("shape", "scale"), [((200, 16), 0.5), ((2, 150, 16), 0.25)], ids=str)
def test_attention_as_a_jitted_function_is_one_kernel(shape: tuple[int, ...], scale: float) -> None:
    q, k, v = random.standard_normal((3, *shape), "f4")
    jitted = hlojit.jit(lambda q, k, v: attend(q, k, v, scale))
    assert taken(jitted.lower(q, k, v)) == ["kernels.attention"]
    np.testing.assert_allclose(jitted(q, k, v), in_double(q, k, v, scale), rtol=2e-5, atol=2e-6)


def test_attention_of_scores_that_are_infinite_or_no_numbers() -> None:
    q, k, v = random.standard_normal((3, 600, 8), "f4")
    q = q[:200]
    q[0], q[1, 0], q[2, 0], q[3:6] = np.nan, np.inf, -np.inf, 1e4 * q[3:6]
    k[:512, 0], k[512:, 0] = np.abs(k[:512, 0]), 0
    with np.errstate(invalid="ignore"):
        expected = in_double(q, k, v)
    result = hlojit.jit(attend)(q, k, v)
    assert np.isnan(result[0]).all() and np.isnan(result[1]).all()
    np.testing.assert_array_equal(np.isnan(result[3:]), np.isnan(expected[3:]))
    np.testing.assert_allclose(result[6:], expected[6:], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda q, k, v: attend(q, k, v) + 0 * np.tanh(attend(q, k, v)), None),
        (lambda q, k, v: np.exp(q @ k.T) / 7 @ v, "another function"),
        (lambda q, k, v: attend(q, k.T, v), "another function"),
        (lambda q, k, v: attend(q.astype("f8"), k, v), "of f32"),
    ],
    ids=["read twice", "no softmax", "transposed keys", "f64"],
)
def test_what_attention_takes_and_declines(function, reason: str | None) -> None:
    q, k, v = random.standard_normal((3, 24, 24), "f4") * np.float32(0.5)
    lowered = hlojit.jit(function).lower(q, k, v)
    assert (not taken(lowered)) if reason else taken(lowered)
    assert reason is None or reason in str(hlojit.kernel_report(lowered))
    np.testing.assert_allclose(hlojit.jit(function)(q, k, v), function(q, k, v), rtol=1e-4, atol=1e-4)


def test_softmax_is_the_kernels() -> None:
    x = random.standard_normal((64, 100), "f4") * 10
    assert taken(SOFTMAX_TEXT) == ["kernels.softmax"]
    exponentials = np.exp(x.astype("f8"))
    expected = exponentials / exponentials.sum(1, keepdims=True)
    np.testing.assert_allclose(hlojit.compile(SOFTMAX_TEXT)(x), expected, rtol=1e-5, atol=1e-30)


def test_softmax_on_the_simulated_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    x = random.standard_normal((64, 100), "f4")
    report = hlojit.kernel_report(SOFTMAX_TEXT, backend="cuda")
    assert [each.kernel for each in report.taken] == ["kernels.cuda_softmax"]
    exponentials = np.exp(x.astype("f8"))
    expected = exponentials / exponentials.sum(1, keepdims=True)
    np.testing.assert_allclose(hlojit.compile(SOFTMAX_TEXT, backend="cuda")(x), expected, rtol=1e-5)


def test_hamming_counts_bits() -> None:
    x, y = random.integers(-(2**63), 2**63 - 1, (2, 64, 5))
    assert taken(HAMMING_TEXT) == ["kernels.hamming"]
    expected = np.unpackbits((x ^ y).view("u1"), axis=1).sum(1)
    np.testing.assert_array_equal(hlojit.compile(HAMMING_TEXT)(x, y), expected)


def test_the_kit_finds_nothing_in_attention() -> None:
    """Of one size everywhere, since each other size is a compilation, and in this process, which has compiled it."""
    program = hlojit.jit(attend).lower(*np.ones((3, 24, 24), "f4"))
    check_kernel(ATTENTION, [program], budget="smoke", isolate=False).raise_if_failed()


@pytest.mark.parametrize(
    ("kernel", "text"), [(SOFTMAX, SOFTMAX_TEXT), (HAMMING, HAMMING_TEXT)], ids=["softmax", "hamming"]
)
def test_the_kit_finds_nothing(kernel, text: str) -> None:
    check_kernel(kernel, [text], budget="smoke", isolate=False).raise_if_failed()
