"""fft of all kinds, ranks and lengths: held to transforms in higher precision, which nothing here has made."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hlojit
import mpmath
import numpy as np
import pytest
import scipy.fft
from hlojit import runtime
from hlojit.cpu.processor import host_target
from hlojit.ir.errors import HlojitError, VerificationError
from hlojit.ir.ops import fourier
from hlojit.ir.ops.fourier import LONGEST, stages, unit_roots
from hlojit.lowering.target import Target

from .guarded import run_guarded, without

Array = np.ndarray[Any, Any]
NAMES = {"f4": "f32", "f8": "f64", "c8": "complex<f32>", "c16": "complex<f64>"}
REALS = {"c8": "f4", "c16": "f8"}
KINDS = ("FFT", "IFFT", "RFFT", "IRFFT")


def type_text(shape: tuple[int, ...], dtype: str) -> str:
    return f"tensor<{'x'.join(map(str, (*shape, NAMES[dtype])))}>"


def types(shape: tuple[int, ...], lengths: tuple[int, ...], kind: str, dtype: str) -> tuple[str, str]:
    """Of operand and result, for a real side of this shape and complex numbers of a dtype."""
    half = (*shape[:-1], lengths[-1] // 2 + 1 if lengths[-1] else 0)
    if kind == "RFFT":
        return type_text(shape, REALS[dtype]), type_text(half, dtype)
    if kind == "IRFFT":
        return type_text(half, dtype), type_text(shape, REALS[dtype])
    return type_text(shape, dtype), type_text(shape, dtype)


def program(shape: tuple[int, ...], rank: int, kind: str, dtype: str, backend: str = "cpu") -> Any:
    lengths = shape[len(shape) - rank :]
    given, result = types(shape, lengths, kind, dtype)
    listed = ", ".join(map(str, lengths))
    text = f"""
func.func @main(%x: {given}) -> {result} {{
  %0 = stablehlo.fft %x, type = {kind}, length = [{listed}] : ({given}) -> {result}
  return %0 : {result}
}}"""
    return hlojit.compile(text, backend=backend)


def operand(executable: Any, seed: int = 0) -> Array:
    kind = executable.input_types[0]
    generator = np.random.default_rng(seed)
    numbers = generator.standard_normal(kind.shape)
    if np.issubdtype(kind.element_type.dtype, np.complexfloating):
        numbers = numbers + 1j * generator.standard_normal(kind.shape)
    return np.asarray(numbers).astype(kind.element_type.dtype)


def exact(x: Array, kind: str, lengths: tuple[int, ...]) -> Array:
    """The transform in extended precision."""
    axes = tuple(range(-len(lengths), 0))
    wide = x.astype(np.clongdouble if np.iscomplexobj(x) else np.longdouble)
    transforms = {"FFT": scipy.fft.fftn, "IFFT": scipy.fft.ifftn, "RFFT": scipy.fft.rfftn}
    if kind == "IRFFT":
        return np.asarray(scipy.fft.irfftn(wide, s=lengths, axes=axes))
    return np.asarray(transforms[kind](wide, axes=axes))


def check(shape: tuple[int, ...], rank: int, kind: str, dtype: str, backend: str = "cpu") -> None:
    executable = program(shape, rank, kind, dtype, backend)
    x = operand(executable)
    found = executable(x)
    lengths = shape[len(shape) - rank :]
    wanted = exact(x, kind, lengths)
    scale = np.sqrt(np.mean(np.abs(wanted) ** 2)) if wanted.size else 1
    # The error of a transform grows with the logarithm of its length; of lengths with large primes it is a convolution's.
    bound = 3 + 1.2 * math.log2(max(2, math.prod(lengths)))
    np.testing.assert_allclose(
        found, wanted.astype(found.dtype), rtol=0, atol=float(bound * np.finfo(found.dtype).eps * scale)
    )


LENGTHS = [
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    11,
    12,
    13,
    15,
    16,
    17,
    23,
    25,
    27,
    29,
    30,
    31,
    32,
    33,
    37,
    49,
    60,
    64,
    74,
    97,
    100,
]
LENGTHS += [121, 128, 210, 243, 256, 331, 512, 961, 1000, 1009, 1024, 1369]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", LENGTHS)
def test_every_length(length: int, kind: str) -> None:
    for dtype in ("c8", "c16"):
        check((length,), 1, kind, dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "rank"),
    [
        ((3, 5), 1),
        ((20, 4), 1),  # columns that do not lie side by side
        ((7, 16), 1),
        ((2, 3, 48), 1),
        ((4, 6, 8), 2),
        ((2, 9, 33), 2),
        ((64, 32), 2),
        ((4, 6, 8), 3),
        ((3, 37, 5), 3),
        ((2, 2, 3, 4), 3),
    ],
)
def test_ranks_and_batches(shape: tuple[int, ...], rank: int, kind: str) -> None:
    for dtype in ("c8", "c16"):
        check(shape, rank, kind, dtype)


@pytest.mark.parametrize("length", [4096, 65536, 3 * 5 * 7 * 11 * 13, 2 * 1009])
def test_long_transforms(length: int) -> None:
    for kind in ("FFT", "RFFT"):
        check((length,), 1, kind, "c8")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "rank"), [((0, 4), 1), ((4, 0), 1), ((2, 0, 3), 2)])
def test_without_elements(shape: tuple[int, ...], rank: int, kind: str) -> None:
    executable = program(shape, rank, kind, "c8")
    found = executable(operand(executable))
    assert found.shape == executable.output_types[0].shape


@pytest.mark.parametrize("length", [1, 2, 5, 6])
def test_imaginary_parts_that_no_real_numbers_have_do_not_count(length: int) -> None:
    executable = program((length,), 1, "IRFFT", "c16")
    x = operand(executable)
    real_ends = x.copy()
    real_ends[0] = x[0].real
    if length % 2 == 0:
        real_ends[-1] = x[-1].real
    np.testing.assert_array_equal(executable(x), executable(real_ends))
    np.testing.assert_allclose(executable(x), scipy.fft.irfft(real_ends, length), atol=1e-14)


@pytest.mark.parametrize("length", [8, 37, 60])
def test_what_is_not_finite_is_seen_everywhere(length: int) -> None:
    executable = program((length,), 1, "FFT", "c8")
    x = operand(executable)
    x[3] = np.nan
    assert np.isnan(executable(x)).all()


def test_results_do_not_depend_on_threads() -> None:
    executable = program((300, 128), 1, "FFT", "c8")
    x = operand(executable)
    before = runtime.get_threads()
    try:
        runtime.set_threads(1)
        expected = executable(x)
        for count in (2, 3, 8):
            runtime.set_threads(count)
            np.testing.assert_array_equal(executable(x), expected)
    finally:
        runtime.set_threads(before)
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: executable(x), range(12)):
            np.testing.assert_array_equal(found, expected)


def test_jaxs_programs() -> None:
    import jax
    from jax.numpy import fft

    x = np.random.default_rng(0).standard_normal((4, 12))

    def everything(x: Any) -> Any:
        spectrum = fft.rfft2(x)
        return spectrum, fft.irfft2(spectrum), fft.fftn(x), fft.ifft(x, axis=0), fft.hfft(x[0]), fft.ihfft(x[0])

    with jax.enable_x64(True):
        executable = hlojit.compile(jax.jit(everything).lower(x).as_text())
    found = executable(x)
    numpy = np.fft
    wanted = [numpy.rfft2(x), x, numpy.fftn(x), numpy.ifft(x, axis=0), numpy.hfft(x[0]), numpy.ihfft(x[0])]
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-13)


@pytest.mark.parametrize(
    ("shape", "rank", "kind"), [((3, 20), 1, "FFT"), ((37,), 1, "IFFT"), ((2, 6, 4), 2, "RFFT"), ((9,), 1, "IRFFT")]
)
def test_on_machines_with_threads(
    shape: tuple[int, ...], rank: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    check(shape, rank, kind, "c8", "cuda")


TARGETS: dict[str, Callable[[], Target]] = {
    "host": host_target,
    "avx2": lambda: without("avx512", bits=256),
    "portable": lambda: without("avx512", "avx", "fma", bits=128),
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize(
    "shape",
    [
        (2, 4, 37, 1),  # vectors of columns, the last overlapping; results change their order
        (3, 5, 1, 19),
        (2, 3, 5, 16),  # results as vectors
        (2, 6, 3, 5),
        (11, 7, 1, 1),  # columns that do not lie side by side
        (9, 4, 3, 1),
        (1, 32, 2, 1),
        (1, 1, 1, 1),
        (5, 31, 1, 2),
    ],
)
def test_stages_on_other_processors_within_bounds(shape: tuple[int, ...], dtype: str, name: str) -> None:
    outer, count, rest, inner = shape
    generator = np.random.default_rng(0)
    real = REALS[dtype]
    x = (generator.standard_normal(shape) + 1j * generator.standard_normal(shape)).astype(dtype)
    factors = generator.standard_normal((2, count, rest)).astype(real)
    factors[:, 0] = [[1], [0]]
    given, result = type_text(shape, dtype), type_text((outer, rest, count, inner), dtype)
    kind = type_text(factors.shape, real)
    for inverse in (False, True):
        text = f"""
func.func @main(%x: {given}, %f: {kind}) -> {result} {{
  %0 = "hlojit.butterflies"(%x, %f) <{{inverse = {str(inverse).lower()}, scale = 0.5 : f64}}> : ({given}, {kind}) -> {result}
  return %0 : {result}
}}"""
        (found,) = run_guarded(text, x, factors, target=TARGETS[name]())
        wide = x.astype("c16")
        turned = np.fft.ifft(wide, axis=1, norm="forward") if inverse else np.fft.fft(wide, axis=1)
        if rest > 1:
            turned *= (factors[0] + 1j * factors[1])[None, :, :, None]
        np.testing.assert_allclose(
            found, turned.transpose(0, 2, 1, 3) / 2, rtol=0, atol=40 * count * np.finfo(real).eps
        )


# ------------------------------------------------------------------------------------------------------- the parts


def test_roots_of_unity_are_rounded_once() -> None:
    for length in (1, 2, 3, 5, 7, 8, 12, 31, 100, 1009):
        numbers = np.arange(-3, length + 5)
        cosines, sines = unit_roots(length, numbers, inverse=True)
        with mpmath.workprec(120):
            for number, cosine, sine in zip(numbers, cosines, sines):
                angle = 2 * mpmath.mpf(int(number)) / length
                assert cosine == float(mpmath.cospi(angle)), (length, number)
                assert sine == float(mpmath.sinpi(angle)), (length, number)
    forward = unit_roots(1 << 40, np.array([(1 << 39) + 1, 3]), inverse=False)
    with mpmath.workprec(120):
        assert forward[1][1] == float(-mpmath.sinpi(mpmath.mpf(6) / (1 << 40)))


def test_tables_of_roots_are_made_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.stack(unit_roots(30, np.outer(np.arange(5), np.arange(1, 6)), inverse=False))
    for block in (1, 3, 7, 1000):
        monkeypatch.setattr(fourier, "_BLOCK", block)
        found = fourier.root_table(30, range(5), range(1, 6), np.float64, inverse=False)
        np.testing.assert_array_equal(found, whole)


@pytest.mark.parametrize("kind", ["FFT", "RFFT"])
def test_a_transform_that_no_memory_is_enough_for_says_so(kind: str) -> None:
    length = 2**50
    of, to = (f"{length}xf32", f"{length // 2 + 1}xcomplex<f32>") if kind == "RFFT" else [f"{length}xcomplex<f32>"] * 2
    text = f"""func.func @main(%x: tensor<{of}>) -> tensor<{to}> {{
      %0 = stablehlo.fft %x, type = {kind}, length = [{length}] : (tensor<{of}>) -> tensor<{to}>
      return %0 : tensor<{to}>
    }}"""
    with pytest.raises(HlojitError, match=r"stablehlo\.fft: a transform of length \d+ needs .* GiB of roots of unity"):
        hlojit.compile(text)


def test_stages_are_short_and_make_the_length() -> None:
    for length in range(1, 5000):
        found = stages(length)
        assert math.prod(found) == length
        for stage in found:
            assert stage <= LONGEST or all(stage % divisor for divisor in range(2, math.isqrt(stage) + 1))
    assert len(stages(1 << 20)) == 4
    assert len(stages(900)) == 2


def test_a_stage_that_makes_no_sense_is_refused() -> None:
    text = """
func.func @main(%x: tensor<2x4x3x1xcomplex<f32>>, %f: tensor<2x4x2xf32>) -> tensor<2x3x4x1xcomplex<f32>> {
  %0 = "hlojit.butterflies"(%x, %f) <{inverse = false, scale = 1.0 : f64}>
    : (tensor<2x4x3x1xcomplex<f32>>, tensor<2x4x2xf32>) -> tensor<2x3x4x1xcomplex<f32>>
  return %0 : tensor<2x3x4x1xcomplex<f32>>
}"""
    with pytest.raises(VerificationError, match="the factors have type"):
        hlojit.compile(text)
