"""Compute at compile time what depends on constants only.

    %0 = stablehlo.constant dense<2.0>         =>   %2 = stablehlo.constant dense<4.0>
    %1 = stablehlo.constant dense<2.0>
    %2 = stablehlo.multiply %0, %1

The op records' reference semantics compute the result.  At most ``limit`` elements are made per instruction; a
pointwise op on splat constants is computed once, whatever its shape.  A small table that an op makes out of nothing
(``iota``) counts as a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from hlojit.ir.attributes import Dense
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import BooleanType, ComplexType, FloatFormat, IntegerType
from hlojit.ir.graph import Instruction, Module, Value
from hlojit.ir.ops.definition import Expand, Indexed, Pointwise, Structural, Trait
from hlojit.ir.passes.graph_facts import constant_of, splat_dense
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.passes.rewriting import Rewriter
from hlojit.ir.types import TensorType

_NUMBERS: Final = (BooleanType, IntegerType, FloatFormat, ComplexType)
_SMALL_TABLE: Final = 64
_OPERAND_FACTOR: Final = 16
"""Operands may have this many times ``limit`` elements together: they exist already, but take time to work through."""


@dataclass(frozen=True)
class ConstantFolding(Pass):
    """Replace instructions on constants by constants."""

    name: ClassVar[str] = "constant-folding"
    phase: ClassVar[str] = "simplify"
    limit: int = 4096

    def run(self, module: Module) -> bool:
        """Fold; return whether anything was."""
        return Rewriter(module, {}, Folder(module, self.limit)).run()


class Folder:
    """Evaluates instructions whose operands are constants; with ``expanding`` also those that would be expanded."""

    def __init__(self, module: Module, limit: int, *, expanding: bool = False):
        from hlojit.ir.interpreter import Interpreter

        self.limit = limit
        self._kept = Structural if expanding else (Structural, Expand)
        self._interpreter = Interpreter(module)

    def fold(self, instruction: Instruction) -> Sequence[Dense] | None:
        """The results as constants, or None where they are not, or should not be made, known."""
        record = instruction.op
        operands = instruction.operands
        if not operands or record.reference is None or isinstance(record.lowering, self._kept):
            return None
        if Trait.EFFECT in record.traits or record.effect is not None:
            return None
        constants = []
        for operand in operands:
            dense = self._constant(operand)
            if dense is None:
                return None
            constants.append(dense)
        if not all(map(_is_plain, (*operands, *instruction.results))):
            return None
        if isinstance(record.lowering, Pointwise) and all(dense.is_splat for dense in constants):
            return self._fold_splats(instruction, constants)
        if sum(result.tensor_type.size for result in instruction.results) > self.limit:
            return None
        if sum(dense.array.size for dense in constants) > self.limit * _OPERAND_FACTOR:
            return None
        return self._evaluate(instruction, [dense.array for dense in constants])

    def _constant(self, value: Value) -> Dense | None:
        dense = constant_of(value)
        if dense is not None:
            return dense
        owner = value.owner
        if not isinstance(owner, Instruction) or owner.operands or not isinstance(owner.op.lowering, Indexed):
            return None
        if not _is_plain(value) or value.tensor_type.size > _SMALL_TABLE or owner.op.reference is None:
            return None
        if not isinstance(value.tensor_type.element_type, IntegerType):
            return None
        made = self._evaluate(owner, ())
        return made[value.index] if made is not None else None

    def _fold_splats(self, instruction: Instruction, constants: Sequence[Dense]) -> Sequence[Dense] | None:
        """Evaluate one element: every dimension cut down to 1."""
        values = [dense.array[(slice(0, 1),) * dense.array.ndim] for dense in constants]
        folded = self._evaluate(instruction, values, check_shape=False)
        if folded is None or any(dense.array.size != 1 for dense in folded):
            return None
        return [
            splat_dense(result.tensor_type, dense.splat_element) for result, dense in zip(instruction.results, folded)
        ]

    def _evaluate(
        self, instruction: Instruction, arrays: Sequence[Any], *, check_shape: bool = True
    ) -> Sequence[Dense] | None:
        from hlojit.ir.scalar.arrays import to_compute, to_storage

        elements = [operand.tensor_type.element_type for operand in instruction.operands]
        try:
            values = [to_compute(array, element) for array, element in zip(arrays, elements)]
            if _moves(instruction) and not all(map(_has_bits, arrays, values, elements)):
                return None  # a NaN that is only moved keeps its bits
            with np.errstate(all="ignore"):
                results = self._interpreter.evaluate(instruction, values, {})
            stored = [
                np.asarray(to_storage(np.asarray(value), result.tensor_type.element_type))
                for value, result in zip(results, instruction.results)
            ]
        except (HlojitError, KeyError):
            return None  # it reads something that is not known here, or a plugin's function raises
        folded = []
        for array, result in zip(stored, instruction.results):
            type = result.tensor_type
            if check_shape and array.shape != type.shape:
                return None
            folded.append(_dense(type, array))
        return folded


def _moves(instruction: Instruction) -> bool:
    lowering = instruction.op.lowering
    return isinstance(lowering, (Pointwise, Indexed)) and lowering.moves


def _has_bits(stored: Any, values: Any, element: Any) -> bool:
    """Whether numbers in compute form say all about those that are stored."""
    from hlojit.ir.scalar.arrays import to_storage

    if not isinstance(element, FloatFormat) or element.is_native:
        return True
    return np.asarray(to_storage(np.asarray(values), element)).tobytes() == np.asarray(stored).tobytes()


def _dense(type: TensorType, array: Any) -> Dense:
    """A constant over ``array``; one element value is stored once."""
    if array.size > 1:
        first = array.reshape(-1)[:1].tobytes()
        if array.tobytes() == first * array.size:
            return splat_dense(type, array.reshape(-1)[0])
    # ``array`` may be a view of another constant: the copy is small and makes it contiguous.
    array = np.array(array, order="C")
    array.flags.writeable = False
    return Dense(type, array)


def _is_plain(value: Value) -> bool:
    type = value.type
    return isinstance(type, TensorType) and type.is_static and isinstance(type.element_type, _NUMBERS)
