"""Ops of extensions on quantized numbers: what they do to them is said by their records, or they are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import hookimpl, register, unregister
from hlojit.ir.errors import VerificationError
from hlojit.ir.ops.definition import OpDefinition, Operand, Pointwise, Trait
from hlojit.ir.ops.pointwise import like_operands

Q = "!quant.uniform<i8:f32, 0.5:10>"
TWICE = OpDefinition(
    "acme.twice",
    operands=(Operand("x"),),
    infer=like_operands,
    reference=lambda call, x: x + x,
    lowering=Pointwise(lambda b, call, x: b.fadd(x, x)),
    summary="twice",
    syntax="generic",
)
TEXT = f"""func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {{
  %0 = stablehlo.uniform_quantize %x : (tensor<3xf32>) -> tensor<3x{Q}>
  %1 = "acme.twice"(%0) : (tensor<3x{Q}>) -> tensor<3x{Q}>
  %2 = stablehlo.uniform_dequantize %1 : (tensor<3x{Q}>) -> tensor<3xf32>
  return %2 : tensor<3xf32>
}}"""


class Acme:
    def __init__(self, record: OpDefinition):
        self.record = record

    @hookimpl
    def hlojit_ops(self) -> list[OpDefinition]:
        return [self.record]


@pytest.fixture
def registered(request: Any) -> Iterator[None]:
    register(Acme(replace(TWICE, traits=frozenset(request.param))), name="test")
    yield
    unregister("test")


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("registered", [()], indirect=True)
@pytest.mark.usefixtures("registered")
def test_an_op_that_does_not_say_what_it_does_is_refused(backend: str) -> None:
    with pytest.raises(VerificationError, match=r"acme\.twice.*does not say what it does to quantized numbers"):
        hlojit.compile(TEXT, backend=backend)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("registered", [(Trait.DEQUANTIZES,)], indirect=True)
@pytest.mark.usefixtures("registered")
def test_an_op_of_numbers_is_computed_with_them(backend: str) -> None:
    answer = hlojit.compile(TEXT, backend=backend)(np.array([1, 2.5, 60], np.float32))
    np.testing.assert_array_equal(answer, [2, 5, 58.5])  # 120 does not fit: (127 - 10) * 0.5
