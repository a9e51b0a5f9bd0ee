"""What has to hold of sizes for a call, and for what was found of them while a program was compiled: plain data.

facts = SizeFacts(checks=(Check(apply("equal", a, b), "{0} and {1} must be equal", (a, b)),))
facts.complaint([(3, 4), (5,)], {})         # "3 and 5 must be equal"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hlojit.ir.sizes import Size, evaluate, text


@dataclass(frozen=True, slots=True)
class Check:
    """What has to hold of the arguments: ``condition`` is not 0; otherwise ``message.format`` of the ``sizes``."""

    condition: Size
    message: str
    sizes: tuple[Size, ...] = ()


@dataclass(frozen=True, slots=True)
class SizeRange:
    """What a size is taken to lie between, and the instruction that needs it; numbers are text, for some take 65 bits."""

    size: Size
    low: str
    high: str
    where: str


@dataclass(frozen=True, slots=True)
class SizeFacts:
    """What calls must fulfil (``checks``), and what was found holds only where they do (``assumptions``, ``ranges``)."""

    checks: tuple[Check, ...] = ()
    assumptions: tuple[Check, ...] = ()
    ranges: tuple[SizeRange, ...] = ()

    def complaint(self, extents: Sequence[Sequence[int]], values: Mapping[int, Any]) -> str | None:
        """What does not hold of arguments of these shapes, some with known elements; None if all does."""
        return _broken(self.checks, extents, known_elements(values))

    def unfit(self, extents: Sequence[Sequence[int]], values: Mapping[int, Any]) -> str | None:
        """Why what was found does not hold for arguments of these shapes - which number wraps, for one; None if it does."""
        elements = known_elements(values)
        for each in self.ranges:
            found = evaluate(each.size, extents, elements)
            if not int(each.low) <= found <= int(each.high):
                return f"the size {found}, {text(each.size)}, does not fit its type in {each.where}, and wraps there"
        return _broken(self.assumptions, extents, elements)


def known_elements(values: Mapping[int, Any]) -> dict[int, list[int]]:
    """Elements of arguments in row-major order."""
    return {number: [int(each) for each in np.reshape(array, -1)] for number, array in values.items()}


def _broken(
    checks: Sequence[Check], extents: Sequence[Sequence[int]], elements: Mapping[int, Sequence[int]]
) -> str | None:
    for check in checks:
        if not evaluate(check.condition, extents, elements):
            return check.message.format(*(evaluate(size, extents, elements) for size in check.sizes))
    return None
