"""Sizes that may depend on the arguments: numbers of elements and bytes as plain data.

A size is an ``int``, or an expression over extents of the program's arguments:

>>> rows = extent(0, 0)
>>> text(multiply(rows, 4))
'(input0.shape[0] * 4)'
>>> evaluate(round_up(multiply(rows, 4), 64), [(10, 3)])
64

Constants stay numbers: what is known when the program is compiled costs nothing and looks as it always did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hlojit.ir.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class SizeExpression:
    """``operation`` (a key of ``OPERATIONS``, or ``extent``: input number, dimension) over ``operands``."""

    operation: str
    operands: tuple[Size, ...]

    def __str__(self) -> str:
        return text(self)


Size = int | SizeExpression


def _divide_up(value: int, divisor: int) -> int:
    return -(-value // divisor)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


OPERATIONS: Final[Mapping[str, tuple[Callable[..., int], str]]] = {
    "add": (lambda *values: sum(values), " + "),
    "multiply": (lambda *values: math.prod(values), " * "),
    "maximum": (max, " max "),
    "round_up": (_round_up, " up to "),
    "divide_up": (_divide_up, " / up "),
}
"""What an expression may compute, and the sign that stands between its operands in text."""


def extent(number: int, dimension: int) -> SizeExpression:
    """The extent of a dimension of input ``number``."""
    return SizeExpression("extent", (number, dimension))


def add(*operands: Size) -> Size:
    """The sum."""
    return _make("add", operands, 0)


def multiply(*operands: Size) -> Size:
    """The product."""
    return 0 if 0 in operands else _make("multiply", operands, 1)


def maximum(*operands: Size) -> Size:
    """The largest."""
    return _make("maximum", operands, None)


def round_up(size: Size, step: int) -> Size:
    """The next multiple of ``step``."""
    return _round_up(size, step) if isinstance(size, int) else SizeExpression("round_up", (size, step))


def divide_up(size: Size, divisor: int) -> Size:
    """How many pieces of ``divisor`` there are, the last one perhaps not full."""
    return _divide_up(size, divisor) if isinstance(size, int) else SizeExpression("divide_up", (size, divisor))


def _make(operation: str, operands: Sequence[Size], neutral: int | None) -> Size:
    # Nested sums are one sum; what is equal looks equal.
    operands = [
        inner
        for operand in operands
        for inner in (
            operand.operands if isinstance(operand, SizeExpression) and operand.operation == operation else (operand,)
        )
    ]
    numbers = [operand for operand in operands if isinstance(operand, int)]
    others: list[Size] = [operand for operand in operands if not isinstance(operand, int)]
    if numbers or not others:
        constant = OPERATIONS[operation][0](*numbers)
        if not others or constant != neutral:
            others.append(constant)
    return others[0] if len(others) == 1 else SizeExpression(operation, tuple(others))


def known(size: Size) -> int:
    """The number, of a size that does not depend on the arguments."""
    if isinstance(size, int):
        return size
    raise UnsupportedError("a size", "", f"{text(size)} is known only when the program is called")


def evaluate(size: Size, shapes: Sequence[Sequence[int]]) -> int:
    """The number, for arguments of these shapes."""
    if isinstance(size, int):
        return size
    if size.operation == "extent":
        number, dimension = size.operands
        assert isinstance(number, int) and isinstance(dimension, int), size
        return shapes[number][dimension]
    function, _ = OPERATIONS[size.operation]
    return function(*(evaluate(operand, shapes) for operand in size.operands))


def text(size: Size) -> str:
    """For people to read."""
    if isinstance(size, int):
        return str(size)
    if size.operation == "extent":
        return f"input{size.operands[0]}.shape[{size.operands[1]}]"
    return f"({OPERATIONS[size.operation][1].join(map(text, size.operands))})"
