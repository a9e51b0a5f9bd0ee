"""What rules ask about values: who made them, whether they are constants, between which bounds they lie.

>>> made_by(value, "reshape")     # the stablehlo.reshape that computes the value, or None
>>> splat_number(value)           # 1.5 for a splat constant of 1.5, or None
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from hlojit.ir.formats import BooleanType, ComplexType, ElementType, FloatFormat, IntegerType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops import is_built_in
from hlojit.ir.ops.definition import ValueRange
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

_DEEPEST: Final = 6
_LARGEST_CONSTANT: Final = 4096


def integer_range(value: Value, depth: int = 0, *, surely: bool = False) -> ValueRange | None:
    """Bounds (both included) of the elements of an integer tensor, or None where nothing is known.

    ``surely``: as hlojit's own records say, and no plugin's.
    """
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
    rule = owner.op.value_range if not surely or is_built_in(owner.op) else None
    found = None if rule is None else rule(owner, lambda operand: integer_range(operand, depth + 1, surely=surely))
    if found is None or found[0] < limits[0] or found[1] > limits[1]:
        return None  # it may wrap around
    return found
