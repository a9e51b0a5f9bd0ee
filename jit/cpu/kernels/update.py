"""dynamic_update_slice: copies the update, run by run, to its clamped place in the operand's buffer."""

from __future__ import annotations

import math

from hlojit.ir.formats import IntegerType
from hlojit.ir.graph import Instruction
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.region import clamp, delinearize, wide_index
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.loop_plan import ROW_CYCLES
from hlojit.lowering.target import Target


def emit_dynamic_update_slice(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """Operands: operand, update, one start index a dimension.  One task copies one contiguous run of the update."""
    operand, update = (value.tensor_type for value in instruction.operands[:2])
    itemsize = operand.element_type.itemsize
    outer = contiguous_suffix(operand.shape, update.shape)
    run = math.prod(update.shape[outer:])
    b = LlvmBuilder()
    with b.function(symbol, [("ptr", "context"), ("ptr", "buffers"), ("i64", "begin"), ("i64", "end")]) as parameters:
        _, buffers, begin, end = parameters
        source = load_buffer(b, buffers, 1)
        result = load_buffer(b, buffers, 2 + operand.rank)
        starts = [_start(b, instruction, buffers, dimension) for dimension in range(operand.rank)]
        base = Val("0", "i64")
        for start, stride in zip(starts, operand.strides):
            base = b.add(base, b.mul(start, b.constant("i64", stride)))
        loop = b.begin_loop(begin, end)
        offset = base
        for position, stride in zip(delinearize(b, loop.index, update.shape[:outer]), operand.strides):
            offset = b.add(offset, b.mul(position, b.constant("i64", stride)))
        copy_bytes(
            b,
            byte_pointer(b, result, b.mul(offset, b.constant("i64", itemsize))),
            byte_pointer(b, source, b.mul(loop.index, b.constant("i64", run * itemsize))),
            run * itemsize,
        )
        b.end_loop(loop)
    tasks = math.prod(update.shape[:outer])
    cost = (
        target.machine.nanoseconds(ROW_CYCLES) + 2 * run * itemsize / target.machine.memory_bandwidth
    )  # read and written
    return kernel_code(b, (Phase(symbol, tasks, cost),), in_place=((0, 0),), updates=True)


def contiguous_suffix(shape: tuple[int, ...], part: tuple[int, ...]) -> int:
    """The first dimension from which a part of an array lies in one run: all later dimensions are whole."""
    for dimension in range(len(shape) - 1, -1, -1):
        if part[dimension] != shape[dimension]:
            return dimension
    return 0


def load_buffer(b: LlvmBuilder, buffers: Val, number: int) -> Val:
    """Address of a kernel's buffer."""
    return b.load("ptr", b.emit("ptr", 1, f"getelementptr inbounds ptr, ptr {buffers.text}, i64 {number}"))


def byte_pointer(b: LlvmBuilder, base: Val, offset: Val) -> Val:
    """``base`` plus ``offset`` bytes."""
    return b.emit("ptr", 1, f"getelementptr inbounds i8, ptr {base.text}, i64 {offset.text}")


def copy_bytes(b: LlvmBuilder, target: Val, source: Val, nbytes: int) -> None:
    """Copy a constant number of bytes that do not overlap."""
    b.declare("llvm.memcpy", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    b.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target.text}, ptr {source.text}, i64 {nbytes}, i1 false)")


def load_index(b: LlvmBuilder, element: IntegerType, pointer: Val) -> Val:
    """An integer of any type as an i64, see ``wide_index``."""
    return wide_index(b, element, b.load(f"i{element.itemsize * 8}", pointer))


def _start(b: LlvmBuilder, instruction: Instruction, buffers: Val, dimension: int) -> Val:
    operand, update = (value.tensor_type for value in instruction.operands[:2])
    element = instruction.operands[2 + dimension].tensor_type.element_type
    assert isinstance(element, IntegerType)
    value = load_index(b, element, load_buffer(b, buffers, 2 + dimension))
    return clamp(b, value, 0, operand.shape[dimension] - update.shape[dimension])
