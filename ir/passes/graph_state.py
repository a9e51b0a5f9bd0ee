"""Whether a pass has changed anything, found without comparing programs: everything that can be assigned is the same object.

    before = graph_state(module); pass_.run(module); is_same(before, graph_state(module))

It takes a few tenths of a microsecond an instruction: a pass that finds nothing to do costs its own walk and hardly more.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from hlojit.ir.graph import Block, Module


def graph_state(module: Module) -> Sequence[object]:
    """The objects that a module consists of, in order, kept alive so that no new one can be taken for an old one."""
    state: list[object] = [*module.functions, *module.attributes.values(), *module.foreign]
    add, extend = state.append, state.extend
    stack: list[Block] = []
    for function in module.functions.values():
        extend((function, function.body, function.visibility, *function.result_types, *function.attributes.values()))
        for attributes in (*function.argument_attributes, *function.result_attributes):
            extend((None, *attributes, *attributes.values()))
        stack.append(function.body)
        while stack:
            block = stack.pop()
            add(block)
            for argument in block.arguments:
                add(argument.type)
            instruction = block.first
            while instruction is not None:
                add(instruction)
                add(instruction.op)
                # Replaced as a whole whenever one of them changes.
                add(instruction._operands)
                for result in instruction.results:
                    add(result.type)
                if instruction.attributes:
                    extend(instruction.attributes.values())
                if instruction.discardable:
                    extend(instruction.discardable.values())
                if instruction.regions:
                    stack.extend(instruction.regions)
                instruction = instruction.next
    return state


def is_same(before: Sequence[object], after: Sequence[object]) -> bool:
    """Whether nothing was changed between two states."""
    return len(before) == len(after) and all(map(operator.is_, before, after))
