"""Programs as what tries them sees them: arguments and results in blocks are the tensors of their parts.

module, arrays = of_parts(module, [hlojit.Array.from_values(numbers, "mxfp8")])       # elements, scales
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from hlojit.arrays import Array
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.environment import scope_for
from hlojit.ir.errors import ArgumentError
from hlojit.ir.graph import Module
from hlojit.ir.ops.block_arithmetic import block_format, part_types
from hlojit.ir.passes.block_signature import BlockSignature, has_blocks_in_signature
from hlojit.ir.types import TensorType
from hlojit.testing.arguments import Values, made_up

NDArray = np.ndarray[Any, Any]


def of_parts(module: Module, arguments: Sequence[Any]) -> tuple[Module, list[NDArray]]:
    """A copy of a module whose entry function takes and returns parts, and its arguments in storage form.

    An argument in blocks is an ``hlojit.Array`` or its parts.
    """
    made = module.clone()
    if not has_blocks_in_signature(module.main):
        return made, list(arguments)
    types = [argument.tensor_type for argument in module.main.body.arguments]
    arrays = [array for type_, given in zip(types, arguments, strict=True) for array in _parts(type_, given)]
    with scope_for(module.environment).activate():
        BlockSignature().run(made)
    return made, arrays


def arguments_of(module: Module, seed: int, values: Values = Values.SPECIAL) -> list[Any]:
    """As ``arguments_for``, with an ``hlojit.Array`` for each argument in blocks, of which most blocks have no NaN."""
    types = [argument.tensor_type for argument in module.main.body.arguments]
    return [
        made_up(type_, (seed, position), values)
        if (format := block_format(type_)) is None
        else in_blocks(type_.shape, format, seed)
        for position, type_ in enumerate(types)
    ]


def in_blocks(shape: Sequence[int], format: BlockFormat, seed: int) -> Array:
    """Made-up numbers in blocks, small and large blocks among them; one in sixteen blocks has a NaN or an infinity."""
    generator = np.random.default_rng([seed, *shape])
    numbers = generator.standard_normal(shape) * 2.0 ** generator.integers(-3, 4, shape)
    special = generator.random(shape) < 1 / (16 * format.block)
    numbers[special] = generator.choice(np.array([np.nan, np.inf, -np.inf]), int(special.sum()))
    return Array.from_values(numbers, format)


def _parts(type_: TensorType, given: Any) -> Iterator[NDArray]:
    format = block_format(type_)
    if format is None:
        yield given
        return
    parts = getattr(given, "parts", given)
    if not isinstance(parts, (tuple, list)):
        raise ArgumentError(f"an argument of type {type_} is an hlojit.Array, or a tuple of its parts")
    for part, each in zip(parts, part_types(type_), strict=True):
        codes = part.storage if isinstance(part, Array) else np.asarray(part)
        yield codes.view(each.element_type.storage)
