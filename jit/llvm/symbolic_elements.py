"""The element of a value at an index, of values whose sizes the kernel is given: the walk of symbolic kernels.

An index is a tuple of ``Position``s, one a dimension, or one ``Linear`` for all of them where a kernel goes through elements as
they lie in memory.  Of the builder's lanes the innermost loop's variable is the one that moves; what cannot be had that way
(a reversed row, a gather) raises ``NotInLanes``, and the kernel is written again for one lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from hlojit.ir.errors import UnsupportedError
from hlojit.ir.formats import BooleanType, ElementType, FloatFormat, IntegerType, element_type
from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.ops.convert import bits_of, from_bits
from hlojit.ir.ops.definition import Pointwise, PointwiseCall
from hlojit.ir.ops.foreign_rules import pointwise
from hlojit.ir.ops.symbolic_values import (
    Coordinate,
    Elementwise,
    Join,
    Numbers,
    Passing,
    Pick,
    Recast,
    Relabel,
    Surround,
    SymbolicShapes,
)
from hlojit.ir.passes.graph_facts import constant_of
from hlojit.ir.scalar import conversions, formats
from hlojit.ir.sizes import Size, add, multiply
from hlojit.llvm.builder import LlvmBuilder, Val, scalars
from hlojit.lowering.element_constants import constant_numbers


class NotInLanes(Exception):
    """The elements that lanes want do not lie side by side."""


class NotFlat(Exception):
    """An element is not at the same place as the result's."""


class Position(NamedTuple):
    """An index (i64) along one dimension; ``moves``: lane l's is ``base + l``."""

    base: Val
    moves: bool = False


class Linear(NamedTuple):
    """A place in row-major order of the result; ``moves`` as for a position."""

    base: Val
    moves: bool = False


Where = tuple[Position, ...] | Linear


class SizeTable:
    """The sizes that code is given, each once, in the order in which it asked for them."""

    def __init__(self) -> None:
        self.sizes: list[Size] = []
        self._places: dict[Size, int] = {}

    def place(self, size: Size) -> int:
        """The number of a size in the table."""
        found = self._places.setdefault(size, len(self.sizes))
        if found == len(self.sizes):
            self.sizes.append(size)
        return found


class Memory(NamedTuple):
    """Where a value lies: a slot, and the bytes from there on."""

    slot: int
    offset: Size = 0


def is_supported(element: ElementType) -> bool:
    """Whether elements of a type have code here: booleans, integers and floats of a byte or more."""
    if isinstance(element, (IntegerType, FloatFormat)):
        return element.bits >= 8
    return isinstance(element, BooleanType)


class SymbolicElements:
    """Emits elements into the function that ``begin`` was called in."""

    def __init__(self, shapes: SymbolicShapes, memory: Mapping[Value, Memory], table: SizeTable, table_slot: int):
        self.shapes = shapes
        self.memory = memory
        self.table = table
        self.table_slot = table_slot
        self.builder = LlvmBuilder()
        self._scopes: list[dict[Any, Val]] = [{}]
        self._entry: dict[Any, Val] = {}

    def begin(self) -> None:
        """A new function: its parameter ``buffers`` holds the slots."""
        self._scopes, self._entry = [{}], {}

    # ------------------------------------------------------------------ sizes and addresses, in the entry block

    def slot(self, number: int) -> Val:
        """The address that a slot holds."""
        found = self._entry.get(("slot", number))
        if found is None:
            b = self.builder
            place, found = b.name(), Val(b.name(), "ptr")
            b.at_entry(
                f"{place} = getelementptr inbounds ptr, ptr %buffers, i64 {number}",
                f"{found.text} = load ptr, ptr {place}, align 8",
            )
            self._entry["slot", number] = found
        return found

    def size(self, size: Size) -> Val:
        """A size as an i64."""
        if isinstance(size, int):
            return self.builder.constant("i64", size)
        found = self._entry.get(("size", size))
        if found is None:
            table, b = self.slot(self.table_slot), self.builder
            place, found = b.name(), Val(b.name(), "i64")
            b.at_entry(
                f"{place} = getelementptr inbounds i64, ptr {table.text}, i64 {self.table.place(size)}",
                f"{found.text} = load i64, ptr {place}, align 8",
            )
            self._entry["size", size] = found
        return found

    def address(self, value: Value) -> Val:
        """Where a value lies."""
        return self.place_of(self.memory[value])

    def place_of(self, memory: Memory) -> Val:
        """The address of memory."""
        base = self.slot(memory.slot)
        if memory.offset == 0:
            return base
        found = self._entry.get(("address", memory))
        if found is None:
            offset, b = self.size(memory.offset), self.builder
            found = Val(b.name(), "ptr")
            b.at_entry(f"{found.text} = getelementptr inbounds i8, ptr {base.text}, i64 {offset.text}")
            self._entry["address", memory] = found
        return found

    # ------------------------------------------------------------------------------------------------ elements

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is computed inside does not reach beyond."""
        self._scopes.append({})
        try:
            yield
        finally:
            self._scopes.pop()

    def define(self, value: Value, at: Where, scalar: Val) -> None:
        """Give an element."""
        self._scopes[-1][value, at] = scalar

    def element(self, value: Value, at: Where) -> Val:
        """The element in compute form; chains of elementwise ops are walked with a stack of our own."""
        stack = [(value, at if value.tensor_type.rank or isinstance(at, Linear) else ())]
        wanted = stack[0]
        while stack:
            key = stack[-1]
            if self._find(key) is not None:
                stack.pop()
                continue
            top, where = key
            producer = top.producer
            if not self._is_elementwise(top):
                self._scopes[-1][key] = self._leaf(top, where)
                stack.pop()
                continue
            assert producer is not None
            keys = [
                (each, where if each.tensor_type.rank == top.tensor_type.rank else ()) for each in producer.operands
            ]
            found = [self._find(each) for each in keys]
            missing = [each for each, scalar in zip(keys, found) if scalar is None]
            if missing:
                stack.extend(reversed(missing))
                continue
            self._scopes[-1][key] = self.pointwise(producer, cast(list[Val], found))
            stack.pop()
        result = self._find(wanted)
        assert result is not None
        return result

    def _find(self, key: Any) -> Val | None:
        for scope in reversed(self._scopes):
            found: Val | None = scope.get(key)
            if found is not None:
                return found
        return None

    def _is_elementwise(self, value: Value) -> bool:
        producer = value.producer
        if producer is None or value in self.memory or constant_of(value) is not None or self._is_size(value):
            return False
        return isinstance(self.shapes.access.get(producer), Elementwise) or producer not in self.shapes.access

    def _is_size(self, value: Value) -> bool:
        return value.tensor_type.rank == 0 and value in self.shapes.elements

    def pointwise(self, instruction: Instruction, operands: Sequence[Val]) -> Val:
        """An op's rule on elements."""
        lowering = instruction.op.lowering
        assert isinstance(lowering, Pointwise), instruction
        types = tuple(operand.tensor_type.element_type for operand in instruction.operands)
        element = instruction.result.tensor_type.element_type
        b = scalars(self.builder)
        result = pointwise(instruction.op, b, PointwiseCall(types, element, instruction.attributes), *operands)
        if not lowering.exact:
            is_narrow = isinstance(element, FloatFormat) and not element.is_native
            result = (formats.round_to_format if is_narrow else formats.wrap_integer)(b, result, element)
        return cast(Val, result)

    def inline(self, block: Block, arguments: Sequence[Val]) -> tuple[Val, ...]:
        """What a region of scalars returns."""
        with self.scope():
            for parameter, argument in zip(block.arguments, arguments, strict=True):
                self.define(parameter, (), argument)
            return tuple(self.element(value, ()) for value in block.returned)

    def _leaf(self, value: Value, at: Where) -> Val:
        element = value.tensor_type.element_type
        dense = constant_of(value)
        if dense is not None and (dense.is_splat or dense.array.size == 1):
            return self.builder.constant(formats.compute_kind(element), constant_numbers(dense)[0])
        if value in self.memory:
            return self._load(value, at)
        if self._is_size(value):
            return self._sized(self.shapes.elements[value][0], element)
        producer = value.producer
        if producer is None:
            raise UnsupportedError("a region", "", "it reads a value from outside, which has no code for open sizes")
        access = self.shapes.access[producer]
        if isinstance(access, Recast):
            return self._recast(producer, at)
        if isinstance(access, Passing):
            return self.element(producer.operands[value.index], at)
        if isinstance(at, Linear):
            if isinstance(access, Relabel):
                return self.element(producer.operands[0], at)
            if isinstance(access, Pick) and not access.coordinates:
                return self.element(producer.operands[0], ())
            if not isinstance(access, Numbers) or len(self.shapes.dims[value]) > 1:
                raise NotFlat
            at = (Position(at.base, at.moves),)
        if isinstance(access, Pick):
            return self.element(producer.operands[0], tuple(self.moved(each, at) for each in access.coordinates))
        if isinstance(access, Relabel):
            return self.element(producer.operands[0], self._relabelled(producer, at))
        if isinstance(access, Join):
            return self._joined(producer, access.dimension, at)
        if isinstance(access, Surround):
            return self._surrounded(producer, access, at)
        if isinstance(access, Numbers):
            return cast(
                Val,
                conversions.convert(
                    scalars(self.builder), self._index(at[access.dimension]), element_type("i64"), element
                ),
            )
        raise UnsupportedError(producer.op.name, "", "internal error: it is not in memory", producer.location)

    def _sized(self, size: Size, element: ElementType) -> Val:
        b, found = self.builder, self.size(size)
        if isinstance(element, BooleanType):
            return b.icmp("ne", found, b.constant("i64", 0))
        kind = formats.compute_kind(element)
        return found if kind == "i64" else b.trunc(found, kind)

    def _recast(self, instruction: Instruction, at: Where) -> Val:
        b, (source,) = scalars(self.builder), instruction.operands
        bits = bits_of(b, self.element(source, at), source.tensor_type.element_type)
        return cast(Val, from_bits(b, bits, instruction.result.tensor_type.element_type))

    def _index(self, position: Position) -> Val:
        b = self.builder
        return b.add(position.base, b.lane_indices("i64")) if position.moves and b.lanes > 1 else position.base

    # ----------------------------------------------------------------------------------------------- movement

    def moved(self, coordinate: Coordinate, at: Sequence[Position]) -> Position:
        """Where a coordinate says, for an index."""
        b = self.builder
        start = self.size(coordinate.start)
        if coordinate.value is not None:
            where = tuple(self.moved(each, at) for each in coordinate.at)
            if b.lanes > 1 and any(each.moves for each in where):
                raise NotInLanes
            start = b.add(start, self._clamped(coordinate.value, where, coordinate.limit))
        if coordinate.dimension is None:
            return Position(start)
        position = at[coordinate.dimension]
        if position.moves and coordinate.step != 1:
            raise NotInLanes
        return Position(b.add(start, b.mul(position.base, b.constant("i64", coordinate.step))), position.moves)

    def _clamped(self, value: Value, at: Where, limit: Size) -> Val:
        b, element = self.builder, value.tensor_type.element_type
        # The same in all lanes, though it may have been computed in all of them.
        start = b.extract(self.element(value, at), 0)
        highest, zero = self.size(limit), b.constant("i64", 0)
        signed = not isinstance(element, IntegerType) or element.signed
        if start.kind != "i64":
            start = (b.sext if signed else b.zext)(start, "i64")
        start = b.select(b.icmp("slt" if signed else "ult", start, highest), start, highest)
        return b.select(b.icmp("sgt", start, zero), start, zero)

    def place(self, shape: Sequence[Size], at: Sequence[Position]) -> tuple[Val, bool]:
        """Where an element lies in row-major order, and whether lanes lie side by side there."""
        b = self.builder
        total, moves, stride = b.constant("i64", 0), False, cast(Size, 1)
        for size, position in zip(reversed(shape), reversed(at)):
            if size != 1:
                if position.moves and stride != 1:
                    raise NotInLanes
                moves |= position.moves
                total = b.add(total, b.mul(position.base, self.size(stride)))
            elif position.moves:
                raise NotInLanes
            stride = multiply(stride, size)
        return total, moves

    def _load(self, value: Value, at: Where) -> Val:
        place, moves = (at.base, at.moves) if isinstance(at, Linear) else self.place(self.shapes.dims[value], at)
        return self.load_at(value, self.memory[value], place, moves=moves)

    def load_at(self, value: Value, memory: Memory, place: Val, *, moves: bool) -> Val:
        """The element at a place of memory that is laid out for a value; ``moves``: lanes lie side by side."""
        b, element = self.builder, value.tensor_type.element_type
        kind = "i1" if isinstance(element, BooleanType) else formats.storage_kind(element)
        raw = b.load(kind, b.element_pointer(self.place_of(memory), kind, place), vector=moves and b.lanes > 1)
        return cast(Val, formats.decode(scalars(b), raw, element))

    def store(self, value: Value, place: Val, scalar: Val, lanes: int) -> None:
        """Write elements of a value that has memory."""
        b, element = self.builder, value.tensor_type.element_type
        if isinstance(element, FloatFormat) and not element.is_native:
            scalar = cast(Val, formats.pack(scalars(b), scalar, element))
        pointer = b.element_pointer(self.address(value), scalar.kind, place)
        b.store(b.splat(scalar, lanes), pointer)

    def _relabelled(self, instruction: Instruction, at: Sequence[Position]) -> tuple[Position, ...]:
        """The index of a reshape's operand: equal innermost dimensions pass, the others are divided anew."""
        operand = self.shapes.dims[instruction.operands[0]]
        result = self.shapes.dims[instruction.results[0]]
        inner = 0
        while inner < min(len(operand), len(result)) and operand[-1 - inner] == result[-1 - inner]:
            inner += 1
        outer = at[: len(result) - inner]
        place, moves = self.place(result[: len(result) - inner], outer)
        rest = operand[: len(operand) - inner]
        if moves and not all(size == 1 for size in rest[:-1]):
            raise NotInLanes
        b, found = self.builder, []
        for number, size in enumerate(reversed(rest)):
            if size == 1:
                found.append(Position(b.constant("i64", 0)))
            elif all(each == 1 for each in rest[: len(rest) - 1 - number]):
                found.append(Position(place, moves))
                place = b.constant("i64", 0)
            else:
                extent = self.size(size)
                found.append(Position(b.urem(place, extent)))
                place = b.udiv(place, extent)
        return (*reversed(found), *at[len(result) - inner :])

    def branch(self, condition: Val, then: Callable[[], Val], otherwise: Callable[[], Val]) -> Val:
        """One of two elements, by a condition that is the same for all lanes; the other one is not computed."""
        b = self.builder
        if condition.is_literal:
            return (then if condition.text in ("true", "1") else otherwise)()
        labels = [b.fresh_label(stem) for stem in ("then", "else", "join")]
        b.branch_if(condition, labels[0], labels[1])
        incoming = []
        for label, run in zip(labels, (then, otherwise)):
            b.begin_block(label)
            with self.scope():
                found = b.splat(run())
            incoming.append((found, b.label))
            b.branch(labels[2])
        b.begin_block(labels[2])
        return b.phi(incoming[0][0].kind, b.lanes, incoming)

    def _joined(self, instruction: Instruction, dimension: int, at: Sequence[Position]) -> Val:
        if at[dimension].moves and self.builder.lanes > 1:
            raise NotInLanes
        b = self.builder
        ends: list[Size] = [0]
        for operand in instruction.operands:
            ends.append(add(ends[-1], self.shapes.dims[operand][dimension]))

        def part(number: int) -> Val:
            start = b.sub(at[dimension].base, self.size(ends[number]))
            where = (*at[:dimension], Position(start, at[dimension].moves), *at[dimension + 1 :])
            if number == len(instruction.operands) - 1:
                return self.element(instruction.operands[number], where)
            inside = b.icmp("slt", at[dimension].base, self.size(ends[number + 1]))
            return self.branch(
                inside, lambda: self.element(instruction.operands[number], where), lambda: part(number + 1)
            )

        return part(0)

    def _surrounded(self, instruction: Instruction, access: Surround, at: Sequence[Position]) -> Val:
        b = self.builder
        operand, result = self.shapes.dims[instruction.operands[0]], self.shapes.dims[instruction.results[0]]
        inside: Val | None = None
        where = []
        for position, low, gap, size, whole in zip(at, access.low, access.interior, operand, result):
            if low == 0 and gap == 0 and size == whole:
                where.append(position)
                continue
            if position.moves and b.lanes > 1:
                raise NotInLanes
            index, step = b.sub(position.base, self.size(low)), b.constant("i64", gap + 1)
            end = b.add(b.mul(b.sub(self.size(size), b.constant("i64", 1)), step), b.constant("i64", 1))
            here = b.and_(b.icmp("sge", index, b.constant("i64", 0)), b.icmp("slt", index, end))
            if gap:
                here = b.and_(here, b.icmp("eq", b.srem(index, step), b.constant("i64", 0)))
                index = b.sdiv(index, step)
            inside = here if inside is None else b.and_(inside, here)
            where.append(Position(index, position.moves))
        source, fill = instruction.operands[:2]
        if inside is None:
            return self.element(source, tuple(where))
        return self.branch(inside, lambda: self.element(source, tuple(where)), lambda: self.element(fill, ()))
