"""Reductions and row kernels of threads as PTX: wide accesses, shuffles, and nothing read twice that could be kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hlojit.cuda.assemblers.choice import NAMES, assembler
from hlojit.cuda.nvptx import SM_80, SM_90, SM_100, NvptxDialect
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Block, Instruction
from hlojit.ir.ops.definition import op
from hlojit.ir.types import TensorType, tensor
from hlojit.lowering.target import Target
from hlojit.simt.kernels import emit_kernel

TARGETS = pytest.mark.parametrize("target", [SM_80, SM_90, SM_100], ids=lambda target: target.cpu)


def fusion(build: Callable[..., Any], *types: TensorType) -> Instruction:
    block = Block(types)
    builder = Builder(block)
    roots = build(builder, *block.arguments)
    roots = tuple(roots) if isinstance(roots, (tuple, list)) else (roots,)
    builder.return_(*roots)
    outer = Block(types)
    return Instruction(op("hlojit.fusion"), outer.arguments, [root.type for root in roots], {"kind": "row"}, [block])


def ptx_of(build: Callable[..., Any], *types: TensorType, target: Target = SM_90) -> str:
    ptx = assembler("llvm").ptx(emit_kernel(fusion(build, *types), target, NvptxDialect(), "kernel"), target)
    assert not re.search(r"\bcall\b", ptx), "nobody defines what would be called"
    assert ".local" not in ptx, "nothing lies in memory that could be in registers"
    return ptx


def count(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text))


def softmax(b: Any, x: Any) -> Any:
    type = x.tensor_type
    scalar = tensor((), type.element_type)
    largest = b.reduce([x], [b.constant(-np.inf, scalar)], b.combiner("maximum", type.element_type), dimensions=(1,))
    power = b.exponential(b.subtract(x, b.broadcast_in_dim(largest, type.shape, (0,))))
    total = b.reduce([power], [b.constant(0.0, scalar)], b.combiner("add", type.element_type), dimensions=(1,))
    return b.divide(power, b.broadcast_in_dim(total, type.shape, (0,)))


def reduction(axes: tuple[int, ...], name: str = "add") -> Callable[..., Any]:
    def build(b: Any, x: Any) -> Any:
        element = x.tensor_type.element_type
        return b.reduce([x], [b.constant(0, tensor((), element))], b.combiner(name, element), dimensions=axes)

    return build


@TARGETS
@pytest.mark.parametrize(("dtype", "pieces"), [("f32", 4), ("bf16", 2), ("f64", 4)])
def test_softmax_reads_its_input_once(target: Target, dtype: str, pieces: int) -> None:
    ptx = ptx_of(softmax, tensor((8192, 256 if dtype == "f64" else 512), dtype), target=target)
    wide = r"global(\.L1::\w+)?\.(v4\.b32|v2\.b64)"
    assert count(r"\bld\.global", ptx) == count(r"\bld\." + wide, ptx) == pieces
    assert count(r"\bst\.global", ptx) == count(r"\bst\." + wide, ptx) == pieces
    words = 2 if dtype == "f64" else 1
    assert count(r"shfl\.sync\.bfly", ptx) == 2 * 5 * words, "a warp a row: five steps for each of two reductions"
    assert "bar.sync" not in ptx and ".shared" not in ptx


@TARGETS
def test_warps_of_a_row_meet_in_shared_memory(target: Target) -> None:
    ptx = ptx_of(softmax, tensor((8192, 8192), "f32"), target=target)
    assert count(r"\bld\.global", ptx) == 4 and count(r"bar\.sync|barrier\.sync", ptx) == 2
    assert count(r"\bst\.shared", ptx) == 2


def test_rows_beyond_the_registers_stay_in_shared_memory() -> None:
    code = emit_kernel(fusion(softmax, tensor((64, 49152), "f32")), SM_90, NvptxDialect(), "kernel")
    (phase,) = code.phases
    assert 49152 * 4 <= phase.shared_bytes <= SM_90.grid.shared_bytes  # type: ignore[union-attr]
    loops = assembler("llvm").ptx(code, SM_90).split("bar.sync")
    assert "ld.global" in loops[0] and all("ld.global" not in loop for loop in loops[1:])


def test_rows_beyond_shared_memory_are_read_again() -> None:
    code = emit_kernel(fusion(softmax, tensor((64, 100_000), "f32")), SM_90, NvptxDialect(), "kernel")
    assert code.phases[0].shared_bytes < 1024


@TARGETS
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "f8E4M3FN", "i64", "i32", "i8"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
def test_reductions_take_wide_pieces(target: Target, dtype: str, axes: tuple[int, ...]) -> None:
    ptx = ptx_of(reduction(axes), tensor((4096, 1024), dtype), target=target)
    assert f".target {target.cpu}" in ptx
    first = ptx.split(".visible .entry")[1]
    assert count(r"\bld\.global(\.L1::\w+)?\.(v4\.b32|v2\.b64)", first) == count(r"\bld\.global", first) >= 1
    if axes != (0,):
        assert "shfl.sync.bfly" in first


@pytest.mark.parametrize("name", NAMES)
def test_loops_leave_registers_for_other_blocks(name: str) -> None:
    """Whatever an assembler unrolls, a multiprocessor can hold 768 threads that wait for memory."""
    if assembler(name).unavailable():
        pytest.skip(assembler(name).unavailable())
    code = emit_kernel(fusion(reduction((0,)), tensor((1 << 26,), "f32")), SM_90, NvptxDialect(), "kernel")
    assert code.phases[0].threads == 256 and re.search(r"\.minnctapersm 3\b", assembler(name).ptx(code, SM_90))


def test_few_results_of_much_take_a_second_phase() -> None:
    code = emit_kernel(fusion(reduction((0,)), tensor((100_000_007,), "f32")), SM_90, NvptxDialect(), "kernel")
    first, second = code.phases
    assert first.tasks > 500 and second.tasks == 1 and code.workspace_bytes >= first.tasks * 4
    assert second.symbol == "kernel.chunks"


def cumulative_sum(shape: tuple[int, ...], axis: int) -> Instruction:
    types = [tensor(shape, "f32"), tensor((), "f32")]
    block = Block(types)
    b = Builder(block)
    size = tuple(extent if dimension == axis else 1 for dimension, extent in enumerate(shape))
    padding = tuple((extent - 1, 0) for extent in size)
    zero, region = b.constant(0.0, types[1]), b.combiner("add", "f32")
    found = b.reduce_window([block.arguments[0]], [zero], region, window_dimensions=size, padding=padding).producer
    assert found is not None
    return found


@TARGETS
def test_scans_read_and_write_wide_pieces(target: Target) -> None:
    for axis in (0, 1):
        code = emit_kernel(cumulative_sum((1024, 4096 * 128), axis), target, NvptxDialect(), "kernel")
        ptx = assembler("llvm").ptx(code, target)
        assert not re.search(r"\bcall\b|\.local", ptx)
        init = 1
        assert count(r"\bld\.global(\.L1::\w+)?\.(v4\.b32|v2\.b64)", ptx) == count(r"\bld\.global", ptx) - init >= 1
        assert count(r"\bst\.global(\.L1::\w+)?\.(v4\.b32|v2\.b64)", ptx) == count(r"\bst\.global", ptx) >= 1
        assert ("shfl.sync.idx" in ptx) == (axis == 1)


def test_few_long_scans_are_cut_into_chunks() -> None:
    code = emit_kernel(cumulative_sum((1 << 24,), 0), SM_90, NvptxDialect(), "kernel")
    assert [phase.symbol for phase in code.phases] == ["kernel.chunks", "kernel"] and code.phases[0].tasks > 100
