"""Kernels of threads that read across the grain: tiles through shared memory (``grid_tile_plan``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import final

from hlojit.llvm.text import Val
from hlojit.lowering.grid_tile_plan import LOCAL_U, LOCAL_V, GridTilePlan
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target
from hlojit.simt.dialect import Dialect
from hlojit.simt.frame import GridFrame


def emit_tiles(plan: GridTilePlan, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """The kernel of a plan: a block a tile."""
    return _Tiles(plan, target, dialect).emit(symbol)


@final
class _Tiles:
    def __init__(self, plan: GridTilePlan, target: Target, dialect: Dialect):
        self.plan = plan
        self.target = target
        self.frame = GridFrame(target, plan.body, dialect)

    def emit(self, symbol: str) -> KernelCode:
        plan, frame, b = self.plan, self.frame, self.frame.builder
        with frame.kernel(symbol, plan.threads):
            access = frame.access
            access.variables["row"] = b.zext(b.block, "i64")
            tiles = []
            for load in plan.loads:
                size = plan.side * plan.pitch
                access.bases.append(b.shared(load.kind, size))
                access.sizes.append(size)
                tiles.append(len(access.bases) - 1)
            if plan.is_whole:
                self._fill(tiles, guarded=False)
                b.barrier()
                self._compute(tiles, guarded=False)
            else:
                # The same answer for all threads of a block, so that the barrier stands in neither side.
                inside = self._is_inside()
                b.choose(inside, partial(self._fill, tiles, guarded=False), partial(self._fill, tiles, guarded=True))
                b.barrier()
                b.choose(
                    inside, partial(self._compute, tiles, guarded=False), partial(self._compute, tiles, guarded=True)
                )
        assert self.target.grid is not None
        moved = sum(t.nbytes for t in plan.body.operand_types) + sum(r.tensor_type.nbytes for r in plan.body.roots)
        cost = moved / self.target.grid.memory_bandwidth / plan.blocks
        return frame.code((frame.phase(symbol, plan.blocks, cost),), in_place=plan.in_place)

    def _is_inside(self) -> Val:
        """Whether the block's tile lies within the extents."""
        plan, b, access = self.plan, self.frame.builder, self.frame.access
        with self.frame.scope():
            access.variables[LOCAL_U] = access.variables[LOCAL_V] = b.constant("i64", plan.side - 1)
            u = b.icmp("slt", access.uniform(plan.u), b.constant("i64", plan.rows))
            v = b.icmp("slt", access.uniform(plan.v), b.constant("i64", plan.columns))
        return b.and_(u, v)

    def _each(self, along: str, across: str, lanes: int, run: Callable[[], None], *, guarded: bool) -> None:
        """Run for every piece of a thread, with the local variables set: ``lanes`` elements ``along`` one of them."""
        plan, b, access = self.plan, self.frame.builder, self.frame.access
        pieces = plan.side // lanes
        for first in range(0, plan.side * pieces, plan.threads):
            number = b.add(b.thread, b.constant("i32", first))
            access.variables[along] = b.zext(
                b.mul(b.urem(number, b.constant("i32", pieces)), b.constant("i32", lanes)), "i64"
            )
            access.variables[across] = b.zext(b.udiv(number, b.constant("i32", pieces)), "i64")
            access.multiples = {along: lanes}

            def piece() -> None:
                with self.frame.scope(), access.lanes(lanes, along):
                    run()

            if not guarded:
                piece()
                continue
            # Lanes divide the extent, so that a piece is inside with its first element.
            with self.frame.scope():
                u = b.icmp("slt", access.uniform(plan.u), b.constant("i64", plan.rows))
                v = b.icmp("slt", access.uniform(plan.v), b.constant("i64", plan.columns))
            b.when(b.and_(u, v), piece)

    def _fill(self, tiles: list[int], *, guarded: bool) -> None:
        """Read the tiles along ``u`` and leave them transposed."""
        access, local = self.frame.access, self.plan.local
        for load, source, lanes, tile in zip(self.plan.loads, self.plan.sources, self.plan.load_lanes, tiles):
            kept: list[tuple[Val, Val, Val]] = []

            def read() -> None:
                value = access.load(load.buffer, load.kind, source, None)  # noqa: B023  run at once
                kept.append((value, access.variables[LOCAL_U], access.variables[LOCAL_V]))  # noqa: B023
                if guarded:
                    write()

            def write() -> None:
                value, u, v = kept.pop(0)  # noqa: B023
                access.variables[LOCAL_U], access.variables[LOCAL_V] = u, v
                with self.frame.scope(), access.lanes(lanes, LOCAL_U):  # noqa: B023
                    access.store(value, tile, local)  # noqa: B023

            self._each(LOCAL_U, LOCAL_V, lanes, read, guarded=guarded)
            while kept:
                write()

    def _compute(self, tiles: list[int], *, guarded: bool) -> None:
        """The roots along ``v``, the staged loads out of the tiles."""
        plan, frame = self.plan, self.frame
        for load, source, tile in zip(plan.loads, plan.sources, tiles):
            frame.access.staged[load.buffer, source] = tile, plan.local

        def piece() -> None:
            scalars = [frame.elements.root(root, plan.index, rounded=False) for root in plan.body.roots]
            for number, scalar in enumerate(scalars):
                frame.store_root(number, plan.index, scalar, rounded=False)

        self._each(LOCAL_V, LOCAL_U, plan.lanes, piece, guarded=guarded)
