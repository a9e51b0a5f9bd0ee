"""Which operands a kernel may overwrite with its result.

An elementwise kernel reads element i of such an operand before it writes element i of the result, and never looks at it
again; an update (dynamic_update_slice, scatter) changes its first operand where it lies.
"""

from __future__ import annotations

from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.definition import Kernel, Pointwise

UPDATES = ("dynamic_update_slice", "scatter")


def safe_in_place_operands(instruction: Instruction) -> dict[int, tuple[int, ...]]:
    """Operand numbers that each result (by number) may overwrite; results without any are left out."""
    lowering = instruction.op.lowering
    if isinstance(lowering, Pointwise):
        return _matching(instruction, set(range(len(instruction.operands))))
    if not isinstance(lowering, Kernel):
        return {}
    if lowering.name in UPDATES:
        return {number: (number,) for number in range(len(instruction.results))}
    if lowering.name != "fusion" or len(instruction.results) != 1:
        return {}
    return _matching(instruction, _pointwise_arguments(instruction))


def _matching(instruction: Instruction, numbers: set[int]) -> dict[int, tuple[int, ...]]:
    """Of ``numbers``, the operands of the result's shape and element width."""
    result = instruction.results[0].tensor_type
    fitting = tuple(
        number
        for number in sorted(numbers)
        if instruction.operands[number].tensor_type.shape == result.shape
        and instruction.operands[number].tensor_type.element_type.itemsize == result.element_type.itemsize
    )
    return {0: fitting} if fitting else {}


def _pointwise_arguments(fusion: Instruction) -> set[int]:
    """Arguments of a fusion that every reader reads at the very index that is being computed."""
    body = fusion.regions[0]
    tainted: set[Value] = set()
    for instruction in reversed(body):
        if instruction is body.terminator:
            continue
        # A value is read elsewhere if its reader moves elements, or is itself read elsewhere.
        moves = not isinstance(instruction.op.lowering, Pointwise) or any(r in tainted for r in instruction.results)
        if moves:
            tainted.update(instruction.operands)
    return {number for number, argument in enumerate(body.arguments) if argument not in tainted}
