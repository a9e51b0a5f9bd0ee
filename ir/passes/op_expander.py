"""Replace ops by the ops that their records expand them into.

    %0 = chlo.square %x                        =>   %0 = stablehlo.multiply %x, %x

An op whose lowering is ``Expand`` has a rule that builds its replacement; what the rule builds is expanded in turn.
``keep`` names ops, separated by ``:``, that the back end takes as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Instruction, Module
from hlojit.ir.ops.definition import Expand
from hlojit.ir.passes.pass_manager import Pass

_DEEPEST: Final = 32
"""Expansions of expansions beyond this depth are a circle."""


@dataclass(frozen=True)
class OpExpander(Pass):
    """Expand ops until none is left that has an expansion."""

    name: ClassVar[str] = "op-expander"
    phase: ClassVar[str] = "legalize"
    after: ClassVar[tuple[str, ...]] = ("call-inliner",)
    keep: str = ""

    def run(self, module: Module) -> bool:
        """Expand; return whether there was anything to expand."""
        from hlojit.ir.builder import Builder

        kept = frozenset(self.keep.split(":"))
        pending = [(instruction, 0) for instruction in module.walk() if _expansion(instruction, kept)]
        changed = False
        while pending:
            instruction, depth = pending.pop()
            lowering = _expansion(instruction, kept)
            if lowering is None or instruction.block is None:
                continue
            if depth > _DEEPEST:
                raise HlojitError(
                    f"the expansion of {instruction.op.name} runs in a circle\n  at {instruction.location}"
                )
            before = instruction.previous
            values = lowering.rule(Builder.in_front_of(instruction), instruction)
            if values is None:
                continue  # it cannot be expanded as it stands; a back end will say so
            for made in _between(before, instruction):
                pending.extend((inner, depth + 1) for inner in made.walk() if _expansion(inner, kept))
            instruction.replace_with(values)
            changed = True
        return changed


def _expansion(instruction: Instruction, kept: frozenset[str]) -> Expand | None:
    lowering = instruction.op.lowering
    return lowering if isinstance(lowering, Expand) and instruction.op.name not in kept else None


def _between(before: Instruction | None, end: Instruction) -> Iterator[Instruction]:
    """The instructions after ``before`` (None: from the start of the block) up to ``end``, excluded."""
    assert end.block is not None
    instruction = end.block.first if before is None else before.next
    while instruction is not None and instruction is not end:
        yield instruction
        instruction = instruction.next
