"""A sort of which only some neighbours in each line are read becomes one kernel with what cuts them off: top-k, medians.

    %0 = iota dim = 1                      =>   %2, %4 = fusion(%x) {kind = "selection"}
    %1:2 = sort(%x, %0) along 1                     its body: iota, sort, and the slices [0:8, 0:3] of both results
    %2 = slice %1#0 [0:8, 0:3]                  %3 = slice %4 [0:8, 2:3]
    %3 = slice %1#1 [0:8, 2:3]

Only where the comparator is an order by keys (``hlojit.ir.ops.sort_order``) that leaves nothing open, or a back end's sorts
decide what is left open, so that a kernel may look for the last key that is wanted.  Elements that begin elsewhere than at
the beginning of lines are for back ends that say so, where they are few enough to make it worth while.  These back ends get whole
lines in this form, too, where that spares them something: numbers that would be read, or results that nobody reads (``argsort``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlojit.ir.formats import BooleanType, ElementType, IntegerType
from hlojit.ir.graph import Block, Instruction, Value, clone_instruction
from hlojit.ir.ops.definition import Trait, op
from hlojit.ir.ops.sort_order import sort_order
from hlojit.ir.ops.views import IotaView, SliceView, SortView
from hlojit.ir.types import TensorType

if TYPE_CHECKING:
    from hlojit.ir.passes.fusion_limits import FusionLimits

MOST_KEY_BITS: Final = 64
"""Of all keys together: a block keeps as many as elements are wanted."""

MOST_ELEMENTS: Final = 1 << 31
"""Of a line, so that an element's number takes 32 bits."""

LEAST_SHARE: Final = 2
"""So many times the elements that are read in the middle of a line are in it, at least."""


def fuse_selections(block: Block, limits: FusionLimits) -> bool:
    """Make a fusion of every sort in a block that only has some elements read, or knows some; whether there was one."""
    found = False
    for instruction in list(block):
        if Trait.SORTS not in instruction.op.traits:
            continue
        first, limit = _elements_read(instruction, block, limits) or _whole_lines(instruction, limits)
        if 0 < limit - first <= limits.longest_selection and _is_by_keys(instruction, limits):
            _build(block, instruction, first, limit)
            found = True
    return found


def _line_length(sort: Instruction) -> int:
    """Elements of a line, 0 where there are none, too many, or it is not known how many."""
    type = sort.operands[0].type
    if not isinstance(type, TensorType) or not type.is_static or not type.size:
        return 0
    length = type.shape[SortView.of(sort).position(type.rank)]
    return length if length < MOST_ELEMENTS else 0


def _elements_read(sort: Instruction, block: Block, limits: FusionLimits) -> tuple[int, int] | None:
    """The first and the last element (not included) of each line that are read, if that is not all; else None."""
    length = _line_length(sort)
    if not length:
        return None
    dimension = SortView.of(sort).position(sort.operands[0].tensor_type.rank)
    first, limit = length, 0
    for user in _readers(sort):
        if user.block is not block or Trait.PART not in user.op.traits:
            return None
        view = SliceView.of(user)
        first, limit = min(first, view.starts[dimension]), max(limit, view.limits[dimension])
    if not limits.selects_anywhere or LEAST_SHARE * (limit - first) > length:
        first = 0
    return (first, limit) if limit - first < length else None


def _whole_lines(sort: Instruction, limits: FusionLimits) -> tuple[int, int]:
    """All elements of each line, where a kernel that knows more than a sort has less to read or to write; else nothing."""
    length = _line_length(sort)
    if not length or not limits.selects_anywhere or not any(result.users for result in sort.results):
        return 0, 0
    dimension = SortView.of(sort).position(sort.operands[0].tensor_type.rank)
    has_numbers = any(_numbers(operand, dimension) is not None for operand in sort.operands)
    has_unread = not all(result.users for result in sort.results)
    return (0, length) if has_numbers or has_unread else (0, 0)


def _readers(sort: Instruction) -> list[Instruction]:
    return list(dict.fromkeys(user for result in sort.results for user in result.users))


def _is_by_keys(sort: Instruction, limits: FusionLimits) -> bool:
    comparator = sort.regions[0]
    keys = sort_order(comparator)
    if keys is None or (any(key.leaves_nan for key in keys) and not limits.places_nan):
        return False
    reads_outside = any(_is_outside(operand, comparator) for inner in comparator for operand in inner.operands)
    return not reads_outside and sum(_key_bits(key.element) for key in keys) <= MOST_KEY_BITS


def _is_outside(value: Value, block: Block) -> bool:
    owner = value.owner
    return owner is not block and not (isinstance(owner, Instruction) and owner.block is block)


def _key_bits(element: ElementType) -> int:
    """At most, as an integer in the order of the key."""
    if isinstance(element, BooleanType):
        return 8
    return max(element.bits, 8 if isinstance(element, IntegerType) else 32)


def _numbers(value: Value, dimension: int) -> Instruction | None:
    """What makes a value that is elements' numbers along a dimension, in an integer of whole bytes."""
    made = value.producer
    if made is None or Trait.NUMBERS not in made.op.traits or IotaView.of(made).dimension != dimension:
        return None
    element = value.tensor_type.element_type
    return made if isinstance(element, IntegerType) and element.bits >= 8 else None


def _build(block: Block, sort: Instruction, first: int, limit: int) -> None:
    """Put a fusion in the place of a sort; what reads parts of the sort's results reads them of the fusion's."""
    type = sort.operands[0].tensor_type
    dimension = SortView.of(sort).position(type.rank)
    body = Block()
    mapping: dict[Value, Value] = {}
    inputs: list[Value] = []
    numbers: list[Instruction] = []
    for operand in dict.fromkeys(sort.operands):
        made = _numbers(operand, dimension)
        if made is None:
            mapping[operand] = body.add_argument(operand.type)
            inputs.append(operand)
        else:
            body.append(clone_instruction(made, mapping))
            numbers.append(made)
    body.append(clone_instruction(sort, mapping))
    shape = (*type.shape[:dimension], limit - first, *type.shape[dimension + 1 :])
    starts = tuple(first if d == dimension else 0 for d in range(type.rank))
    bounds = _bounds(starts, tuple(limit if d == dimension else extent for d, extent in enumerate(type.shape)))
    wanted = [result for result in sort.results if result.users]
    types = [result.tensor_type.with_shape(shape) for result in wanted]
    cut = op("stablehlo.slice")
    parts = [Instruction(cut, [mapping[result]], [kind], dict(bounds)) for result, kind in zip(wanted, types)]
    for part in parts:
        body.append(part)
    body.append(Instruction(op("stablehlo.return"), [part.result for part in parts], []))
    fusion = Instruction(op("hlojit.fusion"), inputs, types, {"kind": "selection"}, [body], location=sort.location)
    block.insert_before(sort, fusion)
    # Readers of whole lines may be anything.
    readers = [_shifted(reader, dimension, first) for reader in _readers(sort)] if shape != type.shape else []
    for old, new in zip(wanted, fusion.results):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    for reader in readers:
        if reader.result.type is reader.operands[0].type:
            reader.result.replace_all_uses_with(reader.operands[0])
            reader.erase()
    for instruction in (sort, *numbers):
        if not any(result.users for result in instruction.results):
            instruction.erase()


def _bounds(starts: tuple[int, ...], limits: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Attributes of a slice of neighbours."""
    return {"start_indices": starts, "limit_indices": limits, "strides": (1,) * len(starts)}


def _shifted(part: Instruction, dimension: int, first: int) -> Instruction:
    """A slice of what begins with element ``first`` of the lines that another one reads whole; it takes its place."""
    if not first:
        return part
    view = SliceView.of(part)
    moved = tuple(
        tuple(place - first if d == dimension else place for d, place in enumerate(places))
        for places in (view.starts, view.limits)
    )
    bounds = {"start_indices": moved[0], "limit_indices": moved[1], "strides": view.strides}
    new = Instruction(part.op, list(part.operands), [part.result.type], bounds, location=part.location)
    assert part.block is not None
    part.block.insert_before(part, new)
    new.result.name_hint = part.result.name_hint
    part.result.replace_all_uses_with(new.result)
    part.erase()
    return new
