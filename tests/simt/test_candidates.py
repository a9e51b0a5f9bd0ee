"""The ways in which kernels can be made: what is listed, that each computes the product, and which of them the same bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hlojit.cuda.nvptx import H200
from hlojit.ir.graph import Instruction
from hlojit.lowering.candidates import LIBRARY, MOST_CANDIDATES, MOST_WAYS, library_way
from hlojit.lowering.library_product import LibraryProduct
from hlojit.simt.kernels import emit_kernel, kernel_candidates
from hlojit.simt.simulator.dialect import SimulatorDialect
from hlojit.simt.simulator.module import simulated_target

from .simulated import Array, run_code
from .test_dot import Numbers, compare, draw, instruction_of

TARGET = simulated_target(H200)
PRODUCT: Numbers = ((), (), (1,), (0,))
SHAPES = {
    "tiles": ((70, 40), (40, 50), ("f32", "f32", "f32")),
    "matrices": ((70, 40), (40, 50), ("bf16", "bf16", "f32")),
    "matrices, cut sums": ((20, 3000), (3000, 24), ("bf16", "bf16", "bf16")),
    "tiles, cut sums": ((20, 3000), (3000, 24), ("f32", "f32", "f32")),
    "vectors": ((1, 700), (700, 40), ("f32", "f32", "f32")),
}


def run(instruction: Instruction, candidate: str, arguments: Sequence[Array]) -> Array:
    code = emit_kernel(instruction, TARGET, SimulatorDialect(), "kernel", candidate=candidate)
    assert code.candidate == candidate
    (found,) = run_code(code, arguments, [instruction.result.tensor_type])
    return found


@pytest.mark.parametrize("kind", SHAPES)
def test_every_candidate_computes_the_product_and_those_of_one_order_the_same_bits(kind: str) -> None:
    lhs_shape, rhs_shape, types = SHAPES[kind]
    instruction = instruction_of(lhs_shape, rhs_shape, PRODUCT, types)
    lhs, rhs = draw(lhs_shape, types[0], 1), draw(rhs_shape, types[1], 2)
    listed = kernel_candidates(instruction, TARGET)
    assert len({each.name for each in listed}) == len(listed)
    default = run(instruction, "", (lhs, rhs))
    found: dict[str, list[Array]] = {}
    for each in listed:
        result = run(instruction, each.name, (lhs, rhs))
        compare(result, lhs, rhs, PRODUCT, types[2])
        found.setdefault(each.order, []).append(result)
    np.testing.assert_array_equal(found[listed[0].order][0], default)
    for results in found.values():
        for result in results:
            np.testing.assert_array_equal(result, results[0])
    assert len(found) > 1 or "cut" not in kind


def test_lists_are_short_and_begin_with_what_is_taken_without_one() -> None:
    instruction = instruction_of((4096, 4096), (4096, 4096), PRODUCT, ("bf16", "bf16", "f32"))
    listed = kernel_candidates(instruction, TARGET)
    assert 4 <= sum(each.order == listed[0].order for each in listed) <= MOST_CANDIDATES
    ways = [each.name for each in listed[-MOST_WAYS:]]
    assert ways[:2] == [LIBRARY, "library 2"] and [library_way(each) for each in ways] == list(range(MOST_WAYS))
    assert library_way(listed[0].name) is None and listed == kernel_candidates(instruction, TARGET)
    code = emit_kernel(instruction, TARGET, SimulatorDialect(), "kernel")
    first, second = (
        emit_kernel(instruction, TARGET, SimulatorDialect(), "kernel", candidate=each.name) for each in listed[:2]
    )
    assert first.ir == code.ir != second.ir
    assert code.phases[0].library and not first.phases[0].library and not code.candidate


def test_a_call_of_a_library_stands_beside_a_kernel_of_one_launch() -> None:
    instruction = instruction_of((64, 4096), (4096, 64), PRODUCT, ("bf16", "bf16", "bf16"))
    code = emit_kernel(instruction, TARGET, SimulatorDialect(), "kernel")
    assert len(code.phases) == 2 and not any(each.library for each in code.phases)
    for way, name in enumerate((LIBRARY, "library 2")):
        code = emit_kernel(instruction, TARGET, SimulatorDialect(), "kernel", candidate=name)
        assert len(code.phases) == 1 and LibraryProduct.of_text(code.phases[0].library).way == way


def test_what_can_be_made_in_one_way_lists_nothing() -> None:
    assert not kernel_candidates(instruction_of((4, 0), (0, 4), PRODUCT, ("f32",) * 3), TARGET)
