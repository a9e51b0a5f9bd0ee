"""Let the entry function take and return the parts of tensors in blocks.

    func @main(%x: tensor<4x64xmxfp8>)      =>      func @main(%0: tensor<4x64xf8E4M3FN>, %1: tensor<4x2xf8E8M0FNU>)
                                                      %x = "hlojit.join_blocks"(%0, %1)

What runs programs knows plain tensors; callers see arrays in blocks (``hlojit.block_executable``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlojit.ir.blocks import Value
from hlojit.ir.builder import Builder
from hlojit.ir.donation import element_attributes
from hlojit.ir.graph import Function, Module
from hlojit.ir.ops.block_arithmetic import block_format, part_types
from hlojit.ir.ops.block_parts import JOIN_BLOCKS, SPLIT_BLOCKS
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.types import TensorType, Type


@dataclass(frozen=True)
class BlockSignature(Pass):
    """Parts of tensors in blocks as arguments and results of the entry function."""

    name: ClassVar[str] = "block-signature"
    phase: ClassVar[str] = "import"
    after: ClassVar[tuple[str, ...]] = ("tuple-legalizer",)

    def run(self, module: Module) -> bool:
        """Replace; return whether the signature had blocks.  It is left alone where other functions call the entry."""
        main = module.main
        called = (each.callees for function in module.functions.values() for each in function.body.walk())
        if not has_blocks_in_signature(main) or any(main.name in callees for callees in called):
            return False
        given = [_parts(argument.type) for argument in main.body.arguments]
        results = [_parts(type) for type in main.result_types]
        main.argument_attributes = element_attributes(main, list(map(len, given)), list(map(len, results)))
        main.result_attributes = [
            dict(attributes) for attributes, parts in zip(main.result_attributes, results) for _ in parts
        ]
        _replace_results(main)
        _replace_arguments(main, given)
        main.result_types = [type for parts in results for type in parts]
        return True


def has_blocks_in_signature(function: Function) -> bool:
    """Whether an argument or a result is in blocks."""
    types = (*(argument.type for argument in function.body.arguments), *function.result_types)
    return any(block_format(type) is not None for type in types)


def _parts(type: Type) -> list[Type]:
    return list(part_types(type)) if isinstance(type, TensorType) and block_format(type) is not None else [type]


def _replace_results(main: Function) -> None:
    end = main.body.last
    assert end is not None
    builder = Builder.in_front_of(end)
    leaves: list[Value] = []
    for value in end.operands:
        in_blocks = block_format(value.type) is not None
        leaves += builder.create(SPLIT_BLOCKS.name, [value]).results if in_blocks else [value]
    end.operands = leaves


def _replace_arguments(main: Function, given: list[list[Type]]) -> None:
    body, old = main.body, main.body.arguments[:]
    first = body.first
    assert first is not None
    builder = Builder.in_front_of(first)
    arguments: list[Value] = []
    for argument, types in zip(old, given):
        new = [Value(type, body, len(arguments) + at, argument.name_hint) for at, type in enumerate(types)]
        arguments += new
        if block_format(argument.type) is None:
            argument.replace_all_uses_with(new[0])
        elif argument.users:
            whole = builder.create(JOIN_BLOCKS.name, new, result_types=[argument.type]).result
            argument.replace_all_uses_with(whole)
    body.arguments[:] = arguments
