"""What a vendor states of a thing that is tried: the shapes that it takes, arguments that make sense to it.

check_custom_call("nova.norm", operands=["f32", "f32"], shapes=[[(4, 8), (8,)], [(3, 5), (5,)]])
check_custom_call("nova.swap", operands=["ui8"], shapes=[(8,), (3, 2)])
check_kernel(GATHER, [text], arguments=lambda types, random: [random.standard_normal(...), random.integers(...)])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hlojit.arrays import to_storage
from hlojit.ir.errors import HlojitError, short_repr
from hlojit.ir.types import TensorType

NDArray = np.ndarray[Any, Any]

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]
"""A shape for each operand."""

StatedShapes = Sequence[Sequence[int] | Sequence[Sequence[int]]]
"""Each one shape for all operands, or a list with one for each of them."""

StatedArguments = Callable[[Sequence[TensorType], np.random.Generator], Sequence[Any]]
"""``arguments(types, random)`` gives arrays of the types."""


def stated_shapes(shapes: StatedShapes, operands: int) -> tuple[Shapes, ...]:
    """The shapes of each try; raises ``HlojitError`` for what are none."""
    return tuple(_shapes(each, operands) for each in shapes)


def _shapes(given: Any, operands: int) -> Shapes:
    try:
        parts = tuple(given)
        if all(isinstance(each, (int, np.integer)) for each in parts):
            return (_shape(parts),) * operands
        made = tuple(map(_shape, parts))
    except TypeError:
        made = ()
    if len(made) != operands:
        raise HlojitError(
            f"shapes= holds {short_repr(given)}: one shape such as (4, 8) for all operands, or a list of {operands}, one for each"
        )
    return made


def _shape(given: Any) -> Shape:
    shape = tuple(int(each) for each in given)
    if any(extent < 0 for extent in shape):
        raise HlojitError(f"shapes= holds {short_repr(given)}; sizes are 0 or more")
    return shape


def stated_arguments(arguments: StatedArguments, kinds: Sequence[TensorType], seed: int) -> list[NDArray]:
    """A vendor's arguments in storage form; raises ``HlojitError`` for arrays of other types."""
    made = list(arguments(kinds, np.random.default_rng(seed)))
    if len(made) != len(kinds):
        raise HlojitError(f"arguments= gives {len(made)} arrays for {len(kinds)} arguments")
    return [
        np.array(to_storage(array, kind, f"array {number} of arguments="), order="C")
        for number, (array, kind) in enumerate(zip(made, kinds))
    ]
