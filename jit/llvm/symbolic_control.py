"""Loops and branches of programs whose sizes are given at run time: where what they carry lies, and the steps of a round.

What goes around has memory of its own, the *state*.  A round computes what is returned, and then writes the state: at once where
each element depends on elements at its own place only, otherwise by way of memory between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hlojit.ir.formats import BooleanType
from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.ops.symbolic_values import Elementwise, Scattering, Updating
from hlojit.ir.passes.graph_facts import constant_of
from hlojit.llvm.symbolic_elements import Memory
from hlojit.llvm.symbolic_loops import lying_at
from hlojit.llvm.symbolic_steps import Choice, Round, Step

if TYPE_CHECKING:
    from hlojit.llvm.symbolic_kernels import SymbolicProgramEmitter


def emit_loop(emitter: SymbolicProgramEmitter, instruction: Instruction) -> None:
    """Kernels and the step of a loop."""
    condition, body = instruction.regions
    states = [
        _state(emitter, operand, result, value is argument)
        for operand, result, argument, value in zip(
            instruction.operands, instruction.results, body.arguments, body.returned, strict=True
        )
    ]
    for region in instruction.regions:
        emitter.memory.update(zip(region.arguments, states))
    emitter.memory.update(zip(instruction.results, states))
    predicate, steps = emitter.collected(lambda: _predicate(emitter, condition))
    for state, value, argument in zip(states, body.returned, body.arguments):
        emitter.places.update((each, state) for each in _updated_in_place(emitter, value, argument, body))
    _, rounds = emitter.collected(lambda: _round(emitter, body, states))
    emitter.writer.program.append(Round(steps, predicate, rounds))


def emit_branch(emitter: SymbolicProgramEmitter, instruction: Instruction) -> None:
    """Kernels and the step of a branch."""
    index = emitter.in_memory(instruction.operands[0])
    places = [emitter.allocate(result) for result in instruction.results]

    def write(region: Block) -> None:
        emitter.block(region)
        for value, place in zip(region.returned, places, strict=True):
            emitter.write(value, place)

    cases: list[list[Step]] = []
    for region in instruction.regions:
        _, steps = emitter.collected(lambda region=region: write(region))  # type: ignore[misc]
        cases.append(steps)
    is_boolean = isinstance(instruction.operands[0].tensor_type.element_type, BooleanType)
    emitter.writer.program.append(Choice(index, is_boolean, cases))
    emitter.memory.update(zip(instruction.results, places))


def _state(emitter: SymbolicProgramEmitter, operand: Value, result: Value, stays: bool) -> Memory:
    """Where a value goes around: what no round changes stays where it is."""
    if stays and operand in emitter.memory:
        return emitter.memory[operand]
    state = emitter.allocate(result)
    emitter.write(operand, state)
    return state


def _predicate(emitter: SymbolicProgramEmitter, condition: Block) -> Memory:
    emitter.block(condition)
    return emitter.in_memory(condition.returned[0])


def _updated_in_place(emitter: SymbolicProgramEmitter, value: Value, argument: Value, body: Block) -> Iterator[Value]:
    """What is the argument with parts overwritten one after the other, if nobody else reads the argument and what is between."""
    chain = []
    while value is not argument:
        producer = value.producer
        if producer is None or producer.block is not body:
            return
        access = emitter.shapes.access.get(producer)
        if not isinstance(access, (Updating, Scattering)) or len(producer.results) > 1:
            return
        chain.append(value)
        value = producer.operands[0]
        if value.users != {producer: 1}:
            return
    yield from chain


def _round(emitter: SymbolicProgramEmitter, body: Block, states: Sequence[Memory]) -> None:
    """The kernels of the body, and those that write the state."""
    emitter.block(body)
    left = [
        (value, state) for value, state in zip(body.returned, states, strict=True) if emitter.memory.get(value) != state
    ]
    at_once = _written_at_once(emitter, left)
    copies = []
    for value, state in left:
        if (value, state) not in at_once:
            source = emitter.memory.get(value)
            if source is None or source in states:
                source = emitter.allocate(value)
                emitter.write(value, source)
            copies.append((value, source, state))
    for value, state in at_once:
        emitter.write(value, state)
    for value, source, state in copies:
        with lying_at(emitter.memory, value, source):
            emitter.write(value, state)


def _written_at_once(
    emitter: SymbolicProgramEmitter, left: Sequence[tuple[Value, Memory]]
) -> list[tuple[Value, Memory]]:
    """What may be written straight into the state, in this order: nobody who comes later reads what was there."""
    found: list[tuple[Value, Memory]] = []
    waiting = [(value, state, read) for value, state in left if (read := _read(emitter, value)) is not None]
    while waiting:
        for number, (value, state, _) in enumerate(waiting):
            if not any(state in read for other, (_, _, read) in enumerate(waiting) if other != number):
                found.append((value, state))
                del waiting[number]
                break
        else:
            waiting.pop()
    return found


def _read(emitter: SymbolicProgramEmitter, value: Value) -> set[Memory] | None:
    """The memory that an elementwise value is computed from, element by element; None of any other value."""
    found: set[Memory] = set()
    seen, stack = {value}, [value]
    while stack:
        top = stack.pop()
        if top in emitter.memory:
            found.add(emitter.memory[top])
        elif constant_of(top) is None and not (top.tensor_type.rank == 0 and top in emitter.shapes.elements):
            producer = top.producer
            if producer is None or not isinstance(emitter.shapes.access.get(producer), Elementwise):
                return None
            stack.extend(each for each in producer.operands if each not in seen)
            seen.update(producer.operands)
    return found
