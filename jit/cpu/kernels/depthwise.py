"""Depthwise convolutions with channels innermost: every channel has its own window, vectors run along the channels.

A tile is a row of neighbouring output positions for one vector of channels; each input vector is loaded once and used
by all windows that see it.  Nothing is padded: rows of taps outside the input are left out by loop bounds, columns by
tiles that are specialized to the edge they stand at.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from hlojit.cpu.kernels.addresses import PARAMETERS, ZERO, buffer, dot_product, literal, minimum, unflatten
from hlojit.cpu.kernels.arithmetic import Arithmetic
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.product_elements import Elements, at, constant_mask, scaled
from hlojit.lowering.convolution_problem import ConvolutionProblem, Spatial
from hlojit.lowering.dot_problem import ceil_divide
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.loop_plan import CALL_CYCLES
from hlojit.lowering.target import Target

Pattern = tuple[tuple[int, int], ...]
"""The (row, tap) pairs of a tile that lie inside the input."""
MAXIMUM_TAPS = 9
_TRIVIAL = Spatial(1, 1, 1, 1, 0, 0, 1, 1, False, 0, 0, 0)


def is_depthwise(problem: ConvolutionProblem) -> bool:
    """Whether ``emit_depthwise`` can write this convolution."""
    last = problem.spatial[-1]
    return (
        problem.groups > 1
        and problem.channels == 1
        and problem.features == 1
        and problem.input_group_step == 1
        and problem.output_feature_step == 1
        and problem.kernel_feature_step == 1
        and len(problem.spatial) <= 2
        and last.window <= MAXIMUM_TAPS
        and all(axis.input_dilation == 1 for axis in problem.spatial)
        and problem.macs > 0
    )


@dataclass(frozen=True, slots=True)
class Depthwise:
    """One emission."""

    problem: ConvolutionProblem
    input: Elements
    kernel: Elements
    result: Elements
    target: Target
    symbol: str

    @property
    def axes(self) -> tuple[Spatial, Spatial]:
        """Vertical and horizontal dimension."""
        spatial = self.problem.spatial
        return (spatial[0], spatial[1]) if len(spatial) == 2 else (_TRIVIAL, spatial[-1])

    @property
    def rows(self) -> int:
        """Positions in a tile."""
        wanted = 8 if self.target.vector_registers >= 32 else 4
        return min(wanted, self.axes[1].output)

    def patterns(self) -> list[tuple[int, int, Pattern]]:
        """(first tile, number of tiles, pattern) along a row of output; positions behind the end are in no pattern."""
        axis = self.axes[1]
        found: list[Pattern] = []
        for start in range(0, axis.output, self.rows):
            pairs = []
            for row in range(min(self.rows, axis.output - start)):
                for tap in range(axis.window):
                    place = (start + row) * axis.stride - axis.low + tap * axis.window_dilation
                    if 0 <= place < axis.input:
                        pairs.append((row, tap))
            found.append((*pairs, (-1, min(self.rows, axis.output - start))))
        runs, first = [], 0
        for pattern, group in groupby(found):
            count = len(list(group))
            runs.append((first, count, pattern))
            first += count
        return runs

    def emit(self) -> KernelCode:
        """Emit the launch."""
        b = LlvmBuilder()
        problem, vertical = self.problem, self.axes[0]
        symbols: dict[Pattern, str] = {}
        for _, _, pattern in self.patterns():
            if pattern not in symbols:
                symbols[pattern] = f"{self.symbol}.tile{len(symbols)}"
                self._tile(b, symbols[pattern], pattern)
        lines = problem.batch * vertical.output
        machine = self.target.machine
        # Bound by loads more than by multiply-adds: about three times what those take.
        vectors = problem.macs / lines / self.target.native_lanes(self.input.compute)
        cost = 3 * machine.product_nanoseconds(vectors) + machine.nanoseconds(2 * CALL_CYCLES)
        per_task = max(1, int(machine.task_nanoseconds / 2 / cost))
        tasks = ceil_divide(lines, per_task)
        with b.function(self.symbol, PARAMETERS, outer=True) as (_, buffers, begin, end):
            image, weights, out = (buffer(b, buffers, number) for number in range(3))
            weights = at(b, weights, self._reversed_offset())
            stop = minimum(b, scaled(b, end, per_task), literal(lines))
            loop = b.begin_loop(scaled(b, begin, per_task), stop)
            batch, line = unflatten(b, loop.index, [problem.batch, vertical.output])
            # Taps between first and last fall inside the input: 0 <= place + tap * dilation < extent.
            place = b.sub(scaled(b, line, vertical.stride), literal(vertical.low))
            step = vertical.window_dilation
            below = b.intrinsic("smax", ZERO, b.sub(ZERO, place))
            first = b.udiv(b.add(below, literal(step - 1)), literal(step))
            above = b.intrinsic("smax", ZERO, b.sub(literal(vertical.input), place))
            last = minimum(b, literal(vertical.window), b.udiv(b.add(above, literal(step - 1)), literal(step)))
            first = minimum(b, first, last)
            place = b.add(place, scaled(b, first, step))
            size = self.input.size
            row = at(
                b, image, dot_product(b, [batch, place], [problem.input_batch_step * size, vertical.input_step * size])
            )
            taps = at(b, weights, scaled(b, first, self._tap_step(vertical)))
            size = self.result.size
            target = dot_product(b, [batch, line], [problem.output_batch_step * size, vertical.output_step * size])
            self._tiles(b, symbols, row, taps, at(b, out, target), b.sub(last, first))
            b.end_loop(loop)
        return kernel_code(b, (Phase(self.symbol, tasks, cost * per_task),))

    def _reversed_offset(self) -> int:
        offsets = ((a.window - 1) * a.kernel_step * self.kernel.size for a in self.axes if a.reversed)
        return sum(offsets)

    def _tap_step(self, axis: Spatial) -> int:
        return (-axis.kernel_step if axis.reversed else axis.kernel_step) * self.kernel.size

    def _tiles(self, b: LlvmBuilder, symbols: dict[Pattern, str], row: Val, taps: Val, out: Val, count: Val) -> None:
        """All tiles of one row of output."""
        axis = self.axes[1]
        step_in = self.rows * axis.stride * axis.input_step * self.input.size
        step_out = self.rows * axis.output_step * self.result.size
        base = at(b, row, -axis.low * axis.input_step * self.input.size)
        for first, number, pattern in self.patterns():
            loop = b.begin_loop(literal(first), literal(first + number))
            source = at(b, base, scaled(b, loop.index, step_in))
            target = at(b, out, scaled(b, loop.index, step_out))
            arguments = f"ptr {source.text}, ptr {taps.text}, ptr {target.text}, i64 {count.text}"
            b.line(f"call void @{symbols[pattern]}({arguments})")
            b.end_loop(loop)

    def _tile(self, b: LlvmBuilder, symbol: str, pattern: Pattern) -> None:
        """Emit ``void symbol(ptr input, ptr kernel, ptr result, i64 taps)``: all channels of one tile."""
        lanes = self.target.native_lanes(self.input.compute)
        whole = self.problem.groups // lanes * lanes
        rest = self.problem.groups - whole
        parameters = [("ptr", "input"), ("ptr", "kernel"), ("ptr", "result"), ("i64", "taps")]
        with b.function(symbol, parameters, attributes="nounwind noinline", linkage="internal") as values:
            image, kernel, out, taps = values
            if whole:
                loop = b.begin_loop(ZERO, literal(whole), lanes)
                moved = [
                    at(b, pointer, scaled(b, loop.index, elements.size))
                    for pointer, elements in zip((image, kernel, out), (self.input, self.kernel, self.result))
                ]
                self._vector(b, moved[0], moved[1], moved[2], taps, pattern, lanes, None)
                b.end_loop(loop)
            if rest:
                narrow = 1 << (rest - 1).bit_length()
                moved = [
                    at(b, pointer, whole * elements.size)
                    for pointer, elements in zip((image, kernel, out), (self.input, self.kernel, self.result))
                ]
                self._vector(b, moved[0], moved[1], moved[2], taps, pattern, narrow, constant_mask(rest, narrow))

    def _vector(
        self,
        b: LlvmBuilder,
        image: Val,
        kernel: Val,
        out: Val,
        taps: Val,
        pattern: Pattern,
        lanes: int,
        mask: Val | None,
    ) -> None:
        """One vector of channels of one tile."""
        vertical, axis = self.axes
        arithmetic = Arithmetic.of(self.input.compute, self.target, self.problem.terms)
        pairs, rows = pattern[:-1], pattern[-1][1]
        zero = b.splat(arithmetic.zero, lanes)
        loop = b.begin_loop(ZERO, taps, carried=[image, kernel, *[zero] * rows])
        line, weights, *sums = loop.carried
        vectors: dict[int, Val] = {}
        columns = sorted({row * axis.stride + tap * axis.window_dilation for row, tap in pairs})
        for column in columns:
            value = self.input.load(b, at(b, line, column * axis.input_step * self.input.size), lanes, mask)
            for row, tap in pairs:
                if row * axis.stride + tap * axis.window_dilation == column:
                    if tap not in vectors:
                        vectors[tap] = self.kernel.load(b, at(b, weights, tap * self._tap_step(axis)), lanes, mask)
                    sums[row] = arithmetic.multiply_add(b, value, vectors[tap], sums[row])
        following = [
            at(b, line, vertical.window_dilation * vertical.input_step * self.input.size),
            at(b, weights, self._tap_step(vertical)),
        ]
        sums = list(b.end_loop(loop, [*following, *sums]))[2:]
        for row, total in enumerate(sums):
            self.result.store(b, total, at(b, out, row * axis.output_step * self.result.size), mask)
