"""A vendor's op says how it works where sizes are open, or follow from data."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import hookimpl, using
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.definition import Indexed, OpDefinition, Operand
from hlojit.ir.ops.padded_values import Padded, PaddedBuilder
from hlojit.ir.ops.pointwise import like_operands
from hlojit.ir.ops.symbolic_values import Access, Coordinate, Pick, Shape, SymbolicShapes
from hlojit.ir.sizes import add

BOUNDED = "tensor<?xf32, #stablehlo.bounds<8>>"
OPEN_TEXT = """
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = "acme.flip"(%x) : (tensor<?xf32>) -> tensor<?xf32>
  %1 = stablehlo.negate %0 : tensor<?xf32>
  return %1 : tensor<?xf32>
}
"""
BOUNDED_TEXT = f"""
func.func @main(%x: tensor<8xf32>, %n: tensor<i32>) -> {BOUNDED} {{
  %0 = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<8xf32>, tensor<i32>) -> {BOUNDED}
  %1 = "acme.flip"(%0) : ({BOUNDED}) -> {BOUNDED}
  return %1 : {BOUNDED}
}}
"""


def flipped(emitter: Any, instruction: Instruction, index: Sequence[Any]) -> Any:
    return emitter.operand(0, [index[0] * -1 + (instruction.result.tensor_type.shape[0] - 1)])


def symbolic(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    (size,) = shapes.dims[instruction.operands[0]]
    return (size,), Pick((Coordinate(0, -1, add(size, -1)),))


def padded(b: PaddedBuilder) -> Sequence[Padded]:
    (operand,), (bound,) = b.operands, b.operands[0].shape
    whole = b.again([operand.value], [operand.type])
    room = b.grown(Padded(whole[0]), (2 * bound,))
    start = b.arithmetic("subtract", b.number(bound), b.size(operand, 0))
    part = b.builder.create("dynamic_slice", [room.value, start], attributes={"slice_sizes": (bound,)})
    return [Padded(part.result, operand.sizes)]


def flip(**rules: Any) -> Any:
    record = OpDefinition(
        "acme.flip",
        operands=(Operand("operand"),),
        infer=like_operands,
        reference=lambda call, x: x[::-1],
        lowering=Indexed(flipped),
        **rules,
    )
    return SimpleNamespace(__name__="acme", hlojit_ops=hookimpl(lambda: [record]))


@pytest.mark.parametrize("how", ["symbolic", "specialize"])
def test_sizes_that_are_given_at_run_time(how: str) -> None:
    with using(flip(symbolic=symbolic) if how == "symbolic" else flip()):
        executable = hlojit.compile(OPEN_TEXT, options={"dynamic_shapes": "symbolic"})
        assert executable.dynamic_shapes == how, executable.why
        for size in (0, 1, 20):
            x = np.arange(size, dtype=np.float32)
            np.testing.assert_array_equal(executable(x), -x[::-1])


def test_sizes_that_only_data_tell() -> None:
    x = np.arange(8, dtype=np.float32)
    with using(flip(padded=padded)):
        executable = hlojit.compile(BOUNDED_TEXT)
        for size in (0, 3, 8):
            np.testing.assert_array_equal(executable(x, np.int32(size)), x[:size][::-1])
    with using(flip()), pytest.raises(hlojit.UnsupportedError, match=r"acme\.flip .*known only when the program runs"):
        hlojit.compile(BOUNDED_TEXT)
