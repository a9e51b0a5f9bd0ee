"""scatter on a machine with threads: all updates at once where the order does not show, in order where it does.

* Updates that meet no other (``unique_indices``), and exact combinations of integers in any order (atomics): a thread an
  element of the updates.
* Everything else in ascending order of the updates, as on the CPU.  A block owns a range of the results.  Its threads look
  at as many windows at once as there are threads, whether they touch the range; those that do are taken in one after the
  other by the whole block, a thread an element of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from hlojit.ir.formats import IntegerType
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.combiners import combiner_of
from hlojit.ir.ops.definition import Pointwise, PointwiseCall
from hlojit.llvm.region import Variable, delinearize, load_stored, store_stored, updated, while_loop, wide_index
from hlojit.llvm.text import Val
from hlojit.lowering.body import Body
from hlojit.lowering.element_forms import memory_kind
from hlojit.lowering.grid_plan import THREADS
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.scatter_plan import ScatterPlan
from hlojit.lowering.target import Target
from hlojit.simt.dialect import Dialect
from hlojit.simt.frame import GridFrame

BLOCKS_A_MULTIPROCESSOR: Final = 4
"""Of ordered scatters: every block looks at all indices, so that more of them do not always help."""
UPDATE_NANOSECONDS: Final = 500.0
"""Of an update that waits for the one before it: memory, read and written."""


def emit_scatter(instruction: Instruction, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """Operands: inputs, indices, updates; results share the inputs' memory."""
    return _Scatter(instruction, target, dialect).emit(symbol)


class _Recorder:
    """A builder for a rule that is one instruction: its values say by which it was made."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: (name, *arguments)


def atomic_operation(instruction: Instruction) -> str:
    """LLVM's name of the read-modify-write that a scatter's region is, or an empty string.

    Only where the order of the updates cannot be seen: integers of a width that machines have atomics for.
    """
    recognized = combiner_of(instruction.regions[0])
    element = instruction.results[0].tensor_type.element_type
    if recognized is None or recognized.step is None or not isinstance(element, IntegerType) or element.bits < 32:
        return ""
    if recognized.is_maximum or recognized.is_minimum:
        return ("" if element.signed else "u") + ("max" if recognized.is_maximum else "min")
    lowering = recognized.step.op.lowering
    assert isinstance(lowering, Pointwise)
    recorder: Any = _Recorder()
    made: Any = lowering.rule(
        recorder, PointwiseCall((element, element), element, recognized.step.attributes), "a", "b"
    )
    known = {"add": "add", "and_": "and", "or_": "or", "xor": "xor"}
    return known.get(made[0], "") if made[1:] == ("a", "b") else ""


@final
class _Scatter:
    def __init__(self, instruction: Instruction, target: Target, dialect: Dialect):
        self.instruction = instruction
        self.plan = ScatterPlan.of(instruction)
        self.frame = GridFrame(target, Body.of(instruction), dialect)
        self.b = self.frame.builder
        assert target.grid is not None
        self.machine = target.grid
        self.elements = [result.tensor_type.element_type for result in instruction.results]

    def emit(self, symbol: str) -> KernelCode:
        plan = self.plan
        if not plan.updates.size or not plan.input.size:
            with self.frame.kernel(symbol, THREADS):
                pass
            return self._code(self.frame.phase(symbol, 0, 0.0))
        self.atomic = "" if plan.is_unique else atomic_operation(self.instruction)
        if plan.is_unique or self.atomic:
            return self._all_at_once(symbol)
        return self._in_order(symbol)

    def _code(self, phase: Phase) -> KernelCode:
        in_place = tuple((number, number) for number in range(self.plan.count))
        return self.frame.code((phase,), in_place=in_place, updates=True)

    # ----------------------------------------------------------- where things are

    def _starts(self, place: Sequence[Val]) -> list[Val]:
        """Where a window begins, in every dimension of the inputs."""
        plan, b = self.plan, self.b
        element = plan.indices.element_type
        assert isinstance(element, IntegerType)
        kind = memory_kind(element)
        starts = [b.constant("i64", 0)] * plan.input.rank
        for component, dimension in enumerate(plan.numbers.scatter_dims_to_operand_dims):
            offset = b.constant("i64", component * plan.component_stride)
            for position, stride in zip(place, plan.index_strides, strict=True):
                offset = b.add(offset, b.mul(position, b.constant("i64", stride)))
            pointer = b.element_pointer(self.frame.access.bases[plan.count], kind, offset)
            starts[dimension] = wide_index(b, element, b.load(kind, pointer))
        for dimension, number in plan.batch_positions.items():
            starts[dimension] = b.add(starts[dimension], place[number])
        return starts

    def _target(self, starts: Sequence[Val], window: Sequence[Val]) -> tuple[Val, Val]:
        """Whether an element of a window lies inside of the inputs, and where."""
        plan, b = self.plan, self.b
        position = list(starts)
        for dimension, part in zip(plan.operand_window_dims, window, strict=True):
            position[dimension] = b.add(position[dimension], part)
        inside, target = b.constant("i1", 1), b.constant("i64", 0)
        for place, extent, stride in zip(position, plan.input.shape, plan.input.strides, strict=True):
            inside = b.and_(inside, b.icmp("ult", place, b.constant("i64", extent)))
            target = b.add(target, b.mul(place, b.constant("i64", stride)))
        return inside, target

    def _source(self, place: Sequence[Val], window: Sequence[Val]) -> Val:
        """Where the element lies in the updates."""
        plan, b = self.plan, self.b
        source = b.constant("i64", 0)
        for dimensions, parts in ((plan.scatter_dims, place), (plan.window_dims, window)):
            for dimension, part in zip(dimensions, parts, strict=True):
                source = b.add(source, b.mul(part, b.constant("i64", plan.updates.strides[dimension])))
        return source

    def _combine(self, target: Val, source: Val) -> None:
        """results[target] = combiner(results[target], updates[source])."""
        b, plan, bases = self.b, self.plan, self.frame.access.bases
        updates, results = bases[plan.count + 1 : 2 * plan.count + 1], bases[2 * plan.count + 1 :]
        new = [load_stored(b, element, base, source) for element, base in zip(self.elements, updates)]
        if self.atomic:
            b.atomic(self.atomic, b.element_pointer(results[0], new[0].kind, target), new[0])
            return
        old = [load_stored(b, element, base, target) for element, base in zip(self.elements, results)]
        for base, value in zip(results, updated(b, self.instruction.regions[0], old, new), strict=True):
            store_stored(b, base, target, value)

    # ------------------------------------------------------------------ in any order

    def _all_at_once(self, symbol: str) -> KernelCode:
        plan, b = self.plan, self.b
        blocks = -(-plan.updates.size // THREADS)
        with self.frame.kernel(symbol, THREADS):
            number = b.global_thread()

            def update() -> None:
                parts = delinearize(b, number, plan.updates.shape)
                place, window = [parts[d] for d in plan.scatter_dims], [parts[d] for d in plan.window_dims]
                inside, target = self._target(self._starts(place), window)
                b.when(inside, lambda: self._combine(target, number))

            b.when(b.icmp("slt", number, b.constant("i64", plan.updates.size)), update)
        moved = plan.count * (3 * plan.updates.nbytes) + plan.indices.nbytes
        return self._code(self.frame.phase(symbol, blocks, moved / self.machine.memory_bandwidth / blocks))

    # ---------------------------------------------------------------------- in order

    def _in_order(self, symbol: str) -> KernelCode:
        plan, b = self.plan, self.b
        most = BLOCKS_A_MULTIPROCESSOR * self.machine.multiprocessors
        owned = max(1, -(-plan.input.size // most))
        blocks = -(-plan.input.size // owned)
        warps = THREADS // self.frame.builder.dialect.warp
        with self.frame.kernel(symbol, THREADS):
            low = b.mul(b.zext(b.block, "i64"), b.constant("i64", owned))
            self.range = low, b.add(low, b.constant("i64", owned))
            word = b.dialect.vote_kind
            votes = b.shared(word, warps)
            loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", plan.windows), THREADS)
            mine = b.add(loop.index, b.zext(b.thread, "i64"))
            self._vote(mine, votes, word)
            b.barrier()
            warp = b.begin_loop(b.constant("i64", 0), b.constant("i64", warps))
            first = b.add(loop.index, b.mul(warp.index, b.constant("i64", b.dialect.warp)))
            self._take(b.load(word, b.element_pointer(votes, word, warp.index)), first, word)
            b.end_loop(warp)
            b.barrier()
            b.end_loop(loop)
        return self._code(self.frame.phase(symbol, blocks, plan.windows * UPDATE_NANOSECONDS / blocks))

    def _vote(self, window: Val, votes: Val, word: str) -> None:
        """Leave for every warp which of its lanes' windows touch the block's range."""
        plan, b = self.plan, self.b
        exists = b.icmp("slt", window, b.constant("i64", plan.windows))
        number = b.select(exists, window, b.constant("i64", 0))
        touches = exists
        lowest = highest = b.constant("i64", 0)
        starts = self._starts(delinearize(b, number, plan.scatter_shape))
        for start, reach, extent, stride in zip(starts, plan.window_extent, plan.input.shape, plan.input.strides):
            # A start near the ends of the integers stays out of range when the window's extent is added.
            zero, last = b.constant("i64", 0), b.constant("i64", extent - 1)
            begins = b.icmp("sle", start, last)
            ends = b.icmp("sgt", start, b.constant("i64", -reach))
            touches = b.and_(touches, b.and_(begins, ends))
            first = b.select(b.icmp("slt", start, zero), zero, start)
            end = b.add(start, b.constant("i64", reach - 1))
            end = b.select(b.icmp("sgt", end, last), last, end)
            lowest = b.add(lowest, b.mul(first, b.constant("i64", stride)))
            highest = b.add(highest, b.mul(end, b.constant("i64", stride)))
        touches = b.and_(touches, b.icmp("sge", highest, self.range[0]))
        touches = b.and_(touches, b.icmp("slt", lowest, self.range[1]))
        found = b.ballot(touches)
        lane = b.urem(b.thread, b.constant("i32", b.dialect.warp))
        warp = b.zext(b.udiv(b.thread, b.constant("i32", b.dialect.warp)), "i64")
        b.when(b.icmp("eq", lane, b.constant("i32", 0)), lambda: b.store(found, b.element_pointer(votes, word, warp)))

    def _take(self, found: Val, first: Val, word: str) -> None:
        """Take in the windows of one warp's vote, in their order, all threads together."""
        b = self.b
        left = Variable(b, word, found)

        def window() -> None:
            bits = left.get()
            lowest = b.zext(b.intrinsic("cttz", bits, extra="i1 true", extra_type="i1"), "i64")
            left.set(b.and_(bits, b.sub(bits, b.constant(word, 1))))
            self._window(b.add(first, lowest))

        while_loop(b, lambda: b.icmp("ne", left.get(), b.constant(word, 0)), window)

    def _window(self, number: Val) -> None:
        plan, b = self.plan, self.b
        place = delinearize(b, number, plan.scatter_shape)
        starts = self._starts(place)
        loop = b.begin_loop(b.zext(b.thread, "i64"), b.constant("i64", plan.window_size), THREADS)
        window = delinearize(b, loop.index, plan.window_shape)
        inside, target = self._target(starts, window)
        inside = b.and_(inside, b.icmp("sge", target, self.range[0]))
        inside = b.and_(inside, b.icmp("slt", target, self.range[1]))
        b.when(inside, lambda: self._combine(target, self._source(place, window)))
        b.end_loop(loop)
        if plan.window_size > 1 and not plan.windows_are_lines:
            # Another thread may have the same element in the next window.
            b.barrier()
