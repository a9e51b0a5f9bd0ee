"""Sorts by keys with vectors: every type, order, length and input against NumPy's stable sort of keys made apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.cpu.kernels import quicksort
from hlojit.cpu.kernels.quicksort import sorter_of
from hlojit.cpu.processor import host_target
from hlojit.lowering.target import Target

from .guarded import Array, run_guarded, without
from .test_sort import compare, sort_text

FLOATS: dict[str, Any] = {
    "f64": "f8", "f32": "f4", "f16": "f2", "bf16": ml_dtypes.bfloat16, "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2, "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
}  # fmt: skip
INTEGERS = {"i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "ui8": "u1", "ui16": "u2", "ui32": "u4", "ui64": "u8"}
LENGTHS = (1, 2, 5, 16, 63, 257, 511, 1500)


TARGETS: dict[str, Callable[[], Target]] = {
    "host": host_target,
    "avx2": lambda: without("avx512", bits=256),
    "portable": lambda: without("avx512", "avx", "bmi", bits=128),
}


def total_keys(array: Array) -> Array:
    """Unsigned integers in the total order of floats, or in that of integers."""
    if array.dtype.kind in "iub":
        offset = 1 << (8 * array.itemsize - 1) if array.dtype.kind == "i" else 0
        return array.view(f"u{array.itemsize}") ^ np.array(offset, f"u{array.itemsize}")
    bits = array.view(f"u{array.itemsize}")
    top = np.array(1 << (8 * array.itemsize - 1), bits.dtype)
    return np.where(bits & top, ~bits, bits | top)


def jax_keys(array: Array) -> Array:
    """Both zeros equal, all NaNs equal and behind everything."""
    wide = array if array.dtype.kind == "f" and array.itemsize >= 4 else array.astype("f4")
    plain = np.where(wide == 0, np.zeros_like(wide), wide)
    return total_keys(np.where(np.isnan(wide), np.array(np.nan, wide.dtype), plain))


def jax_body(element: str, direction: str) -> str:
    """JAX's comparator: both zeros are one, all NaNs are one."""
    type, lines = f"tensor<{element}>", []
    for side in ("x0", "y0"):
        lines += [
            f"%z{side} = stablehlo.constant dense<0.0> : {type}", f"%n{side} = stablehlo.constant dense<0x{NAN[element]}> : {type}",
            compare("EQ", element, f"%{side}", f"%z{side}", f"%e{side}"),
            f"%s{side} = stablehlo.select %e{side}, %z{side}, %{side} : tensor<i1>, {type}",
            compare("NE", element, f"%{side}", f"%{side}", f"%u{side}"),
            f"%k{side} = stablehlo.select %u{side}, %n{side}, %s{side} : tensor<i1>, {type}",
        ]  # fmt: skip
    order = f"({type}, {type}) -> tensor<i1>"
    return "\n".join([*lines, f"%r = stablehlo.compare {direction}, %kx0, %ky0, TOTALORDER : {order}"])


NAN = {"f64": "7FF8000000000000", "f32": "7FC00000", "f16": "7E00", "bf16": "7FC0", "f8E5M2": "7E", "f8E4M3FN": "7F"}


def bits_of(element: str, length: int, seed: int) -> Array:
    """Codes of a float format, every class often: all bits, numbers, zeros, infinities, NaNs of both signs."""
    generator = np.random.default_rng(seed)
    dtype = np.dtype(FLOATS[element])
    some = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -np.nan]).astype(dtype)
    numbers = (generator.standard_normal(length) * 10).astype(dtype)
    raw = generator.integers(0, 256, length * dtype.itemsize, "u1").view(dtype)
    return np.choose(generator.integers(0, 3, length), [generator.choice(some, length).view(f"u{dtype.itemsize}"),
                     numbers.view(f"u{dtype.itemsize}"), raw.view(f"u{dtype.itemsize}")]).view(dtype)  # fmt: skip


def same_bits(actual: Array, expected: Array) -> None:
    np.testing.assert_array_equal(actual.view(f"u{actual.itemsize}"), expected.view(f"u{expected.itemsize}"))


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("element", FLOATS)
def test_total_order_of_floats(element: str, direction: str) -> None:
    type = f"tensor<{element}>"
    body = f"%r = stablehlo.compare {direction}, %x0, %y0, TOTALORDER : ({type}, {type}) -> tensor<i1>"
    for length in LENGTHS:
        array = bits_of(element, length, length)
        if element.endswith("UZ"):
            array[np.isnan(array)] = 0  # its one NaN has no sign of its own
        # Of formats with several NaNs to a sign, all that a conversion keeps is the sign.
        keys = total_keys(array if array.itemsize > 1 else array.astype("f4"))
        order = np.argsort(keys if direction == "LT" else ~keys, kind="stable")
        same_bits(run_guarded(sort_text((length,), [element], 0, body), array)[0], array[order])


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("element", NAN)
def test_orders_of_jax_keep_zeros_and_nans_where_they_were(element: str, direction: str, name: str) -> None:
    """Bits of both zeros, and of NaNs, come out in the order in which they went in."""
    for length in LENGTHS if name == "host" else (37, 700):
        array = bits_of(element, length, length)
        keys = jax_keys(array)
        order = np.argsort(keys if direction == "LT" else ~keys, kind="stable")
        text = sort_text((length,), [element], 0, jax_body(element, direction))
        same_bits(run_guarded(text, array, target=TARGETS[name]())[0], array[order])


def inputs(dtype: Any, length: int) -> dict[str, Array]:
    """What sorts stumble over."""
    generator = np.random.default_rng(length)
    limits = np.iinfo(dtype)
    drawn = generator.integers(limits.min, limits.max, length, dtype, endpoint=True)
    climbing = np.sort(drawn)
    extreme = np.where(generator.random(length) < 0.5, limits.max, limits.min).astype(dtype)
    return {
        "random": drawn, "sorted": climbing, "reversed": climbing[::-1].copy(),
        "constant": np.full(length, drawn[0]), "largest": np.full(length, limits.max, dtype),
        "smallest": np.full(length, limits.min, dtype), "extreme": extreme,
        "few": generator.integers(0, 3, length).astype(dtype),
        "pipe": np.concatenate([climbing[::2], climbing[1::2][::-1]]),
        "skewed": np.minimum(generator.zipf(1.2, length), min(limits.max, 1 << 62)).astype(dtype),
    }  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("element", INTEGERS)
def test_integers_whatever_they_are(element: str, name: str) -> None:
    for length in (300, 2999, 3001):
        for kind, array in inputs(INTEGERS[element], length).items():
            text = sort_text((length,), [element], 0, compare("LT", element))
            (actual,) = run_guarded(text, array, target=TARGETS[name]())
            np.testing.assert_array_equal(actual, np.sort(array), err_msg=f"{kind} {length}")


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("element", ["i8", "ui16", "f16", "i32", "f32", "i64", "ui64", "f64"])
def test_payload_comes_along_in_the_order_of_equal_keys(element: str, name: str) -> None:
    """Keys of 64 bits leave no room for elements' numbers: they are shortened, and what was lost is looked at again."""
    for length in (40, 700, 3001):
        if element in INTEGERS:
            arrays = inputs(INTEGERS[element], length)
            keys = {kind: total_keys(array) for kind, array in arrays.items()}
        else:
            arrays = {"bits": bits_of(element, length, length)}
            keys = {"bits": jax_keys(arrays["bits"])}
        body = jax_body(element, "LT") if element in NAN else compare("LT", element)
        for kind, array in arrays.items():
            order = np.argsort(keys[kind], kind="stable")
            rest = np.arange(length, dtype="i4"), np.arange(length).astype("u1"), np.arange(length) % 3 == 0
            text = sort_text((length,), [element, "i32", "ui8", "i1"], 0, body)
            for actual, operand in zip(run_guarded(text, array, *rest, target=TARGETS[name]()), [array, *rest]):
                assert actual.tobytes() == operand[order].tobytes(), (kind, length)


def test_shortened_keys_that_differ_in_lost_bits_only() -> None:
    """One far key makes all others equal in what is left of them."""
    generator = np.random.default_rng(1)
    length = 2000
    keys = generator.integers(0, 60, length).astype("i8")
    keys[77], keys[1500] = np.iinfo("i8").max, np.iinfo("i8").min
    numbers = np.arange(length, dtype="i4")
    for actual, operand in zip(
        run_guarded(sort_text((length,), ["i64", "i32"], 0, compare("LT", "i64")), keys, numbers), [keys, numbers]
    ):
        np.testing.assert_array_equal(actual, operand[np.argsort(keys, kind="stable")])


def test_two_keys_in_one_word() -> None:
    generator = np.random.default_rng(2)
    length = 999
    major, minor = generator.integers(0, 5, length).astype("i2"), generator.integers(0, 5, length).astype("u4")
    numbers = np.arange(length, dtype="i4")
    body = "\n".join((
        compare("LT", "i16", result="%less"), compare("EQ", "i16", result="%same"),
        compare("GT", "ui32", "%x1", "%y1", "%second"),
        "%both = stablehlo.and %same, %second : tensor<i1>", "%r = stablehlo.or %less, %both : tensor<i1>",
    ))  # fmt: skip
    order = np.lexsort((~minor, major))
    text = sort_text((length,), ["i16", "ui32", "i32"], 0, body)
    for actual, operand in zip(run_guarded(text, major, minor, numbers), (major, minor, numbers)):
        np.testing.assert_array_equal(actual, operand[order])


def test_numbers_without_a_total_order_come_before_nans() -> None:
    """The specification leaves open where NaN goes; here it goes behind all numbers."""
    array = bits_of("f32", 1000, 3)
    (actual,) = run_guarded(sort_text((1000,), ["f32"], 0, compare("LT", "f32")), array)
    same_bits(actual, array[np.argsort(jax_keys(array), kind="stable")])


@pytest.mark.parametrize(
    ("shape", "axis"), [((7, 300), 1), ((300, 7), 0), ((3, 90, 5), 1), ((200, 3), 1), ((70, 16), 0), ((2, 65, 37), 1)]
)
def test_lines(shape: tuple[int, ...], axis: int) -> None:
    generator = np.random.default_rng(4)
    floats = np.round(generator.standard_normal(shape) * 3).astype("f4")
    floats[floats == 0] *= generator.choice([1, -1], (floats == 0).sum())
    wide = generator.integers(-(2**40), 2**40, shape)
    (actual,) = run_guarded(sort_text(shape, ["f32"], axis, jax_body("f32", "LT")), floats)
    order = np.argsort(jax_keys(floats), axis=axis, kind="stable")
    same_bits(actual, np.take_along_axis(floats, order, axis))
    text = sort_text(shape, ["i64", "f32"], axis, compare("GT", "i64"))
    order = np.argsort(-wide, axis=axis, kind="stable")
    for actual, operand in zip(run_guarded(text, wide, floats), (wide, floats)):
        same_bits(actual, np.take_along_axis(operand, order, axis))


@pytest.mark.parametrize("kind", ["i32", "i64"])
def test_the_functions_that_sort_are_those_of_all_kernels(kind: str) -> None:
    """One copy for programs of any shape: their symbol is a hash of what they depend on."""
    assert sorter_of(kind, host_target()) is sorter_of(kind, host_target())
    other = sorter_of(kind, TARGETS["portable"]())
    assert other.code.symbol != sorter_of(kind, host_target()).code.symbol
    text = sort_text((100,), ["i32"], 0, compare("LT", "i32"))
    compiled = hlojit.compile(text, backend="cpu")
    longer = hlojit.compile(text.replace("100x", "200x"), backend="cpu")
    array = np.arange(200, dtype="i4")[::-1].copy()
    np.testing.assert_array_equal(compiled(array[:100]), np.sort(array[:100]))
    np.testing.assert_array_equal(longer(array), np.sort(array))


def test_runs_that_are_cut_badly_are_sorted_as_heaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no depth to spend, everything longer than a network is a heap."""
    monkeypatch.setattr(quicksort, "DEPTH", 0)
    sorter_of.cache_clear()
    try:
        for kind, array in inputs("i4", 3001).items():
            for element in ("i32", "f32"):
                text = sort_text((3001,), [element, "i32"], 0, compare("LT", element))
                keys = array.astype("f4") if element == "f32" else array
                order = np.argsort(keys, kind="stable")
                for actual, operand in zip(run_guarded(text, keys, array), (keys, array)):
                    np.testing.assert_array_equal(actual, operand[order], err_msg=kind)
    finally:
        sorter_of.cache_clear()


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("element", ["i16", "i32", "i64", "ui16", "ui32", "ui64"])
def test_every_length_of_a_network(element: str, name: str) -> None:
    """Zeros and ones decide whether a network sorts; lengths around all sizes of networks and blocks."""
    generator = np.random.default_rng(5)
    for length in sorted({size + more for size in (4, 8, 16, 32, 64, 128, 256, 512, 1024) for more in (-1, 0, 1)}):
        array = np.stack([(generator.random(length) < share).astype(INTEGERS[element]) for share in (0.1, 0.5, 0.9)])
        limits = np.iinfo(INTEGERS[element])
        drawn = generator.integers(limits.min, limits.max, (2, length), INTEGERS[element], endpoint=True)
        array = np.concatenate([array, drawn, np.where(drawn % 3 == 0, limits.max, drawn)])
        text = sort_text(array.shape, [element], 1, compare("LT", element))
        (actual,) = run_guarded(text, array, target=TARGETS[name]())
        np.testing.assert_array_equal(actual, np.sort(array, axis=1), err_msg=str(length))
