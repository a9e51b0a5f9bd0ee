"""What traced values are that do not depend on arguments: buffers, tables and counters that the function makes itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

import numpy as np
from hlojit.ir.blocks import Instruction
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Value
from hlojit.ir.interpreter import evaluate_instruction

NDArray = np.ndarray[Any, Any]

_MOST_ELEMENTS: Final = 1 << 16
_MOST_INSTRUCTIONS: Final = 200


@final
class Known:
    """Evaluates values of one program, each once."""

    def __init__(self) -> None:
        self._found: dict[Value, NDArray | None] = {}

    def array(self, value: Value) -> NDArray | None:
        """The elements, or None where they depend on an argument or are too many to look at."""
        order = self._order(value)
        if order is None:
            return None
        for instruction in order:
            results = _evaluated(instruction, self._found)
            for number, result in enumerate(instruction.results):
                self._found[result] = None if results is None else results[number]
            if results is None:
                return None
        return self._found[value]

    def _order(self, value: Value) -> list[Instruction] | None:
        """The instructions to evaluate, operands first."""
        order: list[Instruction] = []
        seen: set[Instruction] = set()
        open_ = [(value, False)]
        while open_:
            each, is_ready = open_.pop()
            if each in self._found:
                if self._found[each] is None:
                    self._found[value] = None
                    return None
                continue
            producer = each.producer
            if producer is None or each.tensor_type.size > _MOST_ELEMENTS or len(seen) > _MOST_INSTRUCTIONS:
                self._found[value] = None
                return None
            if is_ready:
                if producer not in seen:
                    seen.add(producer)
                    order.append(producer)
                continue
            if producer.op.callees or any(_reads_outside(region) for region in producer.regions):
                self._found[value] = None
                return None
            open_.append((each, True))
            open_ += [(operand, False) for operand in producer.operands]
        return order


def _reads_outside(region: Any) -> bool:
    return any(
        operand.owner is not region and (operand.producer is None or operand.producer.block is not region)
        for instruction in region
        for operand in instruction.operands
    )


def _evaluated(instruction: Instruction, found: Mapping[Value, NDArray | None]) -> tuple[NDArray, ...] | None:
    operands = [found[operand] for operand in instruction.operands]
    if any(operand is None for operand in operands):
        return None
    try:
        return evaluate_instruction(instruction, operands)
    except HlojitError:
        # What has no reference semantics, or needs other processes.
        return None
