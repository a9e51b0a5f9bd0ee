"""Kernels and host program of a function whose sizes are given at run time: one module of LLVM text.

    program = SymbolicProgramEmitter(shapes, target).emit("hlojit_main")
    program.text, program.sizes, program.arena_bytes

Every kernel is a function ``void kernel(ptr context, ptr slots, i64 begin, i64 end)`` over tasks, and the entry function,
``i32 entry(ptr context, ptr slots)``, has the runtime's pool run them one after the other.  ``slots`` are those of every program:
inputs, outputs, the arena, constants, and as the last constant the table of sizes.

Elementwise ops are computed where they are used; values are in memory that several ops read, or that reductions and products
make.  An elementwise result whose operands lie as it does is one row; others go row by row, the last dimension in lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
from hlojit.ir.formats import FloatFormat
from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.ops.combiners import combiner_of
from hlojit.ir.ops.symbolic_values import (
    Carrying,
    Choosing,
    Convolving,
    Elementwise,
    Folding,
    Numbers,
    Passing,
    Pick,
    Product,
    Scattering,
    Sorting,
    SymbolicShapes,
    Updating,
    Windows,
)
from hlojit.ir.passes.graph_facts import constant_of
from hlojit.ir.scalar import conversions, formats
from hlojit.ir.sizes import Size, add, divide_up, multiply, round_up
from hlojit.llvm.builder import Val, scalars
from hlojit.llvm.combiners import unrounded_step
from hlojit.llvm.symbolic_control import emit_branch, emit_loop
from hlojit.llvm.symbolic_elements import (
    Linear,
    Memory,
    NotInLanes,
    Position,
    SizeTable,
    SymbolicElements,
    Where,
)
from hlojit.llvm.symbolic_lifetimes import last_reads
from hlojit.llvm.symbolic_loops import CHUNK, Fold, KernelWriter, least
from hlojit.llvm.symbolic_products import emit_convolution, emit_product
from hlojit.llvm.symbolic_scatter import emit_scatter
from hlojit.llvm.symbolic_sort import emit_sort
from hlojit.llvm.symbolic_steps import Step, emit_host, launches
from hlojit.llvm.symbolic_windows import along, stepped
from hlojit.lowering.target import Target

_ALIGNMENT = 64
_KERNELS = (Folding, Product, Windows, Convolving, Updating, Sorting, Scattering, Carrying, Choosing)
"""What makes its results in memory."""

Found = TypeVar("Found")


@dataclass(frozen=True)
class SymbolicProgram:
    """What was emitted, and what has to be known at run time."""

    text: str
    linked: tuple[str, ...]
    imports: tuple[tuple[str, str], ...]
    """Symbols that the text leaves open, with the names by which they are found."""
    sizes: tuple[Size, ...]
    arena_bytes: Size
    constants: tuple[Any, ...]
    """Arrays of storage dtypes; the table of sizes is one more constant behind them."""
    launches: int | None
    """How many kernels are run; None where only the run tells."""
    unkeyable: str
    """Why the code cannot leave this process, if it cannot."""


class SymbolicProgramEmitter:
    """Emits one function; see the module's docstring."""

    def __init__(self, shapes: SymbolicShapes, target: Target):
        self.shapes = shapes
        self.target = target
        self.body = shapes.function.body
        self.memory: dict[Value, Memory] = {}
        self.constants: list[Any] = []
        self.table = SizeTable()
        self.places: dict[Value, Memory] = {}
        """Of values that are to be made at a certain place."""
        self._arena: Size = 0
        self._free: dict[Size, list[Memory]] = {}
        """Places in the arena that are read no more, by their size."""

    def emit(self, symbol: str) -> SymbolicProgram:
        """The module."""
        arguments, returned = self.body.arguments, self.body.returned
        self._arena_slot = len(arguments) + len(returned)
        for number, argument in enumerate(arguments):
            self.memory[argument] = Memory(number)
        for instruction in self.body.walk():
            for result in instruction.results:
                dense = constant_of(result)
                if dense is not None and not dense.is_splat and dense.array.size > 1:
                    self.memory[result] = Memory(self._arena_slot + 1 + len(self.constants))
                    self.constants.append(np.ascontiguousarray(dense.array))
        self.elements = SymbolicElements(
            self.shapes, self.memory, self.table, self._arena_slot + 1 + len(self.constants)
        )
        self.writer = KernelWriter(self.elements, self.memory, self.target)
        self.block(self.body)
        for number, value in enumerate(returned):
            self.write(value, Memory(len(arguments) + number))
        emit_host(self.elements, symbol, self.writer.program)
        b = self.elements.builder
        linked = tuple(text for text in b.foreign.linked.values())
        return SymbolicProgram(
            b.module_text(),
            linked,
            tuple(b.foreign.imports.items()),
            tuple(self.table.sizes),
            self._arena,
            tuple(self.constants),
            launches(self.writer.program),
            b.foreign.unkeyable,
        )

    def block(self, block: Block) -> None:
        """Kernels for what has to be in memory of a block."""
        stored = self._stored_instructions(block)
        # In a region what is read last in one round may be read first in the next.
        ends = last_reads(block, stored, self.shapes.access) if block is self.body else {}
        for instruction in block:
            if instruction in stored:
                self._kernel(instruction)
            for value in ends.get(instruction, ()):
                self._free.setdefault(self._nbytes(value), []).append(self.memory[value])

    def collected(self, write: Callable[[], Found]) -> tuple[Found, list[Step]]:
        """What ``write`` returns, and the steps that it adds, for a step around them."""
        outer, self.writer.program = self.writer.program, []
        try:
            return write(), self.writer.program
        finally:
            self.writer.program = outer

    # ------------------------------------------------------------------------------------ what lies in memory

    def _stored_instructions(self, block: Block) -> set[Instruction]:
        """The instructions whose results are made by kernels of their own.

        A value has a home: the kernel, and the place in it, where it is computed.  One that is wanted in several is stored, so
        that nothing is computed more than once; but for what costs no more than reading it.
        """
        stored: set[Instruction] = set()
        homes: dict[Value, object] = {}
        passed: dict[Value, set[object]] = {}
        for instruction in reversed(block):
            access = self.shapes.access.get(instruction)
            if access is None or not any(result.users for result in instruction.results):
                continue
            if isinstance(access, Passing):
                passed.update(
                    (result, set(self._wanted(result, stored, homes, passed))) for result in instruction.results
                )
                continue
            wanted = {home for result in instruction.results for home in self._wanted(result, stored, homes, passed)}
            if isinstance(access, _KERNELS) or (len(wanted) > 1 and not self._is_cheap(instruction, access)):
                stored.add(instruction)
            elif wanted:
                homes[instruction.results[0]] = next(iter(wanted))
        return stored

    def _wanted(
        self, value: Value, stored: set[Instruction], homes: Mapping[Value, object], passed: Mapping[Value, set[object]]
    ) -> Iterator[object]:
        """Where a value is read."""
        for user in value.users:
            access = self.shapes.access.get(user)
            if user.block is not _block_of(value):
                # A region may be run many times.
                yield from ((user, 0), (user, 1))
            elif isinstance(access, Passing):
                # Where a result is wanted that has no users, the operand is not.
                yield from (
                    home
                    for operand, result in zip(user.operands, user.results)
                    if operand is value
                    for home in passed.get(result, ())
                )
            elif not isinstance(access, Elementwise):
                # Each operand of another op is read at a place of its own.
                yield from ((user, number) for number, operand in enumerate(user.operands) if operand is value)
                if isinstance(access, (Product, Windows, Convolving)):
                    # Rows that are read again and again are best side by side.
                    yield user
            elif value.tensor_type.rank < user.results[0].tensor_type.rank:
                yield from ((user, 0), (user, 1))
            else:
                yield user.results[0] if user in stored else homes.get(user.results[0], user)

    def _is_cheap(self, instruction: Instruction, access: object) -> bool:
        """Whether elements cost no more than reading them from memory."""
        (result, *_) = instruction.results
        if constant_of(result) is not None or result in self.shapes.elements or isinstance(access, Numbers):
            return True
        if not isinstance(access, Pick):
            return False
        (source, *_) = instruction.operands
        return source in self.memory or constant_of(source) is not None or source in self.shapes.elements

    def allocate(self, value: Value) -> Memory:
        """Memory for a value."""
        if value in self.places:
            return self.places[value]
        nbytes = self._nbytes(value)
        if self._free.get(nbytes):
            return self._free[nbytes].pop()
        memory = Memory(self._arena_slot, self._arena)
        self._arena = add(self._arena, nbytes)
        return memory

    def _nbytes(self, value: Value) -> Size:
        count = multiply(*self.shapes.dims[value], 1)
        return round_up(multiply(count, value.tensor_type.element_type.itemsize), _ALIGNMENT)

    def write(self, value: Value, memory: Memory) -> None:
        """A value is written there by a kernel that computes it, or copies it from where it is."""
        self._elementwise([(value, memory)])

    def in_memory(self, value: Value) -> Memory:
        """Where a value is, from now on if it was nowhere."""
        if value not in self.memory:
            place = self.allocate(value)
            self.write(value, place)
            self.memory[value] = place
        return self.memory[value]

    # ------------------------------------------------------------------------------------------------ kernels

    def _kernel(self, instruction: Instruction) -> None:
        access = self.shapes.access[instruction]
        if isinstance(access, Carrying):
            return emit_loop(self, instruction)
        if isinstance(access, Choosing):
            return emit_branch(self, instruction)
        targets = [(result, self.allocate(result)) for result in instruction.results]
        if isinstance(access, Sorting):
            emit_sort(self, instruction, access, targets)
        elif isinstance(access, Scattering):
            emit_scatter(self, instruction, access, targets)
        elif isinstance(access, Folding):
            self._folded(instruction, access, targets)
        elif isinstance(access, Windows):
            self._windowed(instruction, access, targets)
        elif isinstance(access, Updating):
            self._updated(instruction, access, *targets)
        elif isinstance(access, Product):
            emit_product(self, instruction, access, targets)
        elif isinstance(access, Convolving):
            emit_convolution(self, instruction, access, targets)
        else:
            self._elementwise(targets)
        self.memory.update(targets)

    def _elementwise(self, targets: Sequence[tuple[Value, Memory]]) -> None:
        (value, memory), *_ = targets
        lanes = self.writer.lanes([value])
        self.writer.attempt(
            lambda: self._flat(value, memory, lanes),
            lambda: self._rows(value, memory, lanes),
            lambda: self._rows(value, memory, 1),
        )

    def _flat(self, value: Value, memory: Memory, lanes: int) -> None:
        shape = self.shapes.dims[value]
        self._line_kernel(
            value, memory, lanes, multiply(*shape) if shape else 1, lambda at: Linear(*at) if shape else ()
        )

    def _line_kernel(
        self, value: Value, memory: Memory, lanes: int, total: Size, where: Callable[[Position], Where]
    ) -> None:
        """A kernel whose tasks are pieces of one line of elements."""
        b, elements = self.elements.builder, self.elements

        def write(begin: Val, end: Val) -> None:
            chunk = b.constant("i64", CHUNK)
            first, last = b.mul(begin, chunk), least(b, b.mul(end, chunk), elements.size(total))

            def block(place: Val, count: int) -> None:
                scalar = elements.element(value, where(Position(place, count > 1)))
                self.writer.store(value, memory, place, scalar, count)

            self.writer.line(first, last, lanes, block)

        self.writer.launch(write, divide_up(total, CHUNK), 1)

    def _rows(self, value: Value, memory: Memory, lanes: int) -> None:
        shape = self.shapes.dims[value]
        if len(shape) == 1:
            self._line_kernel(value, memory, lanes, shape[0], lambda at: (at,))
            return
        outer, inner = shape[:-1], shape[-1] if shape else 1
        b, elements = self.elements.builder, self.elements

        def row(at: tuple[Position, ...], number: Val) -> None:
            base = b.mul(number, elements.size(inner))

            def block(place: Val, count: int) -> None:
                where = (*at, Position(place, count > 1)) if shape else ()
                self.writer.store(value, memory, b.add(base, place), elements.element(value, where), count)

            self.writer.line(b.constant("i64", 0), elements.size(inner), lanes, block)

        self.writer.over_rows(outer, row, inner)

    def _updated(self, instruction: Instruction, access: Updating, target: tuple[Value, Memory]) -> None:
        """The operand is copied, unless its memory is the result's, and the update written into it."""
        (value, memory), (operand, update) = target, instruction.operands[:2]
        if self.memory.get(operand) != memory:
            self.write(operand, memory)
        b, elements, shape = self.elements.builder, self.elements, self.shapes.dims[update]

        def rows(lanes: int) -> None:
            def row(at: tuple[Position, ...], number: Val) -> None:
                def block(place: Val, count: int) -> None:
                    where = (*at, Position(place, count > 1)) if shape else ()
                    scalar = elements.element(update, where)
                    moved = [elements.moved(start, where) for start in access.starts]
                    to, moves = elements.place(self.shapes.dims[value], moved)
                    if count > 1 and not moves:
                        raise NotInLanes
                    self.writer.store(value, memory, to, scalar, count)

                self.writer.line(b.constant("i64", 0), elements.size(shape[-1] if shape else 1), lanes, block)

            self.writer.over_rows(shape[:-1], row, shape[-1] if shape else 1)

        self.writer.attempt(lambda: rows(self.writer.lanes([value])), lambda: rows(1))

    # --------------------------------------------------------------------------------- reductions and products

    def _folded(self, instruction: Instruction, access: Folding, targets: Sequence[tuple[Value, Memory]]) -> None:
        inputs = instruction.operands[: len(targets)]
        shape = [self._folded_size(instruction, inputs, d) for d in range(inputs[0].tensor_type.rank)]

        def found(at: tuple[Position, ...]) -> tuple[Val, ...]:
            return tuple(self._taken(instruction, number, at) for number in range(len(inputs)))

        self._combined(instruction, shape, access.dimensions, found, targets)

    def _windowed(self, instruction: Instruction, access: Windows, targets: Sequence[tuple[Value, Memory]]) -> None:
        """The space of the fold is that of the result and behind it the window."""
        inputs, result = instruction.operands[: len(targets)], self.shapes.dims[instruction.results[0]]
        rank = len(result)
        sizes = [self._folded_size(instruction, inputs, d) for d in range(rank)]

        def found(at: tuple[Position, ...]) -> tuple[Val, ...]:
            pairs = zip(access.steps, at[:rank], at[rank:], sizes)
            where, inside = stepped(self.elements, [along(self.elements, *each) for each in pairs])
            if inside is None:
                return tuple(self._taken(instruction, number, where) for number in range(len(inputs)))
            return tuple(
                self.elements.branch(
                    inside,
                    partial(self._taken, instruction, number, where),
                    partial(self._taken, instruction, len(inputs) + number, ()),
                )
                for number in range(len(inputs))
            )

        self._combined(instruction, [*result, *access.sizes], tuple(range(rank, 2 * rank)), found, targets)

    def _taken(self, instruction: Instruction, number: int, at: tuple[Position, ...]) -> Val:
        """An element of an operand in the type that the region combines."""
        value, count = instruction.operands[number], len(instruction.operands) // 2
        inner = instruction.regions[0].arguments[number % count]
        return self._widened(self.elements.element(value, at), value, inner)

    def _combined(
        self,
        instruction: Instruction,
        shape: Sequence[Size],
        dimensions: Sequence[int],
        found: Callable[[tuple[Position, ...]], tuple[Val, ...]],
        targets: Sequence[tuple[Value, Memory]],
    ) -> None:
        """A fold by the instruction's region."""
        count, region = len(targets), instruction.regions[0]
        combine = self._combining(region)
        fold = Fold(
            shape,
            dimensions,
            found,
            lambda a, x: combine((*a, *x)),
            lambda: tuple(self._taken(instruction, count + number, ()) for number in range(count)),
            self._neutral(instruction, count),
            rounds=True,
        )
        self.writer.fold(fold, targets, self.writer.lanes([*instruction.operands[:count], *region.arguments]))

    def _combining(self, region: Block) -> Callable[[Sequence[Val]], tuple[Val, ...]]:
        """A step of a region; sums and products of narrow floats are rounded at the end alone."""
        elements, recognized = self.elements, combiner_of(region)
        step = recognized.step if recognized is not None else None
        if step is None or not isinstance(step.result.tensor_type.element_type, FloatFormat):
            return lambda values: elements.inline(region, values)
        return lambda values: (unrounded_step(elements.builder, step, *values),)

    def _folded_size(self, instruction: Instruction, inputs: Sequence[Value], dimension: int) -> Size:
        sizes = [self.shapes.dims[value][dimension] for value in inputs]
        return next((size for size in sizes if isinstance(size, int)), sizes[0])

    def _widened(self, scalar: Val, value: Value, inner: Value) -> Val:
        source, target = value.tensor_type.element_type, inner.tensor_type.element_type
        if source == target:
            return scalar
        return cast(Val, conversions.convert(scalars(self.elements.builder), scalar, source, target))

    def _neutral(self, instruction: Instruction, count: int) -> Callable[[], tuple[Val, ...]] | None:
        """What changes nothing, if the elements may be combined in any order."""
        region = instruction.regions[0]
        combiner = combiner_of(region) if count == 1 else None
        if combiner is None or combiner.step is None or combiner.step.op.identity is None:
            return None
        element = region.arguments[0].tensor_type.element_type
        number, kind = combiner.identity(element), formats.compute_kind(element)
        return lambda: (self.elements.builder.constant(kind, number),)


def _block_of(value: Value) -> Block | None:
    return value.owner.block if isinstance(value.owner, Instruction) else value.owner
