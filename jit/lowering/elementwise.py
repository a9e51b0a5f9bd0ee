"""Loop kernels: fusions whose roots all have one shape and are computed element by element.

>>> code = emit_loop_kernel(Body.of(fusion), host_target(), "fusion_1")
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlojit.ir.graph import Value
from hlojit.lowering.elements import Body
from hlojit.lowering.index import delinearized, variable
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.llvm_builder import LlvmBuilder, Val
from hlojit.lowering.loops import (
    KernelFrame,
    choose_lanes,
    divide,
    element_nanoseconds,
    fitted_lanes,
    in_place_pairs,
    probe_elements,
    walk_lanes,
    walk_units,
)
from hlojit.lowering.probe import Facts
from hlojit.lowering.space import Space, collapse, split
from hlojit.lowering.target import Target
from hlojit.lowering.tiles import emit_tiled_kernel, find_tiles


def plan_space(body: Body, space: Space, values: Sequence[Value]) -> tuple[Space, Facts]:
    """Split and collapse the variables of the roots' common space; returns the facts in its terms."""
    facts = probe_elements(body, [(value, space.root_index) for value in values])
    first = len(body.operand_types)
    stores = [body.linear(first + number, space.root_index) for number in range(len(values))]
    divided, indices = split(space, [*facts.all_indices(), *stores])
    final = collapse(divided, indices)
    if final.names != space.names:
        facts = probe_elements(body, [(value, final.root_index) for value in values])
    return final, facts


def emit_loop_kernel(body: Body, target: Target, symbol: str) -> KernelCode:
    """A kernel whose roots all have one shape and are computed element by element."""
    shape = body.roots[0].tensor_type.shape
    space, facts = plan_space(body, Space.of_shape(shape), body.roots)
    tiles = find_tiles(space, facts)
    if tiles is not None:
        return emit_tiled_kernel(body, target, symbol, space, facts, tiles)
    extent = space.extents[-1] if space.extents else 1
    rows = math.prod(space.extents[:-1])
    stored = sum(root.tensor_type.element_type.itemsize for root in body.roots)
    lanes = fitted_lanes(choose_lanes(facts, target), extent, target)
    units = divide(rows, extent, lanes, element_nanoseconds(facts, target, stored))

    row_index = delinearized(variable("row", 0, rows - 1), space.extents[:-1])
    mapping = dict(zip(space.names[:-1], row_index))
    name = space.names[-1] if space.names else "point"
    index = tuple(position.substitute(mapping) for position in space.root_index)
    if len(space.names) > 1:
        facts.requested = [
            (value, tuple(position.substitute(mapping) for position in at)) for value, at in facts.requested
        ]
    frame = KernelFrame(target, body, LlvmBuilder())

    def block() -> None:
        values = [frame.elements.value(root, index, rounded=False) for root in body.roots]
        for number, scalar in enumerate(values):
            frame.store_root(number, index, scalar, rounded=False)

    def unit(low: Val, high: Val) -> None:
        frame.evaluate(facts, frozenset(("row",)))
        walk_lanes(frame, name, extent, lanes, low, high, block)

    with frame.function(symbol):
        frame.evaluate(facts, frozenset())
        walk_units(frame, units, unit)
    return KernelCode.of(
        frame.builder,
        (Phase(symbol, units.tasks, units.cost),),
        widened=not facts.has_call,
        in_place=in_place_pairs(body, facts, body.linear(len(body.operand_types), index), mapping),
    )
