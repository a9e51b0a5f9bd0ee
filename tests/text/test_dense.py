"""Elements of constants against NumPy, ml_dtypes and MLIR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hlojit.ir.attributes import Dense
from hlojit.ir.formats import FloatFormat, element_type, element_types
from hlojit.ir.text.dense import print_dense
from hlojit.ir.text.parser import parse_module
from hlojit.ir.text.printer import print_module
from hlojit.ir.types import tensor
from hypothesis import given, settings
from hypothesis import strategies as st

Array = np.ndarray[Any, Any]


def constant(body: str, type: str) -> Dense:
    """The elements that ``dense<body> : type`` stands for."""
    text = f"func.func @f() {{\n  %0 = stablehlo.constant dense<{body}> : {type}\n  return\n}}"
    instruction = parse_module(text).functions["f"].body.first
    assert instruction is not None
    found = instruction.attributes["value"]
    assert isinstance(found, Dense)
    return found


def again(value: Dense) -> Dense:
    """Printed and read."""
    body, _, type = print_dense(value).removeprefix("dense<").rpartition("> : ")
    return constant(body, type)


@pytest.mark.parametrize(
    ("body", "type", "expected"),
    [
        ("[1, -2, 3]", "tensor<3xi32>", np.array([1, -2, 3], np.int32)),
        (
            "[[1.5, 2.0], [-0.0, 1e3]]".replace("1e3", "1.0e3"),
            "tensor<2x2xf32>",
            np.array([[1.5, 2], [-0.0, 1e3]], np.float32),
        ),
        ("[\n true,\n false]", "tensor<2xi1>", np.array([True, False])),
        ("[255, -128, 0x0F]", "tensor<3xi8>", np.array([-1, -128, 15], np.int8)),
        ("[255, 0]", "tensor<2xui8>", np.array([255, 0], np.uint8)),
        ("[-8, 7, 15]", "tensor<3xi4>", np.array([-8, 7, -1], np.int8).astype(ml_dtypes.int4).astype(np.int8)),
        ("[18446744073709551615]", "tensor<1xui64>", np.array([2**64 - 1], np.uint64)),
        ("[(1.0,-2.0), (0.5, 0.0)]", "tensor<2xcomplex<f32>>", np.array([1 - 2j, 0.5], np.complex64)),
        ("(1.0,2.0)", "tensor<2xcomplex<f64>>", np.array([1 + 2j, 1 + 2j])),
        ("[0x7F800000, 0xFF800000]", "tensor<2xf32>", np.array([np.inf, -np.inf], np.float32)),
        ('"0x0000803F00000040"', "tensor<2xf32>", np.array([1, 2], np.float32)),
        ('"0x0000803F"', "tensor<3xf32>", np.ones(3, np.float32)),
        ('"0x010001"', "tensor<3xi1>", np.array([True, False, True])),
        ('"0xFF03"', "tensor<10xi1>", np.ones(10, bool)),
        ("", "tensor<0x3xf32>", np.zeros((0, 3), np.float32)),
        ("[]", "tensor<0xf32>", np.zeros(0, np.float32)),
        ("[[], []]", "tensor<2x0xf32>", np.zeros((2, 0), np.float32)),
        ("7", "tensor<2x2xi16>", np.full((2, 2), 7, np.int16)),
    ],
)
def test_values(body: str, type: str, expected: Array) -> None:
    """Spelling and meaning."""
    found = constant(body, type)
    assert found.array.dtype == expected.dtype
    np.testing.assert_array_equal(found.array, expected)
    assert again(found) == found


def test_bits_of_special_floats_survive() -> None:
    """Payload and sign of NaN, negative zero, denormals."""
    bits = np.array([0x7FC00001, 0xFFC00000, 0x80000000, 1, 0x7F800000, 0x3DCCCCCD], np.uint32)
    value = Dense(tensor((6,), "f32"), bits.view(np.float32))
    np.testing.assert_array_equal(again(value).array.view(np.uint32), bits)


@pytest.mark.parametrize(
    "name", [row.name for row in element_types() if isinstance(row, FloatFormat) and row.bits <= 16]
)
def test_every_pattern_of_narrow_floats_survives(name: str) -> None:
    """As a list of decimals and as hexadecimal bytes."""
    row = element_type(name)
    assert isinstance(row, FloatFormat)
    patterns = np.arange(1 << row.bits, dtype=row.storage_bits)
    for part in np.array_split(patterns, max(1, patterns.size // 64))[:: max(1, patterns.size // 4096)]:
        value = Dense(tensor((part.size,), name), part.view(row.storage))
        np.testing.assert_array_equal(again(value).array.view(row.storage_bits), part)
    value = Dense(tensor((patterns.size,), name), patterns.view(row.storage))
    np.testing.assert_array_equal(again(value).array.view(row.storage_bits), patterns)


@pytest.mark.parametrize("name", ["bf16", "f16", "f8E4M3FN", "f8E5M2"])
def test_decimals_round_once(name: str) -> None:
    """Not by way of f32: just above the tie between two neighbours the upper one is nearer."""
    row = element_type(name)
    assert isinstance(row, FloatFormat)
    tie = 1 + 2.0 ** -(row.mantissa_bits + 1)
    above = tie + 2.0**-40
    assert float(np.float32(above)) == tie
    found = constant(f"[{tie!r}, {above!r}, {-above!r}]", f"tensor<3x{name}>").array.astype(np.float64)
    step = 2.0**-row.mantissa_bits
    np.testing.assert_array_equal(found, [1, 1 + step, -1 - step])


def test_a_splat_takes_no_memory_and_equals_its_list() -> None:
    """Even of a type that would not fit."""
    huge = constant("1.0", "tensor<100000x100000xf32>")
    assert huge.is_splat and huge.array.strides == (0, 0)
    assert constant("2.0", "tensor<3xf32>") == constant("[2.0, 2.0, 2.0]", "tensor<3xf32>")
    assert constant("0.0", "tensor<3xf32>") != constant("-0.0", "tensor<3xf32>")


def test_arrays_are_read_only() -> None:
    """Lists, splats and bytes."""
    for body in ("[1, 2]", "1", '"0x0100000002000000"'):
        with pytest.raises(ValueError, match="read-only"):
            constant(body, "tensor<2xi32>").array[0] = 5


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=130))
def test_floats_survive(values: list[float]) -> None:
    """Any f32, by decimals or bytes."""
    array = np.array(values, np.float32)
    found = again(Dense(tensor(array.shape, "f32"), array))
    np.testing.assert_array_equal(found.array.view(np.uint32), array.view(np.uint32))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=130))
def test_integers_survive(values: list[int]) -> None:
    """Any i64."""
    array = np.array(values, np.int64)
    np.testing.assert_array_equal(again(Dense(tensor(array.shape, "i64"), array)).array, array)


@pytest.mark.parametrize("name", ["f32", "f64", "f16", "bf16", "f8E4M3FN", "i1", "i4", "ui8", "i64", "complex<f32>"])
@pytest.mark.parametrize("count", [6, 150])
def test_mlir_reads_the_same_elements(name: str, count: int, mlir_reads: Callable[[str], str]) -> None:
    """Short lists and hexadecimal ones: MLIR prints ours as it prints what we printed from its text."""
    row = element_type(name)
    numbers = np.random.default_rng(0).integers(-8 if name != "i1" else 0, 8 if name != "i1" else 2, count)
    if name == "ui8":
        numbers = abs(numbers)
    array = (numbers / 3 if row.name[0] in "fbc" else numbers).astype(row.storage)
    value = Dense(tensor((2, count // 2), row), array.reshape(2, -1))
    text = f"func.func @f() {{\n  %0 = stablehlo.constant {print_dense(value)}\n  return\n}}"
    read = mlir_reads(text)
    assert mlir_reads(print_module(parse_module(read))) == read
    instruction = parse_module(read).functions["f"].body.first
    assert instruction is not None
    assert instruction.attributes["value"] == value


def test_long_lists_are_read_in_pieces() -> None:
    """More than one piece of a megabyte, with elements of changing width across the seams."""
    values = np.random.default_rng(1).integers(-(2**31), 2**31, 300_000).astype(np.int32)
    body = f"[{', '.join(map(str, values.tolist()))}]"
    assert len(body) > 3 << 20
    np.testing.assert_array_equal(constant(body, "tensor<300000xi32>").array, values)
    floats = values.astype(np.float64) / 7
    body = f"[{','.join(map(repr, floats.tolist()))}]"
    np.testing.assert_array_equal(constant(body, "tensor<300000xf64>").array, floats)
