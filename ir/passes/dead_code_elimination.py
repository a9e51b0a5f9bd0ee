"""Remove what nothing reads.

    %0 = stablehlo.exponential %x              =>   %1 = stablehlo.add %x, %x
    %1 = stablehlo.add %x, %x                       return %1
    return %1

Besides unused instructions without effects it removes private functions that are not called, loop-carried values that
only feed themselves, and results of ``if``/``case`` that nothing reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from hlojit.ir.graph import Block, Instruction, Module, Value
from hlojit.ir.passes.graph_facts import Effects, blocks_of, is_terminator
from hlojit.ir.passes.pass_manager import Pass


@dataclass(frozen=True)
class DeadCodeElimination(Pass):
    """Remove unused instructions, functions, loop-carried values and branch results."""

    name: ClassVar[str] = "dead-code-elimination"
    phase: ClassVar[str] = "simplify"
    open_sizes: ClassVar[bool] = True

    def run(self, module: Module) -> bool:
        """Remove dead code; return whether there was any."""
        changed = remove_uncalled_functions(module)
        effects = Effects(module)
        for function in module.functions.values():
            for block in blocks_of(function):
                for instruction in block:
                    shrink = _SHRINK.get(instruction.op.host_role) if instruction.regions else None
                    if shrink is not None:
                        changed |= shrink(instruction, effects)
        for function in module.functions.values():
            changed |= _sweep(function.body, effects)
        return changed


def remove_uncalled_functions(module: Module) -> bool:
    """Drop private functions that no live function calls."""
    live = {name for name, function in module.functions.items() if function.visibility != "private"}
    if not live:
        return False
    pending = list(live)
    while pending:
        for instruction in module.functions[pending.pop()].body.walk():
            for name in instruction.callees:
                if name in module.functions and name not in live:
                    live.add(name)
                    pending.append(name)
    dead = [name for name in module.functions if name not in live]
    for name in dead:
        module.functions[name].body.drop_all_references()
        del module.functions[name]
    return bool(dead)


def _sweep(body: Block, effects: Effects) -> bool:
    """Erase dead instructions, users before producers: backwards, and into regions where they stand."""
    changed = False
    stack = [body.last]
    while stack:
        instruction = stack.pop()
        if instruction is None:
            continue
        stack.append(instruction.previous)
        if is_dead(instruction, effects):
            instruction.erase()
            changed = True
        else:
            stack.extend(region.last for region in instruction.regions)
    return changed


def is_dead(instruction: Instruction, effects: Effects) -> bool:
    """Whether the instruction may be removed."""
    for result in instruction.results:
        if result.users:
            return False
    return not is_terminator(instruction) and not effects.has_effect(instruction)


def _shrink_while(loop: Instruction, effects: Effects) -> bool:
    """Drop carried values whose result nobody reads and that only feed themselves.

    Liveness runs over the carried values: live are those whose result is used, those that the condition or an effect
    reads, and those that a live one's next value is computed from.
    """
    condition, body = loop.regions
    if any(result.users for result in loop.results) and all(result.users for result in loop.results):
        return False
    position_of = {argument: i for i, argument in enumerate(body.arguments)}
    live = [bool(result.users) or bool(condition.arguments[i].users) for i, result in enumerate(loop.results)]
    pending: list[Value] = [body.returned[i] for i in range(len(live)) if live[i]]
    for instruction in body:
        if effects.has_effect(instruction):
            pending.extend(_reads(instruction))
    seen: set[Value] = set()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        position = position_of.get(value)
        if position is not None:
            if not live[position]:
                live[position] = True
                pending.append(body.returned[position])
        elif isinstance(value.owner, Instruction) and value.owner.block is body:
            pending.extend(_reads(value.owner))
    if all(live):
        return False
    keep = [i for i, is_live in enumerate(live) if is_live]
    dropped = [i for i, is_live in enumerate(live) if not is_live]
    body.terminator.operands = [body.returned[i] for i in keep]
    _drop_dead_users(body, [body.arguments[i] for i in dropped])
    for i in reversed(dropped):
        body.erase_argument(i)
        condition.erase_argument(i)
    rebuild_with_results(loop, [loop.operands[i] for i in keep], keep, effects)
    return True


def _drop_dead_users(block: Block, values: list[Value]) -> None:
    """Erase the instructions of ``block`` that read ``values``, and all that depends on them (nothing live does)."""
    doomed: set[Instruction] = set()
    pending = list(values)
    while pending:
        for user in pending.pop().users:
            home: Instruction | None = user
            while home is not None and home.block is not block:
                parent = home.block.parent if home.block is not None else None
                home = parent if isinstance(parent, Instruction) else None
            assert home is not None
            if home not in doomed:
                doomed.add(home)
                pending.extend(home.results)
    for instruction in reversed(block):
        if instruction in doomed:
            instruction.erase()


def _shrink_branches(branch: Instruction, effects: Effects) -> bool:
    """Drop results of ``if``/``case`` that nobody reads."""
    keep = [i for i, result in enumerate(branch.results) if result.users]
    if len(keep) == len(branch.results) or (not keep and not effects.has_effect(branch)):
        return False
    for region in branch.regions:
        region.terminator.operands = [region.returned[i] for i in keep]
    rebuild_with_results(branch, branch.operands, keep, effects)
    return True


def rebuild_with_results(
    instruction: Instruction, operands: Sequence[Value], keep: Sequence[int], effects: Effects
) -> Instruction:
    """Replace an instruction by one with the same regions that has only the results ``keep``, and return it."""
    regions = list(instruction.regions)
    instruction.regions = []
    replacement = Instruction(
        instruction.op,
        operands,
        [instruction.results[i].type for i in keep],
        instruction.attributes,
        regions,
        instruction.discardable,
        instruction.location,
    )
    assert instruction.block is not None
    instruction.block.insert_before(instruction, replacement)
    for new, number in zip(replacement.results, keep):
        new.name_hint = instruction.results[number].name_hint
        instruction.results[number].replace_all_uses_with(new)
    effects.transfer(instruction, replacement)
    instruction.erase()
    return replacement


def _reads(instruction: Instruction) -> list[Value]:
    """Operands of the instruction and of all instructions in its regions."""
    if not instruction.regions:
        return list(instruction.operands)
    return [operand for inner in instruction.walk() for operand in inner.operands]


_SHRINK: Final = {"loop": _shrink_while, "branch": _shrink_branches}
"""By the role of the op."""
