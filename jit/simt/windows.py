"""``reduce_window`` as a kernel of threads: every element of the result combines one window, or the windows are a scan."""

from __future__ import annotations

from hlojit.ir.graph import Instruction
from hlojit.llvm.reduce_window import window_rule
from hlojit.lowering.body import Body
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target
from hlojit.lowering.window_plan import scanned_dimension, windows_of
from hlojit.simt.dialect import Dialect
from hlojit.simt.elementwise import emit_elementwise
from hlojit.simt.kernels import emit_empty
from hlojit.simt.scans import emit_scan


def emit_reduce_window(instruction: Instruction, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """The kernel of a ``reduce_window`` instruction."""
    windows, body = windows_of(instruction), Body.of(instruction)
    if instruction.results[0].tensor_type.size == 0:
        return emit_empty(body, target, dialect, symbol)
    dimension = scanned_dimension(instruction, windows)
    if dimension is not None:
        return emit_scan(instruction, target, dialect, symbol, dimension, reverse=windows[dimension].low == 0)
    rules = {instruction: window_rule(windows)}
    return emit_elementwise(Body(body.parameters, body.roots, body.operand_types, rules), target, dialect, symbol)
