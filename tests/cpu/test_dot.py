"""``dot_general`` kernels against NumPy, over shapes, layouts and element types."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hlojit.cpu.kernels.dot_forms import emit_dot_general
from hlojit.cpu.processor import host_target
from hlojit.ir.attributes import DotAlgorithm, DotDimensionNumbers
from hlojit.ir.formats import element_type
from hlojit.ir.graph import Instruction
from hlojit.ir.types import TensorType, tensor
from hlojit.lowering.target import AARCH64, X86_64_V2, X86_64_V3, X86_64_V4, Target
from hlojit.machine_code.object_code import compile_to_assembly

Array = np.ndarray[Any, Any]
Numbers = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]]
MATMUL: Numbers = ((), (), (1,), (0,))


def result_type(lhs: TensorType, rhs: TensorType, numbers: Numbers, element: str) -> TensorType:
    lhs_batch, rhs_batch, lhs_contracted, rhs_contracted = numbers
    shape = [lhs.shape[d] for d in lhs_batch]
    shape += [n for d, n in enumerate(lhs.shape) if d not in (*lhs_batch, *lhs_contracted)]
    shape += [n for d, n in enumerate(rhs.shape) if d not in (*rhs_batch, *rhs_contracted)]
    return tensor(shape, element)


def expected(lhs: Array, rhs: Array, numbers: Numbers, dtype: Any) -> Array:
    """The product by einsum in a wide type."""
    lhs_batch, rhs_batch, lhs_contracted, rhs_contracted = numbers
    left, right = list(range(lhs.ndim)), list(range(100, 100 + rhs.ndim))
    for one, other in ((lhs_batch, rhs_batch), (lhs_contracted, rhs_contracted)):
        for a, b in zip(one, other):
            right[b] = left[a]
    names = {number: position for position, number in enumerate(dict.fromkeys(left + right))}
    left, right = [names[n] for n in left], [names[n] for n in right]
    out = [left[d] for d in lhs_batch]
    out += [n for d, n in enumerate(left) if d not in (*lhs_batch, *lhs_contracted)]
    out += [n for d, n in enumerate(right) if d not in (*rhs_batch, *rhs_contracted)]
    return np.einsum(lhs.astype(dtype), left, rhs.astype(dtype), right, out)


def random_array(shape: Sequence[int], element: str, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    row = element_type(element)
    if element == "i1":
        return generator.random(shape) < 0.3
    if element.startswith(("i", "ui")):
        low, high = row.minimum, row.maximum  # type: ignore[attr-defined]
        return generator.integers(low, high, shape, row.storage, endpoint=True)
    if element.startswith("complex"):
        return (generator.standard_normal(shape) + 1j * generator.standard_normal(shape)).astype(row.storage)
    return generator.standard_normal(shape).astype(row.storage)


def check_dot(
    instruction: Callable[..., Instruction],
    run_kernel: Callable[..., Array],
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    numbers: Numbers,
    types: tuple[str, str, str] = ("f32", "f32", "f32"),
    target: Target | None = None,
) -> None:
    lhs, rhs = tensor(lhs_shape, types[0]), tensor(rhs_shape, types[1])
    result = result_type(lhs, rhs, numbers, types[2])
    attributes = {"dot_dimension_numbers": DotDimensionNumbers(*map(tuple, numbers))}
    target = target or host_target()
    code = emit_dot_general(instruction("stablehlo.dot_general", [lhs, rhs], result, attributes), target, "dot")
    inputs = [random_array(lhs_shape, types[0], 1), random_array(rhs_shape, types[1], 2)]
    found = run_kernel(code, inputs, result, target=target)
    assert run_kernel(code, inputs, result, single_tasks=True, target=target).tobytes() == found.tobytes()
    if types[2] == "i1":
        np.testing.assert_array_equal(found, expected(*inputs, numbers, np.int64) > 0)
    elif types[2].startswith(("i", "ui")):
        wide = expected(*inputs, numbers, np.int64)
        bits = element_type(types[2]).bits
        wrapped = wide & ((1 << bits) - 1) if bits < 64 else wide
        if types[2].startswith("i") and bits < 64:
            wrapped = (wrapped ^ (1 << (bits - 1))) - (1 << (bits - 1))
        np.testing.assert_array_equal(found, wrapped.astype(found.dtype))
    else:
        wide_dtype = np.complex128 if types[2].startswith("complex") else np.float64
        wide = expected(*inputs, numbers, wide_dtype)
        scale = expected(
            np.abs(inputs[0].astype(wide_dtype)), np.abs(inputs[1].astype(wide_dtype)), numbers, wide_dtype
        )
        row = element_type(types[2])
        mantissa = {"complex<f32>": 23, "complex<f64>": 52}.get(types[2]) or row.mantissa_bits  # type: ignore[attr-defined]
        chain = 2.0**-52 if types[2] in ("f64", "complex<f64>") else 2.0**-23
        bound = chain * 8 * np.abs(scale) + 2.0 ** -(mantissa + 1) * np.abs(wide) * 1.01 + 1e-7 * (mantissa < 20)
        assert (np.abs(found.astype(wide_dtype) - wide) <= bound).all()


SHAPES = [
    (1, 1, 1),
    (8, 48, 16),
    (8, 48, 17),
    (9, 49, 5),
    (3, 5, 7),
    (64, 64, 64),
    (1, 100, 37),
    (1, 1000, 64),
    (37, 1, 100),
    (1, 1, 1000),
    (5, 3, 300),
    (16, 130, 33),
    (130, 100, 70),
    (2, 400, 1),
    (23, 31, 1500),
    (200, 9, 40),
    (4, 17, 129),
]


@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
@pytest.mark.parametrize(
    ("shape", "element"), [(shape, "f32") for shape in SHAPES] + [(shape, "f64") for shape in SHAPES[::3]], ids=str
)
def test_dot_layouts(instruction, run_kernel, shape, transposed, element) -> None:
    m, n, k = shape
    lhs, rhs = ((k, m) if "a" in transposed else (m, k)), ((n, k) if "b" in transposed else (k, n))
    numbers = ((), (), (0 if "a" in transposed else 1,), (1 if "b" in transposed else 0,))
    check_dot(instruction, run_kernel, lhs, rhs, numbers, (element, element, element))


@pytest.mark.parametrize(
    ("lhs", "rhs", "numbers"),
    [
        ((2, 7, 3, 16), (2, 9, 3, 16), ((0, 2), (0, 2), (3,), (3,))),
        ((2, 3, 7, 9), (2, 9, 3, 16), ((0, 1), (0, 2), (3,), (1,))),
        ((4, 5, 6), (4, 5, 7), ((), (), (0, 1), (0, 1))),
        ((4, 5, 6), (5, 7, 4), ((), (), (0, 1), (2, 0))),
        ((4, 5, 6), (5, 7, 4), ((), (), (1, 0), (0, 2))),
        ((4, 3, 5), (3, 6, 2), ((), (), (1,), (0,))),
        ((4, 3, 5, 2), (6, 3, 7), ((), (), (1,), (1,))),
        ((4, 3), (5, 6), ((), (), (), ())),
        ((4, 3), (4, 3), ((0, 1), (0, 1), (), ())),
        ((6, 4, 3), (3, 6, 5), ((0,), (1,), (2,), (0,))),
        ((10,), (10,), ((), (), (0,), (0,))),
        ((), (), ((), (), (), ())),
        ((3, 0), (0, 4), MATMUL),
        ((0, 3), (3, 4), MATMUL),
        ((1, 5, 1, 4), (1, 1, 4, 6), ((0,), (0,), (3,), (2,))),
    ],
    ids=str,
)
def test_dot_dimension_numbers(instruction, run_kernel, lhs, rhs, numbers) -> None:
    check_dot(instruction, run_kernel, lhs, rhs, numbers)
    check_dot(instruction, run_kernel, lhs, rhs, numbers, ("bf16", "bf16", "bf16"))


INTEGERS = [
    ("i8", "i8", "i32"),
    ("i8", "i8", "i8"),
    ("ui8", "ui8", "ui32"),
    ("i16", "i16", "i32"),
    ("i32", "i32", "i32"),
    ("i64", "i64", "i64"),
    ("ui16", "ui16", "ui16"),
    ("ui16", "ui16", "ui32"),
    ("ui32", "ui32", "ui64"),
    ("i4", "i4", "i4"),
    ("ui4", "ui4", "ui8"),
    ("i1", "i1", "i1"),
    ("i16", "i16", "i16"),
    ("i8", "i8", "i64"),
]
FLOATS = [
    ("f16", "f16", "f16"),
    ("bf16", "bf16", "bf16"),
    ("bf16", "bf16", "f32"),
    ("f16", "f16", "f32"),
    ("f32", "f32", "f64"),
    ("f32", "f32", "bf16"),
    ("f16", "f16", "f64"),
    ("f64", "f64", "f16"),
    ("f8E4M3FN", "f8E4M3FN", "f32"),
    ("f8E5M2", "f8E5M2", "f16"),
    ("f8E4M3FN", "f8E5M2", "bf16"),
    ("f4E2M1FN", "f4E2M1FN", "f32"),
    ("f8E4M3B11FNUZ", "f8E4M3B11FNUZ", "f32"),
]


@pytest.mark.parametrize("types", INTEGERS + FLOATS, ids=str)
def test_dot_element_types(instruction, run_kernel, types) -> None:
    for m, n, k in ((1, 70, 33), (9, 50, 40), (7, 40, 2100), (33, 1, 65)):
        check_dot(instruction, run_kernel, (m, k), (k, n), MATMUL, types)
    check_dot(instruction, run_kernel, (11, 37), (53, 37), ((), (), (1,), (1,)), types)
    check_dot(instruction, run_kernel, (37, 11), (37, 53), ((), (), (0,), (0,)), types)
    check_dot(instruction, run_kernel, (2, 70), (9, 70), ((), (), (1,), (1,)), types)


NARROW_SHAPES: list[tuple[Sequence[int], Sequence[int], Numbers]] = [
    ((20, 34), (34, 57), MATMUL),
    ((34, 20), (57, 34), ((), (), (0,), (1,))),
    ((3, 9, 70), (3, 41, 70), ((0,), (0,), (2,), (2,))),
    ((2, 9, 3, 16), (2, 10, 3, 16), ((0, 2), (0, 2), (3,), (3,))),
    ((50, 600), (600, 60), MATMUL),
    ((7, 512), (7, 512), ((), (), (1,), (1,))),
]

NARROW = [("i8", "i8", "i32"), ("ui8", "i8", "i32"), ("i16", "i16", "i32"), ("i4", "i8", "i8"), ("i8", "i16", "i16")]


def on_this_processor(target: Target, feature: str) -> Target:
    if not host_target().has_feature(feature):
        pytest.skip(f"this processor has no {feature}")
    return target


@pytest.mark.parametrize("types", NARROW, ids=str)
def test_dot_narrow_integers(instruction, run_kernel, types) -> None:
    for lhs, rhs, numbers in NARROW_SHAPES:
        check_dot(instruction, run_kernel, lhs, rhs, numbers, types)


@pytest.mark.parametrize("types", NARROW, ids=str)
def test_dot_pairs_of_integers(instruction, run_kernel, types) -> None:
    target = on_this_processor(X86_64_V3, "avx2")
    for lhs, rhs, numbers in NARROW_SHAPES:
        check_dot(instruction, run_kernel, lhs, rhs, numbers, types, target)


def test_dot_pairs_wrap(instruction, run_kernel) -> None:
    """Products of the two smallest numbers do not fit the sum of a pair."""
    types = [tensor((8, 4), "i16"), tensor((4, 16), "i16")]
    numbers = {"dot_dimension_numbers": DotDimensionNumbers(lhs_contracting=(1,), rhs_contracting=(0,))}
    made = instruction("stablehlo.dot_general", types, tensor((8, 16), "i32"), numbers)
    smallest = [np.full(type.shape, -32768, np.int16) for type in types]
    found = run_kernel(emit_dot_general(made, host_target(), "dot"), smallest, tensor((8, 16), "i32"))
    np.testing.assert_array_equal(found, np.int32(0))  # 4 * 2**30


VNNI = replace(X86_64_V4, features=f"{X86_64_V4.features},+avx512vnni")
VNNI_256 = replace(X86_64_V3, features=f"{X86_64_V3.features},+avx512f,+avx512vl,+avx512bw,+avx512vnni")
AVX_VNNI = replace(X86_64_V3, features=f"{X86_64_V3.features},+avxvnni")
DOTPROD = replace(AARCH64, features=f"{AARCH64.features},+dotprod")
QUADS = [VNNI, VNNI_256]
BYTES = [*itertools.product(("i8", "ui8"), repeat=2), ("i4", "i8"), ("ui4", "i8"), ("ui8", "ui4"), ("ui4", "ui4")]
QUAD_SHAPES = [
    (1, 1, 64),
    (1, 1, 19),
    (1, 100, 64),
    (3, 5, 23),
    (8, 48, 16),
    (9, 49, 17),
    (9, 50, 8),
    (16, 131, 33),
    (37, 1, 100),
    (5, 3, 300),
    (20, 33, 36),
    (70, 50, 1100),
]


@pytest.mark.parametrize("target", QUADS, ids=["512", "256"])
@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
@pytest.mark.parametrize("types", BYTES, ids=str)
def test_dot_quads_of_bytes(instruction, run_kernel, types, transposed, target) -> None:
    on_this_processor(target, "avx512vnni")
    shapes = QUAD_SHAPES if types == ("i8", "i8") and target is VNNI else QUAD_SHAPES[len(transposed) + 1 :: 4]
    for m, n, k in shapes:
        lhs, rhs = ((k, m) if "a" in transposed else (m, k)), ((n, k) if "b" in transposed else (k, n))
        numbers = ((), (), (0 if "a" in transposed else 1,), (1 if "b" in transposed else 0,))
        check_dot(instruction, run_kernel, lhs, rhs, numbers, (*types, "i32"), target)


@pytest.mark.parametrize("element", ["i8", "ui8"])
@pytest.mark.parametrize(
    ("lhs", "rhs", "numbers"),
    [
        ((2, 9, 3, 16), (2, 10, 3, 16), ((0, 2), (0, 2), (3,), (3,))),
        ((2, 9, 3, 18), (2, 10, 3, 18), ((0, 2), (0, 2), (3,), (3,))),
        ((16, 9, 3), (16, 10, 3), ((2,), (2,), (0,), (0,))),
        ((4, 5, 6), (4, 5, 7), ((), (), (0, 1), (0, 1))),
        ((4, 5, 6), (5, 7, 4), ((), (), (0, 1), (2, 0))),
        ((4, 9, 5, 2), (6, 9, 7), ((), (), (1,), (1,))),
        ((6, 4, 12), (12, 6, 5), ((0,), (1,), (2,), (0,))),
        ((18, 3), (18, 3), ((1,), (1,), (0,), (0,))),
    ],
    ids=str,
)
def test_dot_quads_of_every_layout(instruction, run_kernel, lhs, rhs, numbers, element) -> None:
    target = on_this_processor(VNNI, "avx512vnni")
    for result in ("i32", "i8"):
        check_dot(instruction, run_kernel, lhs, rhs, numbers, (element, element, result), target)


@pytest.mark.parametrize(("types", "values"), [
    (("i8", "i8"), (-128, -128)), (("i8", "i8"), (-128, 127)), (("i8", "i8"), (127, -128)),
    (("ui8", "ui8"), (255, 255)), (("ui8", "i8"), (255, -128)), (("i8", "ui8"), (-128, 255)),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("k", [1, 4, 16, 17, 64, 1030, 140_001])
def test_dot_quads_of_extremes_wrap(instruction, run_kernel, types, values, k) -> None:
    """Neither four products nor their sums saturate; sums of more than 131,072 smallest numbers do not fit."""
    target = on_this_processor(VNNI, "avx512vnni")
    for m, n in ((1, 3), (9, 17)) if k < 2000 else ((2, 1),):
        operands = [tensor((m, k), types[0]), tensor((k, n), types[1])]
        numbers = {"dot_dimension_numbers": DotDimensionNumbers(lhs_contracting=(1,), rhs_contracting=(0,))}
        made = instruction("stablehlo.dot_general", operands, tensor((m, n), "i32"), numbers)
        arrays = [np.full(type.shape, v, type.element_type.storage) for type, v in zip(operands, values, strict=True)]
        found = run_kernel(emit_dot_general(made, target, "dot"), arrays, tensor((m, n), "i32"), target=target)
        wanted = (k * values[0] * values[1] + (1 << 31)) % (1 << 32) - (1 << 31)
        np.testing.assert_array_equal(found, np.int32(wanted))


@pytest.mark.parametrize(
    ("target", "types", "product", "register", "others"),
    [
        (VNNI, ("i8", "i8"), "vpdpbusd", "%zmm", "vpmull"),
        (VNNI, ("ui8", "i8"), "vpdpbusd", "%zmm", "vpmull"),
        (VNNI_256, ("i8", "i8"), "vpdpbusd", "%ymm", "vpmull"),
        (AVX_VNNI, ("ui8", "ui8"), "vpdpbusd", "%ymm", "vpmull"),
        (DOTPROD, ("i8", "i8"), "sdot", "v", "mla"),
        (DOTPROD, ("ui8", "ui8"), "udot", "v", "mla"),
        (DOTPROD, ("ui8", "i8"), "udot", "v", "mla"),
        (X86_64_V4, ("i8", "i8"), "vpmaddwd", "%zmm", "vpmull"),
    ],
    ids=["512", "512 mixed", "256", "vex", "sdot", "udot", "udot mixed", "pairs"],
)
def test_dot_bytes_have_the_processors_instruction(instruction, target, types, product, register, others) -> None:
    operands = [tensor((64, 256), types[0]), tensor((256, 96), types[1])]
    numbers = {"dot_dimension_numbers": DotDimensionNumbers(lhs_contracting=(1,), rhs_contracting=(0,))}
    made = instruction("stablehlo.dot_general", operands, tensor((64, 96), "i32"), numbers)
    lines = compile_to_assembly(emit_dot_general(made, target, "dot").ir, target).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("dot.p") and ".tile:" in line)
    body = lines[start : next(i for i in range(start, len(lines)) if ".Lfunc_end" in lines[i])]
    products = [line for line in body if product in line]
    assert len(products) >= 8
    assert all(register in line for line in products)
    first, last = body.index(products[0]), len(body) - body[::-1].index(products[-1])
    assert not [line for line in body[first:last] if others in line or "(%rsp" in line or "[sp" in line]


@pytest.mark.parametrize("element", ["complex<f32>", "complex<f64>"])
@pytest.mark.parametrize(
    ("lhs", "rhs", "numbers"),
    [
        ((5, 7), (7, 9), MATMUL),
        ((7, 5), (9, 7), ((), (), (0,), (1,))),
        ((2, 7, 3, 16), (2, 9, 3, 16), ((0, 2), (0, 2), (3,), (3,))),
        ((4, 5, 6), (5, 7, 4), ((), (), (0, 1), (2, 0))),
        ((40, 30), (30,), ((), (), (1,), (0,))),
        ((1, 30), (30, 40), MATMUL),
        ((4, 1), (1, 5), MATMUL),
        ((6,), (6,), ((0,), (0,), (), ())),
        ((3, 0), (0, 4), MATMUL),
    ],
    ids=str,
)
def test_dot_complex(instruction, run_kernel, lhs, rhs, numbers, element) -> None:
    check_dot(instruction, run_kernel, lhs, rhs, numbers, (element, element, element))


@pytest.mark.parametrize("types", [("f32", "f32", "f32"), ("bf16", "bf16", "bf16"), ("i8", "i8", "i32")], ids=str)
def test_dot_long_sums_in_parts(instruction, run_kernel, types) -> None:
    check_dot(instruction, run_kernel, (70001,), (70001,), ((), (), (0,), (0,)), types)
    check_dot(instruction, run_kernel, (3, 40000), (40000, 5), MATMUL, types)
    check_dot(instruction, run_kernel, (65536, 3), (65536, 20), ((), (), (0,), (0,)), types)
    check_dot(instruction, run_kernel, (2, 33000), (2, 33000, 3), ((0,), (0,), (1,), (1,)), types)


def test_dot_algorithm_rounds_operands(instruction, run_kernel) -> None:
    operands = [tensor((9, 33), "f32"), tensor((33, 20), "f32")]
    inputs = [random_array((9, 33), "f32", 1), random_array((33, 20), "f32", 2)]
    numbers = {"dot_dimension_numbers": DotDimensionNumbers(lhs_contracting=(1,), rhs_contracting=(0,))}
    rounded = [array.astype(ml_dtypes.bfloat16).astype(np.float64) for array in inputs]
    for algorithm, wanted in (
        (DotAlgorithm("bf16", "bf16", "f32"), rounded[0] @ rounded[1]),
        (DotAlgorithm("f32", "f32", "f32"), inputs[0].astype(np.float64) @ inputs[1].astype(np.float64)),
        (DotAlgorithm("f64", "f64", "f64"), inputs[0].astype(np.float64) @ inputs[1].astype(np.float64)),
    ):
        made = instruction(
            "stablehlo.dot_general", operands, tensor((9, 20), "f32"), numbers | {"algorithm": algorithm}
        )
        found = run_kernel(emit_dot_general(made, host_target(), "dot"), inputs, tensor((9, 20), "f32"))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-6)


def emit(instruction, shape: tuple[int, int, int], element: str, target, symbol: str = "dot"):
    m, n, k = shape
    numbers = {"dot_dimension_numbers": DotDimensionNumbers(lhs_contracting=(1,), rhs_contracting=(0,))}
    types = [tensor((m, k), element), tensor((k, n), element)]
    return emit_dot_general(
        instruction("stablehlo.dot_general", types, tensor((m, n), element), numbers), target, symbol
    )


@pytest.mark.parametrize(
    ("target", "register", "multiply"),
    [(X86_64_V4, "%zmm", "vfmadd"), (X86_64_V3, "%ymm", "vfmadd"), (X86_64_V2, "%xmm", "mulp"), (AARCH64, "v", "fmla")],
)
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_dot_assembly_uses_widest_registers_without_spills(instruction, target, register, multiply, element) -> None:
    code = emit(instruction, (64, 96, 64), element, target)
    lines = compile_to_assembly(code.ir, target).splitlines()
    tiles = [index for index, line in enumerate(lines) if line.startswith("dot.p") and ".tile:" in line]
    assert tiles
    for start in tiles:
        body = lines[start : next(i for i in range(start, len(lines)) if ".Lfunc_end" in lines[i])]
        products = [line for line in body if multiply in line]
        assert len(products) >= 8
        assert all(register in line for line in products)
        stack = ("(%rsp", "(%rbp") if target.is_x86 else ("[sp",)
        first, last = body.index(products[0]), len(body) - body[::-1].index(products[-1])
        assert not [line for line in body[first:last] if any(word in line for word in stack)]
        assert not [line for line in body if "call" in line or "\tbl\t" in line]


@pytest.mark.skipif(not host_target().is_x86, reason="runs code for older processors of the same kind")
@pytest.mark.parametrize("target", [X86_64_V2, X86_64_V3], ids=["v2", "v3"])
@pytest.mark.parametrize("types", [("f32", "f32", "f32"), ("f64", "f64", "f64"), ("i8", "i8", "i32")], ids=str)
def test_dot_older_processors(instruction, run_kernel, types, target) -> None:
    if not host_target().has_feature("avx2") and target is X86_64_V3:
        pytest.skip("this processor has no AVX2")
    check_dot(instruction, run_kernel, (9, 22), (22, 27), MATMUL, types, target)
    check_dot(instruction, run_kernel, (9, 22), (27, 22), ((), (), (1,), (1,)), types, target)
    check_dot(instruction, run_kernel, (1, 100), (7, 100), ((), (), (1,), (1,)), types, target)
    check_dot(instruction, run_kernel, (22, 130), (22, 100), ((), (), (0,), (0,)), types, target)


def test_dot_text_depends_on_structure_only(instruction) -> None:
    one = emit(instruction, (33, 47, 65), "f32", host_target(), "left")
    other = emit(instruction, (33, 47, 65), "f32", host_target(), "right")
    assert one.ir.replace("left", "right") == other.ir
