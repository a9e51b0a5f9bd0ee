"""Kernels of threads whose roots all have one shape and are computed element by element."""

from __future__ import annotations

from functools import partial

from hlojit.ir.scalar.builder import Scalar
from hlojit.llvm.text import Val
from hlojit.lowering.body import Body
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.grid_plan import GridPlan, plan_grid
from hlojit.lowering.grid_tile_plan import plan_grid_tiles
from hlojit.lowering.index import Index, variable
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.loop_plan import plan_space
from hlojit.lowering.space import Space
from hlojit.lowering.target import Target
from hlojit.lowering.tile_plan import find_tiles
from hlojit.simt.dialect import Dialect
from hlojit.simt.frame import GridFrame
from hlojit.simt.tiles import emit_tiles


def emit_elementwise(body: Body, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """A kernel whose roots all have one shape."""
    assert target.grid is not None
    space, facts = plan_space(body, Space.of_shape(body.roots[0].tensor_type.shape), body.roots)
    found = find_tiles(space, facts)
    tiles = plan_grid_tiles(body, target.grid, space, facts, found) if found is not None else None
    if tiles is not None:
        return emit_tiles(tiles, target, dialect, symbol)
    plan = plan_grid(body, target.grid, space, facts)
    frame = GridFrame(target, body, dialect)
    phase = _Elementwise(plan, frame, target.grid).emit(symbol)
    return frame.code((phase,), in_place=plan.in_place)


def emit_loop_phase(frame: GridFrame, symbol: str, workspace_bytes: int) -> Phase:
    """One more kernel of a frame's module, which reads an operand in the workspace."""
    body, machine = frame.body, frame.target.grid
    assert machine is not None
    space, facts = plan_space(body, Space.of_shape(body.roots[0].tensor_type.shape), body.roots)
    return _Elementwise(plan_grid(body, machine, space, facts), frame, machine).emit(symbol, workspace_bytes)


class _Elementwise:
    def __init__(self, plan: GridPlan, frame: GridFrame, machine: GridMachine):
        self.plan = plan
        self.machine = machine
        self.frame = frame

    def emit(self, symbol: str, workspace_bytes: int = 0) -> Phase:
        plan, b = self.plan, self.frame.builder
        with self.frame.kernel(symbol, plan.threads, workspace_bytes=workspace_bytes):
            step = plan.threads * plan.unroll
            first = b.add(b.mul(b.zext(b.block, "i64"), b.constant("i64", step)), b.zext(b.thread, "i64"))
            units = [b.add(first, b.constant("i64", n * plan.threads)) for n in range(plan.unroll)]
            if plan.whole % step == 0 and not plan.tail:
                self._pieces(units)
            elif plan.blocks == 1:
                self._last_block(units)
            else:
                end = b.mul(b.add(b.zext(b.block, "i64"), b.constant("i64", 1)), b.constant("i64", step))
                inside = b.icmp("sle", end, b.constant("i64", plan.whole))
                b.choose(inside, partial(self._pieces, units), partial(self._last_block, units))
        moved = sum(root.tensor_type.nbytes for root in plan.body.roots) + sum(
            t.nbytes for t in plan.body.operand_types
        )
        cost = moved / self.machine.memory_bandwidth / plan.blocks
        return self.frame.phase(symbol, plan.blocks, cost)

    def _pieces(self, units: list[Val]) -> None:
        """Whole pieces of a thread: everything is read and computed before anything is stored."""
        with self.frame.scope():
            indices = [self._place(unit, number) for number, unit in enumerate(units)]
            values = []
            for number, index in enumerate(indices):
                with self.frame.access.lanes(self.plan.lanes, self._name(number)):
                    values.append(self._values(index))
            for number, (index, scalars) in enumerate(zip(indices, values)):
                with self.frame.access.lanes(self.plan.lanes, self._name(number)):
                    self._store(index, scalars)

    def _name(self, number: int) -> str:
        """The innermost variable of a thread's piece: pieces have names of their own, so that all are alive at once."""
        return f"{self.plan.name}.{number}"

    def _place(self, unit: Val, number: int) -> tuple[Index, ...]:
        """Set the variables of a piece; returns the roots' index."""
        plan, b, access = self.plan, self.frame.builder, self.frame.access
        row, name = f"row.{number}", self._name(number)
        if plan.rows == 1:
            access.variables[row] = b.constant("i64", 0)
            piece = unit
        else:
            narrow = b.trunc(unit, "i32") if plan.units < 1 << 31 else unit
            pieces = b.constant(narrow.kind, plan.pieces)
            access.variables[row] = b.zext(b.udiv(narrow, pieces), "i64")
            piece = b.zext(b.urem(narrow, pieces), "i64")
        access.variables[name] = b.mul(piece, b.constant("i64", plan.lanes))
        access.multiples[name] = plan.lanes
        mapping = {"row": variable(row, 0, plan.rows - 1), plan.name: variable(name, 0, plan.extent - 1)}
        return tuple(position.substitute(mapping) for position in plan.index)

    def _values(self, index: tuple[Index, ...]) -> list[Scalar]:
        return [self.frame.elements.root(root, index, rounded=False) for root in self.plan.body.roots]

    def _store(self, index: tuple[Index, ...], scalars: list[Scalar]) -> None:
        for number, scalar in enumerate(scalars):
            self.frame.store_root(number, index, scalar, rounded=False)

    def _last_block(self, units: list[Val]) -> None:
        """The pieces that exist, one after the other, and the elements that are left, one a thread."""
        plan, b = self.plan, self.frame.builder
        whole = b.constant("i64", plan.whole)
        for unit in units:
            inside = b.icmp("slt", unit, whole)
            if plan.tail:
                b.choose(inside, partial(self._pieces, [unit]), partial(self._element, unit))
            else:
                b.when(inside, partial(self._pieces, [unit]))

    def _element(self, unit: Val) -> None:
        plan, b, access = self.plan, self.frame.builder, self.frame.access
        element = b.add(b.sub(unit, b.constant("i64", plan.whole)), b.constant("i64", plan.extent - plan.tail))

        def run() -> None:
            with self.frame.scope():
                access.variables["row"], access.variables[plan.name] = b.constant("i64", 0), element
                access.multiples.pop(plan.name, None)
                self._store(plan.index, self._values(plan.index))

        b.when(b.icmp("slt", element, b.constant("i64", plan.extent)), run)
