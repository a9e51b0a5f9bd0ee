"""What the PTX of both assemblers computes, interpreted: the same bits as the CPU back end's."""

from __future__ import annotations

from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.cuda.assemblers.assembler import entry_name
from hlojit.cuda.assemblers.choice import NAMES, assembler
from hlojit.cuda.nvptx import SM_80, SM_90, NvptxDialect
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.ops.definition import Indexed, Kernel, Pointwise, Reduction
from hlojit.simt.kernels import emit_kernel

from .ptx_machine import PtxMachine
from .ptx_numbers import fused

Array = np.ndarray[Any, Any]
ASSEMBLERS = pytest.mark.parametrize("name", NAMES)


def interpreted(text: str, name: str, *arrays: Array, exact: bool = True) -> list[Array]:
    """The results of a program of one kernel whose operands are its arguments; ``exact`` compares them with the CPU's."""
    target = SM_80 if name == "numba" else SM_90
    module = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions())
    kinds = (Kernel, Pointwise, Indexed, Reduction)
    (instruction,) = [each for each in module.main.body if isinstance(each.op.lowering, kinds)]
    code = emit_kernel(instruction, target, NvptxDialect(), "kernel")
    machine = PtxMachine(assembler(name).ptx(code, target))
    expected = [np.asarray(each) for each in _listed(hlojit.compile(text, backend="cpu")(*arrays))]
    results = [np.frombuffer(bytes([0xA5]) * each.nbytes, each.dtype).copy().reshape(each.shape) for each in expected]
    for operand, result in code.in_place:
        if code.updates:
            results[result] = arrays[operand].copy()
    order = [module.main.body.arguments.index(value) for value in instruction.operands]
    operands = [np.ascontiguousarray(arrays[number]) for number in order]
    buffers = [*operands, *results]
    if code.workspace_bytes:
        buffers.append(np.full(code.workspace_bytes, 0xA5, np.uint8))
    for phase in code.phases:
        machine.run(
            entry_name(phase.symbol),
            blocks=phase.tasks,
            threads=phase.threads,
            buffers=buffers,
            shared_bytes=phase.shared_bytes,
        )
    if exact:
        for result, right in zip(results, expected):
            same(result, right)
    return results


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (list, tuple)) else [results]


def same(result: Array, expected: Array) -> None:
    """Bit for bit, any NaN being one."""
    if result.dtype.kind in "fV":
        wide = [each.astype(np.float64) for each in (result, expected)]
        both = np.isnan(wide[0]) & np.isnan(wide[1])
        bits = [np.ascontiguousarray(each).view(f"u{each.dtype.itemsize}") for each in (result, expected)]
        np.testing.assert_array_equal(np.where(both, 0, bits[0]), np.where(both, 0, bits[1]))
    else:
        np.testing.assert_array_equal(result, expected)


DTYPES = {"f64": "f8", "f32": "f4", "f16": "f2", "bf16": ml_dtypes.bfloat16, "f8E4M3FN": ml_dtypes.float8_e4m3fn}
DTYPES |= {
    f"{letter}{bits}": f"{kind}{bits // 8}" for letter, kind in (("i", "i"), ("ui", "u")) for bits in (8, 16, 32, 64)
}
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    0.5,
    1.5,
    2.5,
    -2.5,
    1e-40,
    3e38,
    1e-8,
    127.5,
    1e9,
    -1e9,
    1e19,
    -1e19,
    448.0,
]


def numbers(dtype: str, count: int, seed: int = 0) -> Array:
    """Ordinary numbers and the special ones."""
    kind, draw = np.dtype(DTYPES[dtype]), np.random.default_rng(seed)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        values = draw.integers(limits.min, limits.max, count, kind, endpoint=True)
        values[:4] = limits.min, limits.max, 0, 1
        return values
    values = draw.standard_normal(count) * 10.0 ** draw.integers(-3, 3, count)
    values[: len(SPECIAL)] = SPECIAL
    with np.errstate(all="ignore"):
        return values.astype(kind)


@ASSEMBLERS
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "f8E4M3FN", "i64", "i32", "i8", "ui16"])
def test_arithmetic(dtype: str, name: str) -> None:
    kind = f"tensor<2051x{dtype}>"
    text = f"""
    func.func @main(%x: {kind}, %y: {kind}) -> ({kind}, tensor<2051xi1>) {{
      %0 = stablehlo.multiply %x, %y : {kind}
      %1 = stablehlo.subtract %0, %x : {kind}
      %2 = stablehlo.maximum %1, %y : {kind}
      %3 = stablehlo.compare LT, %2, %x : ({kind}, {kind}) -> tensor<2051xi1>
      return %2, %3 : {kind}, tensor<2051xi1>
    }}"""
    interpreted(text, name, numbers(dtype, 2051), numbers(dtype, 2051, 1)[::-1].copy())


FUNCTIONS = (
    "abs negate exponential exponential_minus_one log log_plus_one tanh sine cosine sqrt rsqrt cbrt floor ceil logistic "
    "round_nearest_even round_nearest_afz sign is_finite"
).split()


@ASSEMBLERS
@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        pytest.param(op, dtype, marks=[pytest.mark.slow] if dtype != "f32" or op not in FUNCTIONS[:8] else [])
        for op in FUNCTIONS
        for dtype in ("f32", "f64", "bf16")
    ],
)
def test_functions(op: str, dtype: str, name: str) -> None:
    kind = f"tensor<300x{dtype}>"
    result = "tensor<300xi1>" if op == "is_finite" else kind
    text = f"func.func @main(%x: {kind}) -> {result} {{ %0 = stablehlo.{op} %x : ({kind}) -> {result}\n return %0 : {result} }}"
    interpreted(text, name, numbers(dtype, 300))


TARGETS = ["f64", "f32", "f16", "bf16", "f8E4M3FN", "i8", "ui8", "i16", "i32", "ui32", "i64", "ui64"]


@ASSEMBLERS
@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param(source, target, marks=[] if target in ("f16", "i8", "ui64") else [pytest.mark.slow])
        for source in ("f32", "f64", "bf16", "i8", "ui64")
        for target in TARGETS
        if source != target
    ],
)
def test_conversions(source: str, target: str, name: str) -> None:
    a, b = f"tensor<260x{source}>", f"tensor<260x{target}>"
    text = f"func.func @main(%x: {a}) -> {b} {{ %0 = stablehlo.convert %x : ({a}) -> {b}\n return %0 : {b} }}"
    interpreted(text, name, numbers(source, 260))


@pytest.mark.slow
@ASSEMBLERS
@pytest.mark.parametrize("op", ["popcnt", "count_leading_zeros", "not", "negate", "sign"])
@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64"])
def test_bits(op: str, dtype: str, name: str) -> None:
    kind = f"tensor<70x{dtype}>"
    text = f"func.func @main(%x: {kind}) -> {kind} {{ %0 = stablehlo.{op} %x : {kind}\n return %0 : {kind} }}"
    interpreted(text, name, numbers(dtype, 70))


@pytest.mark.slow
@ASSEMBLERS
@pytest.mark.parametrize("op", ["divide", "remainder", "shift_left", "shift_right_arithmetic", "shift_right_logical"])
@pytest.mark.parametrize("dtype", ["i8", "i32", "ui32", "i64"])
def test_integers(op: str, dtype: str, name: str) -> None:
    kind = f"tensor<70x{dtype}>"
    text = f"func.func @main(%x: {kind}, %y: {kind}) -> {kind} {{ %0 = stablehlo.{op} %x, %y : {kind}\n return %0 : {kind} }}"
    y = numbers(dtype, 70, 1)
    if op.startswith("shift"):
        y = (y.astype(np.uint64) % np.uint64(np.dtype(DTYPES[dtype]).itemsize * 8 + 3)).astype(y.dtype)
    interpreted(text, name, numbers(dtype, 70), y)


@ASSEMBLERS
@pytest.mark.parametrize("dtype", ["f32", "i8", "bf16"])
def test_transposes_meet_at_barriers(dtype: str, name: str) -> None:
    text = f"""
    func.func @main(%x: tensor<96x130x{dtype}>, %y: tensor<130x96x{dtype}>) -> tensor<130x96x{dtype}> {{
      %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<96x130x{dtype}>) -> tensor<130x96x{dtype}>
      %1 = stablehlo.add %0, %y : tensor<130x96x{dtype}>
      return %1 : tensor<130x96x{dtype}>
    }}"""
    interpreted(text, name, numbers(dtype, 96 * 130).reshape(96, 130), numbers(dtype, 96 * 130, 1).reshape(130, 96))


@ASSEMBLERS
@pytest.mark.parametrize(("shape", "dimension"), [((33, 700), 1), ((700, 33), 0), ((9000,), 0)])
@pytest.mark.parametrize("dtype", ["i32", "i64", "ui8"])
def test_reductions_exchange_between_lanes(shape: tuple[int, ...], dimension: int, dtype: str, name: str) -> None:
    t = f"tensor<{'x'.join(map(str, shape))}x{dtype}>"
    left = [extent for number, extent in enumerate(shape) if number != dimension]
    r = f"tensor<{''.join(f'{extent}x' for extent in left)}{dtype}>"
    text = f"""
    func.func @main(%x: {t}, %i: tensor<{dtype}>) -> {r} {{
      %1 = stablehlo.reduce(%x init: %i) applies stablehlo.add across dimensions = [{dimension}] : ({t}, tensor<{dtype}>) -> {r}
      return %1 : {r}
    }}"""
    interpreted(text, name, numbers(dtype, int(np.prod(shape))).reshape(shape), np.zeros((), DTYPES[dtype]))


@ASSEMBLERS
@pytest.mark.parametrize("combiner", ["add", "maximum", "xor"])
def test_updates_are_atomic(combiner: str, name: str) -> None:
    text = f"""
    func.func @main(%x: tensor<50x7xi32>, %i: tensor<40x1xi32>, %u: tensor<40x7xi32>) -> tensor<50x7xi32> {{
      %0 = "stablehlo.scatter"(%x, %i, %u) ({{
      ^bb0(%a: tensor<i32>, %b: tensor<i32>):
        %1 = stablehlo.{combiner} %a, %b : tensor<i32>
        stablehlo.return %1 : tensor<i32>
      }}) {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
        scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}
        : (tensor<50x7xi32>, tensor<40x1xi32>, tensor<40x7xi32>) -> tensor<50x7xi32>
      return %0 : tensor<50x7xi32>
    }}"""
    places = np.random.default_rng(5).integers(-3, 53, (40, 1)).astype("i4")
    interpreted(text, name, numbers("i32", 350).reshape(50, 7), places, numbers("i32", 280, 1).reshape(40, 7))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_rows_that_are_kept_are_the_same_by_both_assemblers(dtype: str) -> None:
    t, r = f"tensor<5x600x{dtype}>", f"tensor<5x{dtype}>"
    text = f"""
    func.func @main(%x: {t}, %low: tensor<{dtype}>, %zero: tensor<{dtype}>) -> {t} {{
      %0 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : ({t}, tensor<{dtype}>) -> {r}
      %1 = stablehlo.broadcast_in_dim %0, dims = [0] : ({r}) -> {t}
      %2 = stablehlo.subtract %x, %1 : {t}
      %3 = stablehlo.exponential %2 : {t}
      %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [1] : ({t}, tensor<{dtype}>) -> {r}
      %5 = stablehlo.broadcast_in_dim %4, dims = [0] : ({r}) -> {t}
      %6 = stablehlo.divide %3, %5 : {t}
      return %6 : {t}
    }}"""
    kind = np.dtype(DTYPES[dtype])
    x = np.random.default_rng(7).standard_normal((5, 600)).astype(kind)
    arrays = x, np.asarray(-np.inf, kind), np.asarray(0, kind)
    first, second = (interpreted(text, name, *arrays, exact=False)[0] for name in NAMES)
    same(first, second)
    wide = np.exp(x.astype("f8") - x.astype("f8").max(1, keepdims=True))
    right = wide / wide.sum(1, keepdims=True)
    assert np.abs(first.astype("f8") / right - 1).max() < 4 * float(ml_dtypes.finfo(kind).eps)


@ASSEMBLERS
def test_sorting_goes_through_shared_memory(name: str) -> None:
    text = """
    func.func @main(%x: tensor<3x700xf32>) -> tensor<3x700xf32> {
      %0 = "stablehlo.sort"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %1 = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      }) {dimension = 1 : i64, is_stable = true} : (tensor<3x700xf32>) -> tensor<3x700xf32>
      return %0 : tensor<3x700xf32>
    }"""
    interpreted(text, name, numbers("f32", 2100).reshape(3, 700))


@ASSEMBLERS
def test_products_go_through_tiles(name: str) -> None:
    """Small whole numbers, whose sums are exact in any order."""
    text = """
    func.func @main(%x: tensor<70x50xf32>, %y: tensor<50x90xf32>) -> tensor<70x90xf32> {
      %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
        : (tensor<70x50xf32>, tensor<50x90xf32>) -> tensor<70x90xf32>
      return %0 : tensor<70x90xf32>
    }"""
    draw = np.random.default_rng(9)
    interpreted(text, name, *(draw.integers(-9, 9, shape).astype("f4") for shape in ((70, 50), (50, 90))))


def test_the_interpreter_fuses_with_one_rounding() -> None:
    """Against exact fractions, of both types."""
    from fractions import Fraction

    draw = np.random.default_rng(3)
    for dtype in ("f4", "f8"):
        a, b = (draw.standard_normal(500).astype(dtype) for _ in range(2))
        c = (-(a.astype("f8") * b) * (1 + draw.standard_normal(500) * 1e-7)).astype(dtype)
        for x, y, z, result in zip(a, b, c, fused(a, b, c)):
            exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
            near = abs(Fraction(float(result)) - exact)
            for other in (
                np.nextafter(result, dtype and np.dtype(dtype).type(np.inf)),
                np.nextafter(result, np.dtype(dtype).type(-np.inf)),
            ):
                assert near <= abs(Fraction(float(other)) - exact)
