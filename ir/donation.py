"""Donation: arguments whose memory the caller gives up, as the text of a program says it.

func.func @step(%state: tensor<8xf32> {tf.aliasing_output = 0 : i32}, %scratch: tensor<8xf32> {jax.buffer_donor = true})
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hlojit.ir.attributes import BoolAttr, IntegerAttr, UnitAttr
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Function

ALIASING_OUTPUT: Final = "tf.aliasing_output"
"""The argument's memory is to be that of the output with this number."""
BUFFER_DONOR: Final = "jax.buffer_donor"
"""The argument's memory may be that of any output."""


def donated_arguments(function: Function) -> dict[int, int | None]:
    """Numbers of the donated arguments; to the output that is to have the memory, or to None where none is named."""
    found: dict[int, int | None] = {}
    for number, attributes in enumerate(function.argument_attributes):
        output = attributes.get(ALIASING_OUTPUT)
        donor = attributes.get(BUFFER_DONOR)
        if isinstance(output, IntegerAttr):
            found[number] = output.value
        elif isinstance(donor, UnitAttr) or (isinstance(donor, BoolAttr) and donor.value):
            found[number] = None
    return found


def mark_donated(function: Function, numbers: Iterable[int]) -> None:
    """Say of these arguments that their memory may be any output's; ``HlojitError`` if there is no such argument."""
    count = len(function.argument_attributes)
    for number in numbers:
        if not 0 <= number < count:
            raise HlojitError(f"@{function.name} has {count} arguments; there is no argument {number} to donate")
        attributes = function.argument_attributes[number]
        if ALIASING_OUTPUT not in attributes:
            function.argument_attributes[number] = {**attributes, BUFFER_DONOR: BoolAttr(True)}
