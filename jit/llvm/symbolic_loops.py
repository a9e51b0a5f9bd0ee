"""Loop nests over sizes that are given at run time: what every symbolic kernel is written with.

``KernelWriter`` opens functions, walks over tasks, rows and lanes, and stores; ``Fold`` describes a reduction, whose nests are
here as well: neighbouring results in lanes, or the elements of one result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from hlojit.ir.formats import FloatFormat
from hlojit.ir.graph import Value
from hlojit.ir.scalar import formats
from hlojit.ir.sizes import Size, apply, maximum, multiply
from hlojit.llvm.builder import Val, scalars
from hlojit.llvm.symbolic_elements import Memory, NotFlat, NotInLanes, Position, SymbolicElements
from hlojit.llvm.symbolic_steps import Launch, Step
from hlojit.lowering.target import KIND_BITS, Target

CHUNK = 8192
"""Elements of a task."""
_PARAMETERS = (("ptr", "context"), ("ptr", "buffers"), ("i64", "begin"), ("i64", "end"))


@dataclass(frozen=True)
class Fold:
    """A reduction: over ``dimensions`` of a space of ``shape`` elements are combined, ``initial`` with them once."""

    shape: Sequence[Size]
    dimensions: Sequence[int]
    element: Callable[[tuple[Position, ...]], tuple[Val, ...]]
    combine: Callable[[Sequence[Val], Sequence[Val]], Sequence[Val]]
    initial: Callable[[], tuple[Val, ...]]
    neutral: Callable[[], tuple[Val, ...]] | None = None
    rounds: bool = False


class KernelWriter:
    """Writes kernels one after the other; ``program`` runs those that work, and what is around them."""

    def __init__(self, elements: SymbolicElements, memory: dict[Value, Memory], target: Target):
        self.elements = elements
        self.memory = memory
        self.target = target
        self.program: list[Step] = []
        """What the host program does, so far, in the block that is being emitted."""
        self._kernels = 0

    def lanes(self, values: Sequence[Value]) -> int:
        kinds = [formats.compute_kind(value.tensor_type.element_type) for value in values]
        return max(1, self.target.vector_bits // max(KIND_BITS[kind] for kind in (*kinds, "f32")))

    def function(self, write: Callable[[Val, Val], None]) -> str:
        b = self.elements.builder
        symbol = f"hlojit_symbolic_{self._kernels}"
        self._kernels += 1
        self.elements.begin()
        with b.function(symbol, _PARAMETERS) as (_, _, begin, end):
            b.begin_block("body")
            write(begin, end)
            # The entry block holds what is loaded once.
            b.at_entry("br label %body")
        return symbol

    def launch(self, write: Callable[[Val, Val], None], tasks: Size, grain: Size) -> None:
        """A function, and the step that runs it."""
        self.program.append(Launch(self.function(write), tasks, grain))

    def only_if(self, condition: Size) -> None:
        """Have the kernel that was written last work only where a condition on sizes holds."""
        last = self.program[-1]
        assert isinstance(last, Launch)
        self.program[-1] = last.only_if(condition)

    def attempt(self, *ways: Callable[[], None]) -> None:
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

    def over_rows(self, outer: Sequence[Size], row: Callable[[tuple[Position, ...], Val], None], work: Size) -> None:
        """A kernel whose tasks are rows: ``row`` is given the outer index and the row's number."""
        b, elements = self.elements.builder, self.elements

        def write(begin: Val, end: Val) -> None:
            loop = b.begin_loop(begin, end)
            with elements.scope():
                row(self.divided(loop.index, outer), loop.index)
            b.end_loop(loop)

        tasks = multiply(*outer) if outer else 1
        self.launch(write, tasks, divide_up_by(CHUNK, work))

    def divided(self, number: Val, outer: Sequence[Size]) -> tuple[Position, ...]:
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

    def line(self, first: Val, last: Val, lanes: int, block: Callable[[Val, int], None]) -> None:
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

    def store(self, value: Value, memory: Memory, place: Val, scalar: Val, lanes: int) -> None:
        with lying_at(self.memory, value, memory):
            self.elements.store(value, place, scalar, lanes)

    def fold(self, fold: Fold, targets: Sequence[tuple[Value, Memory]], lanes: int) -> None:
        kept = [d for d in range(len(fold.shape)) if d not in fold.dimensions]
        ways: list[Callable[[], None]] = []
        if kept:
            ways.append(lambda: self.fold_across(fold, kept, targets, lanes))
        if fold.neutral is not None and fold.dimensions:
            ways.append(lambda: self.fold_along(fold, kept, targets, lanes))
        ways.append(lambda: self.fold_along(fold, kept, targets, 1))
        self.attempt(*ways)

    def fold_across(self, fold: Fold, kept: Sequence[int], targets: Sequence[tuple[Value, Memory]], lanes: int) -> None:
        """Neighbouring results in lanes."""
        b, elements = self.elements.builder, self.elements
        shape = [fold.shape[d] for d in kept]

        def row(at: tuple[Position, ...], number: Val) -> None:
            base = b.mul(number, elements.size(shape[-1]))

            def block(place: Val, count: int) -> None:
                index = dict(zip(kept, (*at, Position(place, count > 1))))
                totals = self.over(
                    fold, list(fold.dimensions), index, tuple(b.splat(each, count) for each in fold.initial())
                )
                self.finish(fold, targets, b.add(base, place), totals, count)

            self.line(b.constant("i64", 0), elements.size(shape[-1]), lanes, block)

        work = multiply(*(fold.shape[d] for d in (*fold.dimensions, kept[-1])))
        self.over_rows(shape[:-1], row, work)

    def fold_along(self, fold: Fold, kept: Sequence[int], targets: Sequence[tuple[Value, Memory]], lanes: int) -> None:
        """One result at a time; elements along the last dimension that goes in lanes."""
        b, elements = self.elements.builder, self.elements

        def row(at: tuple[Position, ...], number: Val) -> None:
            index = dict(zip(kept, at))
            if lanes == 1:
                totals = self.over(fold, list(fold.dimensions), index, fold.initial())
                self.finish(fold, targets, number, totals, 1)
                return
            *outer, last = fold.dimensions
            extent = elements.size(fold.shape[last])
            width = b.constant("i64", lanes)
            middle = b.sub(extent, b.srem(extent, width))
            assert fold.neutral is not None
            wide = self.over(
                fold,
                outer,
                index,
                tuple(b.splat(each, lanes) for each in fold.neutral()),
                lambda state, where: self.steps(fold, last, where, state, b.constant("i64", 0), middle, lanes),
            )
            rest = self.over(
                fold,
                outer,
                index,
                fold.initial(),
                lambda state, where: self.steps(fold, last, where, state, middle, extent, 1),
            )
            for lane in range(lanes):
                rest = tuple(fold.combine(rest, tuple(b.extract(each, lane) for each in wide)))
            self.finish(fold, targets, number, rest, 1)

        work = multiply(*(fold.shape[d] for d in fold.dimensions)) if fold.dimensions else 1
        self.over_rows([fold.shape[d] for d in kept], row, work)

    def over(
        self,
        fold: Fold,
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
            found = self.over(fold, rest, {**index, first: Position(loop.index)}, loop.carried, inside)
        return b.end_loop(loop, found)

    def steps(
        self,
        fold: Fold,
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

    def finish(
        self, fold: Fold, targets: Sequence[tuple[Value, Memory]], place: Val, totals: Sequence[Val], lanes: int
    ) -> None:
        for (value, memory), total in zip(targets, totals):
            element = value.tensor_type.element_type
            scalar = total
            if fold.rounds and isinstance(element, FloatFormat):
                scalar = cast(Val, formats.round_to_format(scalars(self.elements.builder), total, element))
            self.store(value, memory, place, scalar, lanes)


@contextmanager
def lying_at(memory: dict[Value, Memory], value: Value, place: Memory) -> Iterator[None]:
    """Let a value lie elsewhere for a while."""
    known = memory.get(value)
    memory[value] = place
    try:
        yield
    finally:
        if known is None:
            del memory[value]
        else:
            memory[value] = known


def divide_up_by(number: int, size: Size) -> Size:
    """``number / size``, up, of a size of 0 as of 1."""
    return apply("divide_up", number, maximum(size, 1))


def least(b: Any, x: Val, y: Val) -> Val:
    return cast(Val, b.select(b.icmp("slt", x, y), x, y))
