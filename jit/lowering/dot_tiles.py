"""The tile of a product: how many rows and vectors of sums a micro-kernel keeps in registers."""

from __future__ import annotations

from dataclasses import dataclass

from hlojit.lowering.dot_problem import ceil_divide
from hlojit.lowering.target import KIND_BITS, Target

LATENCY_CHAINS = 8
FEW_TERMS = 4
"""Sums of at most so many products are what the plain formula gives: every product and every sum rounded, in order.  They
take no longer than what is loaded and stored for them, so neither fused instructions nor interleaved sums gain anything."""
"""Independent multiply-adds that keep the units busy (latency times units)."""
TALLEST_TILE = 8
"""Rows of the largest tile; products of no more rows go over the right operand once."""
EDGE_COST = 0.01


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows of a tile and native vectors across it."""

    rows: int
    vectors: int


def choose_shape(
    rows: int, columns: int, kind: str, target: Target, *, streamed: bool = False, interleaves: bool = True
) -> Shape:
    """The tile that computes rows x columns in the least estimated time within the registers.

    Per step of k a tile of r x v costs r*v multiply-adds on two units and r + v loads on two ports; the panel's v
    vectors come from the second-level cache when there are several tiles of rows.  Where tiles interleave their sums,
    how many a tile holds decides the order of combination: then by the instruction set alone.
    """
    lanes = target.native_lanes(kind)
    panel_load = 0.7
    if not interleaves:
        machine = target.machine
        panel_load = max(panel_load, lanes * KIND_BITS[kind] / 8 / machine.bandwidth(1) * machine.multiply_adds / 2)
    vectors = ceil_divide(columns, lanes)
    best = (float("inf"), 0, Shape(1, 1))
    for r in range(rows if streamed else 1, min(rows, TALLEST_TILE) + 1):
        for v in range(1, min(vectors, 24) + 1):
            if r * v + v + 1 > target.vector_registers - 1 and not (r == 1 and v <= target.vector_registers - 8):
                continue
            cost = 0.0
            for count_r, height in ((rows // r, r), (1, rows % r)):
                for count_v, width in ((vectors // v, v), (1, vectors % v)):
                    if height and width:
                        chain = 4 * min(1.0, height * width / LATENCY_CHAINS) if interleaves else 4.0
                        step = max(height * width / 2, (height + width) / 2, chain)
                        panel = panel_load * width if rows > r else 0.0
                        cost += count_r * count_v * (max(step, panel) + 0.35)
            if streamed:
                cost *= 1 + 0.3 / v
            # An edge is one more function to compile.
            cost *= 1 + EDGE_COST * ((rows % r > 0) + (vectors % v > 0))
            rank = (cost, -r * v, Shape(r, v))
            if rank[:2] < best[:2]:
                best = rank
    return best[2]
