"""How threads read a product's operands: pieces of neighbours, decoded, outside of windows zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from hlojit.llvm.product_elements import Elements, storage_kind
from hlojit.llvm.text import Val
from hlojit.lowering.grid_product import Place, ProductOperand
from hlojit.lowering.index import Index, delinearized, variable
from hlojit.lowering.target import KIND_BITS
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.frame import GridFrame

WIDEST: Final = 16
"""Bytes of an access."""


def unit_bytes(kind: str) -> int:
    """Bytes of a value of a compute kind."""
    return KIND_BITS[kind] // 8


def load_vector(b: SimtBuilder, kind: str, base: Val, offset: Val, lanes: int) -> Val:
    """``lanes`` neighbours, aligned to as many bytes as they are (at most to 16)."""
    return load_vector_at(b, kind, b.element_pointer(base, kind, offset), lanes)


def load_vector_at(b: SimtBuilder, kind: str, pointer: Val, lanes: int) -> Val:
    """``load_vector`` from an address."""
    with b.of_lanes(lanes):
        align = min(WIDEST, lanes * max(8, KIND_BITS[kind]) // 8)
        return b.load(kind, pointer, vector=lanes > 1, align=align)


def store_vector(b: SimtBuilder, value: Val, base: Val, offset: Val) -> None:
    """Store all lanes of a value, aligned to as many bytes as they are (at most to 16)."""
    align = min(WIDEST, value.lanes * KIND_BITS[value.kind] // 8)
    b.store(value, b.element_pointer(base, value.kind, offset), align=align)


def spread(b: SimtBuilder, value: Val, lanes: int) -> Val:
    """A scalar in all lanes."""
    return value if value.lanes == lanes else b.splat(value, lanes)


@final
@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Multiplication and addition of one kind on a thread."""

    b: SimtBuilder
    kind: str

    def multiply_add(self, x: Val, y: Val, total: Val) -> Val:
        """``x * y + total``; of floats rounded once."""
        if self.kind in ("f32", "f64"):
            return self.b.fma(x, y, total)
        return self.b.add(self.b.mul(x, y), total)

    def add(self, x: Val, y: Val) -> Val:
        """``x + y``."""
        return self.b.fadd(x, y) if self.kind in ("f32", "f64") else self.b.add(x, y)


@final
@dataclass(frozen=True, slots=True)
class Piece:
    """What was read, before it is decoded; where it is not valid it is zero, where ``minus`` holds it is negated."""

    stored: Val
    valid: Val | None
    minus: Val | None


@final
class Reader:
    """One operand, as the threads of a kernel under construction read it."""

    def __init__(self, frame: GridFrame, operand: ProductOperand, elements: Elements):
        self.frame = frame
        self.b = frame.builder
        self.operand = operand
        self.elements = elements

    def named_place(self, batch: Index, free: tuple[str, int], term: tuple[str, int]) -> Place:
        """The place at two variables, given with their extents."""
        indices = [variable(name, 0, extent - 1) for name, extent in (free, term)]
        return self.operand.place(batch, *indices)

    def _located(self, place: Place, valid: Val | None) -> tuple[Val, Val | None]:
        """Address of a place, and whether it is valid; where it is not, the address is that of the first element."""
        b, access = self.b, self.frame.access
        conditions = [] if valid is None else [valid]
        for index, extent in place.inside:
            conditions.append(b.icmp("ult", access.uniform(index), b.constant("i64", extent)))
        for index, divisor in place.multiples:
            conditions.append(b.icmp("eq", access.uniform(index % divisor), b.constant("i64", 0)))
        found: Val | None = None
        for condition in conditions:
            found = condition if found is None else b.and_(found, condition)
        offset = access.uniform(place.linear)
        if found is not None:
            offset = b.select(found, offset, b.constant("i64", 0))
        return b.element_pointer(access.bases[self.operand.number], self.kind, offset), found

    @property
    def kind(self) -> str:
        """Of an element in memory."""
        return storage_kind(self.elements.element)

    def read(self, place: Place, lanes: int, valid: Val | None) -> Piece:
        """Neighbours from a place on; where they do not exist, others are read and are not valid."""
        b = self.b
        pointer, found = self._located(place, valid)
        stored = load_vector_at(b, self.kind, pointer, lanes)
        minus = None
        if place.minus is not None:
            minus = b.icmp("eq", self.frame.access.uniform(place.minus), b.constant("i64", 1))
        return Piece(stored, found, minus)

    def copy(self, place: Place, lanes: int, valid: Val | None, target: Val) -> None:
        """Begin to copy neighbours to an address in shared memory; zeros where they do not exist."""
        pointer, found = self._located(place, valid)
        self.b.copy_async(self.kind, lanes, target, pointer, found)

    def decoded(self, piece: Piece) -> Val:
        """A piece in the compute kind."""
        b = self.b
        value = self.elements.decode(b, piece.stored)
        if piece.minus is not None:
            value = b.select(piece.minus, b.fneg(value), value)
        if piece.valid is not None:
            value = b.select(piece.valid, value, spread(b, b.constant(value.kind, 0), value.lanes))
        return value


def vector_part(b: SimtBuilder, vector: Val, first: int, count: int) -> Val:
    """``count`` lanes of a vector."""
    if vector.lanes == count:
        return vector
    if count == 1:
        return b.extract(vector, first)
    result = Val("poison", vector.kind, count)
    for lane in range(count):
        result = b.insert(result, lane, b.extract(vector, first + lane))
    return result


def block_indices(frame: GridFrame, extents: Sequence[int]) -> tuple[Index, ...]:
    """What the number of a block is made of."""
    count = 1
    for extent in extents:
        count *= extent
    frame.access.variables["block"] = frame.builder.zext(frame.builder.block, "i64")
    return delinearized(variable("block", 0, count - 1), extents)
