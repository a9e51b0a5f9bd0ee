"""A kernel of threads under construction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import cast, final

from hlojit.ir.formats import ComplexType
from hlojit.llvm.frame import Frame
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.text import Val
from hlojit.lowering.body import Body
from hlojit.lowering.element_access import Access
from hlojit.lowering.element_forms import memory_kind
from hlojit.lowering.elements import Elements
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.target import KIND_BITS, Target
from hlojit.simt.access import SimtAccess
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.dialect import Dialect, Memory


@final
class GridFrame(Frame):
    """One kernel function of a thread: the buffers' addresses are its parameters."""

    access: SimtAccess
    builder: SimtBuilder

    def __init__(
        self,
        target: Target,
        body: Body,
        dialect: Dialect,
        builder: SimtBuilder | None = None,
        in_workspace: int | None = None,
    ):
        """``builder``: of the module that has other kernels already; ``in_workspace``: an operand that is no buffer."""
        super().__init__(target, body, SimtBuilder(dialect) if builder is None else builder)
        self.in_workspace = in_workspace

    @contextmanager
    def kernel(self, symbol: str, threads: int, *, workspace_bytes: int = 0, at_once: int = 1) -> Iterator[list[Val]]:
        """Open the function; gives the address of the workspace, if there is one."""
        count = len(self.body.operand_types) + len(self.body.roots)
        buffers = [self._memory(number) for number in range(count) if number != self.in_workspace]
        given = len(buffers)
        if workspace_bytes:
            buffers.append(Memory("the workspace", workspace_bytes, is_written=True))
        with self.builder.kernel(symbol, buffers, threads, at_once=at_once) as addresses:
            sizes = [self.body.length(number) for number in range(count)]
            bases = addresses[:given]
            if self.in_workspace is not None:
                bases.insert(self.in_workspace, addresses[given])
            self.access = SimtAccess(self.builder, self.target, bases, sizes)
            self.elements = elements = Elements(cast(Access, self.access), self.body)
            numbers = {member: number for number, member in enumerate(self.body.members)}
            self.builder.member = lambda: numbers.get(elements.reader, -1) if elements.reader is not None else -1
            yield addresses[given:]

    def _memory(self, number: int) -> Memory:
        operands = self.body.operand_types
        is_result = number >= len(operands)
        kind = self.body.roots[number - len(operands)].tensor_type if is_result else operands[number]
        name = f"result {number - len(operands)}" if is_result else f"operand {number}"
        element, length = kind.element_type, self.body.length(number)
        if isinstance(element, ComplexType):
            # Pairs of reals.
            return Memory(f"{name} ({kind})", length * element.itemsize, element.itemsize // 2, is_written=is_result)
        itemsize = max(8, KIND_BITS[memory_kind(element)]) // 8
        return Memory(f"{name} ({kind})", length * itemsize, itemsize, is_written=is_result)

    def phase(self, symbol: str, blocks: int, cost: float) -> Phase:
        """The launch of the kernel that was emitted last: ``cost`` are the nanoseconds of a block."""
        b = self.builder
        calls = b.foreign
        return Phase(symbol, blocks, cost, b.threads, b.shared_bytes, calls.has_status, calls.reports)

    def code(
        self,
        phases: Iterable[Phase],
        workspace_bytes: int = 0,
        *,
        in_place: tuple[tuple[int, int], ...] = (),
        updates: bool = False,
    ) -> KernelCode:
        """The kernel's record."""
        return kernel_code(self.builder, phases, workspace_bytes, in_place=in_place, updates=updates)
