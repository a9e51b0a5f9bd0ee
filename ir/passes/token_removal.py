"""Take tokens out of a program: its instructions stand in an order already, and what has effects keeps it.

    %3:2 = while(%a = %0, %t = %1) ...         =>    %3 = while(%a = %0) ...
    %4, %5 = infeed(%3#1)                            %4, %5 = infeed(create_token())

Loops, branches, calls and barriers no longer carry tokens; functions neither take nor give them.  An op that must have one
gets one of its own, and what it gives is not used.  Nothing is done to a program with tokens in tuples, or in ops that are
not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from hlojit.ir.attributes import ArrayAttr
from hlojit.ir.blocks import Block, Instruction, Value
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Function, Module
from hlojit.ir.ops.custom_calls import is_custom_call
from hlojit.ir.ops.definition import Structural
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.types import TokenType

_CARRIES: Final = frozenset({"loop", "branch", "call", "alias", "return"})
"""What ops are for the host program that take and give tokens among other values."""
_LAYOUTS: Final = ("operand_layouts", "result_layouts")

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class TokenRemoval(Pass):
    """Remove tokens from whatever carries them."""

    name: ClassVar[str] = "token-removal"
    phase: ClassVar[str] = "import"

    def run(self, module: Module) -> bool:
        """Remove; return whether there was anything to remove."""
        functions = [function for function in module.functions.values() if _has_tokens(function)]
        if not any(map(_concerns, functions)) or not all(map(_is_known, _instructions(module))):
            return False
        for function in module.functions.values():
            _narrow_signature(function)
            _remove_from_block(function.body)
        return True


def _instructions(module: Module) -> Iterator[Instruction]:
    for function in module.functions.values():
        yield from function.body.walk()


def _is_token(value: Value) -> bool:
    return isinstance(value.type, TokenType)


def _has_tokens(function: Function) -> bool:
    """Whether any value of the function is a token."""
    signature = [*(argument.type for argument in function.body.arguments), *function.result_types]
    return any(isinstance(type, TokenType) for type in signature) or any(
        map(_is_token, (result for each in function.body.walk() for result in each.results))
    )


def _concerns(function: Function) -> bool:
    """Whether something of a function carries tokens: those that only follow each other are in nobody's way."""
    if any(map(_is_token, function.body.arguments)):
        return True
    return any(_carries(each) and any(map(_is_token, each.operands)) for each in function.body.walk())


def _carries(instruction: Instruction) -> bool:
    return instruction.op.host_role in _CARRIES or is_custom_call(instruction)


def _is_known(instruction: Instruction) -> bool:
    """Whether tokens of the instruction can be removed, or made anew in front of it."""
    values = [*instruction.operands, *instruction.results]
    if is_custom_call(instruction) and any(map(_is_token, values)):
        return not instruction.attributes.get("output_operand_aliases")
    if not any(map(_is_token, values)) or instruction.op.host_role in _CARRIES:
        return True
    return instruction.op.registered and not instruction.regions and not instruction.op.callees


def _remove_from_block(block: Block) -> None:
    for instruction in tuple(block):
        for region in instruction.regions:
            _remove_from_block(region)
        if not any(map(_is_token, (*instruction.operands, *instruction.results))):
            continue
        if _carries(instruction):
            _without_tokens(instruction)
        elif isinstance(instruction.op.lowering, Structural):
            # What only makes tokens of tokens: its result is asked for by nobody but such as make their own.
            instruction.operands = ()
        else:
            token = Builder.in_front_of(instruction).token()
            instruction.operands = [token if _is_token(operand) else operand for operand in instruction.operands]
    for number in reversed(range(len(block.arguments))):
        if _is_token(block.arguments[number]):
            block.erase_argument(number)


def _without_tokens(instruction: Instruction) -> None:
    """Replace an instruction by one that neither takes nor gives tokens."""
    kept = [not _is_token(operand) for operand in instruction.operands]
    given = [not _is_token(result) for result in instruction.results]
    if all(given):
        instruction.operands = _chosen(instruction.operands, kept)
        _narrow_layouts(instruction, kept, given)
        return
    regions, instruction.regions = instruction.regions, []
    made = Builder.in_front_of(instruction).insert(
        Instruction(
            instruction.op,
            _chosen(instruction.operands, kept),
            _chosen([result.type for result in instruction.results], given),
            instruction.attributes,
            regions,
            instruction.discardable,
            instruction.location,
        )
    )
    _narrow_layouts(made, kept, given)
    builder = Builder.in_front_of(instruction)
    results = iter(made.results)
    instruction.replace_with([next(results) if stays else builder.token() for stays in given])


def _narrow_layouts(instruction: Instruction, operands: Sequence[bool], results: Sequence[bool]) -> None:
    """A custom call states a layout for each operand and result, tokens among them."""
    if not is_custom_call(instruction):
        return
    attributes = dict(instruction.attributes)
    for name, kept in zip(_LAYOUTS, (operands, results)):
        found = attributes.get(name)
        if isinstance(found, ArrayAttr) and len(found.elements) == len(kept):
            attributes[name] = ArrayAttr(tuple(_chosen(found.elements, kept)))
    instruction.attributes = attributes


def _narrow_signature(function: Function) -> None:
    """What is stated of a function's arguments and results; the arguments themselves go with those of its body."""
    arguments = [not _is_token(argument) for argument in function.body.arguments]
    function.argument_attributes = _chosen(function.argument_attributes, arguments)
    results = [not isinstance(type, TokenType) for type in function.result_types]
    function.result_attributes = _chosen(function.result_attributes, results)
    function.result_types = _chosen(function.result_types, results)


def _chosen(items: Sequence[_Item], kept: Sequence[bool]) -> list[_Item]:
    return [item for item, stays in zip(items, kept, strict=True) if stays]
