"""dot_general on machines with threads, through the simulator, against sums of 64 bits and exact integers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import ml_dtypes
import numpy as np
import pytest
from hlojit.cuda.assemblers.choice import assembler
from hlojit.cuda.nvptx import H200, SM_80, SM_90, SM_100, NvptxDialect
from hlojit.ir.formats import element_type
from hlojit.ir.graph import Instruction
from hlojit.lowering.grid_dot_plan import cut_terms, plan_tiles, plan_vectors
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.grid_product import dot_product_of
from hlojit.lowering.target import Target
from hlojit.simt.kernels import emit_kernel
from hlojit.simt.simulator.dialect import SimulatorDialect
from hlojit.simt.simulator.module import simulated_target

from .simulated import Array, run_code

SMALL = GridMachine(1)
"""One multiprocessor: even small products take the largest tiles."""
Numbers = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]]
"""Batching dimensions of both sides, contracting dimensions of both sides."""


def kind(shape: Sequence[int], element: str) -> str:
    return f"tensor<{''.join(f'{extent}x' for extent in shape)}{element}>"


def free(rank: int, *taken: Sequence[int]) -> list[int]:
    return [d for d in range(rank) if not any(d in each for each in taken)]


def instruction_of(
    lhs: Sequence[int], rhs: Sequence[int], numbers: Numbers, types: Sequence[str], algorithm: str = ""
) -> Instruction:
    left, right, lhs_terms, rhs_terms = numbers
    rows, columns = free(len(lhs), left, lhs_terms), free(len(rhs), right, rhs_terms)
    shape = [lhs[d] for d in (*left, *rows)] + [rhs[d] for d in columns]
    a, b, c = kind(lhs, types[0]), kind(rhs, types[1]), kind(shape, types[2])
    dims = (
        f"lhs_batching_dimensions = {list(left)}, rhs_batching_dimensions = {list(right)}, "
        f"lhs_contracting_dimensions = {list(lhs_terms)}, rhs_contracting_dimensions = {list(rhs_terms)}"
    )
    text = f"""
    func.func @main(%x: {a}, %y: {b}) -> {c} {{
      %0 = "stablehlo.dot_general"(%x, %y) {{dot_dimension_numbers = #stablehlo.dot<{dims}>{algorithm}}} : ({a}, {b}) -> {c}
      return %0 : {c}
    }}"""
    return next(iter(hlojit.parse(text).main.body))


def run(instruction: Instruction, lhs: Array, rhs: Array, machine: GridMachine = H200) -> Array:
    code = emit_kernel(instruction, simulated_target(machine), SimulatorDialect(), "kernel")
    (found,) = run_code(code, [lhs, rhs], [instruction.result.tensor_type])
    return found


def contracted(lhs: Array, rhs: Array, numbers: Numbers) -> Array:
    """The product by einsum."""
    left, right, lhs_terms, rhs_terms = numbers
    names = list(range(lhs.ndim)), [26 + d for d in range(rhs.ndim)]
    for a, b in (*zip(left, right), *zip(lhs_terms, rhs_terms)):
        names[1][b] = a
    out = [names[0][d] for d in (*left, *free(lhs.ndim, left, lhs_terms))]
    out += [names[1][d] for d in free(rhs.ndim, right, rhs_terms)]
    return np.asarray(np.einsum(lhs, names[0], rhs, names[1], out))


def draw(shape: Sequence[int], element: str, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    row: Any = element_type(element)
    if element == "i1":
        return generator.random(shape) < 0.3
    if element.startswith(("i", "ui")):
        return np.asarray(generator.integers(row.minimum, row.maximum, shape, row.storage, endpoint=True))
    drawn = generator.standard_normal(shape)
    if element.startswith("complex"):
        drawn = drawn + 1j * generator.standard_normal(shape)
    return np.asarray(drawn.astype(row.storage))


def check(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    numbers: Numbers,
    types: Sequence[str] = ("f32", "f32", "f32"),
    machine: GridMachine = H200,
) -> None:
    lhs, rhs = draw(lhs_shape, types[0], 1), draw(rhs_shape, types[1], 2)
    found = run(instruction_of(lhs_shape, rhs_shape, numbers, types), lhs, rhs, machine)
    compare(found, lhs, rhs, numbers, types[2])


def compare(found: Array, lhs: Array, rhs: Array, numbers: Numbers, result: str) -> None:
    row: Any = element_type(result)
    if result == "i1":
        np.testing.assert_array_equal(found, contracted(lhs.astype(int), rhs.astype(int), numbers) > 0)
    elif result.startswith(("i", "ui")):
        exact = contracted(lhs.astype(object), rhs.astype(object), numbers)
        wrapped = np.vectorize(lambda each: (each - row.minimum) % (1 << row.bits) + row.minimum, otypes=[object])
        np.testing.assert_array_equal(found.astype(object), wrapped(exact) if exact.size else exact)
    else:
        wide = np.complex128 if result.startswith("complex") else np.float64
        exact = contracted(lhs.astype(wide), rhs.astype(wide), numbers)
        scale = contracted(np.abs(lhs.astype(wide)), np.abs(rhs.astype(wide)), numbers)
        component = element_type(getattr(row, "component", result))
        rounding = 2.0 ** -(component.mantissa_bits + 1)  # type: ignore[attr-defined]
        chain = 2.0**-52 if component.name == "f64" else 2.0**-23
        smallest = float(ml_dtypes.finfo(component.storage).smallest_subnormal)
        bound = 8 * chain * np.abs(scale) + 1.01 * rounding * np.abs(exact) + smallest
        assert (np.abs(found.astype(wide) - exact) <= bound).all()


SHAPES = [
    (1, 1, 1),
    (5, 7, 3),
    (33, 70, 40),
    (130, 129, 17),
    (17, 64, 10000),
    (1, 37, 100),
    (37, 1, 101),
    (1, 1, 5000),
    (4, 100, 33),
    (3, 257, 1),
    (64, 64, 64),
]


@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layouts(shape: tuple[int, int, int], transposed: str) -> None:
    m, n, k = shape
    lhs, rhs = ((k, m) if "a" in transposed else (m, k)), ((n, k) if "b" in transposed else (k, n))
    check(lhs, rhs, ((), (), (0 if "a" in transposed else 1,), (1 if "b" in transposed else 0,)))


@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "i8"])
def test_large_tiles(element: str, transposed: str) -> None:
    m, n, k = 136, 264, 48
    lhs, rhs = ((k, m) if "a" in transposed else (m, k)), ((n, k) if "b" in transposed else (k, n))
    numbers = ((), (), (0 if "a" in transposed else 1,), (1 if "b" in transposed else 0,))
    check(lhs, rhs, numbers, (element,) * 3, SMALL)


@pytest.mark.parametrize(
    ("lhs", "rhs", "numbers"),
    [
        ((3, 5, 7), (3, 7, 4), ((0,), (0,), (2,), (1,))),
        ((2, 9, 3, 8), (2, 11, 3, 8), ((0, 2), (0, 2), (3,), (3,))),
        ((4, 5, 6), (6, 4, 3), ((), (), (0, 2), (1, 0))),
        ((4, 5, 6), (3, 6, 4), ((), (), (2, 0), (1, 2))),
        ((5, 3, 4, 2), (4, 7, 2, 3, 6), ((2,), (0,), (3, 1), (2, 3))),
        ((5, 6), (7, 8), ((), (), (), ())),
        ((4, 1, 3), (3,), ((), (), (2,), (0,))),
        ((6,), (6,), ((), (), (0,), (0,))),
        ((6,), (6,), ((0,), (0,), (), ())),
        ((7, 40), (7, 40, 33), ((0,), (0,), (1,), (1,))),
    ],
    ids=str,
)
def test_batches_and_several_dimensions(lhs: tuple[int, ...], rhs: tuple[int, ...], numbers: Numbers) -> None:
    check(lhs, rhs, numbers)


@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 0, 3), (4, 5, 0), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("element", ["f32", "bf16", "i8", "complex<f32>"])
def test_sums_of_nothing(shape: tuple[int, int, int], element: str) -> None:
    m, n, k = shape
    check((m, k), (k, n), ((), (), (1,), (0,)), (element,) * 3)


TYPES = [
    *((element,) * 3 for element in ("f64", "f16", "bf16", "f8E4M3FN", "f8E5M2", "complex<f32>", "complex<f64>")),
    *((element,) * 3 for element in ("i1", "i4", "i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64")),
    *(("i8", "i8", "i32"), ("ui8", "i8", "i32"), ("i1", "i1", "i32"), ("i4", "i8", "i64")),
    *(("bf16", "bf16", "f32"), ("f8E4M3FN", "f8E5M2", "f32"), ("f16", "f32", "f64"), ("f4E2M1FN", "f4E2M1FN", "f32"), ("f8E4M3FN", "bf16", "bf16")),
]  # fmt: skip


@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_element_types(types: tuple[str, str, str]) -> None:
    check((19, 24), (24, 34), ((), (), (1,), (0,)), types)


@pytest.mark.parametrize("types", [*TYPES[:8:2], *TYPES[8::3]], ids="-".join)
@pytest.mark.parametrize("term", [0, 1])
def test_element_types_of_few_rows(types: tuple[str, str, str], term: int) -> None:
    check((2, 72), ((72, 40), (40, 72))[term], ((), (), (1,), (term,)), types)


def test_a_registered_format_is_decoded_on_the_way() -> None:
    row = ext.FloatFormat(
        "test7",
        exponent_bits=3,
        mantissa_bits=3,
        bias=4,
        has_infinity=False,
        nan=ext.NanEncoding.NONE,
        overflow=ext.Overflow.SATURATE,
    )
    plugin: Any = SimpleNamespace(__name__="test", hlojit_formats=ext.hookimpl(lambda: [row]))
    codes = np.random.default_rng(0).integers(0, 128, (20, 40), np.uint8)
    weights = draw((40, 24), "f32", 1)
    exponent, mantissa = (codes >> 3) & 7, (codes & 7).astype(np.float64)
    numbers = np.where(exponent > 0, mantissa + 8, mantissa) * 2.0 ** (np.maximum(exponent, 1) - 4.0 - 3)
    numbers = np.where(codes >> 6 & 1, -numbers, numbers)
    with ext.using(plugin):
        found = run(instruction_of((20, 40), (40, 24), ((), (), (1,), (0,)), ("test7", "f32", "f32")), codes, weights)
    compare(found, numbers, weights, ((), (), (1,), (0,)), "f32")


def test_an_algorithm_narrows_operands_or_widens_sums() -> None:
    algorithm = (
        ", algorithm = #stablehlo.dot_algorithm<lhs_precision_type = {0}, rhs_precision_type = {0}, accumulation_type = {1},"
        " lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1,"
        " allow_imprecise_accumulation = false>"
    )
    numbers: Numbers = ((), (), (1,), (0,))
    lhs, rhs = draw((20, 40), "f32", 1), draw((40, 24), "f32", 2)
    text = algorithm.format("bf16", "f32")
    found = run(instruction_of((20, 40), (40, 24), numbers, ("f32",) * 3, text), lhs, rhs)
    narrow = [each.astype(ml_dtypes.bfloat16).astype(np.float64) for each in (lhs, rhs)]
    compare(found, narrow[0], narrow[1], numbers, "f32")
    text = algorithm.format("f64", "f64")
    found = run(instruction_of((20, 40), (40, 24), numbers, ("f32",) * 3, text), lhs, rhs)
    np.testing.assert_array_equal(found, (lhs.astype(np.float64) @ rhs).astype(np.float32))


def test_machines_change_tiles_and_no_bit() -> None:
    lhs, rhs = draw((100, 90), "f32", 1), draw((90, 70), "f32", 2)
    instruction = instruction_of((100, 90), (90, 70), ((), (), (1,), (0,)), ("f32",) * 3)
    machines = (
        H200,
        SMALL,
        replace(SMALL, shared_bytes=8 << 10, registers_per_thread=64),
        replace(H200, access_bytes=8),
    )
    found = [run(instruction, lhs, rhs, machine).tobytes() for machine in machines]
    assert len(set(found)) == 1


def product(m: int, n: int, k: int, transposed: str = "") -> Any:
    types = hlojit.parse(
        f"func.func @main(%x: {kind((k, m) if 'a' in transposed else (m, k), 'f32')}, "
        f"%y: {kind((n, k) if 'b' in transposed else (k, n), 'f32')}) {{ return }}"
    ).main.body.arguments
    numbers: Any = SimpleNamespace(
        lhs_batching=(), rhs_batching=(),
        lhs_contracting=(0 if "a" in transposed else 1,), rhs_contracting=(1 if "b" in transposed else 0,),
    )  # fmt: skip
    return dot_product_of(types[0].type, types[1].type, numbers)


def test_plan_tiles_fill_the_machine() -> None:
    large = plan_tiles(product(4096, 4096, 4096), 4, (4, 4), H200)
    assert (large.tile.rows, large.tile.columns, large.tile.threads) == (128, 128, 256) and large.parts.count == 1
    assert (large.lhs.lanes, large.lhs.along_terms, large.rhs.lanes, large.rhs.along_terms) == (4, True, 4, False)
    small = plan_tiles(product(256, 256, 256), 4, (4, 4), H200)
    assert small.blocks >= H200.multiprocessors // 2 > 4
    cramped = plan_tiles(product(4096, 4096, 4096), 4, (4, 4), replace(H200, shared_bytes=8 << 10))
    assert cramped.shared_bytes <= 8 << 10
    narrow = plan_tiles(product(4096, 4095, 4094), 4, (4, 4), H200)
    assert (narrow.lhs.lanes, narrow.rhs.lanes) == (2, 1)


def test_plan_pieces_follow_the_dimension_whose_elements_are_neighbours() -> None:
    for transposed in ("", "a", "b", "ab"):
        plan = plan_tiles(product(4096, 4096, 4096, transposed), 4, (2, 2), H200)
        assert plan.lhs.along_terms == ("a" not in transposed) and plan.rhs.along_terms == ("b" in transposed)
        assert plan.lhs.lanes == plan.rhs.lanes == 8


def test_plan_parts_depend_on_the_shape_alone() -> None:
    assert cut_terms(product(128, 128, 4096)).count == 8
    assert cut_terms(product(4096, 4096, 65536)).count == 1
    parts = cut_terms(product(8, 8, 100_003))
    assert parts.count * parts.length >= 100_003 > (parts.count - 1) * parts.length and parts.length % 64 == 0


def test_plan_few_rows_read_the_right_operand_once() -> None:
    by_terms = plan_vectors(product(1, 4096, 4096, "b"), (4, 4), H200)
    assert by_terms is not None and by_terms.by_terms and (by_terms.lanes, by_terms.team) == (4, 32)
    by_columns = plan_vectors(product(1, 4096, 4096), (2, 2), H200)
    assert by_columns is not None and not by_columns.by_terms and by_columns.lanes == 8
    assert math.prod(by_columns.extents) >= H200.multiprocessors // 2
    assert plan_vectors(product(5, 4096, 4096), (4, 4), H200) is None


@pytest.mark.parametrize("target", [SM_80, SM_90, SM_100], ids=lambda target: target.cpu)
@pytest.mark.parametrize("transposed", ["", "ab"])
@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "i8", "f8E4M3FN"])
def test_ptx_of_tiles(element: str, transposed: str, target: Target) -> None:
    assert target.grid is not None
    without_matrices = replace(target, grid=replace(target.grid, matrix_inputs=()))
    ptx = ptx_of((4096, 4096, 512), transposed, element, without_matrices)
    assert not re.search(r"\bcall\b", ptx) and ".local" not in ptx
    widest = r"v2\.b32" if element in ("i8", "f8E4M3FN") else r"(v4\.b32|v2\.b64)"
    assert re.search(rf"ld\.global\.{widest}", ptx), (
        "a thread reads 16 bytes at once, or all eight elements that it has"
    )
    assert re.search(r"ld\.shared\.(v4\.b32|v2\.b64)", ptx) and not re.search(r"ld\.shared\.(b8|b16|b32|b64)\b", ptx)
    if element in ("f32", "f64"):
        assert "fma.rn" in ptx and not re.search(r"\bmul\.(rn\.)?f", ptx)


@pytest.mark.parametrize("transposed", ["", "b"])
@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_ptx_of_few_rows(element: str, transposed: str) -> None:
    ptx = ptx_of((1, 4096, 8192), transposed, element, SM_90)
    assert not re.search(r"\bcall\b", ptx) and ".local" not in ptx
    assert len(re.findall(r"ld\.global\S*v4\.b32", ptx)) >= 4, "several pieces are under way"
    assert ("shfl.sync.bfly" in ptx) == (transposed == "b")


def ptx_of(shape: tuple[int, int, int], transposed: str, element: str, target: Target) -> str:
    m, n, k = shape
    lhs, rhs = ((k, m) if "a" in transposed else (m, k)), ((n, k) if "b" in transposed else (k, n))
    numbers = ((), (), (0 if "a" in transposed else 1,), (1 if "b" in transposed else 0,))
    code = emit_kernel(instruction_of(lhs, rhs, numbers, (element,) * 3), target, NvptxDialect(), "kernel")
    return assembler("llvm").ptx(code, target)
