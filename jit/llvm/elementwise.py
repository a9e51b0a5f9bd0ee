"""Loop kernels: fusions whose roots all have one shape and are computed element by element.

>>> code = emit_loop_kernel(Body.of(fusion), host_target(), "fusion_1")
"""

from __future__ import annotations

from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.loops import KernelFrame, walk_lanes, walk_units
from hlojit.llvm.tiles import emit_tiled_kernel
from hlojit.lowering.body import Body
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.loop_plan import plan_loop, plan_space
from hlojit.lowering.space import Space
from hlojit.lowering.target import Target
from hlojit.lowering.tile_plan import find_tiles, plan_tiles


def emit_loop_kernel(body: Body, target: Target, symbol: str) -> KernelCode:
    """A kernel whose roots all have one shape and are computed element by element."""
    space, facts = plan_space(body, Space.of_shape(body.roots[0].tensor_type.shape), body.roots)
    tiles = find_tiles(space, facts)
    if tiles is not None:
        return emit_tiled_kernel(plan_tiles(body, target, space, facts, tiles), target, symbol)
    plan = plan_loop(body, target, space, facts)
    frame = KernelFrame(target, body, LlvmBuilder())

    def block() -> None:
        values = [frame.elements.root(root, plan.index, rounded=False) for root in body.roots]
        for number, scalar in enumerate(values):
            frame.store_root(number, plan.index, scalar, rounded=False)

    def unit(low: Val, high: Val) -> None:
        frame.evaluate(facts, frozenset(("row",)))
        walk_lanes(frame, plan.name, plan.extent, plan.lanes, low, high, block)

    with frame.function(symbol):
        frame.evaluate(facts, frozenset())
        walk_units(frame, plan.units, unit)
    return kernel_code(
        frame.builder,
        (Phase(symbol, plan.units.tasks, plan.units.cost),),
        widened=not facts.calls_function,
        in_place=plan.in_place,
    )
