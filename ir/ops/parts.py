"""Rules for ops on numbers that are computed as several values each: complex numbers as their real and imaginary parts.

A record's ``parts`` says what becomes of the op when its operands are taken apart, by class of element type::

    multiply = (a + bi)(c + di)    %re = subtract(a c, b d)     %im = add(a d, b c)

``hlojit.ir.passes.type_legalizer`` walks the program and runs the rules.  A rule gets a builder, the instruction and each
operand's parts (of an operand that is no such number: the operand alone); it returns each result's parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from hlojit.ir.formats import ElementType
from hlojit.ir.types import TensorType, Type, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value
    from hlojit.ir.ops.definition import OpDefinition

Parts = tuple["Value", ...]
"""What one value is computed as."""
PartsRule = Callable[[Any, "Instruction", Sequence[Parts]], "Sequence[Parts] | None"]
"""``rule(builder, instruction, operands)``; None, having built nothing, where it does not apply."""

_Item = TypeVar("_Item")


def in_order(groups: Sequence[Sequence[_Item]]) -> list[_Item]:
    """The parts of one argument after those of another."""
    return [part for group in groups for part in group]


def in_pairs(groups: Sequence[Sequence[_Item]]) -> list[_Item]:
    """Of arguments that come in pairs (a comparator's): the first part of both, the second part of both, and so on."""
    pairs = zip(groups[::2], groups[1::2], strict=True)
    return [part for pair in pairs for both in zip(*pair, strict=True) for part in both]


@dataclass(frozen=True, slots=True)
class Separately:
    """The op takes any number of operands with a result each: parts are operands, results and arguments of their own.

    ``arranged`` says in which order the parts of a region's arguments come; ``operands`` are parts in place of those of the
    operands, for a rule that has worked on them.
    """

    arranged: Callable[[Sequence[Sequence[Any]]], list[Any]] = in_order
    operands: tuple[Value, ...] | None = None


SEPARATELY: Final = Separately()

RuleOfParts = Callable[[Any, "Instruction", Sequence[Parts]], "Sequence[Parts] | Separately | None"] | Separately
"""A rule in a record: a ``PartsRule``, or one that may say that parts are operands of their own."""

NO_RULES: Final[Mapping[type[Any], RuleOfParts]] = MappingProxyType({})


class Representation(Protocol):
    """How elements of one class are computed with, where a back end does not do it itself."""

    @property
    def element_class(self) -> type[ElementType]:
        """The class of element types."""

    @property
    def asks_backends(self) -> bool:
        """Whether an op stays as it is where the back end takes it."""

    def represents(self, element: ElementType) -> bool:
        """Whether it is for numbers of this type, one of the class."""

    def types(self, type: TensorType) -> Sequence[TensorType]:
        """The types of the parts."""

    def take_apart(self, builder: Any, value: Value) -> Parts:
        """The parts of a value that is in memory as a whole."""

    def put_together(self, builder: Any, parts: Parts, type: TensorType) -> Value:
        """A value of ``type`` from its parts."""

    def constants(self, array: Any, type: TensorType) -> tuple[Any, ...]:
        """The arrays of a constant's parts."""

    def is_edge(self, instruction: Instruction) -> bool:
        """Whether the instruction only takes apart or puts together."""

    def rule(self, record: OpDefinition) -> RuleOfParts | None:
        """What becomes of an op; None where there is no rule."""


def rule_of_record(record: OpDefinition, element_class: type[Any]) -> RuleOfParts | None:
    """The rule in a record for a class of element types, or for all of them."""
    found: Mapping[type[Any], RuleOfParts] = record.parts
    return found.get(element_class) or found.get(ElementType)


def each_part(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    """The op on the first part of every operand, on the second, and so on: what moves elements moves parts alike."""
    taken_apart = [parts for parts, operand in zip(operands, instruction.operands) if parts[0] is not operand]
    columns = []
    for number, part in enumerate(taken_apart[0]):
        chosen = [
            operand if parts[0] is operand else parts[number] for parts, operand in zip(operands, instruction.operands)
        ]
        element = part.tensor_type.element_type
        types = [with_element_type(result.type, element) for result in instruction.results]
        made = builder.create(instruction.op.name, chosen, attributes=instruction.attributes, result_types=types)
        columns.append(made.results)
    return list(zip(*columns, strict=True))


def with_element_type(type: Type, element: ElementType) -> TensorType:
    """The tensor type with another element type, bounds kept."""
    assert isinstance(type, TensorType)
    return tensor(type.shape, element, type.encoding)
