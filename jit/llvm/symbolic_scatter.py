"""scatter whose sizes are given at run time: updates in ascending order of their index, whatever the number of threads.

Every task goes through all indices and does what lies in its part of the result: of windows that no index moves along their own
dimensions whole windows, of others single elements.  Elements that fall outside are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, final

from hlojit.ir.formats import IntegerType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.symbolic_values import Scattering, Shape, refused
from hlojit.ir.sizes import Size, apply, multiply
from hlojit.llvm.builder import Val
from hlojit.llvm.region import wide_index
from hlojit.llvm.symbolic_elements import Memory, NotInLanes, Position

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlojit.llvm.symbolic_kernels import SymbolicProgramEmitter

_SERIAL: Final = 1 << 14
"""Elements of updates that one thread does as fast as several."""


def emit_scatter(
    emitter: SymbolicProgramEmitter,
    instruction: Instruction,
    access: Scattering,
    targets: Sequence[tuple[Value, Memory]],
) -> None:
    """Kernels that copy the inputs to the results, unless they lie there, and one that combines updates into them."""
    for argument, (value, _) in zip(instruction.regions[0].arguments, (*targets, *targets), strict=True):
        if argument.tensor_type.element_type != value.tensor_type.element_type:
            raise refused(instruction, "combiners of another type have no code for sizes that are given at run time")
    for operand, (_, memory) in zip(instruction.operands, targets):
        if emitter.memory.get(operand) != memory:
            emitter.write(operand, memory)
    scatter = _Scatter(emitter, instruction, access, targets)
    emitter.writer.attempt(
        lambda: scatter.launch(emitter.writer.lanes([value for value, _ in targets])), lambda: scatter.launch(1)
    )


@final
class _Scatter:
    """The kernel of one scatter."""

    def __init__(
        self,
        emitter: SymbolicProgramEmitter,
        instruction: Instruction,
        access: Scattering,
        targets: Sequence[tuple[Value, Memory]],
    ):
        self.writer, self.tools = emitter.writer, emitter.elements
        self.b = emitter.elements.builder
        self.instruction, self.access, self.targets = instruction, access, targets
        count, dims = len(targets), emitter.shapes.dims
        self.indices, self.updates = instruction.operands[count], instruction.operands[count + 1 :]
        self.shape: Shape = dims[instruction.results[0]]
        update = dims[self.updates[0]]
        self.window = [update[d] for d in access.window_dims]
        self.outer = [update[d] for d in access.scatter_dims]
        self.moves = bool(set(access.operand_window_dims) & set(access.index_map))
        """Whether indices move windows along their own dimensions: then elements are looked at one by one."""
        self.fixed = [d for d in range(len(self.shape)) if self.moves or d not in access.operand_window_dims]
        """Dimensions of the results by which tasks share them."""
        cores = emitter.target.machine.cores
        small = apply("less", multiply(*update, 1), _SERIAL)
        self.tasks: Size = apply("select", small, 1, cores) if cores > 1 else 1

    def launch(self, lanes: int) -> None:
        """The step."""
        if lanes > 1 and (self.moves or not self.window):
            raise NotInLanes
        b, tools = self.b, self.tools
        places = multiply(*(self.shape[d] for d in self.fixed), 1)

        def write(begin: Val, end: Val) -> None:
            loop = b.begin_loop(begin, end)
            with tools.scope():
                total, tasks = tools.size(places), tools.size(self.tasks)
                low, high = (
                    b.sdiv(b.mul(number, total), tasks)
                    for number in (loop.index, b.add(loop.index, b.constant("i64", 1)))
                )
                self._all(low, high, lanes)
            b.end_loop(loop)

        self.writer.launch(write, self.tasks, 1)

    def _all(self, low: Val, high: Val, lanes: int) -> None:
        b, tools = self.b, self.tools
        loop = b.begin_loop(b.constant("i64", 0), tools.size(multiply(*self.outer, 1)), guarded=True)
        with tools.scope():
            at = self.writer.divided(loop.index, self.outer)
            starts = self._starts(at)
            if self.moves:
                self._nest(self.window, lambda window: self._element(at, starts, window, low, high))
            else:
                with self._only_if(self._is_inside(starts, low, high)):
                    self._window(at, starts, lanes)
        b.end_loop(loop)

    def _starts(self, at: Sequence[Position]) -> list[Val]:
        """Where a window begins in each dimension of the results."""
        b, access = self.b, self.access
        found = [b.constant("i64", 0)] * len(self.shape)
        for dimension, position in access.batching:
            found[dimension] = at[position].base
        element = self.indices.tensor_type.element_type
        assert isinstance(element, IntegerType)
        for number, dimension in enumerate(access.index_map):
            where = list(at)
            if access.index_vector_dim < self.indices.tensor_type.rank:
                where.insert(access.index_vector_dim, Position(b.constant("i64", number)))
            found[dimension] = wide_index(b, element, self.tools.element(self.indices, tuple(where)))
        return found

    def _is_inside(self, index: Sequence[Val], low: Val, high: Val) -> Val:
        """Whether an index lies in the results, and in the part of them that the task does."""
        b, tools = self.b, self.tools
        inside = b.constant("i1", 1)
        for d in self.fixed:
            inside = b.and_(inside, b.icmp("ult", index[d], tools.size(self.shape[d])))
        place, _ = tools.place([self.shape[d] for d in self.fixed], [Position(index[d]) for d in self.fixed])
        return b.and_(inside, b.and_(b.icmp("sge", place, low), b.icmp("slt", place, high)))

    def _window(self, at: Sequence[Position], starts: Sequence[Val], lanes: int) -> None:
        """A window that lies in the results: rows of elements side by side, or one element."""
        b, tools = self.b, self.tools
        if not self.window:
            self._combine(at, starts, ())
            return

        def row(outer: tuple[Position, ...]) -> None:
            def block(place: Val, count: int) -> None:
                self._combine(at, starts, (*outer, Position(place, count > 1)), count)

            self.writer.line(b.constant("i64", 0), tools.size(self.window[-1]), lanes, block)

        self._nest(self.window[:-1], row)

    def _element(
        self, at: Sequence[Position], starts: Sequence[Val], window: tuple[Position, ...], low: Val, high: Val
    ) -> None:
        """An element of a window, if it lies in the results."""
        index = list(starts)
        for dimension, position in zip(self.access.operand_window_dims, window):
            index[dimension] = self.b.add(index[dimension], position.base)
        with self._only_if(self._is_inside(index, low, high)):
            self._combine(at, starts, window)

    def _combine(
        self, at: Sequence[Position], starts: Sequence[Val], window: Sequence[Position], count: int = 1
    ) -> None:
        b, tools, access = self.b, self.tools, self.access
        where: list[Any] = [Position(start) for start in starts]
        for dimension, position in zip(access.operand_window_dims, window):
            where[dimension] = Position(b.add(starts[dimension], position.base), position.moves)
        source: dict[int, Position] = dict(zip(access.scatter_dims, at)) | dict(zip(access.window_dims, window))
        new = [tools.element(update, tuple(source[d] for d in range(len(source)))) for update in self.updates]
        place, moves = tools.place(self.shape, where)
        if count > 1 and not moves:
            raise NotInLanes
        old = [tools.load_at(value, memory, place, moves=moves) for value, memory in self.targets]
        made = tools.inline(self.instruction.regions[0], (*old, *new))
        for (value, memory), scalar in zip(self.targets, made, strict=True):
            self.writer.store(value, memory, place, scalar, count)

    # control flow

    def _nest(self, shape: Sequence[Size], body: Callable[[tuple[Position, ...]], None]) -> None:
        """Loops over an index, one in the other."""
        if not shape:
            body(())
            return
        b, tools = self.b, self.tools
        loop = b.begin_loop(b.constant("i64", 0), tools.size(shape[0]), guarded=True)
        with tools.scope():
            self._nest(shape[1:], lambda rest: body((Position(loop.index), *rest)))
        b.end_loop(loop)

    @contextmanager
    def _only_if(self, condition: Val) -> Iterator[None]:
        b = self.b
        inside, after = b.fresh_label("inside"), b.fresh_label("after")
        b.branch_if(condition, inside, after)
        b.begin_block(inside)
        with self.tools.scope():
            yield
        b.branch(after)
        b.begin_block(after)
