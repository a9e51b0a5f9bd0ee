"""Result types of ops on tensors in blocks, where the builder is not given them.

What computes elementwise gives the format of its operands, products and reductions f32; what moves blocks gives a format with
the same numbers along the dimension in which they then lie (``mxfp8_t`` of a transposed ``mxfp8``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.errors import TypeInferenceError
from hlojit.ir.formats import element_types
from hlojit.ir.ops.block_arithmetic import block_format, number_type
from hlojit.ir.ops.block_movement import BlockMove
from hlojit.ir.ops.definition import InferenceRequest, OpDefinition, Pointwise, Trait
from hlojit.ir.types import TensorType, Type, tensor


def infer_blocks(record: OpDefinition, request: InferenceRequest) -> Sequence[Type] | None:
    """Result types of an op with operands in blocks; None where there are none, or the record knows them itself."""
    formats = [format for type in request.operand_types if (format := block_format(type)) is not None]
    if not formats or record.infer is None or Trait.PARTS in record.traits:
        return None
    rule = record.parts.get(BlockFormat)
    found = record.infer(replace(request, operand_types=tuple(map(number_type, request.operand_types))))
    if isinstance(rule, BlockMove):
        return [_moved(rule, request, formats[0], type) for type in found]
    if isinstance(record.lowering, Pointwise):
        return [_in_format(type, formats[0]) for type in found]
    return found


def _in_format(type: Type, format: BlockFormat) -> Type:
    return tensor(type.shape, format) if isinstance(type, TensorType) and type.element_type.name == "f32" else type


def _moved(rule: BlockMove, request: InferenceRequest, format: BlockFormat, type: Type) -> Type:
    moving = next(each for each in request.operand_types if block_format(each) is not None)
    assert isinstance(moving, TensorType) and isinstance(type, TensorType)
    found = rule.rule(request, format, format.dimension(moving.rank))
    if isinstance(found, str):
        raise TypeInferenceError(f"{found}; convert to f32 first")
    for row in (format, *element_types()):
        if isinstance(row, BlockFormat) and row.same_numbers(format) and found[0] in (row.axis, row.axis + type.rank):
            return tensor(type.shape, row)
    raise TypeInferenceError(f"no format is like {format} with blocks along dimension {found[0]} of {type.shape}")
