"""Facts about graphs that several passes need: effects, blocks, constants.

>>> splat_of(value)      # the one element of a splat constant, or None
np.float32(0.0)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hlojit.ir.attributes import Dense
from hlojit.ir.graph import Block, Function, Instruction, Module, Value
from hlojit.ir.ops.definition import Structural, Trait
from hlojit.ir.types import TensorType


def blocks_inner_first(module: Module) -> list[Block]:
    """All blocks of the module; a nested block comes before the one that holds it."""
    outer_first: list[Block] = []
    for function in module.functions.values():
        outer_first.extend(blocks_of(function))
    outer_first.reverse()
    return outer_first


def blocks_of(function: Function) -> list[Block]:
    """All blocks of one function; a nested block comes after the one that holds it."""
    found: list[Block] = []
    stack = [function.body]
    while stack:
        block = stack.pop()
        found.append(block)
        for instruction in block:
            if instruction.regions:
                stack.extend(reversed(instruction.regions))
    return found


def deepest_region(function: Function) -> int:
    """How deep regions nest in the function's body."""
    deepest = 0
    stack = [(function.body, 0)]
    while stack:
        block, depth = stack.pop()
        deepest = max(deepest, depth)
        for instruction in block:
            if instruction.regions:
                stack.extend((region, depth + 1) for region in instruction.regions)
    return deepest


def is_control_flow(instruction: Instruction) -> bool:
    """Whether the regions hold code that the host program runs (``while``, ``if``, ``case``), not a combiner."""
    return isinstance(instruction.op.lowering, Structural) and bool(instruction.regions)


def program_blocks(function: Function) -> Iterator[Block]:
    """The blocks that the host program runs: body and regions of control flow, no combiners; outer before inner."""
    stack = [function.body]
    while stack:
        block = stack.pop()
        yield block
        for instruction in block:
            if instruction.regions and is_control_flow(instruction):
                stack.extend(instruction.regions)


def has_own_effect(instruction: Instruction) -> bool:
    """Whether the instruction itself has an effect, its regions and callees left aside."""
    record = instruction.op
    if record.effect is not None:
        return record.effect(instruction)
    return Trait.EFFECT in record.traits


class Effects:
    """Which instructions have effects, counting those inside their regions and in the functions that they call.

    Facts are computed once, in one walk over the module, and hold until code with effects is added.
    """

    def __init__(self, module: Module):
        self._impure_functions: set[str] = set()
        self._impure: set[Instruction] = set()
        callers: dict[str, list[Instruction]] = {}
        homes: dict[Instruction, Function] = {}
        pending: list[tuple[Instruction, Function]] = []
        for function in module.functions.values():
            if function.is_declaration:
                self._impure_functions.add(function.name)
            for instruction in function.body.walk():
                if instruction.op.callees:
                    homes[instruction] = function
                    for callee in instruction.callees:
                        callers.setdefault(callee, []).append(instruction)
                if has_own_effect(instruction):
                    pending.append((instruction, function))
        for name in [*self._impure_functions, *(name for name in callers if name not in module.functions)]:
            pending.extend((call, homes[call]) for call in callers.get(name, ()))
        while pending:
            instruction, function = pending.pop()
            self._mark(instruction)
            if function.name not in self._impure_functions:
                self._impure_functions.add(function.name)
                pending.extend((call, homes[call]) for call in callers.get(function.name, ()))

    def _mark(self, instruction: Instruction) -> None:
        current: Instruction | None = instruction
        while current is not None and current not in self._impure:
            self._impure.add(current)
            parent = current.block.parent if current.block is not None else None
            current = parent if isinstance(parent, Instruction) else None

    def has_effect(self, instruction: Instruction) -> bool:
        """Whether running the instruction may be observed other than through its results."""
        return instruction in self._impure

    def transfer(self, old: Instruction, new: Instruction) -> None:
        """Tell that ``new`` takes the place of ``old``."""
        if old in self._impure:
            self._impure.add(new)


def is_terminator(instruction: Instruction) -> bool:
    """Whether the instruction ends its block."""
    return Trait.TERMINATOR in instruction.op.traits


def is_constant(instruction: Instruction | None) -> bool:
    """Whether the instruction is a constant."""
    return instruction is not None and Trait.CONSTANT in instruction.op.traits


def constant_of(value: Value) -> Dense | None:
    """The elements of a constant, or None if the value is not one."""
    producer = value.owner
    if isinstance(producer, Instruction) and Trait.CONSTANT in producer.op.traits:
        dense = producer.attributes.get("value")
        return dense if isinstance(dense, Dense) else None
    return None


def splat_of(value: Value) -> Any:
    """The one element of a splat constant as a NumPy scalar, or None."""
    dense = constant_of(value)
    if dense is None or not (dense.is_splat or dense.array.size == 1):
        return None
    return dense.splat_value


def splat_dense(type: TensorType, element: Any) -> Dense:
    """The splat constant of ``type``: one element in memory."""
    scalar = np.asarray(element, dtype=type.element_type.storage)
    return Dense(type, np.broadcast_to(scalar, type.shape))


def int_constant_of(value: Value) -> int | None:
    """The value of a scalar (or one-element) integer constant, or None."""
    dense = constant_of(value)
    if dense is None or dense.array.size != 1 or dense.array.dtype.kind not in "iub":
        return None
    return int(dense.array.reshape(()).item())
