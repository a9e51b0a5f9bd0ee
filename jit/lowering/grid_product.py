"""A product as machines with threads compute it: batch x M x N x K, every dimension several axes with any strides.

    result[batch, m, n] = sum over k of lhs[batch, m, k] * rhs[batch, k, n]

Nothing is copied first: where an element lies is an expression in ``batch``, the free dimension and ``k``
(``ProductOperand.linear``).  A convolution is such a product, whose image has *windows*: a position is the sum of where the
window stands (in the free dimension) and which of its taps is meant (in ``k``), and may lie outside of the image.  A complex
product is a real one of twice the columns and terms, whose operands are read as pairs of reals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from hlojit.ir.attributes import DotDimensionNumbers
from hlojit.ir.types import TensorType
from hlojit.lowering.convolution_problem import ConvolutionProblem
from hlojit.lowering.dot_problem import Axis, dense_steps, merge_axes
from hlojit.lowering.index import Index, constant, delinearized, linear_index


class Pairs(Enum):
    """Which reals of a complex operand stand at a place of the real product."""

    NONE = "none"
    LEFT = "left"
    """Terms 2k and 2k + 1 are the real and the imaginary part."""
    RIGHT = "right"
    """Those of columns 2n and 2n + 1 are (re, im) in term 2k, and (-im, re) in term 2k + 1."""


@dataclass(frozen=True, slots=True)
class Window:
    """One spatial dimension of an image: axis ``free`` says where the window stands, axis ``tap`` which tap is meant."""

    free: int
    tap: int
    stride: int
    dilation: int
    low: int
    input: int
    input_dilation: int
    step: int
    """Elements between neighbours in the image."""

    def position(self, free: Index, tap: Index) -> Index:
        """The position in the dilated image, which may lie outside."""
        return free * self.stride + tap * self.dilation - self.low

    @property
    def extent(self) -> int:
        """Of the dilated image."""
        return (self.input - 1) * self.input_dilation + 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where one element lies, in elements; it is zero unless all conditions hold."""

    linear: Index
    inside: tuple[tuple[Index, int], ...] = ()
    """``0 <= index < extent``."""
    multiples: tuple[tuple[Index, int], ...] = ()
    """The index is a multiple."""
    minus: Index | None = None
    """The element is negated where this is 1."""


@dataclass(frozen=True, slots=True)
class ProductOperand:
    """An operand: the axes of its batch, its free dimension and its terms, outermost first, with their strides."""

    number: int
    batch: tuple[Axis, ...]
    free: tuple[Axis, ...]
    terms: tuple[Axis, ...]
    base: int = 0
    windows: tuple[Window, ...] = ()
    pairs: Pairs = Pairs.NONE

    def place(self, batch: Index, free: Index, k: Index) -> Place:
        """Where the element of a batch, a row or column, and a term lies."""
        if self.pairs is not Pairs.NONE:
            return self._pair_place(batch, free, k)
        linear = constant(self.base) + _walk(self.batch, batch)
        frees, terms = _parts(self.free, free), _parts(self.terms, k)
        linear = linear + _walk(self.free, free) + _walk(self.terms, k)
        inside, multiples = [], []
        for window in self.windows:
            position = window.position(frees[window.free], terms[window.tap])
            if position.low < 0 or position.high >= window.extent:
                inside.append((position, window.extent))
            if window.input_dilation > 1:
                multiples.append((position, window.input_dilation))
            linear = linear + (position // window.input_dilation) * window.step
        return Place(linear, tuple(inside), tuple(multiples))

    def _pair_place(self, batch: Index, free: Index, k: Index) -> Place:
        plain = replace(self, pairs=Pairs.NONE)
        if self.pairs is Pairs.LEFT:
            whole = plain.place(batch, free, k // 2)
            return replace(whole, linear=whole.linear * 2 + k % 2)
        whole = plain.place(batch, free // 2, k // 2)
        part, column = k % 2, free % 2
        return replace(whole, linear=whole.linear * 2 + (part + column) % 2, minus=part - column)

    def lanes(self, *, along_terms: bool, most: int) -> int:
        """How many neighbours along one of the dimensions a single access takes: a power of two up to ``most``."""
        axes, others = (self.terms, self.free) if along_terms else (self.free, self.terms)
        moved = {window.tap if along_terms else window.free for window in self.windows}
        if self.pairs is not Pairs.NONE or not axes or axes[-1].strides[0] != 1 or len(axes) - 1 in moved:
            return 1
        steps = [axis.strides[0] for axis in (*axes[:-1], *others, *self.batch) if axis.extent > 1]
        known = math.gcd(axes[-1].extent, self.base, *steps, *(window.step for window in self.windows))
        lanes = 1
        while 2 * lanes <= most and known % (2 * lanes) == 0:
            lanes *= 2
        return lanes


@dataclass(frozen=True, slots=True)
class GridProduct:
    """Extents, operands, and the strides of the result: of batch, rows and columns."""

    batch: int
    m: int
    n: int
    k: int
    lhs: ProductOperand
    rhs: ProductOperand
    result: tuple[tuple[Axis, ...], tuple[Axis, ...], tuple[Axis, ...]]

    @property
    def results(self) -> int:
        """How many sums there are."""
        return self.batch * self.m * self.n

    @property
    def macs(self) -> int:
        """Multiplications in all."""
        return self.results * self.k

    def result_place(self, batch: Index, row: Index, column: Index) -> Index:
        """Where a sum is written, in elements."""
        return sum((_walk(axes, index) for axes, index in zip(self.result, (batch, row, column))), constant(0))

    def result_lanes(self, most: int) -> int:
        """How many neighbouring columns one access writes: a power of two up to ``most``."""
        batch, rows, columns = self.result
        if not columns or columns[-1].strides[0] != 1:
            return 1
        steps = [axis.strides[0] for axis in (*batch, *rows, *columns[:-1]) if axis.extent > 1]
        known = math.gcd(columns[-1].extent, *steps)
        lanes = 1
        while 2 * lanes <= most and known % (2 * lanes) == 0:
            lanes *= 2
        return lanes

    def exchanged(self) -> GridProduct:
        """The same sums with rows and columns exchanged."""
        batch, rows, columns = self.result
        return GridProduct(self.batch, self.n, self.m, self.k, self.rhs, self.lhs, (batch, columns, rows))

    def as_reals(self) -> GridProduct:
        """A product of complex numbers as one of reals."""
        batch, rows, columns = (_doubled(axes) for axes in self.result)
        return GridProduct(
            self.batch,
            self.m,
            2 * self.n,
            2 * self.k,
            replace(self.lhs, pairs=Pairs.LEFT),
            replace(self.rhs, pairs=Pairs.RIGHT),
            (batch, rows, (*columns, Axis(2, (1,)))),
        )


def _doubled(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    return tuple(Axis(axis.extent, tuple(2 * stride for stride in axis.strides)) for axis in axes)


def _parts(axes: Sequence[Axis], index: Index) -> tuple[Index, ...]:
    return delinearized(index, [axis.extent for axis in axes])


def _walk(axes: Sequence[Axis], index: Index) -> Index:
    return linear_index(_parts(axes, index), [axis.strides[0] for axis in axes])


def _side(axes: Iterable[Axis], side: int) -> tuple[Axis, ...]:
    return tuple(Axis(axis.extent, (axis.strides[side],)) for axis in axes)


def dot_product_of(lhs: TensorType, rhs: TensorType, numbers: DotDimensionNumbers) -> GridProduct:
    """A ``dot_general`` of which no extent is zero."""
    taken = {*numbers.lhs_batching, *numbers.lhs_contracting}
    rows = [d for d in range(lhs.rank) if d not in taken]
    taken = {*numbers.rhs_batching, *numbers.rhs_contracting}
    columns = [d for d in range(rhs.rank) if d not in taken]
    shape = [
        *(lhs.shape[d] for d in (*numbers.lhs_batching, *rows)),
        *(rhs.shape[d] for d in columns),
    ]
    steps = iter(dense_steps(shape))
    batch = merge_axes(
        [
            Axis(lhs.shape[left], (lhs.strides[left], rhs.strides[right], next(steps)))
            for left, right in zip(numbers.lhs_batching, numbers.rhs_batching)
        ]
    )
    m = merge_axes([Axis(lhs.shape[d], (lhs.strides[d], next(steps))) for d in rows])
    n = merge_axes([Axis(rhs.shape[d], (rhs.strides[d], next(steps))) for d in columns])
    pairs = [
        Axis(lhs.shape[left], (lhs.strides[left], rhs.strides[right]))
        for left, right in zip(numbers.lhs_contracting, numbers.rhs_contracting)
    ]
    k = _ordered_terms(pairs)
    product = GridProduct(
        math.prod(axis.extent for axis in batch),
        math.prod(axis.extent for axis in m),
        math.prod(axis.extent for axis in n),
        math.prod(axis.extent for axis in k),
        ProductOperand(0, _side(batch, 0), _side(m, 0), _side(k, 0)),
        ProductOperand(1, _side(batch, 1), _side(n, 0), _side(k, 1)),
        (_side(batch, 2), _side(m, 1), _side(n, 1)),
    )
    # Neighbouring results are columns; with one column they are rows, whose sums are then those of one row.
    return product.exchanged() if product.n == 1 and product.m > 1 else product


def _ordered_terms(pairs: Sequence[Axis]) -> list[Axis]:
    """The order of the sum: that of memory in the right operand, or in the left one where that leaves fewer axes."""
    orders = [merge_axes(sorted(pairs, key=lambda axis: -axis.strides[side])) for side in (1, 0)]
    return min(orders, key=len)


def convolution_product(problem: ConvolutionProblem) -> GridProduct:
    """A convolution with results and terms: rows are positions, columns features, terms the window's taps and the channels.

    Where neighbours in the result are positions, these are the columns.
    """
    rows, k, windows = _image_axes(problem)
    base = sum((axis.window - 1) * axis.kernel_step for axis in problem.spatial if axis.reversed)
    n = merge_axes([Axis(problem.features, (problem.kernel_feature_step, problem.output_feature_step))])
    weights_step = problem.features * problem.kernel_feature_step
    groups = merge_axes(
        [
            Axis(
                problem.groups,
                (problem.input_group_step, weights_step, problem.features * problem.output_feature_step),
            )
        ]
    )
    product = GridProduct(
        problem.groups,
        problem.batch * problem.positions,
        problem.features,
        problem.taps * problem.channels,
        ProductOperand(0, _side(groups, 0), _side(rows, 0), _side(k, 0), 0, windows),
        ProductOperand(1, _side(groups, 1), _side(n, 0), _side(k, 1), base),
        (_side(groups, 2), _side(rows, 1), _side(n, 1)),
    )
    by_features = problem.output_feature_step == 1 and problem.features > 1
    return product if by_features or product.m == 1 else product.exchanged()


def _image_axes(problem: ConvolutionProblem) -> tuple[list[Axis], list[Axis], tuple[Window, ...]]:
    """Axes of rows (strides in image and result) and of terms (in image and kernel), and the windows that leave the image."""
    m = [(Axis(problem.batch, (problem.input_batch_step, problem.output_batch_step)), _PLAIN)]
    taps = [(Axis(problem.channels, (problem.input_channel_step, problem.kernel_channel_step)), _PLAIN)]
    for number, axis in reversed(list(enumerate(problem.spatial))):
        window = _PLAIN if axis.is_plain else number
        step = axis.input_step if axis.is_plain else 0
        m.insert(1, (Axis(axis.output, (axis.stride * step, axis.output_step)), window))
        kernel_step = -axis.kernel_step if axis.reversed else axis.kernel_step
        taps.insert(0, (Axis(axis.window, (axis.window_dilation * step, kernel_step)), window))
    # Terms in the order of the kernel's memory.
    taps.sort(key=lambda tap: -abs(tap[0].strides[1]))
    rows, row_windows = _kept_axes(m)
    k, tap_windows = _kept_axes(taps)
    windows = tuple(
        Window(
            row_windows[number], tap_windows[number], axis.stride, axis.window_dilation, axis.low,
            axis.input, axis.input_dilation, axis.input_step,
        )
        for number, axis in enumerate(problem.spatial) if not axis.is_plain
    )  # fmt: skip
    return rows, k, windows


_PLAIN = -1
"""Of an axis that no window moves over."""


def _kept_axes(axes: Sequence[tuple[Axis, int]]) -> tuple[list[Axis], dict[int, int]]:
    """The axes with neighbours merged, those of windows (by number) kept as they are, and where the latter stand."""
    merged: list[Axis] = []
    run: list[Axis] = []
    places: dict[int, int] = {}
    for axis, window in axes:
        if window == _PLAIN:
            run.append(axis)
            continue
        merged += merge_axes(run)
        run = []
        places[window] = len(merged)
        merged.append(axis)
    return merged + merge_axes(run), places
