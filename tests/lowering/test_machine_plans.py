"""Plans of loops, rows, columns and tiles follow the machine model; what they compute does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hlojit.cpu.backend import CpuBackend
from hlojit.cpu.processor import host_target
from hlojit.ir.text.parser import parse_module
from hlojit.ir.types import tensor
from hlojit.llvm.fusion_emitter import emit_fusion
from hlojit.llvm.host import emit_host
from hlojit.lowering.machine import GENERIC, parse_machine
from hlojit.lowering.program import Program
from hlojit.lowering.target import X86_64_V4

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


def test_the_model_decides_what_runs_in_parallel(lab: Any) -> None:

    text = "func.func @main(%x: tensor<6000000xf32>) -> tensor<6000000xf32> {\n  %0 = stablehlo.exponential %x : tensor<6000000xf32>\n  return %0 : tensor<6000000xf32>\n}"
    program: Program = CpuBackend().program(parse_module(text).freeze())
    call = "call void @hlojit_parallel_for"
    assert call in emit_host(program, "main", parse_machine("fork=100"))
    assert call not in emit_host(program, "main", parse_machine("fork=1000000"))
