"""Long arrays of formats given by functions: codes and numbers are those of the functions called in Python, one by one."""

from __future__ import annotations

import math
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hlojit import Array
from hlojit.extensions import FloatFormat, hookimpl, using
from hlojit.ir.environment import Bounded
from hlojit.ir.errors import HlojitError, PluginWarning
from hlojit.ir.scalar.arrays import decode_array, encode_array
from hlojit.ir.scalar.codec_tables import codec_tables
from hlojit.ir.scalar.compiled_codecs import MANY

EDGES = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 5e-324, 1e-300, 1e300, 1.7976931348623157e308]


def logarithmic(bits: int) -> FloatFormat:
    """Numbers whose logarithm of base two is a fixed-point number, with a sign; the lowest code is zero, the last NaN."""
    fraction = bits - 8
    half, last = 1 << (bits - 1), (1 << bits) - 1

    def decode(code: int) -> float:
        if code == last:
            return math.nan
        magnitude = code & (half - 1)
        number = 0.0 if magnitude == 0 else 2.0 ** ((magnitude - (half >> 1)) / (1 << fraction))
        return -number if code & half else number

    def encode(number: float) -> int:
        if number != number:
            return last
        sign = half if math.copysign(1.0, number) < 0 else 0
        if number == 0.0:
            return sign
        if math.isinf(number):
            return sign | (half - 2)
        magnitude = round(math.log2(abs(number)) * (1 << fraction)) + (half >> 1)
        return sign | min(max(magnitude, 1), half - 2)

    return FloatFormat(f"log{bits}", bits=bits, accumulator="f64", decode=decode, encode=encode)


def one_by_one(row: FloatFormat, numbers: np.ndarray) -> list[int]:
    """Codes by calls of the functions: a program keeps the number, and encodes it again where it is stored."""
    assert row.encode is not None and row.decode is not None
    return [row.encode(row.decode(row.encode(np.float64(each)))) for each in numbers]


@pytest.mark.parametrize("bits", [12, 16, 24, 32])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_codes_of_long_arrays_are_those_of_the_functions(bits: int, dtype: type) -> None:
    row = logarithmic(bits)
    random = np.random.default_rng(bits)
    numbers = np.exp2(random.uniform(-90, 90, MANY)) * random.choice([-1, 1], MANY)
    with np.errstate(over="ignore", under="ignore"):
        numbers = np.concatenate([numbers, EDGES]).astype(dtype)
    codes = encode_array(numbers, row)
    few = [*range(0, MANY, 97), *range(MANY, numbers.size)]
    assert codes[few].tolist() == one_by_one(row, numbers[few])
    decoded = decode_array(codes, row)
    assert row.decode is not None
    # LLVM's power of two may differ from Python's in the last bit, as it does in kernels.
    np.testing.assert_allclose(decoded[few], [row.decode(int(each)) for each in codes[few]], rtol=2.0**-52)


def test_numbers_of_f64_between_those_of_f32() -> None:
    """Bounds of 16 bits are told from f64's neighbours on both sides."""
    row = logarithmic(16)
    tables = codec_tables(row)
    assert tables is not None
    centres = np.resize(tables.values[np.isfinite(tables.values)].astype(np.float64), MANY)
    halves = np.sqrt(np.abs(centres[:-1] * centres[1:]))
    beside = np.concatenate([np.nextafter(halves, 0), halves, np.nextafter(halves, np.inf)])
    assert encode_array(beside, row)[::53].tolist() == one_by_one(row, beside[::53])


def test_a_code_of_too_many_bits_is_named_with_its_number() -> None:
    def encode(number: float) -> int:
        return 1 << 24 if number == 7.0 else int(number)

    class Wide:
        @hookimpl
        def hlojit_formats(self) -> list[FloatFormat]:
            return [FloatFormat("wide24", bits=24, decode=lambda code: float(code), encode=encode)]

    numbers = np.ones(2 * MANY)
    numbers[MANY] = 7.0
    with using(Wide()), pytest.raises(HlojitError, match=r"wide24.* returned 16777216, which is outside its 24 bits"):
        Array.from_values(numbers, "wide24")


def test_tables_that_were_compiled_are_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CACHE", str(tmp_path))
    numbers = np.linspace(-3, 3, 5000)
    row = logarithmic(13)
    first = encode_array(numbers, row)
    (entry,) = (tmp_path / "v3" / "tables").glob("*/*")

    with monkeypatch.context() as patched:
        patched.setattr("hlojit.ir.scalar.codec_tables._functions", lambda row: pytest.fail("made again"))
        patched.setattr("hlojit.ir.scalar.codec_tables._found", OrderedDict())
        np.testing.assert_array_equal(encode_array(numbers, logarithmic(13)), first)

    # What is damaged is no table, and is made again.
    entry.write_bytes(entry.read_bytes()[:-1] + b"?")
    monkeypatch.setattr("hlojit.ir.scalar.codec_tables._found", OrderedDict())
    np.testing.assert_array_equal(encode_array(numbers, logarithmic(13)), first)


def test_numbers_that_change_when_they_are_stored_again_are_told_of_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HLOJIT_CACHE", str(tmp_path))

    def named(name: str) -> FloatFormat:
        return FloatFormat(name, bits=12, decode=decode, encode=encode)

    def decode(code: int) -> float:
        return 3.5 if code == 8 else code / 2.0

    def encode(number: float) -> int:
        if not number >= 0.0:
            return 0
        return 4095 if number >= 2047.0 else int(number * 2.0 + 0.5)

    for names in (("drift", "drift2"), ("drift", "drift2")):
        monkeypatch.setattr("hlojit.ir.scalar.codec_tables._found", OrderedDict())
        monkeypatch.setattr("hlojit.ir.scalar.codec_tables._warned", Bounded(16))
        for name in names:
            with pytest.warns(PluginWarning, match=f"'{name}'.*numbers change when they are stored again"):
                codec_tables(named(name))
