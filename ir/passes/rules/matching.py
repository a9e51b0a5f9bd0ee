"""What rules ask about values: who made them, whether they are constants, between which bounds they lie.

>>> made_by(value, "reshape")     # the stablehlo.reshape that computes the value, or None
>>> splat_number(value)           # 1.5 for a splat constant of 1.5, or None
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from hlojit.ir.formats import BooleanType, ComplexType, ElementType, FloatFormat, IntegerType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.passes.graph_facts import constant_of, splat_of
from hlojit.ir.types import TensorType


def made_by(value: Value, mnemonic: str) -> Instruction | None:
    """The instruction that computes ``value`` if it is the StableHLO op ``mnemonic``."""
    owner = value.owner
    if isinstance(owner, Instruction) and owner.op.name == f"stablehlo.{mnemonic}":
        return owner
    return None


def has_one_use(value: Value) -> bool:
    """Whether exactly one operand of one instruction is ``value``."""
    return len(value.users) == 1 and next(iter(value.users.values())) == 1


def static_shape(value: Value) -> tuple[int, ...] | None:
    """The shape of a tensor whose dimensions are all known."""
    type = value.type
    return type.shape if isinstance(type, TensorType) and type.is_static else None


def element_of(value: Value) -> ElementType | None:
    """The element type of a tensor."""
    return value.type.element_type if isinstance(value.type, TensorType) else None


def is_integer(value: Value) -> bool:
    """Whether the elements are integers (i1 not among them)."""
    return isinstance(element_of(value), IntegerType)


def is_boolean(value: Value) -> bool:
    """Whether the elements are i1."""
    return isinstance(element_of(value), BooleanType)


def is_exact_kind(value: Value) -> bool:
    """Whether arithmetic on the elements is exact: integers and booleans."""
    return isinstance(element_of(value), (IntegerType, BooleanType))


def is_float(value: Value) -> bool:
    """Whether the elements are floats of a format that NumPy or ml_dtypes has."""
    element = element_of(value)
    return isinstance(element, FloatFormat) and element.dtype is not None


def splat_number(value: Value) -> Any:
    """The one element of a splat constant as a Python number; None if there is none or NumPy cannot read it."""
    element = splat_of(value)
    if element is None:
        return None
    kind = value.tensor_type.element_type
    if isinstance(kind, BooleanType):
        return bool(element)
    if isinstance(kind, IntegerType):
        return int(element)
    if isinstance(kind, FloatFormat):
        return float(element) if kind.dtype is not None else None
    return complex(element) if isinstance(kind, ComplexType) else None


def is_splat(value: Value, number: float) -> bool:
    """Whether the value is a splat constant of ``number``; signs of zeros must agree."""
    found = splat_number(value)
    if found is None or isinstance(found, complex) or found != number:
        return False
    return not isinstance(found, float) or math.copysign(1.0, found) == math.copysign(1.0, number)


def is_all_ones(value: Value) -> bool:
    """Whether the value is a splat constant with every bit of an integer (or boolean) set."""
    found = splat_number(value)
    element = element_of(value)
    if isinstance(element, BooleanType):
        return found is True
    return isinstance(element, IntegerType) and found is not None and found in (-1, (1 << element.bits) - 1)


def lowest_of(element: ElementType | None) -> float | int | None:
    """The value v with max(x, v) = x for all x of the element type."""
    return _bound(element, lowest=True)


def highest_of(element: ElementType | None) -> float | int | None:
    """The value v with min(x, v) = x for all x of the element type."""
    return _bound(element, lowest=False)


def _bound(element: ElementType | None, *, lowest: bool) -> float | int | None:
    if isinstance(element, BooleanType):
        return int(not lowest)
    if isinstance(element, IntegerType):
        return element.minimum if lowest else element.maximum
    if isinstance(element, FloatFormat) and element.has_infinity and element.signed:
        return -math.inf if lowest else math.inf
    return None


def holds_all_of(target: ElementType, source: ElementType) -> bool:
    """Whether every value of ``source`` is a value of ``target`` (so that the conversion loses nothing)."""
    if target is source:
        return True
    if isinstance(source, BooleanType):
        return isinstance(target, IntegerType) or (isinstance(target, FloatFormat) and target.has_zero)
    if isinstance(source, IntegerType):
        if isinstance(target, IntegerType):
            return target.minimum <= source.minimum and source.maximum <= target.maximum
        return (
            isinstance(target, FloatFormat)
            and target.decode is None
            and target.name in _IEEE_FORMATS
            and source.bits - source.signed <= target.mantissa_bits + 1
            and source.bits <= target.bias
        )
    if isinstance(source, FloatFormat) and isinstance(target, FloatFormat):
        return (
            source.name in _IEEE_FORMATS
            and target.name in _IEEE_FORMATS
            and source.exponent_bits <= target.exponent_bits
            and source.mantissa_bits <= target.mantissa_bits
        )
    return False


_IEEE_FORMATS: Final = frozenset(("f64", "f32", "f16", "bf16", "f8E5M2", "f8E4M3", "f8E3M4"))
"""Formats with infinities, NaN and signed zeros, between which the parameters decide."""


# -- ranges of integers --------------------------------------------------------------------------------------------

Range = tuple[int, int]
_DEEPEST: Final = 6
_LARGEST_CONSTANT: Final = 4096


def integer_range(value: Value, depth: int = 0) -> Range | None:
    """Bounds (both included) of the elements of an integer tensor, or None where nothing is known."""
    element = element_of(value)
    if not isinstance(element, IntegerType):
        return None
    limits = (element.minimum, element.maximum)
    dense = constant_of(value)
    if dense is not None:
        if dense.array.size == 0 or (dense.array.size > _LARGEST_CONSTANT and not dense.is_splat):
            return None
        array = np.asarray(dense.splat_value) if dense.is_splat else dense.array
        return int(array.min()), int(array.max())
    owner = value.owner
    if depth >= _DEEPEST or not isinstance(owner, Instruction):
        return None
    rule = _RANGES.get(owner.op.name)
    found = None if rule is None else rule(owner, depth + 1)
    if found is None or found[0] < limits[0] or found[1] > limits[1]:
        return None  # it may wrap around
    return found


def _range_of_iota(iota: Instruction, depth: int) -> Range | None:
    extent = iota.results[0].tensor_type.shape[iota.attributes["iota_dimension"]]
    return (0, extent - 1) if extent > 0 else None


def _range_of_same(instruction: Instruction, depth: int) -> Range | None:
    return integer_range(instruction.operands[0], depth)


def _range_of_convert(convert: Instruction, depth: int) -> Range | None:
    return (0, 1) if is_boolean(convert.operands[0]) else integer_range(convert.operands[0], depth)


def _range_of_union(instruction: Instruction, depth: int) -> Range | None:
    ranges = [integer_range(operand, depth) for operand in instruction.operands[:8]]
    known = [found for found in ranges if found is not None]
    if len(known) < len(instruction.operands):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def _range_of_select(select: Instruction, depth: int) -> Range | None:
    first, second = integer_range(select.operands[1], depth), integer_range(select.operands[2], depth)
    if first is None or second is None:
        return None
    return min(first[0], second[0]), max(first[1], second[1])


def _range_of_arithmetic(combine: Callable[[int, int], int]) -> Callable[[Instruction, int], Range | None]:
    """The range of an op that is monotonic in each operand: its extremes are at the corners."""

    def range_of(instruction: Instruction, depth: int) -> Range | None:
        first = integer_range(instruction.operands[0], depth)
        second = integer_range(instruction.operands[1], depth) if first is not None else None
        if first is None or second is None:
            return None
        corners = [combine(a, b) for a in first for b in second]
        return min(corners), max(corners)

    return range_of


def _range_of_clamp(clamp: Instruction, depth: int) -> Range | None:
    low, high = integer_range(clamp.operands[0], depth), integer_range(clamp.operands[2], depth)
    if low is None or high is None or low[0] > high[1]:
        return None
    return min(low[0], high[0]), high[1]


_RANGES: Final[dict[str, Callable[[Instruction, int], Range | None]]] = {
    "stablehlo.iota": _range_of_iota,
    "stablehlo.broadcast_in_dim": _range_of_same,
    "stablehlo.reshape": _range_of_same,
    "stablehlo.transpose": _range_of_same,
    "stablehlo.slice": _range_of_same,
    "stablehlo.reverse": _range_of_same,
    "stablehlo.dynamic_slice": _range_of_same,
    "stablehlo.convert": _range_of_convert,
    "stablehlo.concatenate": _range_of_union,
    "stablehlo.select": _range_of_select,
    "stablehlo.add": _range_of_arithmetic(lambda a, b: a + b),
    "stablehlo.subtract": _range_of_arithmetic(lambda a, b: a - b),
    "stablehlo.multiply": _range_of_arithmetic(lambda a, b: a * b),
    "stablehlo.maximum": _range_of_arithmetic(max),
    "stablehlo.minimum": _range_of_arithmetic(min),
    "stablehlo.clamp": _range_of_clamp,
}
