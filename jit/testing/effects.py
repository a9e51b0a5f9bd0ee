"""Effects of programs: which calls are made, in which order, with which numbers.

told = []
interpret(module, arguments, told)      # what calls with effects were given; where nobody knows what they give, zeros
difference = first_change(told, expected)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hlojit.ir.graph import Instruction, Module
from hlojit.ir.ops.custom_calls import is_custom_call
from hlojit.ir.passes.graph_facts import has_own_effect
from hlojit.ir.scalar.arrays import to_compute

NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Effect:
    """A call: its target, and the numbers that it was given."""

    target: str
    operands: tuple[bytes, ...]
    text: str

    def __str__(self) -> str:
        return f"@{self.target}({self.text})"


def is_effect(instruction: Instruction) -> bool:
    """Whether an instruction is a call with effects."""
    return is_custom_call(instruction) and has_own_effect(instruction)


def has_effects(module: Module) -> bool:
    """Whether a program has calls with effects."""
    return any(map(is_effect, module.walk()))


def effect_of(instruction: Instruction, operands: Sequence[Any]) -> Effect:
    """The effect of a call with these operands (compute form)."""
    arrays = [np.asarray(each) for each in operands]
    text = ", ".join(np.array2string(each, threshold=4, edgeitems=2, separator=", ") for each in arrays)
    return Effect(str(instruction.attributes.get("call_target_name", "")), tuple(a.tobytes() for a in arrays), text)


def stand_ins(instruction: Instruction) -> list[NDArray]:
    """Results of a call of which nobody knows what it gives."""
    types = [result.tensor_type for result in instruction.results]
    return [to_compute(np.zeros(kind.shape, kind.element_type.storage), kind.element_type) for kind in types]


def first_change(found: Sequence[Effect], expected: Sequence[Effect]) -> str:
    """What is the first effect that differs; empty if none does."""
    for number in range(max(len(found), len(expected))):
        ours, theirs = (list(each[number : number + 1]) for each in (found, expected))
        if not theirs:
            return f"effect {number} is {ours[0]}, where there was none"
        if not ours:
            return f"effect {number}, {theirs[0]}, is gone"
        if (ours[0].target, ours[0].operands) != (theirs[0].target, theirs[0].operands):
            return f"effect {number} is {ours[0]}, expected {theirs[0]}"
    return ""


_TELL: Final = (
    "stablehlo.custom_call @hlojit.testing.{0}(%{1}) {{has_side_effect = true}} : (tensor<4xf32>) -> tensor<4xf32>"
)

PROGRAMS: Final = {
    "effects that nobody reads": f"""
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %0 = {_TELL.format("tell", "x")}
  %1 = {_TELL.format("tell", "x")}
  %n = stablehlo.negate %x : tensor<4xf32>
  %2 = {_TELL.format("tell_more", "n")}
  %s = stablehlo.subtract %n, %x : tensor<4xf32>
  %m = stablehlo.multiply %s, %x : tensor<4xf32>
  return %m : tensor<4xf32>
}}""",
    "effects in a loop and in a branch": f"""
func.func @main(%x: tensor<4xf32>, %p: tensor<i1>) -> tensor<4xf32> {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<4xf32> cond {{
    %three = stablehlo.constant dense<3> : tensor<i32>
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %0 = {_TELL.format("tell", "x")}
    %1 = {_TELL.format("tell_more", "v")}
    %w = stablehlo.add %v, %x : tensor<4xf32>
    stablehlo.return %j, %w : tensor<i32>, tensor<4xf32>
  }}
  %b = "stablehlo.if"(%p) ({{
    %2 = {_TELL.format("tell", "x")}
    stablehlo.return %x : tensor<4xf32>
  }}, {{
    %3 = {_TELL.format("tell_more", "x")}
    %d = stablehlo.subtract %x, %3 : tensor<4xf32>
    stablehlo.return %d : tensor<4xf32>
  }}) : (tensor<i1>) -> tensor<4xf32>
  %e = stablehlo.add %r#1, %b : tensor<4xf32>
  return %e : tensor<4xf32>
}}""",
}
"""Programs with calls of which nobody knows more than that they have effects."""
