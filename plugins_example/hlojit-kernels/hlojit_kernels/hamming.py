"""How many bits differ, row by row: LLVM IR that llvmlite builds, for the composite ``kernels.hamming``."""

from __future__ import annotations

from hlojit.extensions import CompositePattern, Declined, Kernel, KernelGroup, LlvmKernel
from llvmlite import ir

I64, PTR = ir.IntType(64), ir.PointerType()


def hamming_ir(words: int) -> ir.Module:
    """``void hamming(ptr context, ptr buffers, i64 begin, i64 end)`` for rows of so many 64-bit words.

    Two nested loops: over the rows of a range, and over the words of a row, whose ``ctpop`` LLVM vectorizes.
    """
    module = ir.Module("hamming")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR, I64, I64]), "hamming")
    _, buffers, begin, end = function.args
    entry, rows, inner, after, done = (
        function.append_basic_block(each) for each in "entry rows words after done".split()
    )
    builder = ir.IRBuilder(entry)
    left, right, result = (builder.load(builder.gep(buffers, [I64(k)], source_etype=PTR), typ=PTR) for k in range(3))
    builder.branch(rows)

    builder.position_at_end(rows)
    row = builder.phi(I64, "row")
    base = builder.mul(row, I64(words))
    builder.branch(inner)

    builder.position_at_end(inner)
    word, count = builder.phi(I64, "word"), builder.phi(I64, "count")
    place = builder.add(base, word)
    a, b = (builder.load(builder.gep(each, [place], source_etype=I64), typ=I64) for each in (left, right))
    counted = builder.add(count, builder.ctpop(builder.xor(a, b)))
    following = builder.add(word, I64(1))
    builder.cbranch(builder.icmp_signed("<", following, I64(words)), inner, after)

    builder.position_at_end(after)
    builder.store(counted, builder.gep(result, [row], source_etype=I64))
    next_row = builder.add(row, I64(1))
    builder.cbranch(builder.icmp_signed("<", next_row, end), rows, done)

    builder.position_at_end(done)
    builder.ret_void()
    row.add_incoming(begin, entry)
    row.add_incoming(next_row, after)
    for phi, value in (word, following), (count, counted):
        phi.add_incoming(I64(0), rows)
        phi.add_incoming(value, inner)
    return module


def build_hamming(group: KernelGroup) -> LlvmKernel | Declined:
    """The kernel for two matrices of 64-bit words."""
    if len(group.operand_types) != 2 or len(group.result_types) != 1:
        return Declined("two operands are wanted")
    left, right = group.operand_types
    if left != right or left.rank != 2 or left.size == 0 or left.element_type.name not in ("i64", "ui64"):
        return Declined(f"two matrices of 64-bit words are wanted, not {left} and {right}")
    if group.result_types[0].element_type.name not in ("i64", "ui64"):
        return Declined("counts of 64 bits are wanted")
    rows, words = left.shape
    return LlvmKernel(hamming_ir(words), "hamming", tasks=rows, cost=2.0 + words)


HAMMING = Kernel("kernels.hamming", backend="cpu", pattern=CompositePattern("kernels.hamming"), build=build_hamming)
