"""What all kernels have in common that go over the terms of a tile step by step, through shared memory.

While the threads of a block add the products of one step, which lies in shared memory in the form that they multiply, what
comes next is under way: the next step in their registers, or several steps in copies that go on by themselves
(``grid_dot_plan.Passage``).  Subclasses say what the form is, and how a step is added.

    copy steps 0 .. S - 2
    wait for step 0, meet
    for every step i:
        copy step i + S - 1             # to where step i - 1 was
        add step i
        wait for step i + 1, meet
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol

from hlojit.llvm.product_elements import Elements
from hlojit.llvm.text import Val
from hlojit.lowering.grid_dot_plan import Fill, Parts, Passage
from hlojit.lowering.grid_product import GridProduct, Place
from hlojit.lowering.index import Index
from hlojit.simt.frame import GridFrame
from hlojit.simt.portable_matrices import shared_pointer
from hlojit.simt.product_operands import Piece, Reader, block_indices, load_vector_at
from hlojit.simt.product_results import Outputs, Writer


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
    def stages(self) -> int:
        """Steps that are in shared memory, or on their way."""

    @property
    def at_once(self) -> int:
        """Blocks that a multiprocessor should have registers for."""

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """What the number of a block is made of: part, batch, tile of rows, tile of columns."""


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
        self.number = rows * self.terms // fill.lanes // self.threads
        """Of pieces of a step that a thread has."""
        self.places: list[tuple[Val, Val]] = []
        """Of every piece of the thread: row and term inside of the tile."""
        self.exists: list[Val | None] = []
        self.slots = 2
        """Steps in shared memory in the form that is multiplied."""

    def prepare(self, first: Val) -> None:
        """What does not change from step to step; ``first`` is the tile's first row."""
        b, fill = self.b, self.fill
        for number in range(self.number):
            piece = b.add(b.thread, b.constant("i32", number * self.threads))
            pieces = (self.terms if fill.along_terms else self.rows) // fill.lanes
            inner = b.mul(b.urem(piece, b.constant("i32", pieces)), b.constant("i32", fill.lanes))
            outer = b.udiv(piece, b.constant("i32", pieces))
            row, term = (outer, inner) if fill.along_terms else (inner, outer)
            self.place_piece(row, term)
            row, term = b.zext(row, "i64"), b.zext(term, "i64")
            self.places.append((row, term))
            whole = b.add(first, row)
            self.kernel.frame.access.variables[f"{self.name}{number}"] = whole
            is_whole = self.extent % self.rows == 0
            self.exists.append(None if is_whole else b.icmp("slt", whole, b.constant("i64", self.extent)))

    def place_piece(self, row: Val, term: Val) -> None:  # noqa: B027  some forms need nothing
        """Where a piece of the thread lies in the tile (i32), once for each of them."""

    def each(self, step: Val, end: Val | None) -> Iterator[tuple[int, Place, Val | None]]:
        """Every piece of a step that begins at term ``step``: where it lies, and whether it exists."""
        b, access = self.b, self.kernel.frame.access
        for number, (_, term) in enumerate(self.places):
            name = f"{self.name}{number}.term"
            access.variables[name] = whole = b.add(step, term)
            valid = self.exists[number]
            if end is not None:
                inside = b.icmp("slt", whole, end)
                valid = inside if valid is None else b.and_(valid, inside)
            terms = (name, self.kernel.plan.product.k)
            place = self.reader.named_place(self.kernel.batch, (f"{self.name}{number}", self.extent), terms)
            yield number, place, valid

    def read(self, step: Val, end: Val | None) -> list[Piece]:
        """Ask for the pieces of a step; those from term ``end`` on do not exist."""
        return [self.reader.read(place, self.fill.lanes, valid) for _, place, valid in self.each(step, end)]

    def slot(self, index: Val) -> Val:
        """Which place in shared memory a step has (i32), in the form that is multiplied."""
        return self.b.urem(index, self.b.constant("i32", self.slots))

    @abstractmethod
    def write(self, pieces: Sequence[Piece], index: Val) -> None:
        """Leave the pieces of a step, the ``index``-th (i32), in shared memory."""


class CopiedSide(Side):
    """An operand whose pieces may be copied asynchronously, as its ``Fill`` says."""

    def __init__(self, kernel: BlockProduct, reader: Reader, fill: Fill, rows: int, extent: int, name: str):
        super().__init__(kernel, reader, fill, rows, extent, name)
        self.slots = fill.slots(kernel.plan.stages)
        self.raw_slots = fill.raw_slots(kernel.plan.stages)
        if self.raw_slots:
            self.raw_base = self.b.shared(reader.kind, self.raw_slots * self.number * self.threads * fill.lanes)

    @abstractmethod
    def piece_address(self, number: int, index: Val) -> Val:
        """Where a piece of the ``index``-th step lies, if it needs no conversion."""

    def copy(self, step: Val, end: Val | None, index: Val) -> None:
        """Begin to copy the pieces of a step, the ``index``-th (i32)."""
        for number, place, valid in self.each(step, end):
            target = self._raw_piece(number, index) if self.raw_slots else self.piece_address(number, index)
            self.reader.copy(place, self.fill.lanes, valid, target)

    def convert(self, index: Val) -> None:
        """Leave what the thread has copied of a step in the form that is multiplied."""
        pieces = []
        for number in range(self.number):
            stored = load_vector_at(self.b, self.reader.kind, self._raw_piece(number, index), self.fill.lanes)
            # What does not exist was copied as zeros.
            pieces.append(Piece(stored, None, None))
        self.write(pieces, index)

    def _raw_piece(self, number: int, index: Val) -> Val:
        """Address of a piece as it is in memory."""
        b = self.b
        slot = b.urem(index, b.constant("i32", self.raw_slots))
        piece = b.add(b.mul(slot, b.constant("i32", self.number * self.threads)), b.thread)
        piece = b.add(piece, b.constant("i32", number * self.threads))
        nbytes = self.fill.lanes * self.reader.elements.size
        return shared_pointer(b, self.raw_base, b.mul(piece, b.constant("i32", nbytes)))


class BlockProduct(ABC):
    """One launch; ``elements`` are those of lhs and rhs."""

    def __init__(self, frame: GridFrame, plan: StepPlan, elements: tuple[Elements, Elements], outputs: Outputs):
        self.frame = frame
        self.plan = plan
        self.elements = elements
        self.outputs = outputs
        self.b = frame.builder
        self.kind = outputs.elements.compute
        self.batch: Index
        self.lhs: Side
        self.rhs: Side

    def emit_kernel(self, symbol: str) -> None:
        """Emit the kernel function."""
        plan = self.plan
        bytes_ = self.outputs.workspace_bytes(plan.parts)
        with self.frame.kernel(symbol, plan.threads, workspace_bytes=bytes_, at_once=plan.at_once) as workspace:
            writer = self.outputs.writer(self.frame, plan.parts, workspace)
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
    def add_step(self, index: Val, sums: list[Val]) -> list[Val]:
        """Add the products of a step, the ``index``-th (i32)."""

    @abstractmethod
    def write(self, writer: Writer, part: Index, first_row: Val, first_column: Val, sums: Sequence[Val]) -> None:
        """Write the thread's sums."""

    def _sum(self, part: Index) -> list[Val]:
        """The thread's sums over a part of the terms."""
        plan, b = self.plan, self.b
        start = self.frame.access.uniform(part * plan.parts.length)
        end, steps = self._end(start)
        ahead = plan.stages - 1
        if self._copied:
            for number in range(ahead):
                self._copy(b.constant("i64", number), start, end, steps)
        with self.frame.scope():
            self._arrive(b.constant("i32", 0), [(side, side.read(start, end)) for side in self._read])
        loop = b.begin_loop(b.constant("i64", 0), steps, 1, self.zeros(), guarded=False)
        index = b.trunc(loop.index, "i32")
        if self._copied:
            self._copy(b.add(loop.index, b.constant("i64", ahead)), start, end, steps)
        with self.frame.scope():
            following = b.add(loop.index, b.constant("i64", 1))
            step = b.add(start, b.mul(following, b.constant("i64", plan.terms)))
            if end is None and self._read:
                # Behind the last step comes nothing: what is read of the first one again is never used.
                step = b.select(b.icmp("slt", following, steps), step, start)
            pieces = [(side, side.read(step, end)) for side in self._read]
            found = self.add_step(index, list(loop.carried))
            self._arrive(b.add(index, b.constant("i32", 1)), pieces)
        return list(b.end_loop(loop, found))

    @property
    def _copied(self) -> list[CopiedSide]:
        """What is copied asynchronously."""
        sides = [side for side in (self.lhs, self.rhs) if isinstance(side, CopiedSide)]
        return [side for side in sides if side.fill.passage is not Passage.REGISTERS]

    @property
    def _read(self) -> list[Side]:
        """What comes by registers."""
        return [side for side in (self.lhs, self.rhs) if side not in self._copied]

    def _copy(self, number: Val, start: Val, end: Val | None, steps: Val) -> None:
        """Begin to copy a step, if there is one, as one group."""
        b = self.b

        def copy() -> None:
            with self.frame.scope():
                step = b.add(start, b.mul(number, b.constant("i64", self.plan.terms)))
                for side in self._copied:
                    side.copy(step, end, b.trunc(number, "i32"))

        if not (number.is_literal and steps.is_literal):
            b.when(b.icmp("slt", number, steps), copy)
        elif int(number.text) < int(steps.text):
            copy()
        b.commit_copies()

    def _arrive(self, index: Val, pieces: Sequence[tuple[Side, list[Piece]]]) -> None:
        """A step is in shared memory, for all."""
        for side, read in pieces:
            side.write(read, index)
        if self._copied:
            self.b.wait_for_copies(self.plan.stages - 2)
        for side in self._copied:
            if side.fill.passage is Passage.CONVERTED:
                side.convert(index)
        self.b.barrier()

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
