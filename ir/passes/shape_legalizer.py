"""Replace the ops of ``shape``, ``tensor`` and ``arith`` that exports compute shapes with.

    %c0 = arith.constant 0 : index                      =>     %c0 = stablehlo.constant dense<0> : tensor<i64>
    %n = tensor.dim %x, %c0 : tensor<?x4xf32>                  %0 = stablehlo.get_dimension_size %x, dim = 0 : tensor<i32>
    %s = tensor.from_elements %n : tensor<1xindex>             %n = stablehlo.convert %0 : tensor<i64>
                                                               %s = stablehlo.reshape %n : tensor<1xi64>

A builtin scalar becomes a tensor without dimensions, an ``index`` an i64, in signatures too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlojit.ir.graph import Block, Module
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.passes.rules.shapes import converted, is_shape_op, legalized


def has_shape_ops(module: Module) -> bool:
    """Whether there is anything to replace."""
    return any(map(is_shape_op, module.walk()))


@dataclass(frozen=True)
class ShapeLegalizer(Pass):
    """Replace ops of other dialects by StableHLO."""

    name: ClassVar[str] = "shape-legalizer"
    phase: ClassVar[str] = "import"

    def run(self, module: Module) -> bool:
        """Replace; return whether there was one."""
        if not has_shape_ops(module):
            return False
        for function in module.functions.values():
            function.result_types = list(map(converted, function.result_types))
            _legalize(function.body)
        return True


def _legalize(block: Block) -> None:
    for argument in block.arguments:
        argument.type = converted(argument.type)
    for instruction in block:
        if is_shape_op(instruction):
            instruction.replace_with([legalized(instruction)])
            continue
        for result in instruction.results:
            result.type = converted(result.type)
        for region in instruction.regions:
            _legalize(region)
