"""Donation: arguments whose memory the caller gives up, as the text of a program says it.

func.func @step(%state: tensor<8xf32> {tf.aliasing_output = 0 : i32}, %scratch: tensor<8xf32> {jax.buffer_donor = true})
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from hlojit.ir.attributes import Attribute, BoolAttr, IntegerAttr, UnitAttr
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


def element_attributes(
    function: Function, arguments: Sequence[int], results: Sequence[int]
) -> list[dict[str, Attribute]]:
    """Attributes of arguments' elements, where argument and result number n are tuples of so many (1: or no tuples).

    The elements of an argument that is to be an output are to be those of the output, one by one; what else is said of an
    argument is said of each.  Raises ``HlojitError`` where there is no such output, or it has another number of elements.
    """
    starts = [0, *accumulate(results)]
    found = []
    for number, (attributes, count) in enumerate(zip(function.argument_attributes, arguments, strict=True)):
        output = attributes.get(ALIASING_OUTPUT)
        if not isinstance(output, IntegerAttr):
            found += [dict(attributes) for _ in range(count)]
            continue
        where = f"@{function.name}, argument {number}: {ALIASING_OUTPUT} = {output.value}"
        if not 0 <= output.value < len(results):
            raise HlojitError(f"{where}, but the function has {len(results)} results")
        if results[output.value] != count:
            types = function.result_types[output.value], function.body.arguments[number].type
            raise HlojitError(f"{where}, but the result is {types[0]} and the argument {types[1]}")
        first = starts[output.value]
        found += [{**attributes, ALIASING_OUTPUT: IntegerAttr(first + n, output.type)} for n in range(count)]
    return found
