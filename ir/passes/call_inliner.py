"""Replace calls by the called functions' bodies.

    func.func @main(%x) { %0 = func.call @f(%x) ; return %0 }       =>   func.func @main(%x) {
    func.func private @f(%y) { %1 = stablehlo.negate %y ; return %1 }      %0 = stablehlo.negate %x ; return %0 }

``stablehlo.composite`` is a call of its decomposition, unless its name is in ``keep`` (names separated by ``:``) or
``keeps`` says that a back end takes it as it is.  Private functions that are no longer called disappear.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import DEEPEST_REGION, Function, Instruction, Module, Value, clone_instruction
from hlojit.ir.location import UNKNOWN, CallSiteLocation, Location
from hlojit.ir.passes.dead_code_elimination import remove_uncalled_functions
from hlojit.ir.passes.graph_facts import deepest_region
from hlojit.ir.passes.pass_manager import GIVEN, Pass

_LARGEST_PROGRAM = 5_000_000
"""Calls of calls can multiply code exponentially; beyond this many instructions the program is refused."""


@dataclass(frozen=True)
class CallInliner(Pass):
    """Inline ``func.call`` and decompose composites."""

    name: ClassVar[str] = "call-inliner"
    phase: ClassVar[str] = "legalize"
    open_sizes: ClassVar[bool] = True
    keep: str = ""
    keeps: Callable[[Instruction], bool] | None = field(default=None, metadata=GIVEN)

    def run(self, module: Module) -> bool:
        """Inline every call; return whether there was one."""
        calls = {name: self._calls(function) for name, function in module.functions.items()}
        if not any(calls.values()):
            return False
        changed = False
        order = _callees_first(module, calls)
        _check_sizes(module, calls, order)
        for name in order:
            function = module.functions[name]
            for call, called in calls[name]:
                callee = module.functions.get(called)
                if callee is None or callee.is_declaration:
                    continue
                _inline(call, callee)
                changed = True
            if calls[name] and deepest_region(function) > DEEPEST_REGION:
                raise HlojitError(
                    f"inlining the calls in @{name} makes regions that nest deeper than {DEEPEST_REGION} levels"
                )
        return remove_uncalled_functions(module) or changed

    def _calls(self, function: Function) -> list[tuple[Instruction, str]]:
        """The calls and composites of a function that are to be replaced, with the functions that they name."""
        kept = frozenset(self.keep.split(":")) if self.keep else frozenset()
        found = []
        for instruction in function.body.walk():
            if not instruction.op.callees or instruction.op.host_role == "function":
                continue
            # What a call is to be replaced by is all that it is; a composite may also be kept as it stands.
            if instruction.op.host_role != "call" and (
                instruction.attributes.get("name") in kept or (self.keeps is not None and self.keeps(instruction))
            ):
                continue
            callee = instruction.attributes.get(instruction.op.callees[0])
            if isinstance(callee, str):
                found.append((instruction, callee))
        return found


def _callees_first(module: Module, calls: dict[str, list[tuple[Instruction, str]]]) -> list[str]:
    """Function names, callees before callers; a circle of calls is an error."""
    order: list[str] = []
    state: dict[str, int] = {}
    for root in module.functions:
        stack = [(root, False)]
        while stack:
            name, finished = stack.pop()
            if finished:
                state[name] = 2
                order.append(name)
                continue
            if name in state:
                continue
            state[name] = 1
            stack.append((name, True))
            for call, callee in calls[name]:
                if callee in module.functions and state.get(callee) != 2:
                    if state.get(callee) == 1:
                        raise HlojitError(
                            f"function @{callee} calls itself (through @{name}); programs cannot be recursive\n"
                            f"  at {call.location}"
                        )
                    stack.append((callee, False))
    return order


def _check_sizes(module: Module, calls: dict[str, list[tuple[Instruction, str]]], order: list[str]) -> None:
    """Refuse what would become too large, before any of it is made."""
    sizes: dict[str, int] = {}
    for name in order:
        function = module.functions[name]
        sizes[name] = sum(1 for _ in function.body.walk()) + sum(sizes.get(called, 0) for _, called in calls[name])
        if sizes[name] > _LARGEST_PROGRAM:
            raise HlojitError(f"inlining the calls in @{name} gives more than {_LARGEST_PROGRAM} instructions")


def _inline(call: Instruction, callee: Function) -> None:
    """Put a copy of the callee's body in place of the call."""
    mapping: dict[Value, Value] = dict(zip(callee.body.arguments, call.operands))
    block = call.block
    assert block is not None
    locations: dict[Location, Location] = {}
    for instruction in callee.body:
        if instruction is callee.body.last:
            break
        copy = clone_instruction(instruction, mapping)
        if call.location is not UNKNOWN and copy.location is not UNKNOWN:
            copy.location = locations.get(copy.location) or locations.setdefault(
                copy.location, CallSiteLocation(copy.location, call.location)
            )
        block.insert_before(call, copy)
    call.replace_with([mapping.get(value, value) for value in callee.body.returned])
