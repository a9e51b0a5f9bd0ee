"""Blocking of products: plans for the caches of several machines, and results that do not depend on them.

The machine that runs these tests has other caches than most of the models, so of those only the plan is checked, and that
the code computes the same bits; how fast a plan is has to be measured on its own machine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hlojit.cpu.kernels.convolution_forms import emit_convolution
from hlojit.cpu.kernels.dot_forms import emit_dot_general
from hlojit.cpu.machine import with_speeds
from hlojit.cpu.processor import host_target
from hlojit.ir.attributes import DotDimensionNumbers
from hlojit.ir.types import tensor
from hlojit.lowering.dot_blocking import BLOCKS, STACK_BYTES, Blocking, Panels, is_cuttable
from hlojit.lowering.dot_problem import DotProblem, Matrix
from hlojit.lowering.dot_tiles import choose_shape
from hlojit.lowering.machine import Machine, parse_machine
from hlojit.lowering.target import KIND_BITS, X86_64_V4

from .guarded import kernel_instruction, spell
from .test_dot import MATMUL, Numbers, random_array, result_type


def machine(caches: str, *features: str) -> Machine:
    return with_speeds(parse_machine(caches), features, "x86_64")


ZEN4 = machine("L1=32K/8/1 L2=1M/8/1 L3=32M/16/2 cores=2", "avx512f", "sse4a")
ZEN5 = machine("L1=48K/12/1 L2=1M/16/1 L3=32M/16/2 cores=2", "avx512f", "sse4a", "avxvnni")
SAPPHIRE_RAPIDS = machine("L1=48K/12/1 L2=2M/16/1 L3=105M/15/2 cores=2", "avx512f", "amx-tile")
TINY = machine("L1=8K/2/1 L2=32K/4/1 L3=256K/8/1 cores=2", "avx512f")
MODELS = {"zen4": ZEN4, "zen5": ZEN5, "sapphire_rapids": SAPPHIRE_RAPIDS, "tiny": TINY}


def plan(model: Machine, m: int, n: int, k: int, kind: str = "f32") -> Blocking:
    """The blocking of row-major operands with AVX-512."""
    target = replace(X86_64_V4, machine=model)
    problem = DotProblem((), m, n, k, Matrix((), k, 1), Matrix((), n, 1))
    interleaves = not is_cuttable(problem, is_native=True)
    shape = choose_shape(m, n, kind, target, streamed=m <= 8, interleaves=interleaves)
    size = KIND_BITS[kind] // 8
    width = shape.vectors * target.native_lanes(kind)
    return Panels(problem, model, shape.rows, shape.vectors, width, size, size, True, True).choose()


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("m", [16, 32, 64, 96, 128, 256, 1024])
def test_rows_a_page_apart_are_packed_into_the_first_level(m: int, kind: str) -> None:
    """64x1024x1024 ran at 25 Gflop/s in place, at 82 with this plan, on a core of Sapphire Rapids."""
    n = 4096 // (KIND_BITS[kind] // 8)
    found = plan(SAPPHIRE_RAPIDS, m, n, 1024, kind)
    assert found.packs and found.ahead and found.copies_rows
    assert 64 <= found.block_k <= 128


@pytest.mark.parametrize("n", [1024, 1025, 2048, 3072, 4096])
def test_any_stride_near_a_multiple_of_a_page_collides(n: int) -> None:
    assert plan(SAPPHIRE_RAPIDS, 64, n, 1024).packs


@pytest.mark.parametrize("n", [256, 512, 768, 1040, 1056])
def test_other_strides_are_read_in_place(n: int) -> None:
    assert not plan(SAPPHIRE_RAPIDS, 64, n, 512).packs


@pytest.mark.parametrize(("m", "n"), [(1, 1024), (8, 1024), (16, 1024), (16, 1040), (64, 1040), (128, 1040)])
def test_a_near_third_level_hides_what_few_tiles_read(m: int, n: int) -> None:
    """On Zen 4 a step of k takes longer than what it reads, even from the third level (measured: in place is faster)."""
    assert plan(ZEN4, m, n, 1024) == Blocking(False, 1024)


def test_narrow_rows_of_few_tiles_are_read_in_place() -> None:
    """32x2048x512 on Zen 4: in place 110 Gflop/s, packed 90, wherever the operand begins."""
    assert plan(ZEN4, 32, 2048, 512) == Blocking(False, 512)


@pytest.mark.parametrize(
    ("m", "n", "kind"), [(32, 1024, "f32"), (64, 1024, "f32"), (1024, 1024, "f32"), (1024, 1024, "f64")]
)
def test_rows_that_collide_are_packed_for_many_tiles(m: int, n: int, kind: str) -> None:
    """64x1024x1024 on Zen 4: packed 100 Gflop/s, in place 106 if vectors are whole lines, but 79 if they cross lines."""
    found = plan(ZEN4, m, n, 1024, kind)
    assert found.packs and found.block_k == 256


def transposed(model: Machine, m: int, n: int, k: int, kind: str) -> Panels:
    """Panels of a right operand whose columns are ``k`` elements apart, as in ``x @ w.T``."""
    target, size = replace(X86_64_V4, machine=model), KIND_BITS[kind] // 8
    problem = DotProblem((), m, n, k, Matrix((), k, 1), Matrix((), 1, k))
    interleaves = not is_cuttable(problem, is_native=True)
    shape = choose_shape(m, n, kind, target, streamed=m <= 8, interleaves=interleaves)
    width = shape.vectors * target.native_lanes(kind)
    return Panels(problem, model, shape.rows, shape.vectors, width, size, size, True, True)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize(("m", "n", "k"), [(16, 50257, 768), (64, 1024, 1024), (9, 300, 4097), (1024, 1024, 257)])
def test_columns_apart_are_never_fetched_ahead(model: Machine, kind: str, m: int, n: int, k: int) -> None:
    """A row of the next block is as many lines as elements: GPT-2's logits, 16x50257x768, took six times as long with it."""
    panels = transposed(model, m, n, k, kind)
    found = panels.choose()
    assert found.packs and not found.ahead
    assert not any(other.ahead for other in panels.plans())
    assert found in set(panels.plans())


def test_panels_beyond_the_pages_at_hand_are_cut() -> None:
    found = plan(ZEN4, 64, 768, 4096)
    assert not found.packs and found.block_k <= 1024
    # Pages of 16 kB, as on Apple's processors, reach four times as far; so do four times as many.
    for model in (replace(ZEN4, page_bytes=16 << 10), replace(ZEN4, pages=4096)):
        assert plan(model, 64, 768, 4096) == Blocking(False, 4096)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_one_tile_of_rows_reads_its_operand_once(model: Machine) -> None:
    for m in (1, 4, 8):
        assert plan(model, m, 1024, 1024) == Blocking(False, 1024)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_packed_panels_fit_a_stack(model: Machine) -> None:
    for m, n, k in ((9, 4096, 5000), (64, 1024, 1024), (2048, 2048, 2048), (300, 200, 100_000)):
        for kind in ("f32", "f64"):
            found = plan(model, m, n, k, kind)
            assert not found.packs or found.block_k * 24 * 64 <= 16 * STACK_BYTES
            assert found.block_k == k or found.block_k <= max(BLOCKS)


CASES: list[tuple[tuple[int, ...], tuple[int, ...], Numbers, tuple[str, str, str]]] = [
    ((16, 300), (300, 1024), MATMUL, ("f32", "f32", "f32")),
    ((33, 257), (257, 1025), MATMUL, ("f32", "f32", "f32")),
    ((19, 700), (700, 512), MATMUL, ("f64", "f64", "f64")),
    ((17, 520), (520, 1040), MATMUL, ("f32", "f32", "f32")),
    ((9, 130), (130, 128), MATMUL, ("f32", "f32", "f32")),
    ((40, 600), (600, 1024), MATMUL, ("bf16", "bf16", "f32")),
    ((40, 600), (600, 1024), MATMUL, ("bf16", "bf16", "bf16")),
    ((12, 600), (600, 1024), MATMUL, ("f32", "f32", "bf16")),
    ((20, 400), (400, 1024), MATMUL, ("i8", "i8", "i32")),
    ((20, 300), (300, 1024), MATMUL, ("i32", "i32", "i32")),
    ((300, 20), (300, 1024), ((), (), (0,), (0,)), ("f32", "f32", "f32")),
    ((500, 600), (300, 600), ((), (), (1,), (1,)), ("f32", "f32", "f32")),
    ((2, 24, 256), (2, 256, 1024), ((0,), (0,), (2,), (1,)), ("f32", "f32", "f32")),
    ((24, 2, 256), (2, 256, 1024), ((1,), (0,), (2,), (1,)), ("f32", "f32", "f32")),
    ((8, 1024), (1024, 1024), MATMUL, ("f32", "f32", "f32")),
    ((3, 40000), (40000, 5), MATMUL, ("f32", "f32", "f32")),
    ((21, 300), (300, 512), MATMUL, ("complex<f32>", "complex<f32>", "complex<f32>")),
]


@pytest.mark.parametrize(("lhs", "rhs", "numbers", "types"), CASES, ids=str)
def test_results_do_not_depend_on_the_machine(instruction, run_kernel, lhs, rhs, numbers, types) -> None:  # type: ignore[no-untyped-def]
    """Bit by bit, alone and task by task, with guarded memory around every buffer."""
    operands = [tensor(lhs, types[0]), tensor(rhs, types[1])]
    result = result_type(*operands, numbers, types[2])
    attributes = {"dot_dimension_numbers": DotDimensionNumbers(*map(tuple, numbers))}
    inputs = [random_array(lhs, types[0], 1), random_array(rhs, types[1], 2)]
    texts, results = set(), set()
    for model in MODELS.values():
        target = replace(host_target(), machine=model)
        code = emit_dot_general(instruction("stablehlo.dot_general", operands, result, attributes), target, "dot")
        texts.add(code.ir)
        for single in (False, True):
            results.add(run_kernel(code, inputs, result, single_tasks=single, target=target).tobytes())
    assert len(results) == 1
    if lhs[-1] > 128 and lhs[0] > 8 and rhs[-1] in (1024, 1025) and host_target().has_feature("avx512vl"):
        assert len(texts) > 1, "the models should ask for different code here"


def test_a_blocked_product_is_right(instruction, run_kernel) -> None:  # type: ignore[no-untyped-def]
    target = replace(host_target(), machine=SAPPHIRE_RAPIDS)
    operands, result = [tensor((66, 1000), "f32"), tensor((1000, 1024), "f32")], tensor((66, 1024), "f32")
    numbers = {"dot_dimension_numbers": DotDimensionNumbers(lhs_contracting=(1,), rhs_contracting=(0,))}
    code = emit_dot_general(instruction("stablehlo.dot_general", operands, result, numbers), target, "dot")
    left, right = random_array((66, 1000), "f32", 1), random_array((1000, 1024), "f32", 2)
    found = run_kernel(code, [left, right], result, target=target)
    wide = left.astype(np.float64) @ right.astype(np.float64)
    scale = np.abs(left).astype(np.float64) @ np.abs(right).astype(np.float64)
    assert (np.abs(found - wide) <= 2.0**-23 * 8 * scale).all()


@pytest.mark.parametrize("features", [3, 40, 150])
def test_convolutions_do_not_depend_on_the_machine(run_kernel: Any, features: int) -> None:
    """A second-level cache of 32 kB makes the taps go around the loop over tiles, one of 2 MB does not."""
    types = [spell(shape, "f32") for shape in ((1, 9, 13, 70), (3, 3, 70, features), (1, 7, 11, features))]
    text = (
        f"func.func @main(%x: {types[0]}, %k: {types[1]}) -> {types[2]} {{\n"
        "  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], "
        "window = {stride = [1, 1], pad = [[0, 0], [0, 0]]} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "
        f"({types[0]}, {types[1]}) -> {types[2]}\n  return %0 : {types[2]}\n}}\n"
    )
    made = kernel_instruction(text)
    inputs = [random_array((1, 9, 13, 70), "f32", 1), random_array((3, 3, 70, features), "f32", 2)]
    results, texts = set(), set()
    for model in MODELS.values():
        target = replace(host_target(), machine=model)
        code = emit_convolution(made, target, "convolution")
        texts.add(code.ir)
        results.add(run_kernel(code, inputs, made.result.tensor_type, target=target).tobytes())
    assert len(results) == 1
    assert len(texts) > 1 or features < 100
