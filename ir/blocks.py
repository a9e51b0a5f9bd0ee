"""Blocks, instructions and values: what the bodies of functions are made of.

A region of StableHLO has exactly one block, so a region *is* a ``Block`` here.  Blocks hold their instructions in an
intrusive doubly linked list: insertion and removal are constant-time, and a walk may erase the instruction it stands on.
Values know their users, so that a rewrite touches only what it changes.

The rest of the code imports these names, with ``Function`` and ``Module``, from ``hlojit.ir.graph``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.attributes import Attribute
from hlojit.ir.errors import HlojitError
from hlojit.ir.frozen import MESSAGE
from hlojit.ir.location import UNKNOWN, Location
from hlojit.ir.types import TensorType, Type

if TYPE_CHECKING:
    from hlojit.ir.graph import Function
    from hlojit.ir.ops.definition import OpDefinition


DEEPEST_REGION: Final = 128
"""How deep regions may nest in one another: some steps of a compilation recurse into them."""


class Value:
    """A result of an instruction, or an argument of a block.

    ``users`` maps each using instruction to the number of its operands that are this value, in order of first use.
    """

    __slots__ = ("index", "name_hint", "owner", "type", "users")

    def __init__(self, type: Type, owner: Instruction | Block, index: int, name_hint: str = ""):
        self.type = type
        self.owner = owner
        self.index = index
        self.name_hint = name_hint
        self.users: dict[Instruction, int] = {}

    @property
    def tensor_type(self) -> TensorType:
        """The type, which must be a tensor's."""
        assert isinstance(self.type, TensorType), self.type
        return self.type

    @property
    def producer(self) -> Instruction | None:
        """The instruction that computes this value; None for a block argument."""
        return self.owner if isinstance(self.owner, Instruction) else None

    @property
    def is_argument(self) -> bool:
        """Whether this is a block argument."""
        return isinstance(self.owner, Block)

    @property
    def is_argument_of_function(self) -> bool:
        """Whether this is an argument of a function, not one of a region."""
        return isinstance(self.owner, Block) and not isinstance(self.owner.parent, Instruction)

    def replace_all_uses_with(self, other: Value) -> None:
        """Make every user read ``other`` instead."""
        if other is self:
            return
        for user, count in self.users.items():
            user._check_mutable()
            user._operands = tuple(other if operand is self else operand for operand in user._operands)
            other.users[user] = other.users.get(user, 0) + count
        self.users = {}

    def _add_user(self, user: Instruction) -> None:
        self.users[user] = self.users.get(user, 0) + 1

    def _drop_user(self, user: Instruction) -> None:
        count = self.users[user] - 1
        if count:
            self.users[user] = count
        else:
            del self.users[user]

    def __repr__(self) -> str:
        where = self.owner.op.name if isinstance(self.owner, Instruction) else "argument"
        return f"<Value {where}#{self.index}: {self.type}>"


class Instruction:
    """One op applied to operands.

    ``attributes`` holds what the op record declares, converted to Python values; ``discardable`` everything else as
    generic MLIR attributes.  ``regions`` are single blocks.
    """

    __slots__ = (
        "_operands",
        "attributes",
        "block",
        "discardable",
        "location",
        "next",
        "op",
        "previous",
        "regions",
        "results",
    )

    def __init__(
        self,
        op: OpDefinition,
        operands: Sequence[Value],
        result_types: Sequence[Type],
        attributes: Mapping[str, Any] | None = None,
        regions: Sequence[Block] = (),
        discardable: Mapping[str, Attribute] | None = None,
        location: Location = UNKNOWN,
    ):
        self.op = op
        self._operands = tuple(operands)
        for operand in self._operands:
            operand._add_user(self)
        self.results = tuple(Value(type, self, index) for index, type in enumerate(result_types))
        self.attributes: dict[str, Any] = dict(attributes or {})
        self.discardable: dict[str, Attribute] = dict(discardable or {})
        self.regions = list(regions)
        for region in self.regions:
            region.parent = self
        self.location = location
        self.block: Block | None = None
        self.previous: Instruction | None = None
        self.next: Instruction | None = None

    @property
    def name(self) -> str:
        """Full name of the op, ``stablehlo.add``."""
        return self.op.name

    @property
    def operands(self) -> tuple[Value, ...]:
        """The values that this instruction reads."""
        return self._operands

    @operands.setter
    def operands(self, values: Sequence[Value]) -> None:
        self._check_mutable()
        for operand in self._operands:
            operand._drop_user(self)
        self._operands = tuple(values)
        for operand in self._operands:
            operand._add_user(self)

    @property
    def result(self) -> Value:
        """The only result."""
        assert len(self.results) == 1, self.op.name
        return self.results[0]

    @property
    def result_types(self) -> tuple[Type, ...]:
        """Types of the results."""
        return tuple(result.type for result in self.results)

    @property
    def operand_types(self) -> tuple[Type, ...]:
        """Types of the operands."""
        return tuple(operand.type for operand in self._operands)

    @property
    def callees(self) -> tuple[str, ...]:
        """Names of the module's functions that this instruction runs, as the op's record says."""
        names: list[str] = []
        for attribute in self.op.callees:
            value = self.attributes.get(attribute)
            if isinstance(value, str):
                names.append(value)
            elif isinstance(value, tuple):
                names.extend(value)
        return tuple(names)

    @property
    def function(self) -> Function | None:
        """The function whose body holds this instruction, at any depth; None while it is in none."""
        block = self.block
        while block is not None and isinstance(block.parent, Instruction):
            block = block.parent.block
        parent = block.parent if block is not None else None
        assert not isinstance(parent, Instruction)
        return parent

    def set_operand(self, index: int, value: Value) -> None:
        """Replace one operand."""
        operands = list(self._operands)
        operands[index] = value
        self.operands = operands

    def replace_with(self, values: Sequence[Value]) -> None:
        """Make all users read ``values`` instead of the results, and erase this instruction."""
        if isinstance(values, Value) or len(values) != len(self.results):
            count = len(self.results)
            given = "one value" if isinstance(values, Value) else f"{len(values)} values"
            raise HlojitError(
                f"{self.op.name}: replace_with was given {given}; it takes a list of {count}, one for each result: "
                f"replace_with([{', '.join(['value'] * count)}])"
            )
        for result, value in zip(self.results, values):
            result.replace_all_uses_with(value)
        self.erase()

    def erase(self) -> None:
        """Remove the instruction from its block; its results must have no users left."""
        assert not any(result.users for result in self.results), f"{self.op.name} is still used"
        for region in self.regions:
            region.drop_all_references()
        self.operands = ()
        self.unlink()

    def clone(self, mapping: dict[Value, Value] | None = None) -> Instruction:
        """A copy with its regions, in no block: it reads what ``mapping`` gives for values, which receives its results."""
        return clone_instruction(self, {} if mapping is None else mapping)

    def unlink(self) -> None:
        """Take the instruction out of its block without touching its operands (to insert it elsewhere)."""
        if self.block is not None:
            self.block._unlink(self)

    def walk(self) -> Iterator[Instruction]:
        """Yield this instruction and all instructions in its regions, outer before inner."""
        stack = [self]
        while stack:
            instruction = stack.pop()
            yield instruction
            for region in reversed(instruction.regions):
                stack.extend(reversed(tuple(region)))

    def _check_mutable(self) -> None:
        if self.block is not None and self.block.frozen:
            raise HlojitError(MESSAGE)

    def __repr__(self) -> str:
        return f"<Instruction {self.op.name} -> {', '.join(map(str, self.result_types))}>"


class Block:
    """A region's (or function's) arguments and instructions; the last instruction is the terminator."""

    __slots__ = ("_count", "arguments", "first", "frozen", "last", "parent")

    def __init__(self, argument_types: Sequence[Type] = (), parent: Instruction | Function | None = None):
        self.arguments = [Value(type, self, index) for index, type in enumerate(argument_types)]
        self.parent = parent
        self.first: Instruction | None = None
        self.last: Instruction | None = None
        self.frozen = False
        self._count = 0

    def __iter__(self) -> Iterator[Instruction]:
        instruction = self.first
        while instruction is not None:
            following = instruction.next
            yield instruction
            # An instruction that was erased while we stood on it leaves the walk at its former successor.
            instruction = instruction.next if instruction.block is self else following

    def __reversed__(self) -> Iterator[Instruction]:
        instruction = self.last
        while instruction is not None:
            preceding = instruction.previous
            yield instruction
            instruction = instruction.previous if instruction.block is self else preceding

    def __len__(self) -> int:
        return self._count

    @property
    def terminator(self) -> Instruction:
        """The last instruction, which returns the block's values."""
        assert self.last is not None, "an empty block has no terminator"
        return self.last

    @property
    def returned(self) -> tuple[Value, ...]:
        """The values that the terminator returns."""
        return self.terminator.operands

    def add_argument(self, type: Type, name_hint: str = "") -> Value:
        """Append an argument."""
        self._check_mutable()
        value = Value(type, self, len(self.arguments), name_hint)
        self.arguments.append(value)
        return value

    def erase_argument(self, index: int) -> None:
        """Remove an argument without users; those behind it move up."""
        self._check_mutable()
        assert not self.arguments[index].users
        del self.arguments[index]
        for position, argument in enumerate(self.arguments):
            argument.index = position

    def append(self, instruction: Instruction) -> Instruction:
        """Add at the end and return the instruction."""
        return self._link(instruction, self.last, None)

    def insert_before(self, anchor: Instruction, instruction: Instruction) -> Instruction:
        """Insert ``instruction`` in front of ``anchor`` and return it."""
        assert anchor.block is self
        return self._link(instruction, anchor.previous, anchor)

    def walk(self) -> Iterator[Instruction]:
        """Yield all instructions, those of nested regions after the one that holds them."""
        stack = [iter(self)]
        while stack:
            instruction = next(stack[-1], None)
            if instruction is None:
                stack.pop()
                continue
            yield instruction
            stack.extend(iter(region) for region in reversed(instruction.regions))

    def drop_all_references(self) -> None:
        """Forget all operands inside, so that the block can be thrown away."""
        for instruction in self.walk():
            instruction.operands = ()

    def clone_into(self, target: Block, mapping: dict[Value, Value], *, before: Instruction | None = None) -> None:
        """Append copies of all instructions (terminator included) to ``target`` (or insert them ``before`` one of its).

        ``mapping`` gives the values to use for this block's arguments and for values from outside (those missing map to
        themselves); it receives the copies' results.
        """
        # A stack instead of recursion: blocks that are being copied, and instructions that wait for their regions.
        stack: list[_Copying | _Waiting] = [_Copying(iter(self), target, before)]
        while stack:
            top = stack[-1]
            if isinstance(top, _Waiting):
                stack.pop()
                top.into.add(_copy_of(top.instruction, top.regions, mapping))
                continue
            for instruction in top.source:
                if instruction.regions:
                    regions = [region._without_instructions(mapping) for region in instruction.regions]
                    stack.append(_Waiting(instruction, regions, top))
                    pairs = list(zip(instruction.regions, regions))
                    stack.extend(_Copying(iter(region), copy) for region, copy in reversed(pairs))
                    break
                top.add(_copy_of(instruction, (), mapping))
            else:
                stack.pop()

    def clone(self, mapping: dict[Value, Value] | None = None) -> Block:
        """Copy the block; ``mapping`` as in ``clone_into``."""
        mapping = {} if mapping is None else mapping
        copy = self._without_instructions(mapping)
        self.clone_into(copy, mapping)
        return copy

    def _without_instructions(self, mapping: dict[Value, Value]) -> Block:
        """A block with the same arguments, which ``mapping`` receives."""
        copy = Block([argument.type for argument in self.arguments])
        for old, new in zip(self.arguments, copy.arguments):
            new.name_hint = old.name_hint
            mapping[old] = new
        return copy

    def _link(
        self, instruction: Instruction, previous: Instruction | None, following: Instruction | None
    ) -> Instruction:
        self._check_mutable()
        assert instruction.block is None, "unlink it first"
        instruction.block = self
        instruction.previous, instruction.next = previous, following
        if previous is None:
            self.first = instruction
        else:
            previous.next = instruction
        if following is None:
            self.last = instruction
        else:
            following.previous = instruction
        self._count += 1
        return instruction

    def _unlink(self, instruction: Instruction) -> None:
        self._check_mutable()
        previous, following = instruction.previous, instruction.next
        if previous is None:
            self.first = following
        else:
            previous.next = following
        if following is None:
            self.last = previous
        else:
            following.previous = previous
        instruction.block = None
        # ``next`` stays as it was: a walk that stands on the instruction needs it to go on.
        self._count -= 1

    def _check_mutable(self) -> None:
        if self.frozen:
            raise HlojitError(MESSAGE)


@dataclass(slots=True)
class _Copying:
    """A block whose instructions are being copied to the end of ``target``, or in front of ``before``."""

    source: Iterator[Instruction]
    target: Block
    before: Instruction | None = None

    def add(self, copy: Instruction) -> None:
        if self.before is None:
            self.target.append(copy)
        else:
            self.target.insert_before(self.before, copy)


@dataclass(slots=True)
class _Waiting:
    """An instruction that is copied when its regions are."""

    instruction: Instruction
    regions: Sequence[Block]
    into: _Copying


def clone_instruction(instruction: Instruction, mapping: dict[Value, Value]) -> Instruction:
    """Copy one instruction with its regions, mapping operands; the copies' results are added to ``mapping``."""
    return _copy_of(instruction, [region.clone(mapping) for region in instruction.regions], mapping)


def _copy_of(instruction: Instruction, regions: Sequence[Block], mapping: dict[Value, Value]) -> Instruction:
    copy = Instruction(
        instruction.op,
        [mapping.get(operand, operand) for operand in instruction.operands],
        instruction.result_types,
        instruction.attributes,
        regions,
        instruction.discardable,
        instruction.location,
    )
    for old, new in zip(instruction.results, copy.results):
        new.name_hint = old.name_hint
        mapping[old] = new
    return copy
