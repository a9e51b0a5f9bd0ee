"""Which elements of a kernel are only moved on their way from memory to memory.

Narrow floats are computed in wider ones, and what is decoded and encoded again need not have the bits that it had: a NaN is
some NaN.  What ops whose lowering ``moves`` choose or reorder is therefore moved as it stands in memory.
"""

from __future__ import annotations

from typing import final

from hlojit.ir.graph import Value
from hlojit.ir.ops.definition import Indexed, Pointwise, Trait
from hlojit.lowering.body import Body


@final
class MovedValues:
    """Of one body; what is asked for is found out once."""

    def __init__(self, body: Body):
        self._body = body
        self._known: dict[Value, bool] = {}

    def is_moved(self, value: Value) -> bool:
        """Whether elements of a value may be those of operands, arguments or constants, moved by ops that do nothing else.

        Not those of a choice between computed values: these would be encoded once for each.
        """
        stack = [value]
        while stack:
            top = stack[-1]
            if top in self._known:
                stack.pop()
                continue
            sources = self._sources(top)
            missing = [source for source in sources if source not in self._known]
            if missing:
                stack.extend(missing)
                continue
            self._known[top] = self._begins(top) or any(self._known[source] for source in sources)
            stack.pop()
        return self._known[value]

    def _begins(self, value: Value) -> bool:
        """Whether an element comes from memory: an operand's or a constant's, or a region's argument."""
        producer = value.producer
        return producer is None or value in self._body.parameters or Trait.CONSTANT in producer.op.traits

    def _sources(self, value: Value) -> tuple[Value, ...]:
        """The operands of which a value's elements are some."""
        producer = value.producer
        if self._begins(value) or producer is None or not value.tensor_type.size:
            return ()
        lowering = producer.op.lowering
        if not isinstance(lowering, (Pointwise, Indexed)) or not lowering.moves:
            return ()
        element = value.tensor_type.element_type
        return tuple(operand for operand in producer.operands if operand.tensor_type.element_type is element)
