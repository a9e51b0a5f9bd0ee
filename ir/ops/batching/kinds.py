"""What the field ``batching`` of an op record is: a function that builds the op for many elements of a batch at once.

    def _reverse(work, instruction, operands):
        dimensions = tuple(d + 1 for d in DimensionsView.of(instruction).dimensions)
        return [work.again(instruction, [operands[0].value], dimensions=dimensions)]

Values that have a batch have it in dimension 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hlojit.ir.blocks import Instruction, Value


@dataclass(frozen=True, slots=True)
class Lane:
    """A value, and whether its dimension 0 is the batch's."""

    value: Value
    batched: bool


BatchingRule = Callable[[Any, "Instruction", Sequence[Lane]], "Sequence[Value] | None"]
"""``rule(work, instruction, operands)`` returns the results, all with a batch, or None where it does not apply."""
