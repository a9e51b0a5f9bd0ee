"""Plans of loops, rows, columns and tiles follow the machine model; what they compute does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hlojit.cpu.backend import CpuBackend
from hlojit.cpu.kernels import kernel_emitter
from hlojit.cpu.processor import host_target
from hlojit.ir.text.parser import parse_module
from hlojit.ir.types import tensor
from hlojit.llvm.fusion_emitter import emit_fusion
from hlojit.llvm.host import emit_host
from hlojit.lowering.body import Body
from hlojit.lowering.copy_plan import SINGLE_CYCLES, VECTOR_CYCLES, divide_rows
from hlojit.lowering.loop_plan import plan_space
from hlojit.lowering.machine import GENERIC, parse_machine
from hlojit.lowering.program import Program
from hlojit.lowering.space import Space
from hlojit.lowering.target import X86_64_V4
from hlojit.lowering.tile_plan import TilePlan, find_tiles, plan_tiles

from .conftest import run_code

MODELS = {
    "generic": GENERIC,
    "zen4": parse_machine("L1=32K/8 L2=1M/8 fma=1"),
    "sapphire_rapids": parse_machine("L1=48K/12 L2=2M/16 fma=2"),
    "slow_and_small": parse_machine("L1=8K/2 L2=32K/4 L3=256K/8 ghz=0.5 bandwidth=2 fork=50 cores=64"),
}


def column_sum(b: Any, x: Any, init: Any) -> Any:
    return b.reduce([x], [init], b.combiner("add", "f32"), dimensions=(0,))


def row_sum(b: Any, x: Any, init: Any) -> Any:
    return b.reduce([x], [init], b.combiner("add", "f32"), dimensions=(1,))


def softmax(b: Any, x: Any, init: Any) -> Any:
    exponentials = b.exponential(x)
    total = b.reduce([exponentials], [init], b.combiner("add", "f32"), dimensions=(1,))
    return b.divide(exponentials, b.broadcast_in_dim(total, x.tensor_type.shape, (0,)))


def transpose(b: Any, x: Any, init: Any) -> Any:
    return b.negate(b.transpose(x, (1, 0)))


def exponential(b: Any, x: Any, init: Any) -> Any:
    return b.exponential(x)


CASES = [
    (column_sum, (300, 9000), "reduction"),
    (column_sum, (12, 9000), "reduction"),
    (column_sum, (70000, 40), "reduction"),
    (row_sum, (3, 100_000), "reduction"),
    (softmax, (9, 12_000), "row"),
    (transpose, (300, 500), "loop"),
    (exponential, (5, 7001), "loop"),
]


@pytest.mark.parametrize(("build", "shape", "kind"), CASES, ids=lambda case: getattr(case, "__name__", str(case)))
def test_results_do_not_depend_on_the_machine(lab: Any, build: Any, shape: tuple[int, ...], kind: str) -> None:
    """Same bits for every model, whole launches and single tasks."""
    arrays = [np.random.default_rng(1).standard_normal(shape).astype("f4"), np.float32(0)]
    instruction = lab.make_fusion(build, tensor(shape, "f32"), tensor((), "f32"), kind=kind)
    results, plans = set(), set()
    for model in MODELS.values():
        code = emit_fusion(instruction, replace(host_target(), machine=model), "kernel")
        plans.add((code.ir, code.phases))
        for reverse in (False, True):
            values = [np.asarray(array) for array in arrays]
            results.add(run_code(code, instruction, values, at_end=True, reverse=reverse)[0].tobytes())
    assert len(results) == 1
    assert len(plans) > 1 or kind == "reduction", "the models should ask for different plans here"


def test_faster_hand_over_makes_finer_tasks(lab: Any) -> None:
    instruction = lab.make_fusion(exponential, tensor((4096, 4096), "f32"), tensor((), "f32"))
    tasks = [
        emit_fusion(instruction, replace(X86_64_V4, machine=parse_machine(f"fork={fork}")), "kernel").phases[0].tasks
        for fork in (3000, 300, 30)
    ]
    assert tasks[0] < tasks[1] < tasks[2]


@pytest.mark.parametrize("cycles", [VECTOR_CYCLES, SINGLE_CYCLES])
def test_copies_take_a_grain(cycles: float) -> None:
    models = [parse_machine(f"fork={fork} ghz={ghz}") for fork in (100, 1000) for ghz in (1, 4)]
    plans = [divide_rows(100_000, 64, cycles, 8, model) for model in models]
    for model, plan in zip(models, plans):
        row = plan.cost / plan.per_task
        assert plan.cost <= model.grain_nanoseconds < plan.cost + row, "no row more fits"
        assert plan.per_task * (plan.tasks - 1) < 100_000 <= plan.per_task * plan.tasks
    assert plans[0].per_task < plans[1].per_task < plans[3].per_task
    # One row longer than a grain is one task; wide elements take what memory takes.
    assert divide_rows(5, 1 << 20, cycles, 8, GENERIC).per_task == 1
    slow = divide_rows(5, 1000, cycles, 16, parse_machine("bandwidth=1"))
    assert slow.cost / slow.per_task == 16_000


@pytest.mark.parametrize(
    ("caches", "stride", "direct"),
    [
        ("L1=32K/8", 300, True),
        ("L1=32K/8", 1024, False),
        ("L1=32K/8", 1025, False),  # 128 rows in eight sets
        ("L1=32K/8", 1040, True),
        ("L1=48K/12", 448, True),
        ("L1=32K/8", 448, False),
        ("L1=1M/16", 1024, True),
        ("L1=8K/2", 300, False),
    ],
)
def test_transposes_go_straight_into_results_whose_rows_do_not_collide(
    lab: Any, caches: str, stride: int, direct: bool
) -> None:
    plan = transposed_tiles(lab, (stride, 300), caches)
    assert plan.is_copy == direct


def transposed_tiles(lab: Any, shape: tuple[int, int], caches: str) -> TilePlan:
    """The plan of a transposition."""

    def only_moves(b: Any, x: Any, init: Any) -> Any:
        return b.transpose(x, (1, 0))

    instruction = lab.make_fusion(only_moves, tensor(shape, "f32"), tensor((), "f32"))
    body = Body.of(instruction)
    space, facts = plan_space(body, Space.of_shape(body.roots[0].tensor_type.shape), body.roots)
    target = replace(X86_64_V4, machine=parse_machine(caches))
    found = find_tiles(space, facts)
    assert found is not None
    return plan_tiles(body, target, space, facts, found)


def test_tiles_of_transpositions_fit_the_first_level(lab: Any) -> None:
    sizes = {}
    for size in ("4K", "8K", "32K", "48K", "64K", "128K"):
        plan = transposed_tiles(lab, (512, 512), f"L1={size}/8")
        sizes[size] = plan.tile
        assert plan.tile[1] >= 16, "a block of AVX-512"
    assert sizes["32K"] == sizes["48K"] == (128, 64)
    assert sizes["8K"] == sizes["4K"] == (128, 16)
    assert sizes["64K"] == sizes["128K"] == (128, 128)


SCATTER = """func.func @main(%x: tensor<100xf32>, %i: tensor<50x1xi32>, %u: tensor<50xf32>) -> tensor<100xf32> {
  %0 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
    scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<100xf32>, tensor<50x1xi32>, tensor<50xf32>) -> tensor<100xf32>
  return %0 : tensor<100xf32>
}"""
SORT = """func.func @main(%x: tensor<7x64xf32>) -> tensor<7x64xf32> {
  %0 = "stablehlo.sort"(%x) <{dimension = 1 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) : (tensor<7x64xf32>) -> tensor<7x64xf32>
  return %0 : tensor<7x64xf32>
}"""


@pytest.mark.parametrize(("text", "name"), [(SCATTER, "scatter"), (SORT, "sort")])
def test_costs_of_library_kernels_follow_the_frequency(text: str, name: str) -> None:
    (instruction,) = (each for each in parse_module(text).main.body if each.op.name == f"stablehlo.{name}")
    costs = [
        kernel_emitter(name)(instruction, replace(X86_64_V4, machine=parse_machine(f"ghz={ghz}")), "kernel")
        .phases[0]
        .cost
        for ghz in (1, 2, 4)
    ]
    assert costs == [4 * costs[2], 2 * costs[2], costs[2]]


def test_the_model_decides_what_runs_in_parallel(lab: Any) -> None:

    text = "func.func @main(%x: tensor<6000000xf32>) -> tensor<6000000xf32> {\n  %0 = stablehlo.exponential %x : tensor<6000000xf32>\n  return %0 : tensor<6000000xf32>\n}"
    program: Program = CpuBackend().program(parse_module(text).freeze())
    call = "call void @hlojit_parallel_for"
    assert call in emit_host(program, "main", parse_machine("fork=100"))
    assert call not in emit_host(program, "main", parse_machine("fork=1000000"))
