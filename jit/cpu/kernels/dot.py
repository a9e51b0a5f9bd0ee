"""``dot_general`` on the CPU: batching, cutting into tasks, and the choice of form; see ``emit_dot_general``.

The product is brought into canonical form (``problem.canonical_dot``), then one of these writes it:

* panels (``DotPanels``): tiles of rows x vectors of columns, the right operand read in place or packed by panels;
* rows (``dot_rows``): vectors along k, for few rows against a right operand whose k are neighbours.

Numeric effect: *permitted*.  The order of the sums depends on shapes, types and the instruction set only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hlojit.cpu.kernels.dot_rows import DotRows, prefers_rows
from hlojit.cpu.kernels.elements import Arithmetic, Elements, at, compute_kind, scaled
from hlojit.cpu.kernels.packing import (
    ZERO,
    CopyKernel,
    PanelPack,
    buffer,
    dot_product,
    literal,
    minimum,
    unflatten,
)
from hlojit.cpu.kernels.problem import Axis, Copy, DotProblem, Matrix, canonical_dot
from hlojit.cpu.kernels.tiles import Shape, Side, Tile, choose_shape, segments_of
from hlojit.ir.attributes import DotDimensionNumbers
from hlojit.ir.formats import ElementType, element_type
from hlojit.ir.graph import Instruction
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.llvm_builder import LlvmBuilder, Val
from hlojit.lowering.target import KIND_BITS, Target

PARAMETERS = [("ptr", "context"), ("ptr", "buffers"), ("i64", "begin"), ("i64", "end")]
RESULT, WORKSPACE = 2, 3
PANEL_BYTES = 96 << 10
"""Stack memory for one packed panel (half of a small first- plus second-level cache's share)."""
PACK_ABOVE_BYTES = 1_200_000
PACK_ABOVE_ROWS = 128
TASK_NANOSECONDS = 20_000.0
MAXIMUM_TASKS = 64


def emit_dot_general(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """Emit ``stablehlo.dot_general``."""
    lhs, rhs = (operand.tensor_type for operand in instruction.operands)
    result = instruction.result.tensor_type
    numbers = instruction.attributes.get("dot_dimension_numbers") or DotDimensionNumbers()
    problem = canonical_dot(lhs, rhs, numbers)
    return emit_product(problem, lhs.element_type, rhs.element_type, result.element_type, target, symbol)


def emit_product(
    problem: DotProblem, lhs: ElementType, rhs: ElementType, result: ElementType, target: Target, symbol: str
) -> KernelCode:
    """Emit a product in canonical form; ``lhs`` and ``rhs`` are the types of the instruction's operands 0 and 1."""
    types = {0: lhs, 1: rhs}
    if problem.n == 1 and problem.m > 1:
        problem = problem.exchanged()
    emitter = _Product(problem, types, result, target, symbol)
    return emitter.emit()


@dataclass(slots=True)
class _Product:
    """State of one emission: the builder, the launches and the workspace so far."""

    problem: DotProblem
    types: dict[int, ElementType]
    result: ElementType
    target: Target
    symbol: str
    builder: LlvmBuilder = field(default_factory=LlvmBuilder)
    phases: list[Phase] = field(default_factory=list)
    workspace: int = 0

    def emit(self) -> KernelCode:
        """Emit all launches."""
        problem = self.problem
        lhs, rhs = (self.types[number] for number in problem.operands)
        kind = compute_kind(lhs, rhs, self.result)
        if problem.macs == 0:
            self._zero_fill(kind)
        elif problem.rhs_copy is None and prefers_rows(problem, kind, self.target):
            self._rows(kind, Elements(lhs, kind), Elements(rhs, kind))
        else:
            left, left_at = self._operand(0, Elements(lhs, kind), problem.lhs_copy)
            right, right_at = self._operand(1, Elements(rhs, kind), problem.rhs_copy)
            panels = DotPanels.plan(self, kind, left, left_at, right, right_at)
            panels.emit()
        return KernelCode(
            self.builder.module_text(), tuple(self.phases), self.workspace, linked=tuple(self.builder.linked.items())
        )

    def _rows(self, kind: str, left: Elements, right: Elements) -> None:
        """The form with vectors along k; operands whose k are apart are copied."""
        problem = self.problem
        if problem.lhs.column != 1 and problem.lhs_copy is None:
            axes = zip([*problem.batch, problem.m, problem.k], [*problem.lhs.batch, problem.lhs.row, problem.lhs.column])
            steps = tuple(_dense_steps(problem.batch, problem.m * problem.k))
            copy = Copy(tuple(Axis(extent, (step,)) for extent, step in axes))
            self.problem = problem = replace(problem, lhs_copy=copy, lhs=Matrix(steps, problem.k, 1))
        if problem.rhs.row != 1:
            axes = zip([*problem.batch, problem.n, problem.k], [*problem.rhs.batch, problem.rhs.column, problem.rhs.row])
            steps = tuple(_dense_steps(problem.batch, problem.n * problem.k))
            copy = Copy(tuple(Axis(extent, (step,)) for extent, step in axes))
            self.problem = problem = replace(problem, rhs_copy=copy, rhs=Matrix(steps, 1, problem.k))
        left, left_at = self._operand(0, left, problem.lhs_copy)
        right, right_at = self._operand(1, right, problem.rhs_copy)
        rows = DotRows(self.symbol, self.problem, Arithmetic.of(kind, self.target), self.target, left, left_at, right,
                       right_at, Elements(self.result, kind), (RESULT, 0))
        self.phases.append(rows.emit(self.builder))

    def reserve(self, size: int) -> int:
        """Take workspace; returns its offset."""
        offset = self.workspace
        self.workspace += -(-size // 64) * 64
        return offset

    def _operand(self, side: int, elements: Elements, copy: Copy | None) -> tuple[Elements, tuple[int, int]]:
        """Where the operand is read from (buffer and byte offset) after the copies that it needs."""
        problem = self.problem
        number = problem.operands[side]
        matrix = (problem.lhs, problem.rhs)[side]
        if copy is None and side == 0 and not elements.is_native and problem.m * problem.n > 0:
            extents = [*problem.batch, problem.m, problem.k]
            copy = Copy(tuple(Axis(e, (s,)) for e, s in zip(extents, [*matrix.batch, matrix.row, matrix.column])))
            steps = tuple(_dense_steps(problem.batch, problem.m * problem.k))
            self.problem = problem = replace(problem, lhs=Matrix(steps, problem.k, 1))
        if copy is None:
            return elements, (number, 0)
        size = KIND_BITS[elements.compute] // 8
        offset = self.reserve(copy.size * size)
        kernel = CopyKernel(f"{self.symbol}.copy{side}", copy, elements, number, WORKSPACE, offset)
        self.phases.append(kernel.emit(self.builder, self.target))
        return Elements(dense_type(elements.compute), elements.compute), (WORKSPACE, offset)

    def _zero_fill(self, kind: str) -> None:
        """An empty sum: every element of the result is zero."""
        b, elements = self.builder, Elements(self.result, kind)
        count = self.problem.batch_size * self.problem.m * self.problem.n
        with b.function(self.symbol, PARAMETERS) as (_, buffers, begin, end):
            out = buffer(b, buffers, RESULT)
            loop = b.begin_loop(begin, end)
            elements.store(b, Arithmetic.of(kind, self.target).zero, at(b, out, scaled(b, loop.index, elements.size)))
            b.end_loop(loop)
        self.phases.append(Phase(self.symbol, count, 1.0))


def dense_type(kind: str) -> ElementType:
    """The element type whose memory is the compute kind itself."""
    return element_type(kind)


def _dense_steps(extents: tuple[int, ...], inner: int) -> list[int]:
    steps = []
    for extent in reversed(extents):
        steps.append(inner)
        inner *= extent
    return steps[::-1]


@dataclass(slots=True)
class DotPanels:
    """Tiles of rows x columns: panels of columns, blocks of rows, blocks of k.

    A task is one block of rows against a group of panels of one batch element.
    """

    product: _Product
    arithmetic: Arithmetic
    left: Elements
    left_at: tuple[int, int]
    right: Elements
    right_at: tuple[int, int]
    shape: Shape
    pack: bool
    block_k: int
    row_tiles: int
    """Tiles of rows in one task."""
    group: int
    """Panels in one task."""

    @classmethod
    def plan(
        cls, product: _Product, kind: str, left: Elements, left_at: tuple[int, int], right: Elements,
        right_at: tuple[int, int],
    ) -> DotPanels:
        """Choose the tile, whether to pack, and the cut into tasks."""
        problem, target = product.problem, product.target
        lanes = target.native_lanes(kind)
        contiguous = problem.rhs.column == 1 or problem.n == 1
        shape = choose_shape(problem.m, problem.n, kind, target, streamed=problem.m <= 8)
        large = problem.k * problem.n * right.size > PACK_ABOVE_BYTES
        pack = not contiguous or (problem.m > PACK_ABOVE_ROWS and large)
        pack = pack or (not right.is_native and problem.m > shape.rows)
        width = shape.vectors * lanes
        block_k = problem.k
        if pack:
            block_k = min(problem.k, max(64, PANEL_BYTES // (width * KIND_BITS[kind] // 8) // 16 * 16))
            blocks = -(-problem.k // block_k)
            block_k = min(problem.k, -(-(-(-problem.k // blocks)) // 16) * 16)
        tiles = -(-problem.m // shape.rows)
        panels = -(-problem.n // width)
        tile_cost = shape.rows * shape.vectors / 2 * problem.k * 0.27
        row_tiles = tiles if tiles <= 40 else -(-tiles // -(-tiles // 40))
        total = tile_cost * tiles * panels * problem.batch_size
        per_task = max(TASK_NANOSECONDS, total / MAXIMUM_TASKS)
        group = max(1, min(panels, int(per_task / (tile_cost * row_tiles))))
        group = -(-panels // -(-panels // group))
        arithmetic = Arithmetic.of(kind, target)
        return cls(product, arithmetic, left, left_at, right, right_at, shape, pack, block_k, row_tiles, group)

    def emit(self) -> None:
        """Emit micro-kernels, panels and the task loop."""
        product, problem, b = self.product, self.product.problem, self.product.builder
        kind = self.arithmetic.kind
        lanes = product.target.native_lanes(kind)
        result = Elements(product.result, kind)
        out, out_offset = RESULT, 0
        resumes = self.block_k < problem.k
        widen = resumes and not result.is_native
        if widen:
            out, out_offset = WORKSPACE, product.reserve(problem.batch_size * problem.m * problem.n * KIND_BITS[kind] // 8)
            stored, result = result, Elements(dense_type(kind), kind)
        width = self.shape.vectors * lanes
        whole, rest = divmod(problem.n, width)
        functions = {
            columns: self._panel(f"{product.symbol}.p{columns}", columns, result, resumes)
            for columns in ([width] if whole else []) + ([rest] if rest else [])
        }
        tiles = -(-problem.m // self.shape.rows)
        blocks = -(-tiles // self.row_tiles)
        groups = -(-(whole + (rest > 0)) // self.group)
        extents = [*problem.batch, blocks, groups]
        tasks = problem.batch_size * blocks * groups
        with b.function(product.symbol, PARAMETERS) as (_, buffers, begin, end):
            a_base = at(b, buffer(b, buffers, self.left_at[0]), self.left_at[1])
            b_base = at(b, buffer(b, buffers, self.right_at[0]), self.right_at[1])
            c_base = at(b, buffer(b, buffers, out), out_offset)
            loop = b.begin_loop(begin, end)
            *batch, block, group = unflatten(b, loop.index, extents)
            steps = _dense_steps(problem.batch, problem.m * problem.n)
            first_tile = scaled(b, block, self.row_tiles)
            first_row = scaled(b, first_tile, self.shape.rows)
            a = at(b, a_base, self._offset(b, batch, problem.lhs.batch, first_row, problem.lhs.row, self.left.size))
            right = at(b, b_base, dot_product(b, batch, [s * self.right.size for s in problem.rhs.batch]))
            c = at(b, c_base, self._offset(b, batch, steps, first_row, problem.n, result.size))
            whole_tiles = b.sub(minimum(b, literal(problem.m // self.shape.rows), b.add(first_tile, literal(self.row_tiles))),
                                first_tile)
            edge = b.icmp("eq", block, literal(blocks - 1)) if problem.m % self.shape.rows else Val("false", "i1")
            if whole:
                first_panel = scaled(b, group, self.group)
                last_panel = minimum(b, literal(whole), b.add(first_panel, literal(self.group)))
                panel = b.begin_loop(first_panel, last_panel)
                columns = scaled(b, panel.index, width)
                self._call_panel(b, functions[width], a, right, c, columns, whole_tiles, edge, result)
                b.end_loop(panel)
            if rest:
                last, done = b.fresh_label("edge"), b.fresh_label("next")
                b.branch_if(b.icmp("eq", group, literal(groups - 1)), last, done)
                b.begin_block(last)
                self._call_panel(b, functions[rest], a, right, c, literal(whole * width), whole_tiles, edge, result)
                b.branch(done)
                b.begin_block(done)
            b.end_loop(loop)
        cost = problem.macs / tasks / (2 * lanes) * 0.27
        memory = problem.k * problem.n * problem.batch_size * self.right.size / tasks / 20
        product.phases.append(Phase(product.symbol, tasks, max(cost, memory) + 10))
        if widen:
            self._narrow(stored, out_offset)

    @staticmethod
    def _offset(b: LlvmBuilder, batch: list[Val], steps: list[int] | tuple[int, ...], row: Val, step: int, size: int) -> Val:
        return dot_product(b, [*batch, row], [*(s * size for s in steps), step * size])

    def _call_panel(
        self, b: LlvmBuilder, function: str, a: Val, right: Val, c: Val, column: Val, tiles: Val, edge: Val, result: Elements
    ) -> None:
        rhs = self.product.problem.rhs
        right = at(b, right, scaled(b, column, rhs.column * self.right.size))
        c = at(b, c, scaled(b, column, result.size))
        b.line(f"call void @{function}(ptr {a.text}, ptr {right.text}, ptr {c.text}, i64 {tiles.text}, i1 {edge.text})")

    def _panel(self, symbol: str, columns: int, result: Elements, resumes: bool) -> str:
        """Emit ``void symbol(ptr a, ptr b, ptr c, i64 tiles, i1 edge)``: one panel of columns, all k, some tiles of rows."""
        product, problem, b = self.product, self.product.problem, self.product.builder
        kind = self.arithmetic.kind
        lanes = product.target.native_lanes(kind)
        parts = segments_of(columns, lanes)
        step_k, step_column = problem.rhs.row * self.right.size, problem.rhs.column * self.right.size
        pack = PanelPack(f"{symbol}.pack", self.right, parts, step_k, step_column, lanes)
        right = Side(self.right, 0, step_k)
        if self.pack:
            pack.emit(b)
            parts = tuple(replace(part, count=part.lanes) for part in parts)
            right = Side(Elements(dense_type(kind), kind), 0, pack.row_bytes)
        left = Side(self.left, problem.lhs.row * self.left.size, problem.lhs.column * self.left.size)
        prefetch = 0 if self.pack or step_k * problem.k < 32768 else 4
        out = Side(result, problem.n * result.size, 0)
        tile = Tile(f"{symbol}.tile", self.arithmetic, self.shape.rows, parts, left, right, out, resumes, prefetch,
                    out_segments=segments_of(columns, lanes) if self.pack else None)
        edge_rows = problem.m % self.shape.rows
        if problem.m >= self.shape.rows:
            tile.emit(b)
        edge_tile = replace(tile, rows=edge_rows, symbol=f"{symbol}.edge")
        if edge_rows:
            edge_tile.emit(b)
        parameters = [("ptr", "a"), ("ptr", "b"), ("ptr", "c"), ("i64", "tiles"), ("i1", "edge")]
        with b.function(symbol, parameters, attributes="nounwind noinline", linkage="internal") as (a, source, c, tiles, edge):
            panel = source
            if self.pack:
                panel = b.emit("ptr", 1, f"alloca i8, i64 {self.block_k * pack.row_bytes}, align 64")
            loop = b.begin_loop(ZERO, literal(problem.k), self.block_k)
            k = minimum(b, b.sub(literal(problem.k), loop.index), literal(self.block_k)) if resumes else literal(problem.k)
            resume = b.icmp("ne", loop.index, ZERO) if resumes else Val("false", "i1")
            block = at(b, source, scaled(b, loop.index, step_k))
            if self.pack:
                pack.call(b, block, panel, k)
                block = panel
            left_block = at(b, a, scaled(b, loop.index, left.step_k))
            if problem.m >= self.shape.rows:
                rows = b.begin_loop(ZERO, tiles)
                tile.call(b, at(b, left_block, scaled(b, rows.index, self.shape.rows * left.step_row)), block,
                          at(b, c, scaled(b, rows.index, self.shape.rows * out.step_row)), k, resume)
                b.end_loop(rows)
            if edge_rows:
                then, done = b.fresh_label("edge"), b.fresh_label("next")
                b.branch_if(edge, then, done)
                b.begin_block(then)
                edge_tile.call(b, at(b, left_block, scaled(b, tiles, self.shape.rows * left.step_row)), block,
                               at(b, c, scaled(b, tiles, self.shape.rows * out.step_row)), k, resume)
                b.branch(done)
                b.begin_block(done)
            b.end_loop(loop)
        return symbol

    def _narrow(self, stored: Elements, offset: int) -> None:
        """Round the sums, which were kept in workspace between blocks of k, into the result."""
        product, problem = self.product, self.product.problem
        b, lanes = product.builder, product.target.native_lanes(stored.compute)
        count = problem.batch_size * problem.m * problem.n
        size = KIND_BITS[stored.compute] // 8
        chunk = 16384
        dense = Elements(dense_type(stored.compute), stored.compute)
        with b.function(f"{product.symbol}.round", PARAMETERS) as (_, buffers, begin, end):
            source, out = at(b, buffer(b, buffers, WORKSPACE), offset), buffer(b, buffers, RESULT)
            last = minimum(b, scaled(b, end, chunk), literal(count))
            first = scaled(b, begin, chunk)
            whole = b.sub(last, b.and_(b.sub(last, first), literal(lanes - 1)))
            for start, stop, step in ((first, whole, lanes), (whole, last, 1)):
                loop = b.begin_loop(start, stop, step)
                value = dense.load(b, at(b, source, scaled(b, loop.index, size)), step)
                stored.store(b, value, at(b, out, scaled(b, loop.index, stored.size)))
                b.end_loop(loop)
        product.phases.append(Phase(f"{product.symbol}.round", -(-count // chunk), chunk * 0.1))

