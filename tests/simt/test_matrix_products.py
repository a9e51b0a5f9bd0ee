"""Products by matrix instructions: which types get them, fragments on the simulator, instructions in PTX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import hlojit.extensions as ext
import ml_dtypes
import numpy as np
import pytest
from hlojit.cuda.assemblers.choice import assembler
from hlojit.cuda.nvptx import H200, SM_80, SM_90, SM_100, NvptxDialect
from hlojit.ir.formats import element_type, element_types
from hlojit.ir.graph import Instruction
from hlojit.llvm.product_elements import Elements
from hlojit.lowering.grid_dot_plan import Passage
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.grid_matrix_plan import BF16, F16, TF32, InMemory, matrix_inputs, plan_matrices, shared_bytes
from hlojit.lowering.target import Target
from hlojit.simt.kernels import emit_kernel
from hlojit.simt.matrix_products import in_memory

from .test_dot import Numbers, compare, draw, instruction_of, product, run

ONE = GridMachine(1, matrix_inputs=H200.matrix_inputs)
"""One multiprocessor: even small products take the largest tiles."""
SEVERAL = replace(ONE, registers_per_thread=48)
"""Sums of a warp are those of four instructions."""
PLAIN = replace(H200, matrix_inputs=())
OWN = InMemory(2, is_own=True), InMemory(2, is_own=True)
PRODUCT: Numbers = ((), (), (1,), (0,))


def layout(m: int, n: int, k: int, transposed: str) -> tuple[tuple[int, int], tuple[int, int], Numbers]:
    lhs, rhs = ((k, m) if "a" in transposed else (m, k)), ((n, k) if "b" in transposed else (k, n))
    return lhs, rhs, ((), (), (0 if "a" in transposed else 1,), (1 if "b" in transposed else 0,))


def inputs_of(lhs: str, rhs: str, compute: str = "f32", machine: GridMachine = H200, **options: Any) -> str:
    found = matrix_inputs(element_type(lhs), element_type(rhs), compute, machine, **options)
    return "" if found is None else f"{found.lhs.name} {found.rhs.name}"


def test_inputs_hold_every_number_of_both_operands() -> None:
    assert inputs_of("bf16", "bf16") == "bf16 bf16" and inputs_of("f16", "f16") == "f16 f16"
    assert inputs_of("f16", "bf16") == "tf32 tf32" and inputs_of("f32", "bf16") == ""
    assert inputs_of("f8E4M3FN", "f8E5M2") == "bf16 bf16" and inputs_of("f8E5M2", "f16") == "f16 f16"
    assert inputs_of("f8E4M3FN", "f8E5M2", imprecise=True) == "e4m3 e5m2"
    assert inputs_of("f8E8M0FNU", "f8E4M3FN") == "bf16 bf16", "2**-127 is a subnormal number there"
    assert inputs_of("i8", "ui8", "i32") == "s8 u8" and inputs_of("i1", "i4", "i32") == "u8 s8"
    assert (
        inputs_of("i8", "i16", "i32") == ""
        and inputs_of("i8", "i8", "i64") == ""
        and inputs_of("f64", "f64", "f64") == ""
    )
    assert inputs_of("bf16", "bf16", machine=PLAIN) == ""
    assert inputs_of("f8E4M3FN", "f8E4M3FN", machine=replace(H200, matrix_inputs=("f16",))) == "f16 f16"


@pytest.mark.parametrize("input", [BF16, F16, TF32], ids=lambda input: input.name)
def test_inputs_hold_what_converts_there_and_back(input: Any) -> None:
    """Every format that NumPy can convert, all its codes, one by one."""
    precisions = {"bf16": (ml_dtypes.bfloat16, 16), "f16": (np.float16, 0)}
    for row in element_types():
        if row.dtype is None or row.bits > 16 or not hasattr(row, "mantissa_bits"):
            continue
        codes = np.arange(1 << row.bits, dtype=np.uint16 if row.bits > 8 else np.uint8)
        with np.errstate(invalid="ignore"):
            values = codes.view(row.dtype).astype(np.float64)
        values = values[np.isfinite(values)]
        if input.name == "tf32":
            narrow = (
                (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
            )
        else:
            with np.errstate(over="ignore"):
                narrow = values.astype(precisions[input.name][0]).astype(np.float64)
        assert input.holds(row) == bool((narrow == values).all()), row.name


@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
@pytest.mark.parametrize("types", [("bf16", "bf16", "f32"), ("i8", "ui8", "i32")], ids="-".join)
def test_fragments(types: Sequence[str], transposed: str) -> None:
    check(*layout(72, 40, 96, transposed), types, SEVERAL)


@pytest.mark.parametrize("transposed", ["", "ab"])
@pytest.mark.parametrize("types", [("f16", "f16", "f16"), ("f16", "bf16", "f32")], ids="-".join)
def test_fragments_of_other_inputs(types: Sequence[str], transposed: str) -> None:
    check(*layout(40, 24, 48, transposed), types, H200)


@pytest.mark.parametrize("transposed", ["", "ab"])
@pytest.mark.parametrize("shape", [(19, 35, 21), (8, 8, 1000), (130, 70, 33)], ids=str)
def test_edges(shape: tuple[int, int, int], transposed: str) -> None:
    check(*layout(*shape, transposed), ("bf16", "bf16", "bf16"), H200)


@pytest.mark.parametrize("shape", [(40, 57, 64), (9, 37, 1100), (33, 129, 40)], ids=str)
@pytest.mark.parametrize(
    "types", [("bf16", "bf16", "bf16"), ("bf16", "bf16", "f32"), ("i8", "i8", "i8"), ("i8", "i8", "i32")], ids="-".join
)
def test_rows_that_are_no_whole_pieces(types: Sequence[str], shape: tuple[int, int, int]) -> None:
    check(*layout(*shape, "b"), types, H200)


def test_batches_and_large_tiles() -> None:
    check((2, 128, 64), (2, 64, 160), ((0,), (0,), (2,), (1,)), ("bf16", "bf16", "f32"), ONE)


@pytest.mark.parametrize("types", [("i1", "i4", "i8"), ("i4", "i4", "ui32"), ("i8", "i8", "i16")], ids="-".join)
def test_narrow_integers_are_exact(types: Sequence[str]) -> None:
    check((40, 300), (300, 24), PRODUCT, types, H200)


def check(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], numbers: Numbers, types: Sequence[str], machine: GridMachine
) -> None:
    lhs, rhs = draw(lhs_shape, types[0], 1), draw(rhs_shape, types[1], 2)
    instruction = instruction_of(lhs_shape, rhs_shape, numbers, types)
    assert "mma.sync" in ptx_of(instruction, SM_90)
    compare(run(instruction, lhs, rhs, machine), lhs, rhs, numbers, types[2])


def test_a_vendors_narrow_float_is_multiplied_by_matrix_instructions() -> None:
    row = ext.FloatFormat(
        "test6", exponent_bits=3, mantissa_bits=2, bias=3, has_infinity=False,
        nan=ext.NanEncoding.NONE, overflow=ext.Overflow.SATURATE,
    )  # fmt: skip
    plugin: Any = SimpleNamespace(__name__="test", hlojit_formats=ext.hookimpl(lambda: [row]))
    generator = np.random.default_rng(0)
    codes = [generator.integers(0, 64, shape, np.uint8) for shape in ((40, 72), (72, 24))]
    numbers = [each.view(ml_dtypes.float6_e3m2fn).astype(np.float64) for each in codes]
    with ext.using(plugin):
        instruction = instruction_of((40, 72), (72, 24), PRODUCT, ("test6", "test6", "f32"))
        ptx = ptx_of(instruction, SM_90)
        assert "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" in ptx
        assert "fma.rn.bf16x2" in ptx and "mul.rn.f32" not in ptx, "two codes are decoded at once"
        found = run(instruction, codes[0], codes[1])
    compare(found, numbers[0], numbers[1], PRODUCT, "f32")


def test_single_precision_is_rounded_only_where_it_may_be() -> None:
    lhs, rhs = draw((40, 64), "f32", 1), draw((64, 24), "f32", 2)
    allowed = replace(H200, rounds_to_tf32=True)

    def on(machine: GridMachine, extra: str = "") -> bytes:
        return run(instruction_of((40, 64), (64, 24), PRODUCT, ("f32",) * 3, extra), lhs, rhs, machine).tobytes()

    full = on(H200)
    compare(np.frombuffer(full, np.float32).reshape(40, 24), lhs, rhs, PRODUCT, "f32")
    highest = ", precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]"
    assert on(allowed, highest) == full
    algorithm = (
        ", algorithm = #stablehlo.dot_algorithm<lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32,"
        " lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1,"
        " allow_imprecise_accumulation = false>"
    )
    rounded = on(allowed)
    assert rounded == on(H200, algorithm) != full
    narrow = [
        np.round(np.ldexp(m, 11)) * np.ldexp(1.0, e - 11)
        for m, e in (np.frexp(each.astype("f8")) for each in (lhs, rhs))
    ]
    compare(np.frombuffer(rounded, np.float32).reshape(40, 24), narrow[0], narrow[1], PRODUCT, "f32")


def test_imprecise_sums_of_eight_bits_are_multiplied_as_they_are() -> None:
    extra = (
        ", algorithm = #stablehlo.dot_algorithm<lhs_precision_type = f8E4M3FN, rhs_precision_type = f8E5M2,"
        " accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1,"
        " allow_imprecise_accumulation = true>"
    )
    instruction = instruction_of((40, 72), (72, 24), PRODUCT, ("f8E4M3FN", "f8E5M2", "f32"), extra)
    assert "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32" in ptx_of(instruction, SM_90)
    assert "f32.bf16.bf16.f32" in ptx_of(instruction, SM_80), "an A100 has no instruction for them"
    lhs, rhs = draw((40, 72), "f8E4M3FN", 1), draw((72, 24), "f8E5M2", 2)
    compare(run(instruction, lhs, rhs), lhs, rhs, PRODUCT, "f32")


def test_plan_tiles_follow_from_the_machine() -> None:
    types = matrix_inputs(element_type("bf16"), element_type("bf16"), "f32", H200)
    assert types is not None
    large = plan_matrices(product(4096, 4096, 4096), types, OWN, H200)
    assert large is not None and (large.rows, large.columns, large.terms, large.threads) == (128, 128, 32, 256)
    assert (large.lhs.lanes, large.rhs.lanes) == (8, 8)
    small = plan_matrices(product(256, 256, 256), types, OWN, H200)
    assert small is not None and small.blocks > large.tile.rows // 4
    cramped = plan_matrices(product(4096, 4096, 4096), types, OWN, replace(H200, shared_bytes=16 << 10))
    assert cramped is not None and cramped.stages == 2
    assert shared_bytes(cramped.tile, (cramped.lhs, cramped.rhs), OWN, types, cramped.stages) <= 16 << 10
    assert plan_matrices(product(7, 4096, 4096), types, OWN, H200) is None
    assert plan_matrices(product(4096, 4096, 4096), types, OWN, replace(H200, warp=64)) is None


@pytest.mark.parametrize("target", [SM_80, SM_90, SM_100], ids=lambda target: target.cpu)
@pytest.mark.parametrize(
    ("types", "instruction"),
    [
        (("bf16", "bf16", "f32"), "m16n8k16.row.col.f32.bf16.bf16.f32"),
        (("f16", "f16", "f16"), "m16n8k16.row.col.f32.f16.f16.f32"),
        (("f16", "bf16", "f32"), "m16n8k8.row.col.f32.tf32.tf32.f32"),
        (("f8E4M3FN", "f8E4M3FN", "f32"), "m16n8k16.row.col.f32.bf16.bf16.f32"),
        (("i8", "ui8", "i32"), "m16n8k32.row.col.s32.s8.u8.s32"),
    ],
    ids=str,
)
def test_ptx(types: Sequence[str], instruction: str, target: Target) -> None:
    for transposed in ("", "ab"):
        ptx = ptx_of(instruction_of(*layout(4096, 4096, 512, transposed), types), target)
        assert f"mma.sync.aligned.{instruction}" in ptx
        assert not re.search(r"\bcall\b", ptx) and ".local" not in ptx
        assert ("x4.trans" in ptx) == ("tf32" not in instruction), "lines of rows are transposed on the way"
        assert "ldmatrix.sync.aligned.m8n8.x4" in ptx
        assert "cp.async.cg.shared.global" in ptx, "operands are copied 16 bytes at once"
        assert "ld.global" not in ptx, "nothing comes by registers"
        assert re.search(r"st\.global\.(v4\.b32|v2\.b64)", ptx), "results are written 16 bytes at once"


@pytest.mark.parametrize(
    ("lhs", "rhs", "result", "passages"),
    [
        ("bf16", "bf16", "f32", (Passage.COPIED, Passage.COPIED)),
        ("ui8", "i8", "i32", (Passage.COPIED, Passage.COPIED)),
        ("f8E4M3FN", "bf16", "f32", (Passage.CONVERTED, Passage.COPIED)),
        ("f16", "bf16", "f32", (Passage.CONVERTED, Passage.CONVERTED)),
        ("f8E8M0FNU", "bf16", "f32", (Passage.REGISTERS, Passage.COPIED)),
    ],
)
def test_plan_passages(lhs: str, rhs: str, result: str, passages: tuple[Passage, Passage]) -> None:
    """What lies in memory as instructions take it is copied; what does not is copied first, unless zeros are no zeros."""
    inputs = matrix_inputs(element_type(lhs), element_type(rhs), result, H200)
    assert inputs is not None
    memory = tuple(
        in_memory(Elements(element_type(name), result), input) for name, input in ((lhs, inputs.lhs), (rhs, inputs.rhs))
    )
    plan = plan_matrices(product(512, 512, 512), inputs, (memory[0], memory[1]), H200)
    assert plan is not None and (plan.lhs.passage, plan.rhs.passage) == passages and plan.stages == 4
    odd = plan_matrices(product(512, 512, 511), inputs, (memory[0], memory[1]), H200)
    assert odd is not None and odd.lhs.passage is Passage.REGISTERS, "every second row begins between two words"
    assert (plan.held > 0) == (Passage.REGISTERS in passages)
    assert odd.held <= H200.registers_per_thread // 2, "dozens of single elements would be spilled"
    assert odd.at_once * odd.threads * (odd.held + 96) <= H200.registers
    without = plan_matrices(
        product(512, 512, 512), inputs, (memory[0], memory[1]), replace(H200, asynchronous_copies=False)
    )
    assert without is not None and without.stages == 2
    assert {without.lhs.passage, without.rhs.passage} == {Passage.REGISTERS}


def test_both_assemblers_take_them() -> None:
    code = emit_kernel(instruction_of((256, 256), (256, 256), PRODUCT, ("bf16",) * 3), SM_90, NvptxDialect(), "kernel")
    ptx = assembler("numba").ptx(code, SM_90)
    assert "mma.sync.aligned.m16n8k16" in ptx and "x4.trans" in ptx and not re.search(r"\bcall\b", ptx)


def ptx_of(instruction: Instruction, target: Target) -> str:
    return assembler("llvm").ptx(emit_kernel(instruction, target, NvptxDialect(), "kernel"), target)
