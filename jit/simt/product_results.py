"""Where the sums of a product go: into its result, into parts of the workspace, or into what follows the product.

    outputs = Outputs(product, elements, group)           # group: an anchored fusion's parts, or None
    writer = outputs.writer(frame, plan.parts, workspace)    # while a kernel is open
    writer.put(part, batch, row, column, writer.encoded(sums))

What follows is computed by the thread that has a piece of the sums, in its registers: they are rounded into the type of the
product's result, as they would stand in memory, and from there on the code is that of any loop over elements.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from hlojit.ir.formats import BooleanType
from hlojit.ir.ops.definition import Indexed
from hlojit.ir.ops.elementwise import ADD
from hlojit.llvm.product_elements import Elements, storage_kind
from hlojit.llvm.text import Val
from hlojit.lowering.anchored_body import AnchoredBody
from hlojit.lowering.element_forms import memory_kind
from hlojit.lowering.grid_dot_plan import Parts
from hlojit.lowering.grid_plan import kind_bytes
from hlojit.lowering.grid_product import GridProduct
from hlojit.lowering.index import Index, delinearized, variable
from hlojit.lowering.probe import Facts
from hlojit.simt.frame import GridFrame
from hlojit.simt.product_operands import WIDEST, store_vector, unit_bytes

ROW: Final = "at.row"
COLUMN: Final = "at.column"
"""The variables of a piece of neighbouring columns that is written."""


class Writer(ABC):
    """Writes the sums of a kernel under construction."""

    def __init__(self, frame: GridFrame, product: GridProduct, elements: Elements):
        self.frame = frame
        self.b = frame.builder
        self.product = product
        self.elements = elements

    @property
    def kind(self) -> str:
        """Of an encoded sum."""
        return storage_kind(self.elements.element)

    def encoded(self, value: Val) -> Val:
        """Sums as they are put."""
        return self.elements.encode(self.b, value)

    @property
    def is_movable(self) -> bool:
        """Whether pieces of a row may begin elsewhere: all columns of a row are neighbours, and are only stored."""
        return False

    @abstractmethod
    def lanes(self, most: int) -> int:
        """How many neighbouring columns are put at once."""

    @abstractmethod
    def place(self, part: Index, batch: Index, row: Index, column: Index) -> Index:
        """Which element a sum is, counted where they are put."""

    @abstractmethod
    def put(self, part: Index, batch: Index, row: Index, column: Index, encoded: Val) -> None:
        """Put neighbouring columns; a column of several is the variable ``COLUMN``, and a multiple of their number."""


class _InMemory(Writer):
    """Puts sums where they can be found at an address."""

    def __init__(self, frame: GridFrame, product: GridProduct, elements: Elements, base: Val):
        super().__init__(frame, product, elements)
        self.base = base

    def put(self, part: Index, batch: Index, row: Index, column: Index, encoded: Val) -> None:
        offset = self.frame.access.uniform(self.place(part, batch, row, column))
        store_vector(self.b, encoded, self.base, offset)


@final
class IntoResult(_InMemory):
    """Rounded, as the product's result."""

    @property
    def is_movable(self) -> bool:
        axes = self.product.result[2]
        return len(axes) == 1 and axes[0].strides[0] == 1

    def lanes(self, most: int) -> int:
        return self.product.result_lanes(min(most, WIDEST // self.elements.size))

    def place(self, part: Index, batch: Index, row: Index, column: Index) -> Index:
        return self.product.result_place(batch, row, column)


@final
class IntoParts(_InMemory):
    """As they are, in the order of part, batch, row and column."""

    @property
    def is_movable(self) -> bool:
        return True

    @property
    def kind(self) -> str:
        return self.elements.compute

    def encoded(self, value: Val) -> Val:
        return value

    def lanes(self, most: int) -> int:
        lanes = 1
        while 2 * lanes <= most and self.product.n % (2 * lanes) == 0:
            lanes *= 2
        return lanes

    def place(self, part: Index, batch: Index, row: Index, column: Index) -> Index:
        product = self.product
        return ((part * product.batch + batch) * product.m + row) * product.n + column


@final
class IntoGroup(Writer):
    """Into what follows the product, whose results are written instead."""

    def __init__(self, frame: GridFrame, outputs: Outputs, group: AnchoredBody):
        super().__init__(frame, outputs.product, outputs.elements)
        self.group = group
        self.facts = outputs.facts(group)

    def lanes(self, most: int) -> int:
        """As many as fit into two accesses of the widest element, and into registers with all that is computed."""
        if self.facts.has_call or self.facts.has_loop:
            return 1
        machine = self.frame.target.grid
        assert machine is not None
        kinds = [load.kind for load in self.facts.loads if load.linear.coefficient(COLUMN) in (1, -1)]
        kinds += [memory_kind(root.tensor_type.element_type) for root in self.group.body.roots]
        lanes = min(most, 2 * machine.access_bytes // max(map(kind_bytes, kinds)))
        while lanes > 1 and self.facts.live * lanes > machine.registers_per_thread // 2:
            lanes //= 2
        return self.product.result_lanes(lanes)

    def place(self, part: Index, batch: Index, row: Index, column: Index) -> Index:
        return self.product.result_place(batch, row, column)

    def put(self, part: Index, batch: Index, row: Index, column: Index, encoded: Val) -> None:
        access, shape = self.frame.access, self.group.sums.tensor_type.shape
        index = delinearized(self.place(part, batch, row, column), shape)
        if encoded.lanes == 1:
            self._finish(index, encoded)
            return
        with access.lanes(encoded.lanes, COLUMN):
            access.multiples[COLUMN] = encoded.lanes
            self._finish(index, encoded)
            del access.multiples[COLUMN]

    def _finish(self, index: tuple[Index, ...], encoded: Val) -> None:
        """Compute all roots at an index, then write them: an operand may lie where a result does."""
        elements, body = self.frame.elements, self.group.body
        with self.frame.scope():
            if isinstance(self.elements.element, BooleanType):
                encoded = self.b.icmp("ne", encoded, self.b.constant(encoded.kind, 0))
            elements.define_stored(self.group.sums, index, encoded)
            values = [elements.root(root, index, rounded=False) for root in body.roots]
            for number, scalar in enumerate(values):
                self.frame.store_root(number, index, scalar, rounded=False)
        elements.reader = self.group.anchor


@final
@dataclass(frozen=True, slots=True)
class Outputs:
    """What becomes of a product's sums, which its result has as ``elements``; ``group`` is what follows, if something does."""

    product: GridProduct
    elements: Elements
    group: AnchoredBody | None = None
    apart: bool = False
    """Whether what follows is a launch of its own, which finds the product's result in the workspace."""

    def workspace_bytes(self, parts: Parts) -> int:
        """Of a kernel that computes parts of sums."""
        if self.apart and self.group is not None:
            return self.group.sums.tensor_type.nbytes
        return parts.workspace_bytes(self.product, unit_bytes(self.elements.compute))

    def writer(self, frame: GridFrame, parts: Parts, workspace: Sequence[Val]) -> Writer:
        """Of an open kernel that computes parts of sums, given its workspace if there is one."""
        if self.group is not None:
            frame.elements.reader = self.group.anchor
        if parts.count > 1:
            return IntoParts(frame, self.product, self.elements, workspace[0])
        return self.last_writer(frame, workspace)

    def last_writer(self, frame: GridFrame, workspace: Sequence[Val]) -> Writer:
        """Of an open kernel that has whole sums."""
        if self.group is not None and not self.apart:
            return IntoGroup(frame, self, self.group)
        base = workspace[0] if self.apart else frame.access.bases[-1]
        return IntoResult(frame, self.product, self.elements, base)

    def facts(self, group: AnchoredBody) -> Facts:
        """A dry run of what follows."""
        return group.facts(self._index(group))

    def bias(self) -> int | None:
        """The operand that has an element of f32 for each column, if all that follows is that it is added."""
        group = self.group
        add = None if group is None or len(group.body.roots) != 1 else group.body.roots[0].producer
        if group is None or add is None or add.op != ADD or group.sums not in add.operands:
            return None
        other = add.operands[1 if add.operands[0] is group.sums else 0].producer
        if other is None or not isinstance(other.op.lowering, Indexed) or other.op.lowering.broadcasts is None:
            return None
        loads = self.facts(group).loads
        is_one = len(loads) == 1 and other.operands[0] in group.body.parameters and not loads[0].guarded
        is_f32 = group.sums.tensor_type.element_type.name == "f32"
        if not is_one or not is_f32 or loads[0].linear != variable(COLUMN, 0, self.product.n - 1):
            return None
        return loads[0].buffer

    def in_place(self) -> tuple[tuple[int, int], ...]:
        """Operands and results that may share memory: every piece is read by who writes it, before that."""
        if self.group is None:
            return ()
        index = self._index(self.group)
        return self.group.in_place(index, self.group.facts(index))

    def _index(self, group: AnchoredBody) -> tuple[Index, ...]:
        """Of the roots, in variables of batch, row and column."""
        product = self.product
        names = ("batch", product.batch), (ROW, product.m), (COLUMN, product.n)
        place = product.result_place(*(variable(name, 0, extent - 1) for name, extent in names))
        return delinearized(place, group.sums.tensor_type.shape)


def write_inside(
    frame: GridFrame,
    writer: Writer,
    block: tuple[Index, Index],
    row: tuple[Val, int],
    column: tuple[Val, int],
    value: Val,
    *,
    whole: tuple[bool, bool] = (False, False),
) -> None:
    """Write neighbouring columns that exist, given with the product's extents; ``whole``: all rows, or columns, do."""
    b, access = frame.builder, frame.access

    def write() -> None:
        with frame.scope():
            access.variables[ROW], access.variables[COLUMN] = row[0], column[0]
            places = variable(ROW, 0, row[1] - 1), variable(COLUMN, 0, column[1] - 1)
            writer.put(*block, *places, writer.encoded(value))

    exists: Val | None = None
    for (at, extent), is_whole in zip((row, column), whole):
        if not is_whole:
            inside = b.icmp("slt", at, b.constant("i64", extent))
            exists = inside if exists is None else b.and_(exists, inside)
    if exists is None:
        write()
    else:
        b.when(exists, write)
