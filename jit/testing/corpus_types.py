"""A program of arithmetic for each element type: what is wrong of one of them alone is wrong there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hlojit.ir.builder import Builder, build_function
from hlojit.ir.formats import BUILT_IN, BooleanType, ComplexType, ElementType, FloatFormat, IntegerType
from hlojit.ir.graph import Module, Value
from hlojit.ir.types import tensor
from hlojit.testing.arguments import Values, made_up

_SHAPE = (5, 7)
TYPED: Final = "numbers of "
"""What names of these programs begin with."""


def typed_programs(taken: frozenset[str] | None = None) -> Iterator[tuple[str, Module]]:
    """Names and programs: sums, products, comparisons, conversions, with constants that are not all alike.

    Those of the types that are ``taken`` (None: all) compare and convert among these alone.
    """
    for element in BUILT_IN.values():
        if isinstance(element, (BooleanType, IntegerType, FloatFormat, ComplexType)):
            is_taken = taken is not None and element.name in taken
            yield (
                f"{TYPED}{element}",
                _program(element, taken if taken is not None and is_taken else frozenset(BUILT_IN)),
            )


def _program(element: ElementType, taken: frozenset[str]) -> Module:
    module = Module()
    kind, source = tensor(_SHAPE, element), tensor(_SHAPE, "f32")
    has_source = isinstance(element, FloatFormat) and "f32" in taken
    with build_function(module, "main", [kind, kind, *([source] if has_source else [])]) as builder:
        x, y, *numbers = builder.arguments
        constant = builder.constant(made_up(kind, (5, 7), Values.ORDINARY), kind)
        results = [builder.add(x, constant), builder.multiply(builder.add(x, y), y)]
        results += _ordered(builder, element, x, y, constant, taken)
        results += [builder.convert(each, element) for each in numbers]
        builder.return_(*results)
    return module


def _ordered(
    builder: Builder, element: ElementType, x: Value, y: Value, constant: Value, taken: frozenset[str]
) -> list[Value]:
    """What needs an order, or signs."""
    if isinstance(element, ComplexType):
        return [builder.subtract(x, y)]
    results = [builder.maximum(x, y)]
    if "i1" in taken:
        results.insert(0, builder.select(builder.compare(x, y, "LT"), x, constant))
    if isinstance(element, BooleanType):
        return results
    results.append(builder.subtract(builder.negate(x), y))
    wide = "f64" if isinstance(element, FloatFormat) else "i64"
    return [*results, builder.convert(y, wide)] if wide in taken else results
