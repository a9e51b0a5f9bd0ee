"""scatter and dynamic_update_slice on machines with threads: which updates go at once, which in order."""

from __future__ import annotations

import re

import hlojit
import pytest
from hlojit.compiler import lower
from hlojit.cuda.assemblers.choice import assembler
from hlojit.cuda.nvptx import SM_90, NvptxDialect
from hlojit.extensions import CompileOptions, registry
from hlojit.lowering.kernel import KernelCode
from hlojit.simt.kernels import emit_kernel


def rows_scatter(dtype: str, combiner: str, *, unique: bool = False) -> KernelCode:
    """Rows of 768 combined into a table of 50,257."""
    table, updates = f"tensor<50257x768x{dtype}>", f"tensor<4096x768x{dtype}>"
    text = f"""
    func.func @main(%x: {table}, %i: tensor<4096x1xi32>, %u: {updates}) -> {table} {{
      %0 = "stablehlo.scatter"(%x, %i, %u) ({{
      ^bb0(%a: tensor<{dtype}>, %b: tensor<{dtype}>):
        %1 = stablehlo.{combiner} %a, %b : tensor<{dtype}>
        stablehlo.return %1 : tensor<{dtype}>
      }}) {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
        scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = {str(unique).lower()}}}
        : ({table}, tensor<4096x1xi32>, {updates}) -> {table}
      return %0 : {table}
    }}"""
    module = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions())
    return emit_kernel(next(iter(module.main.body)), SM_90, NvptxDialect(), "kernel")


@pytest.mark.parametrize(
    ("dtype", "combiner", "atomic"),
    [
        ("i32", "add", "add"),
        ("ui64", "add", "add"),
        ("i64", "maximum", "max.s64"),
        ("ui32", "minimum", "min.u32"),
        ("i32", "xor", "xor"),
        ("i32", "or", "or"),
        ("ui32", "and", "and"),
    ],
)
def test_exact_combinations_in_any_order_are_atomic(dtype: str, combiner: str, atomic: str) -> None:
    code = rows_scatter(dtype, combiner)
    assert code.phases[0].tasks * code.phases[0].threads == 4096 * 768 and code.updates
    ptx = assembler("llvm").ptx(code, SM_90)
    # Without a scope PTX means the GPU's (ISA, "atom"): its own threads, not the system's.
    assert re.search(rf"(atom|red)\.(relaxed\.gpu\.)?global\.{atomic}", ptx) and ".sys." not in ptx


@pytest.mark.parametrize(
    ("dtype", "combiner"), [("f32", "add"), ("i8", "add"), ("f32", "maximum"), ("i32", "subtract")]
)
def test_what_would_show_the_order_is_done_in_order(dtype: str, combiner: str) -> None:
    code = rows_scatter(dtype, combiner)
    ptx = assembler("llvm").ptx(code, SM_90)
    assert not re.search(r"\b(atom|red)\.", ptx)
    assert "vote.sync.ballot" in ptx and code.phases[0].shared_bytes == 32
    assert code.phases[0].tasks == 4 * 132, "a block owns a range of the results, whatever the indices are"


def test_windows_whose_elements_have_one_thread_each_do_not_wait_for_each_other() -> None:
    ptx = assembler("llvm").ptx(rows_scatter("f32", "add"), SM_90)
    assert len(re.findall(r"\bbar(rier)?\.(cta\.)?sync", ptx)) == 2, "around the votes, and not behind every row"


def test_updates_that_meet_no_other_need_no_order() -> None:
    ptx = assembler("llvm").ptx(rows_scatter("f32", "add", unique=True), SM_90)
    assert "bar.sync" not in ptx and "atom" not in ptx


def test_an_update_of_a_slice_is_written_where_it_belongs() -> None:
    text = """
    func.func @main(%x: tensor<100x200xf32>, %u: tensor<10x20xf32>, %i: tensor<i32>) -> tensor<100x200xf32> {
      %0 = stablehlo.dynamic_update_slice %x, %u, %i, %i : (tensor<100x200xf32>, tensor<10x20xf32>, tensor<i32>, tensor<i32>) -> tensor<100x200xf32>
      return %0 : tensor<100x200xf32>
    }"""
    module = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions())
    code = emit_kernel(next(iter(module.main.body)), SM_90, NvptxDialect(), "kernel")
    assert code.updates and code.in_place == ((0, 0),) and code.phases[0].tasks == 1
    assert "call" not in assembler("llvm").ptx(code, SM_90)
