"""What records of vendors' ops are made of, under one roof: kinds of attributes, by what they hold in Python.

OpDefinition("nova.silu", operands=(Operand("x"),), attributes=(AttributeSpec("alpha", AttributeKinds.F32),), ...)
"""

from __future__ import annotations

from typing import ClassVar, final

from hlojit.ir.ops import attribute_kinds as kinds
from hlojit.ir.ops.attribute_kinds import AttributeKind


@final
class AttributeKinds:
    """Kinds of attributes; ``instruction.attributes[name]`` holds the Python value that stands behind each."""

    I64: ClassVar[AttributeKind] = kinds.I64
    """``int``, written ``3 : i64``"""
    I32: ClassVar[AttributeKind] = kinds.I32
    """``int``, written ``3 : i32``"""
    F32: ClassVar[AttributeKind] = kinds.F32
    """``float``, written ``0.5 : f32``"""
    F64: ClassVar[AttributeKind] = kinds.F64
    """``float``, written ``0.5 : f64``"""
    BOOL: ClassVar[AttributeKind] = kinds.BOOL
    """``bool``"""
    UNIT: ClassVar[AttributeKind] = kinds.UNIT
    """``True`` where it is written"""
    STRING: ClassVar[AttributeKind] = kinds.STRING
    """``str``"""
    SYMBOL: ClassVar[AttributeKind] = kinds.SYMBOL
    """``str``, the name of a function, written ``@name``"""
    I64_ARRAY: ClassVar[AttributeKind] = kinds.I64_ARRAY
    """``tuple`` of ``int``, written ``array<i64: 1, 2>``"""
    BOOL_ARRAY: ClassVar[AttributeKind] = kinds.BOOL_ARRAY
    """``tuple`` of ``bool``, written ``array<i1: true>``"""
    ELEMENTS: ClassVar[AttributeKind] = kinds.ELEMENTS
    """``Dense``, written ``dense<[1.0, 2.0]> : tensor<2xf32>``"""
    GENERIC: ClassVar[AttributeKind] = kinds.GENERIC
    """an ``Attribute`` of any class, as it is written"""
