"""Where windows' elements lie, of operands whose sizes are given at run time.

Along each dimension an element of a window is at one position of the operand, or at none: between elements that lie apart, or
beyond the operand.  What may be at none is asked for one at a time; where windows never leave the operand, lanes go along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hlojit.ir.graph import Instruction
from hlojit.ir.ops.symbolic_values import Convolving, Step, SymbolicShapes
from hlojit.ir.sizes import Size, apply
from hlojit.llvm.builder import Val
from hlojit.llvm.symbolic_elements import NotInLanes, Position, SymbolicElements

Place = tuple[Position, Val | None]
"""A position, and whether there is an element; None: there always is."""


def along(elements: SymbolicElements, step: Step, window: Position, inner: Position, size: Size) -> Place:
    """Where element ``inner`` of a window lies along one dimension of an operand of ``size``."""
    b = elements.builder
    for position, distance in ((window, step.stride), (inner, step.dilation)):
        if position.moves and b.lanes > 1 and not (step.is_inside and distance == 1):
            raise NotInLanes
    if window.moves and inner.moves and b.lanes > 1:
        raise NotInLanes
    index = b.add(
        b.mul(window.base, b.constant("i64", step.stride)), b.mul(inner.base, b.constant("i64", step.dilation))
    )
    index = b.sub(index, b.constant("i64", step.low))
    if step.is_inside:
        return Position(index, window.moves or inner.moves), None
    zero, apart = b.constant("i64", 0), b.constant("i64", step.base)
    exists = b.icmp("sge", index, zero)
    if step.base > 1:
        exists = b.and_(exists, b.icmp("eq", b.srem(index, apart), zero))
        index = b.sdiv(index, apart)
    return Position(index), b.and_(exists, b.icmp("slt", index, elements.size(size)))


def stepped(elements: SymbolicElements, places: Sequence[Place]) -> tuple[tuple[Position, ...], Val | None]:
    """The index of an element, and whether it exists along all dimensions."""
    exists: Val | None = None
    for _, here in places:
        if here is not None:
            exists = here if exists is None else elements.builder.and_(exists, here)
    return tuple(position for position, _ in places), exists


class ConvolutionSpace(NamedTuple):
    """The space over which a convolution sums: that of the result, and behind it features of the kernel and its window."""

    shape: tuple[Size, ...]
    dimensions: tuple[int, ...]
    access: Convolving
    lhs: tuple[Size, ...]
    rhs: tuple[Size, ...]

    def where(
        self, elements: SymbolicElements, side: int, at: tuple[Position, ...]
    ) -> tuple[tuple[Position, ...], Val | None]:
        """The place of a factor."""
        return self._kernel(elements, at) if side else self._input(elements, at)

    def _kernel(self, elements: SymbolicElements, at: tuple[Position, ...]) -> tuple[tuple[Position, ...], None]:
        view, b, rank = self.access.view, elements.builder, len(self.lhs)
        numbers = view.numbers
        found = {
            numbers.kernel_output_feature: at[numbers.output_feature],
            numbers.kernel_input_feature: at[rank],
        }
        for number, dimension in enumerate(numbers.kernel_spatial):
            inner = at[rank + 1 + number]
            if view.reversal[number]:
                if inner.moves and b.lanes > 1:
                    raise NotInLanes
                last = b.sub(elements.size(self.rhs[dimension]), b.constant("i64", 1))
                inner = Position(b.sub(last, inner.base))
            found[dimension] = inner
        return tuple(found[d] for d in range(rank)), None

    def _input(self, elements: SymbolicElements, at: tuple[Position, ...]) -> tuple[tuple[Position, ...], Val | None]:
        view, rank = self.access.view, len(self.lhs)
        numbers = view.numbers
        batch, feature = at[numbers.output_batch], at[rank]
        places: dict[int, Place] = {}
        if view.batch_groups > 1:
            batch = self._of_group(elements, at[numbers.output_feature], view.batch_groups, batch, numbers.output_batch)
        if view.feature_groups > 1:
            feature = self._of_group(elements, at[numbers.output_feature], view.feature_groups, feature, rank)
        places[numbers.input_batch], places[numbers.input_feature] = (batch, None), (feature, None)
        spatial = zip(numbers.input_spatial, numbers.output_spatial, self.access.steps, strict=True)
        for number, (source, target, step) in enumerate(spatial):
            places[source] = along(elements, step, at[target], at[rank + 1 + number], self.lhs[source])
        return stepped(elements, [places[d] for d in range(rank)])

    def _of_group(
        self, elements: SymbolicElements, feature: Position, groups: int, position: Position, dimension: int
    ) -> Position:
        """A position within the part that belongs to the group of a feature of the result; parts are as the space's dimension."""
        b = elements.builder
        if feature.moves and b.lanes > 1:
            raise NotInLanes
        of_group = elements.size(apply("divide", self.shape[self.access.view.numbers.output_feature], groups))
        part = b.mul(b.udiv(feature.base, of_group), elements.size(self.shape[dimension]))
        return Position(b.add(part, position.base), position.moves)


def convolution_space(shapes: SymbolicShapes, instruction: Instruction, access: Convolving) -> ConvolutionSpace:
    """Of a convolution."""
    lhs, rhs = (shapes.dims[operand] for operand in instruction.operands)
    result, numbers = shapes.dims[instruction.result], access.view.numbers
    window = [rhs[d] for d in (numbers.kernel_input_feature, *numbers.kernel_spatial)]
    shape = (*result, *window)
    return ConvolutionSpace(shape, tuple(range(len(result), len(shape))), access, lhs, rhs)
