"""Matrix instructions as both assemblers write them, interpreted: small whole numbers, whose sums are exact in any order."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import ml_dtypes
import numpy as np
import pytest
from hlojit.cuda.assemblers.assembler import entry_name
from hlojit.cuda.assemblers.choice import assembler
from hlojit.cuda.assemblers.cubin import cubin_of, unavailable
from hlojit.cuda.nvptx import SM_80, SM_90, NvptxDialect
from hlojit.simt.kernels import emit_kernel

from .ptx_machine import PtxMachine
from .test_ptx_meaning import ASSEMBLERS, DTYPES, interpreted


@ASSEMBLERS
@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("bf16", "bf16", "f32"),
        ("f16", "f16", "f16"),
        ("f16", "bf16", "f32"),
        ("i8", "i8", "i32"),
        ("ui8", "ui8", "ui32"),
        ("f8E4M3FN", "bf16", "f32"),
    ],
)
@pytest.mark.parametrize("transposed", [False, True])
def test_products(name: str, left: str, right: str, result: str, transposed: bool) -> None:
    m, n, k = 70, 90, 50
    a, b = (f"{k}x{m}", f"{n}x{k}") if transposed else (f"{m}x{k}", f"{k}x{n}")
    dims = "[0] x [1]" if transposed else "[1] x [0]"
    text = f"""
    func.func @main(%x: tensor<{a}x{left}>, %y: tensor<{b}x{right}>) -> tensor<{m}x{n}x{result}> {{
      %0 = stablehlo.dot_general %x, %y, contracting_dims = {dims}
        : (tensor<{a}x{left}>, tensor<{b}x{right}>) -> tensor<{m}x{n}x{result}>
      return %0 : tensor<{m}x{n}x{result}>
    }}"""
    draw = np.random.default_rng(9)
    low = 0 if right.startswith("ui") else -7
    shapes = [tuple(map(int, each.split("x"))) for each in (a, b)]
    x, y = (
        draw.integers(low, 7, shape).astype(DTYPES.get(element, ml_dtypes.bfloat16))
        for shape, element in zip(shapes, (left, right))
    )
    interpreted(text, name, x, y)


@ASSEMBLERS
def test_a_convolution(name: str) -> None:
    text = """
    func.func @main(%x: tensor<2x7x6x16xbf16>, %y: tensor<3x3x16x24xbf16>) -> tensor<2x7x6x24xf32> {
      %0 = stablehlo.convolution(%x, %y) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<2x7x6x16xbf16>, tensor<3x3x16x24xbf16>) -> tensor<2x7x6x24xf32>
      return %0 : tensor<2x7x6x24xf32>
    }"""
    draw = np.random.default_rng(9)
    interpreted(
        text,
        name,
        *(draw.integers(-4, 4, shape).astype(ml_dtypes.bfloat16) for shape in ((2, 7, 6, 16), (3, 3, 16, 24))),
    )


ALGORITHM = (
    ", algorithm = #stablehlo.dot_algorithm<lhs_precision_type = {0}, rhs_precision_type = {0}, accumulation_type = f32, "
    "lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = {1}>"
)


def machine_and_result(
    name: str, types: tuple[str, str, str], operands: tuple[Any, Any], transposed: bool, algorithm: str = ""
) -> tuple[PtxMachine, Any]:
    """A product of one large tile: the machine that ran it, and what it found."""
    x, y = operands
    lhs, rhs = (0, 1) if transposed else (1, 0)
    shape = (x.shape[1 - lhs], y.shape[1 - rhs])
    kinds = [f"tensor<{a}x{b}x{each}>" for (a, b), each in zip((x.shape, y.shape, shape), types)]
    dims = f"lhs_contracting_dimensions = [{lhs}], rhs_contracting_dimensions = [{rhs}]"
    text = f"""func.func @main(%x: {kinds[0]}, %y: {kinds[1]}) -> {kinds[2]} {{
      %0 = "stablehlo.dot_general"(%x, %y) {{dot_dimension_numbers = #stablehlo.dot<{dims}>{algorithm}}}
        : ({kinds[0]}, {kinds[1]}) -> {kinds[2]}
      return %0 : {kinds[2]} }}"""
    target = SM_80 if name == "numba" else SM_90
    assert target.grid is not None
    target = replace(target, grid=replace(target.grid, multiprocessors=1))
    instruction = next(iter(hlojit.parse(text).main.body))
    code = emit_kernel(instruction, target, NvptxDialect((8, 0) if name == "numba" else (9, 0)), "kernel")
    machine = PtxMachine(assembler(name).ptx(code, target))
    (phase,) = code.phases
    result = np.zeros(shape, np.int32 if types[2] == "i32" else DTYPES[types[2]])
    threads, buffers = phase.threads, [x, y, result]
    machine.run(
        entry_name("kernel"), blocks=phase.tasks, threads=threads, buffers=buffers, shared_bytes=phase.shared_bytes
    )
    return machine, result


@ASSEMBLERS
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("element", "result", "algorithm"),
    [
        ("bf16", "bf16", ""),
        ("f16", "f32", ""),
        ("f32", "f32", ALGORITHM.format("tf32", "false")),
        ("i8", "i32", ""),
        ("f8E4M3FN", "f32", ALGORITHM.format("f8E4M3FN", "true")),
    ],
)
def test_no_two_lanes_meet_in_a_bank(name: str, element: str, result: str, algorithm: str, transposed: bool) -> None:
    """What is copied, read as fragments, left and fetched as results; rows that are no pieces are left one by one."""
    draw = np.random.default_rng(4)
    x, y = (draw.integers(-4, 4, (64, 64)).astype(DTYPES[element]) for _ in range(2))
    machine, found = machine_and_result(name, (element, element, result), (x, y), transposed, algorithm)
    wide = x.astype(int).T @ y.astype(int).T if transposed else x.astype(int) @ y.astype(int)
    np.testing.assert_array_equal(found.astype(int), wide.astype(found.dtype).astype(int))
    assert not machine.conflicts.total(), machine.conflicts
    assert machine.accesses["cp"] and machine.accesses["st"]


@pytest.mark.skipif(bool(unavailable()), reason="machine code needs nvJitLink")
@ASSEMBLERS
def test_machine_code_of_products_of_8_bits(name: str) -> None:
    """Their instructions are newer than the GPUs that have them."""
    algorithm = ALGORITHM.format("f8E4M3FN", "true")
    text = f"""func.func @main(%x: tensor<64x64xf8E4M3FN>, %y: tensor<64x64xf8E4M3FN>) -> tensor<64x64xf32> {{
      %0 = "stablehlo.dot_general"(%x, %y) {{dot_dimension_numbers = #stablehlo.dot<
        lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>{algorithm}}}
        : (tensor<64x64xf8E4M3FN>, tensor<64x64xf8E4M3FN>) -> tensor<64x64xf32>
      return %0 : tensor<64x64xf32> }}"""
    code = emit_kernel(next(iter(hlojit.parse(text).main.body)), SM_90, NvptxDialect((9, 0)), "kernel")
    ptx = assembler(name).ptx(code, SM_90)
    assert "e4m3.e4m3" in ptx and not any(usage.spills for usage in cubin_of(ptx, SM_90).usages.values())


FORMATS = {
    "f6": ext.FloatFormat(
        "test", exponent_bits=3, mantissa_bits=2, bias=3, has_infinity=False,
        nan=ext.NanEncoding.NONE, overflow=ext.Overflow.SATURATE,
    ),
    "three mantissa bits": ext.FloatFormat(
        "test", exponent_bits=2, mantissa_bits=3, bias=1, has_infinity=False,
        nan=ext.NanEncoding.NONE, overflow=ext.Overflow.SATURATE,
    ),
    "f4": ext.FloatFormat(
        "test", exponent_bits=2, mantissa_bits=1, bias=1, has_infinity=False,
        nan=ext.NanEncoding.NONE, overflow=ext.Overflow.SATURATE,
    ),
    "small numbers": ext.FloatFormat(
        "test", exponent_bits=4, mantissa_bits=3, bias=20, has_infinity=False,
        nan=ext.NanEncoding.NONE, overflow=ext.Overflow.SATURATE,
    ),
    "one NaN": ext.FloatFormat(
        "test", exponent_bits=4, mantissa_bits=3, bias=7, has_infinity=False,
        nan=ext.NanEncoding.ALL_ONES, overflow=ext.Overflow.NAN,
    ),
    "IEEE": ext.FloatFormat("test", exponent_bits=5, mantissa_bits=2, bias=15),
    "IEEE, six bits": ext.FloatFormat("test", exponent_bits=3, mantissa_bits=2, bias=3),
}  # fmt: skip


def value_of(code: int, row: ext.FloatFormat) -> float:
    """The number that a code means, from the definition of its fields."""
    code &= (1 << row.bits) - 1
    sign = -1.0 if code >> row.bits - 1 else 1.0
    exponent, mantissa = (
        code >> row.mantissa_bits & ((1 << row.exponent_bits) - 1),
        code & ((1 << row.mantissa_bits) - 1),
    )
    full = exponent == (1 << row.exponent_bits) - 1
    if row.nan is ext.NanEncoding.IEEE and full:
        return np.nan if mantissa else sign * np.inf
    if row.nan is ext.NanEncoding.ALL_ONES and full and mantissa == (1 << row.mantissa_bits) - 1:
        return np.nan
    significand = mantissa + ((1 << row.mantissa_bits) if exponent else 0)
    return float(sign * significand * 2.0 ** (max(exponent, 1) - row.bias - row.mantissa_bits))


@ASSEMBLERS
@pytest.mark.parametrize("case", FORMATS)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_vendors_narrow_float(name: str, case: str, transposed: bool) -> None:
    """Every code (bits beside its own may be anything) where only it is added, the only one of its row."""
    row = FORMATS[case]
    plugin: Any = SimpleNamespace(__name__="test", hlojit_formats=ext.hookimpl(lambda: [row]))
    codes = np.zeros((256, 64), np.uint8)
    codes[np.arange(256), np.arange(256) * 7 % 64] = np.arange(256)
    x = np.ascontiguousarray(codes.T) if transposed else codes
    y = np.ones((64, 64), ml_dtypes.bfloat16)
    with ext.using(plugin):
        machine, found = machine_and_result(name, ("test", "bf16", "f32"), (x, y), transposed)
    numbers = np.array([value_of(code, row) for code in range(256)], np.float32)
    np.testing.assert_array_equal(found, np.repeat(numbers[:, None], 64, 1))
    assert not machine.conflicts["ldmatrix"] and not machine.conflicts["cp"]


@ASSEMBLERS
def test_rounding_to_eleven_bits(name: str) -> None:
    """Halves to even, into the next exponent, to infinity; among subnormal numbers; NaN stays NaN."""
    upper = np.arange(0, 1 << 19, 5003, dtype=np.uint32) << 13
    lower = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF], np.uint32)
    edges = np.array([0x7F7FE000, 0x7F7FF000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32)
    bits = np.concatenate([(upper[:, None] | lower).reshape(-1), edges])
    bits = np.concatenate([bits, np.zeros(-len(bits) % 64, np.uint32)])
    x = np.zeros((len(bits), 64), np.float32)
    x[np.arange(len(bits)), np.arange(len(bits)) % 64] = bits.view(np.float32)
    algorithm = ALGORITHM.format("tf32", "false")
    _, found = machine_and_result(name, ("f32", "f32", "f32"), (x, np.ones((64, 8), np.float32)), False, algorithm)
    values = bits.view(np.float32)
    with np.errstate(all="ignore"):
        exponents = np.maximum(np.frexp(np.where(np.isfinite(values), values, 1))[1], -125)
        scale = np.ldexp(1.0, exponents - 11)
        expected = (np.rint(values.astype(np.float64) / scale) * scale).astype(np.float32)
    expected = np.where(np.isfinite(values), expected, values)
    np.testing.assert_array_equal(found, np.repeat(expected[:, None], 8, 1))
