"""Replace ops by the ops that their records expand them into.

    %0 = chlo.square %x                        =>   %0 = stablehlo.multiply %x, %x

An op whose lowering is ``Expand`` has a rule that builds its replacement; what the rule builds is expanded in turn.
``keep`` names ops, separated by ``:``, that are left as they are.  A compilation gives two functions as well:
``keeps`` tells of one instruction whether the back end takes it as it is, and ``rule_of`` finds expansions beyond those
of the records (what plugins registered for custom calls).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from hlojit.ir.environment import OPS, tables
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Instruction, Module, Value
from hlojit.ir.ops.block_parts import has_blocks
from hlojit.ir.ops.custom_calls import described
from hlojit.ir.ops.definition import Expand, Indexed, Kernel, Reduction, Structural
from hlojit.ir.ops.quantized_arrays import computes_with_numbers
from hlojit.ir.passes.pass_manager import GIVEN, Pass

_DEEPEST: Final = 32
"""Expansions of expansions beyond this depth are a circle."""

ExpansionRule = Callable[[Any, Instruction], Sequence[Value] | None]
"""``rule(builder, instruction)`` returns the replacement values, or None where it does not apply."""


def expansion_of(instruction: Instruction) -> ExpansionRule | None:
    """The expansion in the instruction's op record, or None."""
    lowering = instruction.op.lowering
    if isinstance(lowering, (Indexed, Kernel, Reduction, Structural)):
        return lowering.expansion
    return lowering.rule if isinstance(lowering, Expand) else None


@dataclass(frozen=True)
class _Origin:
    """What an instruction was built for: the text of the instruction expanded, and what that one was built for."""

    text: str
    depth: int
    outer: _Origin | None

    def chain(self) -> list[str]:
        """From the program's own instruction inwards."""
        texts = []
        origin: _Origin | None = self
        while origin is not None:
            texts.append(origin.text)
            origin = origin.outer
        return texts[::-1]


@dataclass(frozen=True)
class OpExpander(Pass):
    """Expand ops until none is left that has an expansion."""

    name: ClassVar[str] = "op-expander"
    phase: ClassVar[str] = "legalize"
    open_sizes: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("call-inliner",)
    keep: str = ""
    keeps: Callable[[Instruction], bool] | None = field(default=None, metadata=GIVEN)
    rule_of: Callable[[Instruction], ExpansionRule | None] = field(default=expansion_of, metadata=GIVEN)

    def run(self, module: Module) -> bool:
        """Expand; return whether there was anything to expand."""
        from hlojit.ir.builder import Builder

        kept = frozenset(self.keep.split(":"))
        pending: list[tuple[Instruction, ExpansionRule, _Origin | None]] = []

        def plan(instruction: Instruction, origin: _Origin | None) -> None:
            rule = self.rule_of(instruction)
            if rule is not None and (computes_with_numbers(instruction) or has_blocks(instruction)):
                return  # it is expanded when it computes with floats
            if rule is not None and instruction.op.name not in kept:
                pending.append((instruction, rule, origin))

        for instruction in module.walk():
            plan(instruction, None)
        changed = False
        while pending:
            # The last one first: what an expansion built comes before the rest, so that a circle shows itself at once.
            instruction, rule, outer = pending.pop()
            if instruction.block is None or (self.keeps is not None and self.keeps(instruction)):
                continue
            origin = _Origin(described(instruction), outer.depth + 1 if outer else 0, outer)
            if origin.depth > _DEEPEST:
                raise _circle(origin, instruction)
            before = instruction.previous
            values = rule(Builder.in_front_of(instruction), instruction)
            if values is None:
                continue  # it cannot be expanded as it stands; a back end will say so
            for made in _between(before, instruction):
                for inner in made.walk():
                    plan(inner, origin)
            instruction.replace_with(values)
            changed = True
        return changed


def _circle(origin: _Origin, instruction: Instruction) -> HlojitError:
    """The error for an expansion that builds itself: the shortest circle, and the instruction that it began with."""
    chain = origin.chain()
    last = chain[-1]
    before = len(chain) - 2
    while before >= 0 and chain[before] != last:
        before -= 1
    circle = chain[before:] if before >= 0 else chain
    whose = f"{chain[0]}{tables().source_of(OPS, chain[0])}"
    return HlojitError(
        f"the expansion of {whose} never ends: {last} builds itself ({' -> '.join(circle)})\n"
        f"  at {instruction.location}"
    )


def _between(before: Instruction | None, end: Instruction) -> Iterator[Instruction]:
    """The instructions after ``before`` (None: from the start of the block) up to ``end``, excluded."""
    assert end.block is not None
    instruction = end.block.first if before is None else before.next
    while instruction is not None and instruction is not end:
        yield instruction
        instruction = instruction.next
