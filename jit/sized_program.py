"""What a program that is compiled once for all sizes has beside its code: sizes as expressions, what has to hold of them.

Plain data, a part of a ``CompiledProgram`` and of its file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hlojit.ir.size_checks import Check, SizeFacts, SizeRange, known_elements
from hlojit.ir.sizes import ATOMS, MOST_BYTES, OPERATIONS, Size, SizeExpression, evaluate
from hlojit.ir.types import DYNAMIC, TensorType

_OPERANDS: Final[Mapping[str, int]] = {"select": 3, "add": 0, "multiply": 0, "maximum": 0, "minimum": 0}
"""How many an operation takes, of those that do not take two; 0: any number."""


@dataclass(frozen=True, slots=True)
class NamedShape:
    """A value of the program: what makes it, the bytes of an element, and its shape."""

    what: str
    itemsize: int
    shape: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class SizedProgram:
    """See the module's docstring."""

    table: tuple[Size, ...]
    """The sizes that the code is given, as its last constant."""
    arena_bytes: Size
    launches: int | None
    """How many kernels are run; None where only the run tells."""
    results: tuple[tuple[Size, ...], ...]
    """Shapes of the results."""
    values: tuple[NamedShape, ...]
    """Values whose shape may be one that no memory has."""
    needs: SizeFacts
    """Of the code."""
    stated: SizeFacts
    """Of the program before it was simplified."""
    size_arguments: tuple[int, ...]
    source: str
    """Text of the program, for calls that the code is not right for."""

    def impossible(self, extents: Sequence[Sequence[int]], values: Mapping[int, Any]) -> str | None:
        """Which value cannot be made: of a negative size, or larger than any memory."""
        elements = known_elements(values)
        for each in self.values:
            found = [evaluate(size, extents, elements) for size in each.shape]
            nbytes = math.prod(found) * each.itemsize
            if min(found) < 0 or max(*found, nbytes) >= MOST_BYTES:
                return f"{each.what} would have the shape {tuple(found)}, {nbytes:,} bytes"
        return None


RECORDS: Final = {
    kind.__name__: kind for kind in (SizedProgram, NamedShape, SizeFacts, Check, SizeRange, SizeExpression)
}
"""What it is made of, for files."""


def is_sound(program: Any, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> bool:
    """Whether what a file holds is such a program, for arguments and results of these types."""
    try:
        return _is_sound(program, inputs, outputs)
    except (AttributeError, TypeError, ValueError, IndexError):  # of what type anything is, nobody knows
        return False


def _is_sound(program: Any, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> bool:
    if not isinstance(program, SizedProgram) or not isinstance(program.source, str):
        return False
    if not all(type(number) is int and 0 <= number < len(inputs) for number in program.size_arguments):
        return False
    if [len(shape) for shape in program.results] != [type_.rank for type_ in outputs]:
        return False
    if not all(type(each.what) is str and type(each.itemsize) is int and each.shape for each in program.values):
        return False
    if program.launches is not None and type(program.launches) is not int:
        return False
    facts = (program.needs, program.stated)
    texts = [check.message for fact in facts for check in (*fact.checks, *fact.assumptions)]
    texts += [text for fact in facts for each in fact.ranges for text in (each.low, each.high, each.where)]
    numbers = [int(text) for fact in facts for each in fact.ranges for text in (each.low, each.high)]
    if not all(type(text) is str for text in texts) or len(numbers) > len(texts):
        return False
    return _are_sizes(list(_sizes(program)), inputs, program.size_arguments)


def _sizes(program: SizedProgram) -> Iterator[Any]:
    yield from program.table
    yield program.arena_bytes
    for shape in (*program.results, *(each.shape for each in program.values)):
        yield from shape
    for facts in (program.needs, program.stated):
        for check in (*facts.checks, *facts.assumptions):
            yield check.condition
            yield from check.sizes
        yield from (each.size for each in facts.ranges)


def _are_sizes(found: list[Any], inputs: Sequence[TensorType], elements: Sequence[int]) -> bool:
    """Whether these are numbers, or expressions over dimensions of inputs and elements of those that have some."""
    seen: set[int] = set()
    while found:
        top = found.pop()
        if type(top) is int or id(top) in seen:
            continue
        if not isinstance(top, SizeExpression) or type(top.operands) is not tuple:
            return False
        seen.add(id(top))
        if top.operation in ATOMS:
            number, position = top.operands
            if not _is_place(top.operation, number, position, inputs, elements):
                return False
            continue
        count = _OPERANDS.get(top.operation, 2)
        if top.operation not in OPERATIONS or not top.operands or count not in (0, len(top.operands)):
            return False
        found.extend(top.operands)
    return True


def _is_place(
    operation: str, number: Any, position: Any, inputs: Sequence[TensorType], elements: Sequence[int]
) -> bool:
    if type(number) is not int or type(position) is not int or not 0 <= number < len(inputs) or position < 0:
        return False
    type_ = inputs[number]
    if operation == "extent":
        return position < type_.rank
    return number in elements and DYNAMIC not in type_.shape and position < type_.size
