"""What the verifier checks of a module as a whole: its functions, their names and attributes, and calls in circles."""

from __future__ import annotations

from hlojit.ir.builder import short_name
from hlojit.ir.errors import Fault, HlojitError
from hlojit.ir.graph import VISIBILITIES, Function, Module
from hlojit.ir.process_grid import grid_of_module


def module_faults(module: Module) -> list[Fault]:
    """Faults of the module, of the signatures of its functions, and one for each call that closes a circle of calls."""
    faults = []
    try:
        grid_of_module(module)
    except HlojitError as error:
        faults.append(Fault("builtin.module", "grid", str(error), module.location))
    for name, function in module.functions.items():
        complaint = _function_complaint(name, function)
        if complaint:
            faults.append(Fault(f"func.func @{name}", "function", complaint, function.location))
    return [*faults, *_recursion_faults(module)]


def _function_complaint(name: str, function: Function) -> str | None:
    if not name or function.name != name:
        return f"a function named {function.name!r} stands under the name {name!r}"
    if function.visibility not in VISIBILITIES:
        return f"visibility {function.visibility!r} is none of {', '.join(VISIBILITIES)}"
    for kind, attributes, count in (
        ("argument", function.argument_attributes, len(function.body.arguments)),
        ("result", function.result_attributes, len(function.result_types)),
    ):
        if len(attributes) != count:
            return f"there are attributes of {len(attributes)} {kind}s, it has {count}"
    return None


def _recursion_faults(module: Module) -> list[Fault]:
    """One fault for each call that closes a cycle of calls."""
    calls = {
        function.name: [(name, instruction) for instruction in function.body.walk() for name in instruction.callees]
        for function in module.functions.values()
    }
    faults = []
    state: dict[str, int] = {}  # 1 on the current path, 2 done
    for root, callees in calls.items():
        if root in state:
            continue
        state[root] = 1
        path = [(root, iter(callees))]
        while path:
            name, pending = path[-1]
            callee, instruction = next(pending, (None, None))
            if callee is None or instruction is None:
                state[name] = 2
                path.pop()
            elif state.get(callee) == 1:
                cycle = " -> ".join(f"@{step}" for step, _ in path[[step for step, _ in path].index(callee) :])
                message = f"recursion is not allowed: {cycle} -> @{callee}"
                faults.append(Fault(short_name(instruction.name), "", message, instruction.location))
            elif callee not in state and callee in calls:
                state[callee] = 1
                path.append((callee, iter(calls[callee])))
    return faults
