"""hlojit.butterflies: short Fourier transforms of many columns at once, a column in each lane of a vector.

``values[A, n, m, I]`` hold A * m * I columns of n numbers.  Where a vector of neighbouring columns lies in one piece it is loaded
so, real and imaginary parts are separated in registers, and everything is straight-line code.  Columns that lie otherwise -
rows of batches, and results that change their order - go through a tile on the stack, a number at a time.
"""

from __future__ import annotations

from typing import Final

from hlojit.cpu.kernels.addresses import PARAMETERS
from hlojit.cpu.kernels.arithmetic import Arithmetic
from hlojit.cpu.kernels.update import load_buffer
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.views import ButterfliesView
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.lowering.fft_codelet import Number, multiplications, times, transform
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.target import KIND_BITS, Target

GROUP: Final = 4
"""Vectors that are one task."""
MOVE_CYCLES: Final = 1.5
"""Of a number that goes through the tile."""


def emit_butterflies(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """Operands: values, factors."""
    return _Butterflies(instruction, target, symbol).emit()


class _Butterflies:
    def __init__(self, instruction: Instruction, target: Target, symbol: str):
        kind = instruction.operands[0].tensor_type
        self.outer, self.count, self.rest, self.inner = kind.shape
        self.view = ButterfliesView.of(instruction)
        self.kind = instruction.operands[1].tensor_type.element_type.name
        self.symbol = symbol
        self.machine = target.machine
        self.fused = Arithmetic.of(self.kind, target).fused
        self.row = self.rest * self.inner
        """Columns that lie side by side."""
        self.columns = self.outer * self.row
        self.lanes = target.vector_bits // KIND_BITS[self.kind]
        while self.lanes > self.columns:
            self.lanes //= 2
        self.is_direct = self.row >= self.lanes
        self.b = LlvmBuilder(self.lanes)

    def emit(self) -> KernelCode:
        b = self.b
        with b.function(self.symbol, PARAMETERS) as (_, buffers, begin, end):
            self.source, self.factors, self.target = (load_buffer(b, buffers, number) for number in range(3))
            self.tile = b.array(self.kind, 2 * self.lanes * self.count)
            tasks = b.begin_loop(begin, end)
            groups = b.constant("i64", self._groups)
            outer, group = b.udiv(tasks.index, groups), b.urem(tasks.index, groups)
            first = b.mul(group, b.constant("i64", GROUP))
            vectors = b.constant("i64", self._vectors)
            # The last task has what is left, and its last vector overlaps the one before: they are one task's.
            is_last = b.icmp("eq", group, b.constant("i64", self._groups - 1))
            limit = b.select(is_last, vectors, b.add(first, b.constant("i64", GROUP)))
            loop = b.begin_loop(first, limit)
            self._vector(outer, loop.index)
            b.end_loop(loop)
            b.end_loop(tasks)
        return kernel_code(b, (Phase(self.symbol, self._outer * self._groups, self._cost()),))

    @property
    def _outer(self) -> int:
        return self.outer if self.is_direct else 1

    @property
    def _vectors(self) -> int:
        return -(-(self.row if self.is_direct else self.columns) // self.lanes)

    @property
    def _groups(self) -> int:
        return max(1, self._vectors // GROUP)

    def _cost(self) -> float:
        cycles = 4 * self.count + 0.6 * multiplications(self.count)
        moved = (not self.is_direct) + (not self._stores_vectors)
        cycles += moved * MOVE_CYCLES * self.count * self.lanes
        return self.machine.nanoseconds(cycles * self._vectors / self._groups)

    # ------------------------------------------------------------------------------------------------ one vector

    def _vector(self, outer: Val, number: Val) -> None:
        b = self.b
        extent = self.row if self.is_direct else self.columns
        start = b.mul(number, b.constant("i64", self.lanes))
        highest = b.constant("i64", extent - self.lanes)
        start = b.select(b.icmp("slt", start, highest), start, highest)
        if self.is_direct:
            values = [self._load_vector(outer, start, point) for point in range(self.count)]
        else:
            values = self._load_lanes(start)
        results = transform(b, self.kind, values, inverse=self.view.inverse, fused=self.fused)
        if self.rest > 1:
            results = [self._turned(value, point, start) for point, value in enumerate(results)]
        if self.view.scale != 1:
            scale = b.constant(self.kind, self.view.scale)
            results = [(b.fmul(real, scale), b.fmul(imaginary, scale)) for real, imaginary in results]
        if self._stores_vectors:
            self._store_vectors(outer, start, results)
        else:
            self._store_lanes(outer, start, results)

    def _pair(self, base: Val, index: Val) -> Val:
        """The address of a complex number."""
        return self.b.element_pointer(base, self.kind, self.b.add(index, index))

    def _load_vector(self, outer: Val, start: Val, point: int) -> Number:
        b = self.b
        row = b.add(b.mul(outer, b.constant("i64", self.count)), b.constant("i64", point))
        return self._separated(self._pair(self.source, b.add(b.mul(row, b.constant("i64", self.row)), start)))

    def _separated(self, address: Val) -> Number:
        """Complex numbers that lie in one piece, as vectors of their parts."""
        b, lanes = self.b, self.lanes
        if lanes == 1:
            return b.load(self.kind, address), b.load(self.kind, b.element_pointer(address, self.kind, Val("1", "i64")))
        wide = b.type(self.kind, 2 * lanes)
        align = KIND_BITS[self.kind] // 8
        pairs = b.emit(self.kind, 2 * lanes, f"load {wide}, ptr {address.text}, align {align}")
        return self._every_other(pairs, 0), self._every_other(pairs, 1)

    def _every_other(self, pairs: Val, first: int) -> Val:
        b, lanes = self.b, self.lanes
        wide = b.type(self.kind, 2 * lanes)
        places = ", ".join(f"i32 {2 * lane + first}" for lane in range(lanes))
        return b.emit(self.kind, lanes, f"shufflevector {wide} {pairs.text}, {wide} poison, <{lanes} x i32> <{places}>")

    def _store_pairs(self, value: Number, address: Val) -> None:
        b, lanes = self.b, self.lanes
        real, imaginary = (b.splat(part, lanes) for part in value)
        if lanes == 1:
            b.store(real, address)
            b.store(imaginary, b.element_pointer(address, self.kind, Val("1", "i64")))
            return
        narrow = b.type(self.kind, lanes)
        places = ", ".join(f"i32 {lane}, i32 {lane + lanes}" for lane in range(lanes))
        mask = f"<{2 * lanes} x i32> <{places}>"
        text = f"shufflevector {narrow} {real.text}, {narrow} {imaginary.text}, {mask}"
        b.store(b.emit(self.kind, 2 * lanes, text), address, align=KIND_BITS[self.kind] // 8)

    # ------------------------------------------------------------------------------------------------- the factors

    def _turned(self, value: Number, point: int, start: Val) -> Number:
        """Times the factor of the result's number and of the column's place in the rest."""
        if point == 0:
            return value
        b = self.b
        parts = []
        for part in range(2):
            base = (part * self.count + point) * self.rest
            parts.append(self._factor(base, start))
        return times(b, value, (parts[0], parts[1]), fused=self.fused)

    def _factor(self, base: int, start: Val) -> Val:
        b = self.b
        if self.is_direct and self.inner == 1:
            address = b.element_pointer(self.factors, self.kind, b.add(start, b.constant("i64", base)))
            return b.load(self.kind, address, vector=self.lanes > 1)
        if self._is_one_place:
            place = b.udiv(start, b.constant("i64", self.inner))
            return b.load(self.kind, b.element_pointer(self.factors, self.kind, b.add(place, b.constant("i64", base))))
        places = b.add(self._places(start), b.constant("i64", base))
        addresses = b.element_pointer(self.factors, self.kind, places)
        return b.load(self.kind, addresses) if self.lanes == 1 else b.gather(self.kind, addresses)

    @property
    def _is_one_place(self) -> bool:
        """Whether all columns of a vector have one place in the rest."""
        return self.is_direct and self.inner % self.lanes == 0

    def _places(self, start: Val) -> Val:
        """The columns' places in the rest, one a lane."""
        b = self.b
        column = start
        if self.lanes > 1:
            steps = ", ".join(f"i64 {lane}" for lane in range(self.lanes))
            column = b.add(b.splat(start, self.lanes), Val(f"<{steps}>", "i64", self.lanes))
        if not self.is_direct:
            column = b.urem(column, b.constant("i64", self.row))
        return b.udiv(column, b.constant("i64", self.inner))

    # ------------------------------------------------------------------------------------------------ the results

    @property
    def _stores_vectors(self) -> bool:
        return self.is_direct and (self.rest == 1 or self.inner % self.lanes == 0)

    def _result(self, outer: Val, column: Val, point: Val) -> Val:
        """The number of a result, of a column among those that lie side by side."""
        b = self.b
        inner = b.constant("i64", self.inner)
        place, within = b.udiv(column, inner), b.urem(column, inner)
        row = b.add(b.mul(outer, b.constant("i64", self.rest)), place)
        row = b.add(b.mul(row, b.constant("i64", self.count)), point)
        return b.add(b.mul(row, inner), within)

    def _store_vectors(self, outer: Val, start: Val, results: list[Number]) -> None:
        for point, value in enumerate(results):
            index = self._result(outer, start, self.b.constant("i64", point))
            self._store_pairs(value, self._pair(self.target, index))

    # ---------------------------------------------------------------------------------------------------- the tile

    def _lane(self, outer: Val, column: Val) -> tuple[Val, Val]:
        """The outermost index of a column, and its place among those that lie side by side."""
        if self.is_direct:
            return outer, column
        row = self.b.constant("i64", self.row)
        return self.b.udiv(column, row), self.b.urem(column, row)

    def _copy(self, target: Val, source: Val) -> None:
        """Copy one complex number."""
        b = self.b
        wide, align = ("i64", 4) if self.kind == "f32" else ("<2 x double>", 8)
        value = b.name()
        b.line(f"{value} = load {wide}, ptr {source.text}, align {align}")
        b.line(f"store {wide} {value}, ptr {target.text}, align {align}")

    def _in_tile(self, point: int, lane: Val) -> Val:
        return self._pair(self.tile, self.b.add(lane, self.b.constant("i64", point * self.lanes)))

    def _load_lanes(self, start: Val) -> list[Number]:
        b = self.b
        loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", self.lanes))
        outer, column = self._lane(start, b.add(start, loop.index))
        first = b.add(b.mul(outer, b.constant("i64", self.count * self.row)), column)
        for point in range(self.count):
            index = b.add(first, b.constant("i64", point * self.row))
            self._copy(self._in_tile(point, loop.index), self._pair(self.source, index))
        b.end_loop(loop)
        return [self._separated(self._in_tile(point, b.constant("i64", 0))) for point in range(self.count)]

    def _store_lanes(self, outer: Val, start: Val, results: list[Number]) -> None:
        b = self.b
        for point, value in enumerate(results):
            self._store_pairs(value, self._in_tile(point, b.constant("i64", 0)))
        loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", self.lanes))
        own, column = self._lane(outer, b.add(start, loop.index))
        first = self._result(own, column, b.constant("i64", 0))
        for point in range(self.count):
            index = b.add(first, b.constant("i64", point * self.inner))
            self._copy(self._pair(self.target, index), self._in_tile(point, loop.index))
        b.end_loop(loop)
