"""The program record as text for people: ``print(text(program))``.

program main
  input0     20x20xf32 donated
  output0    20x20xf32 = input0
  temporary0 1600 bytes at 0, positions 1 to 2
  arena      1600 bytes of host

  launch kernel_1 hlojit.fusion (input0) -> (temporary0)
  copy temporary0 -> input0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hlojit.lowering.program import (
    Begin,
    Branch,
    Call,
    Collective,
    Copy,
    Launch,
    Loop,
    PointCell,
    ProcessId,
    Program,
    Step,
    Swap,
    Transfer,
    Wait,
)


def text(program: Program) -> str:
    """Buffers and sizes, then the steps, a line each."""
    return "\n".join([*_head(program), "", *_steps(program)]) + "\n"


def _head(program: Program) -> Iterator[str]:
    yield f"program {program.name}"
    for buffer in program.inputs:
        yield f"  {buffer!s:<11}{buffer.storage}"
    for buffer in program.outputs:
        source = program.aliases.get(buffer.index)
        yield f"  {buffer!s:<11}{buffer.storage}" + (f" = input{source}" if source is not None else "")
    for number, array in enumerate(program.constants):
        yield f"  {f'constant{number}':<11}{array.dtype} {array.shape}"
    for buffer in program.temporaries:
        space = "" if buffer.storage.space == "host" else f" of {buffer.storage.space}"
        yield f"  {buffer!s:<11}{buffer.nbytes} bytes{space} at {buffer.offset}, positions {buffer.start} to {buffer.end}"
    for space, nbytes in program.arenas.items():
        yield f"  {'arena':<11}{nbytes} bytes of {space}"


def step_text(step: Step) -> str:
    """One step without what it holds."""
    if isinstance(step, Loop):
        return f"loop while {step.predicate}"
    if isinstance(step, Branch):
        return f"branch {'if' if step.is_predicate else 'on'} {step.index}"
    if isinstance(step, Begin):
        return f"begin event {step.event}"
    return _LINES[type(step)](step)


def _steps(program: Program) -> Iterator[str]:
    # Lines and steps that are still to come, the next one last.
    stack: list[tuple[int, Step | str]] = [(1, step) for step in reversed(program.steps)]
    while stack:
        depth, item = stack.pop()
        indent = "  " * depth
        if isinstance(item, str):
            yield indent + item
        elif isinstance(item, Loop):
            yield f"{indent}loop"
            stack += [(depth + 1, step) for step in reversed(item.body)]
            stack.append((depth, f"while {item.predicate}"))
            stack += [(depth + 1, step) for step in reversed(item.condition)]
        elif isinstance(item, Branch):
            yield indent + step_text(item)
            for number, case in reversed(list(enumerate(item.cases))):
                stack += [(depth + 1, step) for step in reversed(case)]
                stack.append((depth, f"case {number}"))
        elif isinstance(item, Begin):
            yield indent + step_text(item)
            stack += [(depth + 1, step) for step in reversed(item.body)]
        else:
            yield indent + step_text(item)


def _names(buffers: Any) -> str:
    return f"({', '.join(map(str, buffers))})"


def _launch(step: Launch) -> str:
    symbol = step.kernel.phases[0].symbol if step.kernel.phases else "nothing"
    workspace = f", workspace {step.workspace}" if step.workspace is not None else ""
    candidate = f" ({step.kernel.candidate})" if step.kernel.candidate else ""
    return f"launch {symbol}{candidate} {step.instruction_name} {_names(step.operands)} -> {_names(step.results)}{workspace}"


def _call(step: Call) -> str:
    arena = f", arena {step.arena}" if step.arena is not None else ""
    constants = f", constants {_names(step.constants)}" if step.constants else ""
    return f"call {step.entry} {_names(step.arguments)} -> {_names(step.results)}{arena}{constants}"


def _event(step: Transfer | Collective) -> str:
    return "" if step.event is None else f", event {step.event}"


def _transfer(step: Transfer) -> str:
    return f"transfer {step.source} ({step.source.space}) -> {step.target} ({step.target.space}){_event(step)}"


def _collective(step: Collective) -> str:
    return f"{step.kind.name.lower()} {step.source} -> {step.target} among {step.groups}{_event(step)}"


_LINES: dict[type[Step], Callable[[Any], str]] = {
    Launch: _launch,
    Call: _call,
    Transfer: _transfer,
    Collective: _collective,
    ProcessId: lambda step: f"process id -> {step.target}",
    Copy: lambda step: f"copy {step.source} -> {step.target}",
    Swap: lambda step: f"swap {step.first}, {step.second}",
    PointCell: lambda step: f"point {step.cell} -> {step.target}",
    Wait: lambda step: f"wait for event {step.event}",
}
