"""What an ``hlojit.Array`` of a block format is made of: the arrays of its parts.

parts_of_numbers(numbers, format)           # codes of elements, of scales and, of two levels, of the tensor's scale
numbers_of_parts([elements, scales], format)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hlojit.ir.block_arrays import decode_blocks, encode_blocks
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.ir.ops.block_arithmetic import part_types
from hlojit.ir.types import TensorType, tensor

NDArray = np.ndarray[Any, Any]

PART_NAMES = ("elements", "scales", "tensor scale")


def parts_of_numbers(numbers: NDArray, format: BlockFormat) -> list[tuple[NDArray, TensorType]]:
    """Codes of the parts of an array of numbers, with their types; each owns its memory, so that it can be donated."""
    if numbers.dtype.kind not in "biufV" or numbers.dtype.names:
        raise HlojitError(f"numbers of dtype {numbers.dtype} cannot become {format}")
    with np.errstate(all="ignore"):
        numbers = numbers.astype(np.float32)
    format.dimension(numbers.ndim)
    types = part_types(tensor(numbers.shape, format))
    return [(part.copy(), type_) for part, type_ in zip(encode_blocks(numbers, format), types)]


def numbers_of_parts(codes: Sequence[NDArray], format: BlockFormat) -> NDArray:
    """What parts stand for, in float32."""
    return decode_blocks(codes, format)


def checked_parts(
    parts: Sequence[Any], format: BlockFormat, as_part: Callable[[Any, TensorType, str], Any]
) -> list[Any]:
    """Parts that a caller gives: ``as_part(part, type, where)`` makes an array of each; raises ``ArgumentError``."""
    given = list(parts)
    count = len(format.part_formats)
    if len(given) != count:
        names = ", ".join(PART_NAMES[:count])
        raise ArgumentError(f"an Array of {format} has {count} parts ({names}), not {len(given)}")
    shape = tuple(getattr(given[0], "shape", ())) or np.shape(given[0])
    format.dimension(len(shape))
    type_ = tensor(shape, format)
    made = [as_part(part, each, f"{name} of {type_}") for part, each, name in zip(given, part_types(type_), PART_NAMES)]
    if len({id(part.device) for part in made}) > 1:
        raise ArgumentError(f"the parts of an Array of {format} are on different devices; move them with hlojit.put")
    return made
