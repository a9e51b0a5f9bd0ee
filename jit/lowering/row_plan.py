"""What is decided about row kernels: the loops over a row, and the values that one loop keeps for later ones.

Reductions that depend on each other run in loops of their own, independent ones share a loop; the roots that have the
rows' shape are computed in the last loop.  What one loop computes at some cost and a later one needs again (the
exponentials of a softmax) is kept in a scratch row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast, final

from hlojit.ir.errors import UnsupportedError
from hlojit.ir.formats import ComplexType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.definition import Pointwise, Reduction
from hlojit.ir.ops.views import DimensionsView
from hlojit.ir.scalar import formats
from hlojit.lowering.body import Body
from hlojit.lowering.element_access import Access
from hlojit.lowering.element_forms import lane_kind
from hlojit.lowering.elements import Elements, Key
from hlojit.lowering.index import Index, delinearized, linear_index, variable
from hlojit.lowering.loop_plan import CALL_CYCLES, Units, divide, element_nanoseconds, in_place_pairs
from hlojit.lowering.probe import Facts, Probe, ProbeScalar
from hlojit.lowering.target import KIND_BITS, Target

WORTH_KEEPING = 8.0
"""Values that cost fewer instructions are computed again."""
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


@final
class RowPlan:
    """The loops of one row kernel, and what they keep: the same for all targets, within each one's ``budget``.

    ``budget`` is what the kept values of a row may take, in bytes.  Where memory is far from what computes
    (``keeps_operands``), elements of operands are kept as well.  ``sums_columns``: roots may be reductions of the
    columns of all rows as well.
    """

    def __init__(self, body: Body, budget: int, *, keeps_operands: bool = False, sums_columns: bool = False):
        self.body = body
        self.keeps_operands = keeps_operands
        reductions = _levels(body)
        self.columns = _column_reductions(body, reductions) if sums_columns else []
        """Reductions of columns, which the last loop takes in."""
        reductions = {one: level for one, level in reductions.items() if one not in self.columns}
        first = next(iter(reductions))
        shape, dimensions = first.operands[0].tensor_type.shape, DimensionsView.of(first).dimensions
        kept = len(shape) - len(dimensions)
        for one in reductions:
            same = one.operands[0].tensor_type.shape == shape and DimensionsView.of(one).dimensions == dimensions
            if not same or sorted(dimensions) != list(range(kept, len(shape))):
                raise UnsupportedError(one.op.name, "", "a row kernel reduces the last dimensions", one.location)
        self.rows, self.extent = math.prod(shape[:kept]), math.prod(shape[kept:])
        self.row = variable("row", 0, self.rows - 1)
        column = variable(COLUMN, 0, self.extent - 1)
        self.index = (*delinearized(self.row, shape[:kept]), *delinearized(column, shape[kept:]))
        summed = {*reductions, *self.columns}
        others = [number for number, root in enumerate(body.roots) if root.producer not in summed]
        self.stored = [number for number in others if body.roots[number].tensor_type.shape == shape]
        self.per_row = [number for number in others if number not in self.stored]
        self.row_index = delinearized(self.row, shape[:kept])
        for number in self.per_row:
            if body.roots[number].tensor_type.shape != shape[:kept]:
                raise UnsupportedError("hlojit.fusion", "", "a root of a row kernel has neither rows nor results")
        count = max(reductions.values()) + 1
        self.loops = [Loop([one for one in reductions if reductions[one] == level]) for level in range(count)]
        if self.stored or self.columns:
            self.loops.append(Loop([]))
        self.words = 0
        """Registers of 32 bits that everything would take which one loop computes of an element and a later one needs."""
        self._plan(budget)

    @property
    def in_place(self) -> tuple[tuple[int, int], ...]:
        """Operands whose memory the only result may take: a row is read before it is written."""
        if len(self.body.roots) > 1 or not self.stored:
            return ()
        merged = Facts(loads=[load for loop in self.loops for load in loop.facts.loads])
        linear = linear_index(self.index, self.body.roots[0].tensor_type.strides)
        return in_place_pairs(self.body, merged, linear, {})

    def wanted(self, loop: Loop) -> list[Value]:
        """What a loop evaluates in every column."""
        if not loop.reductions:
            return [*(self.body.roots[number] for number in self.stored), *_inputs(self.columns)]
        return _inputs(loop.reductions)

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
        facts.kinds |= {lane_kind(value.tensor_type.element_type) for value in values}
        return facts, list(dict.fromkeys(elements.fetched))

    def index_in_row(self) -> Index:
        """The column, as the position in a scratch row."""
        return variable(COLUMN, 0, self.extent - 1)

    def _plan(self, budget: int) -> None:
        """Find out what each loop computes, and which values are worth keeping for later ones."""
        computed: dict[Key, int] = {}
        spans: dict[Key, tuple[int, int]] = {}
        for number, loop in enumerate(self.loops):
            loop.facts, _ = self._probe(self.wanted(loop), ())
            requested = set(loop.facts.requested)
            shared = [key for key in computed if key in requested]
            _, frontier = self._probe(self.wanted(loop), shared)
            spans.update({key: (computed[key], number) for key in frontier})
            budget = self._keep(loop, shared, frontier, computed, budget)
            loop.facts, _ = self._probe(self.wanted(loop), loop.fetched)
            for key in loop.facts.requested:
                if self._may_be_kept(key):
                    computed.setdefault(key, number)
        sizes = {key: -(-KIND_BITS[formats.compute_kind(key[0].tensor_type.element_type)] // 32) for key in spans}
        for number in range(len(self.loops) - 1):
            alive = sum(sizes[key] for key, (first, last) in spans.items() if first <= number < last)
            self.words = max(self.words, alive)

    def _keep(self, loop: Loop, shared: list[Key], frontier: list[Key], computed: dict[Key, int], budget: int) -> int:
        """Decide which of the values that earlier loops computed the loop gets from them; what is left of the budget.

        ``shared`` are those that it could use, ``frontier`` those of them that it would ask for.
        """
        while True:
            left, refused = budget, set()
            for key in frontier:
                size = self.extent * KIND_BITS[formats.compute_kind(key[0].tensor_type.element_type)] // 8
                if key in self.loops[computed[key]].kept:
                    continue
                if size <= left and self._is_worth_keeping(key):
                    left -= size
                else:
                    refused.add(key)
            if not refused or not self.keeps_operands:
                break
            # What is computed again is computed from kept elements.
            shared = [key for key in shared if key not in refused]
            _, frontier = self._probe(self.wanted(loop), shared)
        for key in frontier:
            if key not in refused:
                loop.fetched.append(key)
                kept = self.loops[computed[key]].kept
                kept += [key] if key not in kept else []
        return left

    def _may_be_kept(self, key: Key) -> bool:
        value, index = key
        element = value.tensor_type.element_type
        if index != self.index or element.bits <= 1 or isinstance(element, ComplexType):
            return False
        if value in self.body.parameters:
            return self.keeps_operands
        return value.producer is not None and isinstance(value.producer.op.lowering, Pointwise)

    def _is_worth_keeping(self, key: Key) -> bool:
        return key[0] in self.body.parameters or self._probe_at(key).cost >= WORTH_KEEPING

    def _probe_at(self, key: Key) -> Facts:
        return self._probe([key[0]], ())[0]


def row_units(plan: RowPlan, target: Target) -> Units:
    """Rows and tasks of a processor."""
    stored = sum(plan.body.roots[number].tensor_type.element_type.itemsize for number in plan.stored)
    cost = (
        sum(element_nanoseconds(loop.facts, target, 0) for loop in plan.loops)
        + stored / target.machine.memory_bandwidth
    )
    row = cost * plan.extent + target.machine.nanoseconds(2 * CALL_CYCLES)
    units = divide(max(2, plan.rows), 1, 1, row, target.machine)
    return Units(plan.rows, 1, 1, 1, min(units.per_task, plan.rows), units.nanoseconds)


def _inputs(reductions: Sequence[Instruction]) -> list[Value]:
    return [value for one in reductions for value in one.operands[: len(one.operands) // 2]]


def has_column_reductions(body: Body) -> bool:
    """Whether roots of a row kernel are reductions of the columns of all rows."""
    return bool(_column_reductions(body, _levels(body)))


def _column_reductions(body: Body, reductions: Iterable[Instruction]) -> list[Instruction]:
    """The reductions of just those dimensions that rows do not have; they are roots, and nothing inside reads them."""
    spaces = [(one, one.operands[0].tensor_type.shape, DimensionsView.of(one).dimensions) for one in reductions]
    rows = next((len(shape) - len(d) for _, shape, d in spaces if d and d[-1] == len(shape) - 1), 0)
    roots = {root.producer for root in body.roots}
    return [one for one, _, d in spaces if d and rows and sorted(d) == list(range(rows)) and one in roots]


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
