"""Sizes that may depend on the arguments: numbers of elements and bytes as plain data.

A size is an ``int``, or an expression over extents of the program's arguments:

>>> rows = extent(0, 0)
>>> text(multiply(rows, 4))
'(input0.shape[0] * 4)'
>>> evaluate(round_up(multiply(rows, 4), 64), [(10, 3)])
64

Elements of integer arguments may be sizes, too (``element``).  Constants stay numbers: what is known when the program is compiled
costs nothing and looks as it always did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hlojit.ir.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class SizeExpression:
    """``operation`` (a key of ``OPERATIONS``, or one of ``ATOMS`` over two numbers) over ``operands``."""

    operation: str
    operands: tuple[Size, ...]

    def __str__(self) -> str:
        return text(self)


Size = int | SizeExpression

MOST_BYTES: Final = 1 << 47
"""No machine has so many."""

ATOMS: Final[Mapping[str, str]] = {"extent": "input{}.shape[{}]", "element": "input{}.flat[{}]"}
"""What expressions are made of - an input's number, and a dimension or a position in it - and how that is spelt."""


def _divide_up(value: int, divisor: int) -> int:
    return -(-value // divisor)


def _truncated(value: int, divisor: int) -> int:
    """The quotient, towards zero; of a division by zero -1, as the specification has it for integers."""
    if divisor == 0:
        return -1
    quotient = abs(value) // abs(divisor)
    return quotient if (value < 0) == (divisor < 0) else -quotient


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


OPERATIONS: Final[Mapping[str, tuple[Callable[..., int], str]]] = {
    "add": (lambda *values: sum(values), " + "),
    "multiply": (lambda *values: math.prod(values), " * "),
    "maximum": (lambda *values: max(values), " max "),
    "round_up": (_round_up, " up to "),
    "divide_up": (_divide_up, " / up "),
    "minimum": (lambda *values: min(values), " min "),
    "subtract": (lambda a, b: a - b, " - "),
    "divide": (_truncated, " / "),
    "remainder": (lambda a, b: a - b * _truncated(a, b), " rem "),
    "equal": (lambda a, b: int(a == b), " == "),
    "less": (lambda a, b: int(a < b), " < "),
    "and": (lambda a, b: a & b, " & "),
    "or": (lambda a, b: a | b, " | "),
    "xor": (lambda a, b: a ^ b, " ^ "),
    "select": (lambda condition, a, b: a if condition else b, " ? "),
}
"""What an expression may compute, and the sign that stands between its operands in text."""


def extent(number: int, dimension: int) -> SizeExpression:
    """The extent of a dimension of input ``number``."""
    return SizeExpression("extent", (number, dimension))


def element(number: int, position: int) -> SizeExpression:
    """An element of the integer input ``number``, counted in row-major order."""
    return SizeExpression("element", (number, position))


def apply(operation: str, *operands: Size) -> Size:
    """Any operation; what is known is computed."""
    if operation in ("add", "maximum", "minimum"):
        return _make(operation, operands, 0 if operation == "add" else None)
    if operation == "multiply":
        return multiply(*operands)
    if all(isinstance(operand, int) for operand in operands):
        return OPERATIONS[operation][0](*operands)
    first, last = operands[0], operands[-1]
    if operation == "subtract":
        if first == last:
            return 0
        return add(first, -last) if isinstance(last, int) else SizeExpression(operation, operands)
    if operation == "equal" and first == last:
        return 1
    if operation == "less" and first == last:
        return 0
    if operation == "select":
        return operands[1 if first else 2] if isinstance(first, int) else _chosen(operands)
    if operation in ("divide", "round_up", "divide_up") and last == 1:
        return first
    return SizeExpression(operation, operands)


def _chosen(operands: Sequence[Size]) -> Size:
    return operands[1] if operands[1] == operands[2] else SizeExpression("select", tuple(operands))


def atoms(size: Size) -> list[SizeExpression]:
    """What an expression is made of."""
    found: list[SizeExpression] = []
    stack = [size]
    while stack:
        top = stack.pop()
        if isinstance(top, SizeExpression):
            if top.operation in ATOMS:
                found.append(top)
            else:
                stack.extend(top.operands)
    return found


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


NO_ELEMENTS: Final[Mapping[int, Sequence[int]]] = {}


def evaluate(size: Size, shapes: Sequence[Sequence[int]], elements: Mapping[int, Sequence[int]] = NO_ELEMENTS) -> int:
    """The number, for arguments of these shapes, some with their elements in row-major order."""
    if isinstance(size, int):
        return size
    if size.operation in ATOMS:
        number, position = size.operands
        assert isinstance(number, int) and isinstance(position, int), size
        return (shapes if size.operation == "extent" else elements)[number][position]
    function, _ = OPERATIONS[size.operation]
    return function(*(evaluate(operand, shapes, elements) for operand in size.operands))


def text(size: Size) -> str:
    """For people to read."""
    if isinstance(size, int):
        return str(size)
    if size.operation in ATOMS:
        return ATOMS[size.operation].format(*size.operands)
    return f"({OPERATIONS[size.operation][1].join(map(text, size.operands))})"
