"""NVIDIA's conversions of narrow floats: the bits of our rules, for all numbers that can be told apart."""

from __future__ import annotations

from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.cuda.assemblers.choice import NAMES, assembler
from hlojit.cuda.nvptx import SM_80, SM_90, NvptxDialect
from hlojit.extensions import CompileOptions, registry
from hlojit.lowering.target import Target
from hlojit.simt.kernels import emit_kernel

from .ptx_machine import PtxMachine

Array = np.ndarray[Any, Any]
ASSEMBLERS = pytest.mark.parametrize("name", NAMES)
FORMATS = {"bf16": ml_dtypes.bfloat16, "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2}
INSTRUCTIONS = {"bf16": "cvt.rn.bf16x2.f32", "f8E4M3FN": "cvt.rn.satfinite.e4m3x2.f32"}
INSTRUCTIONS |= {"f8E5M2": "cvt.rn.satfinite.e5m2x2.f32"}


def ptx_of(text: str, name: str, target: Target, capability: tuple[int, int]) -> tuple[str, Any]:
    module = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions())
    (instruction,) = [each for each in module.main.body if each.name not in ("stablehlo.return", "func.return")]
    code = emit_kernel(instruction, target, NvptxDialect(capability), "kernel")
    return assembler(name).ptx(code, target), code.phases[0]


def converted(values: Array, source: str, target: str, result: Any, name: str) -> Array:
    a, b = f"tensor<{values.size}x{source}>", f"tensor<{values.size}x{target}>"
    text = f"func.func @main(%x: {a}) -> {b} {{ %0 = stablehlo.convert %x : ({a}) -> {b}\n return %0 : {b} }}"
    ptx, phase = ptx_of(text, name, SM_90, (9, 0))
    if source == "f32":
        assert INSTRUCTIONS[target] in ptx
    made = np.zeros(values.size, result)
    PtxMachine(ptx).run("kernel", blocks=phase.tasks, threads=phase.threads, buffers=[values, made])
    return made


def same_numbers(made: Array, expected: Array) -> None:
    nan = [np.isnan(each.astype("f4")) for each in (made, expected)]
    np.testing.assert_array_equal(*nan)
    bits = [np.where(nan[0], 0, each.view(f"u{each.dtype.itemsize}")) for each in (made, expected)]
    np.testing.assert_array_equal(*bits)


@pytest.mark.slow
@ASSEMBLERS
@pytest.mark.parametrize("format", FORMATS)
def test_every_number_becomes_what_the_rule_makes_of_it(format: str, name: str) -> None:
    """All upper halves of f32 with those lower ones around which something happens."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    values = np.concatenate([upper | np.uint32(low) for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]).view(np.float32)
    with np.errstate(all="ignore"):
        expected = values.astype(FORMATS[format])
    same_numbers(converted(values, "f32", format, FORMATS[format], name), expected)


@ASSEMBLERS
@pytest.mark.parametrize("format", FORMATS)
def test_numbers_around_the_largest_one(format: str, name: str) -> None:
    largest = np.float32(ml_dtypes.finfo(FORMATS[format]).max)
    with np.errstate(over="ignore"):
        steps = [largest * np.float32(1 + k / 256) for k in range(-8, 40)]
    edges = [np.nextafter(np.float32(edge), np.float32(way)) for edge in (464, 61440) for way in (0, np.inf)]
    values = np.array([*steps, *edges, 464, 61440, np.inf, np.nan, 0, 1e-45, 2.0**-10, 2.0**-17], np.float32)
    values = np.concatenate([values, -values])
    with np.errstate(all="ignore"):
        expected = values.astype(FORMATS[format])
    same_numbers(converted(values, "f32", format, FORMATS[format], name), expected)


@ASSEMBLERS
@pytest.mark.parametrize("format", ["f8E4M3FN", "f8E5M2"])
def test_every_code_is_read(format: str, name: str) -> None:
    codes = np.arange(256, dtype=np.uint8).view(FORMATS[format])
    same_numbers(converted(codes, format, "f32", np.float32, name), codes.astype(np.float32))


@ASSEMBLERS
def test_older_gpus_and_other_formats_compute(name: str) -> None:
    for format, target, capability in (
        ("f8E4M3FN", SM_80, (8, 0)),
        ("f8E4M3FNUZ", SM_90, (9, 0)),
        ("f8E4M3", SM_90, (9, 0)),
    ):
        a, b = "tensor<64xf32>", f"tensor<64x{format}>"
        text = f"func.func @main(%x: {a}) -> {b} {{ %0 = stablehlo.convert %x : ({a}) -> {b}\n return %0 : {b} }}"
        ptx, _ = ptx_of(text, name, target, capability)
        assert "cvt.rn.satfinite" not in ptx


def test_rounding_between_operations_is_an_instruction_too() -> None:
    kind = "tensor<4096xbf16>"
    text = f"""
    func.func @main(%x: {kind}, %y: {kind}) -> {kind} {{
      %0 = stablehlo.multiply %x, %y : {kind}
      %1 = stablehlo.add %0, %x : {kind}
      return %1 : {kind}
    }}"""
    for name in NAMES:
        ptx, _ = ptx_of(text, name, SM_90, (9, 0))
        assert ptx.count("cvt.rn.bf16x2.f32") >= 2
