"""Conversions of vectors of floats to integers saturate, NaN gives 0, and they are vector instructions."""

from __future__ import annotations

import math
from fractions import Fraction

import hlojit
import numpy as np
import pytest
from hlojit.ir.formats import IntegerType, element_type

INTEGERS = ("i4", "ui4", "i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64")


def floats(dtype: np.dtype, row: IntegerType) -> np.ndarray:
    """Both ends of the range and their neighbours, halves, special numbers."""
    ends = np.array([row.minimum, row.minimum - 1, row.maximum, row.maximum + 1, 0, 1, -1, 1 << 24], np.float64).astype(
        dtype
    )
    beside = [np.nextafter(ends, dtype.type(direction)) for direction in (-np.inf, np.inf)]
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40, 3e38, -3e38, 0.5, -0.5, 2.5, -2.5], dtype)
    return np.concatenate([ends, *beside, ends + dtype.type(0.5), ends - dtype.type(0.5), special])


def expected(value: float, row: IntegerType) -> int:
    if math.isnan(value):
        return 0
    whole = math.trunc(Fraction(value)) if math.isfinite(value) else int(math.copysign(2**70, value))
    return min(max(whole, row.minimum), row.maximum)


@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("target", INTEGERS)
def test_conversions_saturate(source: str, target: str) -> None:
    row = element_type(target)
    assert isinstance(row, IntegerType)
    values = floats(np.dtype(source.replace("f32", "f4").replace("f64", "f8")), row)
    values = np.concatenate([values] * 3)
    text = f"""func.func @main(%x: tensor<{values.size}x{source}>) -> tensor<{values.size}x{target}> {{
  %0 = stablehlo.convert %x : (tensor<{values.size}x{source}>) -> tensor<{values.size}x{target}>
  return %0 : tensor<{values.size}x{target}>
}}"""
    found = hlojit.compile(text)(values)
    assert [int(each) for each in found] == [expected(float(value), row) for value in values]


@pytest.mark.parametrize("target", ["i8", "ui8", "i16", "i32"])
def test_vectors_stay_vectors(target: str) -> None:
    """Not one conversion for each element."""
    from hlojit import compiler
    from hlojit.cpu.inspection import assembly_of
    from hlojit.cpu.processor import host_target
    from hlojit.extensions import CompileOptions, registry
    from hlojit.llvm.fusion_emitter import emit_fusion

    machine = host_target()
    if not machine.is_x86 or not machine.has_feature("avx2"):
        pytest.skip("reads x86 assembly")
    module = hlojit.parse(f"""func.func @main(%x: tensor<1024xf32>) -> tensor<1024x{target}> {{
  %0 = stablehlo.convert %x : (tensor<1024xf32>) -> tensor<1024x{target}>
  return %0 : tensor<1024x{target}>
}}""")
    compiler.lower(module, registry().backend("cpu"), CompileOptions())
    first = module.main.body.first
    assert first is not None
    assembly = assembly_of(emit_fusion(first, machine, "kernel"))
    assert "cvttps2dq" in assembly and "cvttss2si" not in assembly
