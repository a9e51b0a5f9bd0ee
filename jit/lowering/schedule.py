"""From the final graph to a program: steps in order, and memory for every value.

Memory is planned for the whole program: results that are returned are computed into the outputs, a loop's state lives in
fixed buffers (or in two that are exchanged after every iteration), updates happen in place where nothing reads the old
value any more, and temporaries that are dead give their place in the arena to later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from hlojit.ir.attributes import Dense
from hlojit.ir.graph import Block, Function, Instruction, Value
from hlojit.ir.ops.definition import Structural
from hlojit.ir.types import TensorType
from hlojit.lowering.arena import assign_offsets
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.liveness import Liveness, has_host_regions, host_role, is_alias
from hlojit.lowering.program import (
    Branch,
    Buffer,
    BufferKind,
    Copy,
    Launch,
    Loop,
    PointCell,
    Program,
    Step,
    Swap,
    bytes_of_instruction,
)

SWAP_THRESHOLD = 1024
"""Bytes from which a loop's state is exchanged between two buffers rather than copied."""


class KernelSource(Protocol):
    """Gives the code for an instruction."""

    def kernel(self, instruction: Instruction) -> KernelCode:
        """Code for one instruction; raises ``UnsupportedError``."""


class Scheduler:
    """Builds the program of one function; see the module's docstring."""

    def __init__(self, function: Function, source: KernelSource):
        self.function = function
        self.source = source
        self.liveness = Liveness(function.body)
        self.program = Program(function.name, [], [], [], [], [])
        self.buffers: dict[Value, Buffer] = {}
        self.wanted: dict[Value, Buffer] = {}
        self._reserved: set[Buffer] = set()
        self._sharers: dict[Buffer, list[Value]] = {}
        self._kept: set[Value] = set()
        """Arguments of loop conditions: their memory is read again by the body, or is the loop's result."""
        self._cell_targets: dict[Buffer, tuple[Buffer, Buffer]] = {}
        self._constants: dict[Dense, Buffer] = {}
        self._handlers: dict[str, Callable[[Instruction, list[Step]], None]] = {
            "constant": self._constant,
            "loop": self._while,
            "branch": self._branch,
        }

    def build(self) -> Program:
        """Return the program."""
        body = self.function.body
        program = self.program
        for index, argument in enumerate(body.arguments):
            buffer = Buffer(BufferKind.INPUT, argument.tensor_type.nbytes, index)
            program.inputs.append(buffer)
            self.buffers[argument] = buffer
        for index, value in enumerate(body.returned):
            output = Buffer(BufferKind.OUTPUT, value.tensor_type.nbytes, index)
            program.outputs.append(output)
            self._want(value, output, body)
        self._block(body, program.steps)
        for value, output in zip(body.returned, program.outputs):
            self._copy(self.buffer(value), output, program.steps)
        program.arena_bytes = assign_offsets(program.temporaries)
        return program

    # ------------------------------------------------------------- buffers

    def buffer(self, value: Value) -> Buffer:
        """The memory of a value that has been computed."""
        return self.buffers[self.liveness.root(value)]

    def _want(self, value: Value, buffer: Buffer, block: Block, state: int | None = None) -> None:
        """Ask that ``value``, if an instruction of ``block`` computes it, is computed into ``buffer``.

        So are the values that it is made from by updates in place.  ``state`` is the number of the loop-carried value
        that ``buffer`` holds when the block begins.
        """
        root = self.liveness.root(value)
        while root.producer is not None and root.producer.block is block and root not in self.wanted:
            self.wanted[root] = buffer
            self._reserved.add(buffer)
            updated = self._updated_operand(root)
            if updated is None or (state is not None and not self._may_write_state(block, state, updated)):
                return
            root = updated

    def _updated_operand(self, root: Value) -> Value | None:
        """The value in whose memory ``root`` is made, if the producer is an update and its last reader."""
        producer = root.producer
        if producer is None or isinstance(producer.op.lowering, Structural) or not root.tensor_type.size:
            return None
        code = self.source.kernel(producer)
        numbers = [operand for operand, result in code.in_place if result == root.index]
        if not code.updates or not numbers:
            return None
        updated = self.liveness.root(producer.operands[numbers[0]])
        reads = sum(self.liveness.root(operand) is updated for operand in producer.operands)
        return updated if reads == 1 and self.liveness.last_use(updated) <= self.liveness.end[producer] else None

    def _temporary(self, nbytes: int, start: int, end: int) -> Buffer:
        buffer = Buffer(BufferKind.TEMPORARY, nbytes, len(self.program.temporaries), start=start, end=end)
        self.program.temporaries.append(buffer)
        return buffer

    def _result_buffer(self, result: Value, instruction: Instruction) -> Buffer:
        """Memory for a result: the one wanted, or a new temporary."""
        begin, end = self.liveness.begin[instruction], self.liveness.end[instruction]
        last = max(self.liveness.last_use(result), end)
        wanted = self.wanted.get(result)
        if wanted is not None:
            self._extend(wanted, begin, last)
            return wanted
        return self._temporary(result.tensor_type.nbytes, begin, last)

    def _extend(self, buffer: Buffer, start: int, end: int) -> None:
        for part in self._cell_targets.get(buffer, (buffer,)):
            part.start = min(part.start, start)
            part.end = max(part.end, end)

    def _copy(self, source: Buffer, target: Buffer, steps: list[Step]) -> None:
        if source is not target and target.nbytes:
            steps.append(Copy(source, target))

    # -------------------------------------------------------- instructions

    def _block(self, block: Block, steps: list[Step]) -> None:
        """Schedule all instructions but the terminator."""
        terminator = block.terminator
        for instruction in block:
            if instruction is terminator or is_alias(instruction):
                continue
            handler = self._handlers.get(host_role(instruction))
            if handler is not None:
                handler(instruction, steps)
            else:
                self._launch(instruction, steps)

    def _constant(self, instruction: Instruction, steps: list[Step]) -> None:
        dense: Dense = instruction.attributes["value"]
        buffer = self._constants.get(dense)
        if buffer is None:
            buffer = Buffer(BufferKind.CONSTANT, dense.type.nbytes, len(self.program.constants))
            self.program.constants.append(np.ascontiguousarray(dense.array))
            self._constants[dense] = buffer
        self.buffers[instruction.result] = buffer

    def _launch(self, instruction: Instruction, steps: list[Step]) -> None:
        if not any(result.tensor_type.size for result in instruction.results):
            for result in instruction.results:
                self.buffers[result] = self._result_buffer(result, instruction)
            return
        code = self.source.kernel(instruction)
        operands = [self.buffer(operand) for operand in instruction.operands]
        results = self._in_place_results(instruction, code, operands, steps)
        buffers = [*operands, *results]
        if code.workspace_bytes:
            position = self.liveness.begin[instruction]
            buffers.append(self._temporary(code.workspace_bytes, position, position))
        moved = bytes_of_instruction(instruction)
        steps.append(Launch(code, tuple(buffers), instruction.op.name, moved, instruction.location))

    def _in_place_results(
        self, instruction: Instruction, code: KernelCode, operands: list[Buffer], steps: list[Step]
    ) -> list[Buffer]:
        """Memory for the results, sharing operands' memory where the kernel must or may."""
        results: list[Buffer] = []
        for index, result in enumerate(instruction.results):
            candidates = [operand for operand, target in code.in_place if target == index]
            if code.updates and candidates:
                buffer = self._updated_in_place(instruction, candidates[0], result, operands, steps)
            else:
                buffer = self._reused(instruction, candidates, result, operands, results)
            self.buffers[result] = buffer
            results.append(buffer)
        return results

    def _updated_in_place(
        self, instruction: Instruction, number: int, result: Value, operands: list[Buffer], steps: list[Step]
    ) -> Buffer:
        """The kernel updates operand ``number`` in its memory: use it if nobody needs the old value, else a copy."""
        source = operands[number]
        wanted = self.wanted.get(result)
        others = [buffer for index, buffer in enumerate(operands) if index != number]
        dead = self._dies_at(instruction.operands[number], instruction) and source not in others
        if dead and (wanted is source or (wanted is None and source not in self._reserved)):
            target = source
            self._extend(target, target.start, self.liveness.last_use(result))
        else:
            target = self._result_buffer(result, instruction)
            if target in others:
                target = self._temporary(
                    result.tensor_type.nbytes,
                    self.liveness.begin[instruction],
                    max(self.liveness.last_use(result), self.liveness.end[instruction]),
                )
            self._copy(source, target, steps)
        operands[number] = target
        return target

    def _reused(
        self,
        instruction: Instruction,
        candidates: Sequence[int],
        result: Value,
        operands: list[Buffer],
        taken: list[Buffer],
    ) -> Buffer:
        """An elementwise kernel may write over an operand that it reads for the last time."""
        if result not in self.wanted:
            for number in candidates:
                operand, buffer = instruction.operands[number], operands[number]
                free = buffer not in taken and buffer not in self._reserved
                # Another operand may be the same memory, read in another order.
                safe = all(k in candidates for k, other in enumerate(operands) if other is buffer)
                if free and safe and self._dies_at(operand, instruction):
                    self._extend(buffer, buffer.start, self.liveness.last_use(result))
                    return buffer
        return self._result_buffer(result, instruction)

    def _dies_at(self, value: Value, instruction: Instruction) -> bool:
        """Whether ``instruction`` is the last reader of the value's memory and may overwrite it."""
        buffer = self.buffer(value)
        root = self.liveness.root(value)
        home = root.owner.block if isinstance(root.owner, Instruction) else root.owner
        return (
            buffer.kind in (BufferKind.TEMPORARY, BufferKind.SWAPPED, BufferKind.OUTPUT)
            and not (root in self.liveness.captured and has_host_regions(instruction))
            and root not in self._kept
            and home is instruction.block
            and self.liveness.last_use(value) <= self.liveness.end[instruction]
            and self._owners(buffer, value, instruction)
        )

    def _owners(self, buffer: Buffer, value: Value, instruction: Instruction) -> bool:
        """No other live value shares the buffer (two loop-carried values that are one, say)."""
        root = self.liveness.root(value)
        return not any(
            other is not root and self.liveness.last_use(other) >= self.liveness.begin[instruction]
            for other in self._sharers.get(buffer, ())
        )

    def _share(self, value: Value, buffer: Buffer) -> None:
        """``value`` is another name of ``buffer``."""
        self.buffers[value] = buffer
        self._sharers.setdefault(buffer, []).append(value)

    # --------------------------------------------------------- control flow

    def _branch(self, instruction: Instruction, steps: list[Step]) -> None:
        results = [self._result_buffer(result, instruction) for result in instruction.results]
        self.buffers.update(zip(instruction.results, results))
        cases = []
        for region in instruction.regions:
            case: list[Step] = []
            for value, target in zip(region.returned, results):
                self._want(value, target, region)
            self._block(region, case)
            for value, target in zip(region.returned, results):
                self._copy(self.buffer(value), target, case)
            cases.append(case)
        index = self.buffer(instruction.operands[0])
        element = instruction.operands[0].tensor_type.element_type.name
        steps.append(Branch(index, element == "i1", cases))

    def _while(self, instruction: Instruction, steps: list[Step]) -> None:
        condition, body = instruction.regions
        states: list[Buffer] = []
        swaps: list[Swap] = []
        for number, (value, argument) in enumerate(zip(body.returned, body.arguments)):
            if value is argument:
                state = self._invariant_state(instruction, number)
            elif self._may_write_state(body, number, value):
                state = self._loop_state(instruction, number, steps, self.wanted.get(instruction.results[number]))
                self._want(value, state, body, number)
            elif self._may_swap_state(body, value):
                state = self._swapped_state(instruction, number, steps, swaps)
                self._want(value, swaps[-1].second, body)
            else:
                state = self._loop_state(instruction, number, steps, self.wanted.get(instruction.results[number]))
            states.append(state)
        for region in (condition, body):
            for argument, state in zip(region.arguments, states):
                self._share(argument, state)
        self._kept.update(condition.arguments)
        condition_steps: list[Step] = []
        self._block(condition, condition_steps)
        predicate = self.buffer(condition.returned[0])
        self._extend(predicate, predicate.start, self.liveness.end[instruction])
        body_steps: list[Step] = []
        self._block(body, body_steps)
        self._move_states(instruction, body, states, swaps, body_steps)
        steps.append(Loop(condition_steps, predicate, body_steps))
        for result, state in zip(instruction.results, states):
            wanted = self.wanted.get(result, state)
            self._copy(state, wanted, steps)
            # Results of one state, or of one that the loop does not change, have other names that may live longer.
            self._share(result, wanted)

    def _invariant_state(self, instruction: Instruction, number: int) -> Buffer:
        """A value that the loop hands on unchanged stays where it is."""
        source = self.buffer(instruction.operands[number])
        self._extend(source, source.start, self._state_end(instruction, number))
        self._sharers.setdefault(source, []).append(self.liveness.root(instruction.operands[number]))
        return source

    def _state_end(self, instruction: Instruction, number: int) -> int:
        return max(self.liveness.last_use(instruction.results[number]), self.liveness.end[instruction])

    def _loop_state(self, instruction: Instruction, number: int, steps: list[Step], wanted: Buffer | None) -> Buffer:
        """The buffer that holds one loop-carried value: the initial value's own, or a copy of it."""
        operand = instruction.operands[number]
        source = self.buffer(operand)
        end = self._state_end(instruction, number)
        repeated = sum(self.buffer(other) is source for other in instruction.operands) > 1
        usable = source.kind is BufferKind.TEMPORARY and source not in self._reserved and not repeated
        if wanted is None and usable and self._dies_at(operand, instruction):
            self._extend(source, source.start, end)
            return source
        state = wanted or self._temporary(source.nbytes, self.liveness.begin[instruction], end)
        self._extend(state, self.liveness.begin[instruction], end)
        self._copy(source, state, steps)
        return state

    def _swapped_state(self, instruction: Instruction, number: int, steps: list[Step], swaps: list[Swap]) -> Buffer:
        """Two buffers whose addresses are exchanged after every iteration; returns the one that is read."""
        first = self._loop_state(instruction, number, steps, None)
        end = self._state_end(instruction, number)
        second = self._temporary(first.nbytes, self.liveness.begin[instruction], end)
        cells = []
        for target in (first, second):
            cell = Buffer(BufferKind.SWAPPED, first.nbytes, self.program.cells)
            self.program.cells += 1
            self._cell_targets[cell] = (first, second)
            steps.append(PointCell(cell, target))
            cells.append(cell)
        swaps.append(Swap(cells[0], cells[1]))
        return cells[0]

    def _move_states(
        self, instruction: Instruction, body: Block, states: list[Buffer], swaps: list[Swap], steps: list[Step]
    ) -> None:
        """At the end of the body: copy or exchange what is not yet where the next iteration looks for it."""
        partner = {swap.first: swap.second for swap in swaps}
        moves = []
        for value, argument, state in zip(body.returned, body.arguments, states):
            source = self.buffer(value)
            if value is not argument and source is not state and source is not partner.get(state):
                moves.append((source, partner.get(state, state)))
        while moves:
            # Parallel copies: first those whose target nobody reads any more.
            read = {source for source, _ in moves}
            free = [move for move in moves if move[1] not in read]
            for move in free:
                self._copy(*move, steps)
                moves.remove(move)
            if not free:
                # Only rings are left (a, b = b, a): one value steps aside.
                target = moves[0][1]
                begin, end = self.liveness.begin[instruction], self.liveness.end[instruction]
                saved = self._temporary(target.nbytes, begin, end)
                self._copy(target, saved, steps)
                moves = [(saved if source is target else source, place) for source, place in moves]
        steps.extend(swaps)

    def _may_write_state(self, body: Block, number: int, value: Value) -> bool:
        """Whether the state may be overwritten where ``value`` is computed: nothing reads the old state later."""
        root = self.liveness.root(value)
        producer = root.producer
        if producer is None or producer.block is not body or root in self.wanted:
            return False
        argument = body.arguments[number]
        last = self.liveness.last_use(argument)
        if last < self.liveness.begin[producer]:
            return True
        if last > self.liveness.end[producer]:
            return False
        reads = [k for k, operand in enumerate(producer.operands) if self.liveness.root(operand) is argument]
        if has_host_regions(producer):
            looped = host_role(producer) == "loop" and argument not in self.liveness.captured
            return looped and reads == [root.index]
        if isinstance(producer.op.lowering, Structural):
            return False
        pairs = self.source.kernel(producer).in_place
        return bool(reads) and all((k, root.index) in pairs for k in reads)

    def _may_swap_state(self, body: Block, value: Value) -> bool:
        """Whether to keep a loop's state in two buffers: it is large, and an instruction of the body computes it."""
        root = self.liveness.root(value)
        producer = root.producer
        return (
            producer is not None
            and producer.block is body
            and root not in self.wanted
            and root.tensor_type.nbytes >= SWAP_THRESHOLD
            and not isinstance(producer.op.lowering, Structural)
        )


def build_program(function: Function, source: KernelSource) -> Program:
    """Schedule ``function`` (all calls inlined, tensors only) with kernels from ``source``."""
    for value in (*function.body.arguments, *function.body.returned):
        assert isinstance(value.type, TensorType), value
    return Scheduler(function, source).build()
