"""sort: by keys with vectors where the comparator is an order by keys, else by merging with the comparator inlined."""

from __future__ import annotations

from hlojit.cpu.kernels.key_sort import emit_key_sort
from hlojit.cpu.kernels.merge_sort import emit_merge_sort
from hlojit.ir.graph import Instruction
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.line_sort_plan import LineSortPlan
from hlojit.lowering.target import Target


def emit_sort(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """Sort all operands along ``dimension`` in the order that the comparator region gives."""
    plan = LineSortPlan.of(instruction, target)
    if plan is None:
        return emit_merge_sort(instruction, target, symbol)
    return emit_key_sort(plan, instruction, target, symbol)
