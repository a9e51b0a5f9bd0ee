"""Anchored fusions on the CPU: a product or a convolution, and what follows it element by element, as one kernel.

Kernels that compute boxes of results hand every box on while it is in a cache (``InScratch``): they are the same code whatever
follows, one for all kernels of a process, and find the functions that follow in their table of buffers.  Where results come
in another way - a long sum in parts, an order of dimensions that is none of the kernel's, a plugin's function - the anchor's
own kernel writes them to workspace, and a loop follows: as two kernels would, in one launch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from hlojit.cpu.kernels import kernel_emitter
from hlojit.cpu.kernels.addresses import buffer
from hlojit.cpu.kernels.convolution_forms import emit_convolution_group
from hlojit.cpu.kernels.dot_forms import emit_dot_group
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.definition import Kernel
from hlojit.ir.versions import versions_text
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.elementwise import emit_loop_kernel
from hlojit.llvm.epilogue import Epilogue
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.loops import KERNEL_PARAMETERS
from hlojit.llvm.product_elements import at
from hlojit.lowering.anchored_body import AnchoredBody
from hlojit.lowering.dot_problem import round_up
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.structure import isolated
from hlojit.lowering.target import Target

_BY_BOXES: Final[dict[str, Callable[[AnchoredBody, Target, str], tuple[KernelCode, Epilogue] | None]]] = {
    "dot_general": emit_dot_group,
    "convolution": emit_convolution_group,
}
_PREFIX: Final = "hlojit_anchor"

Entry = Val | tuple[int, int]
"""Of a table of buffers: an address, or the number of a buffer of the fusion's and an offset in it."""
_NOTHING: Final = Val("null", "ptr")
_OWN_TABLE: Final = Val("%buffers", "ptr")


def emit_anchored(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """Emit a fusion of the kind ``anchor``."""
    group = AnchoredBody.of(instruction)
    found = _BY_BOXES[_kernel_of(group)](group, target, _PREFIX)
    if found is None:
        return _one_after_the_other(group, target, symbol)
    return _by_boxes(group, _shared(found[0], target), found[1], symbol)


def _kernel_of(group: AnchoredBody) -> str:
    lowering = group.anchor.op.lowering
    assert isinstance(lowering, Kernel)
    return lowering.name


def _shared(code: KernelCode, target: Target) -> KernelCode:
    """A kernel as a part of others, the prefix of its symbols replaced by the hash of what it depends on."""
    content = f"{target.identity}\0{versions_text()}\0{code.ir}"
    prefix = f"hlojit_{hashlib.sha256(content.encode()).hexdigest()[:32]}"
    phases = tuple(replace(phase, symbol=phase.symbol.replace(_PREFIX, prefix)) for phase in code.phases)
    return replace(code, ir=code.ir.replace(_PREFIX, prefix), phases=phases)


def _by_boxes(group: AnchoredBody, product: KernelCode, epilogue: Epilogue, symbol: str) -> KernelCode:
    """The anchor's kernel, with a table in which it finds what follows."""
    b = LlvmBuilder()
    functions = [Val(name, "ptr") for name in epilogue.emit(b, symbol)]
    table: list[Entry] = [
        *((number, 0) for number in group.operands),
        _NOTHING,
        (group.buffers, 0),
        _OWN_TABLE,
        *functions,
    ]
    *before, last = product.phases
    cost = epilogue.nanoseconds * group.sums.tensor_type.size / last.tasks
    phases = [*before, replace(last, cost=last.cost + cost)]
    here = _forwarded(b, [(phase, table) for phase in phases], symbol)
    return kernel_code(b, here, product.workspace_bytes, in_place=epilogue.in_place, parts=(product,))


def _one_after_the_other(group: AnchoredBody, target: Target, symbol: str) -> KernelCode:
    """The anchor's kernel, with its result in workspace, and a loop that reads it there."""
    first = kernel_emitter(_kernel_of(group))(isolated(group.anchor), target, f"{symbol}.anchor")
    loop = emit_loop_kernel(group.as_loop(), target, f"{symbol}.loop")
    size = round_up(group.sums.tensor_type.nbytes, 64)
    count, between = len(group.body.operand_types), (group.buffers, 0)
    own = [*((number, 0) for number in group.operands), between, (group.buffers, size)]
    behind = [(number, 0) for number in range(group.buffers)]
    behind.insert(count, between)
    b = LlvmBuilder()
    here = _forwarded(
        b, [*((phase, own) for phase in first.phases), *((phase, behind) for phase in loop.phases)], symbol
    )
    in_place = tuple(pair for pair in loop.in_place if pair[0] < count and pair[0] not in group.operands)
    code = kernel_code(b, here, size + first.workspace_bytes, in_place=in_place, parts=(first, loop))
    reason = first.unkeyable or loop.unkeyable
    return replace(code, unkeyable=reason, imports=(*first.imports, *loop.imports))


def _forwarded(b: LlvmBuilder, launches: Sequence[tuple[Phase, Sequence[Entry]]], symbol: str) -> list[Phase]:
    """Kernels that call others with tables of buffers of their own."""
    found = []
    for number, (phase, table) in enumerate(launches):
        name = f"{symbol}.{number}" if number else symbol
        b.declare(phase.symbol, f"declare void @{phase.symbol}(ptr, ptr, i64, i64)")
        with b.function(name, KERNEL_PARAMETERS) as (context, buffers, begin, end):
            place = b.array("i64", len(table))
            for position, entry in enumerate(table):
                value = entry if isinstance(entry, Val) else at(b, buffer(b, buffers, entry[0]), entry[1])
                b.line(f"store ptr {value.text}, ptr {at(b, place, 8 * position).text}, align 8")
            b.line(f"call void @{phase.symbol}(ptr {context.text}, ptr {place.text}, i64 {begin.text}, i64 {end.text})")
        found.append(replace(phase, symbol=name))
    return found
