"""A kernel of threads under construction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import cast, final

from hlojit.llvm.frame import Frame
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.text import Val
from hlojit.lowering.elements import Access, Body, Elements
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.target import Target
from hlojit.simt.access import SimtAccess
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.dialect import Dialect


@final
class GridFrame(Frame):
    """One kernel function of a thread: the buffers' addresses are its parameters."""

    access: SimtAccess
    builder: SimtBuilder

    def __init__(self, target: Target, body: Body, dialect: Dialect):
        super().__init__(target, body, SimtBuilder(dialect))

    @contextmanager
    def kernel(self, symbol: str, threads: int, *, workspaces: int = 0) -> Iterator[list[Val]]:
        """Open the function; ``workspaces`` is 1 if the kernel has a workspace, whose address is given."""
        count = len(self.body.operand_types) + len(self.body.roots)
        with self.builder.kernel(symbol, count + workspaces, threads) as addresses:
            sizes = [self.body.length(number) for number in range(count)]
            self.access = SimtAccess(self.builder, self.target, addresses[:count], sizes)
            self.elements = Elements(cast(Access, self.access), self.body)
            yield addresses[count:]

    def code(
        self, phases: Iterable[Phase], workspace_bytes: int = 0, *, in_place: tuple[tuple[int, int], ...] = ()
    ) -> KernelCode:
        """The kernel's record."""
        return kernel_code(self.builder, phases, workspace_bytes, in_place=in_place)
