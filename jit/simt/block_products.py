"""What all kernels have in common that go over the terms of a tile step by step, through shared memory.

While the threads of a block add the products of one step, which lies in shared memory in the form that they multiply, what they
have read of the next one is under way in their registers.  Subclasses say what that form is, and how a step is added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from hlojit.llvm.product_elements import Elements
from hlojit.llvm.text import Val
from hlojit.lowering.grid_dot_plan import Fill, Parts
from hlojit.lowering.grid_product import GridProduct
from hlojit.lowering.index import Index
from hlojit.simt.frame import GridFrame
from hlojit.simt.product_operands import Piece, Reader, Writer, block_indices


class StepPlan(Protocol):
    """What the common part asks of a plan."""

    @property
    def product(self) -> GridProduct:
        """What is computed."""

    @property
    def parts(self) -> Parts:
        """Into which sums are cut."""

    @property
    def threads(self) -> int:
        """Of a block."""

    @property
    def rows(self) -> int:
        """Of a block."""

    @property
    def columns(self) -> int:
        """Of a block."""

    @property
    def terms(self) -> int:
        """Of a step."""

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """What the number of a block is made of: part, batch, tile of rows, tile of columns."""

    @property
    def workspace_bytes(self) -> int:
        """Of the parts' sums."""


class Side(ABC):
    """One operand's tiles: who reads which piece, and where it lies in shared memory."""

    def __init__(self, kernel: BlockProduct, reader: Reader, fill: Fill, rows: int, extent: int, name: str):
        self.kernel = kernel
        self.b = kernel.b
        self.reader = reader
        self.fill = fill
        self.rows = rows
        self.extent = extent
        self.name = name
        self.terms = kernel.plan.terms
        self.threads = kernel.plan.threads
        self.pieces = rows * self.terms // fill.lanes
        """Of a step, of all threads."""
        self.places: list[tuple[Val, Val]] = []
        """Of every piece of the thread: row and term inside of the tile."""
        self.exists: list[Val | None] = []

    def prepare(self, first: Val) -> None:
        """What does not change from step to step; ``first`` is the tile's first row."""
        b, fill = self.b, self.fill
        for number in range(self.pieces // self.threads):
            piece = b.add(b.thread, b.constant("i32", number * self.threads))
            pieces = (self.terms if fill.along_terms else self.rows) // fill.lanes
            inner = b.mul(b.urem(piece, b.constant("i32", pieces)), b.constant("i32", fill.lanes))
            outer = b.udiv(piece, b.constant("i32", pieces))
            row, term = (outer, inner) if fill.along_terms else (inner, outer)
            row, term = b.zext(row, "i64"), b.zext(term, "i64")
            self.places.append((row, term))
            whole = b.add(first, row)
            self.kernel.frame.access.variables[f"{self.name}{number}"] = whole
            is_whole = self.extent % self.rows == 0
            self.exists.append(None if is_whole else b.icmp("slt", whole, b.constant("i64", self.extent)))

    def read(self, step: Val, end: Val | None) -> list[Piece]:
        """Ask for the pieces of a step that begins at term ``step``; those from ``end`` on do not exist."""
        b, access = self.b, self.kernel.frame.access
        product = self.kernel.plan.product
        pieces = []
        for number, (_, term) in enumerate(self.places):
            name = f"{self.name}{number}.term"
            access.variables[name] = whole = b.add(step, term)
            valid = self.exists[number]
            if end is not None:
                inside = b.icmp("slt", whole, end)
                valid = inside if valid is None else b.and_(valid, inside)
            place = self.reader.named_place(self.kernel.batch, (f"{self.name}{number}", self.extent), (name, product.k))
            pieces.append(self.reader.read(place, self.fill.lanes, valid))
        return pieces

    @abstractmethod
    def write(self, pieces: Sequence[Piece], stage: Val) -> None:
        """Leave a step's pieces in one half of the shared memory."""


class BlockProduct(ABC):
    """One launch; ``elements`` are those of lhs, rhs and result."""

    def __init__(self, frame: GridFrame, plan: StepPlan, elements: tuple[Elements, Elements, Elements]):
        self.frame = frame
        self.plan = plan
        self.elements = elements
        self.b = frame.builder
        self.kind = elements[2].compute
        self.batch: Index
        self.lhs: Side
        self.rhs: Side

    def emit_kernel(self, symbol: str) -> None:
        """Emit the kernel function."""
        plan = self.plan
        with self.frame.kernel(symbol, plan.threads, workspace_bytes=plan.workspace_bytes) as workspace:
            writer = Writer(self.frame, plan.product, self.elements[2], workspace[0] if workspace else None)
            part, self.batch, rows, columns = block_indices(self.frame, plan.extents)
            access = self.frame.access
            first_row, first_column = access.uniform(rows * plan.rows), access.uniform(columns * plan.columns)
            self.prepare()
            self.lhs.prepare(first_row)
            self.rhs.prepare(first_column)
            self.write(writer, part, first_row, first_column, self._sum(part))

    @property
    def whole(self) -> tuple[bool, bool]:
        """Whether all rows, and all columns, of all tiles exist."""
        plan = self.plan
        return plan.product.m % plan.rows == 0, plan.product.n % plan.columns == 0

    def readers(self) -> tuple[Reader, Reader]:
        """Of both operands."""
        product = self.plan.product
        return Reader(self.frame, product.lhs, self.elements[0]), Reader(self.frame, product.rhs, self.elements[1])

    @abstractmethod
    def prepare(self) -> None:
        """Make ``lhs`` and ``rhs``, and whatever does not change from step to step."""

    @abstractmethod
    def zeros(self) -> list[Val]:
        """The thread's sums of nothing."""

    @abstractmethod
    def add_step(self, stage: Val, sums: list[Val]) -> list[Val]:
        """Add the products of the step that lies in a half of shared memory."""

    @abstractmethod
    def write(self, writer: Writer, part: Index, first_row: Val, first_column: Val, sums: Sequence[Val]) -> None:
        """Write the thread's sums."""

    def _sum(self, part: Index) -> list[Val]:
        """The thread's sums over a part of the terms."""
        plan, b = self.plan, self.b
        sides = (self.lhs, self.rhs)
        start = self.frame.access.uniform(part * plan.parts.length)
        end, steps = self._end(start)
        with self.frame.scope():
            pieces = [side.read(start, end) for side in sides]
        for side, read in zip(sides, pieces):
            side.write(read, b.constant("i64", 0))
        b.barrier()
        loop = b.begin_loop(b.constant("i64", 0), steps, 1, self.zeros(), guarded=False)
        with self.frame.scope():
            following = b.add(loop.index, b.constant("i64", 1))
            step = b.add(start, b.mul(following, b.constant("i64", plan.terms)))
            if end is None:
                # Behind the last step comes nothing: what is read of the first one again is never used.
                step = b.select(b.icmp("slt", following, steps), step, start)
            pieces = [side.read(step, end) for side in sides]
            stage = b.and_(loop.index, b.constant("i64", 1))
            found = self.add_step(stage, list(loop.carried))
            other = b.xor(stage, b.constant("i64", 1))
            for side, read in zip(sides, pieces):
                side.write(read, other)
            b.barrier()
        return list(b.end_loop(loop, found))

    def _end(self, start: Val) -> tuple[Val | None, Val]:
        """Where the part's terms end (None: every step is whole), and its number of steps."""
        plan, b = self.plan, self.b
        terms, length, k = plan.terms, plan.parts.length, plan.product.k
        whole = length % terms == 0 and k % length == 0
        if plan.parts.count == 1 or whole:
            steps = b.constant("i64", -(-length // terms))
            return (None if whole else b.constant("i64", k)), steps
        last = b.add(start, b.constant("i64", length))
        end = b.select(b.icmp("slt", last, b.constant("i64", k)), last, b.constant("i64", k))
        rounded = b.add(b.sub(end, start), b.constant("i64", terms - 1))
        return end, b.udiv(rounded, b.constant("i64", terms))
