"""A fusion that is a sort of which only some neighbours in each line are wanted, or only some results.

    %0 = iota dim = 1                                 =>   sort: the instruction in the body; sources: (0, None);
    %1:2 = sort(%x, %0) along 1                            first: 0; count: 3; outputs: (0, 1)
    %2 = slice %1#0 [0:8, 0:3]
    %3 = slice %1#1 [0:8, 0:3]

Elements' numbers along the dimension are no operands: a kernel knows them.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.definition import Trait
from hlojit.ir.ops.views import SliceView, SortView
from hlojit.lowering.body import Body


@dataclass(frozen=True)
class Selection:
    """``count`` elements of sorted lines, from ``first`` on."""

    sort: Instruction
    sources: tuple[int | None, ...]
    """The fusion's operand that each operand of the sort is; None: elements' numbers."""
    outputs: tuple[int, ...]
    """The operand of the sort that each root is sorted from."""
    count: int
    first: int

    @staticmethod
    def of(body: Body) -> Selection | None:
        """The selection that a body is, or None."""
        found = [sorted_value(root, body) for root in body.roots]
        values = [value for value in found if value is not None]
        if not values or len(values) < len(found):
            return None
        sort = values[0].producer
        assert sort is not None
        dimension = SortView.of(sort).position(sort.operands[0].tensor_type.rank)
        sources = tuple(body.parameters.get(operand) for operand in sort.operands)
        outputs = tuple(value.index for value in values)
        part = body.roots[0].producer
        assert part is not None
        first = SliceView.of(part).starts[dimension]
        return Selection(sort, sources, outputs, body.roots[0].tensor_type.shape[dimension], first)


def sorted_value(root: Value, body: Body) -> Value | None:
    """The result of a sort in the body of which a root is a part."""
    part = root.producer
    if part is None or root in body.parameters or Trait.PART not in part.op.traits:
        return None
    (value,) = part.operands
    sort = value.producer
    return value if sort is not None and value not in body.parameters and Trait.SORTS in sort.op.traits else None
