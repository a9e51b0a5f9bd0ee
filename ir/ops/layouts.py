"""Layouts of the operands and results of custom calls: how their tensors lie in memory.

    operand_layouts = [dense<[0, 1]> : tensor<2xindex>]      the first dimension is the fastest: column-major

names dimensions from the fastest to the slowest.  Memory is row-major everywhere else in hlojit: what a call takes in
another layout is transposed before it, and what it gives behind it, so that the call itself sees row-major arrays of the
*physical* shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hlojit.ir.attributes import ArrayAttr, Attribute, Dense, DenseArrayAttr
from hlojit.ir.graph import Value
from hlojit.ir.types import TensorType, Type

Order = tuple[int, ...]
"""The dimensions of a tensor from the slowest to the fastest; of row-major memory 0, 1, 2, ..."""


class LayoutError(ValueError):
    """A layout that is none of its tensor."""


def orders(attributes: Mapping[str, Any], name: str, types: Sequence[Type]) -> tuple[Order, ...]:
    """How tensors of ``types`` lie in memory, by the attribute ``operand_layouts`` or ``result_layouts`` (``name``).

    Raises ``LayoutError`` where the attribute does not say so for every tensor.
    """
    attribute = attributes.get(name)
    if attribute is None:
        return tuple(tuple(range(_rank(kind))) for kind in types)
    if not isinstance(attribute, ArrayAttr) or len(attribute.elements) != len(types):
        raise LayoutError(f"{name} is no list of {len(types)} layouts")
    return tuple(_order(name, layout, _rank(kind)) for layout, kind in zip(attribute.elements, types))


def _rank(kind: Type) -> int:
    return kind.rank if isinstance(kind, TensorType) else 0


def _order(name: str, layout: Attribute, rank: int) -> Order:
    if isinstance(layout, Dense):
        fastest_first = tuple(int(number) for number in layout.array.reshape(-1))
    elif isinstance(layout, DenseArrayAttr):
        fastest_first = tuple(int(number) for number in layout.values)
    else:
        raise LayoutError(f"{name} holds {layout}, which is no list of dimensions")
    if sorted(fastest_first) != list(range(rank)):
        raise LayoutError(f"{name} holds {list(fastest_first)}, which is no order of {rank} dimensions")
    return fastest_first[::-1]


def column_major(rank: int) -> Order:
    """Matrices (the last two dimensions) by columns, one behind the other."""
    return (*range(rank - 2), rank - 1, rank - 2) if rank >= 2 else tuple(range(rank))


def physical(kind: TensorType, order: Order) -> TensorType:
    """The row-major tensor that has the memory of a tensor in another order."""
    return kind.with_shape([kind.shape[dimension] for dimension in order])


def logical(kind: TensorType, order: Order) -> TensorType:
    """The tensor whose memory a row-major one is."""
    shape = [0] * kind.rank
    for extent, dimension in zip(kind.shape, order):
        shape[dimension] = extent
    return kind.with_shape(shape)


def to_physical(builder: Any, value: Value, order: Order) -> Value:
    """The value as a row-major tensor of the physical shape."""
    if order == tuple(range(len(order))):
        return value
    moved: Value = builder.transpose(value, permutation=order)
    return moved


def from_physical(builder: Any, value: Value, order: Order) -> Value:
    """The tensor whose memory ``value`` is."""
    if order == tuple(range(len(order))):
        return value
    inverse = sorted(range(len(order)), key=order.__getitem__)
    moved: Value = builder.transpose(value, permutation=tuple(inverse))
    return moved
