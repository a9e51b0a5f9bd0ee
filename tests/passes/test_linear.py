"""Work of the passes grows linearly with the size of the program: counted, not timed."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Function, Module, Value
from hlojit.ir.passes.fusion_plan import FusionLimits, FusionPlan
from hlojit.ir.passes.pass_manager import order_passes
from hlojit.ir.passes.registry import default_passes
from hlojit.ir.passes.rewriting import Effect, Rewriter, rule_table
from hlojit.ir.passes.rules import ALL_RULES
from hlojit.ir.types import tensor

TYPE = tensor((16, 32), "f32")
ROW = tensor((16,), "f32")


def chain(builder: Builder, x: Value, size: int) -> Value:
    """Every instruction reads the one before."""
    for number in range(size):
        x = builder.negate(x) if number % 3 else builder.exponential(x)
    return x


def fan(builder: Builder, x: Value, size: int) -> Value:
    """One value that everything reads."""
    hub = builder.tanh(x)
    total = x
    for _ in range(size // 2):
        total = builder.add(total, builder.multiply(hub, total))
    return total


def layers(builder: Builder, x: Value, size: int) -> Value:
    """Normalizations: reductions, broadcasts, residuals."""
    zero = builder.constant(0.0, tensor((), "f32"))
    for _ in range(size // 8):
        total = builder.reduce([x], [zero], builder.combiner("add", "f32"), dimensions=(1,))
        mean = builder.multiply(total, builder.constant(1 / 32, ROW))
        centered = builder.subtract(x, builder.broadcast_in_dim(mean, TYPE, (0,)))
        x = builder.add(x, builder.multiply(centered, builder.exponential(centered)))
    return x


def simplifiable(builder: Builder, x: Value, size: int) -> Value:
    """Much for the rules to do, one rewrite making room for the next."""
    zero = builder.constant(0.0, TYPE)
    for number in range(size // 3):
        x = (
            builder.subtract(builder.negate(builder.negate(x)), zero)
            if number % 2
            else builder.transpose(builder.transpose(x, permutation=(1, 0)), permutation=(1, 0))
        )
    return builder.add(x, x)


SHAPES = [chain, fan, layers, simplifiable]


def program(make: Callable[[Builder, Value, int], Value], size: int) -> Module:
    module = Module()
    function = module.add_function(Function("main", [TYPE], [TYPE]))
    builder = Builder(function.body)
    builder.return_(make(builder, function.body.arguments[0], size))
    return module


def exponent(work: Callable[[int], int]) -> float:
    """The power with which counted work grows between programs of 500 and 4000 instructions."""
    return math.log(work(4000) / work(500)) / math.log(4000 / 500)


@pytest.mark.parametrize("make", SHAPES)
def test_rewriting_visits_are_linear(make: Callable[[Builder, Value, int], Value]) -> None:
    def visits(size: int) -> int:
        rewriter = Rewriter(program(make, size), rule_table(ALL_RULES, frozenset(Effect)))
        rewriter.run()
        return rewriter.visits

    assert exponent(visits) <= 1.05


@pytest.mark.parametrize("make", SHAPES)
def test_fusion_steps_are_linear(make: Callable[[Builder, Value, int], Value]) -> None:
    def steps(size: int) -> int:
        return 1 + FusionPlan(program(make, size).main.body, FusionLimits()).make().steps

    assert exponent(steps) <= 1.05


@pytest.mark.parametrize("make", SHAPES)
def test_all_passes_run_on_every_shape(make: Callable[[Builder, Value, int], Value]) -> None:
    module = program(make, 300)
    order_passes(default_passes()).run(module, verify="always")
    assert all(
        instruction.op.name in ("hlojit.fusion", "func.return", "stablehlo.constant")
        for instruction in module.main.body
    )
