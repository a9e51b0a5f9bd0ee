"""Regions of scalars - combiners, comparators - evaluated against any builder of scalars, without memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

from hlojit.ir.graph import Value
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.lowering.body import Body
from hlojit.lowering.element_access import Access
from hlojit.lowering.elements import Elements


class ScalarAccess:
    """An ``Access`` without memory: a region's values are its arguments and constants."""

    def __init__(self, builder: ScalarBuilder):
        self.builder = builder
        """Receives the arithmetic."""

    def is_uniform(self, condition: Any) -> bool:
        """Everything is one lane here."""
        return True

    def load(self, *arguments: Any) -> NoReturn:
        """Regions read no memory."""
        raise AssertionError("a combiner or comparator reads no buffers")

    index_value = bind = branch = loop = load


def region_elements(builder: ScalarBuilder) -> Elements:
    """Evaluates values of regions in compute form."""
    return Elements(cast(Access, ScalarAccess(builder)), Body({}, (), ()))


def region_values(builder: ScalarBuilder, arguments: Mapping[Value, Scalar], values: Sequence[Value]) -> list[Scalar]:
    """Values of a region in compute form, where arguments that they depend on are given."""
    elements = region_elements(builder)
    for argument, scalar in arguments.items():
        elements.define(argument, (), scalar)
    return [elements.value(value, ()) for value in values]
