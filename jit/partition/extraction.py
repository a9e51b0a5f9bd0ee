"""Parts of a program as programs of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

from hlojit.ir.builder import Builder
from hlojit.ir.graph import Function, Instruction, Module, Value, clone_instruction


@final
@dataclass(frozen=True, slots=True)
class Extracted:
    """A module, and which of the program's values its arguments and results are."""

    module: Module
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


def extracted(
    program: Module, name: str, instructions: Iterable[Instruction], inputs: Sequence[Value], outputs: Sequence[Value]
) -> Extracted:
    """A module whose entry function runs ``instructions``, in this order, with the functions that these name."""
    module = Module(program.name, location=program.location)
    module.environment = program.environment
    module.attributes = dict(program.attributes)
    module.resources = dict(program.resources)
    module.foreign = list(program.foreign)
    function = Function(
        name, [each.type for each in inputs], [each.type for each in outputs], location=program.main.location
    )
    module.add_function(function)
    mapping: dict[Value, Value] = dict(zip(inputs, function.body.arguments))
    callees: list[str] = []
    for instruction in instructions:
        function.body.append(clone_instruction(instruction, mapping))
        callees.extend(callee for each in instruction.walk() for callee in each.callees)
    Builder(function.body, location=program.main.location).return_(*(mapping[each] for each in outputs))
    while callees:
        called = program.functions.get(callees.pop())
        if called is not None and called.name not in module.functions:
            copy = called.clone()
            copy.visibility = "private"
            module.add_function(copy)
            callees.extend(callee for each in copy.body.walk() for callee in each.callees)
    return Extracted(module, tuple(inputs), tuple(outputs))


def reads_of(instruction: Instruction) -> tuple[Value, ...]:
    """The values that an instruction reads, in its regions, too; each once."""
    found = dict.fromkeys(instruction.operands)
    if instruction.regions:
        inside: set[object] = {id(region) for region in instruction.regions}
        for each in instruction.walk():
            if each is not instruction:
                inside.update(id(region) for region in each.regions)
                found.update(dict.fromkeys(each.operands))
        return tuple(value for value in found if id(value.owner) not in inside and not _is_within(value, instruction))
    return tuple(found)


def _is_within(value: Value, instruction: Instruction) -> bool:
    """Whether an instruction inside of the regions of another makes the value."""
    producer = value.producer
    if producer is None or producer is instruction:
        return False
    block = producer.block
    while block is not None and isinstance(block.parent, Instruction):
        if block.parent is instruction:
            return True
        block = block.parent.block
    return False
