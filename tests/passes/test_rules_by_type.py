"""Chains of elementwise ops over every element type, with the constants that rules look for, keep their bits when simplified.

The reference back end simplifies as the others do; what is compared here is the interpreter on the program as it is written.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hlojit.ir.builder import Builder
from hlojit.ir.formats import BooleanType, ComplexType, ElementType, FloatFormat, IntegerType, element_type
from hlojit.ir.graph import Function, Module, Value
from hlojit.ir.interpreter import evaluate
from hlojit.ir.passes.pipeline_text import parse_pipeline
from hlojit.ir.passes.rewriting import Effect, Rule, observe_rules
from hlojit.ir.types import tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from .golden import SPECIAL_FLOATS, assert_same_bits

COUNT = 12
TYPES = [
    *("i1", "i2", "i4", "i8", "i16", "i32", "i64", "ui2", "ui4", "ui8", "ui16", "ui32", "ui64"),
    *(
        "f16",
        "bf16",
        "f32",
        "f64",
        "f8E4M3FN",
        "f8E5M2",
        "f8E4M3B11FNUZ",
        "f8E3M4",
        "f4E2M1FN",
        "f6E2M3FN",
        "f8E8M0FNU",
    ),
    *("complex<f32>", "complex<f64>"),
]
NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 4.0, 3.0)
OF_NUMBERS = ("add", "subtract", "multiply", "divide")
OF_REALS = ("maximum", "minimum", "remainder", "power")
OF_INTEGERS = ("and_", "or_", "xor", "shift_left", "shift_right_logical", "shift_right_arithmetic")
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def special_values(element: ElementType) -> Any:
    """Values at which rules could differ from what they replace."""
    if isinstance(element, BooleanType):
        return np.array([False, True])
    if isinstance(element, IntegerType):
        values = [0, 1, 2, 3, 7, element.maximum, element.maximum - 1, element.minimum, element.minimum + 1, -1, -2, -5]
        return np.array([each for each in values if element.minimum <= each <= element.maximum], element.storage)
    if isinstance(element, ComplexType):
        return np.array([complex(x, y) for x in SPECIAL_FLOATS for y in SPECIAL_FLOATS], element.storage)
    with np.errstate(over="ignore"):
        return np.array([*SPECIAL_FLOATS, 200.0, -300.0, 1e5, 0.5, 3.0]).astype(element.storage)


class Chain:
    """Grows a random function of elementwise ops."""

    def __init__(self, random: Random):
        self.random = random
        self.module = Module()
        inputs = [tensor((COUNT,), self.choose(TYPES)) for _ in range(random.randint(1, 3))]
        function = Function("main", inputs, [])
        self.builder = Builder(function.body)
        self.values: list[Value] = list(function.body.arguments)
        for _ in range(random.randint(2, 6)):
            self.values.append(self.grow())
        picked = self.values[-4:]
        function.result_types = [value.type for value in picked]
        function.result_attributes = [{} for _ in picked]
        self.builder.return_(*picked)
        self.module.add_function(function)

    def choose(self, choices: Any) -> Any:
        return self.random.choice(choices)

    def maybe(self) -> bool:
        return self.random.random() < 0.5

    def arguments(self) -> list[Any]:
        found = []
        for type in self.module.main.type.inputs:
            values = special_values(type.element_type)  # type: ignore[attr-defined]
            found.append(values[[self.random.randrange(len(values)) for _ in range(COUNT)]])
        return found

    def grow(self) -> Value:
        """One more value: mostly of the last one."""
        x = self.values[-1] if self.maybe() else self.choose(self.values)
        step = self.choose(
            (self.converted, self.converted, self.binary, self.binary, self.unary, self.compared, self.selected)
        )
        result: Value = step(x, x.tensor_type.element_type)
        return result

    def other(self, x: Value) -> Value:
        """A second operand: a constant, or any value of the same type."""
        kind = x.tensor_type
        if self.maybe():
            return self.choose([value for value in self.values if value.type is kind])
        if isinstance(kind.element_type, IntegerType):
            number = int(self.choose(special_values(kind.element_type).tolist()))
        else:
            number = self.choose((False, True) if isinstance(kind.element_type, BooleanType) else NUMBERS)
        return self.builder.constant(number, kind)

    def pair(self, x: Value) -> tuple[Value, Value]:
        y = self.other(x)
        return (x, y) if self.maybe() else (y, x)

    def converted(self, x: Value, element: ElementType) -> Value:
        targets = TYPES[-2:] if isinstance(element, ComplexType) else TYPES
        return self.builder.convert(x, self.choose(targets))

    def binary(self, x: Value, element: ElementType) -> Value:
        names = {
            BooleanType: ("and_", "or_", "xor", "maximum", "minimum"),
            IntegerType: OF_NUMBERS + OF_REALS + OF_INTEGERS,
            FloatFormat: OF_NUMBERS + OF_REALS[:3],
            ComplexType: OF_NUMBERS,
        }[type(element)]
        result: Value = getattr(self.builder, self.choose(names))(*self.pair(x))
        return result

    def unary(self, x: Value, element: ElementType) -> Value:
        names: tuple[str, ...] = ("not_",) if isinstance(element, BooleanType) else ("negate",)
        if isinstance(element, IntegerType):
            names = ("negate", "not_", "abs", "sign") if element.signed else ("negate", "not_")
        elif isinstance(element, FloatFormat):
            names = ("negate", "abs", "sign", "ceil", "floor", "round_nearest_afz", "round_nearest_even")
        result: Value = getattr(self.builder, self.choose(names))(x)
        return result

    def compared(self, x: Value, element: ElementType) -> Value:
        directions = DIRECTIONS[:2] if isinstance(element, ComplexType) else DIRECTIONS
        # Arithmetic leaves the sign of NaN open, which a total order would show: only numbers that were integers have one here.
        made = x.producer
        exact = made is not None and made.op.mnemonic == "convert"
        exact = exact and not isinstance(made.operands[0].tensor_type.element_type, FloatFormat)
        total = isinstance(element, FloatFormat) and exact and self.maybe()
        if total:
            zero = self.builder.constant(self.choose(NUMBERS), x.tensor_type)
            return self.builder.compare(x, zero, self.choose(directions), "TOTALORDER")
        return self.builder.compare(*self.pair(x), self.choose(directions))

    def selected(self, x: Value, element: ElementType) -> Value:
        predicates = [each for each in self.values if isinstance(each.tensor_type.element_type, BooleanType)]
        if not predicates:
            return self.compared(x, element)
        return self.builder.select(self.choose(predicates), *self.pair(x))


def check(chain: Chain) -> None:
    """Compare the bits of a program before and behind simplification, where only exact rules had a hand in it."""
    before = chain.module.clone()
    fired: list[Rule] = []
    with observe_rules(lambda rule, instruction: fired.append(rule)):
        parse_pipeline("canonicalize").run(chain.module, verify="always")
    if not fired or any(rule.effect is not Effect.EXACT for rule in fired):
        return
    arguments = chain.arguments()
    for one, other in zip(evaluate(before, *arguments), evaluate(chain.module, *arguments), strict=True):
        assert_same_bits(one, other)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_simplified_programs_keep_their_bits(seed: int) -> None:
    random = Random(seed)
    for _ in range(25):
        check(Chain(random))


CONVERSIONS = [
    *(("ui8", "f32", "i8"), ("i8", "f32", "ui32"), ("i8", "f32", "ui8"), ("i16", "f32", "i8"), ("i32", "f64", "i16")),
    *(("ui8", "bf16", "i4"), ("i2", "f16", "ui16"), ("i4", "f8E4M3", "ui2")),
]


@pytest.mark.parametrize(("source", "middle", "target"), CONVERSIONS)
def test_an_integer_that_was_a_float_becomes_the_nearest_one(source: str, middle: str, target: str) -> None:
    values = special_values(element_type(source))
    function = Function("main", [tensor(values.shape, source)], [tensor(values.shape, target)])
    builder = Builder(function.body)
    builder.return_(builder.convert(builder.convert(function.body.arguments[0], middle), target))
    module = Module()
    module.add_function(function)
    parse_pipeline("canonicalize").run(module, verify="always")
    kept: Any = element_type(target)
    expected = np.clip(values.astype(object), kept.minimum, kept.maximum).astype(kept.storage)
    np.testing.assert_array_equal(evaluate(module, values)[0], expected)


@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
@pytest.mark.parametrize("number", [0.0, -0.0, 1.0])
def test_a_boolean_is_no_negative_zero(direction: str, number: float) -> None:
    kind = tensor((2,), "i1")
    function = Function("main", [kind], [kind])
    builder = Builder(function.body)
    converted = builder.convert(function.body.arguments[0], "f32")
    builder.return_(
        builder.compare(converted, builder.constant(number, converted.tensor_type), direction, "TOTALORDER")
    )
    module = Module()
    module.add_function(function)
    before = module.clone()
    parse_pipeline("canonicalize").run(module, verify="always")
    argument = np.array([False, True])
    assert evaluate(module, argument)[0].tolist() == evaluate(before, argument)[0].tolist()


def test_numbers_without_an_opposite_are_not_negated_away() -> None:
    kind = tensor((3,), "f8E8M0FNU")
    function = Function("main", [kind], [kind, kind])
    builder = Builder(function.body)
    negated = builder.negate(function.body.arguments[0])
    builder.return_(builder.abs(negated), builder.negate(negated))
    module = Module()
    module.add_function(function)
    parse_pipeline("canonicalize").run(module, verify="always")
    found = evaluate(module, np.array([0.5, 1, 2]).astype(kind.element_type.storage))
    assert np.isnan(np.array(found, "f4")).all(), "what is negated is NaN in a format without signs"
