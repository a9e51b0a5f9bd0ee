"""sort: by keys with vectors where the comparator is an order by keys, else by merging with the comparator inlined."""

from __future__ import annotations

from hlojit.cpu.kernels.key_sort import emit_key_sort
from hlojit.cpu.kernels.merge_sort import emit_merge_sort
from hlojit.cpu.kernels.shared_counting import SharedCountingPlan, emit_shared_counting
from hlojit.cpu.kernels.shared_sort import SharedSortPlan, emit_shared_sort
from hlojit.cpu.kernels.top_k import TopKPlan, emit_top_k
from hlojit.ir.graph import Instruction
from hlojit.llvm.fusion_emitter import emit_fusion
from hlojit.lowering.body import Body
from hlojit.lowering.fusion_kind import FusionKind
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.line_sort_plan import LineSortPlan
from hlojit.lowering.selection import Selection
from hlojit.lowering.sorted_arrays import SortedArrays, selected_arrays, sorted_arrays
from hlojit.lowering.target import Target


def emit_sort(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """Sort all operands along ``dimension`` in the order that the comparator region gives."""
    arrays = sorted_arrays(instruction)
    plan = LineSortPlan.of(arrays, target)
    if plan is None:
        return emit_merge_sort(instruction, target, symbol)
    return _emit_by_keys(plan, arrays, target, symbol)


def _emit_by_keys(plan: LineSortPlan, arrays: SortedArrays, target: Target, symbol: str) -> KernelCode:
    counted = SharedCountingPlan.of(plan, target)
    if counted is not None:
        return emit_shared_counting(counted, arrays, target, symbol)
    shared = SharedSortPlan.of(plan, target)
    if shared is not None:
        return emit_shared_sort(shared, arrays, target, symbol)
    return emit_key_sort(plan, arrays, target, symbol)


def emit_fused(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """A fusion of any kind; of a selection some neighbours in sorted lines."""
    body = Body.of(instruction)
    if FusionKind.of(body) is not FusionKind.SELECTION:
        return emit_fusion(instruction, target, symbol)
    selection = Selection.of(body)
    assert selection is not None
    arrays = selected_arrays(selection, len(instruction.operands))
    plan = LineSortPlan.of(arrays, target)
    # A selection is only made where the comparator is an order by keys of at most 64 bits.
    assert plan is not None
    if TopKPlan.pays(plan):
        return emit_top_k(TopKPlan.of(plan, target), arrays, target, symbol)
    return _emit_by_keys(plan, arrays, target, symbol)
