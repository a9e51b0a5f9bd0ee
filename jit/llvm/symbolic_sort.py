"""sort of lines whose length is given at run time: a stable merge sort, one task a line.

Comparators that are orders by keys compare these as integers, as the sorts for known sizes do: NaN has the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast, final

from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.symbolic_values import Sorting
from hlojit.ir.scalar import formats
from hlojit.ir.sizes import multiply
from hlojit.llvm.builder import Val, scalars
from hlojit.llvm.merging import Bases, LineMerger
from hlojit.llvm.symbolic_elements import Memory
from hlojit.llvm.symbolic_loops import divide_up_by
from hlojit.lowering.line_sort_plan import ordering_keys
from hlojit.lowering.sort_keys import KeyCode, stored_operands

if TYPE_CHECKING:
    from hlojit.llvm.symbolic_kernels import SymbolicProgramEmitter

_WORK = 16
"""Of an element, next to copying one."""


def emit_sort(
    emitter: SymbolicProgramEmitter, instruction: Instruction, access: Sorting, targets: Sequence[tuple[Value, Memory]]
) -> None:
    """Kernels that copy the operands to the results, and one that sorts these."""
    for operand, (_, memory) in zip(instruction.operands, targets):
        emitter.write(operand, memory)
    spare = [emitter.allocate(value) for value, _ in targets]
    _LineSort(emitter, instruction, access, [memory for _, memory in targets], spare).launch()


@final
class _LineSort:
    """The kernel over all lines of a sort's results."""

    def __init__(
        self,
        emitter: SymbolicProgramEmitter,
        instruction: Instruction,
        access: Sorting,
        first: Sequence[Memory],
        second: Sequence[Memory],
    ):
        shape = emitter.shapes.dims[instruction.results[0]]
        self.writer, self.tools = emitter.writer, emitter.elements
        self.b = emitter.elements.builder
        self.first, self.second = first, second
        self.length = shape[access.dimension]
        self.inner = multiply(*shape[access.dimension + 1 :], 1)
        self.lines = multiply(*shape[: access.dimension], self.inner, 1)
        self.comparator = instruction.regions[0]
        self.elements = [operand.tensor_type.element_type for operand in instruction.operands]
        keys = ordering_keys(instruction, self.comparator)
        self.codes = None if keys is None else [KeyCode.of(key, self.comparator) for key in keys]

    def launch(self) -> None:
        """The step."""

        def write(begin: Val, end: Val) -> None:
            loop = self.b.begin_loop(begin, end)
            with self.tools.scope():
                self._line(loop.index)
            self.b.end_loop(loop)

        self.writer.launch(write, self.lines, divide_up_by(1 << 13, multiply(self.length, _WORK)))

    def _line(self, task: Val) -> None:
        b, inner, length = self.b, self.tools.size(self.inner), self.tools.size(self.length)
        start = b.mul(task, length)
        if self.inner != 1:
            start = b.add(b.mul(b.udiv(task, inner), b.mul(inner, length)), b.urem(task, inner))
        first, second = ([self.tools.place_of(each) for each in memories] for memories in (self.first, self.second))
        self.merger = merger = LineMerger(
            b, self.elements, length, self._before, self._held, lambda index: b.add(start, b.mul(index, inner))
        )
        in_first = merger.sort(first, second)
        done, copy = b.fresh_label("done"), b.fresh_label("copy")
        b.branch_if(in_first, done, copy)
        b.begin_block(copy)
        loop = b.begin_loop(b.constant("i64", 0), length, guarded=True)
        merger.move(second, loop.index, first, loop.index)
        b.end_loop(loop)
        b.branch(done)
        b.begin_block(done)

    # what comes first

    def _before(self, left: Bases, i: Val, right: Bases, j: Val) -> Val:
        return self._compare(self._loaded(left, i), self._loaded(right, j))

    def _held(self, bits: Sequence[Val]) -> Callable[[Bases, Val], Val]:
        kept = dict(enumerate(bits))
        return lambda arrays, index: self._compare(kept, self._loaded(arrays, index))

    def _loaded(self, arrays: Bases, index: Val) -> dict[int, Val]:
        wanted = range(len(arrays)) if self.codes is None else stored_operands(self.codes)
        return {number: self.merger.load(self.elements[number], arrays[number], index) for number in wanted}

    def _compare(self, lhs: dict[int, Val], rhs: dict[int, Val]) -> Val:
        if self.codes is not None:
            return self._by_keys(self.codes, lhs, rhs)
        decoded = [
            cast(Val, formats.decode(scalars(self.b), side[number], element))
            for number, element in enumerate(self.elements)
            for side in (lhs, rhs)
        ]
        return self.tools.inline(self.comparator, decoded)[0]

    def _by_keys(self, codes: Sequence[KeyCode], lhs: dict[int, Val], rhs: dict[int, Val]) -> Val:
        b: Any = self.b
        found: Val | None = None
        for code in reversed(codes):
            x, y = (code.compute(scalars(b), side) for side in (lhs, rhs))
            less = b.icmp("ult", x, y)
            found = less if found is None else b.or_(less, b.and_(b.icmp("eq", x, y), found))
        assert found is not None
        return found
