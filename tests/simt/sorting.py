"""Programs that sort, and what NumPy makes of them bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest

Array = np.ndarray[Any, Any]

STORAGE: dict[str, Any] = {
    "i1": "?", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "ui8": "u1", "ui16": "u2", "ui32": "u4", "ui64": "u8",
    "i4": ml_dtypes.int4, "ui4": ml_dtypes.uint4, "ui2": ml_dtypes.uint2,
    "f16": "f2", "bf16": ml_dtypes.bfloat16, "f32": "f4", "f64": "f8",
    "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2, "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz, "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz,
    "f8E3M4": ml_dtypes.float8_e3m4, "f4E2M1FN": ml_dtypes.float4_e2m1fn, "f6E3M2FN": ml_dtypes.float6_e3m2fn,
}  # fmt: skip
FLOATS = tuple(element for element in STORAGE if element.startswith(("f", "bf")))


def compared(
    direction: str, element: str, lhs: str = "%x0", rhs: str = "%y0", result: str = "%r", order: str | None = None
) -> str:
    """One comparison; floats by their total order unless said otherwise."""
    if order is None:
        order = "TOTALORDER" if element in FLOATS else ""
    type = f"tensor<{element}>"
    suffix = f", {order}" if order else ""
    return f"{result} = stablehlo.compare {direction}, {lhs}, {rhs}{suffix} : ({type}, {type}) -> tensor<i1>"


def bits_of(array: Array) -> Array:
    """The bits of elements, as unsigned integers."""
    array = np.ascontiguousarray(array)
    return array.view(f"u{array.dtype.itemsize}")


def total_keys(array: Array) -> Array:
    """Integers in the total order of floats, in that of the numbers of others; worked out in f64 from the values."""
    if array.dtype.kind in "iub" or array.dtype.name in ("int4", "uint4", "uint2"):
        return array.astype("u8") if array.dtype.kind == "u" else array.astype("i8")
    wide = array if array.dtype in (np.dtype("f4"), np.dtype("f8")) else array.astype("f4")
    bits = np.ascontiguousarray(wide).view(f"i{wide.dtype.itemsize}")
    if array.dtype.name.endswith("fnuz"):
        # Their only NaN, whose code is that of -0.0 elsewhere, has no sign.
        bits = np.where(np.isnan(wide), np.int32(0x7FC00000), bits)
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits).astype("i8")


def numbers(element: str, shape: Sequence[int], seed: int = 0, *, few: bool = False, special: bool = True) -> Array:
    """Elements of a type, with repetitions, of floats any bits: infinities, zeros of both signs, NaNs of all payloads."""
    random = np.random.default_rng(seed)
    dtype = np.dtype(STORAGE[element])
    if element == "i1":
        return random.random(shape) < 0.5
    if element in ("i4", "ui4", "ui2"):
        return random.integers(*{"i4": (-8, 8), "ui4": (0, 16), "ui2": (0, 4)}[element], shape).astype(dtype)
    if element in FLOATS:
        if few:
            return random.integers(-2, 3, shape).astype("f4").astype(dtype)
        plain = (random.standard_normal(shape) * 4).astype("f4").astype(dtype)
        if not special:
            return plain
        width = {"f4E2M1FN": 4, "f6E3M2FN": 6}.get(element, 8 * dtype.itemsize)
        codes = (
            random.integers(0, 1 << width, shape, "u8", endpoint=False)
            if width < 64
            else random.integers(0, (1 << 64) - 1, shape, "u8", endpoint=True)
        )
        mixed = np.where(random.random(shape) < 0.5, codes.astype(f"u{dtype.itemsize}"), bits_of(plain))
        if element == "f16":
            # Processors widen a signalling NaN to a quiet one before the CPU's kernels compare it.
            mixed[np.isnan(mixed.view(dtype))] |= 0x200
        return mixed.view(dtype)
    low, high = (0, 2) if few else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    return random.integers(low, high, shape, dtype, endpoint=True)


def sorted_by(keys: Array, arrays: Sequence[Array], axis: int, *, descending: bool = False) -> list[Array]:
    """Arrays in the stable order of keys."""
    order = np.argsort(~keys if descending else keys, axis=axis, kind="stable")
    return [np.take_along_axis(array, order, axis) for array in arrays]


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Array]]:
    """Runs a program on the simulated GPU."""
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    return lambda text, *arrays: run(text, "cuda", *arrays)


def run(text: str, backend: str, *arrays: Array) -> list[Array]:
    """Results of a program, one or several."""
    found = hlojit.compile(text, backend=backend)(*arrays)
    return [np.asarray(each) for each in (found if isinstance(found, (tuple, list)) else (found,))]


def check(text: str, arrays: Sequence[Array], expected: Sequence[Array], on_gpu: Callable[..., list[Array]]) -> None:
    """All bits of all results, against NumPy and against the CPU."""
    ours, cpu = on_gpu(text, *arrays), run(text, "cpu", *arrays)
    for mine, other, wanted in zip(ours, cpu, expected, strict=True):
        np.testing.assert_array_equal(bits_of(mine), bits_of(wanted))
        np.testing.assert_array_equal(bits_of(mine), bits_of(other))
