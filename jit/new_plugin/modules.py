"""Modules of a vendor's first package beside ``plugin.py``: one for each thing, so that one that is not wanted can be deleted."""

from __future__ import annotations

from typing import Final

BLOCKS: Final = '''\
"""A block format: narrow numbers in blocks of eight that share a scale, as an element type.

Not wanted: delete this file, what ``plugin.py`` imports of it, and its test.
"""

from __future__ import annotations

from hlojit.extensions import BlockFormat, FloatFormat

ELEMENT = FloatFormat("NAME5", exponent_bits=2, mantissa_bits=2, bias=1)
BLOCK_FORMAT = BlockFormat("NAMEblock", element=ELEMENT, scale="f16", block=8, scaling="maximum")
'''

ARRAYS: Final = '''\
"""Custom calls over whole arrays: one compiled by numba, one in Python that may use any library.

Not wanted: delete this file, what ``plugin.py`` imports of it, its cases and its test.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hlojit.extensions import ArrayCall


def running_sum(x: Any, result: Any) -> None:
    """Writes every element of its result; indices are checked, and it runs without the GIL."""
    total = np.zeros(x.shape[1], x.dtype)
    for row in range(x.shape[0]):
        total += x[row]
        result[row] = total


def ranks(x: Any) -> Any:
    """Returns what the program says: here the place of each number of a row in order, as i32."""
    return np.argsort(np.argsort(x, axis=-1, kind="stable"), axis=-1, kind="stable").astype(np.int32)


RUNNING_SUM = ArrayCall(
    "NAME.running_sum", function=running_sum, trust="numba", result_types=lambda call: call.operands[0]
)
RANKS = ArrayCall("NAME.ranks", function=ranks, trust="python")
'''

DEVICE: Final = '''\
"""A device that multiplies matrices and adds, in f32; ``backend=["NAME", "cpu"]`` gives it its part of a program.

``compile`` is where a vendor's own compiler begins; here the reference interpreter computes.  docs/placement.md has memory of
a device's own, streams and layouts.  Not wanted: delete this file, what ``plugin.py`` imports of it, and its tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hlojit.extensions import (
    DECOMPOSE,
    YES,
    Backend,
    Capability,
    CompileOptions,
    Instruction,
    Module,
    can_decompose,
    no,
)
from hlojit.ir import TensorType, evaluate

OPS: Final = ("stablehlo.dot_general", "stablehlo.add", "stablehlo.constant")


class Device(Backend):
    """Says what it can do, one instruction at a time, and compiles programs that hold nothing else."""

    name = "NAME"

    def capability(self, instruction: Instruction) -> Capability:
        """``YES``, ``DECOMPOSE`` for what can be expanded into smaller ops, or no and why."""
        if can_decompose(instruction):
            return DECOMPOSE
        if instruction.name not in OPS:
            return no("it has a matrix unit and adders")
        types = (*instruction.operand_types, *instruction.result_types)
        if all(isinstance(type, TensorType) and type.element_type.name == "f32" for type in types):
            return YES
        return no("it computes in f32")

    def compile(self, module: Module, options: CompileOptions) -> Callable[..., Any]:
        """A function of arrays for a program."""
        return lambda *arrays: evaluate(module, *arrays)
'''

CASES: Final = '''\
"""How hlojit's kit tries what types alone do not tell; read by the kit (``hlojit_cases``) and the tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from hlojit.testing import Case

from .arrays import ranks


def running_sum(x: Any) -> Any:
    """The same by NumPy."""
    return np.cumsum(x, axis=0, dtype=x.dtype)


NORM = """
func.func @main(%x: tensor<8x100xf32>) -> tensor<8x100xf32> {
  %0 = stablehlo.composite "NAME.row_norm" %x {decomposition = @norm} : (tensor<8x100xf32>) -> tensor<8x100xf32>
  return %0 : tensor<8x100xf32>
}
func.func private @norm(%x: tensor<8x100xf32>) -> tensor<8x100xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.multiply %x, %x : tensor<8x100xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<8x100xf32>, tensor<f32>) -> tensor<8xf32>
  %2 = stablehlo.sqrt %1 : tensor<8xf32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<8xf32>) -> tensor<8x100xf32>
  %4 = stablehlo.divide %x, %3 : tensor<8x100xf32>
  return %4 : tensor<8x100xf32>
}
"""
NORM_IN_OPS = NORM.partition("func.func private")[2].replace("@norm", "func.func @main")
NEGATIONS = """
func.func @main(%x: tensor<5x7xf32>) -> tensor<5x7xf32> {
  %0 = stablehlo.negate %x : tensor<5x7xf32>
  %1 = stablehlo.negate %0 : tensor<5x7xf32>
  %2 = stablehlo.add %1, %x : tensor<5x7xf32>
  return %2 : tensor<5x7xf32>
}
"""

CASES = [
    Case("NAME.running_sum", operands=["f32"], shapes=[(4, 8), (1, 3)], oracle=running_sum),
    Case("NAME.ranks", operands=["f32"], shapes=[(4, 8), (3,)], results=["i32"], oracle=ranks),
    Case("NAME.softsign", operands=["f32"]),
    Case("NAME-double-negation", programs=[NEGATIONS]),
    Case("NAME.row_norm", programs=[NORM]),
    Case("NAME.row_norm_ops", programs=[NORM_IN_OPS]),
]
'''
