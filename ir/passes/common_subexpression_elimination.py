"""Compute equal things once.

    %0 = stablehlo.exponential %x              =>   %0 = stablehlo.exponential %x
    %1 = stablehlo.exponential %x                   %2 = stablehlo.add %0, %0
    %2 = stablehlo.add %0, %1

Two instructions are equal when op, operands (in any order for commutative ops), attributes, result types and regions
are.  An instruction in a region of ``while``, ``if`` or ``case`` may be replaced by an equal one that stands before the
region; combiners (of ``reduce``, ``sort``, ``scatter``) stay closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hlojit.ir.graph import Block, Instruction, Module, Value
from hlojit.ir.ops.definition import Trait
from hlojit.ir.passes.graph_facts import Effects, is_control_flow, is_terminator
from hlojit.ir.passes.pass_manager import Pass

_LARGEST_REGION = 64
"""Instructions with larger regions are not compared, which keeps the pass linear."""


@dataclass(frozen=True)
class CommonSubexpressionElimination(Pass):
    """Replace an instruction by an equal one that dominates it."""

    name: ClassVar[str] = "common-subexpression-elimination"
    phase: ClassVar[str] = "simplify"
    open_sizes: ClassVar[bool] = True
    before: ClassVar[tuple[str, ...]] = ("dead-code-elimination",)

    def run(self, module: Module) -> bool:
        """Merge equal instructions; return whether there were any."""
        effects = Effects(module)
        changed = False
        for function in module.functions.values():
            changed |= _merge_in(function.body, effects)
        return changed


def _merge_in(body: Block, effects: Effects) -> bool:
    """Walk blocks in order, entering regions where they stand; ``known`` holds what dominates the present place."""
    known: dict[Any, Instruction] = {}
    changed = False
    # Of each open block: the instruction to visit next, and the keys to forget when the block ends.
    stack: list[tuple[Instruction | None, list[Any]]] = [(body.first, [])]
    while stack:
        instruction, added = stack.pop()
        if instruction is None:
            for key in added:
                del known[key]
            continue
        stack.append((instruction.next, added))
        if instruction.regions and is_control_flow(instruction):
            stack.extend((region.first, []) for region in reversed(instruction.regions))
        key = expression_key(instruction, effects)
        if key is None:
            continue
        earlier = known.get(key)
        if earlier is None:
            known[key] = instruction
            added.append(key)
        else:
            if instruction.regions and is_control_flow(instruction):
                del stack[-len(instruction.regions) :]
            instruction.replace_with(earlier.results)
            changed = True
    return changed


def expression_key(instruction: Instruction, effects: Effects) -> Any:
    """What equal instructions have in common, hashable; None for one that must not be merged."""
    if is_terminator(instruction) or effects.has_effect(instruction):
        return None
    operands: Any = instruction.operands
    if len(operands) == 2 and Trait.COMMUTATIVE in instruction.op.traits:
        operands = frozenset(operands) if operands[0] is not operands[1] else operands
    attributes = instruction.attributes
    results = instruction.results
    types = results[0].type if len(results) == 1 else instruction.result_types
    key: Any = (instruction.op.name, operands, frozenset(attributes.items()) if attributes else None, types)
    if instruction.regions:
        regions = tuple(region_key(region) for region in instruction.regions)
        if None in regions:
            return None
        key = (*key, regions)
    return key


def region_key(region: Block) -> Any:
    """What equal regions have in common: their instructions with local values numbered; None for a large region."""
    numbers: dict[Value, int] = {}
    for block, instruction in _flat(region):
        if block is not None:
            for argument in block.arguments:
                numbers[argument] = len(numbers)
        if instruction is not None:
            for result in instruction.results:
                numbers[result] = len(numbers)
        if len(numbers) > 2 * _LARGEST_REGION:
            return None
    rows: list[Any] = []
    for block, instruction in _flat(region):
        if block is not None:
            rows.append(("region", tuple(argument.type for argument in block.arguments)))
        if instruction is not None:
            rows.append(
                (
                    instruction.op.name,
                    tuple(numbers.get(operand, operand) for operand in instruction.operands),
                    frozenset(instruction.attributes.items()),
                    instruction.result_types,
                    len(instruction.regions),
                )
            )
        if len(rows) > _LARGEST_REGION:
            return None
    return tuple(rows)


def _flat(region: Block) -> list[tuple[Block | None, Instruction | None]]:
    """Blocks and instructions of a region in the order of the text, cut off beyond the size that matters."""
    found: list[tuple[Block | None, Instruction | None]] = []
    stack: list[Block | Instruction | None] = [region]
    while stack and len(found) <= 2 * _LARGEST_REGION:
        item = stack.pop()
        if isinstance(item, Block):
            found.append((item, None))
            stack.append(item.first)
        elif item is not None:
            found.append((None, item))
            stack.append(item.next)
            stack.extend(reversed(item.regions))
    return found
