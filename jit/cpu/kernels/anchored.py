"""Anchored fusions on the CPU: a product or a convolution, what computes its operands and what follows, as one kernel.

Kernels that compute boxes of results hand every box on while it is in a cache (``InScratch``): they are the same code whatever
follows, one for all kernels of a process, and find the functions that follow in their table of buffers.  Where results come
in another way - a long sum in parts, an order of dimensions that is none of the kernel's, a plugin's function - the anchor's
own kernel writes them to workspace, and a loop follows: as two kernels would, in one launch.  What computes an operand is
part of the product's own code (``ComputedElements``), or a loop before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hlojit.cpu.kernels import kernel_emitter
from hlojit.cpu.kernels.addresses import buffer
from hlojit.cpu.kernels.convolution_forms import emit_convolution_group
from hlojit.cpu.kernels.dot_forms import Boxes, emit_dot_group
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.definition import Kernel
from hlojit.ir.versions import versions_text
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.elementwise import emit_loop_kernel
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.loops import KERNEL_PARAMETERS
from hlojit.llvm.product_elements import at
from hlojit.lowering.anchored_body import AnchoredBody
from hlojit.lowering.body import Body
from hlojit.lowering.dot_problem import round_up
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.structure import isolated
from hlojit.lowering.target import Target

_BY_BOXES: Final[dict[str, Callable[[AnchoredBody, Target, str], Boxes | None]]] = {
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
    launches = _Launches(group, target, symbol)
    if found is None:
        launches.one_after_the_other()
    else:
        launches.by_boxes(replace(found, code=_shared(found.code, target)))
    return launches.code()


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


@dataclass(slots=True)
class _Launches:
    """The launches of a fusion: kernels that are parts of its own, each with the table of buffers that it is to see."""

    group: AnchoredBody
    target: Target
    symbol: str
    builder: LlvmBuilder = field(default_factory=LlvmBuilder)
    tables: list[tuple[Phase, Sequence[Entry]]] = field(default_factory=list)
    parts: list[KernelCode] = field(default_factory=list)
    workspace: int = 0
    behind: int = 0
    """Bytes of workspace behind that of the fusion's own, which the kernels share one after the other."""
    in_place: tuple[tuple[int, int], ...] = ()

    def code(self) -> KernelCode:
        """The fusion's kernel."""
        b = self.builder
        phases = _forwarded(b, self.tables, self.symbol)
        nbytes = self.workspace + self.behind
        code = kernel_code(b, phases, nbytes, in_place=self.in_place, parts=tuple(self.parts))
        reason = next((part.unkeyable for part in self.parts if part.unkeyable), code.unkeyable)
        return replace(code, unkeyable=reason, imports=tuple(each for part in self.parts for each in part.imports))

    def by_boxes(self, boxes: Boxes) -> None:
        """The anchor's kernel, with a table in which it finds what follows."""
        operands, epilogue, group = self._in_memory(boxes.operands), boxes.epilogue, self.group
        functions: list[Entry] = []
        *before, last = boxes.code.phases
        if epilogue is not None:
            functions = [Val(name, "ptr") for name in epilogue.emit(self.builder, self.symbol)]
            cost = epilogue.nanoseconds * group.sums.tensor_type.size / last.tasks
            last = replace(last, cost=last.cost + cost)
            self.in_place = epilogue.in_place
        result: Entry = _NOTHING if epilogue is not None else (group.buffers - 1, 0)
        table: list[Entry] = [*operands, result, (group.buffers, self.workspace), _OWN_TABLE, *functions]
        self._launch(boxes.code, table, (*before, last))

    def one_after_the_other(self) -> None:
        """The anchor's kernel, with its result in workspace, and a loop that reads it there."""
        group = self.group
        operands = self._in_memory(group.operands)
        first = kernel_emitter(_kernel_of(group))(isolated(group.anchor), self.target, f"{self.symbol}.anchor")
        if group.is_alone:
            self._launch(first, [*operands, (group.buffers - 1, 0), (group.buffers, self.workspace)])
            return
        between = self._reserve(group.sums.tensor_type.nbytes)
        self._launch(first, [*operands, between, (group.buffers, self.workspace)])
        loop = emit_loop_kernel(group.as_loop(), self.target, f"{self.symbol}.loop")
        count = len(group.body.operand_types)
        behind: list[Entry] = [(number, 0) for number in range(group.buffers)]
        behind.insert(count, between)
        self._launch(loop, behind)
        read = group.read_before
        self.in_place = tuple(pair for pair in loop.in_place if pair[0] < count and pair[0] not in read)

    def _in_memory(self, operands: Sequence[int | Body]) -> list[Entry]:
        """Where operands lie, those that are still to be computed in workspace, behind a loop that does so."""
        found: list[Entry] = []
        for number, each in enumerate(operands):
            if isinstance(each, int):
                found.append((each, 0))
                continue
            place = self._reserve(each.roots[0].tensor_type.nbytes)
            loop = emit_loop_kernel(each, self.target, f"{self.symbol}.operand{number}")
            self._launch(loop, [*((operand, 0) for operand in range(len(each.operand_types))), place])
            found.append(place)
        return found

    def _reserve(self, nbytes: int) -> Entry:
        place = self.group.buffers, self.workspace
        self.workspace += round_up(nbytes, 64)
        return place

    def _launch(self, code: KernelCode, table: Sequence[Entry], phases: Sequence[Phase] = ()) -> None:
        """Launch a kernel, as ``phases`` if its own do not count what it calls."""
        self.tables += [(phase, table) for phase in phases or code.phases]
        self.parts.append(code)
        self.behind = max(self.behind, code.workspace_bytes)


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
