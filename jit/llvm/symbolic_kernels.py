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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from hlojit.ir.formats import FloatFormat, IntegerType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.combiners import combiner_of
from hlojit.ir.passes.graph_facts import constant_of
from hlojit.ir.passes.symbolic_values import Elementwise, Folding, Numbers, Pick, Product, SymbolicShapes, refused
from hlojit.ir.scalar import formats
from hlojit.ir.sizes import Size, add, divide_up, maximum, multiply, round_up
from hlojit.llvm.builder import Val, scalars
from hlojit.llvm.symbolic_elements import (
    Linear,
    Memory,
    NotFlat,
    NotInLanes,
    Position,
    SizeTable,
    SymbolicElements,
    Where,
    is_supported,
)
from hlojit.lowering.target import KIND_BITS, Target

CHUNK = 8192
"""Elements of a task."""
_PARAMETERS = (("ptr", "context"), ("ptr", "buffers"), ("i64", "begin"), ("i64", "end"))
_ALIGNMENT = 64


@dataclass(frozen=True)
class SymbolicProgram:
    """What was emitted, and what has to be known at run time."""

    text: str
    linked: tuple[str, ...]
    sizes: tuple[Size, ...]
    arena_bytes: Size
    constants: tuple[Any, ...]
    """Arrays of storage dtypes; the table of sizes is one more constant behind them."""
    kernels: int


class SymbolicProgramEmitter:
    """Emits one function; see the module's docstring."""

    def __init__(self, shapes: SymbolicShapes, target: Target):
        self.shapes = shapes
        self.target = target
        self.body = shapes.function.body
        self.memory: dict[Value, Memory] = {}
        self.constants: list[Any] = []
        self.table = SizeTable()
        self._arena: Size = 0
        self._free: dict[Size, list[Size]] = {}
        self._launches: list[tuple[str, Size, Size]] = []
        """Kernel, tasks, and the tasks of a grain."""
        self._reads: dict[Value, set[Value]] = {}

    def emit(self, symbol: str) -> SymbolicProgram:
        """The module."""
        arguments, returned = self.body.arguments, self.body.returned
        self._arena_slot = len(arguments) + len(returned)
        for number, argument in enumerate(arguments):
            self.memory[argument] = Memory(number)
        for instruction in self.body:
            self._check(instruction)
            for result in instruction.results:
                dense = constant_of(result)
                if dense is not None and not dense.is_splat and dense.array.size > 1:
                    self.memory[result] = Memory(self._arena_slot + 1 + len(self.constants))
                    self.constants.append(np.ascontiguousarray(dense.array))
        self.elements = SymbolicElements(
            self.shapes, self.memory, self.table, self._arena_slot + 1 + len(self.constants)
        )
        for instruction in self.body:
            if instruction is not self.body.last and self._is_stored(instruction):
                self._kernel(instruction)
        for number, value in enumerate(returned):
            self._result(value, Memory(len(arguments) + number))
        self._host(symbol)
        b = self.elements.builder
        linked = tuple(text for text in b.foreign.linked.values())
        return SymbolicProgram(
            b.module_text(), linked, tuple(self.table.sizes), self._arena, tuple(self.constants), len(self._launches)
        )

    def _check(self, instruction: Instruction) -> None:
        for type in (*instruction.operand_types, *instruction.result_types):
            element = getattr(type, "element_type", None)
            if element is not None and not is_supported(element):
                raise refused(instruction, f"element type {element} has no code for sizes that are given at run time")

    # ------------------------------------------------------------------------------------ what lies in memory

    def _is_stored(self, instruction: Instruction) -> bool:
        """Whether the results are made by a kernel of their own."""
        access = self.shapes.access.get(instruction)
        if access is None or not any(result.users for result in instruction.results):
            return False
        if isinstance(access, (Folding, Product)):
            return True
        (result, *_) = instruction.results
        if constant_of(result) is not None or result in self.shapes.elements or isinstance(access, Numbers):
            return False
        users = list(result.users)
        if any(isinstance(self.shapes.access.get(user), Product) for user in users):
            return not (isinstance(access, Pick) and not access.coordinates)
        if isinstance(access, Pick) and not self._is_computed(instruction.operands[0]):
            return False
        readers = [user for user in users if user is not self.body.last]
        plain = all(isinstance(self.shapes.access.get(user), Elementwise) for user in readers)
        return len(users) > 1 and not plain

    def _is_computed(self, value: Value) -> bool:
        return value not in self.memory and constant_of(value) is None and value not in self.shapes.elements

    def _allocate(self, value: Value) -> Memory:
        shape = self.shapes.dims[value]
        count = multiply(*shape) if shape else 1
        nbytes = round_up(multiply(count, value.tensor_type.element_type.itemsize), _ALIGNMENT)
        memory = Memory(self._arena_slot, self._arena)
        self._arena = add(self._arena, nbytes)
        return memory

    def _result(self, value: Value, memory: Memory) -> None:
        """A result is written by a kernel that computes it, or copies it from where it is."""
        self._elementwise([(value, memory)])

    # ------------------------------------------------------------------------------------------------ kernels

    def _kernel(self, instruction: Instruction) -> None:
        access = self.shapes.access[instruction]
        targets = [(result, self._allocate(result)) for result in instruction.results]
        if isinstance(access, Folding):
            self._folded(instruction, access, targets)
        elif isinstance(access, Product):
            self._product(instruction, access, targets)
        else:
            self._elementwise(targets)
        self.memory.update(targets)

    def _lanes(self, values: Sequence[Value]) -> int:
        kinds = [formats.compute_kind(value.tensor_type.element_type) for value in values]
        return max(1, self.target.vector_bits // max(KIND_BITS[kind] for kind in (*kinds, "f32")))

    def _function(self, write: Callable[[Val, Val], None]) -> str:
        b = self.elements.builder
        symbol = f"hlojit_symbolic_{len(self._launches)}"
        self.elements.begin()
        with b.function(symbol, _PARAMETERS) as (_, _, begin, end):
            b.begin_block("body")
            write(begin, end)
            # The entry block holds what is loaded once.
            b.at_entry("br label %body")
        return symbol

    def _attempt(self, *ways: Callable[[], None]) -> None:
        """The first way that works; what the others have written is taken back."""
        b = self.elements.builder
        for number, way in enumerate(ways):
            kept = len(b.lines)
            try:
                way()
                return
            except (NotInLanes, NotFlat):
                del b.lines[kept:]
                b.lanes = 1
                if number == len(ways) - 1:
                    raise

    def _elementwise(self, targets: Sequence[tuple[Value, Memory]]) -> None:
        (value, memory), *_ = targets
        lanes = self._lanes([value])
        self._attempt(
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
            first, last = b.mul(begin, chunk), _least(b, b.mul(end, chunk), elements.size(total))

            def block(place: Val, count: int) -> None:
                scalar = elements.element(value, where(Position(place, count > 1)))
                self._store(value, memory, place, scalar, count)

            self._line(first, last, lanes, block)

        self._launches.append((self._function(write), divide_up(total, CHUNK), 1))

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
                self._store(value, memory, b.add(base, place), elements.element(value, where), count)

            self._line(b.constant("i64", 0), elements.size(inner), lanes, block)

        self._over_rows(outer, row, inner)

    def _over_rows(self, outer: Sequence[Size], row: Callable[[tuple[Position, ...], Val], None], work: Size) -> None:
        """A kernel whose tasks are rows: ``row`` is given the outer index and the row's number."""
        b, elements = self.elements.builder, self.elements

        def write(begin: Val, end: Val) -> None:
            loop = b.begin_loop(begin, end)
            with elements.scope():
                row(self._divided(loop.index, outer), loop.index)
            b.end_loop(loop)

        tasks = multiply(*outer) if outer else 1
        self._launches.append((self._function(write), tasks, divide_up_by(CHUNK, work)))

    def _divided(self, number: Val, outer: Sequence[Size]) -> tuple[Position, ...]:
        b, found = self.elements.builder, []
        for position, size in enumerate(reversed(outer)):
            if size == 1:
                found.append(Position(b.constant("i64", 0)))
            elif position == len(outer) - 1:
                found.append(Position(number))
            else:
                extent = self.elements.size(size)
                found.append(Position(b.urem(number, extent)))
                number = b.udiv(number, extent)
        return tuple(reversed(found))

    def _line(self, first: Val, last: Val, lanes: int, block: Callable[[Val, int], None]) -> None:
        """Blocks of lanes from ``first`` to ``last``, and one by one what is left."""
        b = self.elements.builder
        middle = first
        if lanes > 1:
            width = b.constant("i64", lanes)
            length = b.sub(last, first)
            middle = b.add(first, b.sub(length, b.srem(length, width)))
            loop = b.begin_loop(first, middle, lanes, guarded=True)
            with b.of_lanes(lanes), self.elements.scope():
                block(loop.index, lanes)
            b.end_loop(loop)
        loop = b.begin_loop(middle, last, guarded=True)
        with b.of_lanes(1), self.elements.scope():
            block(loop.index, 1)
        b.end_loop(loop)

    def _store(self, value: Value, memory: Memory, place: Val, scalar: Val, lanes: int) -> None:
        known = self.memory.get(value)
        self.memory[value] = memory
        try:
            self.elements.store(value, place, scalar, lanes)
        finally:
            if known is None:
                del self.memory[value]
            else:
                self.memory[value] = known

    # --------------------------------------------------------------------------------- reductions and products

    def _folded(self, instruction: Instruction, access: Folding, targets: Sequence[tuple[Value, Memory]]) -> None:
        count = len(targets)
        inputs, inits = instruction.operands[:count], instruction.operands[count:]
        region, elements = instruction.regions[0], self.elements
        shape = [self._folded_size(instruction, inputs, d) for d in range(inputs[0].tensor_type.rank)]

        def found(at: tuple[Position, ...]) -> tuple[Val, ...]:
            values = (elements.element(value, at) for value in inputs)
            return tuple(
                self._widened(scalar, value, inner) for scalar, value, inner in zip(values, inputs, region.arguments)
            )

        fold = _Fold(
            shape,
            access.dimensions,
            found,
            lambda a, x: elements.inline(region, (*a, *x)),
            lambda: tuple(
                self._widened(elements.element(init, ()), init, inner) for init, inner in zip(inits, region.arguments)
            ),
            self._neutral(instruction, count),
        )
        self._fold(fold, targets, self._lanes([*inputs, *region.arguments]))

    def _folded_size(self, instruction: Instruction, inputs: Sequence[Value], dimension: int) -> Size:
        sizes = [self.shapes.dims[value][dimension] for value in inputs]
        return next((size for size in sizes if isinstance(size, int)), sizes[0])

    def _widened(self, scalar: Val, value: Value, inner: Value) -> Val:
        source, target = value.tensor_type.element_type, inner.tensor_type.element_type
        if source == target:
            return scalar
        return cast(Val, formats.convert(scalars(self.elements.builder), scalar, source, target))

    def _neutral(self, instruction: Instruction, count: int) -> Callable[[], tuple[Val, ...]] | None:
        """What changes nothing, if the elements may be combined in any order."""
        region = instruction.regions[0]
        combiner = combiner_of(region) if count == 1 else None
        if combiner is None or combiner.step is None or combiner.step.op.identity is None:
            return None
        element = region.arguments[0].tensor_type.element_type
        number, kind = combiner.identity(element), formats.compute_kind(element)
        return lambda: (self.elements.builder.constant(kind, number),)

    def _product(self, instruction: Instruction, access: Product, targets: Sequence[tuple[Value, Memory]]) -> None:
        lhs, rhs = instruction.operands
        b, elements = self.elements.builder, self.elements
        element = instruction.result.tensor_type.element_type
        kind = formats.compute_kind(element)
        used = [{pair[side] for pair in (*access.batching, *access.contracting)} for side in (0, 1)]
        free = [
            [d for d in range(each.tensor_type.rank) if d not in used[side]] for side, each in enumerate((lhs, rhs))
        ]
        batch, summed = len(access.batching), len(access.contracting)
        outer = len(self.shapes.dims[instruction.result])
        # The space of the fold is that of the result and behind it the dimensions that are summed over.
        shape = [
            *self.shapes.dims[instruction.result],
            *(self.shapes.dims[lhs][left] for left, _ in access.contracting),
        ]

        def where(side: int, at: tuple[Position, ...]) -> tuple[Position, ...]:
            found: dict[int, Position] = {}
            for number, pair in enumerate(access.batching):
                found[pair[side]] = at[number]
            for number, pair in enumerate(access.contracting):
                found[pair[side]] = at[outer + number]
            start = batch + (len(free[0]) if side else 0)
            for number, d in enumerate(free[side]):
                found[d] = at[start + number]
            return tuple(found[d] for d in range(len(found)))

        def factors(at: tuple[Position, ...]) -> tuple[Val, ...]:
            pair = []
            for side, value in enumerate((lhs, rhs)):
                scalar = elements.element(value, where(side, at))
                pair.append(self._converted(scalar, value.tensor_type.element_type, element, kind))
            return tuple(pair)

        def combine(total: Sequence[Val], pair: Sequence[Val]) -> tuple[Val, ...]:
            if len(pair) == 1:
                return (b.add(total[0], pair[0]) if kind[0] == "i" else b.fadd(total[0], pair[0]),)
            if isinstance(element, FloatFormat):
                return (b.fma(pair[0], pair[1], total[0]),)
            return (b.add(total[0], b.mul(pair[0], pair[1])),)

        if not isinstance(element, (FloatFormat, IntegerType)):
            raise refused(instruction, f"products of {element} have no code for sizes that are given at run time")
        zero = lambda: (b.constant(kind, 0.0 if kind[0] == "f" else 0),)  # noqa: E731
        fold = _Fold(shape, tuple(range(outer, outer + summed)), factors, combine, zero, zero, rounds=True)
        self._fold(fold, targets, self._lanes([lhs, rhs, instruction.result]))

    def _converted(self, scalar: Val, source: Any, target: Any, kind: str) -> Val:
        """A factor in the type that products are added in."""
        b = self.elements.builder
        if isinstance(target, FloatFormat) and isinstance(source, FloatFormat):
            return cast(Val, formats.float_resized(scalars(b), scalar, kind))
        return cast(Val, formats.convert(scalars(b), scalar, source, target))

    def _fold(self, fold: _Fold, targets: Sequence[tuple[Value, Memory]], lanes: int) -> None:
        kept = [d for d in range(len(fold.shape)) if d not in fold.dimensions]
        ways: list[Callable[[], None]] = []
        if kept:
            ways.append(lambda: self._fold_across(fold, kept, targets, lanes))
        if fold.neutral is not None and fold.dimensions:
            ways.append(lambda: self._fold_along(fold, kept, targets, lanes))
        ways.append(lambda: self._fold_along(fold, kept, targets, 1))
        self._attempt(*ways)

    def _fold_across(
        self, fold: _Fold, kept: Sequence[int], targets: Sequence[tuple[Value, Memory]], lanes: int
    ) -> None:
        """Neighbouring results in lanes."""
        b, elements = self.elements.builder, self.elements
        shape = [fold.shape[d] for d in kept]

        def row(at: tuple[Position, ...], number: Val) -> None:
            base = b.mul(number, elements.size(shape[-1]))

            def block(place: Val, count: int) -> None:
                index = dict(zip(kept, (*at, Position(place, count > 1))))
                totals = self._over(
                    fold, list(fold.dimensions), index, tuple(b.splat(each, count) for each in fold.initial())
                )
                self._finish(fold, targets, b.add(base, place), totals, count)

            self._line(b.constant("i64", 0), elements.size(shape[-1]), lanes, block)

        work = multiply(*(fold.shape[d] for d in (*fold.dimensions, kept[-1])))
        self._over_rows(shape[:-1], row, work)

    def _fold_along(
        self, fold: _Fold, kept: Sequence[int], targets: Sequence[tuple[Value, Memory]], lanes: int
    ) -> None:
        """One result at a time; elements along the last dimension that goes in lanes."""
        b, elements = self.elements.builder, self.elements

        def row(at: tuple[Position, ...], number: Val) -> None:
            index = dict(zip(kept, at))
            if lanes == 1:
                totals = self._over(fold, list(fold.dimensions), index, fold.initial())
                self._finish(fold, targets, number, totals, 1)
                return
            *outer, last = fold.dimensions
            extent = elements.size(fold.shape[last])
            width = b.constant("i64", lanes)
            middle = b.sub(extent, b.srem(extent, width))
            assert fold.neutral is not None
            wide = self._over(
                fold,
                outer,
                index,
                tuple(b.splat(each, lanes) for each in fold.neutral()),
                lambda state, where: self._steps(fold, last, where, state, b.constant("i64", 0), middle, lanes),
            )
            rest = self._over(
                fold,
                outer,
                index,
                fold.initial(),
                lambda state, where: self._steps(fold, last, where, state, middle, extent, 1),
            )
            for lane in range(lanes):
                rest = tuple(fold.combine(rest, tuple(b.extract(each, lane) for each in wide)))
            self._finish(fold, targets, number, rest, 1)

        work = multiply(*(fold.shape[d] for d in fold.dimensions)) if fold.dimensions else 1
        self._over_rows([fold.shape[d] for d in kept], row, work)

    def _over(
        self,
        fold: _Fold,
        dimensions: Sequence[int],
        index: dict[int, Position],
        state: tuple[Val, ...],
        inside: Callable[[tuple[Val, ...], dict[int, Position]], tuple[Val, ...]] | None = None,
    ) -> tuple[Val, ...]:
        """Loops over dimensions that go, around one element, or around ``inside``."""
        b = self.elements.builder
        if not dimensions:
            if inside is not None:
                return inside(state, index)
            return tuple(fold.combine(state, fold.element(tuple(index[d] for d in range(len(fold.shape))))))
        first, *rest = dimensions
        loop = b.begin_loop(b.constant("i64", 0), self.elements.size(fold.shape[first]), carried=state, guarded=True)
        with self.elements.scope():
            found = self._over(fold, rest, {**index, first: Position(loop.index)}, loop.carried, inside)
        return b.end_loop(loop, found)

    def _steps(
        self,
        fold: _Fold,
        last: int,
        index: dict[int, Position],
        state: tuple[Val, ...],
        start: Val,
        end: Val,
        lanes: int,
    ) -> tuple[Val, ...]:
        b = self.elements.builder
        loop = b.begin_loop(start, end, lanes, carried=state, guarded=True)
        with b.of_lanes(lanes), self.elements.scope():
            where = {**index, last: Position(loop.index, lanes > 1)}
            found = fold.combine(loop.carried, fold.element(tuple(where[d] for d in range(len(fold.shape)))))
        return b.end_loop(loop, tuple(found))

    def _finish(
        self, fold: _Fold, targets: Sequence[tuple[Value, Memory]], place: Val, totals: Sequence[Val], lanes: int
    ) -> None:
        for (value, memory), total in zip(targets, totals):
            element = value.tensor_type.element_type
            scalar = total
            if fold.rounds and isinstance(element, FloatFormat) and not element.is_native:
                scalar = cast(Val, formats.round_to_format(scalars(self.elements.builder), total, element))
            self._store(value, memory, place, scalar, lanes)

    # --------------------------------------------------------------------------------------------------- host

    def _host(self, symbol: str) -> None:
        b, elements = self.elements.builder, self.elements
        b.declare("hlojit_parallel_for", "declare void @hlojit_parallel_for(ptr, ptr, ptr, i64, i64)")
        b.declare("hlojit_poll", "declare i32 @hlojit_poll(ptr)")
        elements.begin()
        with b.function(symbol, [("ptr", "context"), ("ptr", "buffers")], result="i32"):
            b.begin_block("body")
            for kernel, tasks, grain in self._launches:
                count, step = elements.size(tasks), elements.size(grain)
                b.line(
                    f"call void @hlojit_parallel_for(ptr %context, ptr @{kernel}, ptr %buffers, i64 {count.text}, "
                    f"i64 {step.text})"
                )
                status = b.emit("i32", 1, "call i32 @hlojit_poll(ptr %context)")
                following = b.fresh_label("go")
                b.branch_if(b.icmp("ne", status, Val("0", "i32")), "cancelled", following)
                b.begin_block(following)
            b.line("ret i32 0")
            b.begin_block("cancelled")
            b.line("ret i32 1")
            b.at_entry("br label %body")


@dataclass(frozen=True)
class _Fold:
    """A reduction: over ``dimensions`` of a space of ``shape`` elements are combined, ``initial`` with them once."""

    shape: Sequence[Size]
    dimensions: Sequence[int]
    element: Callable[[tuple[Position, ...]], tuple[Val, ...]]
    combine: Callable[[Sequence[Val], Sequence[Val]], Sequence[Val]]
    initial: Callable[[], tuple[Val, ...]]
    neutral: Callable[[], tuple[Val, ...]] | None = None
    rounds: bool = False


def divide_up_by(number: int, size: Size) -> Size:
    """``number / size``, up, of a size of 0 as of 1."""
    from hlojit.ir.sizes import apply

    return apply("divide_up", number, maximum(size, 1))


def _least(b: Any, x: Val, y: Val) -> Val:
    return cast(Val, b.select(b.icmp("slt", x, y), x, y))
