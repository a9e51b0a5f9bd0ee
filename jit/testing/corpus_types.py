"""A program of arithmetic for each element type: what is wrong of one of them alone is wrong there."""

from __future__ import annotations

from collections.abc import Iterator

from hlojit.ir.builder import Builder, build_function
from hlojit.ir.formats import BUILT_IN, BooleanType, ComplexType, ElementType, FloatFormat, IntegerType
from hlojit.ir.graph import Module, Value
from hlojit.ir.types import tensor
from hlojit.testing.arguments import Values, made_up

_SHAPE = (5, 7)


def typed_programs() -> Iterator[tuple[str, Module]]:
    """Names and programs: sums, products, comparisons, conversions, with constants that are not all alike."""
    for element in BUILT_IN.values():
        if isinstance(element, (BooleanType, IntegerType, FloatFormat, ComplexType)):
            yield f"numbers of {element}", _program(element)


def _program(element: ElementType) -> Module:
    module = Module()
    kind, source = tensor(_SHAPE, element), tensor(_SHAPE, "f32")
    is_float = isinstance(element, FloatFormat)
    with build_function(module, "main", [kind, kind, *([source] if is_float else [])]) as builder:
        x, y, *numbers = builder.arguments
        constant = builder.constant(made_up(kind, (5, 7), Values.ORDINARY), kind)
        results = [builder.add(x, constant), builder.multiply(builder.add(x, y), y)]
        results += _ordered(builder, element, x, y, constant)
        results += [builder.convert(each, element) for each in numbers]
        builder.return_(*results)
    return module


def _ordered(builder: Builder, element: ElementType, x: Value, y: Value, constant: Value) -> list[Value]:
    """What needs an order, or signs."""
    if isinstance(element, ComplexType):
        return [builder.subtract(x, y)]
    results = [builder.select(builder.compare(x, y, "LT"), x, constant), builder.maximum(x, y)]
    if isinstance(element, BooleanType):
        return results
    results.append(builder.subtract(builder.negate(x), y))
    results.append(builder.convert(y, "f64" if isinstance(element, FloatFormat) else "i64"))
    return results
