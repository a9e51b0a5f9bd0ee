"""Ops that move, combine and order elements, and control flow, on the simulator against the interpreter.

Operands are small integers and results exact, so every order of combination gives the same bits.
"""

from __future__ import annotations

import hlojit
import numpy as np
import pytest
from hlojit.extensions import registry
from hlojit.ir.graph import Module
from hlojit.ir.interpreter import evaluate
from hlojit.ir.ops.definition import Expand, Pointwise, ops
from hlojit.ir.types import TensorType
from hlojit.simt.kernels import lowering_reason

from .pointwise_cases import FAMILIES, Array
from .structural_cases import TEMPLATES, Template

registry().load()
ELEMENTS = [name for members in FAMILIES.values() for name in members]
EVERY = 3
"""One family of so many for each program: the families take turns."""
CASES = [
    (template, members[number % len(members)])
    for number, template in enumerate(TEMPLATES)
    for position, (family, members) in enumerate(FAMILIES.items())
    if (number + position) % EVERY == 0 and not (template.numbers_only and family == "predicate")
]


def arguments_of(module: Module, seed: int) -> list[Array]:
    """Small integers; floats among them as -0.0."""
    random = np.random.default_rng(seed)
    arrays = []
    for type in module.main.type.inputs:
        assert isinstance(type, TensorType)
        element = type.element_type
        low, high = (-1, 4) if element.name.startswith(("i32", "f", "b", "i8", "i16", "i64")) else (0, 2)
        drawn = random.integers(low, high, type.shape)
        if element.name[0] in "bf" and "FNUZ" not in element.name:
            drawn = np.where(drawn == 0, -0.0, drawn)
        arrays.append(np.asarray(drawn).astype(element.dtype or element.storage))
    return arrays


@pytest.mark.parametrize(("template", "element"), CASES, ids=lambda each: getattr(each, "name", each))
def test_program(template: Template, element: str) -> None:
    text = template.program(element)
    module = hlojit.parse(text)
    executable = hlojit.compile(text, backend="cuda")
    for seed in (1, 2):
        arguments = arguments_of(module, seed)
        found = executable(*arguments)
        expected = evaluate(module, *arguments)
        for ours, reference in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
            assert ours.dtype == reference.dtype and ours.shape == reference.shape
            assert ours.tobytes() == reference.tobytes(), f"{ours}\n{reference}"


def test_every_op_that_the_back_end_claims_has_a_case() -> None:
    sampled = {
        instruction.op.name
        for template, element in CASES
        for function in hlojit.parse(template.program(element)).functions.values()
        for instruction in function.body.walk()
    }
    claimed = {
        record.name
        for record in ops()
        if not lowering_reason(record) and not isinstance(record.lowering, (Expand, Pointwise))
    }
    assert claimed - sampled - _MADE_BY_PASSES - _OF_SEVERAL_PROCESSES - _IN_FILES_OF_THEIR_OWN == set()


_MADE_BY_PASSES = {"hlojit.fusion", "chlo.constant"}
_IN_FILES_OF_THEIR_OWN = {
    *(
        "stablehlo.cholesky",
        "stablehlo.triangular_solve",
        "hlojit.butterflies",
    ),  # simt/test_factorizations, cpu/test_fourier
    *("hlojit.foreign.hlojit.host_transfer",),  # collectives/test_channels
    *("quant.scast", "arith.constant"),  # tests/quantized, tests/text/test_dialects
}
_OF_SEVERAL_PROCESSES = {"hlojit.collective", "hlojit.process_id"}
"""What collectives expand into: tests/collectives runs them, on two and more simulated GPUs."""
