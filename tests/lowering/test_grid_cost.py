"""What a launch is estimated to take: waves, the busiest unit, and what is on its way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hlojit.cuda.nvptx import SM_80, SM_90, SM_100
from hlojit.lowering.grid_cost import FETCH_LATENCY, MEETING, QUARTERS, BlockWork, launch_cycles
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.grid_matrix_plan import BF16, TF32, MatrixInputs, instruction_cycles

WORK = BlockWork(
    steps=10, warps=8, multiply=100.0, issue=20.0, chain=64.0, shared=50.0, fetch=30.0, ahead=3, finish=200.0
)
MACHINE = GridMachine(10)


def test_a_step_takes_as_long_as_the_busiest_unit() -> None:
    assert WORK.cycles(1) == FETCH_LATENCY + 10 * (200.0 + MEETING) + 200.0, "two warps on each quarter"
    assert replace(WORK, shared=500.0).cycles(1) == FETCH_LATENCY + 10 * (500.0 + MEETING) + 200.0
    assert replace(WORK, fetch=900.0).cycles(1) == FETCH_LATENCY + 10 * (900.0 + MEETING) + 200.0
    assert replace(WORK, multiply=1.0, shared=1.0, fetch=1.0, chain=300.0).cycles(1) == 600 + 10 * (300 + MEETING) + 200
    assert replace(WORK, ahead=1).cycles(1) == FETCH_LATENCY + 10 * FETCH_LATENCY + 200.0, "what is asked for too late"


def test_blocks_that_are_there_together_hide_each_others_waiting() -> None:
    waiting = replace(WORK, ahead=1, multiply=50.0)
    assert waiting.cycles(2) < 1.1 * waiting.cycles(1)
    assert WORK.cycles(2) == FETCH_LATENCY + 10 * 400.0 + 400.0 and QUARTERS == 4


@pytest.mark.parametrize(
    ("blocks", "waves"), [(1, [1]), (10, [1]), (11, [2]), (20, [2]), (21, [2, 1]), (45, [2, 2, 1])]
)
def test_the_last_wave_takes_what_its_blocks_take(blocks: int, waves: list[int]) -> None:
    assert launch_cycles(blocks, 2, MACHINE, WORK) == sum(WORK.cycles(each) for each in waves)


def test_matrix_instructions_take_what_the_published_rate_says() -> None:
    """A product of 16 x 8 x 16 is 4,096 operations; an A100 does 2,048 a cycle and multiprocessor, in four quarters."""
    bf16, tf32 = MatrixInputs(BF16, BF16, "f32"), MatrixInputs(TF32, TF32, "f32")
    found = []
    for target in (SM_80, SM_90, SM_100):
        assert target.grid is not None
        found.append(instruction_cycles(bf16, target.grid))
        assert instruction_cycles(tf32, target.grid) == pytest.approx(found[-1], rel=0.02), (
            "half the products, at half the rate"
        )
    assert found[0] == pytest.approx(8.0, rel=0.01) and found[0] > found[1] > found[2]
    assert instruction_cycles(bf16, GridMachine(100)) == 8.0


def test_instructions_of_a_quarter_take_their_time() -> None:
    """What converts more than it multiplies is as slow as what it issues."""
    busy = replace(WORK, issue=300.0, multiply=100.0)
    assert busy.cycles(1) == replace(WORK, multiply=300.0).cycles(1) > WORK.cycles(1)
