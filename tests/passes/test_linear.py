"""Work of the passes grows linearly with the size of the program: counted, not timed."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Value
from hlojit.ir.passes.fusion_limits import FusionLimits
from hlojit.ir.passes.fusion_plan import FusionPlan
from hlojit.ir.passes.pass_manager import order_passes
from hlojit.ir.passes.registry import default_passes
from hlojit.ir.passes.rewriting import Effect, Rewriter, rule_table
from hlojit.ir.passes.rules import ALL_RULES

from .graphs import SHAPES, program


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
