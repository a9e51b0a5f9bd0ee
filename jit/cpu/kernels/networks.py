"""Functions that sort few integers by networks, of as many vectors as they fill.

networks = Networks(b, form, "name", 16)
networks.emit()
networks.call(source, target, n)        # n is at most networks.most; both may be one
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from hlojit.cpu.kernels.addresses import ZERO, literal
from hlojit.cpu.kernels.merging_networks import MergingNetwork
from hlojit.cpu.kernels.partitioning import VectorForm, first_lanes, load_vector
from hlojit.cpu.kernels.sort_networks import sort_block
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.lowering.target import KIND_BITS

MERGED = 2
"""Of the largest networks in registers, merged in memory: together they sort what is not partitioned any more."""


def copy_numbers(b: LlvmBuilder, kind: str, source: Val, target: Val, n: Val) -> None:
    """Emit a copy in memory."""
    b.declare("llvm.memcpy", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    nbytes = b.mul(n, literal(KIND_BITS[kind] // 8))
    b.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target.text}, ptr {source.text}, i64 {nbytes.text}, i1 false)")


@final
@dataclass(frozen=True)
class Networks:
    """Emits the functions of one kind of integer; symbols begin with ``prefix``."""

    b: LlvmBuilder
    form: VectorForm
    prefix: str
    rows: int
    """Vectors of the largest network in registers."""
    signed: bool = True

    @property
    def kind(self) -> str:
        """Of the numbers."""
        return self.form.kind

    @property
    def sign(self) -> str:
        """Of LLVM's minimum and maximum."""
        return "s" if self.signed else "u"

    @property
    def largest(self) -> Val:
        """What comes last."""
        return self.b.constant(self.kind, (1 << (KIND_BITS[self.kind] - 1)) - 1 if self.signed else -1)

    @property
    def most(self) -> int:
        """Numbers that are sorted."""
        return MERGED * self.rows * self.form.lanes

    @property
    def merging(self) -> MergingNetwork:
        """What merges networks."""
        return MergingNetwork(self.b, self.kind, self.form.lanes, self.rows, f"{self.prefix}_merge", self.sign)

    def call(self, source: Val, target: Val, n: Val) -> None:
        """Sort at most ``most`` numbers."""
        self.b.line(f"call void @{self.prefix}_base(ptr {source.text}, ptr {target.text}, i64 {n.text})")

    def emit(self) -> None:
        """All functions."""
        rows = self.rows
        sizes = []
        while rows:
            sizes.append(rows)
            self._emit_network(rows)
            rows //= 2
        self.merging.emit()
        self._emit_merged()
        self._emit_base(sizes[::-1])

    def _emit_network(self, rows: int) -> None:
        """``network(source, target, n)`` for more than half of what ``rows`` vectors hold."""
        b, kind, lanes = self.b, self.kind, self.form.lanes
        name = f"{self.prefix}_network{rows}"
        with b.function(name, [("ptr", "source"), ("ptr", "target"), ("i64", "n")], linkage="internal") as (x, y, n):
            if not self.form.has_masks:
                padded = b.array(kind, rows * lanes)
                fill = b.splat(self.largest, lanes)
                for row in range(rows):
                    b.store(fill, b.element_pointer(padded, kind, literal(row * lanes)))
                copy_numbers(b, kind, x, padded, n)
                loaded = [self._row(padded, row) for row in range(rows)]
                for row, vector in enumerate(sort_block(b, loaded, self.sign)):
                    b.store(vector, b.element_pointer(padded, kind, literal(row * lanes)))
                copy_numbers(b, kind, padded, y, n)
                return
            full = 0 if rows == 1 else rows // 2
            masks = {row: first_lanes(b, b.sub(n, literal(row * lanes)), lanes, kind) for row in range(full, rows)}
            loaded = [self._row(x, row) for row in range(full)]
            for row, mask in masks.items():
                part = b.masked_load(kind, b.element_pointer(x, kind, literal(row * lanes)), mask)
                loaded.append(b.select(mask, part, self.largest))
            for row, vector in enumerate(sort_block(b, loaded, self.sign)):
                place = b.element_pointer(y, kind, literal(row * lanes))
                if row < full:
                    b.store(vector, place)
                else:
                    b.masked_store(vector, place, masks[row])

    def _row(self, base: Val, row: int) -> Val:
        place = self.b.element_pointer(base, self.kind, literal(row * self.form.lanes))
        return load_vector(self.b, place, self.kind, self.form.lanes)

    def _emit_merged(self) -> None:
        """``merged(source, target, n)`` for more than the largest network sorts."""
        b, kind = self.b, self.kind
        part, rows = literal(self.rows * self.form.lanes), MERGED * self.rows
        name = f"{self.prefix}_merged"
        with b.function(name, [("ptr", "source"), ("ptr", "target"), ("i64", "n")], linkage="internal") as (x, y, n):
            padded = b.array(kind, self.most)
            # As many as there may be need no room for more.
            is_whole = b.icmp("eq", n, literal(self.most))
            data = b.select(is_whole, y, padded)
            fill = b.splat(self.largest, self.form.lanes)
            for row in range(self.rows, rows):
                b.store(fill, b.element_pointer(padded, kind, literal(row * self.form.lanes)))
            self.call(x, data, part)
            self.call(b.element_pointer(x, kind, part), b.element_pointer(data, kind, part), b.sub(n, part))
            self.merging.call(data, literal(rows))
            copy_numbers(b, kind, data, y, b.select(is_whole, ZERO, n))

    def _emit_base(self, sizes: list[int]) -> None:
        """``base(source, target, n)``: the smallest network that is large enough."""
        b = self.b
        networks = [(rows * self.form.lanes, f"network{rows}") for rows in sizes] + [(self.most, "merged")]
        name = f"{self.prefix}_base"
        with b.function(name, [("ptr", "source"), ("ptr", "target"), ("i64", "n")], linkage="internal") as (x, y, n):
            end = b.fresh_label("end")
            for most, network in networks:
                here, other = b.fresh_label("here"), b.fresh_label("other")
                if most == self.most:
                    b.branch(here)
                else:
                    b.branch_if(b.icmp("sle", n, literal(most)), here, other)
                b.begin_block(here)
                b.line(f"call void @{self.prefix}_{network}(ptr {x.text}, ptr {y.text}, i64 {n.text})")
                b.branch(end)
                if most != self.most:
                    b.begin_block(other)
            b.begin_block(end)
