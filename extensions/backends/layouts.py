"""How a device wants tensors to lie in its memory, and where that has to be changed on the way through a program.

    Layout((1, 0))                     # column-major: the elements of a column follow each other
    Layout((0, 1), tile=(16, 16))      # tiles of 16x16, in rows of tiles, each tile row-major, padded with zeros

A back end says what it wants for an instruction (``Backend.preferred_layouts``).  ``assign_layouts`` finds the layout in which
each value is made, and the conversions that are left: elementwise ops work in any layout, and keep what they find; a transpose
of a value in one layout *is* its result in another, so that nothing is moved; a value is converted once to each layout that is
wanted; what would be converted back is taken as it was.  Elementwise ops on padded tiles are row-major: what they would make of
the padding is no zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from hlojit.extensions.origins import backend_text
from hlojit.ir.errors import PluginError, short_repr
from hlojit.ir.graph import Block, Instruction, Module, Value
from hlojit.ir.named_fields import named_fields
from hlojit.ir.ops.definition import Indexed, Pointwise
from hlojit.ir.passes.graph_facts import is_constant, is_control_flow, program_blocks
from hlojit.ir.types import TensorType
from hlojit.ir.vendor_calls import call_named

if TYPE_CHECKING:
    from hlojit.extensions.backends.backend import Backend

NDArray = np.ndarray[Any, Any]


@final
@dataclass(frozen=True, slots=True)
class Layout:
    """An order of the dimensions in memory, the slowest first, and sizes of tiles of the last of them, or none.

    An empty ``order`` is row-major, for tensors of any rank.  With ``tile``, the elements of a tile follow each other; extents
    are padded with zeros to whole tiles.
    """

    order: tuple[int, ...] = ()
    tile: tuple[int, ...] = ()
    rank: int = field(init=False, repr=False, compare=False)
    """Of the tensors that it was written for; 0: of any."""

    def __post_init__(self) -> None:
        sound = sorted(self.order) == list(range(len(self.order)))
        if not sound or not all(type(each) is int and each > 0 for each in self.tile):
            raise PluginError(f"{self!r}: order holds each dimension once, tile positive sizes")
        if self.order and len(self.tile) > len(self.order):
            raise PluginError(f"{self!r}: there are more sizes of tiles than dimensions")
        object.__setattr__(self, "rank", len(self.order))
        if not self.tile and self.order == tuple(range(len(self.order))):
            object.__setattr__(self, "order", ())

    def fits(self, rank: int) -> bool:
        """Whether a tensor of this rank can lie so."""
        return len(self.tile) <= rank and self.rank in (0, rank)

    def is_padded(self, shape: Sequence[int]) -> bool:
        """Whether tensors of a shape have padding."""
        ordered = [shape[dimension] for dimension in self._order(len(shape))]
        return bool(self.tile) and any(extent % size for extent, size in zip(ordered[-len(self.tile) :], self.tile))

    def pack(self, array: NDArray) -> NDArray:
        """The elements as they lie in memory: an array of the tiles' dimensions, then of those within a tile."""
        ordered = array.transpose(self._order(array.ndim))
        if not self.tile:
            return np.ascontiguousarray(ordered).reshape(ordered.shape)
        outer = ordered.ndim - len(self.tile)
        padding = [(0, 0)] * outer + [(0, -extent % size) for extent, size in zip(ordered.shape[outer:], self.tile)]
        padded = np.pad(ordered, padding)
        split = (*padded.shape[:outer], *self._split(padded.shape[outer:]))
        tiles = range(outer, len(split), 2)
        order = (*range(outer), *tiles, *(number + 1 for number in tiles))
        return np.ascontiguousarray(padded.reshape(split).transpose(order))

    def unpack(self, packed: NDArray, shape: Sequence[int]) -> NDArray:
        """What ``pack`` was given, of this shape, row-major."""
        order = self._order(len(shape))
        ordered = tuple(shape[dimension] for dimension in order)
        if self.tile:
            outer, count = len(shape) - len(self.tile), len(self.tile)
            pairs = [outer + number + half for number in range(count) for half in (0, count)]
            whole = [-(-extent // size) * size for extent, size in zip(ordered[outer:], self.tile)]
            packed = packed.transpose((*range(outer), *pairs)).reshape((*ordered[:outer], *whole))
            packed = packed[tuple(slice(extent) for extent in ordered)]
        inverse = tuple(int(each) for each in np.argsort(order)) if order else ()
        return np.ascontiguousarray(packed.reshape(ordered).transpose(inverse)).reshape(tuple(shape))

    def transposed(self, permutation: Sequence[int]) -> Layout:
        """The layout in which a value in this one is the transpose of it by ``permutation``, without moving anything."""
        place = {dimension: number for number, dimension in enumerate(permutation)}
        return Layout(tuple(place[dimension] for dimension in self._order(len(permutation))), self.tile)

    def _order(self, rank: int) -> tuple[int, ...]:
        return self.order or tuple(range(rank))

    def _split(self, extents: Sequence[int]) -> Iterator[int]:
        return chain.from_iterable((extent // size, size) for extent, size in zip(extents, self.tile))

    def __str__(self) -> str:
        order = "row-major" if not self.order else "order " + "x".join(map(str, self.order))
        return f"{order}, tiles of {'x'.join(map(str, self.tile))}" if self.tile else order


ROW_MAJOR: Final = Layout()


@final
@named_fields
@dataclass(frozen=True, slots=True)
class Layouts:
    """What a back end wants for one instruction: a layout for each operand, and one for each result."""

    operands: tuple[Layout, ...]
    results: tuple[Layout, ...]


@final
@dataclass(slots=True)
class LayoutPlan:
    """The layouts of a program: ``made`` those of values where they are made, ``wanted`` those of an instruction's operands.

    ``relabelled`` are transposes that move nothing.  ``conversions`` are pairs of a value and a layout other than its own that
    somebody wants.
    """

    made: dict[Value, Layout] = field(default_factory=dict)
    wanted: dict[Instruction, tuple[Layout, ...]] = field(default_factory=dict)
    relabelled: set[Instruction] = field(default_factory=set)

    @property
    def conversions(self) -> list[tuple[Value, Layout]]:
        """Each once."""
        found: dict[tuple[Value, Layout], None] = {}
        for instruction, layouts in self.wanted.items():
            for operand, layout in zip(instruction.operands, layouts):
                if self.made.get(operand, ROW_MAJOR) != layout:
                    found[operand, layout] = None
        return list(found)


def assign_layouts(module: Module, backend: Backend, given: Mapping[int, Layout] | None = None) -> LayoutPlan:
    """Layouts for the entry function of a module that goes to a back end's ``compile``.

    ``given`` are those of arguments that are known to lie so.  Other arguments get the layout that the first instruction that has
    a wish wants them in, since who puts them there can do so once.
    """
    plan = LayoutPlan()
    wishes = _wishes(module, backend)
    for number, argument in enumerate(module.main.body.arguments):
        plan.made[argument] = (given or {}).get(number) or _wish_for(argument, wishes)
    stack: list[Block] = [module.main.body]
    while stack:
        for instruction in stack.pop():
            if is_control_flow(instruction):
                # What goes into a construct and comes out of it, and what its regions read, is row-major.
                for region in instruction.regions:
                    plan.made.update(dict.fromkeys(region.arguments, ROW_MAJOR))
                    stack.append(region)
            if is_constant(instruction):
                plan.made[instruction.results[0]] = _wish_for(instruction.results[0], wishes)
            elif not (instruction.op.is_terminator and instruction.block is module.main.body):
                # What the program returns stays as it lies: who reads it next may want it so.
                _assign(instruction, wishes.get(instruction), plan)
    return plan


def _assign(instruction: Instruction, wish: Layouts | None, plan: LayoutPlan) -> None:
    count = len(instruction.operands)
    operands, results = (ROW_MAJOR,) * count, (ROW_MAJOR,) * len(instruction.results)
    permutation = _permutation(instruction)
    if wish is not None:
        operands, results = wish.operands, wish.results
    elif permutation is not None:
        source = plan.made.get(instruction.operands[0], ROW_MAJOR)
        operands, results = (source,), (source.transposed(permutation),)
        plan.relabelled.add(instruction)
    elif _is_elementwise(instruction):
        shape = instruction.results[0].tensor_type.shape
        layout = next(
            (plan.made.get(each, ROW_MAJOR) for each in instruction.operands if each.tensor_type.shape == shape),
            ROW_MAJOR,
        )
        if layout.is_padded(shape):
            # What an op makes of the zeros behind the elements is no zero.
            layout = ROW_MAJOR
        operands = tuple(layout if each.tensor_type.shape == shape else ROW_MAJOR for each in instruction.operands)
        results = (layout,)
    plan.wanted[instruction] = operands
    plan.made.update(zip(instruction.results, results))


def _wishes(module: Module, backend: Backend) -> dict[Instruction, Layouts]:
    """What the back end says, checked."""
    found: dict[Instruction, Layouts] = {}
    for instruction in chain.from_iterable(program_blocks(module.main)):
        if is_control_flow(instruction) or is_constant(instruction) or instruction.op.is_terminator:
            continue
        wish: Any = call_named(
            lambda at=instruction: f"{backend_text(backend.name)}: preferred_layouts for {at.name} at {at.location}",  # type: ignore[misc]
            lambda at=instruction: backend.preferred_layouts(at),
        )
        if wish is not None:
            _check(wish, instruction, backend)
            found[instruction] = wish
    return found


def _check(wish: Any, instruction: Instruction, backend: Backend) -> None:
    types = (*instruction.operand_types, *instruction.result_types)
    layouts = (*wish.operands, *wish.results) if isinstance(wish, Layouts) else ()
    counts = (len(instruction.operands), len(instruction.results))
    if not isinstance(wish, Layouts) or (len(wish.operands), len(wish.results)) != counts:
        raise PluginError(
            f"{backend_text(backend.name)}: preferred_layouts returned {short_repr(wish)} for {instruction.name}, which has "
            f"{counts[0]} operands and {counts[1]} results; return Layouts with a Layout for each, or None\n"
            f"  at {instruction.location}"
        )
    for type_, layout in zip(types, layouts):
        if not isinstance(layout, Layout) or not (isinstance(type_, TensorType) and layout.fits(type_.rank)):
            raise PluginError(
                f"{backend_text(backend.name)}: preferred_layouts returned {layout!r} for {type_} of {instruction.name}, which "
                f"cannot lie so\n  at {instruction.location}"
            )


def _wish_for(argument: Value, wishes: Mapping[Instruction, Layouts]) -> Layout:
    """What the first user that wants something wants, through elementwise ops and transposes."""
    value, undo = argument, list[Sequence[int]]()
    permutation: Sequence[int] | None
    for _ in range(8):
        for user in value.users:
            wish = wishes.get(user)
            if wish is not None:
                layout = wish.operands[user.operands.index(value)]
                for permutation in reversed(undo):
                    inverse = [int(each) for each in np.argsort(permutation)]
                    layout = layout.transposed(inverse)
                return layout
        follower = next((user for user in value.users if _permutation(user) is not None or _is_elementwise(user)), None)
        if follower is None:
            break
        permutation = _permutation(follower)
        if permutation is not None:
            undo.append(permutation)
        value = follower.results[0]
        if not isinstance(value.type, TensorType) or value.type.rank != argument.tensor_type.rank:
            break
    return ROW_MAJOR


def _permutation(instruction: Instruction) -> Sequence[int] | None:
    """Of a transpose."""
    lowering = instruction.op.lowering
    if not isinstance(lowering, Indexed) or not lowering.moves or len(instruction.operands) != 1:
        return None
    found = instruction.attributes.get("permutation")
    return found if isinstance(found, tuple) and len(found) == instruction.results[0].tensor_type.rank else None


def _is_elementwise(instruction: Instruction) -> bool:
    """Whether an element of the result comes from the operands' elements at its index, whatever their order in memory."""
    return (
        isinstance(instruction.op.lowering, Pointwise)
        and len(instruction.results) == 1
        and not instruction.regions
        and any(each.type == instruction.results[0].type for each in instruction.operands)
    )
