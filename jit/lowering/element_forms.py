"""Kinds of elements: as they stand in memory, in lanes, and rounded as their type says."""

from __future__ import annotations

from hlojit.ir.formats import ComplexType, ElementType, FloatFormat
from hlojit.ir.scalar import formats
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.lowering.element_constants import stored_element


def memory_kind(element: ElementType) -> str:
    """Kind of one element in a buffer: ``i1`` for a boolean's byte, the bits' integer for a small float or a complex number."""
    if isinstance(element, ComplexType):
        return f"i{element.bits}"
    return formats.storage_kind(stored_element(element))


def lane_kind(element: ElementType) -> str:
    """Kind of the lanes in which elements are loaded and stored: of a complex number's parts, one of them."""
    return element.component if isinstance(element, ComplexType) else memory_kind(element)


def is_narrow(element: ElementType) -> bool:
    """Whether the element type is a float that is computed in a wider one."""
    return isinstance(element, FloatFormat) and not element.is_native


def round_element(builder: ScalarBuilder, element: ElementType, scalar: Scalar) -> Scalar:
    """Bring the result of a rule into its element type: round a narrow float, wrap a sub-byte integer."""
    if is_narrow(element):
        return formats.round_to_format(builder, scalar, element)
    return formats.wrap_integer(builder, scalar, element)
