"""The custom calls: from jitted functions and by themselves, beside NumPy; errors; and the kit."""

from __future__ import annotations

import sqlite3
import zlib

import hlojit
import numpy as np
import pytest
from hlojit.extensions import registry
from hlojit.ir import tensor
from hlojit.testing import check_custom_call
from hlojit_kernels.sqlite import SQLITE_CALLS

random = np.random.default_rng(0)


def bessel(x):
    """J0 by its integral: the mean of cos(x sin t), which the rule of equal steps gives to the last digits."""
    angles = (np.arange(256) + 0.5) * np.pi / 256
    return np.cos(np.asarray(x, "f8")[..., None] * np.sin(angles)).mean(-1)


def quantized(x, step, levels):
    code = np.clip(np.rint(x / step), 0, levels - 1)
    return code, x - code * step


def smoothed(x, decay):
    """Each number by its sum over all before it, in double precision."""
    weights = (1 - decay) * decay ** np.arange(x.shape[-1])
    with np.errstate(invalid="ignore"):
        sums = [(x[..., : t + 1].astype("f8") * weights[t::-1]).sum(-1) for t in range(x.shape[-1])]
    return np.stack(sums, -1)


def test_the_plugin_is_found_by_its_entry_point() -> None:
    record = registry().load().records["kernels"]
    assert record.package == "hlojit-kernels" and not record.error and record.identity


@hlojit.jit
def everything(x, octets):
    """All forms in one program, around them ops of its own."""
    code, rest = hlojit.custom_call("kernels.quantize", x * 2, result=[tensor((6, 32), "i32"), x], step=0.5, levels=4)
    curve = hlojit.custom_call("kernels.polynomial", x, coefficients=[0.5, 0.0, -1.0]) + 1
    counts = hlojit.custom_call("kernels.histogram", x, bins=8, low=-2.0, high=2.0)
    sums = hlojit.custom_call("kernels.crc32", hlojit.custom_call("kernels.swap_bytes", octets))
    normed = hlojit.custom_call("kernels.rms_norm", x, x[0], epsilon=1e-3)
    waves = hlojit.custom_call("kernels.bessel_j0", x)
    smooth = hlojit.custom_call("kernels.smooth", x, decay=0.75) - 1
    return code, rest, curve, counts, sums, normed, waves, smooth


def test_all_forms_in_one_jitted_function() -> None:
    x, octets = random.standard_normal((6, 32), "f4"), random.integers(0, 256, (3, 10), dtype="u1")
    code, rest, curve, counts, sums, normed, waves, smooth = everything(x, octets)
    wide = x.astype("f8")
    expected_code, expected_rest = quantized(2 * wide, 0.5, 4)
    np.testing.assert_array_equal(code, expected_code)
    np.testing.assert_allclose(rest, expected_rest, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(curve, np.polyval([0.5, 0, 0], wide), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(counts, np.histogram(x, 8, (-2, 2))[0])
    swapped = octets.reshape(3, 5, 2)[..., ::-1].reshape(3, 10)
    np.testing.assert_array_equal(sums, [zlib.crc32(row.tobytes()) for row in swapped])
    np.testing.assert_allclose(normed, wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-3) * wide[0], rtol=2e-5)
    np.testing.assert_allclose(waves, bessel(x), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(smooth, smoothed(x, 0.75) - 1, rtol=1e-5, atol=1e-6)


def test_calls_of_scalars_and_expansions_are_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CACHE", "off")
    text = """
    func.func @main(%x: tensor<4x64xf32>, %w: tensor<64xf32>) -> tensor<4x64xf32> {
      %0 = stablehlo.custom_call @kernels.rms_norm(%x, %w) : (tensor<4x64xf32>, tensor<64xf32>) -> tensor<4x64xf32>
      %1 = stablehlo.custom_call @kernels.bessel_j0(%0) : (tensor<4x64xf32>) -> tensor<4x64xf32>
      return %1 : tensor<4x64xf32>
    }
    """
    assert len(hlojit.compile(text).spec.program.launches()) == 1


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: hlojit.custom_call("kernels.smooth", x), hlojit.ExecutionError, "needs an attribute decay"),
        (lambda x: hlojit.custom_call("kernels.smooth", x, decay=1), hlojit.ExecutionError, "decay is of type f64"),
        (lambda x: hlojit.custom_call("kernels.rms_norm", x, x), hlojit.PluginError, "size of the last dimension"),
        (
            lambda x: hlojit.custom_call("kernels.quantize", x, result=[x, x], steps=2.0),
            hlojit.HlojitError,
            "step, levels",
        ),
        (lambda x: hlojit.custom_call("kernels.swap_bytes", x), hlojit.HlojitError, "an even number of ui8 is wanted"),
        (lambda x: hlojit.custom_call("kernels.smoth", x), TypeError, "did you mean 'kernels.smooth'"),
    ],
    ids=["attribute missing", "attribute of another type", "weights", "parameter", "octets", "target"],
)
def test_errors_say_what_to_do(call, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(np.ones((3, 4), "f4"))


def test_the_gpu_call_on_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    x = random.standard_normal(1000, "f4")
    rotated = hlojit.jit(lambda x: hlojit.custom_call("kernels.rotate", x) * 2, backend="cuda")
    np.testing.assert_array_equal(rotated(x), np.roll(x, 1) * 2)


@pytest.mark.parametrize(
    ("target", "arguments"),
    [
        ("kernels.quantize", {"results": ["i32", "f32"], "config": {"step": 0.5, "levels": 8}}),
        ("kernels.bessel_j0", {"oracle": None}),
        ("kernels.smooth", {"config": {"decay": 0.5}, "oracle": lambda x: smoothed(x, 0.5)}),
    ],
    ids=["quantize", "bessel_j0", "smooth"],
)
def test_the_kit_finds_nothing(target: str, arguments: dict) -> None:
    """The calls whose operands may have any shape, which the kit makes up."""
    report = check_custom_call(target, operands=["f32"], budget="smoke", **arguments).raise_if_failed()
    assert sum(result.status.name == "PASSED" and " on cpu" in result.name for result in report.results) > 4


@pytest.mark.skipif(not SQLITE_CALLS, reason="no SQLite here")
def test_sqlite_groups_the_numbers_of_a_program() -> None:
    days, amounts = random.integers(0, 5, 200).astype("i4"), random.standard_normal(200).astype("f4")
    days[:5] = range(5)

    @hlojit.jit
    def totals(days, amounts):
        query = "select c0, sum(c1), count(*) from t group by c0 order by c0"
        results = [tensor((5,), "i32"), tensor((5,), "f64"), tensor((5,), "i64")]
        day, total, count = hlojit.custom_call(
            "kernels.sqlite", days, amounts * 2, result=results, query=query, types="i4 f8 i8"
        )
        return day, total / count

    day, mean = totals(days, amounts)
    np.testing.assert_array_equal(day, range(5))
    np.testing.assert_allclose(mean, [2 * amounts[days == each].mean(dtype="f8") for each in range(5)], rtol=1e-6)
    version = hlojit.compile("""func.func @main() -> tensor<i32> {
      %0 = stablehlo.custom_call @kernels.sqlite_version() : () -> tensor<i32>
      return %0 : tensor<i32>
    }""")
    assert version() == int("{}{:03}{:03}".format(*sqlite3.sqlite_version_info))


@pytest.mark.skipif(not SQLITE_CALLS, reason="no SQLite here")
@pytest.mark.parametrize(
    ("query", "words"), [("select c7 from t", "no such column: c7"), ("select c0 from t", r"float64\[4\], not")]
)
def test_what_sqlite_refuses_ends_the_call(query: str, words: str) -> None:
    x = np.arange(4.0)
    with pytest.raises(hlojit.ExecutionError, match=words):
        hlojit.custom_call("kernels.sqlite", x, result=tensor((3,), "f64"), query=query, types="f8")
