"""Replace tuples by what they hold.

    %2 = tuple %0, %1                          =>
    %3 = optimization_barrier %2                     %3:2 = optimization_barrier %0, %1
    %4 = get_tuple_element %3[1]                     use of %3#1

Loops, branches and barriers carry the elements instead, those of nested tuples as well, and the entry function takes and
returns them (callers see tuples: ``hlojit.nested_executable``).  What else takes or gives a tuple - other functions, custom
calls - is left as it is: in front of it tuples are put together, behind it they are taken apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, final

from hlojit.ir.blocks import Block, Instruction, Value
from hlojit.ir.builder import Builder
from hlojit.ir.donation import element_attributes
from hlojit.ir.graph import Function, Module
from hlojit.ir.ops.control import GET_TUPLE_ELEMENT, TUPLE
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.types import TupleType, Type

_CARRIES: Final = frozenset({"loop", "branch", "alias"})
"""What ops are for the host program whose operands, results and regions' arguments may as well be the elements."""


@dataclass(frozen=True)
class TupleLegalizer(Pass):
    """Carry the elements of tuples, not tuples."""

    name: ClassVar[str] = "tuple-legalizer"
    phase: ClassVar[str] = "import"
    before: ClassVar[tuple[str, ...]] = ("token-removal",)

    def run(self, module: Module) -> bool:
        """Replace; return whether anything carried a tuple."""
        changed = False
        for function in module.functions.values():
            is_entry = _is_entry_with_tuples(module, function)
            if is_entry or any(map(_carries_tuple, function.body.walk())):
                _FunctionLegalizer(is_entry).run(function)
                changed = True
        return changed


def has_tuples(function: Function) -> bool:
    """Whether an argument or a result is a tuple."""
    types = (*(argument.type for argument in function.body.arguments), *function.result_types)
    return any(isinstance(type, TupleType) for type in types)


def _is_entry_with_tuples(module: Module, function: Function) -> bool:
    """Whether the signature is that of the entry function, holds tuples, and nobody calls it."""
    if not has_tuples(function) or function is not module.main:
        return False
    called = (each.callees for other in module.functions.values() for each in other.body.walk())
    return not any(function.name in callees for callees in called)


def _carries_tuple(instruction: Instruction) -> bool:
    return instruction.op.host_role in _CARRIES and any(
        isinstance(value.type, TupleType) for value in (*instruction.operands, *instruction.results)
    )


def _flatten_signature(function: Function) -> None:
    """Let what is stated of a function's arguments and results be that of their elements; the body is changed by others."""
    given = [_leaf_types(argument.type) for argument in function.body.arguments]
    results = [_leaf_types(type) for type in function.result_types]
    function.argument_attributes = element_attributes(function, list(map(len, given)), list(map(len, results)))
    function.result_attributes = [
        dict(attributes) for attributes, leaves in zip(function.result_attributes, results) for _ in leaves
    ]
    function.result_types = [leaf for leaves in results for leaf in leaves]


def _leaf_types(type: Type) -> list[Type]:
    """What a value of a type is carried as."""
    found, stack = [], [type]
    while stack:
        inner = stack.pop()
        if isinstance(inner, TupleType):
            stack.extend(reversed(inner.elements))
        else:
            found.append(inner)
    return found


@final
class _FunctionLegalizer:
    """Replaces the tuples of one function, with ``is_entry`` those of its signature, too."""

    def __init__(self, is_entry: bool = False) -> None:
        self._is_entry = is_entry
        self._leaves: dict[Value, list[Value]] = {}
        self._dead: list[Instruction] = []

    def run(self, function: Function) -> None:
        """Replace in the whole body."""
        if self._is_entry:
            _flatten_signature(function)
            self._arguments(function.body)
        self._block(function.body)
        for instruction in reversed(self._dead):
            instruction.erase()

    def _block(self, block: Block) -> None:
        for instruction in tuple(block):
            values = (*instruction.operands, *instruction.results)
            if not any(isinstance(value.type, TupleType) for value in values):
                for region in instruction.regions:
                    self._block(region)
            elif instruction.op == TUPLE:
                self._leaves[instruction.result] = self._of_all(instruction.operands)
                self._dead.append(instruction)
            elif instruction.op == GET_TUPLE_ELEMENT:
                self._element(instruction)
            elif instruction.op.host_role in _CARRIES:
                self._carry(instruction)
            elif instruction.op.is_terminator and (self._is_entry or isinstance(block.parent, Instruction)):
                instruction.operands = self._of_all(instruction.operands)
            else:
                builder = Builder.in_front_of(instruction)
                instruction.operands = [self._whole(builder, operand) for operand in instruction.operands]
                for region in instruction.regions:
                    self._block(region)

    def _of_all(self, values: Iterable[Value]) -> list[Value]:
        return [leaf for value in values for leaf in self._of(value)]

    def _of(self, value: Value) -> list[Value]:
        """The leaves of a value; of what is no tuple, the value."""
        if not isinstance(value.type, TupleType):
            return [value]
        if value not in self._leaves:
            first = value.owner.first if isinstance(value.owner, Block) else value.owner.next
            assert first is not None
            self._leaves[value] = _taken_apart(Builder.in_front_of(first), value)
        return self._leaves[value]

    def _element(self, instruction: Instruction) -> None:
        (operand,), number = instruction.operands, instruction.attributes["index"]
        assert isinstance(operand.type, TupleType)
        before = sum(len(_leaf_types(type)) for type in operand.type.elements[:number])
        width = len(_leaf_types(operand.type.elements[number]))
        leaves = self._of(operand)[before : before + width]
        if isinstance(instruction.result.type, TupleType):
            self._leaves[instruction.result] = leaves
        else:
            instruction.result.replace_all_uses_with(leaves[0])
        self._dead.append(instruction)

    def _carry(self, instruction: Instruction) -> None:
        """The instruction with leaves for operands, results and arguments of regions."""
        operands = self._of_all(instruction.operands)
        for region in instruction.regions:
            self._arguments(region)
            self._block(region)
        regions, instruction.regions = instruction.regions, []
        made = Builder.in_front_of(instruction).insert(
            Instruction(
                instruction.op,
                operands,
                [leaf for type in instruction.result_types for leaf in _leaf_types(type)],
                instruction.attributes,
                regions,
                instruction.discardable,
                instruction.location,
            )
        )
        self._divide(instruction.results, made.results)
        self._dead.append(instruction)

    def _arguments(self, region: Block) -> None:
        old = region.arguments[:]
        types = [leaf for argument in old for leaf in _leaf_types(argument.type)]
        region.arguments[:] = [Value(type, region, number) for number, type in enumerate(types)]
        self._divide(old, region.arguments)

    def _divide(self, old: Sequence[Value], new: Sequence[Value]) -> None:
        """Let values be known by their leaves."""
        leaves = iter(new)
        for value in old:
            own = [next(leaves) for _ in _leaf_types(value.type)]
            if isinstance(value.type, TupleType):
                self._leaves[value] = own
            else:
                own[0].name_hint = value.name_hint
                value.replace_all_uses_with(own[0])

    def _whole(self, builder: Builder, value: Value) -> Value:
        """A value of the same type: tuples that are known by their leaves are put together."""
        if value not in self._leaves:
            return value
        return _put_together(builder, value.type, iter(self._leaves[value]))


def _taken_apart(builder: Builder, value: Value) -> list[Value]:
    found, stack = [], [value]
    while stack:
        top = stack.pop()
        if isinstance(top.type, TupleType):
            parts = [
                builder.create(GET_TUPLE_ELEMENT.name, [top], attributes={"index": n}).result
                for n in range(len(top.type.elements))
            ]
            stack.extend(reversed(parts))
        else:
            found.append(top)
    return found


def _put_together(builder: Builder, type: Type, leaves: Iterator[Value]) -> Value:
    """A value of a type from its leaves; types nest as deep as they are written."""
    if not isinstance(type, TupleType):
        return next(leaves)
    parts = [_put_together(builder, element, leaves) for element in type.elements]
    return builder.create(TUPLE.name, parts).result
