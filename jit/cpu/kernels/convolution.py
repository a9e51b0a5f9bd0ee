"""``convolution`` on the CPU: a product whose left operand is read through windows, without im2col.

The reduction of the micro-kernel runs over the taps of the window and the channels; a step in the window is a step in
the addresses of both operands.  Two orientations:

* *rows*: output positions along the last spatial dimension are the tile's rows, output features its vectors (features
  are neighbours in the result, as in NHWC);
* *columns*: output features are the rows, neighbouring positions the vectors (positions are neighbours, as in NCHW).

Taps outside the input read zeros from a padded copy, made by an earlier launch where the windows leave the input.
Windows of one element become plain products, convolutions of one channel a group multiply vectors of channels
(``hlojit.cpu.kernels.depthwise``).  Numeric effect: *permitted*, as for ``dot_general``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from hlojit.cpu.kernels.convolution_problem import ConvolutionProblem, canonical_convolution
from hlojit.cpu.kernels.depthwise import Depthwise, is_depthwise
from hlojit.cpu.kernels.dot import RESULT, emit_product
from hlojit.cpu.kernels.dot_panels import PARAMETERS, WORKSPACE, Place, dense
from hlojit.cpu.kernels.elements import Arithmetic, Elements, at, compute_kind, scaled
from hlojit.cpu.kernels.packing import ZERO, CopyKernel, buffer, dot_product, literal, minimum, unflatten
from hlojit.cpu.kernels.padding import PaddedAxis, PaddedCopy
from hlojit.cpu.kernels.problem import Axis, Copy, DotProblem, Matrix, ceil_divide, dense_steps, merge_axes, round_up
from hlojit.cpu.kernels.tiles import Side, Tile, choose_shape, segments_of
from hlojit.ir.formats import ComplexType, ElementType
from hlojit.ir.graph import Instruction
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.llvm_builder import LlvmBuilder, Val
from hlojit.lowering.target import KIND_BITS, Target

CACHED_PANEL_BYTES = 160 << 10
TASKS = 32
TASK_NANOSECONDS = 15_000.0


def emit_convolution(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """Emit ``stablehlo.convolution``."""
    lhs, rhs = (operand.tensor_type for operand in instruction.operands)
    result = instruction.result.tensor_type
    problem = canonical_convolution(lhs, rhs, result, instruction.attributes)
    types = (lhs.element_type, rhs.element_type, result.element_type)
    if isinstance(result.element_type, ComplexType):
        from hlojit.cpu.kernels.complex_products import emit_complex_convolution

        return emit_complex_convolution(problem, result.element_type, target, symbol)
    product = as_product(problem)
    if product is not None:
        return emit_product(product, *types, target, symbol)
    if is_depthwise(problem):
        image, weights, out = (Elements(element, compute_kind(*types)) for element in types)
        return Depthwise(problem, image, weights, out, target, symbol).emit()
    convolution = Convolution(problem, types, target, symbol)
    convolution.emit()
    return convolution.code()


def as_product(problem: ConvolutionProblem) -> DotProblem | None:
    """A convolution with windows of one element and steps of one, as a matrix product; None for others."""
    if problem.groups > 1 or problem.macs == 0:
        return None
    for axis in problem.spatial:
        if axis.window > 1 or axis.stride > 1 or not axis.is_plain or axis.padded != axis.input:
            return None
    pixels = merge_axes([Axis(axis.output, (axis.input_step, axis.output_step)) for axis in problem.spatial])
    if len(pixels) > 1:
        return None
    pixel = pixels[0] if pixels else Axis(1, (0, 1))
    weights = Matrix((0,), problem.kernel_channel_step, problem.kernel_feature_step)
    if problem.output_feature_step == 1 and pixel.strides[1] in (problem.features, 1 if pixel.extent == 1 else 0):
        batch = Axis(problem.batch, (problem.input_batch_step, problem.output_batch_step))
        rows = merge_axes([batch, pixel])
        row = rows[0] if rows else Axis(1, (0, 0))
        if len(rows) == 1 or not rows:
            image = Matrix((0,), row.strides[0], problem.input_channel_step)
            return DotProblem((1,), row.extent, problem.features, problem.channels, image, weights)
        if problem.output_batch_step != pixel.extent * problem.features:
            return None
        image = Matrix((problem.input_batch_step,), pixel.strides[0], problem.input_channel_step)
        return DotProblem((problem.batch,), pixel.extent, problem.features, problem.channels, image, weights)
    if pixel.strides[1] == 1 and problem.output_feature_step == pixel.extent:
        if problem.batch > 1 and problem.output_batch_step != pixel.extent * problem.features:
            return None
        image = Matrix((problem.input_batch_step,), problem.input_channel_step, pixel.strides[0])
        filters = Matrix((0,), problem.kernel_feature_step, problem.kernel_channel_step)
        return DotProblem(
            (problem.batch,), problem.features, pixel.extent, problem.channels, filters, image, operands=(1, 0)
        )
    return None


@dataclass(frozen=True, slots=True)
class Steps:
    """Byte steps of one loop in the tile's left operand, right operand and result."""

    a: int
    b: int
    c: int


@dataclass(slots=True)
class _Source:
    """An operand as it will be read: buffer, byte offset, elements, and element steps."""

    buffer: int
    offset: int
    elements: Elements
    spatial: list[int]
    outer: int
    """Step of the batch (input) or of nothing (kernel)."""
    channel: int
    group: int
    feature: int = 0


@dataclass(slots=True)
class Convolution:
    """State of one emission."""

    problem: ConvolutionProblem
    types: tuple[ElementType, ElementType, ElementType]
    target: Target
    symbol: str
    places: tuple[Place, Place, Place] = ((0, 0), (1, 0), (RESULT, 0))
    """Where input, kernel and result are: buffer and byte offset."""
    builder: LlvmBuilder = field(default_factory=LlvmBuilder)
    phases: list[Phase] = field(default_factory=list)
    workspace: int = 0

    @property
    def kind(self) -> str:
        """The compute kind."""
        return compute_kind(*self.types)

    def code(self) -> KernelCode:
        """What was emitted."""
        linked = tuple(self.builder.linked.items())
        return KernelCode(self.builder.module_text(), tuple(self.phases), self.workspace, linked=linked)

    def emit(self) -> None:
        """Emit all launches."""
        problem = self.problem
        if problem.batch * problem.groups * problem.positions * problem.features:
            result = _Source(
                *self.places[2],
                Elements(self.types[2], self.kind),
                [a.output_step for a in problem.spatial],
                problem.output_batch_step,
                0,
                problem.features * problem.output_feature_step,
                problem.output_feature_step,
            )
            image = self._image()
            last = problem.spatial[-1]
            lanes = self.target.native_lanes(self.kind)
            filled = last.output / (round_up(last.output, lanes))
            columns = (
                problem.output_feature_step != 1
                and last.output_step == 1
                and last.stride == 1
                and image.spatial[-1] == 1
                and filled > 0.6
            )
            weights = self._weights(feature_last=not columns)
            axes = [(axis.window, axis.window_dilation * step) for axis, step in zip(problem.spatial, image.spatial)]
            reduction = [Axis(w, (s, k)) for (w, s), k in zip(axes, weights.spatial)]
            reduction.append(Axis(problem.channels, (image.channel, weights.channel)))
            self._main(image, weights, result, merge_axes(reduction) or [Axis(1, (0, 0))], columns)

    def reserve(self, size: int) -> int:
        """Take workspace; returns its offset."""
        offset = self.workspace
        self.workspace += round_up(size, 64)
        return offset

    def _image(self) -> _Source:
        """The input, in place or as a padded copy."""
        problem = self.problem
        elements = Elements(self.types[0], self.kind)
        spatial = [axis.input_step for axis in problem.spatial]
        feature_groups = problem.input_group_step == problem.channels * problem.input_channel_step
        if problem.is_plain and elements.is_native:
            return _Source(
                *self.places[0],
                elements,
                spatial,
                problem.input_batch_step,
                problem.input_channel_step,
                problem.input_group_step,
            )
        batches, channels = problem.batch, problem.channels
        if feature_groups:
            channels *= problem.groups
        else:
            batches *= problem.groups
        axes = [
            PaddedAxis(batches, batches, problem.input_batch_step),
            PaddedAxis(channels, channels, problem.input_channel_step),
        ]
        axes += [PaddedAxis(a.input, a.padded, a.input_step, a.low, a.input_dilation) for a in problem.spatial]
        order = sorted(range(len(axes)), key=lambda i: (axes[i].step, axes[i].source), reverse=True)
        offset = self.reserve(math.prod(axis.destination for axis in axes) * KIND_BITS[self.kind] // 8)
        copy = PaddedCopy(
            f"{self.symbol}.pad", tuple(axes[i] for i in order), elements, *self.places[0], WORKSPACE, offset
        )
        self.phases.append(copy.emit(self.builder, self.target))
        steps = dict(zip(order, dense_steps([axes[i].destination for i in order])))
        group = steps[1] * problem.channels if feature_groups else steps[0] * problem.batch
        return _Source(
            WORKSPACE,
            offset,
            dense(self.kind),
            [steps[2 + i] for i in range(len(problem.spatial))],
            steps[0],
            steps[1],
            group,
        )

    def _weights(self, *, feature_last: bool) -> _Source:
        """The kernel; ``feature_last`` asks for features that are neighbours.  Reversed windows walk backwards."""
        problem = self.problem
        elements = Elements(self.types[1], self.kind)
        features = problem.features * problem.groups
        extents = [*(axis.window for axis in problem.spatial), problem.channels, features]
        steps = [
            *(axis.kernel_step for axis in problem.spatial),
            problem.kernel_channel_step,
            problem.kernel_feature_step,
        ]
        place = self.places[1]
        if not elements.is_native or (feature_last and problem.kernel_feature_step != 1 and features > 1):
            copy = Copy(tuple(Axis(extent, (step,)) for extent, step in zip(extents, steps)))
            place = WORKSPACE, self.reserve(copy.size * KIND_BITS[self.kind] // 8)
            kernel = CopyKernel(
                f"{self.symbol}.weights",
                copy,
                elements,
                self.places[1][0],
                WORKSPACE,
                place[1],
                source_offset=self.places[1][1],
            )
            self.phases.append(kernel.emit(self.builder, self.target))
            elements = dense(self.kind)
            steps = dense_steps(extents)
        offset, spatial = place[1], []
        for axis, step in zip(problem.spatial, steps):
            offset += (axis.window - 1) * step * elements.size if axis.reversed else 0
            spatial.append(-step if axis.reversed else step)
        return _Source(place[0], offset, elements, spatial, 0, steps[-2], problem.features * steps[-1], steps[-1])

    def _main(self, image: _Source, weights: _Source, result: _Source, reduction: list[Axis], columns: bool) -> None:
        """The launch of the products, and the copy into the result's order where that is needed."""
        problem = self.problem
        last = problem.spatial[-1]
        lanes = self.target.native_lanes(self.kind)
        rows, wide = (problem.features, last.output) if columns else (last.output, problem.features)
        shape = choose_shape(rows, wide, self.kind, self.target)
        width = shape.vectors * lanes
        taps, inside = self._split(reduction, width, problem.positions // (shape.rows if not columns else 1))
        final = None
        direct = result.elements.is_native or not taps
        if not direct or not (columns or problem.output_feature_step == 1 or problem.features * problem.groups == 1):
            final, result = result, self._temporary(columns)
        group = Steps(image.group, weights.group, result.group)
        position = (image.spatial[-1] * last.stride, 0, result.spatial[-1])
        feature = (0, weights.feature, result.feature)
        outer = [
            (axis.output, (s * axis.stride, 0, c))
            for axis, s, c in zip(problem.spatial[:-1], image.spatial, result.spatial)
        ]
        nest = _Nest(
            self,
            image,
            weights,
            result,
            columns,
            [problem.batch, problem.groups],
            [(image.outer, 0, result.outer), (group.a, group.b, group.c)],
            outer,
            rows,
            wide,
            feature if columns else position,
            position if columns else feature,
            taps,
            inside,
            shape.rows,
            width,
        )
        nest.emit()
        if final is not None:
            self._reorder(result, final)

    def _split(self, reduction: list[Axis], width: int, reuse: int) -> tuple[list[Axis], list[Axis]]:
        """Which reduction loops go around the loop over tiles, so that a panel of weights stays in cache."""
        size = KIND_BITS[self.kind] // 8
        cut = 0
        while (
            reuse > 1
            and cut < len(reduction) - 1
            and math.prod(axis.extent for axis in reduction[cut:]) * width * size > CACHED_PANEL_BYTES
        ):
            cut += 1
        return reduction[:cut], reduction[cut:]

    def _temporary(self, columns: bool) -> _Source:
        """Workspace for the sums: feature-last for rows, position-last for columns."""
        problem = self.problem
        features = problem.features * problem.groups
        spatial = [axis.output for axis in problem.spatial]
        size = KIND_BITS[self.kind] // 8
        offset = self.reserve(problem.batch * problem.positions * features * size)
        extents = [problem.batch, features, *spatial] if columns else [problem.batch, *spatial, features]
        steps = dense_steps(extents)
        feature = steps[1] if columns else steps[-1]
        places = steps[2:] if columns else steps[1:-1]
        return _Source(WORKSPACE, offset, dense(self.kind), places, steps[0], 0, problem.features * feature, feature)

    def _reorder(self, temporary: _Source, final: _Source) -> None:
        """Copy the sums into the result, rounding them."""
        problem = self.problem
        dimensions = [
            (problem.batch, temporary.outer, final.outer),
            (problem.features * problem.groups, temporary.feature, final.feature),
        ]
        dimensions += [(a.output, s, f) for a, s, f in zip(problem.spatial, temporary.spatial, final.spatial)]
        dimensions.sort(key=lambda d: (d[2], d[0]), reverse=True)
        copy = Copy(tuple(Axis(extent, (step,)) for extent, step, _ in dimensions))
        kernel = CopyKernel(
            f"{self.symbol}.result",
            copy,
            temporary.elements,
            WORKSPACE,
            final.buffer,
            final.offset,
            final.elements,
            temporary.offset,
        )
        self.phases.append(kernel.emit(self.builder, self.target))


Triple = tuple[int, int, int]


@dataclass(slots=True)
class _Nest:
    """The loops around the micro-kernel: task, panel, outer taps, output rows, tiles.

    All steps are (input, kernel, result) in elements; ``columns`` says that the kernel is the tile's left operand.
    """

    owner: Convolution
    image: _Source
    weights: _Source
    result: _Source
    columns: bool
    task_extents: list[int]
    task_steps: list[Triple]
    outer: list[tuple[int, Triple]]
    rows: int
    wide: int
    row_step: Triple
    wide_step: Triple
    taps: list[Axis]
    inside: list[Axis]
    tile_rows: int
    width: int

    def emit(self) -> None:
        """Emit micro-kernels, panels and the task loop."""
        owner, b = self.owner, self.owner.builder
        whole, rest = divmod(self.wide, self.width)
        lines = math.prod(extent for extent, _ in self.outer)
        panels = whole + (rest > 0)
        blocks, group = self._cut(lines, panels)
        per_block = ceil_divide(lines, blocks)
        blocks = ceil_divide(lines, per_block)
        groups = ceil_divide(panels, group)
        functions = {
            columns: self._panel(f"{owner.symbol}.p{columns}", columns)
            for columns in ([self.width] if whole else []) + ([rest] if rest else [])
        }
        extents = [*self.task_extents, blocks, groups]
        sources = (self.image, self.weights, self.result)
        with b.function(owner.symbol, PARAMETERS) as (_, buffers, begin, end):
            bases = [at(b, buffer(b, buffers, source.buffer), source.offset) for source in sources]
            loop = b.begin_loop(begin, end)
            *outer, block, panel_group = unflatten(b, loop.index, extents)
            pointers = [self._move(b, bases[i], i, outer, [step[i] for step in self.task_steps]) for i in range(3)]
            first = scaled(b, block, per_block)
            last = minimum(b, b.add(first, literal(per_block)), literal(lines))
            if whole:
                start = scaled(b, panel_group, group)
                panel = b.begin_loop(start, minimum(b, b.add(start, literal(group)), literal(whole)))
                self._call_panel(b, functions[self.width], pointers, scaled(b, panel.index, self.width), first, last)
                b.end_loop(panel)
            if rest:
                edge, done = b.fresh_label("edge"), b.fresh_label("next")
                b.branch_if(b.icmp("eq", panel_group, literal(groups - 1)), edge, done)
                b.begin_block(edge)
                self._call_panel(b, functions[rest], pointers, literal(whole * self.width), first, last)
                b.branch(done)
                b.begin_block(done)
            b.end_loop(loop)
        tasks = math.prod(extents)
        lanes = owner.target.native_lanes(owner.kind)
        owner.phases.append(Phase(owner.symbol, tasks, owner.problem.macs / tasks / (2 * lanes) * 0.27 + 20))

    def _cut(self, lines: int, panels: int) -> tuple[int, int]:
        """Blocks of output rows, and panels in one task."""
        owner = self.owner
        lanes = owner.target.native_lanes(owner.kind)
        independent = math.prod(self.task_extents)
        total = owner.problem.macs / (2 * lanes) * 0.27
        wanted = max(1, min(TASKS, int(total / TASK_NANOSECONDS)))
        parts = ceil_divide(wanted, independent)
        weights = owner.problem.taps * owner.problem.channels * owner.problem.features * KIND_BITS[owner.kind] // 8
        if weights > 512 << 10 and panels >= 4 and not self.columns:
            group = max(1, panels // parts)
            return max(1, min(lines, parts // ceil_divide(panels, group))), group
        blocks = max(1, min(lines, parts))
        return blocks, max(1, panels // ceil_divide(parts, blocks))

    def _move(self, b: LlvmBuilder, pointer: Val, which: int, values: list[Val], steps: list[int]) -> Val:
        size = (self.image, self.weights, self.result)[which].elements.size
        return at(b, pointer, dot_product(b, values, [step * size for step in steps]))

    def _call_panel(
        self, b: LlvmBuilder, function: str, pointers: list[Val], column: Val, first: Val, last: Val
    ) -> None:
        moved = [self._move(b, pointers[i], i, [column], [self.wide_step[i]]) for i in range(3)]
        text = ", ".join(f"ptr {pointer.text}" for pointer in moved)
        b.line(f"call void @{function}({text}, i64 {first.text}, i64 {last.text})")

    def _tile(self, symbol: str, columns: int) -> Tile:
        owner = self.owner
        inner, outer = self.inside[-1], self.inside[:-1]
        sizes = (self.image.elements.size, self.weights.elements.size)
        order = (1, 0) if self.columns else (0, 1)
        sides = []
        for which, step in zip(order, (self.row_step, self.wide_step)):
            elements = (self.image, self.weights)[which].elements
            sides.append(Side(elements, step[which] * sizes[which], inner.strides[which] * sizes[which]))
        loops = tuple(
            (axis.extent, axis.strides[order[0]] * sizes[order[0]], axis.strides[order[1]] * sizes[order[1]])
            for axis in outer
        )
        parts = segments_of(columns, owner.target.native_lanes(owner.kind))
        out = Side(self.result.elements, self.row_step[2] * self.result.elements.size, 0)
        return Tile(
            symbol,
            Arithmetic.of(owner.kind, owner.target),
            self.tile_rows,
            parts,
            sides[0],
            sides[1],
            out,
            bool(self.taps),
            outer=loops,
        )

    def _panel(self, symbol: str, columns: int) -> str:
        """Emit ``void symbol(ptr input, ptr kernel, ptr result, i64 first, i64 last)``: some output rows, all taps."""
        b = self.owner.builder
        tile = self._tile(f"{symbol}.tile", columns)
        tiles, edge_rows = divmod(self.rows, self.tile_rows)
        edge = replace(tile, rows=edge_rows, symbol=f"{symbol}.edge")
        if tiles:
            tile.emit(b)
        if edge_rows:
            edge.emit(b)
        parameters = [("ptr", "input"), ("ptr", "kernel"), ("ptr", "result"), ("i64", "first"), ("i64", "last")]
        with b.function(symbol, parameters, attributes="nounwind noinline", linkage="internal") as values:
            *pointers, first, last = values
            loops = []
            for axis in self.taps:
                loops.append(b.begin_loop(ZERO, literal(axis.extent)))
                moved = [self._move(b, pointers[i], i, [loops[-1].index], [axis.strides[i]]) for i in range(2)]
                pointers = [*moved, pointers[2]]
            resume = Val("false", "i1")
            if loops:
                taken = loops[0].index
                for loop in loops[1:]:
                    taken = b.or_(taken, loop.index)
                resume = b.icmp("ne", taken, ZERO)
            line = b.begin_loop(first, last)
            coordinates = unflatten(b, line.index, [extent for extent, _ in self.outer])
            here = [self._move(b, pointers[i], i, coordinates, [step[i] for _, step in self.outer]) for i in range(3)]
            if tiles:
                row = b.begin_loop(ZERO, literal(tiles))
                self._call_tile(b, tile, here, scaled(b, row.index, self.tile_rows), resume)
                b.end_loop(row)
            if edge_rows:
                self._call_tile(b, edge, here, literal(tiles * self.tile_rows), resume)
            b.end_loop(line)
            for loop in reversed(loops):
                b.end_loop(loop)
        return symbol

    def _call_tile(self, b: LlvmBuilder, tile: Tile, pointers: list[Val], row: Val, resume: Val) -> None:
        moved = [self._move(b, pointers[i], i, [row], [self.row_step[i]]) for i in range(3)]
        left, right = (moved[1], moved[0]) if self.columns else (moved[0], moved[1])
        tile.call(b, left, right, moved[2], literal(self.inside[-1].extent), resume)
