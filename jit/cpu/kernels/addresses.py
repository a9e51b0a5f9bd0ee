"""What the code of every library kernel is made of: its parameters, integers, coordinates, addresses of buffers."""

from __future__ import annotations

from collections.abc import Sequence

from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.product_elements import at, scaled

ZERO = Val("0", "i64")
PARAMETERS = [("ptr", "context"), ("ptr", "buffers"), ("i64", "begin"), ("i64", "end")]
"""The parameters of every kernel."""


def literal(value: int) -> Val:
    """An i64 literal."""
    return Val(str(value), "i64")


def buffer(b: LlvmBuilder, buffers: Val, number: int) -> Val:
    """Address number ``number`` of a kernel's table of buffers."""
    return b.emit("ptr", 1, f"load ptr, ptr {at(b, buffers, 8 * number).text}, align 8")


def minimum(b: LlvmBuilder, x: Val, y: Val) -> Val:
    """The smaller of two i64."""
    return b.intrinsic("smin", x, y)


def unflatten(b: LlvmBuilder, index: Val, extents: Sequence[int]) -> list[Val]:
    """The coordinates of a flat index in a dense box."""
    found: list[Val] = []
    for position, extent in enumerate(reversed(extents)):
        if position == len(extents) - 1:
            found.append(index)
        elif extent == 1:
            found.append(ZERO)
        else:
            found.append(b.urem(index, literal(extent)))
            index = b.udiv(index, literal(extent))
    return found[::-1]


def dot_product(b: LlvmBuilder, values: Sequence[Val], factors: Sequence[int]) -> Val:
    """``sum(value * factor)`` over i64."""
    total = ZERO
    for value, factor in zip(values, factors):
        term = scaled(b, value, factor)
        if term.text != "0":
            total = term if total.text == "0" else b.add(total, term)
    return total
