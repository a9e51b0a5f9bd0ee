"""Structural identity of instructions: equal keys mean that one kernel serves both.

Names, locations and the rest of the program do not count; ops, attributes, types and the way in which values are
connected do.  A GPT's twelve layers share their kernels this way.  Built-in ops and element types count by their names,
those that plugins bring by their content, so that a key means the same in every process and after registering again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from hlojit.ir import formats
from hlojit.ir.attributes import (
    BoolAttr,
    ChannelHandle,
    ConvDimensionNumbers,
    Dense,
    DotAlgorithm,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    IntegerAttr,
    ResultAccuracy,
    ScatterDimensionNumbers,
    StringAttr,
    UnitAttr,
)
from hlojit.ir.fingerprint import NotKeyable, fingerprint
from hlojit.ir.formats import ElementType, QuantizedType
from hlojit.ir.graph import Block, Instruction, Module, Value, clone_instruction
from hlojit.ir.ops import BUILT_IN
from hlojit.ir.ops.definition import OpDefinition, Trait
from hlojit.ir.passes.graph_facts import is_constant
from hlojit.ir.types import TensorType, TupleType, Type

_PLAIN = frozenset(
    {type(None), bool, int, float, str, bytes, DotDimensionNumbers, ConvDimensionNumbers, GatherDimensionNumbers}
    | {
        ScatterDimensionNumbers,
        DotAlgorithm,
        ResultAccuracy,
        ChannelHandle,
        StringAttr,
        IntegerAttr,
        BoolAttr,
        UnitAttr,
    }
)
"""Attributes whose ``repr`` says everything."""


@dataclass(slots=True)
class Identities:
    """Content hashes of plugins' ops and element types, computed once each; for one compilation.

    Not for longer: a function's captured globals may change between compilations.
    """

    _known: dict[int, tuple[object, str]] = field(default_factory=dict)

    def of(self, record: OpDefinition | ElementType) -> str:
        """The hash of a record, or an empty text if it is built in; raises ``NotKeyable``."""
        if is_built_in(record):
            return ""
        known = self._known.get(id(record))
        if known is None:
            known = self._known[id(record)] = record, fingerprint(record)
        return known[1]


def is_built_in(record: OpDefinition | ElementType) -> bool:
    """Whether a record is hlojit's own."""
    if isinstance(record, OpDefinition):
        return BUILT_IN.get(record.name) is record
    # Quantized types are spelled out in their names; rows are compared, since anyone may make an equal one.
    functions = (getattr(record, "decode", None), getattr(record, "encode", None))
    return isinstance(record, QuantizedType) or (
        formats.BUILT_IN.get(record.name) == record and functions == (None, None)
    )


def structure_text(instruction: Instruction, identities: Identities | None = None) -> str:
    """Canonical text of an instruction with everything that its code depends on; raises ``NotKeyable``.

    What ``isolated`` keeps of an instruction's surroundings is in the text, so that an emitter that is given the isolated
    instruction cannot read anything that the text does not tell.
    """
    description = _Description()
    for operand in instruction.operands:
        description.numbers.setdefault(operand, len(description.numbers))
    constants = _constants_around(instruction)
    for value in constants:
        description.numbers.setdefault(value, len(description.numbers))
    description.instruction(instruction)
    for value, producer in constants.items():
        description.parts.append(f"{description.numbers[value]} is ")
        description.instruction(producer, described_again=True)
    return description.text(identities or Identities())


def isolated(instruction: Instruction) -> Instruction:
    """A copy of an instruction in a block of its own: all that may be known when code is emitted for it.

    Operands are the block's arguments.  What stays as a constant is what its regions capture and, beside regions, scalars:
    the initial value of a scan decides what code is emitted.
    """
    block = Block()
    mapping: dict[Value, Value] = {}
    for value, producer in _constants_around(instruction).items():
        block.append(clone_instruction(producer, mapping))
        assert value in mapping
    for operand in instruction.operands:
        if operand not in mapping:
            mapping[operand] = block.add_argument(operand.type, operand.name_hint)
    return block.append(clone_instruction(instruction, mapping))


def captured(instruction: Instruction) -> list[Value]:
    """The values that the regions of an instruction use and do not define, each once."""
    stack = list(instruction.regions)
    inside: set[Value] = set()
    used: dict[Value, None] = {}
    while stack:
        block = stack.pop()
        inside.update(block.arguments)
        for each in block:
            inside.update(each.results)
            used.update(dict.fromkeys(each.operands))
            stack.extend(each.regions)
    return [value for value in used if value not in inside]


def _constants_around(instruction: Instruction) -> dict[Value, Instruction]:
    """Constants outside of a kernel's instruction that its code may depend on, with what produces them."""
    found: dict[Value, Instruction] = {}
    if not instruction.regions:
        return found
    for value in captured(instruction):
        producer = value.producer
        assert is_constant(producer), f"a region of {instruction.op.name} captures {value!r}, which is no constant"
        found[value] = cast(Instruction, producer)
    if Trait.FUSION not in instruction.op.traits:
        for operand in instruction.operands:
            producer = operand.producer
            if is_constant(producer) and isinstance(operand.type, TensorType) and not operand.type.shape:
                found[operand] = cast(Instruction, producer)
    return found


def module_text(module: Module, identities: Identities | None = None) -> str:
    """Canonical text of a whole module: functions with their names, signatures and attributes, and all that is in them."""
    description = _Description(discardable=True)
    description.parts.append(f"{module.name} {module.foreign!r}")
    description.attributes(module.attributes)
    description.attributes(module.resources)
    try:
        for function in module.functions.values():
            description.parts.append(f"func {function.name} {function.visibility}")
            description.types(function.result_types)
            for attributes in (function.attributes, *function.argument_attributes, *function.result_attributes):
                description.attributes(attributes)
                description.parts.append("|")
            description.block(function.body)
    except RecursionError:
        raise NotKeyable(f"the module {module.name!r}, which is nested too deeply,") from None
    return description.text(identities or Identities())


class _Description:
    """Text of a piece of graph; values are numbered in the order in which they appear."""

    def __init__(self, *, discardable: bool = False) -> None:
        self.discardable = discardable
        self.parts: list[str] = []
        self.numbers: dict[Value, int] = {}
        self.ops: dict[str, OpDefinition] = {}
        self.kinds: set[Type] = set()

    def text(self, identities: Identities) -> str:
        """What was described, and the identities of the ops and types in it that are not built in."""
        elements: dict[str, ElementType] = {}
        for kind in self.kinds:
            _collect_elements(kind, elements)
        records: list[tuple[str, OpDefinition | ElementType]] = [*sorted(self.ops.items()), *sorted(elements.items())]
        for name, record in records:
            identity = identities.of(record)
            if identity:
                self.parts.append(f"{name} is {identity}\n")
        return "".join(self.parts)

    def types(self, kinds: Iterable[Type]) -> None:
        """Describe types."""
        for kind in kinds:
            self.kinds.add(kind)
            self.parts.append(f"{kind},")

    def attributes(self, attributes: Any) -> None:
        """Describe attributes, in the order of their names."""
        for name in sorted(attributes):
            self.parts.append(f"{name}={self.attribute(attributes[name])};")

    def instruction(self, instruction: Instruction, *, described_again: bool = False) -> None:
        """Describe an instruction with its regions; its operands must have been described, or numbered, before."""
        parts = self.parts
        self.ops[instruction.op.name] = instruction.op
        parts.append(f"{instruction.op.name}(")
        for operand in instruction.operands:
            number = self.numbers.get(operand)
            if number is None:
                raise NotKeyable(f"{operand!r}, which {instruction.op.name} reads and nothing here defines,")
            self.kinds.add(operand.type)
            parts.append(f"{number}:{operand.type},")
        parts.append(")->")
        for result in instruction.results:
            if not described_again:
                self.numbers[result] = len(self.numbers)
        self.types(instruction.result_types)
        self.attributes(instruction.attributes)
        if self.discardable:
            self.attributes(instruction.discardable)
        for region in instruction.regions:
            self.block(region)
        parts.append("\n")

    def block(self, block: Block) -> None:
        """Describe a block with its arguments."""
        self.parts.append("{")
        for argument in block.arguments:
            self.numbers[argument] = len(self.numbers)
        self.types(argument.type for argument in block.arguments)
        for instruction in block:
            self.instruction(instruction)
        self.parts.append("}")

    def attribute(self, value: object) -> str:
        """Text of an attribute's value."""
        kind = type(value)
        if kind in _PLAIN:
            return repr(value)
        if kind is tuple and isinstance(value, tuple):
            return f"({','.join(map(self.attribute, value))})"
        if isinstance(value, Dense):
            self.kinds.add(value.type)
            return f"{value.type}{hashlib.sha256(value.tobytes()).hexdigest()}{value.is_splat}"
        if isinstance(value, Type):
            self.kinds.add(value)
            return repr(value)
        return fingerprint(value)


def _collect_elements(kind: Type, elements: dict[str, ElementType]) -> None:
    if isinstance(kind, TensorType):
        elements[kind.element_type.name] = kind.element_type
    elif isinstance(kind, TupleType):
        for each in kind.elements:
            _collect_elements(each, elements)
