"""Between which integers the numbers of a traced function lie: what cannot fail when the function runs is not checked there.

    for i in range(len(a) - 1):
        d[i] = a[i + 1] - a[i]          # neither the sum nor an index can be wrong

What is noted holds where it is noted, and in the regions in there: a check that a branch makes says nothing of what comes behind
the branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np
from hlojit.ir.formats import BooleanType, IntegerType
from hlojit.ir.graph import Value
from hlojit.tracing.frames import Frame

Range = tuple[int, int]
"""The least and the greatest that a number may be."""

INT64: Final[Range] = (-(2**63), 2**63 - 1)


@final
class Ranges:
    """What is known of the integers of one traced function."""

    def __init__(self, frames: Sequence[Frame]):
        self._frames = frames
        """The regions that are recorded, innermost last."""
        self._noted: dict[Value, list[tuple[Frame | None, Range]]] = {}

    def note(self, value: Value, low: int, high: int) -> None:
        """A number of 64 bits lies between these, from here on in this region."""
        frame = self._frames[-1] if self._frames else None
        self._noted.setdefault(value, []).append((frame, (low, high)))

    def of(self, value: Value) -> Range:
        """The range of an integer or truth value, or of all elements of an array."""
        low, high = _of_type(value)
        producer = value.producer
        if producer is not None and producer.name == "stablehlo.constant":
            array = np.asarray(producer.attributes["value"].array)
            return (int(array.min()), int(array.max())) if array.size else (low, high)
        if producer is not None and producer.name == "stablehlo.convert":
            below, above = _of_type(producer.operands[0])
            if low <= below and above <= high:
                low, high = below, above
        for frame, (least, most) in self._noted.get(value, ()):
            if frame is None or frame in self._frames:
                low, high = max(low, least), min(high, most)
        return low, high

    def known(self, value: Value) -> int | None:
        """The number, where there is but one that it may be."""
        low, high = self.of(value)
        return low if low == high else None


def fits(range: Range, within: Range = INT64) -> bool:
    """Whether all numbers of a range lie within another one."""
    return within[0] <= range[0] and range[1] <= within[1]


def of_sum(x: Range, y: Range) -> Range:
    """Of x + y."""
    return x[0] + y[0], x[1] + y[1]


def of_difference(x: Range, y: Range) -> Range:
    """Of x - y."""
    return x[0] - y[1], x[1] - y[0]


def of_product(x: Range, y: Range) -> Range:
    """Of x * y."""
    corners = [a * b for a in x for b in y]
    return min(corners), max(corners)


def of_quotient(x: Range, y: Range) -> Range:
    """Of x // y, where y is positive."""
    ends = [a // b for a in x for b in y]
    return min(ends), max(ends)


def _of_type(value: Value) -> Range:
    """The numbers of the element type; what is no integer of up to 64 bits may be anything."""
    element = value.tensor_type.element_type
    if isinstance(element, BooleanType):
        return 0, 1
    if isinstance(element, IntegerType):
        return (
            (-(1 << (element.bits - 1)), (1 << (element.bits - 1)) - 1)
            if element.signed
            else (0, (1 << element.bits) - 1)
        )
    return -(1 << 64), 1 << 64
