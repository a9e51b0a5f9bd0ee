"""Whether what is traced is going to be transformed, and parts whose derivative is not that of their instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from hlojit.ir.builder import Builder
from hlojit.ir.graph import Block
from hlojit.ir.ops.custom_derivatives import StackRule, with_rule
from hlojit.ir.ops.derivatives.kinds import Derivative
from hlojit.tracing.frames import recording
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

_depth: ContextVar[int] = ContextVar("transformations around what is traced", default=0)


def is_transformed() -> bool:
    """Whether what is traced is going to be transformed."""
    return _depth.get() > 0


@contextmanager
def transformed() -> Iterator[None]:
    """Around what is traced in order to be transformed."""
    token = _depth.set(_depth.get() + 1)
    try:
        yield
    finally:
        _depth.reset(token)


def with_derivative(
    ops: Operations, function: Callable[[Tracer], Sequence[Any]], operand: Tracer, derivative: Derivative
) -> Sequence[Any]:
    """``function(operand)``, which gives arrays, with a rule for them together; the rule holds for stacks of operands, too."""
    if not is_transformed():
        return function(operand)
    block = Block([operand.value.type])
    with recording(ops, block) as frame:
        values = [ops.tracer(each).value for each in function(ops.wrap(block.arguments[0]))]
    codes = [] if frame.code is None else [frame.code]
    Builder(block).return_(*values, *codes)
    results = with_rule(ops.builder, [operand.value], block, StackRule(derivative))
    if codes:
        ops.checks.follow(ops.builder, results[-1])
    return [ops.wrap(value) for value in results[: len(values)]]
