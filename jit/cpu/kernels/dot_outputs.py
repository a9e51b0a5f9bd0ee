"""Where the micro-kernels of a product write their sums: into the result, or into scratch memory that is read at once.

An output belongs to one launch whose tasks compute boxes of rows and columns of one batch element.  ``InScratch`` hands every
box, while it is near the processor, to what follows the product (``Epilogue``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlojit.cpu.kernels.addresses import buffer, dot_product
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.epilogue import Epilogue, Walk
from hlojit.llvm.product_elements import Elements, at, scaled
from hlojit.lowering.anchored_body import AnchoredBody
from hlojit.lowering.dot_problem import DotProblem, dense_steps, round_up
from hlojit.lowering.index import delinearized, variable
from hlojit.lowering.target import Target

STACK_BYTES = 64 << 10
"""Most that scratch memory takes of a thread's stack."""

WORKSPACE = 3
"""The buffer behind a product's operands and its result."""
Place = tuple[int, int]
"""Number of a buffer, and an offset in bytes."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """So many bytes for each task: on the stack, or where that is too much, at a place in workspace."""

    nbytes: int
    place: Place | None = None

    @staticmethod
    def of(nbytes: int, tasks: int, workspace: int, reserve: Callable[[int], int]) -> Scratch:
        """Choose where; ``reserve`` takes bytes of the buffer ``workspace``."""
        if nbytes <= STACK_BYTES:
            return Scratch(nbytes)
        nbytes = round_up(nbytes, 64)
        return Scratch(nbytes, (workspace, reserve(nbytes * tasks)))

    def begin(self, b: LlvmBuilder, buffers: Val) -> Val:
        """The memory of all tasks, or of the thread."""
        if self.place is None:
            return b.array("i8", self.nbytes)
        return at(b, buffer(b, buffers, self.place[0]), self.place[1])

    def of_task(self, b: LlvmBuilder, base: Val, task: Val) -> Val:
        """The memory of one task."""
        return base if self.place is None else at(b, base, scaled(b, task, self.nbytes))


@dataclass(frozen=True, slots=True)
class InMemory:
    """Rows of a dense result at a place."""

    elements: Elements
    place: Place
    problem: DotProblem

    @property
    def row_bytes(self) -> int:
        """Bytes between neighbouring rows."""
        return self.problem.n * self.elements.size

    def begin(self, b: LlvmBuilder, buffers: Val) -> Val:
        """The address of the result; emitted before the loop over tasks."""
        return at(b, buffer(b, buffers, self.place[0]), self.place[1])

    def of_task(self, b: LlvmBuilder, base: Val, task: Val, batch: Sequence[Val], row: Val) -> Val:
        """The address of a task's first row, in column 0."""
        steps = dense_steps(self.problem.batch, self.problem.m * self.problem.n)
        size = self.elements.size
        return at(b, base, dot_product(b, [*batch, row], [*(s * size for s in steps), self.row_bytes]))

    def at_column(self, b: LlvmBuilder, first: Val, column: Val) -> Val:
        """The address of a box of columns in a task's first row."""
        return at(b, first, scaled(b, column, self.elements.size))

    def at_row(self, b: LlvmBuilder, first: Val, row: Val, count: int) -> Val:
        """The address of a row, ``row * count`` rows behind the first."""
        return at(b, first, scaled(b, row, count * self.row_bytes))


@dataclass(frozen=True, slots=True)
class InScratch:
    """Rows of ``width`` columns in a task's scratch memory; each box in the place of the one before, or (``keeps``) all rows."""

    elements: Elements
    problem: DotProblem
    epilogue: Epilogue
    width: int
    scratch: Scratch
    keeps: bool

    @property
    def row_bytes(self) -> int:
        """Bytes between neighbouring rows."""
        return self.width * self.elements.size

    def begin(self, b: LlvmBuilder, buffers: Val) -> Val:
        """The scratch memory; emitted before the loop over tasks."""
        return self.scratch.begin(b, buffers)

    def of_task(self, b: LlvmBuilder, base: Val, task: Val, batch: Sequence[Val], row: Val) -> Val:
        """The task's memory."""
        return self.scratch.of_task(b, base, task)

    def at_column(self, b: LlvmBuilder, first: Val, column: Val) -> Val:
        """Every box begins there."""
        return first

    def at_row(self, b: LlvmBuilder, first: Val, row: Val, count: int) -> Val:
        """The address of a row of sums, ``row * count`` rows behind the first."""
        return at(b, first, scaled(b, row, count * self.row_bytes)) if self.keeps else first

    def above(self, b: LlvmBuilder, batch: Sequence[Val], row: Val) -> Val:
        """A row of one batch element, counted through all of them."""
        return b.add(dot_product(b, batch, dense_steps(self.problem.batch, self.problem.m)), row)

    def ahead(self, b: LlvmBuilder, columns: int, buffers: Val, rows: tuple[Val, Val], column: Val) -> None:
        """Emit the call that asks ahead for what a box will want."""
        self.epilogue.ahead(b, buffers, (), rows, (column, columns))

    def finish(self, b: LlvmBuilder, columns: int, buffers: Val, sums: Val, rows: tuple[Val, Val], column: Val) -> None:
        """Emit what follows for a box: its rows (from, to) of all batch elements, and its first column."""
        entry = self.epilogue.entry(columns, self.row_bytes)
        self.epilogue.call(b, entry, buffers, sums, (), rows, (column, columns))


Output = InMemory | InScratch


def dot_epilogue(group: AnchoredBody, target: Target, problem: DotProblem, sums: Elements) -> Epilogue | None:
    """What follows a product whose dense result has rows of all batch elements, and columns; None if it cannot go by boxes."""
    row = variable("row", 0, problem.batch_size * problem.m - 1)
    column = variable("column", 0, problem.n - 1)
    index = delinearized(row * problem.n + column, group.sums.tensor_type.shape)
    return Epilogue.of(group, target, sums, Walk((), "row", "column", index))
