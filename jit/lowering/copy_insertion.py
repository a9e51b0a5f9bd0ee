"""Third step of scheduling: a buffer for every value, and copies where two values cannot have the same one.

Results that are returned are made in the outputs, or in the memory of donated arguments; a loop's state lives in fixed
buffers (or in two that are exchanged after every iteration); updates happen in place where nothing reads the old value
any more.  Where that cannot be, a copy is inserted: before an instruction, after it, or at the end of a block.

    u = dynamic_update_slice x, v      x is read later:   copy x -> u ; update u
                                       x is dead:         update x  (u is x's buffer)

Buffers have no place yet: that is the next step's business (``buffer_assignment``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from hlojit.ir.attributes import Dense
from hlojit.ir.graph import Block, Function, Instruction, Value
from hlojit.ir.ops.definition import Structural
from hlojit.ir.ops.views import ConstantView
from hlojit.ir.sizes import Size
from hlojit.ir.types import TensorType
from hlojit.lowering.alias_analysis import AliasAnalysis, is_alias, is_invariant
from hlojit.lowering.program import Buffer, BufferKind, Copy, PointCell, Step, Swap
from hlojit.lowering.storage import Storage

SWAP_THRESHOLD = 1024
"""Bytes from which a loop's state is exchanged between two buffers rather than copied."""


@dataclass
class Placement:
    """Where every value is, and the steps beside the launches that make it so."""

    inputs: list[Buffer] = field(default_factory=list)
    outputs: list[Buffer] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    buffers: dict[Value, Buffer] = field(default_factory=dict)
    """The buffer of every root."""
    before: dict[Instruction, list[Step]] = field(default_factory=lambda: defaultdict(list))
    after: dict[Instruction, list[Step]] = field(default_factory=lambda: defaultdict(list))
    at_end: dict[Block, list[Step]] = field(default_factory=lambda: defaultdict(list))
    aliases: dict[int, int] = field(default_factory=dict)
    """Outputs that are a donated input's memory."""
    cells: int = 0


class CopyInsertion:
    """Places the values of one function; see the module's docstring.  ``run`` does it once."""

    def __init__(self, function: Function, aliases: AliasAnalysis, donated: Mapping[int, int | None]):
        """``donated`` maps numbers of donated arguments to the output that is to have their memory, if one is named."""
        self.body = function.body
        self.aliases = aliases
        self.donated = donated
        self.placement = Placement()
        self.wanted: dict[Value, Buffer] = {}
        """Where roots are to be made that have not been placed yet."""
        self._over: dict[Value, Value] = {}
        """Results of branches that are made in the memory of an argument of a block around them."""
        self._reserved: set[Buffer] = set()
        self._sharers: dict[Buffer, list[Value]] = {}
        self._kept: set[Value] = set()
        """Arguments of loop conditions: their memory is read again by the body, or is the loop's result."""
        self._constants: dict[Dense, Buffer] = {}
        self._storages: dict[TensorType, Storage] = {}
        self._work: list[Callable[[], None]] = []
        self._handlers: dict[str, Callable[[Instruction], None]] = {
            "constant": self._constant,
            "loop": self._loop,
            "branch": self._branch,
            "start": self._branch,
            "collective": self._moved,
            "process_id": self._moved,
        }

    def run(self) -> Placement:
        """Return the placement."""
        placement, body = self.placement, self.body
        for number, argument in enumerate(body.arguments):
            storage = Storage.of(argument.tensor_type, donated=number in self.donated, argument=number)
            placement.inputs.append(Buffer(BufferKind.INPUT, storage, number))
            placement.buffers[argument] = placement.inputs[-1]
        for number, value in enumerate(body.returned):
            placement.outputs.append(Buffer(BufferKind.OUTPUT, self._storage(value), number))
        self._want_outputs()
        self._do(self._block(body), self._return)
        # Regions inside regions are work on a stack, not recursion: programs may be nested as deep as they like.
        while self._work:
            self._work.pop()()
        return placement

    def buffer(self, value: Value) -> Buffer:
        """The memory of a value that has been placed."""
        return self.placement.buffers[self.aliases.root(value)]

    def _do(self, *work: Callable[[], None]) -> None:
        """Do this next, in this order."""
        self._work.extend(reversed(work))

    # --------------------------------------------------------------- outputs

    def _want_outputs(self) -> None:
        """Ask that results are made in outputs, or in the memory of donated arguments that are dead by then."""
        partners = self._partners()
        for number, value in enumerate(self.body.returned):
            partner = partners.get(number)
            if partner is not None and self._can_be_made_in(self.body.arguments[partner], value, self.body):
                self._want(value, self.placement.inputs[partner], self.body, self.body.arguments[partner])
            else:
                self._want(value, self.placement.outputs[number], self.body)

    def _partners(self) -> dict[int, int]:
        """A donated argument for each output that can be made in its memory; output number to argument number.

        It is the named one, one that the output's kernel reads, or one that nobody reads any more.
        """
        named = {output: number for number, output in self.donated.items() if output is not None}
        numbers = {self.body.arguments[number]: number for number in self.donated}
        partners: dict[int, int] = {}
        waiting = []
        for output, value in enumerate(self.body.returned):
            producer = self.aliases.root(value).producer
            read = [numbers.get(self.aliases.root(operand)) for operand in producer.operands] if producer else []
            for number in (named.get(output), *read):
                if number is not None and self._is_partner(number, value, partners):
                    partners[output] = number
                    break
            else:
                waiting.append(output)
        # The first to die is the first to be taken.
        free: dict[Size, list[int]] = {}
        for argument in sorted(numbers, key=self.aliases.last_use, reverse=True):
            if numbers[argument] not in partners.values():
                free.setdefault(argument.tensor_type.nbytes, []).append(numbers[argument])
        for output in waiting:
            value = self.body.returned[output]
            candidates = free.get(value.tensor_type.nbytes)
            if candidates and self._is_partner(candidates[-1], value, partners):
                partners[output] = candidates.pop()
        return partners

    def _is_partner(self, number: int, value: Value, partners: Mapping[int, int]) -> bool:
        argument = self.body.arguments[number]
        return (
            value.tensor_type.nbytes == argument.tensor_type.nbytes > 0
            and number not in partners.values()
            and self.aliases.may_write_over(argument, value, self.body)
        )

    def _return(self) -> None:
        """At the end: copy what is not in its output yet, unless it lies in a donated argument's memory."""
        placement = self.placement
        for number, (value, output) in enumerate(zip(self.body.returned, placement.outputs)):
            buffer = self.buffer(value)
            is_given = buffer.kind is BufferKind.INPUT and buffer.storage.donated
            if is_given and buffer.nbytes == output.nbytes != 0 and buffer.index not in placement.aliases.values():
                placement.aliases[number] = buffer.index
            else:
                self._copy(buffer, output, placement.at_end[self.body])

    # --------------------------------------------------------------- buffers

    def _want(self, value: Value, buffer: Buffer, block: Block, argument: Value | None = None) -> None:
        """Ask that ``value``, if an instruction of ``block`` computes it, is computed into ``buffer``.

        So are the values that it is made from by updates in place.  ``argument`` is the argument of ``block`` whose
        memory ``buffer`` is when the block begins.
        """
        root = self.aliases.root(value)
        while root.producer is not None and root.producer.block is block and root not in self.wanted:
            self.wanted[root] = buffer
            self._reserved.add(buffer)
            if argument is not None:
                self._over[root] = argument
            updated = self.aliases.updated_operand(root)
            if updated is None or (argument is not None and not self._can_be_made_in(argument, updated, block)):
                return
            root = updated

    def _can_be_made_in(self, argument: Value, value: Value, block: Block) -> bool:
        """Whether a value can be made in an argument's memory: it is wanted nowhere else, and may write over it."""
        return self.aliases.root(value) not in self.wanted and self.aliases.may_write_over(argument, value, block)

    def _storage(self, value: Value) -> Storage:
        found = self._storages.get(value.tensor_type)
        if found is None:
            found = self._storages[value.tensor_type] = Storage.of(value.tensor_type)
        return found

    def _result_buffer(self, result: Value) -> Buffer:
        """Memory for a result: the one wanted, or a new temporary."""
        return self.wanted.get(result) or Buffer(BufferKind.TEMPORARY, self._storage(result))

    def _copy(self, source: Buffer, target: Buffer, steps: list[Step]) -> None:
        if source is not target and target.nbytes:
            steps.append(Copy(source, target))

    # ---------------------------------------------------------- instructions

    def _block(self, block: Block) -> Callable[[], None]:
        """The work of placing all instructions but the terminator."""
        return partial(self._continue, iter(block), block.terminator)

    def _continue(self, instructions: Iterator[Instruction], terminator: Instruction | None) -> None:
        for instruction in instructions:
            if instruction is terminator or is_alias(instruction):
                continue
            pending = len(self._work)
            self._handlers.get(instruction.op.host_role, self._kernel)(instruction)
            if len(self._work) > pending:
                self._work.insert(pending, partial(self._continue, instructions, terminator))
                return

    def _constant(self, instruction: Instruction) -> None:
        dense = ConstantView.of(instruction).value
        buffer = self._constants.get(dense)
        if buffer is None:
            constants = self.placement.constants
            buffer = Buffer(BufferKind.CONSTANT, self._storage(instruction.result), len(constants))
            constants.append(np.ascontiguousarray(dense.array))
            self._constants[dense] = buffer
        self.placement.buffers[instruction.result] = buffer

    def _moved(self, instruction: Instruction) -> None:
        """Place what comes from other participants: never over an operand, which they may still be reading."""
        for result in instruction.results:
            self.placement.buffers[result] = self._result_buffer(result)

    def _kernel(self, instruction: Instruction) -> None:
        """Place the results of a kernel, in operands' memory where it must or may."""
        if not any(result.tensor_type.size for result in instruction.results):
            for result in instruction.results:
                self.placement.buffers[result] = self._result_buffer(result)
            return
        code = self.aliases.kernel(instruction)
        operands = [self.buffer(operand) for operand in instruction.operands]
        results: list[Buffer] = []
        for index, result in enumerate(instruction.results):
            candidates = [operand for operand, target in code.in_place if target == index]
            if code.updates and candidates:
                buffer = self._updated_in_place(instruction, candidates[0], result, operands)
            else:
                buffer = self._reused(instruction, candidates, result, operands, results)
            self.placement.buffers[result] = buffer
            results.append(buffer)

    def _updated_in_place(self, instruction: Instruction, number: int, result: Value, operands: list[Buffer]) -> Buffer:
        """The kernel updates operand ``number`` in its memory: use it if nobody needs the old value, else a copy."""
        source = operands[number]
        wanted = self.wanted.get(result)
        others = [buffer for index, buffer in enumerate(operands) if index != number]
        dead = self._dies_at(instruction.operands[number], instruction) and source not in others
        if dead and (wanted is source or (wanted is None and source not in self._reserved)):
            target = source
        else:
            target = self._result_buffer(result)
            if target in others:
                target = Buffer(BufferKind.TEMPORARY, self._storage(result))
            self._copy(source, target, self.placement.before[instruction])
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
                    return buffer
        return self._result_buffer(result)

    def _dies_at(self, value: Value, instruction: Instruction) -> bool:
        """Whether ``instruction`` is the last reader of the value's memory and may overwrite it."""
        buffer = self.buffer(value)
        return (
            buffer.is_writable
            and self.aliases.root(value) not in self._kept
            and self.aliases.dies_at(value, instruction)
            and self._is_alone(buffer, value, instruction)
        )

    def _is_alone(self, buffer: Buffer, value: Value, instruction: Instruction) -> bool:
        """No other live value shares the buffer (two loop-carried values that are one, say)."""
        root = self.aliases.root(value)
        begin = self.aliases.order.begin[instruction]
        return not any(
            other is not root and self.aliases.last_use(other) >= begin for other in self._sharers.get(buffer, ())
        )

    def _share(self, value: Value, buffer: Buffer) -> None:
        """``value`` is another name of ``buffer``."""
        self.placement.buffers[value] = buffer
        self._sharers.setdefault(buffer, []).append(value)

    # ---------------------------------------------------------- control flow

    def _branch(self, instruction: Instruction) -> None:
        results = [self._result_buffer(result) for result in instruction.results]
        self.placement.buffers.update(zip(instruction.results, results))
        over = [self._over.get(result) for result in instruction.results]
        for region in reversed(instruction.regions):
            self._do(
                partial(self._enter_case, region, results, over),
                self._block(region),
                partial(self._leave_case, region, results),
            )

    def _enter_case(self, region: Block, results: Sequence[Buffer], over: Sequence[Value | None]) -> None:
        for value, target, argument in zip(region.returned, results, over):
            self._want(value, target, region, argument)

    def _leave_case(self, region: Block, results: Sequence[Buffer]) -> None:
        for value, target in zip(region.returned, results):
            self._copy(self.buffer(value), target, self.placement.at_end[region])

    def _loop(self, instruction: Instruction) -> None:
        condition, body = instruction.regions
        states: dict[int, Buffer] = {}
        swaps: dict[Buffer, Swap] = {}
        for number, other in self._exchanged(instruction):
            states[number], states[other] = self._exchanged_states(instruction, number, other)
            swaps[states[number]] = Swap(states[number], states[other])
            self._want(body.returned[number], states[other], body, body.arguments[other])
        for number, (value, argument) in enumerate(zip(body.returned, body.arguments)):
            if number in states or is_invariant(instruction, number):
                continue
            if not self._can_be_made_in(argument, value, body) and self._may_swap(body, value):
                states[number], swap = self._swapped_state(instruction, number)
                swaps[swap.first] = swap
                self._want(value, swap.second, body)
                continue
            may_write = self._can_be_made_in(argument, value, body)
            states[number] = self._state(instruction, number, self.wanted.get(instruction.results[number]))
            if may_write:
                self._want(value, states[number], body, argument)
        for region in (condition, body):
            for number, state in states.items():
                self._share(region.arguments[number], state)
        self._kept.update(condition.arguments)
        self._do(self._block(condition), self._block(body), partial(self._leave_loop, instruction, states, swaps))

    def _leave_loop(self, instruction: Instruction, states: Mapping[int, Buffer], swaps: Mapping[Buffer, Swap]) -> None:
        """Bring the states to where the next iteration looks for them, and the results to where they are wanted."""
        body = instruction.regions[1]
        moves = []
        exchanged = {swap.second for swap in swaps.values()}
        for number, state in states.items():
            if state in exchanged:
                # It becomes the other one's old memory.
                continue
            source = self.buffer(body.returned[number])
            target = swaps[state].second if state in swaps else state
            if source is not state and source is not target:
                moves.append((source, target))
        steps = self.placement.at_end[body]
        steps.extend(parallel_copies(moves))
        steps.extend(swaps.values())
        for number, state in states.items():
            result = instruction.results[number]
            wanted = self.wanted.get(result, state)
            self._copy(state, wanted, self.placement.after[instruction])
            # Results of one state have other names that may live longer.
            self._share(result, wanted)

    def _state(self, instruction: Instruction, number: int, wanted: Buffer | None) -> Buffer:
        """The buffer that holds one loop-carried value: the initial value's own, or a copy of it."""
        operand = instruction.operands[number]
        source = self.buffer(operand)
        is_free = source not in self._reserved or source is self.wanted.get(instruction.results[number])
        is_local = source.kind is BufferKind.TEMPORARY or (source.kind is BufferKind.INPUT and source.storage.donated)
        is_repeated = sum(self.buffer(other) is source for other in instruction.operands) > 1
        if wanted is None and is_local and is_free and not is_repeated and self._dies_at(operand, instruction):
            return source
        state = wanted or Buffer(BufferKind.TEMPORARY, self._storage(operand))
        self._copy(source, state, self.placement.before[instruction])
        return state

    def _exchanged(self, instruction: Instruction) -> Iterator[tuple[int, int]]:
        """Pairs of states of which the first is made over the second, which becomes the old first: b[:] = f(a); a, b = b, a."""
        body = instruction.regions[1]
        roots = [self.aliases.root(value) for value in body.returned]
        numbers = {argument: number for number, argument in enumerate(body.arguments)}
        for other, root in enumerate(roots):
            number = numbers.get(root, other)
            if number == other or roots.count(root) > 1 or roots.count(roots[number]) > 1:
                continue
            value, argument = body.returned[number], body.arguments[other]
            if (
                value.tensor_type is argument.tensor_type
                and isinstance(value.tensor_type.nbytes, int)
                and value.tensor_type.nbytes >= SWAP_THRESHOLD
                and roots[number] not in numbers
                and self._can_be_made_in(argument, value, body)
            ):
                yield number, other

    def _exchanged_states(self, instruction: Instruction, *numbers: int) -> list[Buffer]:
        """The cells of states that are exchanged with one another.

        Neither lies where a result is wanted: behind the loop the other one may be there, and would be copied over.
        """
        storage = self._storage(instruction.operands[numbers[0]])
        cells = []
        for number in numbers:
            target = self._state(instruction, number, None)
            if target.kind is not BufferKind.TEMPORARY or target in self._reserved:
                own = Buffer(BufferKind.TEMPORARY, storage)
                self._copy(target, own, self.placement.before[instruction])
                target = own
            cells.append(self._cell(instruction, target, storage))
        return cells

    def _cell(self, instruction: Instruction, target: Buffer, storage: Storage) -> Buffer:
        """A pointer to a buffer, set in front of a loop."""
        cell = Buffer(BufferKind.SWAPPED, storage, self.placement.cells)
        self.placement.cells += 1
        self.placement.before[instruction].append(PointCell(cell, target))
        return cell

    def _swapped_state(self, instruction: Instruction, number: int) -> tuple[Buffer, Swap]:
        """Two buffers whose addresses are exchanged after every iteration; returns the one that is read."""
        first = self._state(instruction, number, None)
        second = Buffer(
            BufferKind.TEMPORARY,
            first.storage if first.kind is BufferKind.TEMPORARY else self._storage(instruction.operands[number]),
        )
        cells = [self._cell(instruction, target, second.storage) for target in (first, second)]
        return cells[0], Swap(cells[0], cells[1])

    def _may_swap(self, body: Block, value: Value) -> bool:
        """Whether to keep a loop's state in two buffers: it is large, and an instruction of the body computes it."""
        root = self.aliases.root(value)
        producer = root.producer
        return (
            producer is not None
            and producer.block is body
            and root not in self.wanted
            and root.tensor_type.nbytes >= SWAP_THRESHOLD
            and not isinstance(producer.op.lowering, Structural)
        )


def parallel_copies(moves: Sequence[tuple[Buffer, Buffer]]) -> Iterator[Copy]:
    """Copies, in order, that have the effect of doing all moves (source, target) at once; targets are distinct."""
    moves = [move for move in moves if move[0] is not move[1]]
    while moves:
        # First those whose target nobody reads any more.
        read = {source for source, _ in moves}
        free = [move for move in moves if move[1] not in read]
        for source, target in free:
            if target.nbytes:
                yield Copy(source, target)
            moves.remove((source, target))
        if not free:
            # Only rings are left (a, b = b, a): one value steps aside.
            target = moves[0][1]
            saved = Buffer(BufferKind.TEMPORARY, target.storage)
            yield Copy(target, saved)
            moves = [(saved if source is target else source, place) for source, place in moves]
