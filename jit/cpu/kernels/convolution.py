"""A convolution of real numbers: a product whose left operand is read through windows, without im2col.

The reduction of the micro-kernel runs over the taps of the window and the channels; a step in the window is a step in
the addresses of both operands.  Two orientations:

* *rows*: output positions along the last spatial dimension are the tile's rows, output features its vectors (features
  are neighbours in the result, as in NHWC);
* *columns*: output features are the rows, neighbouring positions the vectors (positions are neighbours, as in NCHW).

Taps outside the input read zeros from a padded copy, made by an earlier launch where the windows leave the input.
Numeric effect: *permitted*, as for ``dot_general``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hlojit.cpu.kernels.convolution_nest import Source, WindowNest
from hlojit.cpu.kernels.convolution_outputs import window_epilogue
from hlojit.cpu.kernels.dot import RESULT
from hlojit.cpu.kernels.dot_outputs import WORKSPACE, Place
from hlojit.cpu.kernels.dot_panels import dense
from hlojit.cpu.kernels.packing import CopyKernel
from hlojit.cpu.kernels.padding import PaddedAxis, PaddedCopy
from hlojit.ir.formats import ElementType
from hlojit.llvm.builder import LlvmBuilder
from hlojit.llvm.epilogue import Epilogue
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.product_elements import Elements, compute_kind
from hlojit.lowering.anchored_body import AnchoredBody
from hlojit.lowering.convolution_problem import ConvolutionProblem
from hlojit.lowering.dot_problem import Axis, Copy, dense_steps, merge_axes, round_up
from hlojit.lowering.dot_tiles import FEW_TERMS, choose_shape
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.target import KIND_BITS, Target

UNCUT = 1 << 14
"""Weights of a group up to which the taps never go around the loop over tiles."""


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
    group: AnchoredBody | None = None
    """What to compute with the convolution."""
    epilogue: Epilogue | None = None
    image: Elements | None = None
    """The input's elements, where its padded copy computes them."""

    @property
    def kind(self) -> str:
        """The compute kind."""
        return compute_kind(*self.types)

    def code(self) -> KernelCode:
        """What was emitted."""
        return kernel_code(self.builder, self.phases, self.workspace, finished=True)

    def emit(self) -> Epilogue | None:
        """Emit all launches; of a group, what takes their results, or None where that cannot be box by box."""
        problem = self.problem
        result = Source(
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
        if self.group is not None:
            elements = Elements(self.types[2], self.kind)
            self.epilogue = window_epilogue(self.group, self.target, problem, elements, columns=columns)
            if self.epilogue is None:
                return None
            result = Source(0, 0, dense(self.kind), [0] * len(problem.spatial), 0, 0, 0)
        weights = self._weights(feature_last=not columns)
        axes = [(axis.window, axis.window_dilation * step) for axis, step in zip(problem.spatial, image.spatial)]
        reduction = [Axis(w, (s, k)) for (w, s), k in zip(axes, weights.spatial)]
        reduction.append(Axis(problem.channels, (image.channel, weights.channel)))
        self._main(image, weights, result, merge_axes(reduction) or [Axis(1, (0, 0))], columns)
        return self.epilogue

    def reserve(self, size: int) -> int:
        """Take workspace; returns its offset."""
        offset = self.workspace
        self.workspace += round_up(size, 64)
        return offset

    def _image(self) -> Source:
        """The input, in place or as a padded copy."""
        problem = self.problem
        elements = self.image or Elements(self.types[0], self.kind)
        spatial = [axis.input_step for axis in problem.spatial]
        if problem.is_plain and elements.is_native:
            return Source(
                *self.places[0],
                elements,
                spatial,
                problem.input_batch_step,
                problem.input_channel_step,
                problem.input_group_step,
            )
        copy, order = padded_image(problem, elements, f"{self.symbol}.pad", self.places[0], self.workspace)
        self.reserve(copy.size * KIND_BITS[self.kind] // 8)
        self.phases.append(copy.emit(self.builder, self.target))
        steps = dict(zip(order, dense_steps([axis.destination for axis in copy.axes])))
        group = steps[1] * problem.channels if has_feature_groups(problem) else steps[0] * problem.batch
        return Source(
            WORKSPACE,
            copy.offset,
            dense(self.kind),
            [steps[2 + i] for i in range(len(problem.spatial))],
            steps[0],
            steps[1],
            group,
        )

    def _weights(self, *, feature_last: bool) -> Source:
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
        return Source(place[0], offset, elements, spatial, 0, steps[-2], problem.features * steps[-1], steps[-1])

    def _main(self, image: Source, weights: Source, result: Source, reduction: list[Axis], columns: bool) -> None:
        """The launch of the products, and the copy into the result's order where that is needed."""
        problem = self.problem
        last = problem.spatial[-1]
        lanes = self.target.native_lanes(self.kind)
        rows, wide = (problem.features, last.output) if columns else (last.output, problem.features)
        # Sums of few products are never cut, on any machine, so that the order of combination is that of the shape.
        uncut = math.prod(axis.extent for axis in reduction) * wide <= UNCUT
        interleaves = uncut and problem.terms > FEW_TERMS
        shape = choose_shape(rows, wide, self.kind, self.target, interleaves=interleaves)
        width = shape.vectors * lanes
        reuse = 1 if uncut else problem.positions // (shape.rows if not columns else 1)
        taps, inside = self._split(reduction, width, reuse)
        final = None
        direct = result.elements.is_native or not taps
        in_order = columns or problem.output_feature_step == 1 or problem.features * problem.groups == 1
        if self.epilogue is None and not (direct and in_order):
            final, result = result, self._temporary(columns)
        position = (image.spatial[-1] * last.stride, 0, result.spatial[-1])
        feature = (0, weights.feature, result.feature)
        tall, across = (feature, position) if columns else (position, feature)
        if self.epilogue is not None:
            tall = (*tall[:2], width)
        outer = [
            (axis.output, (s * axis.stride, 0, c))
            for axis, s, c in zip(problem.spatial[:-1], image.spatial, result.spatial)
        ]
        nest = WindowNest(
            self.symbol,
            self.target,
            problem,
            (image, weights, result),
            columns,
            outer,
            (rows, tall),
            (wide, across),
            taps,
            inside,
            shape.rows,
            width,
            interleaves,
            self.reserve,
            self.epilogue,
        )
        self.phases.append(nest.emit(self.builder))
        if final is not None:
            self._reorder(result, final)

    def _split(self, reduction: list[Axis], width: int, reuse: int) -> tuple[list[Axis], list[Axis]]:
        """Which reduction loops go around the loop over tiles, so that a panel of weights stays in cache."""
        size = KIND_BITS[self.kind] // 8
        # A panel leaves the larger part of the second-level cache to the image.
        most = self.target.machine.second.size * 5 // 32
        cut = 0
        while (
            reuse > 1
            and cut < len(reduction) - 1
            and math.prod(axis.extent for axis in reduction[cut:]) * width * size > most
        ):
            cut += 1
        return reduction[:cut], reduction[cut:]

    def _temporary(self, columns: bool) -> Source:
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
        return Source(WORKSPACE, offset, dense(self.kind), places, steps[0], 0, problem.features * feature, feature)

    def _reorder(self, temporary: Source, final: Source) -> None:
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


def has_feature_groups(problem: ConvolutionProblem) -> bool:
    """Whether groups are of the input's features (rather than of its batch)."""
    return problem.input_group_step == problem.channels * problem.input_channel_step


def padded_image(
    problem: ConvolutionProblem, elements: Elements, symbol: str, place: Place, offset: int
) -> tuple[PaddedCopy, list[int]]:
    """The padded copy of the input, and which of batch, channels and spatial dimensions each of its axes is."""
    batches, channels = problem.batch, problem.channels
    if has_feature_groups(problem):
        channels *= problem.groups
    else:
        batches *= problem.groups
    axes = [
        PaddedAxis(batches, batches, problem.input_batch_step),
        PaddedAxis(channels, channels, problem.input_channel_step),
    ]
    axes += [PaddedAxis(a.input, a.padded, a.input_step, a.low, a.input_dilation) for a in problem.spatial]
    order = sorted(range(len(axes)), key=lambda i: (axes[i].step, axes[i].source), reverse=True)
    return PaddedCopy(symbol, tuple(axes[i] for i in order), elements, *place, WORKSPACE, offset), order
