"""Row kernels: reductions over the last dimensions together with what is computed from their results, a row at a time.

Softmax is three loops over a row that stays in the first-level cache: the maximum, the sum of exponentials, the
quotients.  What one loop computes at some cost and a later one needs again (the exponentials) is kept in a scratch row.

Reductions that depend on each other run in loops of their own, independent ones share a loop; the roots that have the
rows' shape are computed in the last loop.  Every reduction combines in the same order as in a kernel of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast, final

from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.definition import Pointwise, Reduction
from hlojit.ir.scalar import formats
from hlojit.lowering.elements import Access, Body, Elements, Key, is_narrow, round_element
from hlojit.lowering.index import Index, delinearized, linear_index, variable
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.llvm_builder import LlvmBuilder, Val
from hlojit.lowering.loops import (
    KernelFrame,
    Units,
    choose_lanes,
    divide,
    element_nanoseconds,
    fitted_lanes,
    in_place_pairs,
    walk_lanes,
    walk_units,
)
from hlojit.lowering.probe import Facts, Probe, ProbeScalar
from hlojit.lowering.reduction_plan import Plan
from hlojit.lowering.reductions import ReductionKernel
from hlojit.lowering.space import Space
from hlojit.lowering.target import KIND_BITS, Target
from hlojit.lowering.vector_access import scalars

WORTH_KEEPING = 8.0
"""Values that cost fewer instructions are computed again."""
LARGEST_STASH = 1 << 17
"""Bytes of a row's kept values."""
COLUMN = "column"


@dataclass
class Loop:
    """One loop over a row: reductions that do not depend on each other, or (no reductions) the stores."""

    reductions: list[Instruction]
    facts: Facts = field(default_factory=Facts)
    kept: list[Key] = field(default_factory=list)
    """Values to keep for later loops."""
    fetched: list[Key] = field(default_factory=list)


def is_row_body(body: Body) -> bool:
    """Whether something in the body is computed from the result of a reduction."""
    for root in body.roots:
        for value in _dependencies(body, root):
            producer = value.producer
            if producer is not None and isinstance(producer.op.lowering, Reduction) and producer is not root.producer:
                return True
    return False


def _dependencies(body: Body, root: Value) -> list[Value]:
    """A value and everything inside the body that it is computed from."""
    seen: dict[Value, None] = {}
    stack = [root]
    while stack:
        value = stack.pop()
        if value in seen or value in body.parameters:
            continue
        seen[value] = None
        if value.producer is not None:
            stack.extend(value.producer.operands)
    return list(seen)


def emit_row_kernel(body: Body, target: Target, symbol: str) -> KernelCode:
    """A kernel that goes over rows once, with several loops in each."""
    return _RowKernel(body, target, symbol).emit()


@final
class _RowKernel:
    def __init__(self, body: Body, target: Target, symbol: str):
        self.body, self.target, self.symbol = body, target, symbol
        self.frame = KernelFrame(target, body, LlvmBuilder())
        reductions = _levels(body)
        first = next(iter(reductions))
        shape, dimensions = first.operands[0].tensor_type.shape, tuple(first.attributes["dimensions"])
        kept = len(shape) - len(dimensions)
        for one in reductions:
            same = one.operands[0].tensor_type.shape == shape and tuple(one.attributes["dimensions"]) == dimensions
            if not same or sorted(dimensions) != list(range(kept, len(shape))):
                raise UnsupportedError(one.op.name, "", "a row kernel reduces the last dimensions", one.location)
        self.rows, self.extent = math.prod(shape[:kept]), math.prod(shape[kept:])
        self.row = variable("row", 0, self.rows - 1)
        column = variable(COLUMN, 0, self.extent - 1)
        self.index = (*delinearized(self.row, shape[:kept]), *delinearized(column, shape[kept:]))
        others = [number for number, root in enumerate(body.roots) if root.producer not in reductions]
        self.stored = [number for number in others if body.roots[number].tensor_type.shape == shape]
        self.per_row = [number for number in others if number not in self.stored]
        self.row_index = delinearized(self.row, shape[:kept])
        for number in self.per_row:
            if body.roots[number].tensor_type.shape != shape[:kept]:
                raise UnsupportedError("hlojit.fusion", "", "a root of a row kernel has neither rows nor results")
        count = max(reductions.values()) + 1
        self.loops = [Loop([one for one in reductions if reductions[one] == level]) for level in range(count)]
        if self.stored:
            self.loops.append(Loop([]))
        self._plan()

    # ------------------------------------------------------------------- plan

    def _wanted(self, loop: Loop) -> list[Value]:
        """What a loop evaluates in every column."""
        if not loop.reductions:
            return [self.body.roots[number] for number in self.stored]
        return [value for one in loop.reductions for value in one.operands[: len(one.operands) // 2]]

    def _probe(self, values: Sequence[Value], stash: Sequence[Key]) -> tuple[Facts, list[Key]]:
        probe = Probe()
        elements = Elements(cast(Access, probe), self.body)
        for loop in self.loops:
            for one in loop.reductions:
                for result in one.results:
                    kind = formats.compute_kind(result.tensor_type.element_type)
                    elements.reduced[result] = self.row, ProbeScalar(kind, -1)
        for value, index in stash:
            kind = formats.compute_kind(value.tensor_type.element_type)
            elements.stash[value, index] = len(self.body.operand_types), kind, self.index_in_row()
        found = [elements.value(value, self.index) for value in values]
        facts = probe.finish(cast(list[ProbeScalar], found))
        facts.requested = elements.requested
        facts.kinds |= {formats.storage_kind(value.tensor_type.element_type) for value in values}
        return facts, list(dict.fromkeys(elements.fetched))

    def index_in_row(self) -> Index:
        """The column, as the position in a scratch row."""
        return variable(COLUMN, 0, self.extent - 1)

    def _plan(self) -> None:
        """Find out what each loop computes, and which values are worth keeping for later ones."""
        computed: dict[Key, Loop] = {}
        budget = LARGEST_STASH
        for loop in self.loops:
            loop.facts, _ = self._probe(self._wanted(loop), ())
            shared = [key for key in computed if key in set(loop.facts.requested)]
            _, frontier = self._probe(self._wanted(loop), shared)
            for key in frontier:
                size = self.extent * KIND_BITS[formats.compute_kind(key[0].tensor_type.element_type)] // 8
                source = computed[key]
                if key in source.kept:
                    loop.fetched.append(key)
                elif size <= budget and self._probe_at(key).cost >= WORTH_KEEPING:
                    source.kept.append(key)
                    loop.fetched.append(key)
                    budget -= size
            loop.facts, _ = self._probe(self._wanted(loop), loop.fetched)
            for key in loop.facts.requested:
                value, index = key
                pointwise = value.producer is not None and isinstance(value.producer.op.lowering, Pointwise)
                if index == self.index and pointwise and value.tensor_type.element_type.bits > 1:
                    computed.setdefault(key, loop)

    def _probe_at(self, key: Key) -> Facts:
        return self._probe([key[0]], ())[0]

    # ------------------------------------------------------------------- code

    def emit(self) -> KernelCode:
        frame, b = self.frame, self.frame.builder
        stored = sum(self.body.roots[number].tensor_type.element_type.itemsize for number in self.stored)
        cost = sum(element_nanoseconds(loop.facts, self.target, 0) for loop in self.loops) + stored / 40
        units = divide(max(2, self.rows), 1, 1, cost * self.extent + 20)
        units = Units(self.rows, 1, 1, 1, min(units.per_task, self.rows), units.nanoseconds)
        with frame.function(self.symbol):
            self._make_stash()
            if self.rows > 1:  # of a single row, nothing is known before its reductions
                for loop in self.loops:
                    frame.evaluate(loop.facts, frozenset())
            walk_units(frame, units, lambda low, high: self._unit())
        shape = self.body.roots[self.stored[0]].tensor_type if self.stored else None
        linear = linear_index(self.index, shape.strides) if shape else Index(-1)
        merged = Facts(loads=[load for loop in self.loops for load in loop.facts.loads])
        has_call = any(loop.facts.has_call for loop in self.loops)
        return KernelCode.of(
            b,
            (Phase(self.symbol, units.tasks, units.cost),),
            widened=not has_call,
            in_place=in_place_pairs(self.body, merged, linear, {}) if len(self.body.roots) == 1 else (),
        )

    def _make_stash(self) -> None:
        """Memory for the kept values of one row."""
        access, b = self.frame.access, self.frame.builder
        self.stash: dict[Key, tuple[int, str, Index]] = {}
        for key in dict.fromkeys(key for loop in self.loops for key in loop.kept):
            kind = formats.compute_kind(key[0].tensor_type.element_type)
            size = self.extent + 256
            access.bases.append(b.array(kind, size))
            access.sizes.append(size)
            self.stash[key] = len(access.bases) - 1, kind, self.index_in_row()

    def _unit(self) -> None:
        frame = self.frame
        with frame.scope():
            for loop in self.loops:
                # Values of one loop's blocks are not those of the next, but what belongs to the row stays known.
                frame.elements.stash = {key: self.stash[key] for key in loop.fetched}
                frame.evaluate(loop.facts, frozenset(("row",)))
                if loop.reductions:
                    self._reduce(loop)
                else:
                    self._store(loop)
            for number in self.per_row:
                value = frame.elements.value(self.body.roots[number], self.row_index, rounded=False)
                frame.store_root(number, self.row_index, value, rounded=False)

    def _reduce(self, loop: Loop) -> None:
        frame = self.frame
        space = Space((COLUMN,), (self.extent,), self.index, (1,))
        if self.extent == 1:
            space = Space((), (), self.index, ())
        reduced = list(range(len(space.names)))
        plan = Plan(loop.reductions, [], space, loop.facts, (), (), [], reduced)
        kernel = ReductionKernel(self.body, self.target, self.symbol, plan, frame)
        kernel.after_step = self._keeper(loop)
        for one, values in zip(loop.reductions, kernel.reduce_row(self.index), strict=True):
            for result, value in zip(one.results, values, strict=True):
                element = result.tensor_type.element_type
                rounded = round_element(scalars(frame.builder), element, value)
                frame.elements.reduced[result] = self.row, rounded
                for number, root in enumerate(self.body.roots):
                    if root is result:
                        encoded = rounded
                        if is_narrow(element):
                            encoded = formats.pack(scalars(frame.builder), rounded, element)
                        frame.access.store(cast(Val, encoded), len(self.body.operand_types) + number, self.row)

    def _keeper(self, loop: Loop) -> Callable[[], None] | None:
        if not loop.kept:
            return None

        def keep() -> None:
            access = self.frame.access
            for key in loop.kept:
                buffer, kind, where = self.stash[key]
                value = cast(Val, self.frame.elements.value(*key))
                assert value.kind == kind
                access.store(value, buffer, where)

        return keep

    def _store(self, loop: Loop) -> None:
        frame = self.frame
        lanes = fitted_lanes(choose_lanes(loop.facts, self.target), self.extent, self.target)

        def block() -> None:
            values = [frame.elements.value(root, self.index, rounded=False) for root in self._wanted(loop)]
            for number, value in zip(self.stored, values, strict=True):
                frame.store_root(number, self.index, value, rounded=False)

        frame.access.variables[COLUMN] = frame.builder.constant("i64", 0)
        low, high = frame.builder.constant("i64", 0), frame.builder.constant("i64", self.extent)
        walk_lanes(frame, COLUMN, self.extent, lanes, low, high, block)


def _levels(body: Body) -> dict[Instruction, int]:
    """The reductions of a body with the number of the loop in which each can run, in the order of the program."""
    found: dict[Instruction, set[Instruction]] = {}
    for root in body.roots:
        for value in _dependencies(body, root):
            producer = value.producer
            if producer is not None and isinstance(producer.op.lowering, Reduction) and producer not in found:
                below = {
                    inner.producer
                    for operand in producer.operands
                    for inner in _dependencies(body, operand)
                    if inner.producer is not None and isinstance(inner.producer.op.lowering, Reduction)
                }
                found[producer] = below
    levels: dict[Instruction, int] = {}
    # A reduction has more reductions below it than each of those.
    for one in sorted(found, key=lambda instruction: len(found[instruction])):
        levels[one] = 1 + max((levels[inner] for inner in found[one]), default=-1)
    return levels
