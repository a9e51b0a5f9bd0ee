"""Products of quantized numbers against exact integers and fractions.

What is allowed: the nearest integer to the exact number, or the other one beside it where that number is as near to the
middle of both as the roundings of f32 (f64, where that is expressed) may have moved it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import hlojit
import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from .conftest import Run, run_on
from .oracle import LIMITS, Quantization, quantizations, rounded, stored

SOME = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def differences(quantization: Quantization, values: np.ndarray) -> np.ndarray:
    """Stored integers less zero points."""
    zeros = np.array(quantization.zeros)
    if quantization.axis is not None:
        zeros = zeros.reshape([-1 if d == quantization.axis else 1 for d in range(values.ndim)])
    return np.asarray(values.astype(np.int64) - zeros)


def scale_at(quantization: Quantization, number: int) -> Fraction:
    """A scale in the expressed type."""
    found = rounded(Fraction(quantization.scales[number]), quantization.expressed)
    assert isinstance(found, Fraction)
    return found


def check(
    found: np.ndarray, sums: np.ndarray, lhs: Quantization, rhs: Quantization, result: Quantization, dimension: int
) -> None:
    """``found`` against sums of products of integers; ``dimension`` of the result is that of rhs's scales."""
    assert (found.dtype, found.shape) == (result.dtype, sums.shape)
    unit = Fraction(2) ** (-52 if lhs.expressed == "f64" else -23)
    for index in np.ndindex(sums.shape):
        own = 0 if result.axis is None else index[result.axis]
        side = 0 if rhs.axis is None else index[dimension]
        scaled = int(sums[index]) * scale_at(lhs, 0) * scale_at(rhs, side) / scale_at(result, own)
        moved = scaled + result.zeros[own]
        error = unit * 3 * (abs(scaled) + abs(moved))
        ends = [min(max(round(moved + sign * error), result.low), result.high) for sign in (-1, 1)]
        assert ends[0] <= int(found[index]) <= ends[1], (index, int(found[index]), float(moved))


@pytest.mark.parametrize("storage", ["i4", "ui4", "i8", "ui8", "i16", "ui16"])
@SOME
@given(data=st.data())
def test_dot_general(run: Run, storage: str, data: st.DataObject) -> None:
    """Batched, per tensor and per axis, of results with many storage types."""
    batch, rows, depth, columns = (data.draw(st.integers(1, size)) for size in (2, 8, 24, 9))
    expressed = data.draw(st.sampled_from(["f32", "f32", "bf16", "f64"]))
    axis = data.draw(st.sampled_from([None, 0, 2]))
    lhs = data.draw(quantizations(storage, expressed))
    sizes = {0: batch, 2: columns}
    rhs = data.draw(quantizations(storage, expressed, axis=axis if axis is None else (axis, sizes[axis]), zero=0))
    per_axis = axis is not None and data.draw(st.booleans())
    result = data.draw(
        quantizations(None, expressed, axis=(axis, sizes[axis]) if per_axis and axis is not None else None)
    )
    a, b = stored(data.draw, lhs, batch, rows, depth), stored(data.draw, rhs, batch, depth, columns)
    assume(not any(rhs.zeros))  # the storage range has a 0
    types = [lhs.type(batch, rows, depth), rhs.type(batch, depth, columns), result.type(batch, rows, columns)]
    text = f"""func.func @main(%a: {types[0]}, %b: {types[1]}) -> {types[2]} {{
  %0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1] : ({types[0]}, {types[1]}) -> {types[2]}
  return %0 : {types[2]}
}}"""
    (found,) = run(text, a, b)
    check(found, differences(lhs, a) @ differences(rhs, b), lhs, rhs, result, axis or 0)


def convolution_text(lhs: str, rhs: str, result: str, window: str, groups: tuple[int, int] = (1, 1)) -> str:
    return f"""func.func @main(%a: {lhs}, %b: {rhs}) -> {result} {{
  %0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {window}
    {{feature_group_count = {groups[0]} : i64, batch_group_count = {groups[1]} : i64}} : ({lhs}, {rhs}) -> {result}
  return %0 : {result}
}}"""


def convolved(a: np.ndarray, b: np.ndarray, **options: Any) -> np.ndarray:
    """JAX's convolution of integers."""
    numbers = ("NHWC", "HWIO", "NHWC")
    found = jax.lax.conv_general_dilated(a.astype(np.int32), b.astype(np.int32), dimension_numbers=numbers, **options)
    return np.asarray(found)


@pytest.mark.parametrize("storage", ["i4", "i8", "ui8"])
@SOME
@given(data=st.data())
def test_convolution(run: Run, storage: str, data: st.DataObject) -> None:
    """Padding stands for the number 0, whatever the zero point; groups, strides and dilations."""
    groups = data.draw(st.sampled_from([1, 2]))
    features, outputs = groups * data.draw(st.integers(1, 3)), groups * data.draw(st.integers(1, 3))
    strides = tuple(data.draw(st.integers(1, 2)) for _ in range(2))
    padding = tuple((data.draw(st.integers(-1, 2)), data.draw(st.integers(-1, 2))) for _ in range(2))
    bases = tuple(data.draw(st.integers(1, 2)) for _ in range(2))
    dilations = tuple(data.draw(st.integers(1, 2)) for _ in range(2))
    lhs = data.draw(quantizations(storage))
    zero = data.draw(st.sampled_from([None, 0, 128]))
    rhs = data.draw(quantizations(storage, axis=data.draw(st.sampled_from([None, (3, outputs)])), zero=zero))
    per_axis = rhs.axis is not None and data.draw(st.booleans())
    result = data.draw(quantizations(None, axis=(3, outputs) if per_axis else None))
    a, b = stored(data.draw, lhs, 2, 6, 5, features), stored(data.draw, rhs, 2, 3, features // groups, outputs)
    sums = convolved(
        differences(lhs, a), differences(rhs, b), window_strides=strides, padding=padding, lhs_dilation=bases,
        rhs_dilation=dilations, feature_group_count=groups,
    )  # fmt: skip
    window = f"{{stride = {list(strides)}, pad = {list(map(list, padding))}, lhs_dilate = {list(bases)}, rhs_dilate = {list(dilations)}}}"
    text = convolution_text(lhs.type(*a.shape), rhs.type(*b.shape), result.type(*sums.shape), window, (groups, 1))
    check(run(text, a, b)[0], sums, lhs, rhs, result, 3)


def test_groups_of_the_batch(run: Run) -> None:
    lhs = Quantization("i8", "f32", (0.5,), (7,), -128, 127)
    rhs = Quantization("i8", "f32", (0.25,), (-9,), -128, 127)
    result = Quantization("i8", "f32", (40.0,), (3,), -128, 127)
    generator = np.random.default_rng(0)
    a, b = (generator.integers(-128, 128, shape).astype(np.int8) for shape in ((4, 5, 5, 3), (3, 3, 3, 6)))
    sums = convolved(
        differences(lhs, a), differences(rhs, b), window_strides=(1, 1), padding=((1, 1), (1, 1)), batch_group_count=2
    )
    text = convolution_text(
        lhs.type(*a.shape), rhs.type(*b.shape), result.type(*sums.shape), "{pad = [[1, 1], [1, 1]]}", (1, 2)
    )
    check(run(text, a, b)[0], sums, lhs, rhs, result, 3)


@pytest.mark.parametrize("depth", [33025, 40000])
def test_sums_beyond_32_bits(run: Run, depth: int) -> None:
    """Extremes over long sums leave i32; the result is scaled from the exact sum."""
    lhs = Quantization("ui8", "f32", (0.5,), (0,), 0, 255)
    rhs = Quantization("ui8", "f32", (0.5,), (0,), 0, 255)
    result = Quantization("i32", "f32", (1.0,), (5,), -(2**31), 2**31 - 1)
    a, b = np.full((1, depth), 255, np.uint8), np.full((depth, 2), 255, np.uint8)
    types = lhs.type(1, depth), rhs.type(depth, 2), result.type(1, 2)
    text = f"""func.func @main(%a: {types[0]}, %b: {types[1]}) -> {types[2]} {{
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({types[0]}, {types[1]}) -> {types[2]}
  return %0 : {types[2]}
}}"""
    check(run(text, a, b)[0], np.full((1, 2), 255 * 255 * depth), lhs, rhs, result, 0)


def test_accumulators_of_32_bits_are_exact(run: Run) -> None:
    """A result of the products' own scale is the sum, to its last bit, and saturates where the zero point takes it beyond."""
    lhs = Quantization("i8", "f32", (0.1,), (3,), -128, 127)
    rhs = Quantization("i8", "f32", (0.3,), (0,), -128, 127)
    scale = float(np.float32(0.1)) * float(np.float32(0.3))
    result = Quantization("i32", "f32", (scale,), (2**31 - 100,), -(2**31), 2**31 - 1)
    generator = np.random.default_rng(1)
    a, b = (generator.integers(-128, 128, shape).astype(np.int8) for shape in ((5, 700), (700, 6)))
    types = lhs.type(5, 700), rhs.type(700, 6), result.type(5, 6)
    text = f"""func.func @main(%a: {types[0]}, %b: {types[1]}) -> {types[2]} {{
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({types[0]}, {types[1]}) -> {types[2]}
  return %0 : {types[2]}
}}"""
    sums = differences(lhs, a) @ b.astype(np.int64)
    np.testing.assert_array_equal(run(text, a, b)[0], np.clip(sums + 2**31 - 100, -(2**31), 2**31 - 1))
    plain = text.replace(f":{2**31 - 100}>", ":0>")
    np.testing.assert_array_equal(run(plain, a, b)[0], sums)


@pytest.mark.parametrize("expressed", ["f32", "f64"])
def test_hybrid_products(run_everywhere: Run, expressed: str) -> None:
    """Floats by quantized weights: the weights are dequantized."""
    rhs = Quantization("i8", expressed, (0.5, 0.25, 2.0), (0, 0, 0), -128, 127, 1)
    generator = np.random.default_rng(2)
    a = generator.normal(size=(4, 6)).astype(expressed.replace("f32", "f4").replace("f64", "f8"))
    b = generator.integers(-128, 128, (6, 3)).astype(np.int8)
    floats = f"tensor<4x6x{expressed}>", f"tensor<4x3x{expressed}>"
    text = f"""func.func @main(%a: {floats[0]}, %b: {rhs.type(6, 3)}) -> {floats[1]} {{
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({floats[0]}, {rhs.type(6, 3)}) -> {floats[1]}
  return %0 : {floats[1]}
}}"""
    expected = a.astype(np.float64) @ (b * np.array([0.5, 0.25, 2.0]))
    (found,) = run_everywhere(text, a, b)
    assert found.dtype == a.dtype
    np.testing.assert_allclose(
        found, expected, rtol=1e-5 if expressed == "f32" else 1e-13, atol=1e-4 if expressed == "f32" else 1e-12
    )


def test_hybrid_convolution(run_everywhere: Run) -> None:
    rhs = Quantization("i8", "f32", (0.5,), (20,), -128, 127)
    generator = np.random.default_rng(3)
    a, b = (
        generator.integers(-8, 9, (1, 5, 5, 2)).astype(np.float32),
        generator.integers(-128, 128, (3, 3, 2, 4)).astype(np.int8),
    )
    text = convolution_text(
        "tensor<1x5x5x2xf32>", rhs.type(3, 3, 2, 4), "tensor<1x5x5x4xf32>", "{pad = [[1, 1], [1, 1]]}"
    )
    sums = convolved(a, differences(rhs, b), window_strides=(1, 1), padding=((1, 1), (1, 1)))
    np.testing.assert_array_equal(run_everywhere(text, a, b)[0], (sums * 0.5).astype(np.float32))


@pytest.mark.parametrize("zero", [0, 5])
def test_products_on_every_back_end(run_everywhere: Run, zero: int) -> None:
    """The same bits on the CPU, on machines with threads and by the reference."""
    lhs = Quantization("i8", "f32", (0.5,), (zero,), -128, 127)
    rhs = Quantization("i8", "f32", (0.25, 0.5, 0.125, 1.0), (0,) * 4, -128, 127, 1)
    result = Quantization("i8", "f32", (40.0,), (3,), -128, 127)
    generator = np.random.default_rng(4)
    a, b = (generator.integers(-128, 128, shape).astype(np.int8) for shape in ((16, 32), (32, 4)))
    types = lhs.type(16, 32), rhs.type(32, 4), result.type(16, 4)
    text = f"""func.func @main(%a: {types[0]}, %b: {types[1]}) -> {types[2]} {{
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({types[0]}, {types[1]}) -> {types[2]}
  %1 = stablehlo.add %0, %0 : {types[2]}
  return %1 : {types[2]}
}}"""
    found = run_everywhere(text, a, b)[0]
    np.testing.assert_array_equal(found, run_on("reference", text, a, b)[0])
    assert len(np.unique(found)) > 8


def test_products_stay_products_of_bytes() -> None:
    """Integers of 8 bits are multiplied as such, with 32-bit sums, and corrected by sums of columns."""
    from hlojit import compiler
    from hlojit.extensions import CompileOptions, registry

    lhs = Quantization("ui8", "f32", (0.5,), (100,), *LIMITS["ui8"])
    rhs = Quantization("ui8", "f32", (0.25,), (0,), *LIMITS["ui8"])
    types = lhs.type(16, 32), rhs.type(32, 8), lhs.type(16, 8)
    module = hlojit.parse(f"""func.func @main(%a: {types[0]}, %b: {types[1]}) -> {types[2]} {{
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({types[0]}, {types[1]}) -> {types[2]}
  return %0 : {types[2]}
}}""")
    compiler.lower(module, registry().backend("cpu"), CompileOptions())
    (product,) = [each for each in module.walk() if each.op.name == "stablehlo.dot_general"]
    assert [type.element_type.name for type in product.operand_types] == ["i8", "i8"]
    assert product.results[0].tensor_type.element_type.name == "i32"


def test_convolutions_of_bytes_become_products() -> None:
    """Windows are laid out, and multiplied in a product of matrices; a convolution in groups stays one."""
    from hlojit import compiler
    from hlojit.extensions import CompileOptions, registry

    for groups, expected in ((1, "stablehlo.dot_general"), (2, "stablehlo.convolution")):
        text = convolution_text(
            "tensor<1x8x8x4xi8>", f"tensor<3x3x{4 // groups}x8xi8>", "tensor<1x6x6x8xi32>", "{}", (groups, 1)
        )
        module = hlojit.parse(text)
        compiler.lower(module, registry().backend("cpu"), CompileOptions())
        found = [each.op.name for each in module.walk()]
        assert expected in found and ("stablehlo.convolution" in found) == (groups == 2)
