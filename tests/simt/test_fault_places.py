"""A fault inside of a fusion names the instruction that memory was accessed for, and its line of the program."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir.ops.definition import Indexed, OpDefinition, Operand

BEYOND = OpDefinition(
    "test.beyond",
    operands=(Operand("operand"),),
    reference=lambda call, x: np.roll(x, -100),
    # Nobody may read there.
    lowering=Indexed(lambda emitter, instruction, index: emitter.operand(0, [index[0] + 100, *index[1:]])),
)
LINES = """
func.func @main(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
  %0 = stablehlo.tanh %y : tensor<64xf32>
  %1 = "test.beyond"(%x) : (tensor<64xf32>) -> tensor<64xf32>
  %2 = stablehlo.add %0, %1 : tensor<64xf32>
  return %2 : tensor<64xf32>
}
"""
ROWS = """
func.func @main(%x: tensor<8x64xf32>, %y: tensor<8x64xf32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "test.beyond"(%x) : (tensor<8x64xf32>) -> tensor<8x64xf32>
  %1 = stablehlo.multiply %0, %y : tensor<8x64xf32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<8x64xf32>, tensor<f32>) -> tensor<8xf32>
  return %2 : tensor<8xf32>
}
"""


@pytest.fixture(autouse=True)
def simulator(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    with ext.using(SimpleNamespace(__name__="test", hlojit_ops=ext.hookimpl(lambda: [BEYOND]))):
        yield


@pytest.mark.parametrize(("text", "shape", "place"), [(LINES, (64,), "4:3"), (ROWS, (8, 64), "4:3")])
def test_the_op_and_its_line_are_named(text: str, shape: tuple[int, ...], place: str) -> None:
    executable = hlojit.compile(text, backend="cuda")
    assert len(executable.spec.program.launches()) == 1, "one fusion"
    x = np.ones(shape, "f4")
    with pytest.raises(
        hlojit.ExecutionError,
        match=rf"load of operand \d .* for test\.beyond at <string>:{place} at byte .* outside of it",
    ):
        executable(x, x)


def test_equal_kernels_have_places_of_their_own() -> None:
    """A kernel is one for all layers that are alike; what a message says is the launch's."""
    first, other = LINES, LINES.replace("%0 = stablehlo.tanh", "\n\n  %0 = stablehlo.tanh")
    x = np.ones(64, "f4")
    for text, place in ((first, "4:3"), (other, "6:3")):
        with pytest.raises(hlojit.ExecutionError, match=rf"test\.beyond at <string>:{place} "):
            hlojit.compile(text, backend="cuda")(x, x)
