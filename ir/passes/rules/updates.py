"""Rules on updates in place: of what was just written, and of parts of parts.

column = slice x [0:n, 1:2]                                a[i, 1] = v, as views of arrays are written:
column' = dynamic_update_slice column, v, i                the whole column would be read and written
dynamic_update_slice x, column', 0, 1               =>     dynamic_update_slice x, v, i, 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlojit.ir.formats import IntegerType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.views import DynamicSliceView, SliceView
from hlojit.ir.passes.graph_facts import int_constant_of
from hlojit.ir.passes.rewriting import Effect, Rewriter, RuleSet
from hlojit.ir.passes.rules.matching import made_by, static_shape
from hlojit.ir.types import tensor

RULES = RuleSet("updates")


@RULES.rule("dynamic_update_slice", Effect.EXACT)
def update_of_updated(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """What is overwritten as a whole need not be written first."""
    operand, update, *starts = instruction.operands
    inner = made_by(operand, "dynamic_update_slice")
    if inner is None or static_shape(operand) is None or not _is_same_place(inner.operands[1:], (update, *starts)):
        return None
    written: Value = rewriter.create(
        "dynamic_update_slice", [inner.operands[0], update, *starts], instruction.result.type
    )
    return written


@RULES.rule("dynamic_slice", Effect.EXACT)
def read_of_updated(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """What was just written there."""
    operand, *starts = instruction.operands
    inner = made_by(operand, "dynamic_update_slice")
    if inner is None or static_shape(operand) is None:
        return None
    update = inner.operands[1]
    is_same = update.type is instruction.result.type and _same_values(inner.operands[2:], starts)
    return update if is_same else None


@RULES.rule("dynamic_update_slice", Effect.EXACT)
def update_of_part_of_part(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """A part with a part of its own written, put back where it was: only the inner part is written."""
    whole, changed, *starts = instruction.operands
    shape = static_shape(whole)
    inner = made_by(_without_reshapes(changed), "dynamic_update_slice")
    if shape is None or inner is None or static_shape(inner.result) is None:
        return None
    part = _part_of(whole, _without_reshapes(inner.operands[0]), starts)
    extents = static_shape(changed)
    update = static_shape(inner.operands[1])
    if part is None or extents is None or update is None or 0 in update or part.extents != extents:
        return None
    dimensions = _dimensions(extents, inner.result.tensor_type.shape)
    if dimensions is None:
        return None
    places, sizes = [], []
    for dimension, extent in enumerate(extents):
        source = dimensions[dimension]
        size = 1 if source is None else update[source]
        offset = None if source is None else inner.operands[2 + source]
        sizes.append(size)
        places.append(_place(rewriter, part.starts[dimension], shape[dimension] - extent, offset, extent - size))
    written: Value = rewriter.create(
        "dynamic_update_slice", [whole, rewriter.reshape(inner.operands[1], tuple(sizes)), *places], whole.type
    )
    return written


@dataclass(frozen=True)
class _Part:
    starts: tuple[Value | int, ...]
    extents: tuple[int, ...]


def _part_of(whole: Value, part: Value, starts: Sequence[Value]) -> _Part | None:
    """``part`` as the slice of ``whole`` that an update at ``starts`` writes, if it is that."""
    extents = static_shape(part)
    shape = whole.tensor_type.shape
    if extents is None:
        return None
    if (dynamic := made_by(part, "dynamic_slice")) is not None:
        is_same = dynamic.operands[0] is whole and _same_values(dynamic.operands[1:], starts)
        return _Part(tuple(starts), tuple(DynamicSliceView.of(dynamic).sizes)) if is_same else None
    fixed = made_by(part, "slice")
    if fixed is None or fixed.operands[0] is not whole:
        return None
    view = SliceView.of(fixed)
    for start, begin, extent, size, stride in zip(starts, view.starts, shape, extents, view.strides):
        constant = int_constant_of(start)
        if constant is None or stride != 1 or min(max(constant, 0), extent - size) != begin:
            return None
    return _Part(tuple(view.starts), extents)


def _dimensions(extents: Sequence[int], shape: Sequence[int]) -> list[int | None] | None:
    """For each dimension of a part the one of its reshaped form, None for those of extent 1; None if others differ."""
    sources = [number for number, extent in enumerate(shape) if extent != 1]
    if [extent for extent in extents if extent != 1] != [shape[number] for number in sources]:
        return None
    return [None if extent == 1 else sources.pop(0) for extent in extents]


def _place(rewriter: Rewriter, start: Value | int, slack: int, offset: Value | None, room: int) -> Value:
    """Where an inner part begins, as an i64: both starts are clamped, as if the parts were written one after the other."""
    kind = tensor((), "i64")
    if isinstance(start, int):
        first = rewriter.splat(kind, start)
    else:
        first = _clamped(rewriter, start, slack)
    if offset is None:
        return first
    second = _clamped(rewriter, offset, room)
    if start == 0:
        return second
    place: Value = rewriter.create("add", [first, second], kind)
    return place


def _clamped(rewriter: Rewriter, start: Value, highest: int) -> Value:
    kind = start.tensor_type
    element = kind.element_type
    assert isinstance(element, IntegerType)
    bounds = [rewriter.splat(kind, number) for number in (0, min(highest, element.maximum))]
    clamped: Value = rewriter.create("clamp", [bounds[0], start, bounds[1]], kind)
    wide = tensor((), "i64")
    return clamped if kind is wide else rewriter.create("convert", [clamped], wide)


def _is_same_place(first: Sequence[Value], second: Sequence[Value]) -> bool:
    """Whether two updates (update, starts) write the same elements."""
    return first[0].type is second[0].type and _same_values(first[1:], second[1:])


def _same_values(first: Sequence[Value], second: Sequence[Value]) -> bool:
    """Whether starts are the same values, or constants of the same number."""
    for one, other in zip(first, second, strict=True):
        if one is not other and (int_constant_of(one) is None or int_constant_of(one) != int_constant_of(other)):
            return False
    return True


def _without_reshapes(value: Value) -> Value:
    while (reshape := made_by(value, "reshape")) is not None:
        value = reshape.operands[0]
    return value
